"""`hnclip inspect`: what it says of files of every kind, and of a run."""

import hashlib
import json
import math
import pathlib

import pytest
import torch

from tests.weights import reference


def rows(ran):
    """The lines as a dict; several values of one label are joined."""
    assert ran.code == 0, ran.err
    found = {}
    for line in filter(None, ran.out.splitlines()):
        label, _, value = line.partition("  ")
        found[label] = f"{found[label]}; {value.strip()}" if label in found else value.strip()
    return found


def test_a_finelip_file(hnclip, tmp_path):
    state = reference.state_dict(reference.SMALL_LONG, 1, tables=2, dtype=torch.float16)
    wrapped = {"epoch": 3, "state_dict": {**state, **reference.finelip_extra(48)}}
    torch.save(wrapped, tmp_path / "weights")
    found = rows(hnclip("inspect", tmp_path / "weights"))
    size = (tmp_path / "weights").stat().st_size
    digest = hashlib.sha256((tmp_path / "weights").read_bytes()).hexdigest()
    count = sum(value.numel() for value in state.values()) - 248 * 64
    assert found["file"] == f"{tmp_path / 'weights'} ({size / 1e6:,.1f} MB, PyTorch zip)"
    assert found["sha256"] == digest
    assert found["layout"] == "Long-CLIP"
    assert "75 matched" in found["tensors"]
    assert "14 known buffers ignored: cross_net.image_aggregation.norm.bias" in found["tensors"]
    assert found["dtype"] == "float16"
    assert found["parameters"] == f"{count:,}"
    assert found["vision"] == "3 layers of width 128, 2 heads, MLP 512, patches of 8"
    assert found["text"] == "2 layers of width 64, 1 heads, MLP 256, vocabulary of 49,408"
    assert found["embedding"] == "48"
    assert found["activation"] == "quick_gelu"
    scale = math.exp(state["logit_scale"].item())
    assert found["scale"] == f"s = {scale:.2f}"
    assert found["positions"] == "248 text, 4 x 4 image (32 pixels)"
    assert "taken from 'state_dict' of a training checkpoint" in found["note"]
    assert "FineLIP's aggregation module" in found["note"]


def test_what_is_assumed_is_said(hnclip, tmp_path):
    torch.save(reference.state_dict(reference.SMALL, 1), tmp_path / "weights")
    assert "quick_gelu is assumed" in rows(hnclip("inspect", tmp_path / "weights"))["note"]
    told = hnclip("inspect", tmp_path / "weights", "--activation=gelu")
    assert rows(told)["activation"] == "gelu"
    assert "note" not in rows(told)


def test_a_torchscript_archive_of_mixed_types(hnclip, tmp_path):
    state = reference.state_dict(reference.SMALL, 1)
    reference.save_torchscript(tmp_path / "archive", state, reference.SMALL, half=True)
    found = rows(hnclip("inspect", tmp_path / "archive"))
    assert "TorchScript" in found["file"]
    assert found["dtype"].startswith("float16 (")
    assert "float32 (" in found["dtype"]
    assert (
        "3 known buffers ignored: context_length, input_resolution, vocab_size"
        in (found["tensors"])
    )


def test_a_run_before_and_after_it_has_weights(hnclip, write_config, tmp_path):
    config = write_config(
        tmp_path / "run_config.py", {"train.steps": 2, "train.save_every_steps": 1}
    )
    run = tmp_path / "run"
    words = ("train", f"--config={config}", f"--workdir={run}")
    assert hnclip(*words, "--stop_after=1").code == 0
    found = rows(hnclip("inspect", run))
    assert found["run"] == str(run)
    assert found["checkpoints"] == "1 (steps)"
    assert found["last logged"] == "step 1"
    assert found["weights"].startswith("none yet")
    assert "steps=2" in found["train"]
    assert "layout" not in found
    assert hnclip(*words).code == 0
    found = rows(hnclip("inspect", run))
    assert found["checkpoints"] == "1, 2 (steps)"
    assert found["layout"] == "hnclip_jax"
    assert found["step"] == "2"
    assert found["start weights"] == "random"
    list_file = json.loads((run / "config.json").read_text())["data"]["train"]
    assert found["list"] == list_file
    assert found["list sha256"] == hashlib.sha256(pathlib.Path(list_file).read_bytes()).hexdigest()


def test_a_run_says_what_it_began_with(hnclip, write_config, tmp_path, small_config):
    import jax
    import numpy as np

    import hnclip_jax as hn
    from hnclip_jax.models import dual_encoder

    model = dual_encoder.create(small_config)
    params = jax.device_get(model.init(jax.random.key(0)))
    source = hn.save(tmp_path / "source", model, jax.tree.map(np.asarray, params))
    values = {"train.steps": 1, "model.init": "weights", "model.weights": str(source)}
    config = write_config(tmp_path / "run_config.py", {**values, "model.preset": ""})
    assert hnclip("train", f"--config={config}", f"--workdir={tmp_path / 'run'}").code == 0
    found = rows(hnclip("inspect", tmp_path / "run"))
    assert found["start weights"] == str(source)
    assert found["start weights sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert found["start weights layout"] == "hnclip_jax"


@pytest.mark.parametrize(
    ("words", "part"),
    [([], "needs one PATH"), (["a", "b"], "needs one PATH"), (["gone"], "no weights at gone")],
    ids=["none", "two", "gone"],
)
def test_a_mistake_is_one_line(hnclip, words, part):
    assert part in hnclip("inspect", *words).one_line("inspect")


def test_the_config_of_another_program_is_no_run(hnclip, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    assert "no weights at" in hnclip("inspect", tmp_path).one_line("inspect")
