"""Queries by their ranks under one or two models: how many each finds, and which to look at.

Ranks are counted elsewhere (`evaluation.retrieval.measure`) and given to this room, so that they
are those of every recall. The rule for ties: equal scores are shared out by chance. With `greater`
wrong items above the best right one, `equal` wrong and `right` right ones of its score, the rank is
1 + greater + equal / (right + 1), the mean over all orders of the tied; and a query with ties is
found among the first k by a chance from 0 to 1.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax import types

DIRECTIONS = {"t2i": "text to image", "i2t": "image to text"}
BY = {
    "rescued": "A fails, B finds; the largest gain of ranks first",
    "lost": "A finds, B fails; the largest loss of ranks first",
    "worst": "the largest rank by A first",
    "hardest": "the nearest companion caption first",
    "random": "by lot",
}
"""How queries are chosen; the first two need two models."""
PAIRED = ("rescued", "lost")


@dataclasses.dataclass(frozen=True)
class Ranked:
    """Where the best right item of each query stands by one model; one entry per query.

    places: [Q] float64, ranks from 1.
    equal: [Q] int64, wrong items that score the same as the best right one.
    hits: [Q] float64, the chance from 0 to 1 that a right one is among the first k.
    """

    places: np.ndarray
    equal: np.ndarray
    hits: np.ndarray


class Counts(NamedTuple):
    """How many queries two models find among the first k; whole numbers if no score is tied."""

    both: float
    only_a: float
    only_b: float
    neither: float


def asking(
    text_to_image: np.ndarray, pictures: int, queries: Sequence[int] | None, direction: str
) -> np.ndarray:
    """Returns [Q] int64, the row of each query: of a caption if text asks, else of a picture.

    Args:
      text_to_image: [T] int, the picture of each caption.
      pictures: how many there are.
      queries: the pictures that ask, and whose captions ask; None = all.
      direction: "t2i" or "i2t".
    """
    asks = np.full(pictures, queries is None)
    if queries is not None:
        asks[list(queries)] = True
    return np.flatnonzero(asks[text_to_image] if direction == "t2i" else asks)


def counts(a: Ranked, b: Ranked) -> Counts:
    """Returns how many queries both models find, only one of them, and none: the table of McNemar.

    A query with ties counts in parts, as if the two models drew their orders apart; so `both` and
    `only_a` together are A's recall@k times the queries, exactly.
    """
    x, y = a.hits, b.hits
    sums = (x * y, x * (1 - y), (1 - x) * y, (1 - x) * (1 - y))
    return Counts(*(float(np.sum(part)) for part in sums))


def kinds(ranked: Sequence[Ranked]) -> dict[str, float]:
    """Returns how many queries are of which kind, by name, and how many there are.

    Args:
      ranked: of one model, or of two, A and B.
    """
    found = ranked[0].hits
    if len(ranked) == 1:
        named = {"found": float(np.sum(found)), "not found": float(np.sum(1 - found))}
    else:
        named = dict(zip(("both", "only A", "only B", "neither"), counts(*ranked), strict=True))
    return {**named, "queries": len(found)}


def table(ranked: Mapping[str, Sequence[Ranked]], names: Sequence[str], k: int) -> str:
    """Returns `kinds` of every direction, for a terminal.

    Args:
      ranked: direction -> as in `kinds`.
      names: of the models.
      k: what `hits` are the chance of.
    """
    of_direction = {DIRECTIONS[name]: kinds(found) for name, found in ranked.items()}
    head = f"found among the first {k}"
    first = max(map(len, (head, *of_direction)))
    titles = list(next(iter(of_direction.values())))
    lines = [f"{head:<{first}}" + "".join(f"{title:>12}" for title in titles)]
    for direction, values in of_direction.items():
        cells = "".join(f"{number(value):>12}" for value in values.values())
        lines.append(f"{direction:<{first}}{cells}")
    return "\n".join([*names, *lines])


def named(
    text_to_image: np.ndarray, direction: str, rows: np.ndarray, pictures: Mapping[str, int]
) -> np.ndarray:
    """Returns which of the queries are those of some pictures, int64 positions among the Q.

    Args:
      text_to_image: [T] int, ascending.
      direction: "t2i" or "i2t".
      rows: [Q] int, of the queries; see `asking`.
      pictures: id -> row; if text asks, the first caption of each is meant.

    Raises:
      types.UserError: if one of them does not ask.
    """
    places = {int(row): place for place, row in enumerate(rows)}
    found = []
    for name, picture in pictures.items():
        row = int(np.searchsorted(text_to_image, picture)) if direction == "t2i" else picture
        if row not in places:
            raise types.UserError(
                f"picture {name!r} is there to be found and does not ask; choose one of those that "
                f"do, there are {len(rows):,} queries"
            )
        found.append(places[row])
    return np.array(found, np.int64)


def choose(
    by: str,
    ranked: Sequence[Ranked],
    shown: int,
    *,
    near: np.ndarray | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Returns which queries to look at, [at most `shown`] int64 positions among the Q.

    A model fails where no right item can be among the first k, and finds where one is for certain;
    what ties leave to chance is neither. Of equal queries the first comes first.

    Args:
      by: one of `BY`.
      ranked: of one model, A, or of two, A and B.
      shown: how many.
      near: [Q], how near each query's nearest companion is, for "hardest"; see
        `gallery_top.hardness`.
      seed: of the lot.

    Raises:
      types.UserError: for an unknown choice, or one that needs a second model, or if no query
        meets it: how many there are of which kind.
    """
    check(by, len(ranked))
    a, b = ranked[0], ranked[-1]
    if by == "random":
        return np.random.default_rng(seed).permutation(len(a.places))[:shown]
    if by in PAIRED:
        fails, finds = (a, b) if by == "rescued" else (b, a)
        kept = np.flatnonzero((fails.hits <= 0) & (finds.hits >= 1))
        if not kept.size:
            raise types.UserError(_none(by, counts(a, b), len(a.hits)))
        order = finds.places[kept] - fails.places[kept]
        return kept[np.argsort(order, kind="stable")][:shown]
    values = a.places if by == "worst" else near
    return np.argsort(-values, kind="stable")[:shown]


def check(by: str, models: int) -> None:
    """Raises types.UserError for an unknown choice, or one that needs a second model."""
    if by not in BY:
        raise types.unknown_name("choice of queries", by, BY)
    if by in PAIRED and models < 2:
        alone = ", ".join(name for name in BY if name not in PAIRED)
        raise types.UserError(
            f"{by!r} queries are those of two models: {BY[by]}; give a second one, or choose by "
            f"one of {alone}"
        )


def _none(by: str, found: Counts, queries: int) -> str:
    what = {"rescued": "A fails and B finds", "lost": "A finds and B fails"}[by]
    return (
        f"there is no query that {what}: of {queries:,}, both find {number(found.both)}, A alone "
        f"{number(found.only_a)}, B alone {number(found.only_b)}, neither "
        f"{number(found.neither)}; choose others"
    )


def number(value: float) -> str:
    """Returns a rank or a count as text: whole, or with one digit where ties make it uneven."""
    return f"{value:,.1f}".removesuffix(".0")
