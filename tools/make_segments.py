"""A list with segments, of a plain one: each sentence gets the region that CLIP weights like best.

    python tools/make_segments.py --data=train.json --weights=longclip-L.pt --out=segments.json

As GOAL's LISM makes them (arXiv 2503.17782): captions are cut into sentences, pictures into
regions, which are boxes of a COCO or SAM file (--boxes), or else the quarters, the centre and a
grid. Every sentence is scored with every region and with the whole picture, by s times the cosine;
one that fits the whole best gets no segment, unless --keep_whole. `hnclip train` reads the result
like any list, with or without method.name=goal. A run that was stopped goes on where it was: until
the list is whole, what is done lies in OUT.part.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from hnclip_jax import types
from hnclip_jax.commands import embedding, pictures, reading, sources
from hnclip_jax.data import cuts, images, lists, part, proposals, tokenizer
from hnclip_jax.evaluation import embed
from hnclip_jax.training import logging

FORMAT = 1
"""Goes up whenever the same arguments give other segments."""

_NAME = "make_segments"
_EXAMPLE = "--data=train.json --weights=longclip-L.pt --out=segments.json"
_CHUNK = 4  # batches of crops that are embedded at once; only the last of them is padded
_AHEAD = 32  # pictures
_SETTINGS = (
    "preset", "activation", "stretch", "vocabulary", "dtype", "grid", "least_area", "most_area",
    "keep_whole",
)  # fmt: skip
"""Flags that segments depend on, beside those that show in what is read."""


class Job(NamedTuple):
    """What is to be done.

    found: the list.
    cutter: cuts up its records.
    keys: for each record, a digest of all that its segments depend on.
    out: path of the new list.
    keep_whole: see --keep_whole.
    """

    found: lists.PictureList
    cutter: cuts.Cutter
    keys: list[str]
    out: str
    keep_whole: bool


def define_flags(values: flags.FlagValues) -> None:
    """Adds the tool's flags to `values`."""
    for name, default, what in (
        ("weights", None, "run folder, or weights in any layout that `hnclip inspect` knows"),
        ("out", None, "list to write"),
        ("boxes", "", "COCO's JSON file, or a folder of SAM's, one per picture"),
        ("vocabulary", "", "byte-pair vocabulary file; empty = the installed package's"),
    ):
        flags.DEFINE_string(name, default, what, flag_values=values)
    for name, default, low, high, what in (
        ("grid", 3, 0, 10, "cells in a row and in a column of the grid; 0 = none"),
        ("batch_size", 128, 1, None, "rows embedded at once, over all devices"),
    ):
        flags.DEFINE_integer(name, default, what, low, high, flag_values=values)
    for name, default, what in (
        ("least_area", 0.01, "share of the picture; smaller regions of --boxes are left out"),
        ("most_area", 0.8, "likewise larger ones"),
    ):
        flags.DEFINE_float(name, default, what, 0.0, 1.0, flag_values=values)
    for name, what in (
        ("keep_whole", "sentences that fit the whole picture best get it as their segment"),
        ("overwrite", "an older list may go"),
    ):
        flags.DEFINE_boolean(name, False, what, flag_values=values)
    flags.DEFINE_enum(
        "dtype", "float32", ("float32", "bfloat16"), "of the towers", flag_values=values
    )
    sources.define_flags(values)
    pictures.define_flags(values)
    reading.define_flags(values)


def run(values: flags.FlagValues) -> str:
    """Makes the list; returns one line that says what is in it."""
    if not values.data or not values.weights or not values.out:
        raise types.UserError(f"needs --data, --weights and --out; for example: {_EXAMPLE}")
    out = _target(values.out, values.overwrite)
    # Weights take longest, and all else may be mistaken.
    imported = embedding.find(values)
    job = _job(values, imported.config, imported.provenance(), out)
    with contextlib.closing(part.Part(f"{out}.part")) as done:
        todo = [at for at, key in enumerate(job.keys) if key not in done]
        if len(todo) < len(job.keys):
            logging.say(
                f"goes on: {len(job.keys) - len(todo):,} of {len(job.keys):,} pictures are done"
            )
        if todo:
            _score(job, embedding.load(values, imported), todo, done)
        said = _finish(job, done)
    os.remove(f"{out}.part")
    return said


def _target(out: str, overwrite: bool) -> str:
    out = os.path.abspath(os.path.expanduser(out))
    if os.path.isdir(out) or not os.path.isdir(os.path.dirname(out)):
        raise types.UserError(f"--out={out} is a folder, or in none; name a file in a folder")
    if os.path.exists(out) and not overwrite:
        raise types.UserError(f"already there: {out}; choose another --out, or say --overwrite")
    return out


def _job(values: flags.FlagValues, model: Any, provenance: dict[str, str], out: str) -> Job:
    """Returns what is to be done, checked."""
    options = pictures.options(values)
    found = sources.read(sources.from_flags(values), options=options).pictures
    if found.path == out:
        raise types.UserError(f"{out} is the list that is read; choose another --out")
    unfit = next((one.image for one in found.records if not isinstance(one.image, str)), None)
    if unfit is not None:
        raise types.UserError(
            f"{images.name(unfit)} is no file of its own, so a list cannot name it; unpack it first"
        )
    cutter = cuts.Cutter(
        boxes=_boxes(values.boxes, found) if values.boxes else None,
        grid=values.grid,
        least=values.least_area,
        most=values.most_area,
        size=model.image_size,
        options=options,
        tokenize=tokenizer.Tokenizer(values.vocabulary or None),
        context_length=model.context_length,
    )
    settings = [
        FORMAT,
        provenance["weights_sha256"],
        model.image_size,
        model.context_length,
        dataclasses.asdict(options),
        {name: values[name].value for name in _SETTINGS},
    ]
    keys = [_key(settings, cutter, record) for record in found.records]
    return Job(found, cutter, keys, out, values.keep_whole)


