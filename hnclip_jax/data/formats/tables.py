"""Rows of tables: CSV and TSV with a header, and the lists of Flickr30k.

Lines of one picture that follow each other make one row of several captions.
"""

import contextlib
import csv
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from hnclip_jax import types
from hnclip_jax.data import compact
from hnclip_jax.data.formats import fields, textfile

_DELIMITERS = {"\t": "TSV", ",": "CSV", ";": "CSV", "|": "CSV"}
_TOKEN = re.compile(r"([^\t\n]+)#\d+\t(.*)")
_PAIR = re.compile(r'(?:"((?:[^"]|"")*)"|([^,]*)),(.*)', re.DOTALL)
_OPEN = re.compile(r'"(?:[^"]|"")*')
_CLOSED = re.compile(r'"(?:[^"]|"")*"\s*')
_CELL = 131_072  # characters, the limit of the csv module: longer than any caption
_NEEDED = "needed is a header with a picture and a caption column, and a line per caption"


def read(path: str, file: textfile.TextFile) -> tuple[compact.Compact, str]:
    """Returns the rows of a table and its kind.

    Raises:
      types.UserError: if the header lacks a column, or lines do not fit it.
    """
    lines = file.lines()
    number, first = next((n, line) for n, line in enumerate(lines, 1) if line.strip())
    collector = fields.Collector(path)
    if _TOKEN.match(first):
        records = _token_records(path, itertools.chain([first], lines), number)
        kind = "Flickr token"
    else:
        delimiter, header = _header(path, first)
        kind = _DELIMITERS[delimiter]
        if delimiter == "," and len(header) == 2:
            records = _pair_records(path, lines, number + 1, header)
        else:
            records = _table_records(path, lines, number + 1, header, delimiter)
    for record in _joined(records):
        collector.add(record)
    return collector.finish(_NEEDED), kind


def is_table(start: str) -> bool:
    """Returns whether the first line of a text looks like that of a table."""
    first = start.split("\n", 1)[0]
    return bool(_TOKEN.match(first)) or any(delimiter in first for delimiter in _DELIMITERS)


def _header(path: str, line: str) -> tuple[str, list[str]]:
    """Returns the delimiter for which the first line has the columns it needs, and the columns."""
    found = {}
    for delimiter in _DELIMITERS:
        cells = next(csv.reader([line.strip("\r\n")[:_CELL]], delimiter=delimiter))
        names = found[delimiter] = [cell.strip().lower() for cell in cells]
        record = dict.fromkeys(names)
        keys = [fields.first_key(record, keys) for keys in (fields.IMAGE_KEYS, fields.TEXT_KEYS)]
        if all(keys):
            if any(names.count(key) > 1 for key in keys):
                raise types.UserError(f"{path}: its header has a column twice: {', '.join(names)}")
            return delimiter, names
    delimiter, names = max(found.items(), key=lambda item: len(item[1]))
    columns = types.at_most_ten([repr(name[:40]) for name in names])
    raise types.UserError(
        f"{path}: cut at {delimiter!r}, its first line has the columns {columns}, but needs one of "
        f"{', '.join(fields.IMAGE_KEYS)} for the picture and one of {', '.join(fields.TEXT_KEYS)} "
        "for the caption; name them so in the header (or give JSON)"
    )


def _table_records(
    path: str, lines: Iterator[str], number: int, header: Sequence[str], delimiter: str
) -> Iterator[dict[str, Any]]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    wrong, first = 0, ""
    count = 0
    while True:
        line = number + reader.line_num
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise types.UserError(
                f"{path}: line {line} is no line of a table: {error}; a text with quotes in it "
                'stands in quotes, and they are doubled (""), as any CSV writer does'
            ) from None
        count += bool(cells)
        if cells and len(cells) != len(header):
            first = first or f"line {line} has {len(cells)}"
            wrong += 1
        elif cells:
            yield _unpacked(dict(zip(header, cells, strict=True)))
    if wrong:
        raise types.UserError(
            f"{path}: {wrong} of {count} lines have not the {len(header)} cells of the header; the "
            f"first, {first}; put texts that hold {delimiter!r} in quotes"
        )


def _pair_records(
    path: str, lines: Iterator[str], number: int, header: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yields the records of two columns, where commas in the text may stand without quotes."""
    wrong, first = 0, ""
    numbered = enumerate(lines, number)
    for line, text in numbered:
        cells = _PAIR.fullmatch(text)
        if cells:
            quoted, plain, rest = cells.groups()
            name = plain if quoted is None else quoted.replace('""', '"')
            quote = rest.startswith('"')
            rest = _unquoted(path, line, rest, numbered) if quote else rest.rstrip("\r\n")
            yield dict(zip(header, (name, rest), strict=True))
        elif text.strip():
            first = first or f"line {line}"
            wrong += 1
    if wrong:
        raise types.UserError(f"{path}: {wrong} lines have no comma; the first is {first}")


def _unquoted(path: str, line: int, text: str, following: Iterator[tuple[int, str]]) -> str:
    """Returns the text of a cell that begins with a quote; as it is, if the quote is its own."""
    if _OPEN.fullmatch(text):
        text = "".join([text, *_until_closed(path, line, len(text), following)])
    if _CLOSED.fullmatch(text):
        return text.rstrip()[1:-1].replace('""', '"')
    if "\n" in text.rstrip("\r\n"):
        raise types.UserError(
            f"{path}: the quote that line {line} opens is not closed at the end of a line; double "
            'the quotes inside of a text ("")'
        )
    return text.rstrip("\r\n")


def _until_closed(
    path: str, line: int, length: int, following: Iterator[tuple[int, str]]
) -> Iterator[str]:
    """Yields lines up to the one with the quote that closes: it makes their number even."""
    for _, text in following:
        length += len(text)
        if length > _CELL:
            break
        yield text
        if text.count('"') % 2:
            return
    raise types.UserError(
        f"{path}: the quote that line {line} opens is never closed; close or remove it"
    )


def _token_records(path: str, lines: Iterator[str], number: int) -> Iterator[dict[str, Any]]:
    wrong, first = 0, ""
    for line, text in enumerate(lines, number):
        match = _TOKEN.fullmatch(text.strip("\r\n"))
        if match:
            yield {"filename": match[1], "caption": match[2]}
        elif text.strip():
            first = first or f"line {line}: {text.strip()[:40]!r}"
            wrong += 1
    if wrong:
        raise types.UserError(
            f"{path}: {wrong} lines are not like name.jpg#0<TAB>caption; the first is {first}"
        )


def _unpacked(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record whose `raw` is a list, if it is one written as JSON."""
    raw = record.get("raw")
    if raw and raw.startswith("["):
        with contextlib.suppress(ValueError):  # a caption that begins so
            record["raw"] = json.loads(raw)
    return record


def _joined(records: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields one record for the records of one picture that follow each other."""
    last: dict[str, Any] = {}
    for record in records:
        name = record.get(fields.first_key(record, fields.IMAGE_KEYS))
        text = fields.first_key(record, fields.TEXT_KEYS)
        if name and name == last.get(fields.first_key(last, fields.IMAGE_KEYS)):
            last[text] = _listed(last[text])
            last[text] += _listed(record[text])
            continue
        if last:
            yield last
        last = record
    if last:
        yield last


def _listed(texts: Any) -> list[Any]:
    return texts if isinstance(texts, list) else [texts]
