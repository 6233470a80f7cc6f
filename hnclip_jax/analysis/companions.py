"""The captions that a text encoder can hardly tell apart: each one's nearest of other pairs."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hnclip_jax import types
from hnclip_jax.data.checks import nearest

BY = ("hardest", "random")
"""How captions are chosen: those with the nearest companions first, or by lot."""

_ASKED, _ROWS = 2048, 8192


@dataclasses.dataclass(frozen=True)
class Companions:
    """Some captions and, for each, the nearest captions of other pairs, the nearest first.

    asked: [q] int64, rows of the captions.
    found: [q, K] int64, rows of their companions; -1 where there are no more.
    cosines: [q, K] float32; -inf where there are no more.
    """

    asked: np.ndarray
    found: np.ndarray
    cosines: np.ndarray


def choose(
    text: np.ndarray,
    pair_ids: np.ndarray,
    by: str,
    shown: int,
    count: int,
    *,
    seed: int = 0,
    progress: nearest.Progress | None = None,
) -> Companions:
    """Returns some captions with their companions.

    No pair of captions comes twice: a caption whose pair was shown before, as one that was chosen
    or as a companion, is passed over. So there may be fewer than asked for.

    Args:
      text: [T, D] float32, unit norm, of all captions.
      pair_ids: [T] int, equal for captions of one picture or of one text.
      by: one of `BY`.
      shown: how many captions.
      count: companions of each.
      seed: of the lot.
      progress: called with (captions compared, T); only "hardest" compares all.

    Raises:
      types.UserError: if no caption has a companion, or embeddings are not finite.
    """
    if by not in BY:
        raise types.unknown_name("choice of captions", by, BY)
    check(text, pair_ids)
    if by == "random":
        order: Sequence[int] = np.random.default_rng(seed).permutation(len(text))
    else:
        order = np.argsort(-hardest(text, pair_ids, progress), kind="stable")
    seen: set[int] = set()
    chosen = []
    for row in order:
        if len(chosen) == shown:
            break
        if int(pair_ids[row]) not in seen:
            one = find(text, pair_ids, np.array([row]), count)
            chosen.append(one)
            there = one.found[one.found >= 0]
            seen.update(pair_ids[np.append(there, row)].tolist())
    joined = zip(*(dataclasses.astuple(one) for one in chosen), strict=True)
    return Companions(*(np.concatenate(parts) for parts in joined))


def find(text: np.ndarray, pair_ids: np.ndarray, asked: np.ndarray, count: int) -> Companions:
    """Returns the companions of some captions; the first of equal ones comes first.

    Args:
      text, pair_ids, count: as in `choose`.
      asked: [q] int, rows of the captions.
    """
    asked = np.asarray(asked, np.int64)
    found, cosines = first(text[asked], text, count, (pair_ids[asked], pair_ids))
    return Companions(asked, found, cosines)


def hardest(
    text: np.ndarray, pair_ids: np.ndarray, progress: nearest.Progress | None = None
) -> np.ndarray:
    """Returns [T] float32, the cosine of each caption with its nearest; -inf where there is none.

    Args:
      text, pair_ids, progress: as in `choose`.
    """
    parts = []
    for low in range(0, len(text), _ASKED):
        asked = np.arange(low, min(low + _ASKED, len(text)))
        found = nearest.by_embeddings(text, pair_ids, asked).found
        # Once more in float64: two captions that are each other's nearest score the same.
        a, b = text[asked].astype(np.float64), text[found].astype(np.float64)
        cosines = np.einsum("td,td->t", a, b).astype(np.float32)
        parts.append(np.where(found >= 0, cosines, -np.inf))
        if progress:
            progress(int(asked[-1]) + 1, len(text))
    return np.concatenate(parts)


def first(
    asked: np.ndarray,
    rows: np.ndarray,
    count: int,
    groups: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows with the largest products, the largest first; of equal ones the first.

    Products are taken in float64 and rounded to float32, so equal rows score the same to the bit.

    Args:
      asked: [q, D] float32.
      rows: [n, D] float32; looked at a block at a time.
      count: how many rows for each of `asked`.
      groups: ([q], [n]) int; rows of the own group are left out.

    Returns:
      ([q, count] int64 numbers of rows, [q, count] float32); -1 and -inf where there are no more.
    """
    numbers = np.full((len(asked), count), -1)
    best = np.full((len(asked), count), -np.inf, np.float32)
    asked = asked.astype(np.float64)
    for low in range(0, len(rows), _ROWS):
        block = np.arange(low, min(low + _ROWS, len(rows)))
        scores = (asked @ rows[block].T.astype(np.float64)).astype(np.float32)
        if groups is not None:
            scores[groups[0][:, None] == groups[1][block]] = -np.inf
        # The best so far stand first, and so does -1 before what is left out: the sort is stable.
        scores = np.concatenate([best, scores], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        best = np.take_along_axis(scores, order, axis=1)
        block = np.concatenate([numbers, np.broadcast_to(block, (len(asked), len(block)))], axis=1)
        numbers = np.take_along_axis(block, order, axis=1)
    return numbers, best


def check(text: np.ndarray, pair_ids: np.ndarray) -> None:
    """Raises types.UserError if embeddings are not finite, or no caption has a companion."""
    bad = np.flatnonzero(~np.isfinite(text).all(axis=1))
    if bad.size:
        raise types.UserError(
            f"{len(bad)} of {len(text)} caption embeddings hold NaN or infinity, the first is row "
            f"{bad[0]}; look at that caption, or compute in float32"
        )
    if not (pair_ids != pair_ids[:1]).any():
        raise types.UserError(
            f"all {len(text)} captions are of one picture or one text, so none has a companion; "
            "needed are captions of two pictures"
        )
