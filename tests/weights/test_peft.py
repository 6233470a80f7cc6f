"""peft's folders: their outputs in torch, written out by hand and by peft itself, equal ours."""

import json
import math
import warnings

import jax
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import hnclip_jax as hn
from hnclip_jax import adapters
from hnclip_jax.weights import peft, tree

SHARED = {"hidden_act": "gelu", "layer_norm_eps": 1e-6}
CONFIG = {
    "projection_dim": 10,
    "text_config": {
        **SHARED,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 20,
        "vocab_size": 50,
        "bos_token_id": 48,
        "eos_token_id": 49,
    },
    "vision_config": {
        **SHARED,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 28,
        "image_size": 12,
        "patch_size": 4,
    },
}
IDS = np.array([[48, 5, 6, 7, 49], [48, 9, 49, 0, 0], [48, 30, 31, 49, 0]], np.int32)
PIXELS = np.random.default_rng(3).normal(size=(3, 12, 12, 3)).astype(np.float32)
RANK, ALPHA = 4, 6
LINEAR = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")
ENDINGS = {"a": "lora_A.weight", "b": "lora_B.weight", "magnitude": "lora_magnitude_vector"}
TOLERANCE = 2e-6  # Two float32 forward passes; unit vectors.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CLIPModel of transformers with random weights, as `save_pretrained` leaves it."""
    torch.manual_seed(5)
    model = transformers.CLIPModel(transformers.CLIPConfig(**CONFIG))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and name != "logit_scale":
                parameter.normal_(std=0.2)
    folder = tmp_path_factory.mktemp("clip")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    """The same model and its parameters here, a block per layer as in files."""
    return hn.load(folder, scan_layers=False)


def load(folder):
    return transformers.CLIPModel.from_pretrained(folder, attn_implementation="eager").eval()


