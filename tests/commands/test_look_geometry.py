"""`hnclip look geometry`: from weights and lists, or embeddings, to picture, numbers and words."""

import csv
import itertools
import json
import pathlib
import re

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import pretrained
from hnclip_jax.data import lists

FILES = ("geometry.png", "geometry.json", "geometry.csv")


@pytest.fixture
def look(hnclip, tmp_path):
    """Runs the action, which has to succeed: words -> (what it printed, its JSON file)."""

    def run(*words):
        out = tmp_path / "figures"
        ran = hnclip("look", "geometry", f"--out={out}", *words)
        assert ran.code == 0, ran.err
        assert f"wrote {', '.join(str(out / name) for name in FILES)}" in ran.err
        return ran, json.loads((out / "geometry.json").read_text())

    return run


@pytest.fixture
def several(own_set):
    """The test list, two captions of one picture among them, and a text that is there twice."""
    path = own_set.parent / "test.json"
    rows = json.loads(path.read_text())
    rows[2]["caption"] = [rows[2]["caption"], "another text"]
    rows[5]["caption"] = rows[6]["caption"]
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture
def embedded(hnclip, weights, several, tmp_path):
    """Folder of the embeddings of that list."""
    out = tmp_path / "e"
    ran = hnclip("embed", f"--weights={weights[2]}", f"--data={several}", f"--out={out}")
    assert ran.code == 0, ran.err
    return out


