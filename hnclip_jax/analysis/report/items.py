"""Galleries from what was computed: near-duplicate captions, and queries by two models."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax.analysis import companions, gallery_top, queries, words
from hnclip_jax.analysis.report import galleries

_SAID = {
    "rescued": (
        "{queries} rescued by {b}, against {a}",
        "{queries} whose {answer} {b} ranks first and {a} does not, the largest gain of ranks "
        "first:",
    ),
    "lost": (
        "{queries} lost by {b}, against {a}",
        "{queries} whose {answer} {a} ranks first and {b} does not, the largest loss of ranks "
        "first:",
    ),
    "worst": (
        "{queries} not found by {a}",
        "{queries} whose {answer} {a} does not rank first, the worst first:",
    ),
}
"""How queries were chosen -> title of the gallery, and the beginning of its summary."""

_MARKED = " Content words that a caption shares with the picture's own are marked."

_NOUNS = {"t2i": ("Captions", "picture"), "i2t": ("Pictures", "caption")}
"""What asks, and what is right."""


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
    """What a model did with all queries.

    name: of the model.
    image: [M, D] float32, unit norm.
    text: [T, D] float32, unit norm.
    ranked: direction -> the ranks of the right answers, among the first one.
    """

    name: str
    image: np.ndarray
    text: np.ndarray
    ranked: Mapping[str, queries.Ranked]


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
    by: str,
    direction: str,
    models: Sequence[Model],
    asking: np.ndarray,
    texts: Texts,
    most: int,
    count: int,
) -> galleries.Gallery:
    """Returns queries with what models put first, and where the right one stands.

    Args:
      by: which queries: "rescued" or "lost" of two models, "worst" of one.
      direction: "t2i" or "i2t".
      models: A alone, or A and B.
      asking: [Q] int, rows of all queries: of captions if text asks, else of records.
      texts: of the list.
      most: pictures that there is room for.
      count: pictures of each model.
    """
    ranked = [model.ranked[direction] for model in models]
    some = _some(by, ranked)
    chosen = np.zeros(0, np.int64)
    if some:
        chosen = queries.choose(by, ranked, most // (1 + count * len(models)))
    rows = asking[chosen]
    tops = [gallery_top.top(m.image, m.text, texts.owners, direction, rows, count) for m in models]
    ask, answer = _NOUNS[direction]
    found = []
    for place, (row, query) in enumerate(zip(rows.tolist(), chosen.tolist(), strict=True)):
        own = int(texts.owners[row]) if direction == "t2i" else row
        shelves = [_asks(direction, own, texts)]
        for model, one, top in zip(models, ranked, tops, strict=True):
            label = f"{model.name} ranks its {answer} {queries.number(float(one.places[query]))}"
            shelves.append((label, _top(direction, top, place, texts.first[own], texts)))
        caption = texts.captions[row] if direction == "t2i" else ""
        found.append(galleries.Item(f"{ask[:-1]} {row}", caption, tuple(shelves)))
    title, summary = _SAID[by]
    names = {"queries": ask, "answer": answer, "a": models[0].name, "b": models[-1].name}
    told = f"{summary} {some:,} of {len(asking):,} {ask.lower()}."
    told += _MARKED if direction == "i2t" else ""
    return galleries.Gallery(title.format(**names), told.format(**names), tuple(found))


def _asks(direction: str, own: int, texts: Texts) -> tuple[str, tuple[galleries.Picture, ...]]:
    """Returns the shelf of a query itself."""
    if direction == "t2i":
        return "The caption's own picture", (
            galleries.Picture(own, "", texts.first[own], right=True),
        )
    return "", (galleries.Picture(own, "The picture, with a caption", texts.first[own], told=True),)


def _some(by: str, ranked: Sequence[queries.Ranked]) -> int:
    """Returns how many queries are meant; ties leave some to chance, and these are not."""
    a, b = ranked[0].hits, ranked[-1].hits
    if by not in queries.PAIRED:
        return int(np.sum(a <= 0))
    fails, finds = (a, b) if by == "rescued" else (b, a)
    return int(np.sum((fails <= 0) & (finds >= 1)))


def _companion(caption: str, row: int, cosine: float, texts: Texts) -> galleries.Picture:
    return _caption(f"Caption {row}, cosine {cosine:.3f}", caption, row, texts)


def _caption(
    title: str, other: str, row: int, texts: Texts, right: bool = False
) -> galleries.Picture:
    """Returns a caption beside its picture; its words that `other` has too are marked."""
    caption = texts.captions[row]
    spans = tuple(words.spans(caption, words.shared(other, caption)))
    return galleries.Picture(int(texts.owners[row]), title, caption, spans, told=True, right=right)


def _top(
    direction: str, top: gallery_top.Top, place: int, own: str, texts: Texts
) -> tuple[galleries.Picture, ...]:
    """Returns what a model puts first for a query, whose own caption is `own`."""
    shown = []
    for found, cosine, right in zip(
        top.found[place].tolist(), top.cosines[place], top.right[place], strict=True
    ):
        title = f"cosine {cosine:.3f}"
        if found < 0:
            continue
        if direction == "t2i":
            one = galleries.Picture(found, title, texts.first[found], right=bool(right))
        else:
            one = _caption(title, own, found, texts, bool(right))
        shown.append(one)
    return tuple(shown)
