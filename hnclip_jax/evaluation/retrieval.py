"""Ranks, recall and precision, both directions, any number of captions per picture."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from hnclip_jax import types
from hnclip_jax.evaluation import counting, precision, ties
from hnclip_jax.evaluation import relevance as right

DIRECTIONS = ("t2i", "i2t")
"""Caption asks for its picture; picture asks for its captions."""

Scorer: TypeAlias = Callable[
    [np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray], int], counting.Scores
]
"""(image, text, order, block_rows), as `counting.Products` takes them -> scores."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a gallery gave, per query.

    ranks: direction -> one rank per query, in the order of the rows.
    gallery: direction -> items of the gallery.
    precisions: direction -> [queries] AP@map_k from 0 to 1; zeros if map_k is 0.
    map_k: how many items average precision looked at.
    """

    ranks: dict[str, ties.Ranks]
    gallery: dict[str, int]
    precisions: dict[str, np.ndarray]
    map_k: int

    def shares(self, direction: str, ks: Sequence[int]) -> dict[str, np.ndarray]:
        """Returns {"r@1": [queries] chance from 0 to 1 of a hit, ..., "map@10": ...}."""
        found = self.ranks[direction]
        shares = {f"r@{k}": ties.hits(found, k) for k in ks}
        if self.map_k:
            shares[f"map@{self.map_k}"] = self.precisions[direction]
        return shares

    def metrics(self, ks: Sequence[int]) -> dict[str, float]:
        """Returns the numbers that `retrieval_metrics` describes."""
        check_ks(ks)
        metrics: dict[str, float] = {}
        for name, found in self.ranks.items():
            for key, share in self.shares(name, ks).items():
                metrics[f"{name}_{key}"] = float(100 * np.sum(share) / len(share))
            metrics[f"{name}_median_rank"] = float(np.median(ties.places(found)))
        metrics["ties"] = sum(int(np.count_nonzero(found.equal)) for found in self.ranks.values())
        return metrics

    def diagnostics(self, ks: Sequence[int]) -> dict[str, dict[str, float]]:
        """Returns recall by the two other rules for ties, and the tied queries per direction."""
        by_rule = {
            rule: {
                f"{name}_r@{k}": ties.recall(found, k, rule)
                for name, found in self.ranks.items()
                for k in ks
            }
            for rule in ties.RULES[1:]
        }
        tied = {name: int(np.count_nonzero(found.equal)) for name, found in self.ranks.items()}
        return {**by_rule, "tied_queries": tied}


def retrieval_metrics(
    image: types.Array,
    text: types.Array,
    text_to_image: Sequence[int] | types.Array | None = None,
    ks: Sequence[int] = (1, 5, 10),
    *,
    queries: Sequence[int] | None = None,
    groups: Sequence[str] | types.Array | None = None,
    relevance: str = "pair",
    map_k: int = 0,
    block_rows: int = 1024,
) -> dict[str, float]:
    """Returns recall at each of `ks` in percent, by cosine, median ranks, and the tied queries.

    Args:
      image: [M, D] embeddings of the pictures, of any length.
      text: [T, D] embeddings of the captions, of any length.
      text_to_image: [T] int, the row of each caption's picture; None = row i belongs to row i.
      ks: how many items of the gallery count as found.
      queries, groups, relevance, map_k, block_rows: as in `measure`.

    Returns:
      {"t2i_r@1": caption finds picture, ..., "t2i_median_rank": from 1, "i2t_r@1": picture finds
      any of its captions, ..., "i2t_median_rank": ..., "ties": queries of both directions for which
      a wrong item scores the same as the right one}; with map_k also "t2i_map@10" in percent, ...

    Raises:
      types.UserError: for a K below 1; and as `measure`.
    """
    check_ks(ks)
    measured = measure(
        image,
        text,
        text_to_image,
        queries=queries,
        groups=groups,
        relevance=relevance,
        map_k=map_k,
        block_rows=block_rows,
    )
    return measured.metrics(ks)


def measure(
    image: types.Array,
    text: types.Array,
    text_to_image: Sequence[int] | types.Array | None = None,
    *,
    queries: Sequence[int] | None = None,
    groups: Sequence[str] | types.Array | None = None,
    relevance: str = "pair",
    map_k: int = 0,
    block_rows: int = 1024,
    scorer: Scorer = counting.Products,
    progress: counting.Progress | None = None,
) -> Measured:
    """Returns the ranks, and the average precisions if asked, of every query.

    Args:
      image, text, text_to_image: as in `retrieval_metrics`.
      queries: rows of the pictures that ask, and whose captions ask; None = all. The gallery is
        whole in any case.
      groups: [M], of each picture; "" = none. Only relevance "group" looks at it.
      relevance: what average precision takes for right: a "pair" alone, or every picture and
        caption of the "group". Recall is that of pairs in both.
      map_k: how many items of the gallery average precision looks at; 0 = no average precision.
      block_rows: captions whose scores are held at once, rounded up to a multiple of 256. It bounds
        the memory and changes no result.
      scorer: makes the scores to rank by from both embeddings, checked.
      progress: called with (captions done, captions).

    Raises:
      types.UserError: for shapes that do not fit, values that are not finite, a row number out of
        range, or a picture without a caption.
    """
    image, text = counting.check_rows("image", image), counting.check_rows("text", text)
    _check_options(image, text, relevance, map_k, block_rows)
    owner = right.check_owners(text_to_image, len(image), len(text))
    asking = right.check_queries(queries, len(image))
    alone = relevance == "pair" or not map_k
    pairs = right.pairs(owner, right.check_groups(None if alone else groups, len(image)))
    gallery = scorer(image, text, (pairs.image_order, pairs.text_order), block_rows)
    scores = gallery.of_pairs(pairs.rows, pairs.columns)
    sides = {
        name: _Side(query, scores, pairs.own, alone, map_k)
        for name, query in (("t2i", pairs.rows), ("i2t", pairs.columns))
    }
    counts = gallery.count(sides["t2i"].wanted, sides["i2t"].wanted, progress)
    counted = dict(zip(DIRECTIONS, counts, strict=True))
    # From the places of the order back to the rows, and of these to those that ask.
    back = {
        "t2i": np.argsort(pairs.text_order)[asking[owner]],
        "i2t": np.argsort(pairs.image_order)[asking],
    }
    return Measured(
        {name: side.ranks(counted[name], back[name]) for name, side in sides.items()},
        {"t2i": len(image), "i2t": len(text)},
        {name: side.precisions(counted[name], back[name]) for name, side in sides.items()},
        map_k,
    )


class _Side:
    """The queries of one direction, and which scores have to be compared with the gallery's."""

    def __init__(
        self, query: np.ndarray, scores: np.ndarray, own: np.ndarray, alone: bool, map_k: int
    ) -> None:
        """Takes the right items: query and score of each, and whether it is the query's own.

        alone: no others count as right, so that one table of scores serves ranks and precision.
        """
        self._queries, self._map_k = query.max() + 1, map_k
        self._all = np.bincount(query)
        found = right.runs(query, scores)
        self._best = found if alone else right.runs(query[own], scores[own])
        self._best = self._best.where(self._best.place == 0)
        # Items behind k better right ones are behind the first k in any case.
        self._found = found.where(found.before < max(map_k, 1))
        wanted = [right.table(self._found, self._queries)]
        self._offset = 0 if alone else 1
        if not alone:
            wanted.insert(0, self._best.score[:, None])
        self.wanted = np.concatenate(wanted, axis=1)

    def ranks(self, counts: counting.Counts, which: np.ndarray) -> ties.Ranks:
        """Returns the rank of the best own item of some queries."""
        greater, equal = counts.greater[:, 0], counts.equal[:, 0] - self._best.right
        if equal.min() < 0:
            raise types.UserError(
                "one product of embeddings gave two results on this device, so equal scores cannot "
                "be told; rank on the CPU instead: JAX_PLATFORMS=cpu"
            )
        return ties.Ranks(greater[which], equal[which], self._best.right[which])

    def precisions(self, counts: counting.Counts, which: np.ndarray) -> np.ndarray:
        """Returns AP@map_k of some queries; 0 if map_k is 0."""
        at = (self._found.query, self._found.place + self._offset)
        greater, equal = counts.greater[at], counts.equal[at]
        found = precision.average_precision(self._found, greater, equal, self._all, self._map_k)
        return found[which]


def _check_options(
    image: np.ndarray, text: np.ndarray, relevance: str, map_k: int, block_rows: int
) -> None:
    if image.shape[1] != text.shape[1]:
        raise types.UserError(
            f"image embeddings have width {image.shape[1]}, text embeddings {text.shape[1]}; "
            "both must come from one model"
        )
    if relevance not in right.RULES:
        raise types.unknown_name("relevance", relevance, right.RULES)
    for name, value, least in (("block_rows", block_rows, 1), ("map_k", map_k, 0)):
        if value < least:
            raise types.UserError(f"{name} is {value}, but must be at least {least}")


def check_ks(ks: Sequence[int]) -> None:
    """Raises types.UserError unless all of `ks` are whole numbers from 1."""
    if not len(ks) or not all(isinstance(k, int | np.integer) and k >= 1 for k in ks):
        raise types.UserError(f"ks is {tuple(ks)}; recall@K needs whole numbers from 1")
