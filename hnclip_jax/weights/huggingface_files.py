"""The files that make a folder with model.safetensors one that transformers opens as it stands."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hnclip_jax import types

# theirs -> the end of our field's name.
SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_width",
}
_BICUBIC = 3
_BEGIN, _END = "<|startoftext|>", "<|endoftext|>"


class Vocabulary(Protocol):
    """What fixes the ids of a byte-pair tokenizer."""

    @property
    def symbols(self) -> Sequence[str]:
        """In the order of their ids; the last two are the begin and the end mark."""

    @property
    def merges(self) -> Sequence[str]:
        """Pairs "left right", the earliest first."""


def sidecars(
    numbers: Mapping[str, Any], dtype: str, vocabulary: Vocabulary | None
) -> dict[str, str]:
    """Returns file name -> content, to be written as UTF-8.

    With them `CLIPModel.from_pretrained` and `CLIPProcessor.from_pretrained` open the folder, in
    transformers from 4.40 on; texts are cut and padded to the context length.

    Args:
      numbers: all fields of models.presets.ModelConfig.
      dtype: of the weights: "float32", "float16" or "bfloat16".
      vocabulary: of the tokenizer; None = no files for it, so that the folder has no processor.

    Raises:
      types.UserError: if the vocabulary is not of the size that the model has.
    """
    size = numbers["image_size"]
    files = {
        "config.json": _config(numbers, dtype),
        "preprocessor_config.json": {
            "image_processor_type": "CLIPImageProcessor",
            "processor_class": "CLIPProcessor",
            "do_convert_rgb": True,
            **picture_settings(size),
            "do_normalize": True,
            "image_mean": list(numbers["pixel_mean"]),
            "image_std": list(numbers["pixel_std"]),
        },
    }
    if vocabulary is None:
        return {name: _json(value) for name, value in files.items()}
    if len(vocabulary.symbols) != numbers["vocab_size"]:
        raise types.UserError(
            f"the vocabulary has {len(vocabulary.symbols)} symbols, but the model "
            f"{numbers['vocab_size']}; give the vocabulary that it was trained with, or none"
        )
    files |= _tokenizer(vocabulary, numbers["context_length"])
    merges = "\n".join(["#version: 0.2", *vocabulary.merges, ""])
    return {name: _json(value) for name, value in files.items()} | {"merges.txt": merges}


def picture_settings(image_size: int) -> dict[str, Any]:
    """Returns how this package, and CLIP, makes the input of a picture, in transformers' words."""
    return {
        "do_resize": True,
        "resample": _BICUBIC,
        "size": {"shortest_edge": image_size},
        "do_center_crop": True,
        "crop_size": {"height": image_size, "width": image_size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
    }


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _config(numbers: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    end_id = numbers["vocab_size"] - 1
    return {
        "architectures": ["CLIPModel"],
        "model_type": "clip",
        "projection_dim": numbers["embed_dim"],
        "text_config": {
            "model_type": "clip_text_model",
            **_tower(numbers, "text"),
            "max_position_embeddings": numbers["context_length"],
            "vocab_size": numbers["vocab_size"],
            "bos_token_id": end_id - 1,
            "eos_token_id": end_id,
            # As the tokenizer pads; texts are read at the first end token, so nothing sees it.
            "pad_token_id": end_id,
        },
        "vision_config": {
            "model_type": "clip_vision_model",
            **_tower(numbers, "vision"),
            "image_size": numbers["image_size"],
            "patch_size": numbers["patch_size"],
            "num_channels": 3,
        },
        # Version 5 reads the first, version 4 the second.
        "dtype": dtype,
        "torch_dtype": dtype,
    }


def _tower(numbers: Mapping[str, Any], tower: str) -> dict[str, Any]:
    return {
        **{theirs: numbers[f"{tower}_{ours}"] for theirs, ours in SIZES.items()},
        "projection_dim": numbers["embed_dim"],
        "hidden_act": numbers["activation"],
        "layer_norm_eps": numbers["layer_norm_eps"],
        "attention_dropout": 0.0,
    }


def _tokenizer(vocabulary: Vocabulary, context_length: int) -> dict[str, Any]:
    marks = {"bos_token": _BEGIN, "eos_token": _END, "unk_token": _END, "pad_token": _END}
    return {
        "vocab.json": {symbol: index for index, symbol in enumerate(vocabulary.symbols)},
        "special_tokens_map.json": marks,
        "tokenizer_config.json": {
            "tokenizer_class": "CLIPTokenizer",
            "processor_class": "CLIPProcessor",
            **marks,
            "model_max_length": context_length,
            "do_lower_case": True,
            "add_prefix_space": False,
            "errors": "replace",
        },
    }
