"""The section of provenance: what a page was made from, and the commands that repeat it."""

from collections.abc import Sequence
from typing import NamedTuple

from hnclip_jax.analysis.report import markup, tables


class Origin(NamedTuple):
    """Where something comes from.

    title: of what.
    facts: (what, value) each.
    commands: (what they do, text to type) each.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...] = ()


def render(origins: Sequence[Origin]) -> markup.Html:
    """Returns the section's body: a heading, a table and commands for each."""
    return markup.join(part for one in origins for part in _origin(one))


def _origin(one: Origin) -> list[markup.Html]:
    columns = [tables.Column("What"), tables.Column("Value")]
    rows = [tables.Row((what, markup.tag("code", value))) for what, value in one.facts]
    parts = [
        markup.tag("h3", one.title),
        tables.table(f"{one.title}: where it comes from", columns, rows, sortable=False),
    ]
    for what, text in one.commands:
        parts.append(markup.tag("p", what))
        parts.append(markup.tag("pre", markup.tag("code", text)))
    return parts
