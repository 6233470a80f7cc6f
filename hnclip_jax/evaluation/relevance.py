"""Which items are right for a query, checked; and the right ones of each query by their scores."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax import types

RULES = ("pair", "group")
"""pair: a caption and its own picture; group: all captions and pictures of one group."""


class Pairs(NamedTuple):
    """Captions and pictures that are right for each other, sorted so that they are near.

    image_order: [M], the picture at each place.
    text_order: [T], the caption at each place.
    rows: [P], places of captions, ascending.
    columns: [P], places of pictures.
    own: [P] bool, whether the caption is that picture's own.
    """

    image_order: np.ndarray
    text_order: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    own: np.ndarray


class Runs(NamedTuple):
    """The different scores of each query's right items, the best first; one entry per score.

    query: which query.
    place: how many better different scores it has.
    score: float32.
    before: right items with a better score.
    right: right items with this score.
    """

    query: np.ndarray
    place: np.ndarray
    score: np.ndarray
    before: np.ndarray
    right: np.ndarray

    def where(self, kept: np.ndarray) -> "Runs":
        """Returns those that are kept, [runs] bool."""
        return Runs(*(field[kept] for field in self))


def pairs(owner: np.ndarray, group: np.ndarray) -> Pairs:
    """Returns all right pairs.

    Args:
      owner: [T] int, the picture of each caption.
      group: [M] int, the group of each picture.
    """
    image_order = np.argsort(group, kind="stable")
    text_order = np.lexsort((owner, group[owner]))
    sizes = np.bincount(group)
    first = np.cumsum(sizes) - sizes
    of_text = group[owner[text_order]]
    many = sizes[of_text]
    rows = np.repeat(np.arange(len(owner)), many)
    inside = np.arange(len(rows)) - np.repeat(np.cumsum(many) - many, many)
    columns = np.repeat(first[of_text], many) + inside
    own = image_order[columns] == owner[text_order][rows]
    return Pairs(image_order, text_order, rows, columns, own)


def runs(query: np.ndarray, score: np.ndarray) -> Runs:
    """Returns the runs of equal scores.

    Args:
      query: [P] int, of each right item; every query has one.
      score: [P] float32.
    """
    order = np.lexsort((-score, query))
    query, score = query[order], score[order]
    new_query = np.diff(query, prepend=query[0] - 1) != 0
    starts = np.flatnonzero(new_query | (np.diff(score, prepend=score[0]) != 0))
    first_item = np.flatnonzero(new_query)
    first_run = np.searchsorted(starts, first_item)
    number = np.cumsum(new_query[starts]) - 1
    return Runs(
        query[starts],
        np.arange(len(starts)) - first_run[number],
        score[starts],
        starts - first_item[number],
        np.diff(starts, append=len(query)),
    )


def table(found: Runs, queries: int) -> np.ndarray:
    """Returns [queries, R] float32, each query's scores by their place; infinity where none."""
    scores = np.full((queries, found.place.max() + 1), np.inf, np.float32)
    scores[found.query, found.place] = found.score
    return scores


def check_owners(text_to_image: types.Array | None, pictures: int, texts: int) -> np.ndarray:
    """Returns [T] int, the picture of each caption.

    Raises:
      types.UserError: if it does not fit, or a picture has no caption.
    """
    if text_to_image is None:
        if pictures != texts:
            raise types.UserError(
                f"{pictures} pictures but {texts} captions; give text_to_image, the row of each "
                "caption's picture"
            )
        return np.arange(texts)
    owner = np.asarray(text_to_image)
    if owner.shape != (texts,) or not np.issubdtype(owner.dtype, np.integer):
        raise types.UserError(
            f"text_to_image is {owner.dtype} {list(owner.shape)}; needed is one whole number for "
            f"each of the {texts} captions"
        )
    if owner.min() < 0 or owner.max() >= pictures:
        raise types.UserError(
            f"text_to_image goes from {owner.min()} to {owner.max()}, but there are {pictures} "
            "pictures; count from 0"
        )
    bare = np.setdiff1d(np.arange(pictures), owner)
    if bare.size:
        raise types.UserError(
            f"{bare.size} of {pictures} pictures have no caption, the first is row {bare[0]}; "
            "leave them out"
        )
    return owner.astype(np.int64)


def check_groups(groups: Sequence[str] | types.Array | None, pictures: int) -> np.ndarray:
    """Returns [M] int, equal for pictures of one group; "" and None are a group each.

    Raises:
      types.UserError: if there is not one for each picture.
    """
    if groups is None:
        return np.arange(pictures)
    if len(groups) != pictures:
        raise types.UserError(f"{len(groups)} groups for {pictures} pictures; give one for each")
    numbers: dict[object, int] = {}
    names = [("alone", place) if name in ("", None) else name for place, name in enumerate(groups)]
    return np.array([numbers.setdefault(name, len(numbers)) for name in names])


def check_queries(queries: Sequence[int] | None, pictures: int) -> np.ndarray:
    """Returns [M] bool, the pictures that ask.

    Raises:
      types.UserError: for a position out of range, one given twice, or none at all.
    """
    if queries is None:
        return np.ones(pictures, bool)
    places = np.asarray(queries)
    if (
        places.ndim != 1
        or not places.size
        or not np.issubdtype(places.dtype, np.integer)
        or places.min() < 0
        or places.max() >= pictures
        or len(np.unique(places)) != len(places)
    ):
        raise types.UserError(
            f"queries are {places.size} positions of {pictures} pictures; needed is at least one, "
            f"each once, from 0 to {pictures - 1}"
        )
    asking = np.zeros(pictures, bool)
    asking[places] = True
    return asking
