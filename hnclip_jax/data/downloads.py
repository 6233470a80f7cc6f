"""Official downloads and published lists -> the records of a benchmark, in its order."""

import collections
import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence

from hnclip_jax import types
from hnclip_jax.data import blobs, dci, lists, survey
from hnclip_jax.data.formats import fields
from hnclip_jax.data.formats import rows as rows_lib

Progress = Callable[[int, int], None] | None

TRAIN_LISTS = ("DCI_train_del_org.json", "DCI_segment_sim_bbox_del_org.json")
TEST_LISTS = ("DCI_test.json",)
"""What GOAL calls its lists of DCI."""

PHOTOS = (dci.PHOTOS,)
FLICKR = ("flickr30k-images", "flickr30k_images", "images")
"""What folders of pictures are called."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Rows of one list or folder.

    rows: in the order of the benchmark.
    path: the list or the folder, from which pictures are sought.
    pictures: the download's folder of pictures, "" if it is not known.
    """

    rows: Sequence[fields.Row]
    path: str
    pictures: str


@dataclasses.dataclass(frozen=True)
class Found:
    """What a source holds of a benchmark.

    parts: one after the other.
    path: what the user gave, absolute.
    sha256: of the list file, or of what its parts hold (hexadecimal).
    asks: for each row of all parts, whether it is a query; None = all are.
    """

    parts: tuple[Part, ...]
    path: str
    sha256: str
    asks: tuple[bool, ...] | None = None


def of_list(
    source: str,
    progress: Progress = None,
    *,
    names: tuple[str, ...],
    pictures: tuple[str, ...],
    splits: tuple[str, ...] = (),
    first: int | None = None,
    each: int | None = None,
) -> Found:
    """Returns the rows of one list file.

    Args:
      source: the file, or the folder of a download that holds it.
      progress: called with (bytes read, bytes).
      names: what the file may be called inside of the folder, with folders.
      pictures: what the folder of pictures may be called there.
      splits: keep these, one after the other; a list whose rows name no split is kept whole.
      first: keep so many rows.
      each: keep so many captions of every picture.

    Raises:
      types.UserError: if the file is not there or is no list, or has other splits.
    """
    source = os.path.abspath(source)
    path = _inside(source, names) if os.path.isdir(source) else source
    read = rows_lib.read(path, progress=progress)
    kept: Sequence[fields.Row] = read.rows
    if splits and any(row.split for row in kept):
        kept = _of_splits(path, kept, splits)
    if first is not None:
        kept = kept[:first]
    if each is not None:
        kept = [row._replace(captions=row.captions[:each]) for row in kept]
    root = source if os.path.isdir(source) else os.path.dirname(source)
    return Found((Part(kept, path, _folder(root, pictures)),), path, read.sha256)


def of_dci(source: str, progress: Progress = None, *, recipe: str, names: tuple[str, ...]) -> Found:
    """Returns a caption per picture of DCI, from its annotations or from a list file.

    Args:
      source: `densely_captioned_images`, the folder above it, or a list.
      progress: called with (annotations read, annotations), or with bytes of a list.
      recipe: one of dci.RECIPES; a list holds what it holds.
      names: what a list may be called inside of a folder without annotations.
    """
    source = os.path.abspath(source)
    for folder in (source, os.path.join(source, "densely_captioned_images")):
        if dci.is_download(folder):
            read = dci.read(folder, recipe, progress=progress)
            part = Part(read.rows, folder, _folder(folder, PHOTOS))
            return Found((part,), folder, read.sha256)
    if os.path.isdir(source):
        source = _inside(source, names, (*dci.FOLDERS, *names))
    return of_list(source, progress, names=(), pictures=PHOTOS)


def of_urban(source: str, progress: Progress = None) -> Found:
    """Returns the rows of Urban-1K, from its folder (or the one above) or from a list file.

    The folder holds `image/7.jpg` and `caption/7.txt`; a text's first line is the caption, and the
    order is that of the numbers.
    """
    source = os.path.abspath(source)
    for folder in (source, os.path.join(source, "Urban1k"), os.path.join(source, "Urban-1k")):
        if all(os.path.isdir(os.path.join(folder, part)) for part in ("image", "caption")):
            read = rows_lib.read(folder, first_line=True)
            part = Part(read.rows, folder, os.path.join(folder, "image"))
            return Found((part,), folder, read.sha256)
    return of_list(source, progress, names=("urban_dataset_test.json",), pictures=("image",))


