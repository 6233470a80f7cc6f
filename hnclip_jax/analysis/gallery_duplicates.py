"""Captions with their companions: the numbers, and the page of their pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from hnclip_jax.analysis import companions, gallery, gallery_records, words
from hnclip_jax.data import lists


def numbers(found: companions.Companions, captions: lists.PairView) -> list[dict[str, Any]]:
    """Returns the captions with their companions as JSON values.

    Args:
      found: rows of captions.
      captions: of the list.

    Returns:
      {"row", "picture", "id", "caption", "companions": [{the same, "cosine", "shared": content
      words that both have, in the order of the first, "share": of the first's content words}]};
      rows and pictures (records of the list) count from 0.
    """
    return [
        {
            **_caption(captions, row),
            "companions": [
                {
                    **_caption(captions, other),
                    "cosine": float(cosine),
                    **_shared(captions, row, other),
                }
                for other, cosine in zip(others, cosines, strict=True)
                if other >= 0
            ],
        }
        for row, others, cosines in zip(found.asked, found.found, found.cosines, strict=True)
    ]


def table(shown: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each caption and companion of `numbers`."""
    return [
        {
            "id": one["id"],
            "row": one["row"],
            "companion": place,
            "companion_id": other["id"],
            "companion_row": other["row"],
            "cosine": other["cosine"],
            "share": other["share"],
            "shared": " ".join(other["shared"]),
            "caption": one["caption"],
            "companion_caption": other["caption"],
        }
        for one in shown
        for place, other in enumerate(one["companions"], start=1)
    ]


def blocks(
    shown: Sequence[Mapping[str, Any]], pictures: gallery_records.Pictures
) -> list[gallery.Block]:
    """Returns what `gallery.draw` draws of `numbers`."""
    return [_block(one, pictures) for one in shown]


def _block(one: Mapping[str, Any], pictures: gallery_records.Pictures) -> gallery.Block:
    everything = {word for other in one["companions"] for word in other["shared"]}
    heading = gallery.Cell(
        f"{one['id']}: a caption and its picture",
        pictures(one["picture"]),
        caption=one["caption"],
        marked=words.spans(one["caption"], everything),
    )
    own = len({word.word for word in words.content(one["caption"])})
    cells = [
        gallery.Cell(
            f"{other['id']}\ncosine {other['cosine']:.3f}, {len(other['shared'])} of {own} words",
            pictures(other["picture"]),
            caption=other["caption"],
            marked=words.spans(other["caption"], other["shared"]),
        )
        for other in one["companions"]
    ]
    return gallery.Block(heading, [("", cells)])


def _caption(captions: lists.PairView, row: int) -> dict[str, Any]:
    picture = int(captions.positions[row])
    return {
        "row": int(row),
        "picture": picture,
        "id": captions.records[picture].id,
        "caption": captions[row],
    }


def _shared(captions: lists.PairView, row: int, other: int) -> dict[str, Any]:
    a, b = captions[row], captions[other]
    return {"shared": list(words.shared(a, b)), "share": words.share(a, b)}
