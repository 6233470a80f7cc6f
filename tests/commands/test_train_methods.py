"""Every method as a command: trains on pictures, goes on exactly, exports, evaluates."""

import json
import re

import numpy as np
import pytest
from PIL import Image, ImageFilter

import hnclip_jax as hn
from hnclip_jax import added
from hnclip_jax.weights import adapter_file

pytestmark = pytest.mark.slow  # Every case compiles the step of a method.

METHODS = {
    "longclip": {"method.name": "longclip", "method.pcm_dim": 4},
    "finelip": {"method.name": "finelip", "method.finelip_tokens": 3},
    "goal": {"method.name": "goal"},
    "structxlip": {"method.name": "structxlip"},
    "lora": {"method.adapter": "lora", "method.adapter_rank": 2},
    "dora": {"method.adapter": "dora", "method.adapter_rank": 2},
}
TERMS = {
    "longclip": {"short"},
    "finelip": {"triplet"},
    "goal": {"goal_local", "goal_image", "goal_text"},
    "structxlip": {"structxlip_structure", "structxlip_rgb", "structxlip_local"},
}


@pytest.fixture(scope="module")
def structured(drawn, tmp_path_factory):
    """The drawn training list with a segment of each caption's second sentence, and edge maps."""
    folder = tmp_path_factory.mktemp("structured")
    rows = []
    for number, row in enumerate(json.loads(drawn[0].read_text())):
        picture = drawn[0].parent / row["filename"]
        edges = Image.open(picture).convert("L").filter(ImageFilter.FIND_EDGES)
        edges.save(folder / f"edges_{number:03d}.png")
        box = {"x1": 2, "y1": 3, "x2": 18, "y2": 20, "width": 16, "height": 17}
        sentence = row["caption"].split(". ")[1].rstrip(".")
        segment = {"caption": sentence, "similarity_score": 20.0, "bbox_coordinates": box}
        made = {"original_filename": str(picture), "original_caption": row["caption"]}
        if number % 4:  # A quarter has neither.
            made |= {
                "original_filename_structure": f"edges_{number:03d}.png",
                "segment": [segment],
            }
        rows.append(made)
    path = folder / "train.json"
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture(scope="module")
def run(hnclip, write_config, structured, drawn, tmp_path_factory):
    """Trains a method for 4 steps: (method, workdir, words) -> Ran."""
    folder = tmp_path_factory.mktemp("methods")

    def begin(name, workdir, *words):
        path = write_config(
            folder / f"{name}.py",
            {
                "data.train": str(structured),
                "eval.data": str(drawn[1]),
                "train.steps": 4,
                "train.save_every_steps": 2,
                "optim.lr": 1e-3,
                **METHODS[name],
            },
        )
        ran = hnclip("train", f"--config={path}", f"--workdir={folder / workdir}", *words)
        assert ran.code == 0, ran.err
        return folder / workdir, ran

    return begin


def _lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["finelip", "structxlip", "dora"])
def test_a_method_trains_goes_on_exactly_and_exports(run, hnclip, drawn, name, tmp_path):
    whole, ran = run(name, f"{name}_whole")
    parts, _ = run(name, f"{name}_parts", "--stop_after=2")
    run(name, f"{name}_parts")
    for file in sorted((whole / "weights").iterdir()):
        assert file.read_bytes() == (parts / "weights" / file.name).read_bytes(), file.name
    logged = [line for line in _lines(whole) if "train/loss" in line]
    assert len(logged) == 4
    assert {key for key in logged[0] if key.startswith("train/")} >= {
        f"train/{term}" for term in TERMS.get(name, set()) | {"global"}
    }
    assert all(np.isfinite(list(line.values())).all() for line in logged)
    if name in ("goal", "structxlip"):
        assert "48 of 64 pictures" in ran.err, ran.err
    result = tmp_path / "result.json"
    ran = hnclip("eval", f"--weights={whole}", f"--data={drawn[1]}", f"--out={result}")
    assert ran.code == 0, ran.err
    measured = json.loads(result.read_text())["metrics"]
    during = [line for line in _lines(whole) if "eval/t2i_r@1" in line][-1]
    assert measured["t2i_r@1"] == during["eval/t2i_r@1"]
    ran = hnclip("convert", whole, tmp_path / "theirs", "--to=huggingface")
    assert ran.code == 0, ran.err


