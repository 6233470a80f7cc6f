"""tf.train.Example messages, which are the records of tensorflow-datasets, read from their bytes.

Written out because tensorflow-datasets cannot do it here: pictures are loaded by many threads, and
threads that are the first to use its lazily imported modules can wait for each other forever.
"""

from collections.abc import Iterator

_VARINT, _LENGTH = 0, 2
_BYTES, _INTEGERS = 1, 3


def features(record: bytes) -> dict[str, memoryview]:
    """Returns name -> feature of one example, for `strings`, `views` and `integers`.

    Raises:
      ValueError: if the bytes are no example.
    """
    found = {}
    for _, members in _fields(memoryview(record)):
        for _, member in _fields(members):
            parts = dict(_fields(member))
            found[bytes(parts[1]).decode()] = parts.get(2, memoryview(b""))
    return found


def strings(feature: memoryview) -> list[bytes]:
    """Returns the byte strings of a feature; none if it holds anything else."""
    return list(map(bytes, views(feature)))


def views(feature: memoryview) -> list[memoryview]:
    """Returns the same as `strings`, not copied."""
    return [value for _, value in _members(feature, _BYTES)]


def integers(feature: memoryview) -> list[int]:
    """Returns the integers of a feature, as 64 bits with a sign; none if it holds anything else."""
    found = []
    for _, value in _members(feature, _INTEGERS):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(number)
    return [number - 2**64 if number >= 2**63 else number for number in found]


def _members(feature: memoryview, kind: int) -> Iterator[tuple[int, memoryview | int]]:
    for found, values in _fields(feature):
        if found == kind:
            yield from _fields(values)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yields number and value of a message's fields."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, at = _varint(message, at)
        if key & 7 == _VARINT:
            yield key >> 3, number
            continue
        if key & 7 != _LENGTH or at + number > len(message):
            raise ValueError("the record is no tf.train.Example")
        yield key >> 3, message[at : at + number]
        at += number


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Returns the number at a place, and the place behind it."""
    number, shift = 0, 0
    while True:
        if at >= len(message):
            raise ValueError("the record is no tf.train.Example")
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
