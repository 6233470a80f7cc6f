"""What a model puts first for some queries, and how near each query's nearest companion is."""

import dataclasses

import numpy as np

from hnclip_jax.analysis import companions


@dataclasses.dataclass(frozen=True)
class Top:
    """What one model puts first for some queries.

    found: [q, K] int64, rows of the gallery; -1 where there are no more.
    cosines: [q, K] float32; -inf where there are no more.
    right: [q, K] bool, whether it is a right one.
    """

    found: np.ndarray
    cosines: np.ndarray
    right: np.ndarray


def top(
    image: np.ndarray,
    text: np.ndarray,
    text_to_image: np.ndarray,
    direction: str,
    rows: np.ndarray,
    count: int,
) -> Top:
    """Returns what a model puts first, by cosine; of equal scores the first row comes first.

    Args:
      image: [M, D] float32, unit norm.
      text: [T, D] float32, unit norm.
      text_to_image: [T] int, the picture of each caption.
      direction: "t2i" or "i2t".
      rows: [q] int, of the captions if text asks, else of the pictures.
      count: how many of the gallery for each.
    """
    text_to_image = np.asarray(text_to_image)
    if direction == "t2i":
        found, cosines = companions.first(text[rows], image, count)
        return Top(found, cosines, found == text_to_image[rows][:, None])
    found, cosines = companions.first(image[rows], text, count)
    owners = np.where(found >= 0, text_to_image[found], -1)
    return Top(found, cosines, owners == np.asarray(rows)[:, None])


def hardness(
    nearest: np.ndarray, text_to_image: np.ndarray, direction: str, rows: np.ndarray
) -> np.ndarray:
    """Returns [q] float32, how near the nearest companion of each query is.

    Args:
      nearest: [T] float32, of each caption; see `companions.hardest`.
      text_to_image, direction, rows: as in `top`. A picture's is the largest of its captions.
    """
    if direction == "t2i":
        return nearest[rows]
    of_pictures = np.full(int(np.max(text_to_image)) + 1, -np.inf, np.float32)
    np.maximum.at(of_pictures, text_to_image, nearest)
    return of_pictures[rows]
