"""open_clip's layout and its config: what it says is read, and nothing in it is passed over."""

import dataclasses
import json

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.models import presets
from hnclip_jax.weights import open_clip, rules

# Small, and every number another one.
CONFIG = {
    "model_cfg": {
        "embed_dim": 10,
        "quick_gelu": True,
        "vision_cfg": {
            "image_size": 24,
            "layers": 2,
            "width": 48,
            "head_width": 16,
            "mlp_ratio": 2.5,
            "patch_size": 8,
        },
        "text_cfg": {
            "context_length": 20,
            "vocab_size": 50,
            "width": 32,
            "heads": 4,
            "layers": 3,
            "mlp_ratio": 3.0,
        },
    },
    "preprocess_cfg": {
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.5, 0.6],
        "interpolation": "bicubic",
        "resize_mode": "shortest",
    },
}
NUMBERS = {
    "vision_width": 48,
    "vision_layers": 2,
    "vision_heads": 3,
    "vision_mlp_width": 120,
    "patch_size": 8,
    "image_size": 24,
    "text_width": 32,
    "text_layers": 3,
    "text_heads": 4,
    "text_mlp_width": 96,
    "context_length": 20,
    "vocab_size": 50,
    "embed_dim": 10,
    "activation": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "pixel_mean": (0.1, 0.2, 0.3),
    "pixel_std": (0.4, 0.5, 0.6),
}


def _changed(where, change):
    config = json.loads(json.dumps(CONFIG))
    at = config if where in config else config["model_cfg"]
    at[where].update(change)
    return config


def test_a_config_tells_the_numbers():
    assert open_clip.describe(CONFIG, "x") == (NUMBERS, [])


def test_a_model_config_alone_says_nothing_of_pixels():
    numbers = {key: value for key, value in NUMBERS.items() if "pixel" not in key}
    assert open_clip.describe(CONFIG["model_cfg"], "x") == (numbers, [])


def test_missing_keys_have_the_values_of_open_clip():
    numbers, notes = open_clip.describe({"embed_dim": 512, "vision_cfg": {}, "text_cfg": {}}, "x")
    preset = dataclasses.asdict(presets.get("ViT-B/16"))
    assert numbers == {key: preset[key] for key in numbers} | {"activation": "gelu"}
    assert len(numbers) == 15
    assert notes == []


# Copied from open_clip's model_configs.
PUBLISHED = {
    "ViT-B-32-quickgelu": {
        "embed_dim": 512,
        "quick_gelu": True,
        "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32},
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 512,
            "heads": 8,
            "layers": 12,
        },
    },
    "ViT-L-14-336": {
        "embed_dim": 768,
        "vision_cfg": {"image_size": 336, "layers": 24, "width": 1024, "patch_size": 14},
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 768,
            "heads": 12,
            "layers": 12,
        },
    },
    "ViT-H-14": {
        "embed_dim": 1024,
        "vision_cfg": {
            "image_size": 224,
            "layers": 32,
            "width": 1280,
            "head_width": 80,
            "patch_size": 14,
        },
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 1024,
            "heads": 16,
            "layers": 24,
        },
    },
    "ViT-g-14": {
        "embed_dim": 1024,
        "vision_cfg": {
            "image_size": 224,
            "layers": 40,
            "width": 1408,
            "head_width": 88,
            "mlp_ratio": 4.3637,
            "patch_size": 14,
        },
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 1024,
            "heads": 16,
            "layers": 24,
        },
    },
    "ViT-bigG-14": {
        "embed_dim": 1280,
        "vision_cfg": {
            "image_size": 224,
            "layers": 48,
            "width": 1664,
            "head_width": 104,
            "mlp_ratio": 4.9231,
            "patch_size": 14,
        },
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 1280,
            "heads": 20,
            "layers": 32,
        },
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_names_lead_to_presets_of_the_published_sizes(name):
    preset, activation = open_clip.NAMES[name]
    expected = dataclasses.asdict(presets.get(preset)) | {"activation": activation}
    numbers, _ = open_clip.describe(PUBLISHED[name], name)
    assert numbers == {key: expected[key] for key in numbers}


