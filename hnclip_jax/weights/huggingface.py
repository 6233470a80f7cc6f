"""Hugging Face's CLIPModel: the names of its tensors, and what its config files say.

Versions 4 and 5 of transformers use the same names.
"""

from collections.abc import Mapping
from typing import Any

from hnclip_jax import types
from hnclip_jax.weights import families, huggingface_files, rules, values

IGNORED = r"(text_model|vision_model)\.embeddings\.position_ids"
"""Buffers of older versions: the numbers 0, 1, 2, ... ."""

ACTIVATIONS = ("quick_gelu", "gelu")
"""Names that mean the same there and here; their "gelu" is the exact one too."""

_FAMILIES = {
    "align": "ALIGN",
    "altclip": "AltCLIP",
    "blip": "BLIP",
    "blip-2": "BLIP-2",
    "chinese_clip": "Chinese-CLIP",
    "clap": "CLAP",
    "clip": "CLIP",
    "clipseg": "CLIPSeg",
    "clvp": "CLVP",
    "flava": "FLAVA",
    "groupvit": "GroupViT",
    "jina_clip": "Jina CLIP",
    "metaclip_2": "MetaCLIP 2",
    "mlcd": "MLCD",
    "owlv2": "OWLv2",
    "owlvit": "OWL-ViT",
    "siglip": "SigLIP",
    "siglip2": "SigLIP 2",
    "vision-text-dual-encoder": "VisionTextDualEncoder",
    "xclip": "X-CLIP",
}
_HALVES = {
    "CLIPTextModel": "text tower",
    "CLIPTextModelWithProjection": "text tower",
    "CLIPVisionModel": "picture tower",
    "CLIPVisionModelWithProjection": "picture tower",
    "CLIPForImageClassification": "picture tower",
}
_DEFAULTS = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
_TEXT_DEFAULTS = {
    **_DEFAULTS,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "vocab_size": 49408,
}
_VISION_DEFAULTS = {
    **_DEFAULTS,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
    "num_channels": 3,
}
_STALE_END_ID = 2


def _tower(prefix: str, tower: str) -> tuple[rules.Rule, ...]:
    theirs = prefix + ".encoder.layers.{layer}"
    ours = tower + "/blocks_{layer:02d}"
    return (
        *rules.dense(f"{theirs}.self_attn.q_proj", f"{ours}/attn/query"),
        *rules.dense(f"{theirs}.self_attn.k_proj", f"{ours}/attn/key"),
        *rules.dense(f"{theirs}.self_attn.v_proj", f"{ours}/attn/value"),
        *rules.dense(f"{theirs}.self_attn.out_proj", f"{ours}/attn/out"),
        *rules.norm(f"{theirs}.layer_norm1", f"{ours}/ln_1"),
        *rules.dense(f"{theirs}.mlp.fc1", f"{ours}/mlp/fc_in"),
        *rules.dense(f"{theirs}.mlp.fc2", f"{ours}/mlp/fc_out"),
        *rules.norm(f"{theirs}.layer_norm2", f"{ours}/ln_2"),
    )


_IMAGE, _TEXT = "vision_model.embeddings", "text_model.embeddings"

RULES: tuple[rules.Rule, ...] = (
    rules.one("logit_scale", "logit_scale", rules.SCALAR),
    rules.one(f"{_IMAGE}.class_embedding", "image/class_embedding", rules.VECTOR),
    rules.one(f"{_IMAGE}.patch_embedding.weight", "image/patch_embed/kernel", rules.PATCHES),
    rules.one(f"{_IMAGE}.position_embedding.weight", "image/position_embedding", rules.TABLE),
    # Their spelling.
    *rules.norm("vision_model.pre_layrnorm", "image/ln_pre"),
    *_tower("vision_model", "image"),
    *rules.norm("vision_model.post_layernorm", "image/ln_post"),
    # Linear layers here, bare matrices in OpenAI's files: so transposed, unlike there.
    rules.one("visual_projection.weight", "image/proj", rules.MATRIX),
    rules.one(f"{_TEXT}.token_embedding.weight", "text/token_embedding", rules.TABLE),
    rules.one(f"{_TEXT}.position_embedding.weight", "text/position_embedding", rules.TABLE),
    *_tower("text_model", "text"),
    *rules.norm("text_model.final_layer_norm", "text/ln_final"),
    rules.one("text_projection.weight", "text/proj", rules.MATRIX),
)


def describe(
    config: Mapping[str, Any], preprocessor: Mapping[str, Any] | None, source: str
) -> tuple[dict[str, Any], list[str]]:
    """Returns what a model's config files tell, and what is odd about them.

    Args:
      config: config.json; missing keys have the values that transformers gives them.
      preprocessor: preprocessor_config.json, or the processor_config.json that holds it; None if
        there is no such file.
      source: what to call config.json in messages.

    Returns:
      Fields of models.presets.ModelConfig, pixel_mean and pixel_std only where they are stated;
      and notes, a sentence each.

    Raises:
      types.UserError: if it is another family, half a model, or computes something else.
    """
    _check_family(config, source)
    whole = values.Section(source, config)
    text, notes = _tower_config(whole, "text", _TEXT_DEFAULTS)
    vision, more = _tower_config(whole, "vision", _VISION_DEFAULTS)
    numbers = {
        **_sizes(text, "text", _TEXT_DEFAULTS),
        "context_length": text.whole("max_position_embeddings", 77),
        "vocab_size": text.whole("vocab_size", 49408),
        **_sizes(vision, "vision", _VISION_DEFAULTS),
        "image_size": vision.square("image_size", 224),
        "patch_size": vision.square("patch_size", 32),
        "embed_dim": whole.whole("projection_dim", 512),
        **_shared(text, vision, source),
    }
    if (channels := vision.whole("num_channels", 3)) != 3:
        raise types.UserError(
            f"{source} is for pictures of {channels} channels; {families.SUPPORTED}"
        )
    notes += more + _check_end_id(text, numbers["vocab_size"])
    if preprocessor is None:
        return numbers, notes
    pixels, more = _preprocessing(preprocessor, numbers["image_size"])
    return {**numbers, **pixels}, notes + more


