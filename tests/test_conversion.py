"""Every layout, small and in the true sizes: the reference's embeddings, every tensor back."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import hnclip_jax as hn
from hnclip_jax import groups, pretrained
from hnclip_jax.models import presets
from hnclip_jax.weights import rules
from tests.weights import reference

TOLERANCE = 1e-5
"""Of unit embeddings in float32. Seen: at most 2.2e-7, for B/16 and L/14 too."""

CAPTIONS = [
    "",
    "kite",
    " ".join(["a red kite in a bare tree,"] * 3),
    " ".join(["a red kite in a bare tree,"] * 20),
    " ".join(f"word{i}" for i in range(300)),
]


def pictures(size):
    """Two pictures, uint8 [2, size, size, 3]: noise and a gradient."""
    noise = np.random.default_rng(7).integers(0, 256, (size, size, 3), np.uint8)
    ramp = np.linspace(0, 255, size * size * 3).reshape(size, size, 3).astype(np.uint8)
    return np.stack([noise, ramp])


def normalised(pixels, config):
    """The same as float32, channels last, by hand."""
    mean, std = np.float32(config.pixel_mean), np.float32(config.pixel_std)
    return ((pixels / np.float32(255) - mean) / std).astype(np.float32)


def channels_first(pixels):
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def embed(model, params):
    """Our embeddings of the captions and of the pictures, given as uint8 and as floats."""
    pixels = pictures(model.config.image_size)
    ids = hn.tokenize(CAPTIONS, context_length=model.config.context_length)
    run = jax.jit(lambda params, images, ids: model.embed(params, images, ids))
    as_bytes = run(params, pixels, ids)
    as_floats = model.encode_image(params, normalised(pixels, model.config))
    np.testing.assert_allclose(as_bytes.image, as_floats, atol=TOLERANCE, rtol=0)
    return np.asarray(as_bytes.image), np.asarray(as_bytes.text)


def by_torch(state, sizes, config):
    """The reference's embeddings of the same."""
    pixels = channels_first(normalised(pictures(sizes.image), config))
    ids = torch.from_numpy(hn.tokenize(CAPTIONS, context_length=sizes.context)).long()
    return (
        reference.embed_image(state, sizes, pixels, config.activation).numpy(),
        reference.embed_text(state, sizes, ids, config.activation).numpy(),
    )


def by_transformers(folder, config):
    """Embeddings of the same by what transformers makes of a folder; it must know every tensor."""
    model, info = transformers.CLIPModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    pixels = channels_first(normalised(pictures(config.image_size), config))
    ids = torch.from_numpy(hn.tokenize(CAPTIONS, context_length=config.context_length)).long()
    with torch.no_grad():
        found = model.eval()(input_ids=ids, pixel_values=pixels)
    return found.image_embeds.numpy(), found.text_embeds.numpy()


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE, rtol=0)


def assert_same_params(path, params, **options):
    model, found = hn.load(path, **options)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(params), strict=True):
        assert one.dtype == other.dtype == np.float32
        np.testing.assert_array_equal(one, other)
    return model


def tensors(path):
    """The tensors of a written file, by torch's or safetensors' own reader."""
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    return torch.load(path, weights_only=True)


def convert(source, target, layout, **options):
    imported = pretrained.read(source, groups.ModelGroup(**options))
    return pretrained.convert(imported, target, layout)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "preset"), [("B16", "LongCLIP-B"), ("L14", "LongCLIP-L")])
def test_true_sizes_in_every_layout(name, preset, tmp_path):
    sizes, wanted = getattr(reference, name), presets.get(preset)
    if name == "L14":  # Its widths; all of its layers would take minutes.
        sizes = sizes._replace(vision_layers=3, text_layers=2)
        wanted = dataclasses.replace(wanted, vision_layers=3, text_layers=2)
    state = reference.state_dict(sizes, 3, tables=2)
    source = tmp_path / "source"
    torch.save(state, source)
    model, params = hn.load(source)
    assert model.config == wanted
    ours = embed(model, params)
    assert_close(ours, by_torch(state, sizes, model.config))

    longclip = convert(source, tmp_path / "longclip.pt", "longclip")
    written = torch.load(longclip, weights_only=True, mmap=True)
    assert written.keys() == state.keys()
    assert all(torch.equal(written[key], state[key]) for key in state)
    del written, state
    longclip.unlink()

    folder = convert(source, tmp_path / "huggingface", "huggingface").parent
    assert_close(by_transformers(folder, model.config), ours)
    assert_same_params(folder, params)
    shutil.rmtree(folder)

    for layout, target, options in (
        ("open_clip", "open_clip", {}),
        ("openai", "openai.pt", {"activation": "quick_gelu"}),
    ):
        file = convert(source, tmp_path / target, layout)
        assert assert_same_params(file, params, **options).config == model.config
        file.unlink()


