"""Where a picture's bytes are, when it is not a file of its own: a span of a larger file."""

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Blob:
    """Bytes inside of a file that is not compressed, such as a member of a tar archive.

    Whoever takes a picture takes a path, bytes, or something with a `read` like this one's; it is
    small and picklable, so that workers get it instead of the picture.

    path: of the file.
    offset: first byte.
    size: in bytes.
    name: of the picture, for messages.
    """

    path: str
    offset: int
    size: int
    name: str

    def read(self) -> bytes:
        """Returns the bytes; fewer if the file has become shorter."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            return file.read(self.size)

    def __str__(self) -> str:
        """Returns what messages call it."""
        return f"{self.name} in {os.path.basename(self.path)}"
