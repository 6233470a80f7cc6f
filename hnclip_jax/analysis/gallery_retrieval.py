"""Queries with what one or two models put first: the numbers, and the page of pictures."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hnclip_jax.analysis import gallery, gallery_records, gallery_top, queries, words
from hnclip_jax.data import lists


@dataclasses.dataclass(frozen=True)
class Answers:
    """What one model makes of the queries that are shown.

    name: of the model, for its label.
    places: [q] float64, ranks of the right item from 1.
    equal: [q] int64, wrong items of its score.
    top: what it puts first.
    """

    name: str
    places: np.ndarray
    equal: np.ndarray
    top: gallery_top.Top


def numbers(
    direction: str,
    rows: np.ndarray,
    captions: lists.PairView,
    answers: Sequence[Answers],
) -> list[dict[str, Any]]:
    """Returns queries with what models put first, as JSON values.

    Args:
      direction: "t2i" or "i2t".
      rows: [q] int, captions if text asks, else records.
      captions: of the list.
      answers: of one or two models.

    Returns:
      {"row", "picture", "id", "captions": the one that asks or those that are right, "models":
      [{"model", "rank", "tied", "gallery": its items, "top": [{"row", "picture", "id", "cosine",
      "right", and with pictures that ask "caption"}]}]}; rows and pictures count from 0.
    """
    gallery_size = len(captions.records) if direction == "t2i" else len(captions)
    shown = []
    for number, row in enumerate(rows):
        picture = int(captions.positions[row]) if direction == "t2i" else int(row)
        record = captions.records[picture]
        texts = [captions[row]] if direction == "t2i" else list(record.captions)
        models = [
            {
                "model": one.name,
                "rank": float(one.places[number]),
                "tied": int(one.equal[number]),
                "gallery": gallery_size,
                "top": _top(direction, captions, one.top, number),
            }
            for one in answers
        ]
        about = {"row": int(row), "picture": picture, "id": record.id, "captions": texts}
        shown.append({**about, "models": models})
    return shown


def _top(
    direction: str, captions: lists.PairView, top: gallery_top.Top, number: int
) -> list[dict[str, Any]]:
    items = []
    for row, cosine, right in zip(
        top.found[number], top.cosines[number], top.right[number], strict=True
    ):
        if row < 0:
            continue
        picture = int(row if direction == "t2i" else captions.positions[row])
        item = {"row": int(row), "picture": picture, "id": captions.records[picture].id}
        item |= {"cosine": float(cosine), "right": bool(right)}
        items.append(item if direction == "t2i" else {**item, "caption": captions[row]})
    return items


def table(shown: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each query, model and item of `numbers`."""
    return [
        {
            "id": one["id"],
            "row": one["row"],
            "model": model["model"],
            "rank": model["rank"],
            "tied": model["tied"],
            "gallery": model["gallery"],
            "place": place,
            **{f"found_{name}": value for name, value in item.items() if name != "picture"},
        }
        for one in shown
        for model in one["models"]
        for place, item in enumerate(model["top"], start=1)
    ]


def blocks(
    direction: str, shown: Sequence[Mapping[str, Any]], pictures: gallery_records.Pictures
) -> list[gallery.Block]:
    """Returns what `gallery.draw` draws of `numbers`."""
    return [_block(direction, one, pictures) for one in shown]


def _block(
    direction: str, one: Mapping[str, Any], pictures: gallery_records.Pictures
) -> gallery.Block:
    asks, what = (
        ("this caption asks; its picture:", "picture")
        if direction == "t2i"
        else ("this picture asks; its caption:", "caption")
    )
    known = {word.word for text in one["captions"] for word in words.content(text)}
    text = " / ".join(one["captions"])
    heading = gallery.Cell(
        f"{one['id']}: {asks}", pictures(one["picture"]), direction == "t2i", text
    )
    rows = [
        (
            f"{model['model']}\n{rank(model, what)}",
            [_cell(place, item, known, pictures) for place, item in enumerate(model["top"], 1)],
        )
        for model in one["models"]
    ]
    return gallery.Block(heading, rows)


def _cell(
    place: int, item: Mapping[str, Any], known: set[str], pictures: gallery_records.Pictures
) -> gallery.Cell:
    caption = item.get("caption", "")
    title = f"{item['id']}\n{place}. cosine {item['cosine']:.3f}"
    marked = words.spans(caption, known)
    return gallery.Cell(title, pictures(item["picture"]), item["right"], caption, marked)


def rank(model: Mapping[str, Any], what: str) -> str:
    """Returns "true picture: rank 7 of 600", and how many others are tied with it, if any."""
    text = f"true {what}: rank {queries.number(model['rank'])} of {model['gallery']:,}"
    return f"{text}, tied with {model['tied']:,}" if model["tied"] else text
