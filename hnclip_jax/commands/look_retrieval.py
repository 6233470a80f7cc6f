"""`hnclip look retrieval A [B]`: queries with what one or two models put first for them."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from hnclip_jax import types
from hnclip_jax.analysis import (
    companions,
    gallery,
    gallery_records,
    gallery_retrieval,
    gallery_top,
    queries,
)
from hnclip_jax.commands import look, look_duplicates, looking, pictures
from hnclip_jax.training import logging

EXAMPLE = "hnclip look retrieval runs/plain runs/hn --data=data/scenes/test.json --by=rescued"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    looking.define_flags(values, weights=False)
    flags.DEFINE_enum(
        "direction",
        "t2i",
        tuple(queries.DIRECTIONS),
        "captions ask for their picture, or pictures for their captions",
        flag_values=values,
    )
    by = "; ".join(f"{name}: {what}" for name, what in queries.BY.items())
    flags.DEFINE_enum(
        "by",
        None,
        tuple(queries.BY),
        f"which queries. {by}. Unless --ids: rescued with two models, worst with one",
        flag_values=values,
    )
    flags.DEFINE_list(
        "ids",
        [],
        "pictures of the list that ask, or whose first captions do, instead of --by",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "k", 1, "found means: among the first k", lower_bound=1, flag_values=values
    )
    look_duplicates.define_numbers(values, "top", 5, "how many that a model puts first, for each")
    look.define_out(values, "retrieval")


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints how many queries are found; draws some with what the models put first."""
    models = len(values.embeddings or arguments)
    if models not in (1, 2) or (arguments and values.embeddings) or len(values.data) > 1:
        raise types.UserError(
            "needs one or two weights and one list in --data, or one or two folders in "
            f"--embeddings; for example: {EXAMPLE}"
        )
    look_duplicates.check_flags(values)
    by = "ids" if values.ids else values.by or ("rescued" if models == 2 else "worst")
    if by != "ids":
        queries.check(by, models)
    check = look_duplicates.check_ids(values)
    looked = looking.look(values, arguments, EXAMPLE, check=check)
    _check_lists(looked)
    names = [one.weights for one in looked]
    if models == 2:
        names = [f"{letter}: {name}" for letter, name in zip("AB", names, strict=True)]
    each = [
        looking.ranked(
            one.weights, one.image, one.text, one.text_to_image, one.records.queries, values.k
        )
        for one in looked
    ]
    ranked = {direction: [found[direction] for found in each] for direction in queries.DIRECTIONS}
    print(queries.table(ranked, names, values.k))
    shown = _shown(values, by, looked, names, ranked[values.direction])
    load = gallery_records.Pictures(
        looked[0].records.records, pictures.options(values), logging.say
    )
    title = f"{queries.DIRECTIONS[values.direction]} in {looked[0].data} ({by})"
    drawn = gallery.draw(title, gallery_retrieval.blocks(values.direction, shown, load))
    numbers = {
        **{name: getattr(values, name) for name in ("direction", "k", "seed")},
        "by": by,
        "models": [look_duplicates.source(one) for one in looked],
        "found": {name: queries.kinds(found) for name, found in ranked.items()},
        "shown": shown,
    }
    look.write(values, drawn, numbers, gallery_retrieval.table(shown), photos=True)


def _check_lists(looked: Sequence[looking.Looked]) -> None:
    a, b = looked[0].records, looked[-1].records
    if (a.sha256, a.queries, len(a.records)) != (b.sha256, b.queries, len(b.records)):
        raise types.UserError(
            f"the two models are of two lists, {a.path} and {b.path}; embed one list by both"
        )


def _shown(
    values: flags.FlagValues,
    by: str,
    looked: Sequence[looking.Looked],
    names: Sequence[str],
    ranked: Sequence[queries.Ranked],
) -> list[dict[str, Any]]:
    """Returns the queries that are chosen, with what the models put first, as JSON values."""
    one, direction = looked[0], values.direction
    records = one.records
    rows = queries.asking(one.text_to_image, len(records.records), records.queries, direction)
    if by == "ids":
        wanted = gallery_records.positions(records.records, values.ids)
        chosen = queries.named(one.text_to_image, direction, rows, wanted)
    else:
        near = _near(one, direction, rows) if by == "hardest" else None
        chosen = queries.choose(by, ranked, values.shown, near=near, seed=values.seed)
    rows = rows[chosen]
    answers = [
        gallery_retrieval.Answers(
            name,
            found.places[chosen],
            found.equal[chosen],
            gallery_top.top(
                model.image, model.text, model.text_to_image, direction, rows, values.top
            ),
        )
        for name, found, model in zip(names, ranked, looked, strict=True)
    ]
    return gallery_retrieval.numbers(direction, rows, one.captions, answers)


def _near(one: looking.Looked, direction: str, rows: np.ndarray) -> np.ndarray:
    with contextlib.closing(logging.Progress("comparing captions", "caption")) as progress:
        nearest = companions.hardest(one.text, one.pair_ids, progress)
    return gallery_top.hardness(nearest, one.text_to_image, direction, rows)
