"""Pages: three files of one name, whole or not at all."""

import csv
import json
import math
import sys

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.analysis import page


@pytest.fixture
def drawn():
    figure, axes = page.page(4, 3)
    axes.plot([0, 1], [0, 1])
    return figure


def test_picture_numbers_and_table_lie_beside_each_other(drawn, tmp_path):
    table = [{"a": 1, "b": 2.5}, {"a": 3, "c": "x, y"}]
    paths = page.write(tmp_path / "new" / "folder", "name", drawn, {"a": 1}, table)
    assert [path.name for path in paths] == ["name.png", "name.json", "name.csv"]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(p.name for p in paths)
    with Image.open(paths[0]) as image:
        assert image.size == (4 * 150, 3 * 150)
        assert np.asarray(image.convert("L")).min() < 128
    assert json.loads(paths[1].read_text()) == {"a": 1}
    with paths[2].open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"a": "1", "b": "2.5", "c": ""},
            {"a": "3", "b": "", "c": "x, y"},
        ]


def test_lines_need_few_colours_and_photos_all(tmp_path):
    figure, axes = page.page(4, 3)
    axes.imshow(np.random.default_rng(0).random((40, 40, 3)), interpolation="nearest")
    colours, sizes = {}, {}
    for photos in (False, True):
        path = page.write(tmp_path, f"{photos}", figure, {}, [], photos=photos)[0]
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        colours[photos], sizes[photos] = len(np.unique(pixels, axis=0)), path.stat().st_size
    assert colours[False] <= 256 < colours[True]
    assert sizes[False] < 0.7 * sizes[True]


def test_numbers_that_json_does_not_have_become_null(drawn, tmp_path):
    numbers = {
        "nan": math.nan,
        "deep": [{"inf": -math.inf}, (1.5, np.float32(2.5))],
        "array": np.array([1.0, np.nan]),
        3: True,
        "count": np.int64(7),
    }
    _, path, _ = page.write(tmp_path, "name", drawn, numbers, [])
    assert json.loads(path.read_text()) == {
        "nan": None,
        "deep": [{"inf": None}, [1.5, 2.5]],
        "array": [1.0, None],
        "3": True,
        "count": 7,
    }


def test_what_cannot_be_written_leaves_the_older_files(drawn, tmp_path):
    old = page.write(tmp_path, "name", drawn, {"a": 1}, [{"a": 1}])
    before = [path.read_bytes() for path in old]
    with pytest.raises(TypeError):
        page.write(tmp_path, "name", drawn, {"a": object()}, [])
    assert [path.read_bytes() for path in old] == before
    assert sorted(tmp_path.iterdir()) == sorted(old)


def test_a_folder_that_cannot_be_made_is_one_line(drawn, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(types.UserError, match="cannot write to"):
        page.write(tmp_path / "file", "name", drawn, {}, [])


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for call in (page.check, lambda: page.page(1, 1)):
        with pytest.raises(types.UserError, match=r"pip install 'hnclip_jax\[plots\]'"):
            call()
