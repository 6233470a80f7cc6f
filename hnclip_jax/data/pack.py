"""A list as one folder of ArrayRecord shards, and back: quicker to read, equal in every batch.

The shards are a data set of tensorflow-datasets: `tfds.builder_from_directory(folder)` opens it,
its `as_data_source("train")` reads it, and neither needs TensorFlow. There is one example per
picture, in the list's order: id, index (of its first row in the list), group, image and all its
captions. The image is the unchanged file, or the ready-cropped pixels.

Beside them lies what makes the folder a drop-in for the list: `pictures.jsonl` holds its records,
its report and its SHA-256, so that reading the list reads no picture.
"""

import collections
import concurrent.futures
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hnclip_jax import types
from hnclip_jax.data import compact, images, lists
from hnclip_jax.data.packed import pack_index, shards

_IN_FULL = 20_000
"""From more records on they are held compressed."""

_NAME, _SPLIT, _VERSION = "hnclip_pictures", "train", "1.0.0"

Progress = Callable[[int, int], None]
"""Called with how many pictures are done, of how many."""


class _Set(NamedTuple):
    """What is packed, and how.

    size: pixels of ready-cropped pictures; 0 = picture files.
    examples: the positions of the records that show one picture, for each picture.
    """

    pictures: lists.PictureList
    size: int
    options: images.Options
    examples: list[list[int]]


def is_packed(path: str | os.PathLike) -> bool:
    """Returns whether `path` is a folder that `write` made."""
    return pack_index.is_there(path)


