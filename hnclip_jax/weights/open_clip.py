"""open_clip: OpenAI's names, and the config that says how the model computes.

Its config switches on much that this package does not compute. So nothing in it is passed over:
every key is read, known to change nothing, or refused by name.
"""

import math
from collections.abc import Mapping
from typing import Any

from hnclip_jax import types
from hnclip_jax.weights import openai, rules, values

RULES: tuple[rules.Rule, ...] = openai.rules_for()

CUSTOM_TEXT_RULES: tuple[rules.Rule, ...] = openai.rules_for("text.")
"""Its CustomTextCLIP: the same model, whose text tower is a module of its own."""

IGNORED = r"input_resolution|context_length|vocab_size|(text\.)?attn_mask"
"""Numbers that repeat sizes, and the causal mask."""

NAMES: dict[str, tuple[str, str]] = {
    "ViT-B-32": ("ViT-B/32", "gelu"),
    "ViT-B-32-quickgelu": ("ViT-B/32", "quick_gelu"),
    "ViT-B-16": ("ViT-B/16", "gelu"),
    "ViT-B-16-quickgelu": ("ViT-B/16", "quick_gelu"),
    "ViT-L-14": ("ViT-L/14", "gelu"),
    "ViT-L-14-quickgelu": ("ViT-L/14", "quick_gelu"),
    "ViT-L-14-336": ("ViT-L/14@336", "gelu"),
    "ViT-L-14-336-quickgelu": ("ViT-L/14@336", "quick_gelu"),
    "ViT-H-14": ("ViT-H/14", "gelu"),
    "ViT-H-14-quickgelu": ("ViT-H/14", "quick_gelu"),
    "ViT-g-14": ("ViT-g/14", "gelu"),
    "ViT-bigG-14": ("ViT-bigG/14", "gelu"),
    "ViT-bigG-14-quickgelu": ("ViT-bigG/14", "quick_gelu"),
}
"""Its name of an architecture -> the preset of models.presets, and the activation."""

_EPS = 1e-5
_HEAD_WIDTH = 64
_MLP_RATIO = 4.0

# Read below.
_READ = {
    "model_cfg": {"embed_dim", "quick_gelu", "vision_cfg", "text_cfg"},
    "vision_cfg": {
        *("width", "layers", "head_width", "mlp_ratio", "patch_size", "image_size"),
        *("norm_kwargs", "patch_dropout"),
    },
    "text_cfg": {
        *("width", "layers", "heads", "mlp_ratio", "context_length", "vocab_size"),
        "norm_kwargs",
    },
}
# Change no embedding: how a model starts, what it returns, how its modules are nested; and
# settings of parts that are refused by their own key when they are there.
_FREE = {
    "model_cfg": {"custom_text", "output_dict", "init_logit_scale", "nonscalar_logit_scale"},
    "vision_cfg": {
        *("output_tokens", "attn_pooler_queries", "attn_pooler_heads"),
        *("timm_model_pretrained", "timm_pool", "timm_proj", "timm_proj_bias"),
        *("timm_drop", "timm_drop_path"),
    },
    "text_cfg": {
        *("output_tokens", "pad_id", "eos_id"),
        *("hf_model_pretrained", "hf_proj_type", "hf_pooler_type"),
    },
}
# What the rest must be, if it is neither null, false nor empty.
_PLAIN = {
    "vision_cfg": {"pool_type": "tok", "pos_embed_type": "learnable", "block_type": "default"},
    "text_cfg": {"pool_type": "argmax", "proj_type": "linear", "block_type": "default"},
}
_PREPROCESSING = {"interpolation": "bicubic", "resize_mode": "shortest", "mode": "RGB"}


def describe(config: Mapping[str, Any], source: str) -> tuple[dict[str, Any], list[str]]:
    """Returns what a config tells, and what is odd about it.

    Args:
      config: open_clip_config.json, or one of open_clip's model_configs; missing keys have the
        values that open_clip gives them.
      source: what to call it in messages.

    Returns:
      Fields of models.presets.ModelConfig, pixel_mean and pixel_std only where they are stated;
      and notes, a sentence each.

    Raises:
      types.UserError: if it is another family, or computes something else.
    """
    whole = values.Section(source, config)
    model = whole.section("model_cfg") if "model_cfg" in config else whole
    needed = ("embed_dim", "vision_cfg", "text_cfg")
    if missing := [key for key in needed if model.values.get(key) is None]:
        raise types.UserError(
            f"{source} has no {' and no '.join(missing)}, so it is no config of open_clip"
        )
    vision, text = model.section("vision_cfg"), model.section("text_cfg")
    _check_family(model.values, vision.values, text.values, source)
    _check_settings({"model_cfg": model, "vision_cfg": vision, "text_cfg": text}, source)
    numbers = {
        **_sizes(vision, "vision", width=768),
        "vision_heads": _heads(vision),
        "patch_size": vision.square("patch_size", 16),
        "image_size": vision.square("image_size", 224),
        **_sizes(text, "text", width=512),
        "text_heads": text.whole("heads", 8),
        "context_length": text.whole("context_length", 77),
        "vocab_size": text.whole("vocab_size", 49408),
        "embed_dim": model.whole("embed_dim"),
        "activation": "quick_gelu" if model.switch("quick_gelu") else "gelu",
        "layer_norm_eps": _layer_norm_eps(vision, text, source),
    }
    pixels, notes = _preprocessing(whole.section("preprocess_cfg"))
    if vision.values.get("patch_dropout"):
        notes.append("patch_dropout is left out: open_clip drops patches in training only")
    return {**numbers, **pixels}, notes


