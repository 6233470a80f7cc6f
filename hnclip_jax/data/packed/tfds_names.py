"""Data sets of tensorflow-datasets as lists: `tfds:NAME/SPLIT`, or FOLDER/SPLIT once prepared.

A data set that was prepared as ArrayRecord is read without TensorFlow; to prepare coco_captions,
TensorFlow is needed. Its features must be an image and captions; the order is that of the ids,
because tensorflow-datasets shuffles what it writes. Captions lie with the pictures, so reading the
list reads all of the data set, each time: pack it where that takes too long.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from hnclip_jax import types
from hnclip_jax.data import compact, lists
from hnclip_jax.data.packed import examples, shards

PREFIX = "tfds:"
CAPTIONS = ("captions/text", "captions", "caption/text", "caption")
"""Features that hold texts: the first one that the data set has."""

_ORDER = ("index", "image/id", "image_id", "id", "image/filename", "filename")
_NAMES = ("image/filename", "filename", "file_name", "id", "image/id", "image_id", "index")
_IN_FULL = 20_000
_INFO = "dataset_info.json"

Progress = Callable[[int, int], None]
"""Called with how many pictures were read, of how many."""


class _Found(NamedTuple):
    """One example: what it is sorted by, its name, where it is, and its captions."""

    key: tuple[Any, ...]
    name: str
    shard: str
    row: int
    captions: list[str]


def is_name(path: str) -> bool:
    """Returns whether a list is named that `read` reads."""
    return path.startswith(PREFIX) or _folder_and_split(path) is not None


def read(name: str, progress: Progress = lambda done, total: None) -> lists.PictureList:
    """Returns the records of one split.

    Args:
      name: "tfds:coco_captions/val", "tfds:coco_captions/2014:1.1.0/val[:10%]", or the folder of a
        prepared data set, with or without "/val" behind it. The split can be left out where there
        is just one. What is not prepared yet is downloaded and prepared, below TFDS_DATA_DIR.
      progress: told now and then.

    Raises:
      types.UserError: if there is no such data set or split, if preparing it needs TensorFlow and
        that is not installed, or if it holds no image with captions.
    """
    builder, split = _from_name(name) if name.startswith(PREFIX) else _from_folder(name)
    parts = _instructions(name, builder, split)
    total = sum(part.take for part in parts)
    found: list[_Found] = []
    for part in parts:
        rows = range(part.skip, part.skip + part.take)
        for row, features in zip(rows, shards.read(part.filename, rows), strict=True):
            found.append(_example(name, features, part.filename, row))
            progress(len(found), total)
    found.sort(key=lambda one: one.key)
    return _list(name, found)


def _list(name: str, found: list[_Found]) -> lists.PictureList:
    """Returns the list of all examples with captions, in the order of `found`."""
    records: Any = compact.Compact() if len(found) > _IN_FULL else []
    content, texts, pairs = hashlib.sha256(), set(), 0
    for index, one in enumerate(found):
        content.update(json.dumps([one.name, one.captions]).encode())
        captions = tuple(text for text in one.captions if text)
        if captions:
            image = shards.Encoded(one.shard, one.row, one.name)
            records.append(lists.Record(index, image, captions, one.name))
            texts.update(captions)
            pairs += len(captions)
    if not records:
        raise types.UserError(f"{name}: none of its {len(found)} pictures has a caption")
    report = lists.Report(
        rows=len(found),
        pairs=pairs,
        skipped_missing=0,
        skipped_empty=sum(len(one.captions) for one in found) - pairs,
        duplicates=pairs - len(texts),
    )
    records = tuple(records) if isinstance(records, list) else records
    return lists.PictureList(records, report, name, content.hexdigest())


def _example(name: str, features: dict[str, memoryview], shard: str, row: int) -> _Found:
    captions = next((key for key in CAPTIONS if key in features), None)
    if captions is None or not examples.strings(features.get(shards.IMAGE, memoryview(b""))):
        raise types.UserError(
            f"{name} has the features {', '.join(sorted(features))}, but needed are "
            f"{shards.IMAGE!r}, a picture, and one of {', '.join(map(repr, CAPTIONS))}"
        )
    try:
        texts = [text.decode().strip() for text in examples.strings(features[captions])]
        named = next((_text(features, key) for key in _NAMES if key in features), "")
    except UnicodeDecodeError as error:
        raise types.UserError(f"{shard}, row {row}: a text is not UTF-8 ({error})") from error
    named = named or f"{os.path.basename(shard)}:{row}"
    # Numbers before texts: a data set has one or the other, but they do not compare.
    key = next((key for key in _ORDER if key in features), None)
    numbers = examples.integers(features[key]) if key else []
    return _Found((numbers, named, shard, row), named, shard, row, texts)


def _text(features: dict[str, memoryview], key: str) -> str:
    texts = examples.strings(features[key])
    return texts[0].decode() if texts else str(*examples.integers(features[key])[:1])


def _from_folder(path: str) -> tuple[Any, str]:
    import tensorflow_datasets as tfds

    located = _folder_and_split(path)
    if located is None:
        raise types.UserError(f"{path} is no prepared data set of tensorflow-datasets")
    folder, split = located
    try:
        return tfds.builder_from_directory(folder), split
    except Exception as error:
        raise types.UserError(f"cannot open data set {folder}: {_line(error)}") from error


def _folder_and_split(path: str) -> tuple[str, str] | None:
    path = os.path.abspath(path)
    if os.path.isfile(os.path.join(path, _INFO)):
        return path, ""
    folder, split = os.path.split(path)
    if os.path.isfile(os.path.join(folder, _INFO)) and not os.path.exists(path):
        return folder, split
    return None


def _from_name(name: str) -> tuple[Any, str]:
    from tensorflow_datasets.core import read_only_builder

    words = name.removeprefix(PREFIX).split("/")
    data_set, split = ("/".join(words[:-1]), words[-1]) if len(words) > 1 else (words[0], "")
    try:
        return read_only_builder.builder_from_files(data_set), split
    except Exception:
        pass  # It is not prepared; there is no other way to find out.
    if not _has_tensorflow():
        raise types.UserError(
            f"{name} is not prepared here, and preparing it needs TensorFlow, which is not "
            "installed: pip install tensorflow importlib_resources, or prepare it elsewhere with "
            "file_format='array_record' and give its folder"
        )
    return _prepared(name, data_set), split


def _prepared(name: str, data_set: str) -> Any:
    import tensorflow_datasets as tfds

    _hide_accelerators()
    try:
        builder = tfds.builder(data_set, file_format="array_record")
        builder.download_and_prepare()
    except Exception as error:
        raise types.UserError(f"cannot prepare {name}: {_line(error)}") from error
    return builder


def _has_tensorflow() -> bool:
    return importlib.util.find_spec("tensorflow") is not None


def _hide_accelerators() -> None:
    # TensorFlow would take all memory of the GPUs that JAX is about to use.
    import tensorflow

    tensorflow.config.set_visible_devices([], "GPU")


def _instructions(name: str, builder: Any, split: str) -> list[Any]:
    """Returns which rows of which shards make a split."""
    kind = builder.info.file_format
    if kind is None or kind.value != "array_record":
        raise types.UserError(
            f"{name} is prepared as {kind and kind.value}, whose records cannot be read in any "
            "order; prepare it again with file_format='array_record'"
        )
    splits = builder.info.splits
    if not split and len(splits) == 1:
        split = next(iter(splits))
    try:
        return splits[split].file_instructions
    except Exception as error:
        raise types.UserError(
            f"{name} names no split; add one: "
            + ", ".join(f"{name.removesuffix(split).rstrip('/')}/{known}" for known in splits)
        ) from error


def _line(error: Exception) -> str:
    """Returns the first line of an error's text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
