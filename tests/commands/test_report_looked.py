"""`hnclip report`: which weights and queries geometry and galleries are of."""

import dataclasses
import json

from hnclip_jax import config
from hnclip_jax.commands import sources
from tests.commands import report_cases


def test_weights_that_a_run_began_with_are_before(own_runs, hnclip, tmp_path):
    for number in (1, 2):
        report_cases.change(
            own_runs[number], model={"init": "weights", "weights": str(own_runs[0]), "preset": ""}
        )
    report_cases.change(own_runs[2], model={"weights": str(tmp_path / "gone")})
    ran = hnclip("report", *own_runs[1:], f"--out={tmp_path / 'out'}", "--pictures=12")
    assert ran.code == 0, ran.err
    section = report_cases.section(report_cases.page(tmp_path / "out"), "geometry")
    names = [row[0] for row in section.all("table")[0].rows()[1:]]
    assert names == [f"before: {own_runs[0]}", "run_1", "run_2"]
    assert f"run_2: began with {tmp_path / 'gone'}, which is not there" in section.text


def test_weights_that_runs_began_with_in_two_ways_are_told_apart(own_runs, hnclip, tmp_path):
    for number, length in ((1, 0), (2, 9)):
        model = {
            "init": "weights",
            "weights": str(own_runs[0]),
            "preset": "",
            "context_length": length,
        }
        report_cases.change(own_runs[number], model=model)
    ran = hnclip("report", *own_runs[1:], f"--out={tmp_path / 'out'}", "--pictures=12")
    assert ran.code == 0, ran.err
    rows = (
        report_cases.section(report_cases.page(tmp_path / "out"), "geometry")
        .all("table")[0]
        .rows()[1:]
    )
    before = [f"before: {own_runs[0]}, as of run_{number}" for number in (1, 2)]
    assert [row[0] for row in rows] == [*before, "run_1", "run_2"]
    assert rows[0][1] != rows[1][1]


def test_one_run_shows_what_it_does_not_find(own_runs, hnclip, tmp_path):
    ran = hnclip("report", own_runs[1], f"--out={tmp_path / 'out'}", "--pictures=20")
    assert ran.code == 0, ran.err
    section = report_cases.section(report_cases.page(tmp_path / "out"), "galleries")
    assert [node.text for node in section.all("h3")] == [
        "Near-duplicate captions by run_1",
        "Captions not found by run_1",
        "Pictures not found by run_1",
    ]
    data = config.from_json((own_runs[1] / "config.json").read_text()).eval.data
    result = tmp_path / "result.json"
    assert hnclip("eval", f"--weights={own_runs[1]}", f"--data={data}", f"--out={result}").code == 0
    metrics = json.loads(result.read_text())["metrics"]
    for direction, ask in (("t2i", "captions"), ("i2t", "pictures")):
        missed = round(16 * (1 - metrics[f"{direction}_r@1"] / 100))
        assert missed > 0
        assert f"first: {missed} of 16 {ask}." in section.text


def test_only_pictures_that_ask_are_in_its_galleries(own_runs, hnclip, tmp_path, monkeypatch):
    plain = sources.read

    def some_ask(*args, **options):
        found = plain(*args, **options)
        return found._replace(pictures=dataclasses.replace(found.pictures, queries=(5, 2, 9)))

    monkeypatch.setattr(sources, "read", some_ask)
    ran = hnclip("report", own_runs[1], f"--out={tmp_path / 'out'}")
    assert ran.code == 0, ran.err
    section = report_cases.section(report_cases.page(tmp_path / "out"), "galleries")
    assert " of 3 captions." in section.text
    shown = {node.text for node in section.all("h4") if node.text.startswith("Picture ")}
    assert shown <= {"Picture 5", "Picture 2", "Picture 9"}
    assert shown
