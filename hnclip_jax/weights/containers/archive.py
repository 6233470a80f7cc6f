"""A zip archive as torch writes it: records that lie in it as they are, each checked once."""

import io
import pathlib
import struct
import zipfile
import zlib

from hnclip_jax import types
from hnclip_jax.weights.containers import faults, spans

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_ENCRYPTED = 1
_AT_ONCE = 1 << 20


class Archive:
    """The records of one file by name. Nothing is ever unpacked: torch does not compress tensors.

    names: of all records.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Reads the list of records.

        Raises:
          types.UserError: if it is missing or damaged, or names one twice.
        """
        try:
            with zipfile.ZipFile(path) as file:
                found = file.infolist()
        except _DAMAGE as error:
            raise faults.damaged(path, error) from error
        self._path = path
        self._size = path.stat().st_size
        self._records = {info.filename: info for info in found}
        self._spans: dict[str, spans.Span] = {}
        self.names = frozenset(self._records)
        if twice := sorted({info.filename for info in found if self._other(info)}):
            listed = types.at_most_ten(faults.shown(name) for name in twice)
            raise faults.damaged(path, f"records that are there twice: {listed}")

    def span(self, name: str) -> spans.Span:
        """Returns where a record lies; its checksum is compared when it is first read.

        Raises:
          types.UserError: if there is no such record, it is compressed or encrypted, or it is not
            whole.
        """
        if name not in self._spans:
            self._spans[name] = self._locate(name)
        return self._spans[name]

    def read(self, name: str, most: int) -> io.BytesIO:
        """Returns the bytes of a record of at most so many.

        Raises:
          types.UserError: as `span`, and if it is larger or its checksum does not match.
        """
        span = self.span(name)
        if span.size > most:
            raise types.UserError(
                f"{self._path} holds a {name!r} of {span.size >> 20} MB, where at most "
                f"{most >> 20} MB are plausible; it was not loaded"
            )
        span.check()
        with open(self._path, "rb") as file:
            file.seek(span.start)
            return io.BytesIO(file.read(span.size))

    def _other(self, info: zipfile.ZipInfo) -> bool:
        return self._records[info.filename] is not info

    def _locate(self, name: str) -> spans.Span:
        shown = faults.shown(name)
        if name not in self._records:
            raise faults.damaged(self._path, f"record {shown} is missing")
        info = self._records[name]
        if info.flag_bits & _ENCRYPTED:
            raise types.UserError(f"{self._path} is encrypted; decrypt it first")
        if info.compress_type != zipfile.ZIP_STORED:
            raise types.UserError(
                f"{self._path} holds record {shown} compressed, which torch never does; "
                "pack the files in it again without compression"
            )
        with open(self._path, "rb") as file:
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
            raise faults.damaged(self._path, f"record {shown} has no header")
        *_, name_size, extra_size = _LOCAL_HEADER.unpack(header)
        start = info.header_offset + _LOCAL_HEADER.size + name_size + extra_size
        if info.compress_size != info.file_size or start + info.file_size > self._size:
            raise faults.damaged(self._path, f"record {shown} is not whole")
        return spans.Span(self._path, start, info.file_size, _Checksum(self._path, info, start))


class _Checksum:
    """Compares a record with the checksum in the archive, the first time it is called."""

    def __init__(self, path: pathlib.Path, info: zipfile.ZipInfo, start: int) -> None:
        self._path, self._info, self._start = path, info, start
        # torch leaves it at 0 after torch.serialization.set_crc32_options(False).
        self._done = info.CRC == 0

    def __call__(self) -> None:
        if self._done:
            return
        found, left = 0, self._info.file_size
        with open(self._path, "rb") as file:
            file.seek(self._start)
            while part := file.read(min(left, _AT_ONCE)):
                found = zlib.crc32(part, found)
                left -= len(part)
        if found != self._info.CRC:
            name = faults.shown(self._info.filename)
            raise faults.damaged(self._path, f"the checksum of record {name} does not match")
        self._done = True


_DAMAGE = (
    zipfile.BadZipFile,
    NotImplementedError,
    OSError,
    OverflowError,
    ValueError,
    struct.error,
)