def test_finelip_s_own_parameters_lie_beside_the_model(run):
    folder, _ = run("finelip", "finelip_whole")
    name, parameters = added.load_method(folder)
    assert name == "finelip"
    assert set(parameters["triplet"]) == {"image", "text"}


@pytest.mark.parametrize("name", ["lora", "dora"])
def test_an_adapter_goes_on_its_base(run, hnclip, weights, write_config, name, tmp_path):
    model, params, file = weights
    folder, trained = run(
        name,
        f"{name}_on_weights",
        "--config.model.init=weights",
        "--config.model.preset=",
        f"--config.model.weights={file}",
    )
    _check_that_the_base_is_left_out(folder, trained.err, name)
    merged_model, merged = hn.load(folder)
    adapter = folder / "weights" / "adapter.safetensors"
    for found_model, found in (hn.load(file, adapter=str(adapter)), hn.load(adapter)):
        assert found_model == merged_model
        for tower in ("image", "text"):
            kernels = [
                tree[tower]["blocks"]["attn"]["query"]["kernel"] for tree in (found, merged, params)
            ]
            np.testing.assert_allclose(kernels[0], kernels[1], rtol=0, atol=1e-6)
            assert np.abs(kernels[0] - kernels[2]).max() > 1e-4
        np.testing.assert_array_equal(found["logit_scale"], merged["logit_scale"])
    ran = hnclip("convert", file, tmp_path / "merged", f"--adapter={adapter}")
    assert ran.code == 0, ran.err
    again = hn.load(tmp_path / "merged")[1]
    np.testing.assert_array_equal(
        again["text"]["blocks"]["mlp"]["fc_in"]["kernel"],
        found["text"]["blocks"]["mlp"]["fc_in"]["kernel"],
    )
    path = write_config(
        tmp_path / "again.py",
        {
            "train.steps": 2,
            "model.init": "weights",
            "model.preset": "",
            "model.weights": str(adapter),
            "method.adapter": "lora",
        },
    )
    ran = hnclip("train", f"--config={path}", f"--workdir={tmp_path / 'again'}")
    assert "merge that first" in ran.one_line()
    ran = hnclip("convert", file, tmp_path / "short", f"--adapter={adapter}", "--dtype=bfloat16")
    assert re.search(r"bfloat16 rounds away \d+\.\d% of what the adapter changed", ran.err), ran.err
    other = hn.save(tmp_path / "other", model, {**params, "logit_scale": np.float32(1)})
    ran = hnclip("convert", other, tmp_path / "wrong", f"--adapter={adapter}")
    assert "was trained on weights of SHA-256" in ran.one_line("convert")


def _check_that_the_base_is_left_out(folder, said, name):
    kind = {"lora": "LoRA", "dora": "DoRA"}[name]
    assert f"{kind} of rank 2" in said
    size = sum(
        file.stat().st_size for file in (folder / "checkpoints" / "4").rglob("*") if file.is_file()
    )
    model = (folder / "weights" / "model.safetensors").stat().st_size
    assert size < model / 10
    found = adapter_file.read(folder / "weights")
    assert (found.rank, found.alpha, found.dora) == (2, 16.0, name == "dora")


def test_a_list_without_segments_is_refused(run, hnclip, drawn, write_config, tmp_path):
    path = write_config(tmp_path / "goal.py", {"train.steps": 2, "method.name": "goal"})
    ran = hnclip("train", f"--config={path}", f"--workdir={tmp_path / 'run'}")
    assert "make_segments" in ran.one_line()
