"""tools/make_segments.py: the list that it makes, its resumption, and what it refuses."""

import contextlib
import io
import json

import jax
import numpy as np
import pytest

from hnclip_jax import groups, pretrained
from hnclip_jax.data import images, inputs, lists, proposals, regions, sentences, tokenizer
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from tests.data import drawing, writing
from tools import make_segments

LONG = "It says " + "a b " * 60
CAPTIONS = ("A red kite. It hangs in a tree.", "A wall.", f"A dog. {LONG}. It runs.", "- ...")
SIDES = ((60, 40), (30, 50), (48, 48), (20, 20))


@pytest.fixture(scope="module")
def weights(tmp_path_factory, small_config):
    """A small model with random weights and a scale of its own: path, model, parameters.

    With these, sentences of the list go to regions of every kind.
    """
    model = dual_encoder.create(small_config)
    params = {**jax.jit(model.init)(jax.random.key(1)), "logit_scale": np.float32(2.0)}
    path = pretrained.save(tmp_path_factory.mktemp("weights") / "w", model, params)
    return path, model, params


@pytest.fixture
def folder(tmp_path):
    """A list of four drawn pictures, the third with two captions."""
    rows = []
    for number, (caption, sides) in enumerate(zip(CAPTIONS, SIDES, strict=True)):
        # The last name is no UTF-8.
        name = f"pictures/größe {number}.png" if number < 3 else "pictures/\udcff.png"
        (tmp_path / "pictures").mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(drawing.file(drawing.noise(*sides, seed=number), "PNG"))
        captions = [caption, "A dog. It sleeps."] if number == 2 else caption
        rows.append({"filename": name, "caption": captions})
    rows[0] |= {"negative_caption": "A blue kite.", "original_filename_structure": "edges/0.png"}
    rows[1] |= {"id": "seven", "segment": [{"caption": "old", "similarity_score": 1}]}
    writing.touch(tmp_path, "edges/0.png")
    writing.write(tmp_path, rows)
    return tmp_path


@pytest.fixture
def run(folder, weights, parsed_flags, monkeypatch):
    """Runs the tool on the list, on one device: flags -> its exit code and what it said."""
    create = mesh_lib.create
    monkeypatch.setattr(mesh_lib, "create", lambda group: create(group, jax.devices()[:1]))

    def call(*flags, **changed):
        given = {"data": folder / "list.json", "weights": weights[0], "out": folder / "out.json"}
        given = {name: value for name, value in {**given, **changed}.items() if value}
        words = [*(f"--{name}={value}" for name, value in given.items()), *flags]
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = make_segments.main(["make_segments", *words])
        return code, err.getvalue()

    return call


def _made(folder):
    return json.loads((folder / "out.json").read_text())


def _expected(folder, weights, keep_whole=False):
    """Returns sentence -> (score, box, source), each crop by itself."""
    _, model, params = weights
    image, text = jax.jit(model.encode_image), jax.jit(model.encode_text)
    found = {}
    for record in lists.read(folder / "list.json").records:
        sides = images.decode(record.image).size
        candidates = [proposals.whole(sides), *proposals.fixed(sides, 3)]
        parts = (regions.CutOut(record.image, one.box) for one in candidates)
        crops = image(params, np.stack([part.pixels(24) for part in parts]))
        for sentence in {t for caption in record.captions for t in sentences.split(caption)}:
            said = text(params, tokenizer.tokenize([sentence], 77))[0]
            scores = [float(np.exp(2.0) * np.dot(crop, said)) for crop in crops]
            best = int(np.argmax(scores))
            if best or keep_whole:
                found[record.index, sentence] = (scores[best], *candidates[best])
    return found


def _found(made):
    names = ("x1", "y1", "x2", "y2")
    return {
        (number, one["caption"]): (
            one["similarity_score"],
            tuple(one["bbox_coordinates"][name] for name in names),
            one["source"],
        )
        for number, row in enumerate(made)
        for one in row["segment"]
    }