def write(
    pictures: lists.PictureList,
    out: str | os.PathLike,
    *,
    size: int = 0,
    shard_count: int = 0,
    options: images.Options = images.DEFAULT,
    progress: Progress = lambda done, total: None,
) -> str:
    """Packs a list into a new folder, which appears only when it is complete; returns its path.

    Args:
      pictures: the list; records of one picture share it.
      out: folder; missing or empty.
      size: side in pixels of ready-cropped pictures (3 size^2 bytes each), the same bit for bit as
        `images.load_image` gives; 0 = the unchanged picture files.
      shard_count: number of files, at most one per picture; 0 = one per half a gigabyte.
      options: how files become pixels, for ready-cropped pictures.
      progress: told after every picture.

    Raises:
      types.UserError: if `out` is in use, a picture cannot be read or decoded, or the disk is full.
    """
    out = os.path.abspath(out)
    job = _Set(pictures, size, options, _positions(pictures.records))
    count = len(job.examples)
    if os.path.exists(out) and not (os.path.isdir(out) and not os.listdir(out)):
        raise types.UserError(f"{out} is in use; choose another folder, or delete it")
    if not 0 <= shard_count <= count:
        raise types.UserError(
            f"{shard_count} shards are asked for, but there can be 1 to {count}, one per picture"
        )
    parent = os.path.dirname(out)
    try:
        os.makedirs(parent, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=".packing-") as closed:
            # One folder further down, because other users may not enter the temporary one.
            draft = os.path.join(closed, "set")
            os.mkdir(draft)
            ends = [count * shard // shard_count for shard in range(1, shard_count + 1)]
            written = _write_shards(draft, job, ends, progress)
            _write_info(draft, job, written)
            _write_index(draft, job, written)
            os.rename(draft, out)
    except OSError as error:
        raise types.UserError(f"cannot write {out}: {error.strerror or error}") from error
    return out


def read(folder: str | os.PathLike, options: images.Options | None = None) -> lists.PictureList:
    """Returns the list that a folder was packed from: its records, order, report and SHA-256.

    Each record's image is a reference into a shard. The path is the folder's.

    Args:
      folder: that `write` made.
      options: how files are to become pixels; None = as the set says.

    Raises:
      types.UserError: if the set is not complete, or its pictures were cropped with other options.
    """
    folder = os.path.abspath(folder)
    header, rows = pack_index.read(folder)
    size = header["size"]
    if options and size:
        _check_options(folder, header["options"], options)
    places = [
        (os.path.join(folder, name), row)
        for name, length, _ in header["shards"]
        for row in range(length)
    ]
    records: Any = compact.Compact() if header["records"] > _IN_FULL else []
    for row in rows:
        place = (*places[row["picture"]], row["name"])
        record = lists.Record(
            index=row["index"],
            image=shards.Cropped(*place, size) if size else shards.Encoded(*place),
            captions=tuple(row["captions"]),
            id=row["id"],
            group=row["group"],
        )
        records.append(record)
    queries = header["queries"]
    return lists.PictureList(
        records=tuple(records) if isinstance(records, list) else records,
        report=lists.Report(**header["report"]),
        path=folder,
        sha256=header["sha256"],
        queries=None if queries is None else tuple(queries),
    )


def _positions(records: Sequence[lists.Record]) -> list[list[int]]:
    found: dict[images.Reference, list[int]] = {}
    for position, record in enumerate(records):
        found.setdefault(record.image, []).append(position)
    return list(found.values())


def _write_shards(
    folder: str, job: _Set, ends: list[int], progress: Progress
) -> list[tuple[str, int, int]]:
    from tensorflow_datasets.core import example_serializer

    features = _features(job.size)
    serializer = example_serializer.ExampleSerializer(features.get_serialized_info())
    writer = shards.Writer(folder, f"{_NAME}-{_SPLIT}.array_record", ends)
    for done, (example, content) in enumerate(_ahead(job), 1):
        records = [job.pictures.records[position] for position in example]
        values = {
            "id": _utf8(records[0].id),
            "index": records[0].index,
            "group": _utf8(records[0].group),
            shards.IMAGE: content,
            "captions": [_utf8(text) for record in records for text in record.captions],
        }
        writer.write(serializer.serialize_example(features.encode_example(values)))
        progress(done, len(job.examples))
    return writer.close()


def _utf8(text: str) -> bytes:
    # An id may be a file name, which need not be UTF-8; the index keeps it as it is.
    return text.encode(errors="replace")


def _ahead(job: _Set) -> Iterator[tuple[list[int], np.ndarray | bytes]]:
    """Yields every example and what is stored of its picture; all cores load, a little ahead."""
    waiting: collections.deque[tuple[list[int], concurrent.futures.Future]] = collections.deque()
    # Threads are enough: Pillow decodes and resizes outside of Python's lock.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for example in job.examples:
            image = job.pictures.records[example[0]].image
            waiting.append((example, pool.submit(_content, image, job.size, job.options)))
            if len(waiting) > 64:
                example, content = waiting.popleft()
                yield example, content.result()
        for example, content in waiting:
            yield example, content.result()


def _content(reference: images.Reference, size: int, options: images.Options) -> np.ndarray | bytes:
    """Returns [size, size, 3] uint8, or for size 0 the bytes of the picture file."""
    try:
        if size:
            return images.load_image(reference, size, options)
        if hasattr(reference, "pixels"):
            raise types.UserError(
                f"{images.name(reference)} is ready-cropped, so its file is gone; give --size"
            )
        if hasattr(reference, "read"):
            return reference.read()
        with open(reference, "rb") as file:
            return file.read()
    except OSError as error:
        raise types.UserError(f"cannot read {images.name(reference)}: {error.strerror}") from error


def _features(size: int) -> Any:
    import tensorflow_datasets as tfds

    cropped = tfds.features.Tensor(
        # As bytes: the default would make every pixel a number of its own.
        shape=(size, size, 3),
        dtype=np.uint8,
        encoding=tfds.features.Encoding.BYTES,
    )
    return tfds.features.FeaturesDict(
        {
            "id": tfds.features.Text(),
            "index": np.int64,
            "group": tfds.features.Text(),
            shards.IMAGE: cropped if size else tfds.features.Image(),
            "captions": tfds.features.Sequence(tfds.features.Text()),
        }
    )


def _write_info(folder: str, job: _Set, written: list[tuple[str, int, int]]) -> None:
    """Writes what tensorflow-datasets needs: dataset_info.json and features.json."""
    import tensorflow_datasets as tfds

    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name=_NAME, split=_SPLIT, filetype_suffix="array_record"
    )
    split = tfds.core.SplitInfo(
        name=_SPLIT,
        shard_lengths=[length for _, length, _ in written],
        num_bytes=sum(size for _, _, size in written),
        filename_template=template,
    )
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=_features(job.size),
        split_infos=[split],
        version=_VERSION,
        description=f"{job.pictures.path} (SHA-256 {job.pictures.sha256}), packed by hnclip_jax.",
        check_data=False,
    )


def _write_index(folder: str, job: _Set, written: list[tuple[str, int, int]]) -> None:
    pictures = job.pictures
    header = {
        "source": pictures.path,
        "sha256": pictures.sha256,
        "report": dataclasses.asdict(pictures.report),
        "queries": pictures.queries,
        "size": job.size,
        "options": dataclasses.asdict(job.options),
        "shards": written,
        "records": len(pictures.records),
    }
    numbers = {at: number for number, example in enumerate(job.examples) for at in example}
    rows = (
        {
            "picture": numbers[at],
            "name": _bare_name(record.image),
            "index": record.index,
            "id": record.id,
            "group": record.group,
            "captions": record.captions,
        }
        for at, record in enumerate(pictures.records)
    )
    pack_index.write(folder, header, rows)


def _bare_name(reference: images.Reference) -> str:
    """Returns what a picture is called; the set it was in before is no part of that."""
    return reference.name if hasattr(reference, "name") else os.fspath(reference)


def _check_options(folder: str, packed: dict[str, Any], wanted: images.Options) -> None:
    for name in ("exif_orientation", "background"):
        if packed[name] != getattr(wanted, name):
            raise types.UserError(
                f"the pictures of {folder} were cropped with {name}={packed[name]!r}, not "
                f"{getattr(wanted, name)!r}; pack the list again, or without --size"
            )