def test_every_name_leads_to_a_preset():
    for name, (preset, activation) in open_clip.NAMES.items():
        assert name.startswith(preset.replace("/", "-").replace("@", "-"))
        assert preset in presets.PRESETS
        assert activation == ("quick_gelu" if name.endswith("-quickgelu") else "gelu")


@pytest.mark.parametrize("name", presets.PRESETS)
@pytest.mark.parametrize("activation", presets.ACTIVATIONS)
def test_what_is_written_is_read_back(name, activation):
    numbers = dataclasses.asdict(presets.get(name)) | {
        "activation": activation,
        "pixel_mean": (0.5, 0.25, 0.1),
    }
    written = json.loads(json.dumps(open_clip.config(numbers)))
    assert open_clip.describe(written, "x") == (numbers, [])


def test_another_epsilon_is_read_back():
    numbers = {**NUMBERS, "layer_norm_eps": 1e-6}
    assert open_clip.describe(open_clip.config(numbers), "x") == (numbers, [])


def test_every_width_of_an_mlp_is_written_exactly():
    for width in (6, 24, 49, 192, 768, 1408, 1664):
        for mlp_width in (*range(1, 300), 4 * width, 4 * width + 1, 6143, 6144, 8191, 8192):
            numbers = {**NUMBERS, "vision_width": width, "vision_mlp_width": mlp_width}
            vision = open_clip.config(numbers)["model_cfg"]["vision_cfg"]
            # How open_clip computes it.
            assert int(width * vision.get("mlp_ratio", 4.0)) == mlp_width


def test_the_config_of_a_usual_model_has_the_usual_keys():
    written = open_clip.config(dataclasses.asdict(presets.get("LongCLIP-L")))
    assert written["model_cfg"] == {
        "embed_dim": 768,
        "quick_gelu": True,
        "vision_cfg": {
            "image_size": 224,
            "patch_size": 14,
            "width": 1024,
            "layers": 24,
            "head_width": 64,
        },
        "text_cfg": {
            "context_length": 248,
            "vocab_size": 49408,
            "width": 768,
            "layers": 12,
            "heads": 12,
        },
    }
    assert written["preprocess_cfg"]["interpolation"] == "bicubic"
    assert written["preprocess_cfg"]["resize_mode"] == "shortest"


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("model_cfg", {"custom_text": True, "output_dict": True, "init_logit_scale": 2.6}),
        ("model_cfg", {"init_logit_bias": None, "multimodal_cfg": None, "new": False}),
        ("model_cfg", {"nonscalar_logit_scale": True}),
        ("vision_cfg", {"timm_model_name": None, "timm_pool": "avg", "timm_drop_path": 0.1}),
        ("vision_cfg", {"pool_type": "tok", "pos_embed_type": "learnable", "no_ln_pre": False}),
        ("vision_cfg", {"attentional_pool": False, "attn_pooler_queries": 256}),
        ("vision_cfg", {"ls_init_value": None, "output_tokens": True, "act_kwargs": {}}),
        ("vision_cfg", {"image_size": [24, 24], "patch_size": [8, 8], "patch_dropout": 0.0}),
        ("text_cfg", {"pool_type": "argmax", "proj_type": "linear", "proj_bias": False}),
        ("text_cfg", {"hf_model_name": "", "hf_proj_type": "mlp", "hf_tokenizer_name": None}),
        ("text_cfg", {"pad_id": 1, "eos_id": 2, "embed_cls": False, "tokenizer_kwargs": {}}),
        ("text_cfg", {"norm_kwargs": None, "block_type": "default", "qk_norm": False}),
        ("preprocess_cfg", {"size": [24, 24], "fill_color": 0, "interpolation": None}),
    ],
)
def test_what_changes_no_embedding_is_accepted(where, change):
    assert open_clip.describe(_changed(where, change), "x") == (NUMBERS, [])


def test_dropped_patches_are_noted():
    numbers, notes = open_clip.describe(_changed("vision_cfg", {"patch_dropout": 0.5}), "x")
    assert numbers == NUMBERS
    assert notes == ["patch_dropout is left out: open_clip drops patches in training only"]


