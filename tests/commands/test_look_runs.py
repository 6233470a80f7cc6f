"""`hnclip look runs`: files, labels, references, lists that must be one, mistakes in one line."""

import csv
import json

import pytest
from PIL import Image

from tests import fake_runs

RECALL = {10: (50.0, 40.0), 20: (60.0, 50.0)}
DOCCI = {"benchmark": "docci_goal", "pictures": 5100, "captions": 5100}


def write(path, shift=0.0, protocol=None, **changes):
    found = {step: (one + shift, other + shift) for step, (one, other) in RECALL.items()}
    return fake_runs.write(path, fake_runs.evaluations(found), found, protocol=protocol, **changes)


@pytest.fixture
def runs(tmp_path):
    """Two seeds of plain InfoNCE and one run with the boost, on a benchmark."""
    plain = {"protocol": DOCCI, "loss__gamma": 0.0}
    return [
        write(tmp_path / "plain_1", **plain, train__seed=1),
        write(tmp_path / "plain_2", 2.0, **plain, train__seed=2),
        write(tmp_path / "hn", 8.0, protocol=DOCCI),
    ]


@pytest.fixture
def look(hnclip, tmp_path):
    """Runs the command: words -> what it left, and the JSON beside the picture."""

    def run(*words):
        ran = hnclip("look", "runs", *words, f"--out={tmp_path / 'out'}")
        assert ran.code == 0, ran.err
        return ran, json.loads((tmp_path / "out" / "runs.json").read_text())

    return run


