"""Rows of folders: pictures and, with the same stem, text files."""

import hashlib
import os
import re

from hnclip_jax import types
from hnclip_jax.data.formats import fields

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""How names of pictures end, in lower case."""

_PLACES = (("image", "caption"), ("images", "captions"))
"""Where pictures and texts lie, if not side by side: as in Urban-1K."""


def read(path: str, *, first_line: bool = False) -> fields.Rows:
    """Returns the rows of a folder, in numeric order of the stems: 2 comes before 10.

    A picture without a text has no caption; a text without a picture makes a row whose picture is
    missing. Files whose name begins with "._" are ignored.

    Args:
      path: a folder of `7.jpg` and `7.txt`, or of `image/7.jpg` and `caption/7.txt`.
      first_line: take only the first line of a text.

    Raises:
      types.UserError: if the folder holds no such pair, or a stem has two pictures.
    """
    pictures, texts, home = _names(path)
    if not pictures.keys() & texts.keys():
        raise types.UserError(
            f"{path} is a folder without pictures that have a text of the same stem, such as 7.jpg "
            f"and 7.txt{_lists_in(path)}"
        )
    rows, digest = [], hashlib.sha256()
    for stem in sorted(pictures.keys() | texts.keys(), key=natural):
        image = pictures.get(stem, "")
        caption = _text(os.path.join(path, texts[stem])) if stem in texts else None
        if first_line and caption is not None:
            caption = caption.split("\n", 1)[0]
        for part in (image, texts.get(stem, ""), caption or ""):
            digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
        rows.append(fields.Row(image or f"{home}{stem}.jpg", [caption], fields.identity(stem)))
    return fields.Rows(rows, digest.hexdigest(), "folder")


def natural(name: str) -> tuple[list[str | int], str]:
    """Returns a sort key by which numbers inside of names count as numbers."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], name


def pair_up(names: list[str], where: str, texts: tuple[str, ...]) -> tuple[dict, dict]:
    """Returns the names of pictures, and of texts, by stem.

    Args:
      names: of files; what is neither a picture nor a text is left out.
      where: for messages.
      texts: how names of texts end.

    Raises:
      types.UserError: if two pictures have one stem.
    """
    pictures: dict[str, str] = {}
    found: dict[str, str] = {}
    for name in names:
        stem, ending = os.path.splitext(name)
        if is_junk(name):
            continue
        if ending.lower() in PICTURES:
            if stem in pictures:
                raise types.UserError(
                    f"{where}: pictures {pictures[stem]!r} and {name!r} have one stem, so a text "
                    "belongs to both; rename one"
                )
            pictures[stem] = name
        elif ending.lower() in texts:
            found[stem] = name
    return pictures, found


def is_junk(name: str) -> bool:
    """Returns whether a file is one that macOS leaves in archives, whatever its ending."""
    return os.path.basename(name).startswith("._") or "__MACOSX" in name.split("/")


def _names(path: str) -> tuple[dict[str, str], dict[str, str], str]:
    """Returns the names of pictures and of texts, by stem, and what stands before the pictures'."""
    try:
        entries = os.listdir(path)
        for image, caption in _PLACES:
            if image in entries and caption in entries:
                pictures, _ = pair_up(_inside(path, image), path, ())
                _, texts = pair_up(_inside(path, caption), path, (".txt",))
                return (
                    {stem.removeprefix(image + "/"): name for stem, name in pictures.items()},
                    {stem.removeprefix(caption + "/"): name for stem, name in texts.items()},
                    image + "/",
                )
    except OSError as error:
        raise types.UserError(f"cannot read folder {path}: {error.strerror}") from error
    return *pair_up(sorted(entries), path, (".txt",)), ""


def _inside(path: str, folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in sorted(os.listdir(os.path.join(path, folder)))]


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return decoded(file.read(), path)
    except OSError as error:
        raise types.UserError(f"cannot read text {path}: {error.strerror}") from error


def decoded(content: bytes, where: str) -> str:
    """Returns a text, without byte-order mark.

    Raises:
      types.UserError: if it is no UTF-8.
    """
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise types.UserError(
            f"{where}: line {line}, byte {error.start} (0x{content[error.start]:02x}), is not "
            "UTF-8; save it as UTF-8"
        ) from None


def _lists_in(path: str) -> str:
    endings = (".json", ".jsonl", ".jsonlines", ".csv", ".tsv", ".token")
    found = [name for name in sorted(os.listdir(path)) if name.lower().endswith(endings)]
    return f"; did you mean a list in it: {types.at_most_ten(found)}?" if found else ""
