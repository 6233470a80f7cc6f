"""Pictures with one class each: a folder per class (ImageNet and others), or CIFAR as published."""

import dataclasses
import hashlib
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import cifar, images

EXTENSIONS = (".jpeg", ".jpg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
TFDS = "tfds:"
_SPLITS = ("val", "test")
_WORDNET_ID = re.compile(r"n\d{8}")


@dataclasses.dataclass(frozen=True)
class ClassList:
    """Pictures, their classes, and what these are called.

    images: a reference per picture, as `images.load_image` takes it.
    labels: [N] int64, positions in `names`.
    names: words for each class.
    path: where all this was found.
    sha256: of the files that hold it; of a tree, of the names of its files.
    """

    images: tuple[Any, ...]
    labels: np.ndarray
    names: tuple[str, ...]
    path: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class Pixels:
    """A picture that is already in memory: [height, width, 3] uint8."""

    array: np.ndarray

    def pixels(self, size: int) -> np.ndarray:
        """Returns [size, size, 3] uint8, resized as files are."""
        return images.resize_and_crop(Image.fromarray(self.array), size)


def read(source: str, names_file: str = "") -> ClassList:
    """Returns the pictures of a data set for classification.

    Args:
      source: a folder with a folder per class, or with such a tree in its `val` or `test`; a folder
        of CIFAR's python files; or "tfds:cifar10" and the like, from tensorflow-datasets.
      names_file: what classes are called. For a tree a line per class, the folder's name, a tab or
        blank, and the words; all classes of the file are candidates. For the others a line per
        class, in their order. Empty = folders are called as they are, "_" for blanks; the others as
        they call themselves.

    Raises:
      types.UserError: if there are no pictures, or the names do not fit them.
    """
    if source.startswith(TFDS):
        return _renamed(_from_tfds(source), names_file)
    path = os.path.abspath(os.path.expanduser(source))
    if not os.path.isdir(path):
        raise types.UserError(
            f"{source} is no folder; needed is one with a folder of pictures per class, CIFAR's "
            f"python files, or {TFDS}NAME"
        )
    batch = cifar.find(path)
    if batch:
        found = cifar.read(batch)
        references = tuple(map(Pixels, found.pixels))
        whole = ClassList(references, found.labels, found.names, str(batch), found.sha256)
        return _renamed(whole, names_file)
    return _from_tree(path, names_file)


def _from_tree(path: str, names_file: str) -> ClassList:
    inner = (os.path.join(path, split) for split in _SPLITS)
    root = pathlib.Path(next(filter(_folders, inner), path))
    files = {name: _pictures(root / name) for name in _folders(root)}
    files = {name: found for name, found in files.items() if found}
    if not files:
        raise types.UserError(
            f"{root} has no folders with pictures; needed is one per class, such as "
            f"{root / 'dog' / '1.jpg'}"
        )
    keys, names = _named(root, sorted(files), names_file)
    number = {key: label for label, key in enumerate(keys)}
    places = [(root / name / file, number[name]) for name in sorted(files) for file in files[name]]
    listing = "\n".join(f"{name}/{file}" for name in sorted(files) for file in files[name])
    return ClassList(
        tuple(str(file) for file, _ in places),
        np.array([label for _, label in places]),
        names,
        str(root),
        hashlib.sha256(listing.encode()).hexdigest(),
    )


def _folders(path: str | os.PathLike) -> list[str]:
    if not os.path.isdir(path):
        return []
    return sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and _shown(entry.name))


def _pictures(folder: pathlib.Path) -> list[str]:
    names = (entry.name for entry in os.scandir(folder))
    return sorted(name for name in names if _shown(name) and name.lower().endswith(EXTENSIONS))


def _shown(name: str) -> bool:
    # Archives made on a Mac bring "._" files and a folder "__MACOSX" along.
    return not name.startswith((".", "__"))


def _named(
    root: pathlib.Path, folders: list[str], names_file: str
) -> tuple[list[str], tuple[str, ...]]:
    """Returns the folder and the words of every class."""
    if not names_file:
        if any(map(_WORDNET_ID.fullmatch, folders)):
            raise types.UserError(
                f"the folders of {root} are WordNet numbers such as {folders[0]}, which say nothing"
                " to a model; give --classes=FILE with lines of number, tab and name"
            )
        return folders, tuple(folder.replace("_", " ") for folder in folders)
    lines = [line.split(maxsplit=1) for line in read_lines(names_file)]
    bare = [line[0] for line in lines if len(line) < 2]
    if bare:
        raise types.UserError(
            f"{names_file}: {len(bare)} lines have no name behind the folder's: "
            f"{types.at_most_ten(bare)}"
        )
    keys = [key for key, _ in lines]
    unknown, twice = sorted({*folders} - {*keys}), sorted({k for k in keys if keys.count(k) > 1})
    for wrong, what in ((unknown, "names no"), (twice, "names twice")):
        if wrong:
            raise types.UserError(
                f"{names_file} {what} class {types.at_most_ten(wrong)}; needed is one line per "
                f"folder of {root}: its name, a tab, what to call it"
            )
    return keys, tuple(name for _, name in lines)


def _renamed(found: ClassList, names_file: str) -> ClassList:
    if not names_file:
        return found
    names = read_lines(names_file)
    if len(names) != len(found.names):
        raise types.UserError(
            f"{names_file} has {len(names)} lines, but {found.path} has {len(found.names)} classes"
        )
    return dataclasses.replace(found, names=tuple(names))


def read_lines(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a text file, stripped, those that are not blank.

    Raises:
      types.UserError: if it cannot be read, is no UTF-8, or is empty.
    """
    try:
        text = pathlib.Path(path).expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        raise types.UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise types.UserError(f"{path} is not UTF-8; save it as UTF-8") from error
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        raise types.UserError(f"{path} is empty")
    return lines


def _from_tfds(source: str) -> ClassList:
    name = source.removeprefix(TFDS)
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise types.UserError(
            f"{source} needs tensorflow-datasets: pip install tensorflow-datasets; or give the "
            "folder of CIFAR's python files"
        ) from error
    try:
        builder = tfds.builder(name)
        rows: Sequence[Any] = builder.as_data_source(split="test")
        names = tuple(builder.info.features["label"].names)
        pairs = [(_rgb(np.asarray(row["image"])), int(row["label"])) for row in rows]
    # What it raises for a set that is unknown or not prepared is of many kinds.
    except Exception as error:
        raise types.UserError(
            f"cannot read {source}: {' '.join(str(error).split())[:200]}; it must be prepared with "
            "download_and_prepare(file_format='array_record') and have image and label"
        ) from error
    digest = hashlib.sha256()
    for pixels, label in pairs:
        digest.update(pixels.tobytes() + bytes(str(label), "ascii"))
    references = tuple(Pixels(pixels) for pixels, _ in pairs)
    labels = np.array([label for _, label in pairs])
    return ClassList(references, labels, names, source, digest.hexdigest())


def _rgb(pixels: np.ndarray) -> np.ndarray:
    """Returns [height, width, 3] of RGB or grey pixels."""
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
