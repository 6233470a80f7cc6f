"""`hnclip look gradients`: files, what it prints, and mistakes in one line."""

import csv
import json

import pytest
from PIL import Image

from tests import fake_runs


def lines(steps, zero=()):
    return [
        {
            "step": step,
            "gradients/norm_info_nce": 0.0 if step in zero else 0.5,
            "gradients/norm_global": 1.0 + step,
            "gradients/ratio": "inf" if step in zero else 2.0 + 2 * step,
            "gradients/cosine": "nan" if step in zero else 0.25,
            "gradients/solved": 0.75,
        }
        for step in steps
    ]


@pytest.fixture
def runs(tmp_path):
    """Four run folders: two lists by two shares of the data."""
    found = []
    for name in ("docci", "dci"):
        for share in (0.5, 1.0):
            changes = {"data__train": f"{name}/train.json", "data__fraction": share}
            path = tmp_path / f"{name}_{share}"
            steps = range(5, int(40 * share) + 1, 5)
            found.append(fake_runs.write(path, lines(steps, zero=(10,)), (steps[-1],), **changes))
    return found


def test_a_picture_with_its_numbers_and_medians_as_text(runs, hnclip, tmp_path):
    out = tmp_path / "pictures"
    ran = hnclip("look", "gradients", f"{runs[1]}=DOCCI", runs[0], f"--out={out}", "--window=10")
    assert ran.code == 0, ran.err
    assert ran.err.splitlines()[-1] == f"wrote {out}/gradients.png, {out}/gradients.json, " + str(
        out / "gradients.csv"
    )
    assert "DOCCI: 8 measurements, medians:" in ran.out
    assert "1 zero of 8" in ran.out
    with Image.open(out / "gradients.png") as image:
        assert image.size == (int(7.4 * 150), 7 * 150)
    content = json.loads((out / "gradients.json").read_text())
    assert [run["label"] for run in content["runs"]] == ["DOCCI", "docci_0.5"]
    assert [run["window_steps"] for run in content["runs"]] == [10, 10]
    norm = content["runs"][0]["series"]["gradients/norm_global"]
    assert norm["values"] == [1.0 + step for step in range(5, 41, 5)]
    with (out / "gradients.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * (8 + 4)
    assert rows[9]["value"] == str(1.0 + 10)
    assert {row["value"] for row in rows if row["metric"] == "gradients/ratio"} >= {"inf", "12.0"}


def test_a_grid(runs, hnclip, tmp_path):
    ran = hnclip("look", "gradients", *runs, "--grid", f"--out={tmp_path}", "--name=grid")
    assert ran.code == 0, ran.err
    with Image.open(tmp_path / "grid.png") as image:
        assert image.size == (int(7.4 * 150), 13 * 150)
    content = json.loads((tmp_path / "grid.json").read_text())
    assert [(run["data"], run["fraction"]) for run in content["runs"]] == [
        ("docci/train.json", 0.5), ("docci/train.json", 1.0),
        ("dci/train.json", 0.5), ("dci/train.json", 1.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "needs run folders; for example: hnclip look gradients"),
        (("nowhere",), "nowhere is no run that can be read"),
        (("{RUN}", "{RUN}"), "stands twice; give every run once"),
        (("{RUN}", "--name=a/b"), "--name=a/b is no name of a file"),
        (("{RUN}", "--window=-1"), "window"),
        (
            ("{RUN}", "{OLD}"),
            "old holds no gradients/norm_info_nce; train with --config.log.gradients",
        ),
        (
            ("{RUN}", "{SEED}", "--grid"),
            "docci_0.5 and seed both trained on 50 % of docci/train.json",
        ),
        (("{RUN}", "--out={FILE}"), "cannot write to"),
    ],
)
def test_mistakes_are_one_line(words, message, runs, hnclip, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    old = fake_runs.write(tmp_path / "old", [{"step": 1, "train/loss": 1.0}])
    changes = {"data__train": "docci/train.json", "data__fraction": 0.5}
    seed = fake_runs.write(tmp_path / "seed", lines(range(5, 21, 5)), **changes)
    known = {"RUN": runs[0], "OLD": old, "SEED": seed, "FILE": file}
    words = [word.format(**known) for word in words]
    if not any(word.startswith("--out") for word in words):
        words.append(f"--out={tmp_path / 'out'}")
    ran = hnclip("look", "gradients", *words)
    assert message in ran.one_line("look")
    assert not (tmp_path / "out").exists()


def test_help_has_an_example(hnclip):
    ran = hnclip("look", "gradients", "--help")
    assert ran.code == 0
    assert "hnclip look gradients runs/plain=InfoNCE" in ran.out
    assert "--window" in ran.out