def test_the_numbers_are_those_of_the_embeddings(look, weights, several, embedded, tmp_path):
    ran, found = look(f"--weights={weights[2]}", f"--data={several}", "--batch=5", "--seed=4")
    (told,) = found["series"]
    text = np.load(embedded / "text.npy").astype(np.float64)
    ids = lists.pair_ids(lists.read(several).records)
    pairs = [
        (float(text[a] @ text[b]), a, b)
        for a, b in itertools.combinations(range(len(text)), 2)
        if ids[a] != ids[b]
    ]
    cosines = np.array([cosine for cosine, _, _ in pairs])
    hardest = [max(c for c, *of in pairs if one in of) for one in range(len(text))]
    geometry = told["geometry"]
    assert (geometry["captions"], geometry["pairs"]) == (len(text), len(pairs))
    assert geometry["pairs_left_out"] == 2
    assert geometry["mean"] == pytest.approx(cosines.mean(), abs=1e-6)
    assert geometry["std"] == pytest.approx(cosines.std(), abs=1e-6)
    assert geometry["hardest_mean"] == pytest.approx(np.mean(hardest), abs=1e-6)
    assert sum(geometry["counts"]) == len(pairs)
    scale = float(weights[0].scale(weights[1]))
    boost = told["boost"]
    assert (boost["scale"], boost["gamma"]) == (pytest.approx(scale), 0.5)
    assert boost["constant"] == pytest.approx(scale * 0.5 * cosines.mean(), rel=1e-5)
    assert boost["adaptive"] == pytest.approx(scale * 0.5 * cosines.std(), rel=1e-4)
    assert (boost["solved"]["batches"], boost["solved"]["pairs"]) == (1, len(text))
    assert len(told["batch"]["rows"]) == 5
    assert found["settings"] == {"seed": 4, "batch": 5, "batch_pairs": 128}
    assert told["list"] == str(several)
    assert re.fullmatch("[0-9a-f]{64}", told["list_sha256"])
    assert told["text"] in ran.out
    with (tmp_path / "figures" / "geometry.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["pairs"]) for row in rows] == geometry["counts"]
    with Image.open(tmp_path / "figures" / "geometry.png") as image:
        assert np.asarray(image.convert("L")).std() > 10
    assert f"comparing captions, {told['label']}: " in ran.err


def test_embeddings_give_the_same(look, weights, several, embedded):
    _, direct = look(f"--weights={weights[2]}", f"--data={several}")
    _, kept = look(f"--embeddings={embedded}")
    (direct,), (kept,) = direct["series"], kept["series"]
    assert kept["geometry"] == direct["geometry"]
    assert kept["batch"] == direct["batch"]
    assert kept["boost"] == direct["boost"]
    assert kept["list_sha256"] == direct["list_sha256"]


def test_embeddings_that_do_not_say_s(hnclip, embedded, tmp_path):
    about = embedded / "embeddings.json"
    about.write_text(about.read_text().replace('"scale"', '"other"'))
    ran = hnclip("look", "geometry", f"--embeddings={embedded}", f"--out={tmp_path / 'f'}")
    line = ran.one_line("look")
    assert "do not say s = exp(logit_scale) of their weights; give it by --scale" in line
    assert not (tmp_path / "f").exists()


def test_flags_set_what_is_looked_at(look, embedded):
    words = [f"--embeddings={embedded}", "--scale=20", "--gamma=0.25", "--batch_pairs=4"]
    _, found = look(*words)
    boost = found["series"][0]["boost"]
    assert (boost["scale"], boost["gamma"]) == (20, 0.25)
    assert boost["constant"] == pytest.approx(5 * found["series"][0]["geometry"]["mean"])
    assert boost["solved"]["pairs"] == 4
    assert boost["solved"]["batches"] > 1
    _, other = look(*words, "--seed=1")
    assert other["series"][0]["boost"]["solved"]["info_nce"] != boost["solved"]["info_nce"]
    assert other["series"][0]["batch"]["rows"] != found["series"][0]["batch"]["rows"]


def test_captions_only(look, weights, several):
    # A file that is no picture: nothing opens it.
    pathlib.Path(lists.read(several).records[0].image).write_text("spoilt")
    ran, found = look(f"--weights={weights[2]}", f"--data={several}", "--captions_only")
    assert found["series"][0]["boost"]["solved"] is None
    assert "How many rows InfoNCE has solved is not known without pictures" in ran.out


def test_embeddings_with_captions_only(look, embedded):
    _, found = look(f"--embeddings={embedded}", "--scale=20", "--captions_only")
    assert found["series"][0]["boost"]["solved"] is None


def test_before_and_after_on_two_lists(look, weights, several, tmp_path):
    model, params, path = weights
    params = {**params, "logit_scale": params["logit_scale"] + 1}
    after = pretrained.save(tmp_path / "after", model, params)
    data = f"--data={several},{several.with_name('train.json')}"
    ran, found = look(f"--weights={path},{after}", data, "--captions_only")
    labels = [one["label"] for one in found["series"]]
    assert len(set(labels)) == 4
    assert [label.split("/")[-1] for label in labels] == ["test", "train"] * 2
    scales = [one["boost"]["scale"] for one in found["series"]]
    assert scales[2:] == pytest.approx([np.e * scale for scale in scales[:2]], rel=1e-5)
    # In the order of the output, with an empty line between.
    told = ran.out.split("\n\n")
    assert [part.splitlines()[0] for part in told] == labels


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["word"], "does not understand 'word'"),
        (["--weights=a,b", "--data=1,2,3,4"], "8 lists by weights are too many"),
        (["--embeddings=1,2,3,4,5,6,7,8"], "8 lists by weights are too many"),
        (["--weights=a"], "needs both, weights and --data; for example: hnclip look geometry"),
        ([], "needs weights and --data, or --embeddings; for example: hnclip look geometry"),
        (["--name=a/b"], "--name=a/b is no name of a file"),
        (["--weights=a", "--data=d", "--batch=1"], "batch"),
        (["--weights=a", "--data=d", "--batch_pairs=1"], "batch_pairs"),
        (["--weights=a", "--data=d", "--scale=-1"], "scale"),
    ],
)
def test_a_mistake_is_one_line(hnclip, words, part):
    assert part in hnclip("look", "geometry", *words).one_line("look")
