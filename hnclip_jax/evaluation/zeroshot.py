"""Zero-shot classification: a class is what its names in several sentences have in common."""

import os
from collections.abc import Sequence

import numpy as np

from hnclip_jax import types
from hnclip_jax.data import classes
from hnclip_jax.evaluation import counting, ties

TEMPLATES = (
    "a picture that shows a {}.",
    "this is a {}.",
    "one {} from nearby.",
    "a {} in the distance.",
    "somebody drew or painted a {}.",
    "a blurred, dark picture of a {}.",
    "a clear, bright picture of a {}.",
    "a part of a {}, cut off by the edge.",
)
"""Sentences for a class; "{}" is its name."""

KS = (1, 5)


def read_templates(path: str | os.PathLike) -> tuple[str, ...]:
    """Returns the sentences of a file: one per line, "{}" for the name.

    Raises:
      types.UserError: if it cannot be read, or a line has not exactly one "{}".
    """
    lines = classes.read_lines(path)
    wrong = [line for line in lines if line.count("{}") != 1]
    if wrong:
        raise types.UserError(
            f"{path}: {len(wrong)} of {len(lines)} lines do not have one {{}} for the name of the "
            f"class: {types.at_most_ten(wrong, ' | ')}"
        )
    return tuple(lines)


def prompts(names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Returns all sentences, class after class."""
    return [template.replace("{}", name) for name in names for template in templates]


def ensemble(text: types.Array, count: int) -> np.ndarray:
    """Returns [C, D] float32 unit vectors: the mean of each class's unit embeddings, normalised.

    Args:
      text: [C * T, D] embeddings of the prompts, class after class, of any length.
      count: C, how many classes.
    """
    text = counting.unit(counting.check_rows("text", text))
    return counting.unit(text.reshape(count, -1, text.shape[1]).mean(axis=1))


def accuracy(
    image: types.Array, of_classes: types.Array, labels: Sequence[int] | np.ndarray
) -> dict[str, float]:
    """Returns {"top1": percent, "top5": ..., "ties": pictures for which two classes come level}.

    Equal scores are shared out by chance, as in retrieval.

    Args:
      image: [N, D] embeddings of the pictures.
      of_classes: [C, D] embeddings of the classes.
      labels: [N] int, the class of each picture.

    Raises:
      types.UserError: for shapes that do not fit, or values that are not finite.
    """
    image = counting.check_rows("image", image)
    of_classes = counting.check_rows("class", of_classes)
    labels = np.asarray(labels)
    if labels.shape != (len(image),) or labels.min() < 0 or labels.max() >= len(of_classes):
        raise types.UserError(
            f"labels are {list(labels.shape)} for {len(image)} pictures and {len(of_classes)} "
            "classes; needed is one class for each picture, from 0"
        )
    order = np.arange(len(of_classes)), np.arange(len(image))
    products = counting.Products(of_classes, image, order, 1024)
    own = products.of_pairs(order[1], labels)
    unasked = np.full((len(of_classes), 1), np.inf, np.float32)
    counts, _ = products.count(own[:, None], unasked)
    one = np.ones(len(image), np.int64)
    found = ties.Ranks(counts.greater[:, 0], counts.equal[:, 0] - one, one)
    metrics: dict[str, float] = {f"top{k}": ties.recall(found, k) for k in KS}
    return {**metrics, "ties": int(np.count_nonzero(found.equal))}
