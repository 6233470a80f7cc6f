"""`hnclip look duplicates`: captions with those that the text encoder can hardly tell from them."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from hnclip_jax import types
from hnclip_jax.analysis import companions, gallery, gallery_duplicates, gallery_records
from hnclip_jax.commands import look, looking, pictures
from hnclip_jax.data import lists
from hnclip_jax.training import logging

EXAMPLE = "hnclip look duplicates --weights=runs/demo --data=data/scenes/test.json --shown=4"
MOST = 20
"""Captions or queries on a page; one of many more would have more pixels than can be drawn."""


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    looking.define_flags(values)
    flags.DEFINE_enum(
        "by",
        None,
        companions.BY,
        "which captions: those with the nearest companions (hardest, unless --ids), or random ones",
        flag_values=values,
    )
    flags.DEFINE_list(
        "ids",
        [],
        "pictures of the list whose captions are shown, the first of each, instead of --by",
        flag_values=values,
    )
    define_numbers(values, "companions", 4, "captions next to it, for each")
    look.define_out(values, "duplicates")


def define_numbers(values: flags.FlagValues, columns: str, default: int, what: str) -> None:
    """Adds how much is shown, for both galleries: --shown, --seed, and the flag for the columns."""
    for name, number, help_ in (
        (columns, default, what),
        ("shown", 4, "how many; with --ids, as many as those"),
    ):
        flags.DEFINE_integer(
            name, number, help_, lower_bound=1, upper_bound=MOST, flag_values=values
        )
    flags.DEFINE_integer("seed", 0, "of --by=random", lower_bound=0, flag_values=values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Draws the captions with their companions, and writes the numbers."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; for example: {EXAMPLE}")
    check_flags(values)
    for name in ("weights", "data", "embeddings"):
        if len(getattr(values, name)) > 1:
            raise types.UserError(f"--{name} names several; duplicates are those of one")
    (one,) = looking.look(
        values, values.weights, EXAMPLE, captions_only=True, check=check_ids(values)
    )
    by = "ids" if values.ids else values.by or "hardest"
    shown = gallery_duplicates.numbers(_chosen(values, one, by), one.captions)
    if by != "ids" and len(shown) < values.shown:
        logging.say(f"only {len(shown)} captions: no pair of captions is shown twice")
    load = gallery_records.Pictures(one.records.records, pictures.options(values), logging.say)
    title = f"captions and their nearest companions in {one.data}, by {one.weights} ({by})"
    drawn = gallery.draw(title, gallery_duplicates.blocks(shown, load))
    about = {"by": by, "seed": values.seed, "captions": len(one.captions), **source(one)}
    numbers = {**about, "shown": shown}
    look.write(values, drawn, numbers, gallery_duplicates.table(shown), photos=True)


def check_flags(values: flags.FlagValues) -> None:
    """Raises types.UserError for mistakes in the flags that both galleries have."""
    look.check_out(values)
    if values.ids and values.by:
        raise types.UserError("--ids and --by both say what is shown; leave one out")
    if len(values.ids) > MOST:
        raise types.UserError(f"--ids names {len(values.ids)} pictures; at most {MOST} are shown")


def check_ids(values: flags.FlagValues) -> Callable[[lists.PictureList], None]:
    """Returns what raises types.UserError if --ids does not fit a list."""
    return lambda found: values.ids and gallery_records.positions(found.records, values.ids)


def _chosen(values: flags.FlagValues, one: looking.Looked, by: str) -> companions.Companions:
    if by == "ids":
        companions.check(one.text, one.pair_ids)
        named = gallery_records.positions(one.records.records, values.ids)
        # Captions stand record after record.
        asked = np.searchsorted(one.text_to_image, list(named.values()))
        return companions.find(one.text, one.pair_ids, asked, values.companions)
    with contextlib.closing(logging.Progress("comparing captions", "caption")) as progress:
        return companions.choose(
            one.text,
            one.pair_ids,
            by,
            values.shown,
            values.companions,
            seed=values.seed,
            progress=progress,
        )


def source(one: looking.Looked) -> dict[str, Any]:
    """Returns JSON values that say which weights and list a gallery is of."""
    return {"weights": one.weights, "data": one.data, "provenance": one.provenance}
