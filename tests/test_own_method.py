"""The method of one's own in docs/methods.md, trained by the very code of the page."""

import json
import pathlib
import re
import sys
import types as python_types

import pytest

from hnclip_jax import added
from hnclip_jax.losses import objective

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "methods.md"

pytestmark = pytest.mark.slow  # Compiles a step of its own.


@pytest.fixture
def shown(monkeypatch):
    """Puts the page's method into the table, by the page's own code."""
    module, row = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = python_types.ModuleType("firstsentence")
    monkeypatch.setitem(sys.modules, "hnclip_jax.losses.firstsentence", file)
    exec(module, vars(file))
    table = dict(objective.METHODS)
    exec(row, {"METHODS": table, "Method": objective.Method, "firstsentence": file})
    monkeypatch.setattr(objective, "METHODS", table)


def test_the_method_of_the_page_trains(shown, hnclip, write_config, tmp_path):
    path = write_config(
        tmp_path / "own.py",
        {"train.steps": 2, "method.name": "firstsentence", "optim.lr": 1e-3},
    )
    ran = hnclip("train", f"--config={path}", f"--workdir={tmp_path / 'run'}")
    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    sentence, whole, total = (
        [line[f"train/{name}"] for line in lines if "train/loss" in line]
        for name in ("sentence", "global", "loss")
    )
    assert total == pytest.approx([g + 0.5 * s for g, s in zip(whole, sentence, strict=True)])
    name, parameters = added.load_method(tmp_path / "run")
    assert name == "firstsentence"
    # One step of Adam's moved it by about its own rate, and another by less.
    assert 5e-4 < abs(float(parameters["sentence"]["log_scale"]) - 3.0) < 2.1e-3


def test_without_the_row_it_is_unknown(hnclip, write_config, tmp_path):
    path = write_config(tmp_path / "own.py", {"train.steps": 2, "method.name": "firstsentence"})
    ran = hnclip("train", f"--config={path}", f"--workdir={tmp_path / 'run'}")
    assert "unknown method 'firstsentence'" in ran.one_line()
