"""What is no LoRA or DoRA of a CLIPModel's linear layers is refused, in a line that says what."""

import json

import numpy as np
import pytest
import safetensors.numpy

from hnclip_jax import types
from hnclip_jax.weights import layouts, peft

RANK = 4
BLOCK = "base_model.model.{}_model.encoder.layers.0."


def config(**changes):
    return {"peft_type": "LORA", "r": RANK, "lora_alpha": 6, "target_modules": [], **changes}


def tensors():
    """Returns adapters of two kernels in each tower."""
    shapes = {"self_attn.q_proj": (6, 6), "mlp.fc1": (6, 9)}
    rng = np.random.default_rng(0)
    return {
        BLOCK.format(tower) + f"{name}.lora_{part}.weight": rng.normal(size=shape)
        for tower in ("text", "vision")
        for name, (inner, out) in shapes.items()
        for part, shape in (("A", (RANK, inner)), ("B", (out, RANK)))
    }


def place(path, named, settings):
    safetensors.numpy.save_file(named, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(json.dumps(settings))
    return path


def test_the_adapter_of_these_tests_is_read(tmp_path):
    assert len(peft.read(place(tmp_path, tensors(), config())).arrays) == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "is of peft_type IA3; only LORA is read"),
        ({"peft_type": None}, "is of peft_type None"),
        ({"bias": "lora_only"}, 'what is not read: bias="lora_only"; save'),
        ({"modules_to_save": ["visual_projection"]}, 'modules_to_save=\\["visual_projection"\\]'),
        ({"lora_bias": True}, "lora_bias=true"),
        ({"use_bdlora": {"n": 2}, "some_day": 3}, 'use_bdlora={"n": 2}, some_day=3'),
        ({"init_lora_weights": "pissa_niter_4"}, 'init_lora_weights="pissa_niter_4"'),
        ({"layer_replication": [[0, 2]]}, "layer_replication="),
        (
            {"rank_pattern": {"fc1": 8}},
            r"gives 2 modules r 8 and alpha 6, but not text_.*q_proj \(r 4, alpha 6\)",
        ),
        (
            {"alpha_pattern": {"^vision_model.encoder.layers.0.mlp.fc1": 8}},
            r"but not vision_model.encoder.layers.0.mlp.fc1 \(r 4, alpha 8\);",
        ),
        ({"alpha_pattern": {"(": 8}}, r"alpha_pattern has \(, which is no regular"),
        ({"r": 8}, "no whole LoRA adapter of rank 8: image/blocks_00/attn/query/kernel has a"),
        ({"r": "8"}, "r is '8', but must be a whole number"),
        ({"lora_alpha": 0}, "lora_alpha is 0, but must be a number above 0"),
        ({"use_dora": True}, "image/blocks_00/attn/query/kernel has a, b, but needs a, b, magni"),
        ({"use_dora": "yes"}, "use_dora is 'yes', but must be true or false"),
    ],
)
def test_configs_that_ask_for_more(tmp_path, changes, message):
    place(tmp_path, tensors(), config(**changes))
    with pytest.raises(types.UserError, match=message) as caught:
        peft.read(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


Q = "base_model.model.text_model.encoder.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    "name",
    [
        f"{Q}.lora_A.default.weight",
        f"{Q}.lora_B.bias",
        f"{Q}.base_layer.weight",
        f"{Q.removeprefix('base_model.model.')}.lora_A.weight",
        "base_model.model.visual_projection.lora_A.weight",
        "base_model.model.text_model.embeddings.token_embedding.lora_embedding_A",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.text_model.encoder.layers.00.self_attn.q_proj.lora_A.weight",
    ],
)
def test_tensors_that_are_something_else(tmp_path, name):
    place(tmp_path, {**tensors(), name: np.ones((RANK, 6))}, config())
    with pytest.raises(types.UserError, match=f"no adapter of linear layers .*: {name}$"):
        peft.read(tmp_path)


def test_places_without_an_adapter(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"x")
    for path in (tmp_path, tmp_path / "adapter_model.safetensors", tmp_path / "none"):
        assert peft.locate(path) is None
        with pytest.raises(types.UserError, match=r"no adapter of peft at .* adapter_config.json"):
            peft.read(path)
    place(tmp_path, {"x": np.ones(1)}, [1])
    assert peft.locate(tmp_path) == tmp_path / "adapter_model.safetensors"
    with pytest.raises(types.UserError, match="holds no JSON object"):
        peft.read(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(types.UserError, match=r"cannot read .*adapter_config.json"):
        peft.read(tmp_path)
    place(tmp_path, {}, config())
    with pytest.raises(types.UserError, match="it holds no tensors"):
        peft.read(tmp_path)


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    arrays = {
        f"image/patch_embed/kernel/{part}": np.ones(shape, np.float32)
        for part, shape in (("a", (48, 1)), ("b", (1, 16)))
    }
    with pytest.raises(types.UserError, match="no place for adapters of image/patch_embed/kernel"):
        peft.write(tmp_path / "out", arrays, rank=1, alpha=1, dora=False)
    arrays = {name.replace("patch_embed", "blocks_00/mlp/fc_in"): x for name, x in arrays.items()}
    with pytest.raises(types.UserError, match=r"is a folder, but .*a.safetensors names a file"):
        peft.write(tmp_path / "a.safetensors", arrays, rank=1, alpha=1, dora=False)

    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(types.UserError, match="No space left on device"):
        peft.write(tmp_path / "out", arrays, rank=1, alpha=1, dora=False)
    assert not (tmp_path / "out").exists()


def test_a_loader_of_whole_models_names_it(tmp_path):
    place(tmp_path, tensors(), config())
    with pytest.raises(types.UserError, match="holds adapters"):
        layouts.read(tmp_path)
