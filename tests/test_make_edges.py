"""tools/make_edges.py as people run it: lists, what is drawn, what is kept, and mistakes."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hnclip_jax import groups
from hnclip_jax.data import images, inputs, lists, structure, tokenizer
from tests.data import drawing
from tools import make_edges

pytest.importorskip("cv2", reason="OpenCV is not installed")

REPOSITORY = pathlib.Path(__file__).parent.parent
CAPTION = "An orange square hangs in the middle. A tall tree stands."


@pytest.fixture
def folder(tmp_path):
    """A list with two pictures: a square from 20 to 43 on grey, and a step from 100 to 130."""
    (tmp_path / "pictures").mkdir()
    square = Image.new("RGB", (64, 64), (60, 60, 60))
    ImageDraw.Draw(square).rectangle((20, 20, 43, 43), fill=(250, 120, 0))
    square.save(tmp_path / "pictures/square.png")
    step = np.full((40, 50, 3), 100, np.uint8)
    step[:, 25:] = 130
    Image.fromarray(step).save(tmp_path / "pictures/step.png")
    rows = [
        {"filename": "pictures/square.png", "caption": CAPTION},
        {"filename": "pictures/step.png", "caption": "A step between two greys."},
    ]
    (tmp_path / "list.json").write_text(json.dumps(rows))
    return tmp_path


def run(folder, capsys, *words, **flags):
    """Runs the tool on the folder's list; returns its exit code and what it wrote for people."""
    flags = {"data": "list.json", "edges": "edges", "out": "new.json", **flags}
    paths = {"data", "edges", "out", "image_root"}
    given = [
        f"--{name}={folder / value if name in paths else value}" for name, value in flags.items()
    ]
    code = make_edges.main(["make_edges.py", *given, *words])
    return code, capsys.readouterr().err


def rows(folder, name="new.json"):
    return json.loads((folder / name).read_text())


def edges(folder, number=0):
    row = rows(folder)[number]
    with Image.open(folder / row["original_filename_structure"]) as image:
        assert image.mode == "L"
        return np.asarray(image)


def content(folder):
    return {path: (path.read_bytes(), path.stat().st_ino) for path in folder.rglob("*.png")}


