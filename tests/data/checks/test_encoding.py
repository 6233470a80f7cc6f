"""Every line that is no UTF-8 is found, with its line and byte."""

import pytest

from hnclip_jax.data.checks import encoding


def faults(path):
    return [tuple(fault)[1:] for fault in encoding.faults(str(path))]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        ("é — 寸\n".encode(), []),
        ("\ufeffa\n".encode(), []),
        (b"caf\xe9\n", [(1, 3, 0xE9)]),
        (b"one\ncaf\xe9 \xe9\ntwo\n\xff", [(2, 7, 0xE9), (4, 15, 0xFF)]),
        (b"cut \xc3", [(1, 4, 0xC3)]),
        (b"half \xed\xa0\x80", [(1, 5, 0xED)]),
        ("utf-16\n".encode("utf-16"), [(1, 0, 0xFF)]),
        (b"\x00\x01 an archive \xff\xfe", []),
    ],
    ids=["empty", "good", "mark", "one", "two lines", "cut", "surrogate", "utf-16", "binary"],
)
def test_lines_and_bytes(tmp_path, content, expected):
    (tmp_path / "list").write_bytes(content)
    assert faults(tmp_path / "list") == expected


@pytest.mark.parametrize("piece", [1, 2, 3, 7])
def test_a_line_may_be_longer_than_a_piece(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(encoding, "_PIECE", piece)
    (tmp_path / "list").write_bytes("äöü 寸 𝄞\n".encode() * 3 + b"a\xe4b\n")
    (found,) = faults(tmp_path / "list")
    content = (tmp_path / "list").read_bytes()
    assert content[found[1]] == found[2] == 0xE4
    assert found[0] == 4


def test_texts_of_a_folder(tmp_path):
    (tmp_path / "caption").mkdir()
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8")
    (tmp_path / "a.txt").write_bytes(b"good")
    (tmp_path / "b.txt").write_bytes(b"\xe9")
    (tmp_path / "caption" / "7.txt").write_bytes(b"a\n\xe9")
    found = encoding.faults(str(tmp_path))
    assert [str(fault) for fault in found] == [
        f"{tmp_path}/b.txt, line 1, byte 0 of the file (0xe9)",
        f"{tmp_path}/caption/7.txt, line 2, byte 2 of the file (0xe9)",
    ]
