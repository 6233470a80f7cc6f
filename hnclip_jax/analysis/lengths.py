"""A picture of how long captions are."""

import os
from collections.abc import Sequence

import numpy as np

from hnclip_jax.analysis import page
from hnclip_jax.data.checks import statistics, texts


def draw(
    tokens: np.ndarray,
    path: str | os.PathLike,
    contexts: Sequence[int] = texts.CONTEXTS,
    title: str = "",
) -> None:
    """Writes a PNG: histogram of the token counts, with the lengths where captions are cut.

    Args:
      tokens: [n] int, with begin and end.
      path: of the file.
      contexts: lengths to mark, with the share of the captions above.
      title: above the picture.

    Raises:
      types.UserError: if matplotlib is not installed.
    """
    drawn, axes = page.page(8, 4.5)
    axes.hist(tokens, bins=statistics.edges(tokens, bins=60), color="0.6")
    for context in contexts:
        share = np.mean(tokens > context)
        axes.axvline(context, color="black", linestyle="--", linewidth=1)
        axes.annotate(
            f"{context}: {share:.1%} above",
            (context, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            rotation=90,
            verticalalignment="top",
        )
    axes.set(xlabel="tokens, with begin and end", ylabel="captions", title=title)
    page.save(drawn, path)