def test_as_a_user_runs_it(folder):
    ran = subprocess.run(
        [
            sys.executable,
            REPOSITORY / "tools/make_edges.py",
            "--data=list.json",
            "--edges=maps/canny",
            "--out=new.json",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "2 edge maps drawn, 0 kept" in ran.stderr
    assert rows(folder)[0] == {
        "original_filename": "pictures/square.png",
        "original_caption": CAPTION,
        "original_filename_structure": "maps/canny/pictures/square.png.png",
        "structure": {
            "kind": "canny",
            "low": 100.0,
            "high": 200.0,
            "blur": 5,
            "exif_orientation": "ignore",
            "transparency": "white",
            "opencv": make_edges.cv2.__version__,
        },
    }


def test_canny_draws_thin_lines_at_the_border(folder, capsys):
    assert run(folder, capsys)[0] == 0
    found = edges(folder)
    assert found.shape == (64, 64)
    assert set(np.unique(found)) == {0, 255}
    # Along a row or a column through the square: one line at each side of it.
    for line in (found[32], found[:, 32]):
        at = np.flatnonzero(line)
        assert len(at) == 2
        assert abs(at[0] - 19.5) <= 1.5
        assert abs(at[1] - 43.5) <= 1.5
    assert not found[:17].any()
    assert not found[24:40, 24:40].any()
    # The step is too faint for 100 and 200, but not for 20 and 40.
    assert not edges(folder, 1).any()
    assert run(folder, capsys, low=20, high=40)[0] == 0
    assert np.flatnonzero(edges(folder, 1)[20]).size == 1


def test_soft_is_how_steep_the_picture_is(folder, capsys):
    assert run(folder, capsys, kind="soft", blur=1, low=60, high=180)[0] == 0
    # Sobel's filter makes 4 x 30 = 120 of the step, in the columns beside it: half of 60 to 180.
    found = edges(folder, 1)
    assert np.unique(found[:, 24:26]).tolist() == [128]
    assert not np.delete(found, [24, 25], axis=1).any()
    assert run(folder, capsys, kind="soft", low=0, high=180)[0] == 0
    blurred = edges(folder, 1)[20]
    assert 0 < blurred[22] < blurred[24] < 170


def test_goes_into_training_with_segments(folder, capsys):
    pytest.importorskip("instant_clip_tokenizer", reason="no wheel for this Python")
    segment = {
        "similarity_score": 2.5,
        "filename": "parts/1.png",
        "caption": "A tall tree stands",
        "bbox_coordinates": {"x1": 16, "y1": 16, "x2": 48, "y2": 48, "width": 32, "height": 32},
    }
    old = {"original_filename": "pictures/square.png", "original_caption": CAPTION}
    (folder / "list.json").write_text(json.dumps([old | {"segment": [segment]}, old]))
    code, said = run(folder, capsys)
    assert code == 0
    assert "1 edge maps drawn, 0 kept" in said
    assert "2 rows" in said
    assert "not found" not in said
    assert rows(folder)[0]["segment"] == [segment]
    assert "segment" not in rows(folder)[1]
    context = inputs.Context(
        pictures=lists.read(folder / "new.json"),
        image_size=32,
        patch_size=8,
        context_length=77,
        tokenize=tokenizer.default(),
        options=images.DEFAULT,
        method=groups.MethodGroup(name="structxlip"),
    )
    found = structure.build(context)(0)
    assert found["has_edge"]
    assert found["edge"].max() > 100
    assert found["has_local"].tolist() == [True, False]
    np.testing.assert_array_equal(found["local_edge"][0][:, :, 0], edges(folder)[16:48, 16:48])


def test_captions_and_ids_stay(folder, capsys):
    old = [
        {"id": 7, "original_filename": "pictures/step.png", "original_caption": ["a", "b"]},
        {"image": "pictures/square.png", "caption": "c", "negative_caption": "d"},
    ]
    (folder / "list.json").write_text(json.dumps(old))
    assert run(folder, capsys)[0] == 0
    before, after = (lists.read(folder / name).records for name in ("list.json", "new.json"))
    for one, other in zip(before, after, strict=True):
        assert (one.id, one.image, one.captions) == (other.id, other.image, other.captions)
    assert after[1].extra["negative_caption"] == "d"


def test_maps_that_are_there_are_kept(folder, capsys):
    assert run(folder, capsys)[0] == 0
    first, listed = content(folder / "edges"), (folder / "new.json").read_bytes()
    assert "0 edge maps drawn, 2 kept" in run(folder, capsys)[1]
    assert content(folder / "edges") == first
    assert (folder / "new.json").read_bytes() == listed
    (folder / "edges/pictures/step.png.png").unlink()
    assert "1 edge maps drawn, 1 kept" in run(folder, capsys)[1]
    # Another drawing, another picture, or a file of something else: drawn anew.
    assert "2 edge maps drawn, 0 kept" in run(folder, capsys, high=250)[1]
    assert rows(folder)[0]["structure"]["high"] == 250
    drawing.noise(30, 30).save(folder / "pictures/step.png")
    assert "1 edge maps drawn, 1 kept" in run(folder, capsys, high=250)[1]
    assert edges(folder, 1).shape == (30, 30)
    (folder / "edges/pictures/step.png.png").write_bytes(b"half")
    assert "1 edge maps drawn, 1 kept" in run(folder, capsys, high=250)[1]
    assert edges(folder, 1).shape == (30, 30)


def test_a_map_is_never_seen_half_written(folder, capsys, monkeypatch):
    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    code, said = run(folder, capsys)
    assert code == 2
    assert "No space left on device" in said
    assert not content(folder / "edges")
    assert not (folder / "new.json").exists()


def test_pictures_above_the_list_and_of_one_name(folder, capsys):
    (folder / "a/b").mkdir(parents=True)
    for name in ("a/step.png", "a/b/step.png"):
        drawing.noise(20, 20).save(folder / name)
    names = ["../step.png", "step.png", "../../pictures/step.png"]
    old = [{"filename": name, "caption": name} for name in names]
    (folder / "a/b/list.json").write_text(json.dumps(old))
    assert run(folder, capsys, data="a/b/list.json")[0] == 0
    found = lists.read(folder / "new.json")
    paths = {found.locate(row.extra["original_filename_structure"]) for row in found.records}
    assert len(paths) == 3
    assert all(path.startswith(f"{folder}/edges/") for path in paths)
    assert [os.path.relpath(row.image, folder) for row in found.records] == [
        "a/step.png", "a/b/step.png", "pictures/step.png",
    ]  # fmt: skip


def test_segments_that_the_new_list_does_not_reach(folder, capsys):
    (folder / "parts").mkdir()
    drawing.noise(9, 9).save(folder / "parts/1.png")
    old = {
        "filename": "pictures/step.png",
        "caption": "a",
        "segment": [{"filename": "parts/1.png"}],
    }
    (folder / "list.json").write_text(json.dumps([old]))
    code, said = run(folder, capsys, out="deep/er/new.json")
    assert code == 0
    assert "1 files of segments are not found from" in said
    assert "not found" not in run(folder, capsys, out="deep/er/new.json", image_root=".")[1]


def test_broken_pictures_stop_the_list_but_not_the_others(folder, capsys):
    (folder / "pictures/square.png").write_bytes(b"no picture")
    code, said = run(folder, capsys)
    assert code == 2
    assert "1 of 2 pictures have no edge map now" in said
    assert "square.png" in said
    assert not (folder / "new.json").exists()
    assert [path.name for path in content(folder / "edges")] == ["step.png.png"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"data": "none.json"}, "none.json"),
        ({"out": "list.json"}, "is a folder or the list itself"),
        ({"out": "pictures"}, "is a folder or the list itself"),
        ({"kind": "hed"}, "canny|soft"),
        ({"low": 300}, "--low=300 and --high=200"),
        ({"low": -1}, "--low=-1"),
        ({"blur": 4}, "--blur=4, but an odd"),
        ({"blur": "x"}, "blur"),
        ({"treshold": 3}, "treshold"),
        ({"transparency": "nocolour"}, "nocolour"),
        ({"max_pixels": 100}, "the limit that max_pixels sets"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(folder, capsys, flags, message):
    code, said = run(folder, capsys, **flags)
    assert code == 2
    last = said.strip().splitlines()[-1]
    assert last.startswith("make_edges: ")
    assert message in last
    assert "Traceback" not in said
    assert not (folder / "new.json").exists()


def test_what_is_missing_is_named(folder, capsys, monkeypatch):
    assert run(folder, capsys, "list.json")[1] == (
        "make_edges: 'list.json' is no flag; write --data=list.json for a list\n"
    )
    assert make_edges.main(["make_edges.py"]) == 2
    assert "--data is missing" in capsys.readouterr().err
    monkeypatch.setattr(make_edges, "cv2", None)
    assert "pip install 'hnclip_jax[edges]'" in run(folder, capsys)[1]


def test_help_has_every_flag(capsys):
    assert make_edges.main(["make_edges.py", "--help"]) == 0
    said = capsys.readouterr().out
    for name in ("data", "edges", "out", "kind", "low", "high", "blur", "image_root"):
        assert f"--{name}" in said
