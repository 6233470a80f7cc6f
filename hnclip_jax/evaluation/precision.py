"""Average precision: how early all right items come, each by its place among the first k."""

import numpy as np

from hnclip_jax.evaluation import relevance


def average_precision(
    found: relevance.Runs, greater: np.ndarray, equal: np.ndarray, total: np.ndarray, k: int
) -> np.ndarray:
    """Returns AP@k of each query, [queries] float64 from 0 to 1.

    The sum over the right items among the first k of (right items so far / place), divided by the
    number of right items there are. With one right item this is the reciprocal rank. Items of equal
    score come in every order equally often, and the mean over these is returned: of a group of n
    items, r of them right, behind g others, h of them right, the item at place g + p is right with
    probability r / n, and then h + 1 + (p - 1) (r - 1) / (n - 1) right ones have come.

    Args:
      found: the different scores of the right items, those with `before` < k at least.
      greater: [runs] int, items of the gallery above each score, right or wrong.
      equal: [runs] int, items of that score, right or wrong.
      total: [queries] int, right items of each query.
      k: how many items of the gallery are looked at.
    """
    gain = np.zeros(len(found.query))
    spread = (found.right - 1) / np.maximum(equal - 1, 1)
    for step in range(min(k, int(equal.max()))):
        place = greater + step + 1
        so_far = found.before + 1 + step * spread
        inside = (step < equal) & (place <= k)
        gain += np.where(inside, found.right / equal * so_far / place, 0.0)
    return np.bincount(found.query, gain, len(total)) / total
