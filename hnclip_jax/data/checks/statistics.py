"""How long captions are, in tokens and in words: histogram and figures, as text."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax.data.checks import texts

_BAR = 50
_BINS = 24


class Figures(NamedTuple):
    """What lengths are like: mean, then quantiles and extremes."""

    mean: float
    median: float
    p90: float
    p95: float
    p99: float
    min: int
    max: int


class Lengths(NamedTuple):
    """Lengths of all captions of a list.

    tokens: [n] int64, with begin and end.
    words: [n] int64, what stands between blanks.
    """

    tokens: np.ndarray
    words: np.ndarray

    def above(self, contexts: Sequence[int] = texts.CONTEXTS) -> dict[int, float]:
        """Returns context length -> share of the captions that are cut there."""
        return {context: float(np.mean(self.tokens > context)) for context in contexts}

    def text(self, contexts: Sequence[int] = texts.CONTEXTS) -> str:
        """Returns figures, shares and a histogram of the tokens, for a terminal."""
        names = "".join(f"{name:>8}" for name in Figures._fields)
        lines = [f"{len(self.tokens):,} captions", "", f"{'':<8}{names}"]
        for name in ("tokens", "words"):
            of = figures(getattr(self, name))
            lines.append(f"{name:<8}" + "".join(f"{value:>8,.5g}" for value in of))
        lines += ["", "tokens count begin and end; longer captions are cut:"]
        lines += [
            f"  above {context:>4}  {share:>6.1%}  {round(share * len(self.tokens)):>9,} captions"
            for context, share in self.above(contexts).items()
        ]
        return "\n".join([*lines, "", *bars(self.tokens, contexts)])


def lengths(captions: Sequence[str], counted: Sequence[texts.Counted]) -> Lengths:
    """Returns the lengths of captions that `texts.count` has counted."""
    return Lengths(
        np.array([caption.tokens for caption in counted]),
        np.array([len(re.findall(r"\S+", caption)) for caption in captions]),
    )


def figures(values: np.ndarray) -> Figures:
    """Returns what lengths are like."""
    quantiles = np.percentile(values, [50, 90, 95, 99])
    return Figures(
        float(np.mean(values)), *map(float, quantiles), int(values.min()), int(values.max())
    )


def edges(values: np.ndarray, bins: int = _BINS) -> np.ndarray:
    """Returns the edges of at most `bins` bins of one round width that hold all values.

    Returns:
      int64, ascending; bin k holds edges[k] <= value < edges[k + 1].
    """
    low, high = int(values.min()), int(values.max()) + 1
    exact = (high - low) / bins
    decade = 10 ** max(int(np.floor(np.log10(max(exact, 1)))), 0)
    width = next(w for w in (decade, 2 * decade, 5 * decade, 10 * decade) if w >= exact)
    start = low // width * width
    return np.arange(start, high + width, width)


def bars(tokens: np.ndarray, contexts: Sequence[int] = texts.CONTEXTS) -> list[str]:
    """Returns a histogram as lines of text; the bins where captions begin to be cut are marked."""
    limits = edges(tokens)
    counts = np.histogram(tokens, limits)[0]
    lines = []
    for low, high, count in zip(limits[:-1], limits[1:], counts, strict=True):
        if count == 0 and low > tokens.max():
            continue
        marks = [str(context) for context in contexts if low <= context < high]
        bar = "#" * int(np.ceil(_BAR * count / counts.max()))
        mark = f"  <- cut at {', '.join(marks)}" if marks else ""
        lines.append(f"{low:>6} - {high - 1:<6}{count:>9,} {bar}{mark}".rstrip())
    return lines