def _boxes(path: str, found: lists.PictureList) -> proposals.Boxes:
    """Returns the boxes of --boxes; some are of pictures of the list."""
    path = os.path.expanduser(path)
    unit = "file" if os.path.isdir(path) else "byte"
    with contextlib.closing(logging.Progress("reading boxes", unit)) as progress:
        boxes = proposals.read(path, progress)
    if not any(boxes.find(record.image) for record in found.records):
        raise types.UserError(
            f"none of the {len(found.records):,} pictures of {found.path} is among the "
            f"{len(boxes):,} of {path}, which begin with {boxes.first!r}; the list begins with "
            f"{found.records[0].image!r}"
        )
    return boxes


def _key(settings: list[Any], cutter: cuts.Cutter, record: lists.Record) -> str:
    name = cutter.boxes and cutter.boxes.find(record.image)
    content = [
        settings,
        *(record.image, os.path.getsize(record.image), record.captions, record.id, record.group),
        dict(record.extra),
        cutter.boxes.numbers(name) if name else None,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _score(job: Job, loaded: embedding.Loaded, todo: list[int], done: part.Part) -> None:
    """Adds the rows of the records at some positions to what is done."""
    embedder = embed.Embedder(loaded.model, loaded.mesh, batch_size=loaded.batch_size)
    scale = float(loaded.model.scale(loaded.params))

    def unit(tower: str, key: str, rows: list[np.ndarray]) -> np.ndarray:
        every = np.concatenate(rows)
        load = lambda row: {key: every[row]}  # noqa: E731
        return embedder(tower, loaded.params, load, len(every))[0]

    count, total = len(job.keys) - len(todo), len(job.keys)
    with contextlib.closing(logging.Progress("segments", "picture")) as progress:
        for chunk in _chunks(_ahead(job, todo), _CHUNK * loaded.batch_size):
            some = [one for _, one in chunk if one.texts]
            if some:
                crops = unit("image", "image", [one.crops for one in some])
                texts = unit("text", "tokens", [one.ids for one in some])
            for at, one in chunk:
                scores = np.zeros((0, 0), np.float32)
                if one.texts:
                    here, crops = np.split(crops, [len(one.crops)])
                    said, texts = np.split(texts, [len(one.texts)])
                    scores = scale * said @ here.T
                row = cuts.row(
                    one,
                    scores,
                    keep_whole=job.keep_whole,
                    folder=os.path.dirname(job.out),
                    locate=job.found.locate,
                )
                counts = [len(one.texts), one.truncated, int(one.is_fixed)]
                done.add(job.keys[at], counts=counts, row=row)
            count += len(chunk)
            progress(count, total)


def _ahead(job: Job, todo: list[int]) -> Iterator[tuple[int, cuts.Cut]]:
    """Yields positions and the records there, cut up; all cores work, a little ahead."""
    waiting: collections.deque[tuple[int, futures.Future]] = collections.deque()
    # Threads are enough: Pillow decodes and resizes outside of Python's lock.
    pool = futures.ThreadPoolExecutor()
    try:
        for at in todo:
            waiting.append((at, pool.submit(job.cutter, job.found.records[at])))
            if len(waiting) > _AHEAD:
                at, one = waiting.popleft()
                yield at, one.result()
        for at, one in waiting:
            yield at, one.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _chunks(every: Iterator[tuple[int, cuts.Cut]], rows: int) -> Iterator[list]:
    """Yields lists of records whose crops together are at least so many, or the last ones."""
    chunk, count = [], 0
    for at, one in every:
        chunk.append((at, one))
        count += len(one.crops)
        if count >= rows:
            yield chunk
            chunk, count = [], 0
    if chunk:
        yield chunk


def _finish(job: Job, done: part.Part) -> str:
    """Writes the list, whole or not at all; returns the line that says what is in it."""
    totals, count, scratch = np.zeros(3, int), 0, f"{job.out}.tmp"
    try:
        with open(scratch, "w", encoding="utf-8", errors="backslashreplace") as file:
            for at, key in enumerate(job.keys):
                line = done[key]
                totals += line["counts"]
                count += len(line["row"]["segment"])
                file.write(f"{',' if at else '['}\n{json.dumps(line['row'], ensure_ascii=False)}")
            file.write("\n]\n")
        os.replace(scratch, job.out)
    except OSError as error:
        raise types.UserError(f"cannot write {job.out}: {error.strerror}") from error
    texts, truncated, is_fixed = totals.tolist()
    length, boxes = job.cutter.context_length, job.cutter.boxes
    return (
        f"{job.out}: {len(job.keys):,} pictures with {count:,} segments of {texts:,} sentences; "
        f"{texts - count:,} fit the whole picture best, {truncated:,} were cut to {length} tokens"
        + (f"; {is_fixed:,} pictures have no box that fits, so fixed regions" * (boxes is not None))
    )


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 2 a mistake of the user, or stopped."""
    values = flags.FlagValues()
    define_flags(values)
    if "--help" in argv:
        print(f"{__doc__}\nFlags:\n{values.get_help()}")
        return 0
    try:
        # Those who load data look at absl's own flags, which must have been parsed before.
        if not flags.FLAGS.is_parsed():
            flags.FLAGS(list(argv[:1]))
        left = values(list(argv))[1:]
        if left:
            raise types.UserError(f"does not understand {left[0]!r}; flags begin with --")
        logging.say(f"{_NAME}: {run(values)}")
    except (types.UserError, flags.Error) as error:
        print(f"{_NAME}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{_NAME}: stopped; the same command goes on where it was", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
