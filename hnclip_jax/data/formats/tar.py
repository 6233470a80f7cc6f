"""Rows of tar shards: pictures and, with the same stem, `.txt` or `.json`, read where they lie.

Nothing is unpacked: a picture is a span of bytes of its shard, so shards must not be compressed.
"""

import glob
import hashlib
import itertools
import json
import os
import re
import tarfile
from typing import Any

from hnclip_jax import types
from hnclip_jax.data import blobs, compact
from hnclip_jax.data.formats import fields, folders

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}
_RANGE = re.compile(r"\{([^{}]+)\}")


def read(shards: list[str]) -> fields.Rows:
    """Returns the rows of shards, shard after shard, in the order in which pictures lie there.

    Raises:
      types.UserError: if a shard cannot be read, or none holds a picture.
    """
    rows, digest = compact.Compact(), hashlib.sha256()
    for shard in shards:
        for row in _rows(shard, digest):
            rows.append(row)
    if not rows:
        raise types.UserError(
            f"{shards[0]}: no picture in {len(shards)} tar shards; needed are members such as "
            "7.jpg and 7.txt"
        )
    return fields.Rows(rows, digest.hexdigest(), "tar shards")


def is_tar(head: bytes) -> bool:
    """Returns whether a file that begins with these 512 bytes is a plain tar archive."""
    return head[257:262] == b"ustar"


def check_plain(path: str, head: bytes) -> None:
    """Raises if a file that begins with these bytes is compressed.

    Raises:
      types.UserError: says which way and what to do.
    """
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise types.UserError(
                f"{path} is compressed with {name}; decompress it first, to a plain tar file or a "
                "list: pictures are read from where they lie in it"
            )
    if head.startswith(b"PK\x03\x04"):
        raise types.UserError(f"{path} is a zip archive; unpack it and give the folder or the list")


def find(path: str) -> list[str]:
    """Returns the shards that a folder, or a pattern like `name-{000..003}.tar`, stands for.

    Shards of a folder or of a glob pattern (`name-*.tar`) are in numeric order. Empty if `path` is
    neither.

    Raises:
      types.UserError: if shards of the pattern are missing, or nothing matches.
    """
    if os.path.isdir(path):
        names = [name for name in os.listdir(path) if name.endswith(".tar")]
        names = [name for name in names if not folders.is_junk(name)]
        return [os.path.join(path, name) for name in sorted(names, key=folders.natural)]
    if os.path.exists(path) or not re.search(r"[*?\[{]", path):
        return []
    found, missing = [], []
    for one in _expand(path):
        # A range names its shards one by one, so each has to be there.
        matches = [one] if os.path.isfile(one) else sorted(glob.glob(one), key=folders.natural)
        found += matches
        missing += [] if matches else [one]
    if missing:
        raise types.UserError(
            f"{path}: {len(missing)} of {len(missing) + len(found)} shards are missing: "
            f"{types.at_most_ten(missing)}"
        )
    return found


def _expand(pattern: str) -> list[str]:
    parts = _RANGE.split(pattern)
    choices = [_choices(part) if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(words) for words in itertools.product(*choices)]


def _choices(inside: str) -> list[str]:
    ends = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", inside)
    if ends is None:
        return inside.split(",")
    first, last = int(ends[1]), int(ends[2])
    width = max(len(ends[1]), len(ends[2])) if ends[1].startswith("0") else 0
    step = 1 if last >= first else -1
    return [str(number).zfill(width) for number in range(first, last + step, step)]


def _rows(shard: str, digest: Any) -> list[fields.Row]:
    members = _members(shard)
    pictures, captions = folders.pair_up(list(members), shard, (".txt",))
    _, notes = folders.pair_up(list(members), shard, (".json",))
    rows = []
    with open(shard, "rb") as file:
        for name in members:
            digest.update(f"{name}\0{members[name].size}\0".encode("utf-8", "surrogateescape"))
        for stem in dict.fromkeys([*pictures, *captions]):
            texts = [
                _text(file, members[found[stem]]) if stem in found else ""
                for found in (captions, notes)
            ]
            for text in texts:
                digest.update(text.encode() + b"\0")
            image = members[pictures[stem]] if stem in pictures else f"{stem}.jpg"
            noted = fields.captions(_object(texts[1])) if stem in notes else [None]
            rows.append(
                fields.Row(image, [texts[0]] if stem in captions else noted, fields.identity(stem))
            )
    return rows


def _members(shard: str) -> dict[str, blobs.Blob]:
    """Returns where the files of a shard are, by name."""
    found = {}
    try:
        with open(shard, "rb") as file:
            check_plain(shard, file.read(512))
        with tarfile.open(shard, "r:") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # which it would keep, for a million members in vain
                if member.isreg():
                    if member.issparse():
                        raise tarfile.ReadError(f"{member.name} is stored as a sparse file")
                    place = (member.offset_data, member.size, member.name)
                    found[member.name] = blobs.Blob(shard, *place)
    except (OSError, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or error
        raise types.UserError(f"cannot read tar shard {shard}: {reason}") from error
    return found


def _text(file: Any, member: blobs.Blob) -> str:
    file.seek(member.offset)
    return folders.decoded(file.read(member.size), str(member))


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
