"""The section of galleries: items of one query, each with the pictures that models put to it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from hnclip_jax.analysis.report import markup, pictures
from hnclip_jax.data import thumbnails

_ALT = 160
"""Characters of a caption that are read out for its picture."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture of the list.

    record: its number in the list.
    title: what is said of it: its cosine, say.
    caption: what it shows.
    spans: (start, end) in the caption of words that are marked.
    told: whether the caption stands beside the picture; else it is read out only.
    right: whether it, or its caption, is a right answer.
    """

    record: int
    title: str
    caption: str
    spans: tuple[tuple[int, int], ...] = ()
    told: bool = False
    right: bool = False


@dataclasses.dataclass(frozen=True)
class Item:
    """A query.

    title: which one it is.
    caption: what it says; "" = the first picture tells.
    rows: (label, pictures) each.
    """

    title: str
    caption: str
    rows: tuple[tuple[str, tuple[Picture, ...]], ...]

    @property
    def pictures(self) -> Iterator[Picture]:
        """All of its pictures."""
        return (picture for _, row in self.rows for picture in row)

    @property
    def count(self) -> int:
        """How many these are."""
        return sum(len(row) for _, row in self.rows)


@dataclasses.dataclass(frozen=True)
class Gallery:
    """title: its heading; summary: sentences below it; items: the first matter most."""

    title: str
    summary: str
    items: tuple[Item, ...]


def fit(galleries: Sequence[Gallery], most: int) -> list[Gallery]:
    """Returns the galleries with so many first items that at most `most` pictures are shown.

    The pictures are shared out evenly; what a short gallery leaves is for the others.
    """
    sizes = [sum(item.count for item in one.items) for one in galleries]
    kept, left = {}, most
    for done, place in enumerate(sorted(range(len(galleries)), key=sizes.__getitem__)):
        share = left // (len(galleries) - done)
        one = galleries[place]
        kept[place] = dataclasses.replace(one, items=tuple(_first(one.items, share)))
        left -= sum(item.count for item in kept[place].items)
    return [kept[place] for place in range(len(galleries))]


def records(galleries: Sequence[Gallery]) -> list[int]:
    """Returns the numbers of all records whose pictures are shown, each once, ascending."""
    return sorted(
        {shown.record for one in galleries for item in one.items for shown in item.pictures}
    )


def render(galleries: Sequence[Gallery], copies: Mapping[int, thumbnails.Thumbnail]) -> markup.Html:
    """Returns the section's body.

    Args:
      galleries: see `fit`.
      copies: number of a record -> small copy of its picture.
    """
    return markup.join(
        part
        for one in galleries
        for part in (
            markup.tag("h3", one.title),
            markup.tag("p", f"{one.summary} Shown: {len(one.items):,}."),
            *(_item(item, copies) for item in one.items),
        )
    )


def marked(text: str, spans: Sequence[tuple[int, int]]) -> markup.Html:
    """Returns a text with parts of it marked.

    Args:
      text: plain.
      spans: (start, end), ascending, none within another.
    """
    parts, end = [], 0
    for start, stop in spans:
        parts += [text[end:start], markup.tag("mark", text[start:stop])]
        end = stop
    return markup.join([*parts, text[end:]])


def _first(items: Sequence[Item], most: int) -> Iterator[Item]:
    for item in items:
        most -= item.count
        if most < 0:
            return
        yield item


def _item(item: Item, copies: Mapping[int, thumbnails.Thumbnail]) -> markup.Html:
    parts = [markup.tag("h4", item.title)]
    if item.caption:
        parts.append(markup.tag("p", item.caption, class_="caption", dir="auto"))
    for label, row in item.rows:
        kind = "pictures texts" if any(shown.told for shown in row) else "pictures"
        entries = (_picture(shown, copies[shown.record]) for shown in row)
        parts += [
            markup.tag("p", label, class_="label") if label else None,
            markup.tag("ol", *entries, class_=kind),
        ]
    return markup.tag("article", *parts, class_="item")


def _picture(shown: Picture, copy: thumbnails.Thumbnail) -> markup.Html:
    title = markup.tag("b", shown.title) if shown.title else None
    kind = "right" if shown.right else None
    if shown.told:
        text = markup.tag("span", marked(shown.caption, shown.spans), dir="auto")
        title = markup.tag("p", title, " right caption" if shown.right else None)
        below = markup.tag("div", title, markup.tag("p", text))
        image = pictures.image(copy, "Picture of the caption that follows")
        return markup.tag("li", image, below, class_=kind)
    image = pictures.image(copy, f"Picture with the caption: {shortened(shown.caption)}")
    below = markup.tag("figcaption", title, " right picture" if shown.right else None)
    return markup.tag("li", markup.tag("figure", image, below), class_=kind)


def shortened(text: str, most: int = _ALT) -> str:
    """Returns the beginning of a text, cut between words, and dots if that is not all of it."""
    if len(text) <= most:
        return text
    return text[:most].rsplit(" ", 1)[0] + " ..."
