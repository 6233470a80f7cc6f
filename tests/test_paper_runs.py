"""Run folders find their cells of the paper, and what is no cell says why."""

import csv
import dataclasses
import json
import re
import statistics

import pytest

from hnclip_jax import pretrained
from hnclip_jax.commands import run_folders
from tools import paper, paper_cells, paper_runs

CELLS = {cell.id: cell for cell in paper_cells.cells()}
SIZES = {"docci_goal": 5100, "dci_goal": 1999, "long_dci_hn": 7444, "urban1k": 1000}
# Batches of 128: 73 in DOCCI's 9,450 pairs, 42 in DCI's 5,445, 113 in the 14,579 paragraphs.


@pytest.fixture
def run(tmp_path):
    """Writes a run folder: (name, cell, settings, per epoch, results, last step) -> path."""

    def write(name, cell, per_epoch=73, results=None, last=None, weights=True, **changes):
        made = dataclasses.asdict(CELLS[cell].settings)
        for key, value in changes.items():
            group, field = key.split("__")
            made[group][field] = value
        path = tmp_path / name
        (path / "eval").mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(made))
        last = 10 * per_epoch if last is None else last
        lines = [json.dumps({"step": step, "train/loss": 1.0}) for step in (1, last)]
        (path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 9')
        if weights:
            (path / "weights").mkdir()
            (path / "weights" / pretrained.FILE_NAME).touch()
        if results is None:
            results = dict.fromkeys((per_epoch, last), (80.0, 70.0))
        for step, recall in results.items():
            result(path, f"step_{step:08d}", recall, CELLS[cell].benchmark, step=step)
        return path

    return write


def result(path, name, recall, benchmark, **protocol):
    size = SIZES.get(benchmark, 5000)
    held = {"benchmark": benchmark, "list": "x.json", "list_sha256": "a" * 64}
    held |= {"pictures": size, "captions": size, "context_length": 248, "image_size": 224}
    content = {
        "metrics": dict(zip(("t2i_r@1", "i2t_r@1"), recall, strict=True)),
        "protocol": {**held, "exif_orientation": "ignore", **protocol},
    }
    (path / "eval" / f"{name}.json").write_text(json.dumps(content))


def collect(*paths, checkpoint="last"):
    found, remarks = paper_runs.collect(map(run_folders.read, paths), checkpoint)
    return {row["id"]: row for row in paper_runs.rows(found)}, remarks


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_every_cell_finds_its_own_run(cell, run):
    fraction = cell.settings.data.fraction
    pairs = {"docci": 9450, "dci": 5445, "long_dci": 5445, "urban1k": 14579}[cell.train]
    path = run("named otherwise", cell.id, per_epoch=int(pairs * fraction) // 128)
    rows, remarks = collect(path)
    assert (list(rows), remarks) == ([cell.id], [])
    numbers = rows[cell.id]["metrics"]["i2t_r@1"]
    assert numbers["published"] == float(cell.published("i2t_r@1"))
    assert numbers["difference"] == pytest.approx(70 - numbers["published"])
    assert "deviation" not in numbers


@pytest.mark.parametrize(("recall", "marks"), [(99.5, "++"), (60.0, "--"), (86.0, "-~")])
def test_a_difference_is_better_or_worse_only_beyond_chance(recall, marks, run):
    path = run("r", "docci-hnclip", results={73: (1.0, 1.0), 730: (recall, recall)})
    metrics = collect(path)[0]["docci-hnclip"]["metrics"]
    assert "".join(numbers["verdict"] for numbers in metrics.values()) == marks


def test_seeds_become_a_mean_and_a_spread(run, capsys, tmp_path):
    recalls = [(88.0, 86.0), (88.4, 85.0), (88.7, 86.5)]
    paths = [
        run(f"r{n}", "docci-hnclip", results={73: (1.0, 1.0), 730: recall}, train__seed=42 + n)
        for n, recall in enumerate(recalls)
    ]
    row = collect(*paths)[0]["docci-hnclip"]
    numbers = row["metrics"]["t2i_r@1"]
    assert (row["seeds"], row["steps"]) == ([42, 43, 44], [730] * 3)
    assert numbers["mean"] == pytest.approx(88.3666667)
    assert numbers["difference"] == pytest.approx(88.3666667 - 88.25)
    assert (numbers["low"], numbers["high"], numbers["verdict"]) == (88.0, 88.7, "~")
    assert numbers["deviation"] == pytest.approx(statistics.stdev([88.0, 88.4, 88.7]))
    assert [*row["metrics"]] == ["t2i_r@1", "i2t_r@1"]

    paper.main(["paper", "collect", *map(str, paths), f"--out={tmp_path}/out.json"])
    text = capsys.readouterr().out
    assert "42 43 44" in text
    assert "88.37 (88.00 to 88.70) / 88.25, +0.12~" in text
    assert "85.83 (85.00 to 86.50) / 86.24, -0.41~" in text
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["cells"] == [row]
    assert (written["checkpoint"], written["not_counted"]) == ("last", [])

    paper.main(["paper", "collect", *map(str, paths), f"--out={tmp_path}/out.csv"])
    lines = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [line["metric"] for line in lines] == ["t2i_r@1", "i2t_r@1"]
    assert (lines[0]["seeds"], lines[0]["published"]) == ("42 43 44", "88.25")


def test_one_run_on_dci_serves_every_benchmark_that_it_is_measured_on(run):
    path = run("dci", "dci-hnclip", per_epoch=42)
    result(path, "long", (79.0, 76.0), "long_dci_hn")
    result(path, "docci", (85.0, 83.0), "docci_goal")
    result(path, "urban", (85.0, 83.0), "urban1k")
    rows, remarks = collect(path)
    assert list(rows) == ["dci-hnclip", "long_dci-hnclip", "dci-to-docci-hnclip"]
    assert rows["long_dci-hnclip"]["steps"] == [None]
    assert rows["dci-to-docci-hnclip"]["metrics"]["t2i_r@1"]["published"] == 85.0
    assert remarks == [f"{path}: no cell of such a run is measured on urban1k"]


def test_a_number_that_cannot_be_right_keeps_its_mark(run, capsys):
    path = run("long", "long_dci-hnclip", per_epoch=42)
    file = path / "eval" / "step_00000420.json"
    content = json.loads(file.read_text())
    content["metrics"] |= {"t2i_r@10": 96.0, "i2t_r@5": 92.79}
    file.write_text(json.dumps(content))
    paper.main(["paper", "collect", str(path)])
    line = next(line for line in capsys.readouterr().out.splitlines() if "long_dci" in line)
    assert "96.00 / 96.34?, -0.34~" in line
    assert "92.79 / 92.79, +0.00~" in line


def test_infonce_by_another_name_is_the_same_cell(run):
    path = run("plain", "docci-longclip", loss__kind="info_nce", loss__gamma=0.5)
    assert list(collect(path)[0]) == ["docci-longclip"]


def test_what_the_paper_leaves_open_keeps_runs_apart(run, capsys):
    open_settings = {"train__micro_batches": 1, "optim__weight_decay": 0.1}
    paths = [run("a", "docci-goal"), run("b", "docci-goal", train__seed=1, **open_settings)]
    found, remarks = paper_runs.collect(map(run_folders.read, paths))
    rows = paper_runs.rows(found)
    assert [row["id"] for row in rows] == ["docci-goal", "docci-goal"]
    assert rows[0]["differs"] == ""
    assert "train.micro_batches is 1 instead of 8" in rows[1]["differs"]
    assert "optim.weight_decay is 0.1 instead of 0.05" in rows[1]["differs"]
    assert remarks == []
    paper.main(["paper", "collect", *map(str, paths), str(paths[0])])
    assert "a seed stands twice" in capsys.readouterr().out


def test_what_changes_nothing_is_not_looked_at(run):
    free = {"parallel__fsdp": 8, "log__every_steps": 7, "data__workers": 3, "model__weights": "w"}
    assert list(collect(run("a", "docci-dora-hn", train__seed=5, **free))[0]) == ["docci-dora-hn"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optim__lr": 1e-5}, "nearest is docci-hnclip, but optim.lr is 1e-05 instead of 2e-06"),
        ({"loss__gamma": 0.6}, "loss.gamma is 0.6 instead of"),
        ({"model__stretch": 248}, "model.stretch is 248 instead of 0"),
        ({"data__fraction": 0.3}, "data.fraction is 0.3 instead of"),
        ({"train__epochs": 5}, "train.epochs is 5 instead of 10"),
        ({"data__train": "lists/mine.json", "eval__data": "mine.json"}, "which set of the paper"),
        ({"per_epoch": 72}, "trained 72 steps per epoch instead of 73: its list is not"),
        ({"data__train": "dci/train.json"}, "trained 73 steps per epoch instead of 42"),
        ({"last": 700, "weights": False}, "is unfinished: step 700 of 730"),
        ({"weights": False}, "is unfinished: step 730 of 730"),
        # The best weights are there before the end.
        ({"last": 700, "train__best_metric": "eval/t2i_r@1"}, "is unfinished: step 700 of 730"),
        ({"last": 0, "weights": False, "results": {}}, "is unfinished: step 1$"),
        ({"results": {}}, "its eval/ holds no results"),
        ({"results": {73: (80.0, 70.0)}}, "no result on docci_goal at its end, step 730"),
    ],
)
def test_what_is_no_cell_is_said(changes, message, run):
    path = run("r", "docci-hnclip", **changes)
    rows, remarks = collect(path)
    assert rows == {}
    assert len(remarks) == 1
    assert remarks[0].startswith(f"{path}: ")
    assert re.search(message, remarks[0]), remarks


@pytest.mark.parametrize(
    ("benchmark", "protocol", "message"),
    [
        (None, {}, "measured on x.json, 5000 captions, which is all of no benchmark"),
        ("docci_test", {}, "no cell of such a run is measured on docci_test"),
        ("docci_goal", {"context_length": 77}, "with context_length 77 instead of 248"),
        ("docci_goal", {"image_size": 336}, "with image_size 336 instead of 224"),
        ("docci_goal", {"exif_orientation": "apply"}, "exif_orientation 'apply'"),
        ("docci_goal", {"score": "0.8 cosine + 0.2 late"}, "0.2 late' instead of 'cosine'"),
    ],
)
def test_what_was_measured_otherwise_is_not_counted(benchmark, protocol, message, run):
    path = run("r", "docci-hnclip", results={})
    for step in (73, 730):
        result(path, f"step_{step}", (80.0, 70.0), benchmark, step=step, **protocol)
    rows, remarks = collect(path)
    assert rows == {}
    assert len(remarks) == 1
    assert message in remarks[0]


def test_the_best_evaluation_is_counted_when_asked(run, capsys):
    recalls = {73: (80.0, 70.0), 365: (85.0, 83.0), 730: (84.0, 83.5)}
    path = run("r", "docci-hnclip", results=recalls)
    assert collect(path)[0]["docci-hnclip"]["steps"] == [730]
    assert collect(path, checkpoint="best")[0]["docci-hnclip"]["steps"] == [365]
    paper.main(["paper", "collect", str(path), "--checkpoint=best"])
    assert "best evaluation of each run" in capsys.readouterr().out


def test_a_run_without_evaluations_by_epoch_is_judged_by_its_length(run):
    path = run("r", "docci-hnclip", results={730: (80.0, 70.0)}, eval__every_epochs=0)
    assert list(collect(path)[0]) == ["docci-hnclip"]
    other = run("s", "docci-hnclip", 60, results={600: (80.0, 70.0)}, eval__every_epochs=0)
    assert "trained 60 steps per epoch" in collect(other)[1][0]


@pytest.mark.parametrize(
    ("path", "cell", "per_epoch"),
    [
        ("/data/docci/packed", "docci-hnclip", 73),
        ("/data/docci_and_more/DCI_train.json", "dci-hnclip", 42),
        ("/data/dci/VG_paragraphs/train.json", "urban1k-hnclip", 113),
        ("packed/train", "dci-hnclip", 42),
    ],
)
def test_the_training_list_is_known_by_its_path_or_by_what_is_measured(path, cell, per_epoch, run):
    assert list(collect(run("r", cell, per_epoch, data__train=path))[0]) == [cell]
