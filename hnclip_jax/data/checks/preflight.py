"""Reads all that a list names, once, and finds what would stop or spoil a run."""

import collections
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from hnclip_jax import types
from hnclip_jax.data import images, pack, paths, tokenizer
from hnclip_jax.data.checks import encoding, findings, kinds, texts
from hnclip_jax.data.checks import workers as workers_lib
from hnclip_jax.data.formats import fields
from hnclip_jax.data.formats import rows as rows_lib

Progress = Callable[[int, int], None]


def check(
    path: str | os.PathLike,
    tokenize: tokenizer.Tokenizer,
    *,
    image_root: str = "",
    options: images.Options = images.DEFAULT,
    size: int = 224,
    contexts: tuple[int, ...] = texts.CONTEXTS,
    workers: int = workers_lib.ALL_CORES,
    list_progress: Progress | None = None,
    picture_progress: Progress | None = None,
    caption_progress: Progress | None = None,
) -> findings.Findings:
    """Returns what is wrong with a list, and what else there is to know about it.

    Args:
      path: of a list in any format that `lists.read` takes, but for packed ones.
      tokenize: caption -> ids.
      image_root: folder of the pictures, where the list's own paths do not lead to them.
      options: how files become pixels.
      size: pixels that pictures are resized to in the end.
      contexts: text lengths, in tokens, that captions are cut at.
      workers: processes that read; 0 = this one, -1 = one per core.
      list_progress, picture_progress, caption_progress: called with (done, all): bytes of the
        list, pictures, captions.

    Raises:
      types.UserError: if the list cannot be understood at all.
    """
    path = os.path.abspath(path)
    if pack.is_packed(path):
        raise types.UserError(f"{path} is packed, so it was read whole; check the list it is from")
    if broken := encoding.faults(path):
        return findings.Findings(path, not_utf8=tuple(broken))
    rows, sha256, kind = rows_lib.read(path, progress=list_progress)
    names = [row.image for row in rows]
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    found, clashes = _found(names, folder, image_root)
    seen = _look(found, kinds.Look(options, size), workers, picture_progress)
    captions = [_usable(row) for row in rows]
    flat = [caption for of_row in captions for caption in of_row]
    counted = texts.count(flat, tokenize, contexts, processes=workers, progress=caption_progress)
    labels = {reference: findings.label(reference, folder) for reference in seen}
    return findings.Findings(
        path=path,
        kind=kind,
        sha256=sha256,
        rows=len(rows),
        pictures=len(seen),
        captions=len(flat),
        missing=_missing(names, found),
        undecodable=tuple(_undecodable(found, seen, labels)),
        clashes={labels[picture]: several for picture, several in clashes.items()},
        unusable=_unusable(rows),
        shared_pictures=sum(n > 1 for n in collections.Counter(filter(None, found)).values()),
        same_pictures=_groups((s.digest, labels[r]) for r, s in seen.items() if not s.fault),
        same_captions=_groups((c, index) for index, row in enumerate(captions) for c in row),
        cut={context: sum(caption.tokens > context for caption in counted) for context in contexts},
        same_cut=_same_cut(flat, counted, contexts),
        kinds=dict(collections.Counter(k for s in seen.values() for k in s.kinds).most_common()),
        large=tuple(
            (labels[reference], s.width, s.height)
            for reference, s in seen.items()
            if s.width * s.height > kinds.LARGE
        ),
        clean=tuple(_clean(rows, found, captions, seen, clashes)),
    )


def _found(
    names: Sequence[images.Reference], folder: str, image_root: str
) -> tuple[list[images.Reference], dict[str, tuple[str, ...]]]:
    """Returns the picture of every row, "" for those that are missing; and what clashes.

    A clash is a file that different names lead to, each by its last parts only.
    """
    places = paths.Places(folder, os.path.abspath(image_root) if image_root else "")
    found, rebased = [], collections.defaultdict(dict)
    for name in names:
        number = places.find(name) if isinstance(name, str) else None
        if number is None:
            found.append(name)
            continue
        found.append(places.path(name, number) if number >= 0 else "")
        if number >= 0 and places.rebased(number):
            rebased[found[-1]][name] = None
    return found, {file: tuple(several) for file, several in rebased.items() if len(several) > 1}


def _look(
    found: Sequence[images.Reference],
    look: kinds.Look,
    workers: int,
    progress: Progress | None,
) -> dict[images.Reference, kinds.Seen]:
    references = list(dict.fromkeys(filter(None, found)))
    seen = workers_lib.each(look, references, workers=workers, progress=progress)
    return dict(zip(references, seen, strict=True))


def _usable(row: fields.Row) -> list[str]:
    return [caption.strip() for caption in row.captions if not texts.fault(caption)]


def _missing(
    names: Sequence[images.Reference], found: Sequence[images.Reference]
) -> dict[str, findings.Folder]:
    named, missing = collections.Counter(), collections.defaultdict(list)
    for name, reference in zip(names, found, strict=True):
        folder = os.path.dirname(str(name))
        named[folder] += 1
        if not reference:
            missing[folder].append(str(name))
    return {
        folder: findings.Folder(len(gone), named[folder], tuple(gone))
        for folder, gone in sorted(missing.items())
    }


def _undecodable(
    found: Sequence[images.Reference],
    seen: Mapping[images.Reference, kinds.Seen],
    labels: Mapping[images.Reference, str],
) -> Iterator[findings.Undecodable]:
    first: dict[images.Reference, int] = {}
    for index, reference in enumerate(found):
        first.setdefault(reference, index)
    for reference, s in seen.items():
        if s.fault:
            yield findings.Undecodable(first[reference], labels[reference], s.fault)


def _unusable(rows: Sequence[fields.Row]) -> dict[str, tuple[int, ...]]:
    found = collections.defaultdict(list)
    for index, row in enumerate(rows):
        for caption in row.captions or [None]:
            if fault := texts.fault(caption):
                found[fault].append(index)
    return {fault: tuple(indices) for fault, indices in found.items()}


def _groups(items: Iterator[tuple]) -> tuple[tuple, ...]:
    """Returns the values of every key that has more than one."""
    groups = collections.defaultdict(list)
    for key, value in items:
        groups[key].append(value)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _same_cut(
    flat: Sequence[str], counted: Sequence[texts.Counted], contexts: tuple[int, ...]
) -> dict[int, int]:
    different = dict(zip(flat, counted, strict=True)).values()
    return {
        context: texts.repeats(caption.cut[place] for caption in different)
        for place, context in enumerate(contexts)
    }


def _clean(
    rows: Sequence[fields.Row],
    found: Sequence[images.Reference],
    captions: Sequence[list[str]],
    seen: Mapping[images.Reference, kinds.Seen],
    clashes: Mapping[str, tuple[str, ...]],
) -> Iterator[findings.Clean]:
    for row, reference, usable in zip(rows, found, captions, strict=True):
        if not reference or reference in clashes or seen[reference].fault:
            continue
        if usable:
            yield findings.Clean(reference, tuple(usable), row.id, row.split, row.group, row.extra)