def of_two_lists(source: str, progress: Progress = None, *, test_asks: bool) -> Found:
    """Returns the rows of a training list and then those of a test list of one picture set.

    Args:
      source: "TRAIN,TEST", two list files; or the folder that holds GOAL's.
      progress: called with (bytes read, bytes) of one list, then of the other.
      test_asks: only the rows of the test list are queries. The first list may then already hold
        all of them, as TULIP's does.

    Raises:
      types.UserError: if there are not two, or pictures of one are in the other.
    """
    paths = _two(source)
    train, test = (rows_lib.read(path, progress=progress) for path in paths)
    of_test = {base_name(row.image) for row in test.rows}
    shared = sorted(of_test & {base_name(row.image) for row in train.rows})
    whole = test_asks and len(shared) == len(of_test)
    if shared and not whole:
        raise types.UserError(
            f"{len(shared)} pictures of {paths[1]} are in {paths[0]} too: "
            f"{types.at_most_ten(shared)}; give the training list first and then the test list"
        )
    read = [train] if whole else [train, test]
    parts = tuple(
        Part(one.rows, path, _folder(os.path.dirname(path), PHOTOS))
        for one, path in zip(read, paths, strict=False)
    )
    asks = tuple(base_name(row.image) in of_test for part in parts for row in part.rows)
    digest = hashlib.sha256("".join(one.sha256 for one in (train, test)).encode()).hexdigest()
    return Found(parts, ",".join(paths), digest, asks if test_asks else None)


def gather(found: Found, policies: survey.Policies, image_root: str) -> lists.PictureList:
    """Returns the records of all parts, one after the other.

    Args:
      found: what the source holds.
      policies: what is done with missing pictures and empty captions.
      image_root: folder of the pictures; "" = where the download has them.

    Raises:
      types.UserError: if rows do not fit, as `lists.read`.
    """
    records: list[lists.Record] = []
    rows = gone = empty = 0
    folders: collections.Counter[str] = collections.Counter()
    for part in found.parts:
        seen = survey.survey(part.path, part.rows, policies, image_root or part.pictures)
        records += (
            dataclasses.replace(record, index=rows + record.index)
            for record in survey.Kept(seen, lists.Record)
        )
        rows += seen.rows
        gone += seen.gone.count
        empty += seen.skipped_empty
        folders += seen.folders
    texts = [text for record in records for text in record.captions]
    report = lists.Report(
        rows=rows,
        pairs=len(texts),
        skipped_missing=gone,
        skipped_empty=empty,
        duplicates=len(texts) - len({*texts}),
        missing_folders=dict(sorted(folders.items(), key=lambda item: (-item[1], item[0]))),
    )
    queries = None
    if found.asks is not None:
        asking = (place for place, record in enumerate(records) if found.asks[record.index])
        queries = tuple(asking)
    return lists.PictureList(tuple(records), report, found.path, found.sha256, queries)


def base_name(image: str | blobs.Blob) -> str:
    """Returns the file name of a picture, without its folders."""
    return os.path.basename(image if isinstance(image, str) else image.name)


def _two(source: str) -> list[str]:
    if os.path.isdir(source):
        return [_inside(os.path.abspath(source), names) for names in (TRAIN_LISTS, TEST_LISTS)]
    paths = [part.strip() for part in source.split(",")]
    if len(paths) != 2 or not all(paths):
        raise types.UserError(
            f"{source!r} is no folder and no two lists; give TRAIN.json,TEST.json, or the folder "
            f"that holds {TRAIN_LISTS[0]} and {TEST_LISTS[0]}"
        )
    return [os.path.abspath(os.path.expanduser(path)) for path in paths]


def _inside(folder: str, names: tuple[str, ...], needed: tuple[str, ...] = ()) -> str:
    """Returns the first of the files that is there; `needed` is for the message, if it is more."""
    paths = (os.path.join(folder, name) for name in names)
    found = next(filter(os.path.isfile, paths), None)
    if found is None:
        raise types.UserError(
            f"{folder} holds none of {', '.join(needed or names)}; give the folder of the "
            "download, or the list file itself"
        )
    return found


def _folder(root: str, names: Sequence[str]) -> str:
    return next(filter(os.path.isdir, (os.path.join(root, name) for name in names)), "")


def _of_splits(path: str, read: Sequence[fields.Row], splits: tuple[str, ...]) -> list[fields.Row]:
    found: dict[str, list[fields.Row]] = {}
    for row in read:
        found.setdefault(row.split, []).append(row)
    empty = [split for split in splits if split not in found]
    if empty:
        raise types.UserError(
            f"{path} has no rows of the split {' or '.join(map(repr, empty))}, only of "
            f"{types.at_most_ten(sorted(map(repr, found)))}"
        )
    return [row for split in splits for row in found[split]]
