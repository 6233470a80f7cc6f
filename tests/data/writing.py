"""What tests of lists share: files that are written, and what is read from them."""

import json
import pathlib

ROWS = [
    {"filename": "a.jpg", "caption": "A red kite."},
    {"filename": "größe 1.jpg", "caption": "Zwei  Bäume\nam See. "},
    {"filename": "sub dir/寸 c#100%.png", "caption": "A bridge."},
]


def touch(folder, *names):
    """Makes empty files: reading a list opens no picture."""
    for name in names:
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def write(folder, content, name="list.json"):
    """Writes rows as a JSON array, or text or bytes as they are; returns the path."""
    path = pathlib.Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(rows) -> str:
    """Returns rows as JSON lines."""
    return "\n".join(json.dumps(row) for row in rows)


def captions(found) -> list[list[str]]:
    """Returns the captions of rows or of the records of a list."""
    return [list(row.captions) for row in getattr(found, "records", found)]
