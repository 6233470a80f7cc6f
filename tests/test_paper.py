"""The paper's cells: each has a command that works and the numbers that were read."""

import ast
import csv
import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys

import pytest
from absl import flags

from hnclip_jax import config, types
from hnclip_jax.commands import train
from hnclip_jax.evaluation import published
from hnclip_jax.losses import objective
from tools import paper, paper_cells

ROOT = pathlib.Path(__file__).parent.parent
CELLS = {cell.id: cell for cell in paper_cells.cells()}


@pytest.fixture(scope="module")
def raw():
    """The tables of HN-CLIP's paper as published.json has them."""
    content = json.loads((ROOT / "hnclip_jax/evaluation" / published.FILE).read_text())
    return [table for table in content["tables"] if table["paper"] == "hn-clip"]


def test_ids_and_runs_are_unique_and_all_tables_have_cells():
    cells = paper_cells.cells()
    assert len(CELLS) == len(cells)
    assert len({(cell.argument, cell.benchmark) for cell in cells}) == len(cells)
    settings = [config.to_json(cell.settings) for cell in cells]
    assert len({*settings}) == len(settings)
    counts = {name: len(paper_cells.of_table(name)) for name in paper_cells.TABLES}
    # Six methods by two by four; gamma of five; four components; two kinds of G; three transfers of
    # four methods; two methods by two sets by four shares.
    assert counts == {
        "1": 16, "2": 48, "A4": 48, "3a": 20, "3b": 16, "3c": 8, "A7": 12, "A9": 16
    }  # fmt: skip


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_a_command_is_accepted_and_gives_the_cell_s_settings(cell, parsed_flags, monkeypatch):
    monkeypatch.chdir(ROOT)
    hnclip, name, *words = cell.command("longclip-L.pt", "runs/paper").split()
    assert (hnclip, name) == ("hnclip", "train")
    values = flags.FlagValues()
    train.define_flags(values, ["train", *words])
    assert values(["train", *words]) == ["train"]
    made = config.from_config_dict(values.config)
    assert config.differences(cell.settings, made).keys() == {
        "model.weights", "data.image_root", "eval.image_root"
    }  # fmt: skip
    assert values.workdir == f"runs/paper/{cell.id}"
    config.check_start(made.model)
    assert objective.build(made.loss, made.method, steps_per_epoch=10).terms


def test_every_published_number_of_the_paper_stands_in_one_cell_as_it_is_printed(raw):
    expected, seen = {}, {}
    for table in raw:
        for row in table["rows"]:
            for name, trained_on in table["trained_on"].items():
                if name in row and not row.get("zero_shot"):
                    numbers = [
                        [f"{value:.2f}" for value in one] + [paper_cells.NOT_READ] * 2
                        for one in row[name]
                    ]
                    key = (row["method"], name, trained_on)
                    expected[key] = [text for one in numbers for text in one[:3]]
    for cell in CELLS.values():
        key = (cell.row.method, cell.benchmark, cell.row.trained_on)
        assert key not in seen
        seen[key] = [cell.published(metric).rstrip("?") for metric in paper_cells.METRICS]
        if cell.replica:
            shown = dataclasses.replace(cell, row=cell.replica)
            key = (cell.replica.method, cell.benchmark, cell.replica.trained_on)
            seen[key] = [shown.published(metric) for metric in paper_cells.METRICS]
    assert seen == expected
    assert len(seen) > 90


def test_numbers_that_cannot_be_right_are_marked_and_unknown_ones_are_not_made_up():
    headline = CELLS["long_dci-hnclip"]
    assert [headline.published(m) for m in paper_cells.METRICS] == [
        "79.03", "93.76?", "96.34?", "76.44", "92.79", "95.91?"
    ]  # fmt: skip
    assert CELLS["docci-lora"].published("t2i_r@5") == "not read"
    without = dataclasses.replace(headline, row=None)
    assert {without.published(m) for m in paper_cells.METRICS} == {"not read"}
    assert "not read" in without.place()


def test_the_tools_hold_no_published_number_of_their_own(raw):
    numbers = {
        value
        for table in raw
        for row in table["rows"]
        for name in table["trained_on"]
        for one in row.get(name, [])
        for value in one
    }
    for path in (ROOT / "tools").glob("paper*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant):
                assert node.value not in numbers
                assert not any(f"{number:.2f}" in str(node.value) for number in numbers)


def test_the_list_for_people_and_for_programs():
    run_as_file = [sys.executable, ROOT / "tools/paper.py", "list", "--table=A4", "--weights=w.pt"]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    text = subprocess.check_output(run_as_file, text=True, cwd="/", env=bare)
    block = next(part for part in text.split("\n\n") if part.startswith("docci-goal-hn:"))
    assert "Tables 2 and A4" in block
    assert "text to image  86.24 / not read / not read" in block
    assert "longclip_l.py:docci,method=goal,hn" in block
    assert "--config.model.weights=w.pt" in block
    assert "leaky" in text.split("\n\n")[-1]


def test_the_list_as_csv(capsys):
    paper.main(["paper", "list", "--format=csv"])
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["id"] for line in lines] == list(CELLS)
    (one,) = (line for line in lines if line["id"] == "dci-hnclip-data20")
    assert (one["t2i_r@1"], one["t2i_r@5"], one["tables"]) == ("78.09", "not read", "A9")
    assert one["command"].split()[2] == "--config=configs/longclip_l.py:dci,data=20"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "unknown action"),
        (["lst"], "did you mean 'list'"),
        (["list", "--table=5"], "unknown table '5'"),
        (["list", "more"], "does not understand 'more'"),
        (["list", "--tabel=2"], "tabel"),
        (["list", "--out=x.json"], "--out does not go with list"),
        (["collect"], "needs run folders"),
        (["collect", "nowhere"], "nowhere is no run"),
        (["collect", "nowhere", "--out=x.txt"], r"neither in .json nor in .csv"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(types.UserError, match=message) as raised:
        paper.main(["paper", *words])
    assert "\n" not in str(raised.value)