@pytest.mark.parametrize("keep_whole", [False, True])
def test_each_sentence_gets_the_region_with_the_highest_score(keep_whole, folder, weights, run):
    code, said = run(*["--keep_whole"] * keep_whole, batch_size=8)
    assert code == 0, said
    found, expected = _found(_made(folder)), _expected(folder, weights, keep_whole)
    assert found.keys() == expected.keys()
    for key, (score, box, source) in expected.items():
        assert found[key][1:] == (tuple(box), source), key
        assert found[key][0] == pytest.approx(score, abs=2e-4)
    kinds = {"quarter", "centre", "grid", *["whole"] * keep_whole}
    assert {source for _, _, source in found.values()} == kinds
    line = said.splitlines()[-1]
    assert f"4 pictures with {len(found)} segments of 7 sentences; " in line
    assert f"{7 - len(found)} fit the whole picture best, 1 were cut to 77 tokens" in line


def test_the_list_is_read_like_any_other_and_its_segments_too(folder, run):
    assert run()[0] == 0
    made = _made(folder)
    assert made[0]["original_filename"] == "pictures/größe 0.png"
    assert made[2]["original_caption"] == [CAPTIONS[2], "A dog. It sleeps."]
    assert made[3]["segment"] == []
    box = made[0]["segment"][0]["bbox_coordinates"]
    assert box["width"] == box["x2"] - box["x1"]
    assert box["height"] == box["y2"] - box["y1"]
    before, after = lists.read(folder / "list.json"), lists.read(folder / "out.json")
    for old, new in zip(before.records, after.records, strict=True):
        assert (old.image, old.captions, old.id) == (new.image, new.captions, new.id)
    assert after.records[0].extra["negative_caption"] == "A blue kite."
    assert after.records[0].extra["original_filename_structure"] == "edges/0.png"
    context = inputs.Context(
        after, 24, 8, 77, tokenizer.default(), images.DEFAULT, groups.MethodGroup()
    )
    load = inputs.INPUTS["segment"](context)
    names = ("has_crop", "patch_mask", "word_mask_of_crop")
    assert [load(0)[name].any() for name in names] == [True] * 3
    assert not load(4)["has_crop"]
    assert " 0 sentences are not in the caption" in load.describe()


