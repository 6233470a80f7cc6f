"""The official download of DCI (Densely Captioned Images): one annotation file per picture.

    annotations/<n>-data.json   as collected; enough for every benchmark
    complete/<n>-data.json      the same with summaries and negatives, which nothing here needs
    photos/sa_<id>.jpg          from SA-1B, put there by the user
    splits.json                 names of annotation files

The number of an annotation has nothing to do with that of its picture: the file says which it is.
"""

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

from hnclip_jax import types
from hnclip_jax.data.formats import fields

FOLDERS = ("complete", "annotations")
"""Where the annotations may be; the first that is there is read."""

PHOTOS = "photos"
RECIPES = ("extra", "short", "short_extra")
"""Which caption: `extra_caption`, without the pictures that have none; `short_caption`; or both, a
line each (the short one alone where there is no other)."""

_SUFFIX = "-data.json"
_SPLITS = "splits.json"
_NEEDED = "needed are the fields image, short_caption and extra_caption, each a string"


def is_download(folder: str | os.PathLike) -> bool:
    """Returns whether the folder holds annotations of DCI."""
    return any(
        name.endswith(_SUFFIX)
        for part in FOLDERS
        if os.path.isdir(os.path.join(folder, part))
        for name in os.listdir(os.path.join(folder, part))
    )


def read(
    folder: str | os.PathLike,
    recipe: str = "extra",
    *,
    split: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> fields.Rows:
    """Returns a row per picture, in the order of the annotation files' names.

    Args:
      folder: `densely_captioned_images`, the folder that holds `annotations` or `complete`.
      recipe: one of RECIPES.
      split: "train", "valid" or "test" of splits.json; "" = all.
      progress: called with (files read, files).

    Raises:
      types.UserError: if there are no annotations, or one of them is not as it should be.
    """
    if recipe not in RECIPES:
        raise types.unknown_name("DCI caption", recipe, RECIPES)
    folder = os.path.abspath(folder)
    part = next((part for part in FOLDERS if os.path.isdir(os.path.join(folder, part))), FOLDERS[0])
    names = _names(folder, part, split)
    digest, found = hashlib.sha256(), []
    for done, name in enumerate(names, 1):
        image, caption = _annotation(os.path.join(folder, part, name), recipe)
        if caption:
            number = fields.identity(name.removesuffix(_SUFFIX))
            found.append(fields.Row(image, [caption], number, split))
            digest.update(json.dumps([image, caption]).encode())
        if progress:
            progress(done, len(names))
    return fields.Rows(found, digest.hexdigest(), "dci")


def _names(folder: str, part: str, split: str) -> list[str]:
    try:
        there = sorted(n for n in os.listdir(os.path.join(folder, part)) if n.endswith(_SUFFIX))
    except OSError as error:
        raise types.UserError(f"{os.path.join(folder, part)}: {error.strerror}") from error
    if not there:
        raise types.UserError(
            f"{os.path.join(folder, part)} holds no <number>{_SUFFIX}; unpack dci.tar.gz there"
        )
    if not split:
        return there
    splits = _json(os.path.join(folder, _SPLITS))
    if split not in splits:
        raise types.unknown_name("split of DCI", split, splits)
    gone = sorted({*splits[split]} - {*there})
    if gone:
        raise types.UserError(
            f"{os.path.join(folder, part)} lacks {len(gone)} of the {len(splits[split])} files of "
            f"{split!r} in {_SPLITS}: {types.at_most_ten(gone)}"
        )
    return sorted({*splits[split]})


def _annotation(path: str, recipe: str) -> tuple[str, str]:
    """Returns (picture, caption), the caption stripped; "" where the recipe has none."""
    held = _json(path)
    values = [held.get(name) for name in ("image", "short_caption", "extra_caption")]
    if not all(isinstance(value, str) for value in values) or not values[0]:
        keys = types.at_most_ten(held) or "(none)"
        raise types.UserError(f"{path} has the keys {keys}; {_NEEDED}")
    image, short, extra = (value.strip() for value in values)
    return image, {"extra": extra, "short": short, "short_extra": f"{short}\n{extra}".strip()}[
        recipe
    ]


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read().decode())
    except OSError as error:
        raise types.UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise types.UserError(f"{path} is no JSON file in UTF-8: {error}") from None
    if not isinstance(content, dict):
        raise types.UserError(f"{path} holds no JSON object; {_NEEDED}")
    return content