def linear_layers(model, names=LINEAR):
    """Returns name -> linear layer in the blocks of both towers."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name.split(".")[-1] in names and "layers" in name
    }


def draw(model, dora, names=LINEAR):
    """Returns the tensors of an adapter of RANK as peft names them, as if it had been trained."""
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for name, layer in linear_layers(model, names).items():
        out, inner = layer.weight.shape
        parts = {"a": (RANK, inner), "b": (out, RANK)}
        for part, shape in parts.items():
            tensors[f"base_model.model.{name}.{ENDINGS[part]}"] = 0.3 * torch.empty(shape).normal_(
                generator=generator
            )
        if dora:
            noise = torch.empty(out).normal_(generator=generator)
            norms = layer.weight.detach().norm(dim=1)
            tensors[f"base_model.model.{name}.{ENDINGS['magnitude']}"] = norms * (1 + 0.2 * noise)
    return tensors


def embed(model):
    """Returns unit embeddings of IDS and PIXELS by a model in torch, [3, D] each."""
    with torch.no_grad():
        found = model(
            input_ids=torch.tensor(IDS, dtype=torch.int64),
            attention_mask=torch.ones(IDS.shape, dtype=torch.int64),
            pixel_values=torch.tensor(PIXELS).permute(0, 3, 1, 2),
        )
    return found.text_embeds.numpy(), found.image_embeds.numpy()


def by_hand(folder, tensors, scale):
    """Returns the embeddings with the adapter beside each layer, nothing merged, in torch."""
    model = load(folder)
    for name, layer in linear_layers(model).items():
        parts = {p: tensors.get(f"base_model.model.{name}.{end}") for p, end in ENDINGS.items()}

        def beside(layer, given, result, parts=parts):
            update = scale * given[0] @ parts["a"].T @ parts["b"].T
            if parts["magnitude"] is None:
                return result + update
            norms = (layer.weight + scale * parts["b"] @ parts["a"]).norm(dim=1)
            return parts["magnitude"] / norms * (result - layer.bias + update) + layer.bias

        if parts["a"] is not None:
            layer.register_forward_hook(beside)
    return embed(model)


def here(ours, found):
    """Returns the embeddings of our model with an adapter that was read."""
    model, base = ours
    adapter = tree.build(found.arrays, False, {})
    effective = adapters.apply(base, adapter, found.alpha)
    return jax.jit(model.encode_text)(effective, IDS), jax.jit(model.encode_image)(
        effective, PIXELS
    )


def config(**changes):
    return {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": [], **changes}


def place(path, tensors, settings, name="adapter_model.safetensors"):
    path.mkdir(exist_ok=True)
    if name.endswith(".bin"):
        torch.save(tensors, path / name)
    else:
        safetensors.torch.save_file(tensors, path / name)
    (path / "adapter_config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("root", [False, True], ids=["alpha / r", "rslora"])
def test_outputs_equal_those_of_torch(folder, ours, tmp_path, dora, root):
    tensors = draw(load(folder), dora)
    scale = ALPHA / (math.sqrt(RANK) if root else RANK)
    place(tmp_path, tensors, config(use_dora=dora, use_rslora=root))
    found = peft.read(tmp_path)
    assert found.rank == RANK
    assert found.alpha == scale * RANK
    assert found.dora == dora
    assert len(found.arrays) == (3 if dora else 2) * 6 * 5
    expected, plain = by_hand(folder, tensors, scale), embed(load(folder))
    for one, other, before in zip(here(ours, found), expected, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)
        assert np.abs(other - before).max() > 0.1


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_there_and_back(folder, tmp_path, dora):
    tensors = draw(load(folder), dora)
    place(tmp_path / "theirs", tensors, config(use_dora=dora))
    found = peft.read(tmp_path / "theirs")
    written = peft.write(
        tmp_path / "ours", found.arrays, rank=RANK, alpha=6.5, dora=dora, base="some/clip"
    )
    assert {file.name for file in written} == {file.name for file in (tmp_path / "ours").iterdir()}
    back = safetensors.torch.load_file(written[0])
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    again = peft.read(written[0])
    assert again[1:] == (RANK, 6.5, dora, "", {"base_model_name_or_path": "some/clip"})
    settings = json.loads(written[1].read_text())
    modules = {name[len("base_model.model.") :].partition(".lora_")[0] for name in tensors}
    assert settings["target_modules"] == sorted(modules)
    assert (settings["r"], settings["lora_alpha"], settings["use_dora"]) == (RANK, 6.5, dora)


@pytest.mark.parametrize(
    ("ours_", "theirs"),
    [
        ("text/blocks_02/attn/query", "text_model.encoder.layers.2.self_attn.q_proj"),
        ("text/blocks_10/attn/key", "text_model.encoder.layers.10.self_attn.k_proj"),
        ("image/blocks_23/attn/value", "vision_model.encoder.layers.23.self_attn.v_proj"),
        ("image/blocks_00/attn/out", "vision_model.encoder.layers.0.self_attn.out_proj"),
        ("image/blocks_01/mlp/fc_in", "vision_model.encoder.layers.1.mlp.fc1"),
        ("text/blocks_00/mlp/fc_out", "text_model.encoder.layers.0.mlp.fc2"),
    ],
)
def test_names(tmp_path, ours_, theirs):
    a, b = (np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((3, 2), (2, 5)))
    arrays = {f"{ours_}/kernel/a": a, f"{ours_}/kernel/b": b}
    file, _ = peft.write(tmp_path, arrays, rank=2, alpha=2, dora=False)
    tensors = safetensors.torch.load_file(file)
    assert set(tensors) == {f"base_model.model.{theirs}.lora_{part}.weight" for part in "AB"}
    np.testing.assert_array_equal(tensors[f"base_model.model.{theirs}.lora_A.weight"], a.T)
    np.testing.assert_array_equal(tensors[f"base_model.model.{theirs}.lora_B.weight"], b.T)
    assert peft.read(tmp_path).arrays.keys() == arrays.keys()


@pytest.mark.parametrize("case", ["bin", "bfloat16", "one tower", "name in memory", "backwards"])
def test_other_ways_to_save(folder, ours, tmp_path, case):
    tensors = draw(load(folder), True)
    settings = config(use_dora=True, lora_dropout=0.1, task_type="FEATURE_EXTRACTION")
    expected = tensors
    if case == "bfloat16":
        tensors = {name: tensor.bfloat16() for name, tensor in tensors.items()}
        expected = {name: tensor.float() for name, tensor in tensors.items()}
    elif case == "one tower":
        tensors = expected = {name: x for name, x in tensors.items() if "text_model" in name}
    elif case == "name in memory":
        tensors = {name + ".weight" * name.endswith("vector"): x for name, x in tensors.items()}
    elif case == "backwards":
        # peft takes it as false for layers of this kind.
        settings["fan_in_fan_out"] = True
    place(tmp_path, tensors, settings, "adapter_model.bin" if case == "bin" else peft.FILE_NAMES[0])
    results = zip(
        here(ours, peft.read(tmp_path)), by_hand(folder, expected, ALPHA / RANK), strict=True
    )
    for one, other in results:
        np.testing.assert_allclose(one, other, atol=TOLERANCE)


def test_patterns_that_agree(folder, tmp_path):
    tensors = draw(load(folder), False, ("q_proj", "fc1"))
    settings = config(
        r=1,
        rank_pattern={"q_proj": RANK, r".*\.mlp\.fc\d": RANK, "k_proj": 9},
        alpha_pattern={"q_proj|fc1": 2 * ALPHA},
    )
    found = peft.read(place(tmp_path, tensors, settings))
    assert (found.rank, found.alpha) == (RANK, 2 * ALPHA)


@pytest.fixture(scope="module")
def library():
    """The peft library, where it is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("peft", reason="peft is not installed")


# peft asks for what transformers will rename.
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_peft_reads_what_is_written(folder, ours, tmp_path, library, dora):
    some = {name: x for name, x in draw(load(folder), dora).items() if "vision" not in name}
    found = peft.read(place(tmp_path / "made", some, config(use_dora=dora)))
    peft.write(tmp_path / "out", found.arrays, rank=RANK, alpha=ALPHA, dora=dora)
    # It would warn, which is an error here, of keys that it misses.
    model = library.PeftModel.from_pretrained(load(folder), tmp_path / "out").eval()
    for one, other in zip(here(ours, found), embed(model), strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)
    merged = embed(model.merge_and_unload())
    for one, other in zip(here(ours, found), merged, strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)


# peft asks for what transformers will rename.
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("root", [False, True], ids=["alpha / r", "rslora"])
def test_what_peft_writes_is_read(folder, ours, tmp_path, library, dora, root):
    torch.manual_seed(2)
    settings = library.LoraConfig(
        r=RANK, lora_alpha=ALPHA, use_dora=dora, use_rslora=root, target_modules=list(LINEAR)
    )
    model = library.get_peft_model(load(folder), settings).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    for one, other in zip(here(ours, peft.read(tmp_path)), embed(model), strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)
