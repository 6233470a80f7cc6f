"""The step of LongCLIP-L as it is, compiled for 16, 64 and 256 devices, and read."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from hnclip_jax.models import presets

ROOT = pathlib.Path(__file__).parent.parent
PER_CHIP, FSDP = 2, 16

# So many devices need a process of their own. 256 is the size of the pod slice v5e-256, 64 of
# v5p-64, and 16 of v5e-16, where the boost is taken away again: it compiles fastest.
PROGRAM = f"""
import sys
from tools import plan
words = ["plan", "--config=configs/longclip_l.py:docci,hn,tokens=off", "--per_chip={PER_CHIP}",
         "--config.parallel.fsdp={FSDP}", "--config.train.micro_batches=1"]
plan.main([*words, "--topology=cpu:256,cpu:64", "--noboost", "--out=" + sys.argv[1]])
plan.main([*words, "--topology=cpu:16", "--out=" + sys.argv[2]])
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Number of devices -> what the plan says of the step there."""
    folder = tmp_path_factory.mktemp("long_clip")
    paths = [folder / "larger.json", folder / "smallest.json"]
    command = [sys.executable, "-c", PROGRAM, *map(str, paths)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {row["devices"]: row for path in paths for row in json.loads(path.read_text())}


@pytest.mark.slow
def test_the_boost_is_free_in_the_compiled_step(rows):
    boosted, plain = rows[16], rows[16]["gamma_0"]
    assert boosted["fault"] == plain["fault"] == ""
    assert boosted["collectives"] == plain["collectives"]
    # One more product of 2 captions with 32, of width 768.
    assert boosted["flops"] - plain["flops"] == 2 * PER_CHIP * 16 * PER_CHIP * 768
    assert boosted["flops"] < 1.005 * plain["flops"]
    assert boosted["peak"] < 1.01 * plain["peak"]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [16, 64, 256])
def test_a_device_holds_its_part_and_does_its_part(rows, devices):
    row = rows[devices]
    assert (row["fault"], row["per_chip"]) == ("", PER_CHIP)
    model = presets.get("LongCLIP-L")
    assert 427_000_000 * 4 / FSDP < row["parameters"] < 1.05 * 428_000_000 * 4 / FSDP
    assert 2 * row["parameters"] <= row["optimizer"] < 2 * row["parameters"] + 100
    towers = _flops(model.vision, model.patch_count + 1) + _flops(model.text, model.context_length)
    assert row["flops"] == pytest.approx(PER_CHIP * towers, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [16, 64, 256])
def test_no_device_adds_up_the_gradient_of_the_whole_table(rows, devices):
    exchanged = rows[devices]["collectives"]
    assert exchanged["reduce-scatter"]["bytes"] >= 49408 * 768 * 4 / FSDP
    # A CPU adds up a layer's kernels whole, cuts them, and adds up the parts over "data", where a
    # TPU cuts as it adds. The table's gradient, added up whole, would be 0.15 GB more.
    kernels, table = 4 * 12 * (24 * 1024**2 + 12 * 768**2), 4 * 49408 * 768
    assert exchanged["all-reduce"]["bytes"] < kernels * (1 + 1 / FSDP) + 0.4 * table


def _flops(tower, length):
    """Products of a tower for one input: forward, and twice that backward."""
    dense = 24 * length * tower.width**2
    return 3 * tower.layers * (dense + 4 * length**2 * tower.width)
