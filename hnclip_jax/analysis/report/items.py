"""Galleries from what was computed: near-duplicate captions, and queries by two models."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax.analysis import companions, gallery_top, queries, words
from hnclip_jax.analysis.report import galleries

_SAID = {
    "rescued": (
        "Rescued by {b}, against {a}",
        "Captions whose picture {b} ranks first and {a} does not, the largest gain of ranks first:",
    ),
    "lost": (
        "Lost by {b}, against {a}",
        "Captions whose picture {a} ranks first and {b} does not, the largest loss of ranks first:",
    ),
    "worst": (
        "Not found by {a}",
        "Captions whose picture {a} does not rank first, the worst first:",
    ),
}
"""How captions were chosen -> title of the gallery, and the beginning of its summary."""


class Texts(NamedTuple):
    """The list that galleries are of.

    captions: [T] texts.
    owners: [T] int, the record of each caption.
    first: [M] texts, a caption of each record.
    """

    captions: Sequence[str]
    owners: np.ndarray
    first: Sequence[str]


class Model(NamedTuple):
    """What a model did with all captions that ask.

    name: of the model.
    image: [M, D] float32, unit norm.
    text: [T, D] float32, unit norm.
    ranked: the ranks of their pictures, among the first one.
    """

    name: str
    image: np.ndarray
    text: np.ndarray
    ranked: queries.Ranked


def duplicates(name: str, found: companions.Companions, texts: Texts) -> galleries.Gallery:
    """Returns captions, each with its companions, in which the words of the first are marked.

    Args:
      name: of the weights.
      found: captions and their companions.
      texts: of the list.
    """
    items = []
    for row, near, cosines in zip(found.asked, found.found, found.cosines, strict=True):
        caption = texts.captions[int(row)]
        there = [(int(n), float(c)) for n, c in zip(near, cosines, strict=True) if n >= 0]
        own = galleries.Picture(int(texts.owners[row]), "The caption", caption, told=True)
        others = (_companion(caption, n, cosine, texts) for n, cosine in there)
        title = f"Caption {int(row)}, nearest companion at cosine {there[0][1]:.3f}"
        items.append(galleries.Item(title, "", (("", (own, *others)),)))
    summary = (
        f"Captions that the text encoder of {name} can hardly tell from others, the nearest "
        "first. Content words that a companion shares with the caption are marked."
    )
    return galleries.Gallery(f"Near-duplicate captions by {name}", summary, tuple(items))


def retrieval(
    by: str, models: Sequence[Model], asking: np.ndarray, texts: Texts, most: int, count: int
) -> galleries.Gallery:
    """Returns captions with the pictures that models put first, and where the right one stands.

    Args:
      by: which captions: "rescued" or "lost" of two models, "worst" of one.
      models: A alone, or A and B.
      asking: [Q] int, rows of all captions that ask.
      texts: of the list.
      most: pictures that there is room for.
      count: pictures of each model.
    """
    some = _some(by, models)
    chosen = np.zeros(0, np.int64)
    if some:
        shown = most // (1 + count * len(models))
        chosen = queries.choose(by, [model.ranked for model in models], shown)
    rows = asking[chosen]
    tops = [gallery_top.top(m.image, m.text, texts.owners, "t2i", rows, count) for m in models]
    found = []
    for place, (row, query) in enumerate(zip(rows.tolist(), chosen.tolist(), strict=True)):
        own = int(texts.owners[row])
        truth = galleries.Picture(own, "", texts.first[own], right=True)
        shelves = [("The caption's own picture", (truth,))]
        for model, top in zip(models, tops, strict=True):
            rank = queries.number(float(model.ranked.places[query]))
            shelves.append((f"{model.name} ranks it {rank}", _top(top, place, texts)))
        found.append(galleries.Item(f"Caption {row}", texts.captions[row], tuple(shelves)))
    title, summary = _SAID[by]
    names = {"a": models[0].name, "b": models[-1].name}
    told = f"{summary} {some:,} of {len(asking):,} captions."
    return galleries.Gallery(title.format(**names), told.format(**names), tuple(found))


def _some(by: str, models: Sequence[Model]) -> int:
    """Returns how many captions are meant; ties leave some queries to chance, and these are not."""
    a, b = models[0].ranked.hits, models[-1].ranked.hits
    if by not in queries.PAIRED:
        return int(np.sum(a <= 0))
    fails, finds = (a, b) if by == "rescued" else (b, a)
    return int(np.sum((fails <= 0) & (finds >= 1)))


def _companion(caption: str, row: int, cosine: float, texts: Texts) -> galleries.Picture:
    other = texts.captions[row]
    spans = words.spans(other, words.shared(caption, other))
    record = int(texts.owners[row])
    return galleries.Picture(
        record, f"Caption {row}, cosine {cosine:.3f}", other, tuple(spans), told=True
    )


def _top(top: gallery_top.Top, place: int, texts: Texts) -> tuple[galleries.Picture, ...]:
    return tuple(
        galleries.Picture(
            int(record), f"cosine {cosine:.3f}", texts.first[int(record)], right=bool(right)
        )
        for record, cosine, right in zip(
            top.found[place], top.cosines[place], top.right[place], strict=True
        )
        if record >= 0
    )