@pytest.mark.parametrize(
    ("change", "noted"),
    [
        ({"interpolation": "bilinear"}, "interpolation 'bilinear'; this package uses 'bicubic'"),
        ({"resize_mode": "squash"}, "resize_mode 'squash'; this package uses 'shortest'"),
        ({"mode": "BGR"}, "mode 'BGR'; this package uses 'RGB'"),
    ],
)
def test_other_preprocessing_is_noted(change, noted):
    numbers, notes = open_clip.describe(_changed("preprocess_cfg", change), "x")
    assert numbers == NUMBERS
    assert notes == [f"preprocess_cfg says {noted}"]


def test_both_towers_may_name_one_epsilon():
    config = _changed("vision_cfg", {"norm_kwargs": {"eps": 1e-6}})
    with pytest.raises(types.UserError, match="eps 1e-06 for pictures and 1e-05 for texts"):
        open_clip.describe(config, "x")
    config["model_cfg"]["text_cfg"]["norm_kwargs"] = {"eps": 1e-6}
    assert open_clip.describe(config, "x") == ({**NUMBERS, "layer_norm_eps": 1e-6}, [])


@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        ("vision_cfg", {"timm_model_name": "vit_b", "layers": 0}, r"picture tower of timm \(vit_b"),
        ("vision_cfg", {"layers": [3, 4, 6, 3]}, "x is a ResNet CLIP"),
        ("text_cfg", {"hf_model_name": "roberta-base"}, r"text tower of Hugging Face \(roberta-b"),
        ("model_cfg", {"multimodal_cfg": {"width": 512}}, "x is a CoCa model"),
        ("model_cfg", {"init_logit_bias": -10}, "x is a SigLIP model"),
        ("model_cfg", {"init_logit_bias": 0}, "x is a SigLIP model"),
    ],
)
def test_other_families_are_refused_by_name(where, change, message):
    with pytest.raises(types.UserError, match=f"{message}.*this package reads CLIP") as caught:
        open_clip.describe(_changed(where, change), "x")
    assert "\n" not in str(caught.value)


REFUSED = {
    "vision_cfg": {
        "ls_init_value": 0.0,
        "attentional_pool": "parallel",
        "no_ln_pre": True,
        "pos_embed_type": "sin_cos_2d",
        "final_ln_after_pool": True,
        "pool_type": "avg",
        "act_kwargs": {"approximate": "tanh"},
        "block_type": "custom",
        "qk_norm": True,
        "scaled_cosine_attn": True,
        "scale_heads": True,
        "scale_attn_inner": True,
        "scale_attn": True,
        "scale_fc": True,
        "input_patchnorm": True,
        "global_average_pool": True,
        "something_new": 0,
    },
    "text_cfg": {
        "ls_init_value": 1e-4,
        "embed_cls": True,
        "no_causal_mask": True,
        "final_ln_after_pool": True,
        "pool_type": "last",
        "proj_bias": True,
        "proj_type": "none",
        "act_kwargs": {"approximate": "tanh"},
        "hf_tokenizer_name": "bert-base-uncased",
        "tokenizer_kwargs": {"clean": "canonicalize"},
        "tokenizer_mode": "clips",
        "use_pad_mask": True,
        "something_new": "x",
    },
    "model_cfg": {"something_new": 1, "act_kwargs": {"a": 1}},
}


@pytest.mark.parametrize(
    ("where", "key"), [(where, key) for where, keys in REFUSED.items() for key in keys]
)
def test_what_is_not_computed_here_is_refused_by_name(where, key):
    value = REFUSED[where][key]
    with pytest.raises(types.UserError, match="x asks for what this package does not") as caught:
        open_clip.describe(_changed(where, {key: value}), "x")
    assert f"{where}.{key} = {value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        ("model_cfg", {"embed_dim": None}, "x has no embed_dim, so it is no config of open_clip"),
        ("model_cfg", {"embed_dim": "10"}, "embed_dim is '10', but must be a whole number"),
        ("model_cfg", {"vision_cfg": None, "text_cfg": None}, "no vision_cfg and no text_cfg"),
        ("model_cfg", {"text_cfg": "small"}, "text_cfg is 'small', but must be a JSON object"),
        ("model_cfg", {"quick_gelu": "no"}, "quick_gelu is 'no', but must be true or false"),
        ("vision_cfg", {"head_width": 20}, "width is 48, but must be a multiple of head_width, 20"),
        ("vision_cfg", {"image_size": [24, 32]}, r"image_size is \[24, 32\].* only squares"),
        ("vision_cfg", {"patch_size": None}, "patch_size is None"),
        ("vision_cfg", {"mlp_ratio": 0}, "mlp_ratio is 0, but must be a number above 0"),
        ("vision_cfg", {"norm_kwargs": {"bias": False}}, "norm_kwargs has bias; .* only eps"),
        ("text_cfg", {"heads": 0}, "x: model_cfg: text_cfg: heads is 0"),
        ("text_cfg", {"layers": 2.0}, "layers is 2.0, but must be a whole number"),
        (
            "preprocess_cfg",
            {"mean": [0.5]},
            r"mean is \[0.5\], but must be thr",
        ),
    ],
)
def test_a_wrong_value_is_one_line(where, change, message):
    with pytest.raises(types.UserError, match=message) as caught:
        open_clip.describe(_changed(where, change), "x")
    assert "\n" not in str(caught.value)