sidecars = huggingface_files.sidecars
"""Returns the files that transformers needs beside the weights; see `huggingface_files`."""


def _check_family(config: Mapping[str, Any], source: str) -> None:
    architectures = config.get("architectures")
    architectures = list(map(str, architectures)) if isinstance(architectures, list) else []
    kind = config.get("model_type", "clip" if "CLIPModel" in architectures else None)
    if kind is None:
        raise types.UserError(
            f"{source} has no model_type, so it is no config.json of transformers; "
            f"{families.SUPPORTED}"
        )
    kind = str(kind)
    for end, half in (("_text_model", "text tower"), ("_vision_model", "picture tower")):
        if kind.endswith(end):
            family = _FAMILIES.get(kind.removesuffix(end), kind)
            raise types.UserError(f"{source} is the {half} of {family} alone; {families.SUPPORTED}")
    if kind != "clip":
        family = _FAMILIES.get(kind, repr(kind))
        raise types.UserError(f"{source} is of another family, {family}; {families.SUPPORTED}")
    for name in architectures:
        if name in _HALVES:
            raise types.UserError(
                f"{source} is a {name}, the {_HALVES[name]} of CLIP alone; {families.SUPPORTED}"
            )


def _tower_config(
    config: values.Section, tower: str, defaults: Mapping[str, Any]
) -> tuple[values.Section, list[str]]:
    """Returns the object that counts for a tower, and a note if another one says otherwise."""
    new, old = config.section(f"{tower}_config"), config.section(f"{tower}_config_dict")
    if config.values.get(f"{tower}_config_dict") is None:
        return new, []
    # As in transformers: the key of old files overrules the other, with its defaults too.
    differing = [
        f"{key} {old.values.get(key, default)!r}, not {new.values[key]!r}"
        for key, default in defaults.items()
        if key in new.values and new.values[key] != old.values.get(key, default)
    ]
    if not differing:
        return old, []
    return old, [f"{tower}_config_dict overrules {tower}_config: {'; '.join(differing)}"]


def _sizes(section: values.Section, tower: str, defaults: Mapping[str, Any]) -> dict[str, int]:
    return {
        f"{tower}_{ours}": section.whole(key, defaults[key])
        for key, ours in huggingface_files.SIZES.items()
    }


def _shared(text: values.Section, vision: values.Section, source: str) -> dict[str, Any]:
    """Returns what both towers must have in common."""
    found = {}
    for key, default in _DEFAULTS.items():
        own = [section.values.get(key, default) for section in (text, vision)]
        if own[0] != own[1]:
            raise types.UserError(
                f"{source} says {key} {own[0]!r} for texts and {own[1]!r} for pictures; this "
                "package computes both towers with the same"
            )
        found[key] = own[0]
    if found["hidden_act"] not in ACTIVATIONS:
        raise types.UserError(
            f"{source} says hidden_act {found['hidden_act']!r}; this package computes "
            f"{' and '.join(ACTIVATIONS)}, and with another one every embedding would be off"
        )
    return {
        "activation": found["hidden_act"],
        "layer_norm_eps": text.positive("layer_norm_eps", _DEFAULTS["layer_norm_eps"]),
    }


def _check_end_id(text: values.Section, vocab_size: int) -> list[str]:
    end_id = text.values.get("eos_token_id")
    if end_id in (None, vocab_size - 1):
        return []
    if end_id == _STALE_END_ID:
        return [f"eos_token_id is {end_id}, a slip of older files; {vocab_size - 1} ends a text"]
    raise types.UserError(
        f"{text.name}: eos_token_id is {end_id!r}, but CLIP's embedding of a text stands where the "
        f"last id of the vocabulary is, {vocab_size - 1}; another tokenizer is not supported"
    )


def _preprocessing(
    preprocessor: Mapping[str, Any], image_size: int
) -> tuple[dict[str, Any], list[str]]:
    """Returns the pixel statistics, and notes on what this package does otherwise."""
    section = values.Section("preprocessor_config.json", preprocessor)
    if "image_processor" in preprocessor:
        section = section.section("image_processor")
    said = {**huggingface_files.picture_settings(_VISION_DEFAULTS["image_size"]), **section.values}
    for key in ("size", "crop_size"):  # Older files hold plain numbers.
        if isinstance(said[key], int):
            said[key] = huggingface_files.picture_settings(said[key])[key]
    notes = [
        f"preprocessor_config.json says {key} {said[key]!r}; this package uses {ours!r}"
        for key, ours in huggingface_files.picture_settings(image_size).items()
        if said[key] != ours
    ]
    if not said.get("do_normalize", True):
        return {"pixel_mean": (0.0, 0.0, 0.0), "pixel_std": (1.0, 1.0, 1.0)}, notes
    pixels = {f"pixel_{name}": section.triple(f"image_{name}") for name in ("mean", "std")}
    return {key: value for key, value in pixels.items() if value is not None}, notes