@pytest.fixture(scope="module")
def small_hf():
    """A small CLIPModel with 80-wide heads in one tower, unlike OpenAI's rule."""
    torch.manual_seed(5)
    config = transformers.CLIPConfig(
        text_config={
            "hidden_size": 64,
            "intermediate_size": 192,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "hidden_act": "gelu",
        },
        vision_config={
            "hidden_size": 160,
            "intermediate_size": 320,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "hidden_act": "gelu",
            "image_size": 32,
            "patch_size": 8,
        },
        projection_dim=48,
    )
    model = transformers.CLIPModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def save_hf(model, folder, kind):
    """Saves as transformers does, or did: one file, shards, or a pickle."""
    if kind == "pickle":
        model.config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    else:
        size = "1MB" if kind == "shards" else "5GB"
        model.save_pretrained(folder, max_shard_size=size)
        assert (folder / "model.safetensors.index.json").exists() == (kind == "shards")


@pytest.mark.parametrize("kind", ["one file", "shards", "pickle"])
def test_a_folder_of_hugging_face(small_hf, tmp_path, kind):
    save_hf(small_hf, tmp_path, kind)
    model, params = hn.load(tmp_path)
    assert (model.config.activation, model.config.vision_heads) == ("gelu", 2)
    expected = by_transformers(tmp_path, model.config)
    assert_close(embed(model, params), expected)
    target = tmp_path / "again"
    file = convert(tmp_path, target, "huggingface")
    written, given = tensors(file), small_hf.state_dict()
    assert written.keys() == given.keys()
    assert all(torch.equal(written[key], given[key]) for key in given)
    assert_close(by_transformers(target, model.config), expected)


def test_a_folder_of_hugging_face_that_was_stretched(small_hf, tmp_path):
    save_hf(small_hf, tmp_path / "short", "one file")
    convert(tmp_path / "short", tmp_path / "long", "huggingface", stretch=248)
    config = json.loads((tmp_path / "long" / "config.json").read_text())
    assert config["text_config"]["max_position_embeddings"] == 248
    model, params = hn.load(tmp_path / "long")
    assert model.config.context_length == 248
    assert_close(by_transformers(tmp_path / "long", model.config), embed(model, params))
    short, _ = hn.load(tmp_path / "long", context_length=77)
    assert short.config.context_length == 77


LAYOUTS = {
    "openai": ({"tables": 1}, {"activation": "quick_gelu"}),
    "longclip": ({"tables": 2}, {}),
    "finelip": ({"tables": 2}, {}),
    "torchscript": ({"tables": 1}, {}),
    "open_clip": ({"tables": 1}, {"activation": "gelu"}),
    "open_clip custom text": ({"tables": 1, "text_prefix": "text."}, {"activation": "gelu"}),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_small_files_of_every_layout(kind, tmp_path):
    made, options = LAYOUTS[kind]
    sizes = reference.SMALL_LONG
    state = reference.state_dict(sizes, 11, **made)
    source = tmp_path / "source"
    if kind == "torchscript":
        reference.save_torchscript(source, state, sizes)
    elif kind.startswith("open_clip"):
        safetensors.torch.save_file(state, source)
    else:
        torch.save({**state, **(reference.finelip_extra(48) if kind == "finelip" else {})}, source)
    model, params = hn.load(source, **options)
    ours = embed(model, params)
    plain = {key.removeprefix("text."): value for key, value in state.items()}
    assert_close(ours, by_torch(plain, sizes, model.config))

    # There and back: by way of our own file, every tensor is the same bit for bit.
    own = convert(source, tmp_path / "own", "hnclip", **options)
    assert_same_params(own, params)
    layout = "openai" if kind == "torchscript" else kind.split()[0].replace("finelip", "longclip")
    back = tensors(convert(own, tmp_path / "back.pt", layout))
    assert back.keys() == plain.keys()
    assert all(torch.equal(back[key], plain[key]) for key in plain)

    folder = convert(own, tmp_path / "huggingface", "huggingface").parent
    assert_close(by_transformers(folder, model.config), ours)
    assert_same_params(folder, params)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["hnclip", "longclip", "huggingface", "open_clip", "openai"])
def test_half_types_round_once_and_load_as_float32(layout, dtype, tmp_path):
    state = reference.state_dict(reference.SMALL_LONG, 4, tables=2)
    torch.save(state, tmp_path / "source.pt")
    imported = pretrained.read(tmp_path / "source.pt", groups.ModelGroup())
    suffix = ".pt" if layout in ("longclip", "openai") else ""
    file = pretrained.convert(imported, tmp_path / f"half{suffix}", layout, dtype=dtype)[0]
    kind = getattr(torch, dtype)
    assert {value.dtype for value in tensors(file).values()} == {kind}
    _, params = hn.load(file, scan_layers=False, activation="quick_gelu")
    for path, array in imported.arrays.items():
        if not path.startswith(rules.UNUSED):
            rounded = torch.tensor(np.asarray(array)).to(kind).float().numpy()
            node = params
            for name in path.split("/"):
                node = node[name]
            assert node.dtype == np.float32
            np.testing.assert_array_equal(node, rounded)


def test_half_files_are_imported_to_float32(tmp_path):
    half = reference.state_dict(reference.SMALL_LONG, 4, tables=2, dtype=torch.float16)
    torch.save(half, tmp_path / "half.pt")
    model, params = hn.load(tmp_path / "half.pt")
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    full = {key: value.float() for key, value in half.items()}
    assert_close(embed(model, params), by_torch(full, reference.SMALL_LONG, model.config))
