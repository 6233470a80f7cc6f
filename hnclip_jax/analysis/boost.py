"""What the boost would be on a list: its constant and its adaptive part, and what is left to do."""

import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from hnclip_jax.losses import diagnostics, margins

BATCHES = 20
"""Most batches in which rows are counted as solved."""

CONSTANT, ADAPTIVE = 0.9, 0.5
"""From the first on, most of the boost is called constant, and up to the second, most adaptive."""
FAINT = 0.1
"""Logits up to which the adaptive part is said not to choose: a factor of about 1.1."""
MANY, FEW = 0.5, 0.1
"""Shares of solved rows: from the first on most are, and below the second hardly any."""


class Solved(NamedTuple):
    """How many rows of batches have a loss below `diagnostics.SOLVED`, mean of both directions.

    plain: share of them under InfoNCE.
    error: its standard error, from how the batches differ; nan for a single batch.
    boosted: the share under HN-CLIP.
    info_nce: mean loss of InfoNCE.
    batches: how many, without a pair in common.
    pairs: in each of them.
    """

    plain: float
    error: float
    boosted: float
    info_nce: float
    batches: int
    pairs: int


class Boost(NamedTuple):
    """What s gamma G would add to the logits of negatives.

    scale: s.
    gamma: of the boost.
    constant: s gamma times the mean of G, in logits.
    adaptive: s gamma times the standard deviation of G, in logits.
    solved: None where there were no pictures.
    """

    scale: float
    gamma: float
    constant: float
    adaptive: float
    solved: Solved | None

    @property
    def constant_share(self) -> float:
        """The part of the boost's mean square that all negatives share; nan if there is none."""
        every = self.constant**2 + self.adaptive**2
        return self.constant**2 / every if every else math.nan

    def text(self) -> str:
        """Returns in a few sentences what to expect of the loss."""
        if not self.gamma:
            return "\n".join(["With gamma = 0 there is no boost.", _told(self)])
        return "\n".join(
            [
                f"At s = {self.scale:.4g} and gamma = {self.gamma:g} the boost adds "
                f"{self.constant:.2f} logits to a negative on average (constant part, s gamma mean "
                f"G); one standard deviation between negatives is {abs(self.adaptive):.2f} logits "
                "(adaptive part, s gamma std G).",
                _kind(self.constant_share),
                _choice(self.adaptive),
                _told(self),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as JSON values."""
        solved = self.solved._asdict() if self.solved else None
        return {**self._asdict(), "constant_share": self.constant_share, "solved": solved}


def predict(
    mean: float, std: float, *, scale: float, gamma: float, solved: Solved | None = None
) -> Boost:
    """Returns the boost where G has this mean and standard deviation."""
    return Boost(scale, gamma, scale * gamma * mean, scale * gamma * std, solved)


def count_solved(
    image: np.ndarray,
    text: np.ndarray,
    text_to_image: np.ndarray,
    pair_ids: np.ndarray,
    *,
    scale: float,
    gamma: float,
    size: int,
    seed: int,
) -> Solved:
    """Returns how many rows are solved in batches that are drawn without replacement.

    Args:
      image: [M, D] float32, unit norm.
      text: [T, D] float32, unit norm.
      text_to_image: [T] int, the row of each caption's picture.
      pair_ids: [T] int; pairs with equal ids are no negatives of each other.
      scale: s of both losses.
      gamma: of HN-CLIP.
      size: pairs in a batch; all of them, if there are fewer.
      seed: of the choice.

    Raises:
      types.UserError: if there are fewer than two pairs.
    """
    size = min(size, len(text))
    batches = min(BATCHES, len(text) // size)
    order = np.random.default_rng(seed).permutation(len(text))[: batches * size]
    measure = jax.jit(
        functools.partial(diagnostics.measure, margin=functools.partial(margins.hn, gamma=gamma))
    )
    found = [
        measure(image[text_to_image[rows]], text[rows], scale, same_pair=pair_ids[rows])
        for rows in order.reshape(batches, size)
    ]

    def mean(key: str) -> float:
        return float(np.mean([float(one[key]) for one in found]))

    shares = [float(one["solved_plain"]) for one in found]
    error = np.std(shares, ddof=1) / math.sqrt(batches) if batches > 1 else math.nan
    return Solved(
        mean("solved_plain"), float(error), mean("solved"), mean("info_nce"), batches, size
    )


def _kind(share: float) -> str:
    """Returns how much of the boost is a constant margin."""
    told = f"the part that all negatives share is {share:.1%} of its mean square"
    if share >= CONSTANT:
        return (
            f"Most of it is a constant margin ({told}): loss.kind=constant is the control for it."
        )
    if share <= ADAPTIVE:
        return f"Most of it differs between negatives ({told}): it is far from a constant margin."
    return f"It is a constant margin and a choice among negatives ({told}): both parts count."


def _choice(adaptive: float) -> str:
    """Returns what the adaptive part does to the weight of a negative in the softmax."""
    factor = _times(math.exp(min(adaptive, 700.0)))
    if abs(adaptive) <= FAINT:
        return (
            "It hardly chooses among negatives: one whose caption is a standard deviation more "
            f"alike than another's weighs {factor} times as much."
        )
    return (
        "A negative whose caption is a standard deviation more alike than another's weighs "
        f"{factor} times as much."
    )


def _times(factor: float) -> str:
    if factor < 100:
        return f"{factor:.2g}"
    return f"{factor:,.0f}" if factor < 1e6 else "over a million"


def _told(boost: Boost) -> str:
    """Returns what InfoNCE has left to learn, and what the boost makes of it."""
    solved = boost.solved
    if solved is None:
        return (
            "How many rows InfoNCE has solved is not known without pictures; leave out "
            "--captions_only to count them."
        )
    error = "" if math.isnan(solved.error) else f" +- {solved.error:.1%}"
    batches = "1 batch" if solved.batches == 1 else f"{solved.batches} batches"
    text = (
        f"Plain InfoNCE has solved {solved.plain:.1%}{error} of the rows (loss below "
        f"{diagnostics.SOLVED:g}; {batches} of {solved.pairs} pairs): {_left(solved.plain)}"
    )
    return text + (_with_boost(boost.gamma, solved) if boost.gamma else "")


def _left(plain: float) -> str:
    if plain >= MANY:
        return "it has little gradient left, and the boost is made for this."
    if plain >= FEW:
        return "these give it little gradient, and the others still do."
    return "nearly all rows still give it gradient, so the boost is not needed for that."


def _with_boost(gamma: float, solved: Solved) -> str:
    text = f" With the boost {solved.boosted:.1%} of the rows would be solved"
    if solved.plain >= MANY and solved.boosted >= MANY:
        return f"{text}: at gamma = {gamma:g} most rows stay without gradient."
    return f"{text}."
