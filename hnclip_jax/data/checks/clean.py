"""Writes a list of what was found to be good, in the form that `lists.read` takes."""

import json
import os
from collections.abc import Sequence

from hnclip_jax import types
from hnclip_jax.data.checks import findings


def check_target(out: str | os.PathLike, path: str | os.PathLike) -> None:
    """Checks that a clean list can be written, before anything is read.

    Raises:
      types.UserError: if `out` is the list at `path` itself, a folder, or in no folder.
    """
    folder = os.path.dirname(os.path.abspath(out))
    if os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
        raise types.UserError(f"fix_out is the list {path} itself; give the clean one a new name")
    if os.path.isdir(out) or not os.path.isdir(folder):
        raise types.UserError(f"fix_out {out} is no file in a folder that exists; name one")


def write(rows: Sequence[findings.Clean], out: str | os.PathLike, path: str | os.PathLike) -> None:
    """Writes rows as a JSON array of {"filename", "caption", ...}.

    Pictures below the new list's folder are written relative to it, so that both can be moved
    together; others by their whole path. Several captions of a picture are a list. Segments, edge
    maps and the like stay as they are.

    Args:
      rows: what is written.
      out: the new list.
      path: the list that they are from.

    Raises:
      types.UserError: if a picture is no file of its own, or nothing is left, or the disk is full;
        or rows name further files, relative to the list's folder, and the new one is elsewhere.
    """
    out = os.path.abspath(out)
    folders = [os.path.dirname(os.path.abspath(file)) for file in (out, path)]
    if any(row.extra for row in rows) and os.path.realpath(folders[0]) != os.path.realpath(
        folders[1]
    ):
        raise types.UserError(
            f"rows of {path} name segments or edge maps by their place from {folders[1]}; write "
            "the clean list into that folder"
        )
    if not rows:
        raise types.UserError(f"no row is left, so {out} was not written")
    packed = [str(row.image) for row in rows if not isinstance(row.image, str)]
    if packed:
        raise types.UserError(
            f"{len(packed)} pictures are no files of their own ({types.at_most_ten(packed[:3])}), "
            f"so a list cannot name them; unpack them, then write {out}"
        )
    content = [_row(row, os.path.dirname(out)) for row in rows]
    scratch = f"{out}.tmp"
    try:
        with open(scratch, "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
        os.replace(scratch, out)
    except OSError as error:
        raise types.UserError(f"cannot write {out}: {error.strerror}") from error


def _row(row: findings.Clean, folder: str) -> dict[str, str | list[str]]:
    path = os.path.abspath(row.image)
    inside = path.startswith(os.path.join(folder, ""))
    caption = row.captions[0] if len(row.captions) == 1 else list(row.captions)
    named = {"filename": os.path.relpath(path, folder) if inside else path, "caption": caption}
    rest = {"id": row.id, "split": row.split, "group": row.group}
    return named | {key: value for key, value in rest.items() if value} | dict(row.extra)
