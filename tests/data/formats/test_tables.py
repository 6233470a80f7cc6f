"""Tables: delimiters, real quoting, texts kept to the letter, and the lists of Flickr30k."""

import csv
import io
import random

import pytest

from hnclip_jax import types
from hnclip_jax.data import lists
from hnclip_jax.data.formats import rows
from tests.data import writing

HARD = [
    "plain",
    'a "quoted" word',
    '"all of it"',
    "a,b;c|d",
    "a\ttab",
    "two\nlines",
    "two\r\nlines\n\n and a blank one",
    'a\n"b"\t,\n',
    "ends in a quote\"",
    "é — 寸\u2028x\x85",
    "' single",
]  # fmt: skip


def _table(rows_, delimiter, end="\n"):
    """Returns a table as pandas writes it: quotes only where they are needed."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator=end).writerows(rows_)
    return out.getvalue()


def _read(folder, content, name="list"):
    return rows.read(writing.write(folder, content, name))


def _texts(found):
    return [row.captions for row in found.rows]


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte-order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["newline", "carriage return"])
@pytest.mark.parametrize("name", ["dci_long.csv", "list.json", "list"])
@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|"])
@pytest.mark.parametrize("columns", [2, 3])
def test_a_round_trip_is_exact(columns, delimiter, name, end, mark, tmp_path):
    header = ["filepath", "title", "score"][:columns]
    body = [[f"dir, {n}/a {n}.jpg", text, "1"][:columns] for n, text in enumerate(HARD)]
    found = _read(tmp_path, mark + _table([header, *body], delimiter, end), name)
    assert [row.image for row in found.rows] == [line[0] for line in body]
    # Line ends inside of a text are the text's, whatever ends the lines of the table.
    assert _texts(found) == [[text] for text in HARD]
    assert found.kind == ("TSV" if delimiter == "\t" else "CSV")


@pytest.mark.parametrize("seed", range(20))
def test_a_round_trip_of_random_texts(seed, tmp_path):
    draw = random.Random(seed)
    texts = ["".join(draw.choices('ab,\t" \n;', k=draw.randint(0, 12))) for _ in range(30)]
    for columns, delimiter in ((2, ","), (3, ","), (2, "\t")):
        body = [[f"{n}.jpg", text, "x"][:columns] for n, text in enumerate(texts)]
        table = _table([["image", "caption", "x"][:columns], *body], delimiter)
        assert _texts(_read(tmp_path, table)) == [[text] for text in texts]


def test_columns_are_found_by_name_in_any_order(tmp_path):
    found = _read(tmp_path, " Title , id, FILENAME ,split\nA kite.,7,a.jpg,test\n")
    assert list(found.rows) == [rows.Row("a.jpg", ["A kite."], "000000000007", "test")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "file;text\na.jpg;c",
            r"cut at ';', its first line has the columns 'file', 'text', but needs one of orig",
        ),
        ("image:caption, or so\n", r"cut at ',', .* 'image:caption', 'or so'"),
        ("image,caption\n", "holds no rows"),
        ("image,caption,caption\na,b,c", "header has a column twice: image, caption, caption"),
        (
            "image,caption,n\na.jpg,c,1\nb.jpg,c, d,2\nc.jpg,c\n",
            r"2 of 3 lines have not the 3 cells of the header; the first, line 3 has 4",
        ),
        ('image\tcaption\na.jpg\t"Stop" says it\n', "line 2 is no line of a table"),
        ('image\tcaption\na.jpg\tc\nb.jpg\t"never\nclosed', "line 3 is no line of a table"),
        ('image,caption\na.jpg,"never\nclosed', "the quote that line 2 opens is never closed"),
        ('image,caption\na.jpg,"one\ntwo" three\n', "quote that line 2 opens is not closed at"),
        ("image,caption\na.jpg,c\n\njust words\n", "1 lines have no comma; the first is line 4"),
        ("a.jpg#0\tc\n\na.jpg#1 c\n", r"1 lines are not like .* the first is line 3: 'a\.jpg#1 c'"),
        ("image,caption\n,c\n", "1 of 1 rows name no picture"),
        (b"image\tcaption\na.jpg\tcaf\xe9\n", r"line 2, byte 23 .*\(0xe9\)"),
        ("image,caption\n" + 'a.jpg,"' + "x\n" * 90_000 + '"', "line 2 opens is never closed"),
        ("image\tcaption\n" + 'a.jpg\t"' + "x\n" * 90_000, "line 2 is no line of a table"),
    ],
    ids=[
        "other columns",
        "no column",
        "header only",
        "column twice",
        "cells",
        "stray quote",
        "open quote",
        "open quote of two columns",
        "quote inside of two columns",
        "no comma",
        "token",
        "no name",
        "latin-1",
        "long open quote of two columns",
        "long open quote",
    ],
)
def test_mistakes(content, message, tmp_path):
    with pytest.raises(types.UserError, match=message) as caught:
        _read(tmp_path, content)
    assert "\n" not in str(caught.value)


def test_flickr_token_file(tmp_path):
    content = (
        '1.jpg#0\tTwo people , outside .\n1.jpg#1\t"Hi" , said # 2\n1.jpg#2\ta\tb \n\n'
        "2 #7.jpg#0\tA dog .\r\n1.jpg#3\tLate .\n"
    )
    found = _read(tmp_path, content, "results_20130124.token")
    assert found.kind == "Flickr token"
    assert [row.image for row in found.rows] == ["1.jpg", "2 #7.jpg", "1.jpg"]
    assert _texts(found) == [
        ["Two people , outside .", '"Hi" , said # 2', "a\tb "],
        ["A dog ."],
        ["Late ."],
    ]


def test_karpathy_text_file_is_split_at_the_first_comma(tmp_path):
    content = (
        "image,caption\n"
        "1.jpg,A man, a dog, and a cat.\n"
        '1.jpg,"Stop, please" says a sign, twice.\n'
        '1.jpg,"Stop, please"\n'
        "1.jpg, plain \n"
        '1.jpg,"\n'
        '"\n'
        "2.jpg,\n"
        '"3,4.jpg",A, b\n'
    )
    found = _read(tmp_path, content, "flickr30k_test_karpathy.txt")
    assert [row.image for row in found.rows] == ["1.jpg", "2.jpg", "3,4.jpg"]
    of_first = ["A man, a dog, and a cat.", '"Stop, please" says a sign, twice.', "Stop, please"]
    assert _texts(found) == [[*of_first, " plain ", "\n"], [""], ["A, b"]]


def test_flickr_csv_with_lists_of_captions(tmp_path):
    body = [
        ['["Two men, ""x"".", "B\\u00e9."]'.replace('""', '\\"'), "[0, 1]", "test", "1.jpg", "0"],
        ["[a caption that begins so", "[2]", "train", "2.jpg", "1"],
    ]
    table = _table([["raw", "sentids", "split", "filename", "img_id"], *body], ",")
    found = _read(tmp_path, table, "flickr_annotations_30k.csv")
    assert list(found.rows) == [
        rows.Row("1.jpg", ['Two men, "x".', "Bé."], "000000000000", "test"),
        rows.Row("2.jpg", ["[a caption that begins so"], "000000000001", "train"),
    ]


def test_lines_of_one_picture_become_one_record(tmp_path):
    writing.touch(tmp_path, "1.jpg", "2.jpg")
    content = "filepath\ttitle\n1.jpg\ta\n1.jpg\tb\n2.jpg\tc\n1.jpg\td\n"
    found = lists.read(writing.write(tmp_path, content))
    assert writing.captions(found) == [["a", "b"], ["c"], ["d"]]
    assert [record.id for record in found.records] == ["1.jpg", "2.jpg", "1.jpg#2"]


def test_an_empty_cell_is_an_empty_caption(tmp_path):
    writing.touch(tmp_path, "1.jpg", "2.jpg")
    path = writing.write(tmp_path, "image,caption,x\n1.jpg,,1\n2.jpg,c,1\n")
    with pytest.raises(types.UserError, match=r"1 of 2 rows have a caption that is blank"):
        lists.read(path)
