"""The section of settings: those in which the runs differ, and all of them to unfold."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hnclip_jax import config
from hnclip_jax.analysis import history
from hnclip_jax.analysis.report import markup, tables


def render(runs: Sequence[history.History]) -> markup.Html:
    """Returns the settings that differ between the runs, and all of them to unfold.

    Of one run, those are shown that differ from the defaults.

    Args:
      runs: with names that tell them apart.
    """
    defaults = flat(config.Config())
    named = {one.name: flat(one.settings) for one in runs}
    compared = named if len(runs) > 1 else {"default": defaults, **named}
    differing = [
        name for name in defaults if len({repr(values[name]) for values in compared.values()}) > 1
    ]
    if len(runs) > 1:
        caption, none = "Settings that differ", "The runs do not differ in any setting."
    else:
        caption, none = "Settings other than the defaults", "All settings are the defaults."
    everything = _table("All settings", list(defaults), {"default": defaults, **named})
    return markup.join(
        [
            _table(caption, differing, compared) if differing else markup.tag("p", none),
            markup.tag(
                "details", markup.tag("summary", f"All {len(defaults)} settings"), everything
            ),
        ]
    )


def flat(settings: config.Config) -> dict[str, Any]:
    """Returns {"group.field": value} of a configuration."""
    return {
        f"{group}.{name}": value
        for group, fields in dataclasses.asdict(settings).items()
        for name, value in fields.items()
    }


def _table(
    caption: str, names: Sequence[str], columns: Mapping[str, Mapping[str, Any]]
) -> markup.Html:
    titles = [tables.Column("Setting"), *map(tables.Column, columns)]
    rows = [
        tables.Row((name, *(_value(values[name]) for values in columns.values()))) for name in names
    ]
    return tables.table(caption, titles, rows)


def _value(value: Any) -> str:
    """Returns a value as the command line takes it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "(none)"
    return "(empty)" if value == "" else str(value)
