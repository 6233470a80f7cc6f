"""Reading piece by piece: windows of any size, exact places of faults, and little memory."""

import contextlib
import hashlib
import json
import pickle
import random
import subprocess
import sys
import textwrap

import pytest

from hnclip_jax import types
from hnclip_jax.data import compact
from hnclip_jax.data.formats import json_stream, rows, textfile
from tests.data import writing

ROWS = [
    {"filename": f"ü {n}.jpg", "caption": f'寸 "{n}"\\\n{"é" * n}', "n": [n, -1.5e10, None, True]}
    for n in range(40)
]
CONTAINERS = {
    # The first line is always read whole.
    "array": "[\n" + json.dumps(ROWS, ensure_ascii=False)[1:],
    "escaped and indented": json.dumps(ROWS, indent=3),
    "lines": "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS),
    "annotations": '{\n"n": 1234567, "annotations": ' + json.dumps(ROWS) + ', "m": 1234567}',
}


@pytest.fixture(params=[1, 2, 3, 7, 64, 1 << 20])
def pieces(request, monkeypatch):
    """The size of the pieces that files are read in."""
    monkeypatch.setattr(json_stream, "_PIECE", request.param)
    monkeypatch.setattr(textfile.TextFile.piece, "__defaults__", (request.param,))


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte-order mark"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_windows_of_any_size_read_what_json_reads(container, mark, pieces, tmp_path):
    path = writing.write(tmp_path, mark + CONTAINERS[container])
    found = rows.read(path)
    assert [(row.image, row.captions) for row in found.rows] == [
        (row["filename"], [row["caption"]]) for row in ROWS
    ]
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_table_in_pieces_of_any_size(pieces, tmp_path):
    content = 'image\tcaption\r\né 1.jpg\t"寸 ""a""\nb\t"\r\n2.jpg\tc\u2028d'
    found = rows.read(writing.write(tmp_path, content))
    assert [(row.image, row.captions) for row in found.rows] == [
        ("é 1.jpg", ['寸 "a"\nb\t']),
        ("2.jpg", ["c\u2028d"]),
    ]


@pytest.mark.parametrize("seed", range(30))
def test_faults_are_reported_where_json_reports_them(seed, pieces, tmp_path):
    draw = random.Random(seed)
    text = "[\n" + json.dumps(ROWS[:4], indent=draw.choice([None, 1]), ensure_ascii=False)[1:]
    at = draw.randrange(1, len(text))
    broken = draw.choice([text[:at], text[:at] + draw.choice('}],:"x\n') + text[at:]])
    path = writing.write(tmp_path, broken)
    try:
        json.loads(broken)
    except json.JSONDecodeError as error:
        place = rf"no valid JSON at line {error.lineno}, column {error.colno}: "
        with pytest.raises(types.UserError, match=place):
            rows.read(path)
    else:
        # It may still be no list: of a key that was changed, for instance.
        with contextlib.suppress(types.UserError):
            assert len(rows.read(path).rows) == 4


@pytest.mark.parametrize(
    "tail", [b"\xe9x", b"\xff", b"\xc3", b"\xe5\xaf", b"\xed\xa0\x80"], ids=bytes.hex
)
def test_the_first_byte_that_is_no_utf8_is_named(tail, pieces, tmp_path):
    head = '\ufeff[\r\n\n {"é": "寸"'.encode()
    path = writing.write(tmp_path, head + tail)
    match = rf"line 3, byte {len(head)} of the file \(0x{tail[0]:02x}\), is not UTF-8; .*iconv"
    with pytest.raises(types.UserError, match=match):
        rows.read(path)


def test_a_compact_sequence_is_a_sequence():
    found = compact.Compact()
    expected = [(n, "x" * n) for n in range(300)]
    for item in expected:
        found.append(item)
    assert (len(found), list(found)) == (300, expected)
    assert [found[n] for n in (0, 63, 64, 299, -1, -300)] == [
        expected[n] for n in (0, 63, 64, 299, -1, -300)
    ]
    assert found[250:60:-7] == tuple(expected[250:60:-7])
    assert list(pickle.loads(pickle.dumps(found))) == expected
    for index in (300, -301):
        with pytest.raises(IndexError):
            found[index]
    found.append("more")
    assert (found[300], found[299]) == ("more", expected[299])


# Texts whose deflated size is at least that of English, so that none of the margin is luck.
PROGRAM = """
import json, os, random, sys
from unittest import mock
from hnclip_jax.data import lists

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

draw = random.Random(0)
words = ["".join(draw.choices("etaoinsrhldcumfpgwybv", k=draw.randint(2, 9))) for _ in range(3000)]
texts = [" ".join(draw.choices(words, k=150)) for _ in range(2000)]
path = sys.argv[1]
with open(path, "w") as file:
    for n in range(90_000):
        told = [{"value": "<image>\\nDescribe it."}, {"from": "gpt", "value": texts[n % 1999]}]
        row = {"id": f"sa_{n}", "image": f"sam/images/sa_{n}.jpg", "conversations": told}
        file.write(("," if n else "[") + json.dumps(row) + "\\n")
    file.write("]")
before = peak()
with mock.patch("os.path.isfile", lambda path: True):
    found = lists.read(path)
assert len(found.records) == 90_000
for n in (0, 12_345, 89_999):
    record = found.records[n]
    assert (record.id, record.captions) == (f"sa_{n}", (texts[n % 1999],)), record
    assert record.image.endswith(f"/sam/images/sa_{n}.jpg")
print(before, peak(), os.path.getsize(path))
"""


def test_a_long_list_needs_a_fraction_of_its_size_in_memory(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "list.json")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    before, after, size = map(int, ran.stdout.split())
    assert size > 80e6
    # 0.63 would be 1.5 GB of JSON in a gigabyte, with what Python itself takes.
    assert after - before < 0.63 * size