def test_a_list_elsewhere_names_pictures_by_whole_paths(folder, run, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    assert run(out=other / "out.json")[0] == 0
    record = lists.read(other / "out.json").records[0]
    assert record.image == str(folder / "pictures/größe 0.png")
    assert record.extra["original_filename_structure"] == str(folder / "edges/0.png")


def test_given_boxes(folder, run):
    images_ = [{"id": n, "file_name": f"größe {n}.png"} for n in range(3)]
    notes = [
        {"image_id": 0, "bbox": [5.5, 5, 20, 20]},
        {"image_id": 1, "bbox": [0, 0, 1, 1]},
        {"image_id": 2, "bbox": [-5, 10, 30, 99]},  # reaches beyond the picture
    ]
    boxes = writing.write(folder, {"images": images_, "annotations": notes}, "boxes.json")
    code, said = run("--keep_whole", boxes=boxes)
    assert code == 0, said
    found = {
        (number, *box, source) for (number, _), (_, box, source) in _found(_made(folder)).items()
    }
    # Of the second picture the box is too small.
    assert {one for one in found if one[0] == 0} <= {
        (0, 5, 5, 26, 25, "box"),
        (0, 0, 0, 60, 40, "whole"),
    }
    assert {one[-1] for one in found if one[0] == 1} <= {"quarter", "centre", "grid", "whole"}
    assert {one for one in found if one[0] == 2} <= {
        (2, 0, 10, 25, 48, "box"),
        (2, 0, 0, 48, 48, "whole"),
    }
    assert "box" in {one[-1] for one in found}
    assert said.splitlines()[-1].endswith("; 1 pictures have no box that fits, so fixed regions")


@pytest.fixture
def decoded(monkeypatch):
    """Counts pictures, and stops the tool as Ctrl-C does when `stop_at` have been decoded."""
    seen = []
    decode = images.decode

    def count(reference, options=images.DEFAULT):
        if len(seen) == count.stop_at:
            raise count.error
        seen.append(reference)
        return decode(reference, options)

    count.stop_at, count.error, count.seen = -1, KeyboardInterrupt(), seen
    monkeypatch.setattr(images, "decode", count)
    monkeypatch.setattr(make_segments, "_AHEAD", 0)
    monkeypatch.setattr(make_segments, "_CHUNK", 0)
    return count


def test_a_run_that_was_stopped_goes_on(folder, run, decoded):
    assert run(out=folder / "straight.json")[0] == 0
    assert len(decoded.seen) == 3  # the fourth has no sentence
    decoded.seen.clear()
    decoded.stop_at = 2
    code, said = run()
    assert code == 2
    assert said.splitlines()[-1] == "make_segments: stopped; the same command goes on where it was"
    part = folder / "out.json.part"
    assert not (folder / "out.json").exists()
    assert len(part.read_text().splitlines()) == 2
    with part.open("a") as file:
        file.write('{"key": "torn')
    decoded.stop_at = -1
    code, said = run()
    assert code == 0
    assert "goes on: 2 of 4 pictures are done" in said
    assert len(decoded.seen) == 3
    assert (folder / "out.json").read_bytes() == (folder / "straight.json").read_bytes()
    assert {path.name for path in folder.iterdir()} == {
        *("list.json", "pictures", "edges", "out.json", "straight.json"),
    }


def test_what_an_earlier_run_did_counts_only_for_the_same_content(folder, run, decoded):
    decoded.stop_at = 2
    run("--keep_whole")
    left = (folder / "out.json.part").read_text()
    rows = json.loads((folder / "list.json").read_text())
    rows[0]["caption"] = "A red kite. It flies."
    writing.write(folder, rows)
    decoded.stop_at = -1
    # With other settings all is done anew; with the same, what has changed.
    for flags, count in ({"grid": 4}, 3), ({}, 2):
        (folder / "out.json.part").write_text(left)
        decoded.seen.clear()
        assert run("--keep_whole", "--overwrite", **flags)[0] == 0
        assert len(decoded.seen) == count
        assert "größe 0" in decoded.seen[0]
    assert [one["caption"] for one in _made(folder)[0]["segment"]] == ["A red kite", "It flies"]


MISTAKES = {
    "no list": ({"data": None}, (), "needs --data, --weights and --out; for example: --data="),
    "no weights": ({"weights": None}, (), "needs --data, --weights and --out"),
    "unknown flag": ({}, ("--gird=3",), "Unknown command line flag 'gird'. Did you mean: grid"),
    "grid": ({"grid": 11}, (), "--grid=11"),
    "area": ({"least_area": 2}, (), "--least_area=2"),
    "word": ({}, ("list.json",), "does not understand 'list.json'"),
    "list": ({"data": "none.json"}, (), "No such file"),
    "weights": ({"weights": "none.pt"}, (), "none.pt"),
    "folder": ({"out": "/none/out.json"}, (), "--out=/none/out.json is a folder, or in none"),
    "boxes": ({"boxes": "none.json"}, (), "cannot read list"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line(case, run, folder):
    changed, words, reason = MISTAKES[case]
    code, said = run(*words, **changed)
    assert code == 2
    *before, last = said.splitlines()
    assert last.startswith("make_segments: ")
    assert reason in last
    assert not any(line.startswith(("Traceback", "make_segments")) for line in before)
    assert not (folder / "out.json").exists()


def test_lists_that_are_there_stay(run, folder):
    for name in ("list.json", "out.json"):
        (folder / "out.json").write_text("[]")
        code, said = run(out=folder / name)
        assert (code, (folder / "out.json").read_text()) == (2, "[]")
        assert f"already there: {folder / name}; choose another --out, or say --overwrite" in said
    code, said = run("--overwrite", out=folder / "list.json")
    assert code == 2
    assert "is the list that is read" in said
    assert run("--overwrite")[0] == 0
    assert len(_made(folder)) == 4


def test_pictures_that_do_not_fit(run, folder):
    content = {"image": {"file_name": "x.jpg"}, "annotations": [{"bbox": [0, 0, 1, 1]}]}
    code, said = run(boxes=writing.write(folder, content, "boxes.json"))
    assert code == 2
    assert "none of the 4 pictures" in said.splitlines()[-1]
    assert "'x.jpg'" in said.splitlines()[-1]
    (folder / "pictures/größe 2.png").write_bytes(b"no picture")
    code, said = run()
    assert code == 2
    assert "cannot decode picture" in said.splitlines()[-1]
    assert "größe 2.png" in said.splitlines()[-1]


def test_help(capsys):
    assert make_segments.main(["make_segments", "--help"]) == 0
    said = capsys.readouterr().out
    assert "--out=segments.json" in said
    assert "keep_whole: sentences" in said