def _tensors(text):
    """A model of one layer per tower in open_clip's names; each value another one."""
    rng = np.random.default_rng(2)
    shapes = {
        "visual.conv1.weight": (8, 3, 2, 2),
        "visual.class_embedding": (8,),
        "visual.positional_embedding": (5, 8),
        "visual.proj": (8, 6),
        f"{text}token_embedding.weight": (11, 4),
        f"{text}positional_embedding": (7, 4),
        f"{text}text_projection": (4, 6),
        "logit_scale": (),
    }
    for name, width in (("visual.ln_pre", 8), ("visual.ln_post", 8), (f"{text}ln_final", 4)):
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    for prefix, width in (("visual.", 8), (text, 4)):
        block = f"{prefix}transformer.resblocks.0"
        shapes |= {
            f"{block}.attn.in_proj_weight": (3 * width, width),
            f"{block}.attn.in_proj_bias": (3 * width,),
        }
        for name, size, inputs in (
            ("attn.out_proj", width, width),
            ("mlp.c_fc", 5, width),
            ("mlp.c_proj", width, 5),
        ):
            shapes |= {f"{block}.{name}.weight": (size, inputs), f"{block}.{name}.bias": (size,)}
        for name in ("ln_1", "ln_2"):
            shapes |= {f"{block}.{name}.weight": (width,), f"{block}.{name}.bias": (width,)}
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("text", "layout"),
    [("", open_clip.RULES), ("text.", open_clip.CUSTOM_TEXT_RULES)],
    ids=["plain", "custom text"],
)
def test_tensors_go_there_and_back(text, layout):
    tensors = _tensors(text)
    decoded = rules.decode(
        {**tensors, f"{text}attn_mask": np.zeros((7, 7))}, layout, open_clip.IGNORED, "x"
    )
    assert decoded.ignored == (f"{text}attn_mask",)
    joined = tensors[f"{text}transformer.resblocks.0.attn.in_proj_weight"]
    np.testing.assert_array_equal(decoded.arrays["text/blocks_00/attn/key/kernel"], joined[4:8].T)
    np.testing.assert_array_equal(decoded.arrays["text/proj"], tensors[f"{text}text_projection"])
    np.testing.assert_array_equal(
        decoded.arrays["image/blocks_00/mlp/fc_in/kernel"],
        tensors["visual.transformer.resblocks.0.mlp.c_fc.weight"].T,
    )
    back = rules.encode(decoded.arrays, layout)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert np.asarray(back[name]).tobytes() == tensor.tobytes(), name


def test_the_two_layouts_are_not_taken_for_each_other():
    with pytest.raises(types.UserError, match=r"missing \(ln_final.bias, .*left over \(text\."):
        rules.decode(_tensors("text."), open_clip.RULES, open_clip.IGNORED, "x")


@pytest.mark.parametrize("name", ["logit_bias", "visual.attn_mask", "text.cls_emb", "cross_net.a"])
def test_another_tensor_is_not_passed_over(name):
    with pytest.raises(types.UserError, match=rf"1 left over \({name}\)"):
        rules.decode({**_tensors(""), name: np.zeros(1)}, open_clip.RULES, open_clip.IGNORED, "x")
