"""Where the best right item of a query stands, and how much it counts where scores are equal.

A rank is counted, not sorted: how many wrong items of the gallery score above the best right one,
and how many score the same. Equal scores are shared out by chance, so that a model which gives
every item one score gets K / M, not 100 %.
"""

from typing import NamedTuple

import numpy as np

from hnclip_jax import types

RULES = ("expected", "optimistic", "pessimistic")


class Ranks(NamedTuple):
    """Where the best right item of each query stands; int64, one entry per query.

    greater: wrong items with a higher score.
    equal: wrong items with the same score.
    right: right items with that score; 1 or more.
    """

    greater: np.ndarray
    equal: np.ndarray
    right: np.ndarray


def recall(found: Ranks, k: int, ties: str = "expected") -> float:
    """Returns recall@k in percent; `hits` has the rules.

    Raises:
      types.UserError: for an unknown rule.
    """
    return float(100 * np.sum(hits(found, k, ties)) / len(found.greater))


def hits(found: Ranks, k: int, ties: str = "expected") -> np.ndarray:
    """Returns how much each query counts in recall@k, [queries] from 0 to 1.

    With m = max(k - greater, 0) places left for the tied items, a query counts

        expected      1 - C(equal, m) / C(equal + right, m): the chance that a right one gets one
        optimistic    1 if greater < k: the right ones come first
        pessimistic   1 if greater + equal < k: they come last

    Args:
      found: the ranks of one direction.
      k: how many items of the gallery count as found.
      ties: one of the three rules.

    Raises:
      types.UserError: for an unknown rule.
    """
    if ties not in RULES:
        raise types.unknown_name("tie rule", ties, RULES)
    if ties == "optimistic":
        return (found.greater < k).astype(float)
    if ties == "pessimistic":
        return (found.greater + found.equal < k).astype(float)
    return _chance(found, k)


def places(found: Ranks) -> np.ndarray:
    """Returns the place, from 1, of each query's best right item: the mean over tied orders."""
    return 1 + found.greater + found.equal / (found.right + 1)


def _chance(found: Ranks, k: int) -> np.ndarray:
    left = np.maximum(k - found.greater, 0)
    miss = np.ones(len(left))
    # The ratio of binomials as a product over the places; it is 0 once the wrong items run out.
    for taken in range(min(left.max(), found.equal.max() + 1)):
        wrong = np.maximum(found.equal - taken, 0)
        miss *= np.where(taken < left, wrong / (wrong + found.right), 1.0)
    return 1 - miss
