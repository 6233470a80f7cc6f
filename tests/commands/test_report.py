"""`hnclip report`: what the page says, mistakes, and that an older one is not lost."""

import itertools
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import config
from hnclip_jax.commands import report_looking
from tests.commands import report_cases
from tools import report_runs


@pytest.fixture(scope="module")
def whole(made_runs, hnclip, tmp_path_factory):
    """The page of all three with everything, its folder and what was printed."""
    out = tmp_path_factory.mktemp("whole") / "report"
    ran = hnclip("report", *made_runs, f"--out={out}", "--pictures=60", "--thumbnail=32")
    assert ran.code == 0, ran.err
    return report_cases.page(out), out, ran


def test_all_sections_are_there_in_order(whole):
    page, out, ran = whole
    assert [node.text for node in page.all("h2")] == [
        "Results", "Curves", "Geometry", "Galleries", "Settings", "Provenance",
    ]  # fmt: skip
    assert page.one("h1").text == "Report on run_0, run_1, run_2"
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert ran.out == f"{out / 'index.html'}  {size / 1e6:.1f} MB\n"
    assert "embedding by run_2: 32 of 32 rows" in ran.err
    assert "writing pictures" in ran.err


def test_headings_are_in_order_and_every_id_is_there_once(whole):
    page, _, _ = whole
    levels = [int(node.name[1]) for node in page.all() if node.name in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    ids = [node.attributes["id"] for node in page.all() if "id" in node.attributes]
    assert len(ids) == len({*ids})
    for link in page.all("a"):
        assert link.attributes["href"].removeprefix("#") in ids


def test_results_have_differences_intervals_and_published_rows(whole):
    page, _, _ = whole
    section = report_cases.section(page, "results")
    assert [node.text for node in section.all("h3")] == ["docci_goal"]
    first = section.all("table")[0]
    assert first.one("caption").text == "Text to image, docci_goal"
    rows = {row[0]: row[1:] for row in first.rows()[1:]}
    latest = [f"run_{number} latest, step 600" for number in range(3)]
    assert list(rows)[:3] == latest
    # 48, 51 and 54 percent at step 600, plus 6; by 16 queries that is no sure difference.
    assert rows[latest[0]][0].startswith("54.00")
    assert "may be chance" not in rows[latest[0]][0]
    cell = rows[latest[2]][0]
    # Where 0.6 is 1.96 standard errors away: (0.6 - x)^2 = 1.96^2 x (1 - x) / 16.
    square = 1.96**2 / 16
    low, high = sorted(100 * np.roots([1 + square, -(1.2 + square), 0.36]))
    assert cell == f"60.00{low:.2f} to {high:.2f} +6.00 may be chance"
    published = first.all("tr", class_="published")
    said = "HN-CLIP Long-CLIP ViT-L/14; DOCCI [1]"
    assert any(row.text.startswith(said) and "88.25" in row.text for row in published)
    assert "[1] HN-CLIP, arXiv 2608.18521, Table 1" in [node.text for node in section.all("li")]
    assert "latest" not in "".join(row.text for row in published)


def test_curves_settings_and_provenance(whole, made_runs):
    page, _, _ = whole
    titles = [node.text for node in report_cases.section(page, "curves").all("h3")]
    assert "Loss" in titles
    assert "R@1 text to image, percent" in titles
    differing = report_cases.section(page, "settings").all("table")[0].rows()
    assert differing == [
        ["Setting", "run_0", "run_1", "run_2"],
        ["loss.gamma", "0.0", "0.25", "0.5"],
        ["train.seed", "0", "1", "2"],
    ]
    told = report_cases.section(page, "provenance")
    assert [node.text for node in told.all("h3")] == ["This page", "run_0", "run_1", "run_2"]
    facts = dict(row for row in told.all("table")[1].rows()[1:])
    assert facts["folder"] == str(made_runs[0])
    assert facts["weights, step"] == "600"
    assert facts["last line of metrics.jsonl"].startswith("step 600, ")
    digest = report_runs.sha256(made_runs[0] / "weights" / "model.safetensors")
    assert facts["weights, SHA-256"] == digest
    assert facts["test list, SHA-256"] == report_runs.sha256(made_runs[0].parent / "test.json")
    commands = [node.text for node in told.all("pre")]
    assert commands[0].startswith(f"hnclip report {made_runs[0]} ")
    assert "--pictures=60" in commands[0]


def test_the_settings_can_be_trained_with_again(whole, made_runs, tmp_path):
    page, _, _ = whole
    text = next(node.text for node in page.all("pre") if "get_config" in node.text)
    names = {}
    exec(compile(text, "repeat.py", "exec"), names)  # What a user does with it.
    again = config.from_config_dict(names["get_config"]())
    assert again == config.from_json((made_runs[0] / "config.json").read_text())


def test_pictures_are_small_and_as_many_as_allowed(whole):
    page, out, _ = whole
    shown = page.all("img")
    assert 30 < len(shown) <= 60
    files = {path.name for path in (out / "pictures").iterdir()}
    assert {node.attributes["src"] for node in shown} == {f"pictures/{name}" for name in files}
    for node in shown:
        with Image.open(out / node.attributes["src"]) as image:
            size = (int(node.attributes["width"]), int(node.attributes["height"]))
            assert image.size == size == (32, 21)
        assert node.attributes["loading"] == "lazy"
        assert node.attributes["alt"]


def test_galleries_of_three_runs(whole):
    page, _, _ = whole
    assert [node.text for node in report_cases.section(page, "galleries").all("h3")] == [
        "Near-duplicate captions by run_0",
        *(
            f"{asking} {how} by {run}, against run_0"
            for asking in ("Captions", "Pictures")
            for run in ("run_1", "run_2")
            for how in ("rescued", "lost")
        ),
    ]
    names = [row[0] for row in report_cases.section(page, "geometry").all("table")[0].rows()[1:]]
    assert names == ["run_0", "run_1", "run_2"]
    assert "began with random weights" in report_cases.section(page, "geometry").text


def test_captions_are_text(whole):
    page, out, _ = whole
    assert len(page.all("script")) == 1
    assert any(
        report_cases.HOSTILE in node.text
        for node in report_cases.section(page, "galleries").all("span")
    )
    assert "<script>alert" not in (out / "index.html").read_text("utf-8")


def test_without_embedding_no_weights_are_needed(own_runs, hnclip, tmp_path, monkeypatch):
    monkeypatch.setattr(report_looking, "look", None)
    shutil.rmtree(own_runs[0] / "weights")
    ran = hnclip("report", own_runs[0], f"--out={tmp_path / 'out'}", "--noembed")
    assert ran.code == 0, ran.err
    page = report_cases.page(tmp_path / "out")
    assert [node.text for node in page.all("h2")] == [
        "Results", "Curves", "Settings", "Provenance",
    ]  # fmt: skip
    assert page.one("h1").text == "Report on run_0"
    assert os.listdir(tmp_path / "out" / "pictures") == []


def test_an_older_report_goes_only_if_told(own_runs, hnclip, tmp_path):
    words = ("report", own_runs[0], f"--out={tmp_path / 'out'}", "--noembed")
    assert hnclip(*words).code == 0
    assert "say --overwrite" in hnclip(*words).one_line("report")
    assert hnclip(*words, "--overwrite").code == 0
    (tmp_path / "out" / "mine.txt").write_text("")
    assert "holds more than a report" in hnclip(*words, "--overwrite").one_line("report")
    assert (tmp_path / "out" / "mine.txt").exists()


def test_mistakes_are_one_line_and_leave_nothing(own_runs, hnclip, tmp_path):
    out = f"--out={tmp_path / 'out'}"

    def line(*words):
        said = hnclip("report", *words).one_line("report")
        assert not (tmp_path / "out").exists()
        return said

    assert "needs run folders and --out; for example: hnclip report" in line()
    assert "needs run folders and --out" in line(own_runs[0])
    assert "--pictures does not go with --noembed" in line(
        own_runs[0], out, "--noembed", "--pictures=3"
    )
    assert "--split says how another list is read" in line(own_runs[0], out, "--split=test")
    assert "is no run that can be read" in line(tmp_path, out)
    assert "is named twice; name each run once" in line(own_runs[0], own_runs[0], out)
    assert "tested on several lists" in line(
        own_runs[0], report_cases.change(own_runs[1], eval={"data": "b.json"}), out
    )
    assert "no run was tested on a list; name one by --data" in line(
        report_cases.change(own_runs[1], eval={"data": ""}), out
    )
    gone = report_cases.change(own_runs[1], eval={"data": str(tmp_path / "gone.json")})
    said = line(gone, out)
    assert "gone.json" in said
    assert "--noembed" in said
    assert "--noembed" not in line(own_runs[0], out, f"--data={tmp_path / 'gone.json'}")
    (own_runs[2] / "weights" / "model.safetensors").unlink()
    assert "no weights yet in" in line(own_runs[0], own_runs[2], out)


def test_runs_of_one_name_are_told_apart(own_runs, hnclip, tmp_path):
    other = shutil.copytree(own_runs[0], tmp_path / "more" / "run_0")
    ran = hnclip("report", own_runs[0], other, f"--out={tmp_path / 'out'}", "--noembed")
    assert ran.code == 0, ran.err
    assert report_cases.page(tmp_path / "out").one("h1").text == "Report on runs/run_0, more/run_0"


def test_a_run_that_has_only_begun(own_runs, hnclip, tmp_path):
    shutil.rmtree(own_runs[0] / "eval")
    shutil.rmtree(own_runs[0] / "weights")
    (own_runs[0] / "metrics.jsonl").unlink()
    ran = hnclip("report", own_runs[0], f"--out={tmp_path / 'out'}", "--noembed")
    assert ran.code == 0, ran.err
    text = report_cases.page(tmp_path / "out").text
    for said in ("has been evaluated yet", "has logged anything yet", "none yet"):
        assert said in text


def test_a_run_of_hnclip_train(quick, train, own_set, hnclip, tmp_path):
    test = f"--config.eval.data={own_set.with_name('test.json')}"
    assert train(test, "--config.eval.every_steps=3").code == 0
    ran = hnclip("report", tmp_path / "run", f"--out={tmp_path / 'out'}", "--noembed")
    assert ran.code == 0, ran.err
    page = report_cases.page(tmp_path / "out")
    assert report_cases.section(page, "results").one("table").rows()[1] == [
        "run latest, step 6",
        "6.00",
    ]
    facts = dict(report_cases.section(page, "provenance").all("table")[1].rows()[1:])
    assert facts["last line of metrics.jsonl"].startswith("step 6, ")
    assert facts["training list"].endswith("train.json")


def test_the_best_evaluation_is_told_apart_from_the_latest(own_runs, hnclip, tmp_path):
    path = own_runs[0] / "eval" / "step_00000300.json"
    content = json.loads(path.read_text())
    content["metrics"].update({"t2i_r@1": 70.0, "i2t_r@1": 71.0})
    path.write_text(json.dumps(content))
    ran = hnclip("report", own_runs[0], own_runs[1], f"--out={tmp_path / 'out'}", "--noembed")
    assert ran.code == 0, ran.err
    section = report_cases.section(report_cases.page(tmp_path / "out"), "results")
    assert [row[0] for row in section.all("table")[0].rows()[1:4]] == [
        "run_0 latest, step 600",
        "run_0 best, step 300",
        "run_1 latest, step 600",
    ]
    assert "chosen by the mean of both R@1 on this very list" in section.text


def test_results_of_other_lists_are_not_compared(own_runs, hnclip, tmp_path):
    for step in (300, 600):
        path = own_runs[1] / "eval" / f"step_{step:08d}.json"
        content = json.loads(path.read_text())
        content["protocol"] |= {"benchmark": None, "list": "other.json", "list_sha256": "b" * 64}
        path.write_text(json.dumps(content))
    ran = hnclip("report", *own_runs, f"--out={tmp_path / 'out'}", "--noembed")
    assert ran.code == 0, ran.err
    section = report_cases.section(report_cases.page(tmp_path / "out"), "results")
    assert [node.text for node in section.all("h3")] == ["docci_goal", "other.json"]
    rows = section.all("table")
    other = next(table for table in rows if table.one("caption").text.endswith("other.json"))
    assert [row[0] for row in other.rows()[1:]] == ["run_1 latest, step 600"]
    assert not other.all("span", class_="difference")


def test_the_example_is_understood(hnclip):
    ran = hnclip("report", "--help")
    assert ran.code == 0
    assert "hnclip report runs/plain runs/hn --out=report" in ran.out
    assert "--pictures" in ran.out