def config(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns open_clip_config.json for a model.

    Args:
      numbers: all fields of models.presets.ModelConfig.
    """
    norm = {} if numbers["layer_norm_eps"] == _EPS else {"eps": numbers["layer_norm_eps"]}
    norm = {"norm_kwargs": norm} if norm else {}
    return {
        "model_cfg": {
            "embed_dim": numbers["embed_dim"],
            "quick_gelu": numbers["activation"] == "quick_gelu",
            "vision_cfg": {
                "image_size": numbers["image_size"],
                "patch_size": numbers["patch_size"],
                **_tower(numbers, "vision"),
                "head_width": numbers["vision_width"] // numbers["vision_heads"],
                **norm,
            },
            "text_cfg": {
                "context_length": numbers["context_length"],
                "vocab_size": numbers["vocab_size"],
                **_tower(numbers, "text"),
                "heads": numbers["text_heads"],
                **norm,
            },
        },
        "preprocess_cfg": {
            "mean": list(numbers["pixel_mean"]),
            "std": list(numbers["pixel_std"]),
            **{key: _PREPROCESSING[key] for key in ("interpolation", "resize_mode")},
        },
    }


def _tower(numbers: Mapping[str, Any], tower: str) -> dict[str, Any]:
    width, mlp_width = numbers[f"{tower}_width"], numbers[f"{tower}_mlp_width"]
    sizes = {"width": width, "layers": numbers[f"{tower}_layers"]}
    ratio = mlp_width / width
    if int(width * ratio) < mlp_width:
        # The product fell just short, and open_clip cuts it.
        ratio = math.nextafter(ratio, math.inf)
    # Older versions know no ratio for texts: so it is left out where it is the usual one.
    return sizes if ratio == _MLP_RATIO else {**sizes, "mlp_ratio": ratio}


def _check_family(
    model: Mapping[str, Any], vision: Mapping[str, Any], text: Mapping[str, Any], source: str
) -> None:
    if model.get("multimodal_cfg") is not None:
        what = "is a CoCa model"
    elif model.get("init_logit_bias") is not None:
        what = "is a SigLIP model (init_logit_bias)"
    elif vision.get("timm_model_name"):
        what = f"has a picture tower of timm ({vision['timm_model_name']})"
    elif isinstance(vision.get("layers"), list | tuple):
        what = "is a ResNet CLIP"
    elif text.get("hf_model_name"):
        what = f"has a text tower of Hugging Face ({text['hf_model_name']})"
    else:
        return
    raise types.UserError(f"{source} {what}; of open_clip this package reads CLIP with ViT towers")


def _check_settings(sections: Mapping[str, values.Section], source: str) -> None:
    refused = [
        f"{name}.{key} = {value!r}"
        for name, section in sections.items()
        for key, value in section.values.items()
        if key not in _READ[name] | _FREE[name]
        and not _is_off(value)
        and value != _PLAIN.get(name, {}).get(key)
    ]
    if refused:
        raise types.UserError(
            f"{source} asks for what this package does not compute: {types.at_most_ten(refused)}; "
            "without it every embedding would be off"
        )


def _is_off(value: Any) -> bool:
    # 0 is not off: a layer scale of 0, for instance, is one.
    return value is None or value is False or value == "" or value == {}


def _sizes(section: values.Section, tower: str, width: int) -> dict[str, int]:
    width = section.whole("width", width)
    return {
        f"{tower}_width": width,
        f"{tower}_layers": section.whole("layers", 12),
        f"{tower}_mlp_width": int(width * section.positive("mlp_ratio", _MLP_RATIO)),
    }


def _heads(vision: values.Section) -> int:
    width, head_width = vision.whole("width", 768), vision.whole("head_width", _HEAD_WIDTH)
    if width % head_width:
        raise types.UserError(
            f"{vision.name}: width is {width}, but must be a multiple of head_width, {head_width}"
        )
    return width // head_width


def _layer_norm_eps(vision: values.Section, text: values.Section, source: str) -> float:
    own = []
    for section in (vision, text):
        norm = section.section("norm_kwargs")
        if unknown := norm.values.keys() - {"eps"}:
            raise types.UserError(
                f"{norm.name} has {types.at_most_ten(sorted(unknown))}; this package knows only eps"
            )
        own.append(norm.positive("eps", _EPS))
    if own[0] != own[1]:
        raise types.UserError(
            f"{source} says eps {own[0]} for pictures and {own[1]} for texts; "
            "this package computes both towers with the same"
        )
    return own[0]


def _preprocessing(section: values.Section) -> tuple[dict[str, Any], list[str]]:
    """Returns the pixel statistics, and notes on what this package does otherwise."""
    notes = [
        f"preprocess_cfg says {key} {section.values[key]!r}; this package uses {ours!r}"
        for key, ours in _PREPROCESSING.items()
        if section.values.get(key, ours) not in (None, ours)
    ]
    pixels = {f"pixel_{name}": section.triple(name) for name in ("mean", "std")}
    return {key: value for key, value in pixels.items() if value is not None}, notes
