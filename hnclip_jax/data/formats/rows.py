"""What a list says, whatever its format: the one door to every reader of rows."""

import os
import stat

from hnclip_jax import types
from hnclip_jax.data.formats import fields, folders, json_rows, tables, tar, textfile

Row = fields.Row
Rows = fields.Rows


def read(
    path: str | os.PathLike,
    *,
    first_line: bool = False,
    progress: textfile.Progress | None = None,
) -> Rows:
    """Returns the rows of a list, as they stand in it: no picture is looked for, no text checked.

    The format is found from the content, never from the ending of the name:

    * `[` begins a JSON array; `{` JSON lines, {"annotations": [...]}, COCO captions or Karpathy;
    * a first line `a.jpg#0<TAB>text` the token file of Flickr30k; any other with the columns that
      are needed, CSV or TSV;
    * a tar archive, a folder of such, or a pattern `name-{000..003}.tar`, is shards;
    * another folder holds pictures and texts of the same stem.

    Args:
      path: a file, a folder, or a pattern.
      first_line: take only the first line of a folder's texts.
      progress: called with bytes read and bytes in all, while a file is read.

    Raises:
      types.UserError: if it cannot be read, or is none of these.
    """
    path = os.path.abspath(path)
    shards = tar.find(path)
    if shards:
        return tar.read(shards)
    if os.path.isdir(path):
        return folders.read(path, first_line=first_line)
    head = _head(path)
    tar.check_plain(path, head)
    if tar.is_tar(head):
        return tar.read([path])
    with textfile.TextFile(path, progress) as file:
        start = file.beginning()
        if start[:1] in ("[", "{") and start:
            rows, kind = json_rows.read(path, file, start[0])
        elif tables.is_table(start):
            rows, kind = tables.read(path, file)
        else:
            found = f"begins with {start[:20]!r}" if start else "is empty"
            raise types.UserError(f"{path} {found}; {json_rows.NEEDED}")
        return Rows(rows, file.sha256(), kind)


def _head(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise types.UserError(f"{path} is neither a file nor a folder; give the path of a list")
        with open(path, "rb") as file:
            return file.read(512)
    except OSError as error:
        raise textfile.unreadable(path, error) from error