def test_kinds_and_seeds_over_epochs(runs, look, tmp_path):
    ran, content = look(*runs)
    assert (content["axis"], content["checkpoint"]) == ("epoch", "all")
    assert (content["benchmark"], content["list_sha256"]) == ("docci_goal", "a" * 64)
    plain, hn = content["curves"]
    assert (plain["label"], plain["n"], plain["x"]) == ("loss.gamma=0.0", [2, 2], [1.0, 2.0])
    assert plain["average"]["mean"] == [46.0, 56.0]
    assert (plain["t2i"]["low"], plain["t2i"]["high"]) == ([50.0, 60.0], [52.0, 62.0])
    assert hn["i2t"]["mean"] == [48.0, 58.0]
    assert "loss.gamma=0.0, epoch 2, n = 2: average 56.00 (55.00 to 57.00)" in ran.out
    out = tmp_path / "out"
    assert ran.err == f"wrote {out}/runs.png, {out}/runs.json, {out}/runs.csv\n"
    with Image.open(out / "runs.png") as image:
        assert image.width == 11 * 150
    with (out / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 3
    assert (rows[0]["label"], rows[0]["run"], rows[0]["seed"]) == ("loss.gamma=0.0", "plain_1", "1")
    assert (rows[0]["metric"], rows[0]["value"]) == ("average_r@1", "45.0")


def test_labels_are_the_users(runs, look):
    words = [f"{path}={label}" for path, label in zip(runs, ("A=0", "A=0", "B"), strict=True)]
    content = look(*words)[1]
    assert [curve["label"] for curve in content["curves"]] == ["A=0", "B"]


def test_a_folder_with_a_sign_in_its_name_is_no_label(tmp_path, look):
    path = write(tmp_path / "gamma=0.5")
    assert look(path)[1]["curves"][0]["label"] == "gamma=0.5"
    assert look(f"{path}=mine=x")[1]["curves"][0]["label"] == "mine=x"


def test_folders_of_one_name_are_told_apart_by_their_paths(tmp_path, look):
    paths = [write(tmp_path / name / "run", train__seed=n) for n, name in enumerate("ab")]
    content = look(*paths)[1]
    assert [run["run"] for run in content["curves"][0]["runs"]] == list(map(str, paths))


@pytest.fixture
def shares(tmp_path):
    """Runs on half and on all of the data."""
    return [
        write(tmp_path / f"share_{share}", 10 * share, DOCCI, data__fraction=share)
        for share in (0.5, 1.0)
    ]


def test_runs_that_differ_in_the_share_of_the_data_stand_over_it(shares, look):
    ran, content = look(*shares)
    (curve,) = content["curves"]
    assert (content["axis"], content["checkpoint"]) == ("fraction", "last")
    assert (curve["x"], curve["t2i"]["mean"]) == ([0.5, 1.0], [65.0, 70.0])
    assert "50 % of the data, n = 1: average 60.00" in ran.out
    content = look(*shares, "--kind=epochs")[1]
    labels = [curve["label"] for curve in content["curves"]]
    assert (content["axis"], labels) == ("epoch", ["data.fraction=0.5", "data.fraction=1.0"])
    assert look(shares[0], "--kind=fraction")[1]["axis"] == "fraction"


def test_the_best_evaluation_counts_when_asked(tmp_path, look):
    found = {10: (70.0, 60.0), 20: (65.0, 61.0)}
    path = fake_runs.write(tmp_path / "run", fake_runs.evaluations(found), found)
    content = look(path, "--kind=fraction", "--checkpoint=best")[1]
    assert content["checkpoint"] == "best"
    assert content["curves"][0]["runs"][0]["steps"] == [10]
    content = look(path, "--kind=fraction")[1]
    assert content["curves"][0]["average"]["mean"] == [63.0]


def test_references_from_a_file_and_from_papers(runs, look, tmp_path):
    file = fake_runs.result(
        tmp_path / "zero_shot.json", {"t2i_r@1": 30.0, "i2t_r@1": 20.0}, **DOCCI
    )
    ran, content = look(
        *runs, f"--reference={file}", "--published=HN-CLIP", "--published=HN-CLIP; 20 % of DOCCI"
    )
    first, paper, part = content["references"]
    assert first == {"label": "zero_shot", "average": 25.0, "t2i": 30.0, "i2t": 20.0}
    assert (paper["t2i"], paper["i2t"]) == (88.25, 86.24)
    assert paper["average"] == pytest.approx((88.25 + 86.24) / 2)
    assert paper["label"] == (
        "HN-CLIP (Long-CLIP ViT-L/14; DOCCI; HN-CLIP, arXiv 2608.18521, Table 1)"
    )
    assert "20 % of DOCCI" in part["label"]
    assert "HN-CLIP has 5 rows on docci_goal; drawn is Long-CLIP ViT-L/14; DOCCI;" in ran.err
    assert ran.err.count("rows on docci_goal") == 1
    assert "zero_shot: average 25.00, t2i 30.00, i2t 20.00" in ran.out


def test_a_row_that_may_be_of_another_protocol_is_marked(runs, look):
    content = look(*runs, "--published=SmartCLIP; StructXLIP")[1]
    assert content["references"][0]["label"].startswith("SmartCLIP? (")


def test_what_else_differs_and_unfinished_runs_are_told(runs, look, tmp_path):
    other = write(tmp_path / "wide", protocol={**DOCCI, "image_size": 336}, weights=False)
    fake_runs.result(runs[0] / "eval" / "step_00000010.json", step=10, image_size=224, **DOCCI)
    ran, _ = look(runs[0], other)
    assert f"{other} differs from {runs[0]} in image_size 224 and 336" in ran.err
    assert ran.err.count("differs from") == 1
    assert f"{other} did not come to its end: step 20 of 20" in ran.err
    assert f"{runs[0]} did not come" not in ran.err


def test_a_seed_that_stands_twice_is_told(tmp_path, look):
    ran, _ = look(write(tmp_path / "a"), write(tmp_path / "b", 1.0))
    assert "a: a seed stands twice, so the spread is too small" in ran.err


def test_runs_without_result_files_are_told(tmp_path, look):
    path = fake_runs.write(tmp_path / "run", fake_runs.evaluations(RECALL))
    ran, content = look(path)
    assert f"{path} has no result files in eval/, so nothing says which list" in ran.err
    assert content["list"] is None


def test_other_lists_that_a_run_was_measured_on_afterwards_do_not_count(runs, look):
    fake_runs.result(runs[0] / "eval" / "another.json", list_sha256="c" * 64)
    assert look(runs[0])[1]["list_sha256"] == "a" * 64


def test_another_k(tmp_path, look):
    path = fake_runs.write(tmp_path / "run", fake_runs.evaluations(RECALL, "r@5"), RECALL)
    assert look(path, "--metric=r@5")[1]["curves"][0]["t2i"]["mean"] == [50.0, 60.0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "needs run folders; for example: hnclip look runs"),
        (("nowhere=A",), "nowhere is no run that can be read"),
        (("{RUN}", "{RUN}"), "stands twice; give every run once"),
        (("{RUN}", "{EMPTY}"), "empty holds no evaluation; train with --config.eval.data=LIST"),
        (("{RUN}", "--metric=r@5"), "plain_1 was evaluated at r@1, not at r@5"),
        (("{RUN}", "--metric=r@3"), "metric"),
        (
            ("{RUN}", "{OTHER}"),
            "were not measured on the same: list_sha256 aaaaaaaa... and bbbbbbbb",
        ),
        (("{RUN}", "--reference={RESULT}"), "result.json was not measured on the same as the runs"),
        (("{RUN}", "--reference=none.json"), "cannot read none.json"),
        (("{RUN}", "--published=HNCLIP"), "did you mean 'HN-CLIP'?"),
        (("{RUN}", "--published=HN-CLIP; DCI x"), "no row of HN-CLIP on docci_goal has 'DCI x'"),
        (("{PLAIN}", "--published=HN-CLIP"), "a benchmark, but theirs is scenes/test.json"),
        (("{EMPTY}", "--published=HN-CLIP"), "a benchmark, but theirs is not known"),
        (("{RUN}", "--checkpoint=best"), "--checkpoint goes with --kind=fraction"),
        (("{RUN}=A", "{HN}=A"), "plain_1 and hn are both called 'A', but differ in loss.gamma"),
        (("{RUN}", "--name=.x"), "--name=.x is no name of a file"),
    ],
)
def test_mistakes_are_one_line(words, message, runs, hnclip, tmp_path):
    known = {
        "RUN": runs[0],
        "HN": runs[2],
        "PLAIN": write(tmp_path / "plain"),
        "EMPTY": fake_runs.write(tmp_path / "empty", [{"step": 1, "train/loss": 1.0}]),
        "OTHER": write(tmp_path / "other", protocol={**DOCCI, "list_sha256": "b" * 64}),
        "RESULT": fake_runs.result(tmp_path / "result.json", list_sha256="b" * 64),
    }
    words = [word.format(**known) for word in words]
    ran = hnclip("look", "runs", *words, f"--out={tmp_path / 'out'}")
    assert message in ran.one_line("look")
    assert not (tmp_path / "out").exists()


def test_a_run_whose_lists_changed_is_not_drawn(runs, hnclip, tmp_path):
    path = runs[0] / "eval" / "step_00000020.json"
    fake_runs.result(path, step=20, **{**DOCCI, "list_sha256": "b" * 64})
    line = hnclip("look", "runs", runs[0], f"--out={tmp_path / 'out'}").one_line("look")
    assert f"{runs[0]} (step 10) and {runs[0]} (step 20) were not measured on the same" in line


def test_help_has_an_example(hnclip):
    ran = hnclip("look", "runs", "--help")
    assert ran.code == 0
    assert "hnclip look runs runs/plain_1=InfoNCE" in ran.out
    assert "--published" in ran.out
