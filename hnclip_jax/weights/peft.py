"""Adapters of the peft library on transformers' CLIPModel: its folders <-> our arrays by path.

A folder is adapter_config.json and adapter_model.safetensors (.bin in older versions), with
``base_model.model.text_model.encoder.layers.0.self_attn.q_proj.lora_A.weight`` [r, in],
``lora_B.weight`` [out, r] and, with DoRA, ``lora_magnitude_vector`` [out].
"""

import json
import math
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hnclip_jax import types
from hnclip_jax.weights import adapter_file, export, files, huggingface, rules, stored, values
from hnclip_jax.weights.containers import faults

CONFIG = "adapter_config.json"
FILE_NAMES = ("adapter_model.safetensors", "adapter_model.bin")

_PREFIX = "base_model.model."
_MODULES = {
    rule.ours[0]: rule.theirs[0].removesuffix(".weight")
    for rule in huggingface.RULES
    if rule.form is rules.MATRIX and rule.ours[0].endswith("/kernel")
}
"""Our path -> their module, with "{layer}" in both; all that peft sees as linear layers."""

_ENDINGS = {"a": "lora_A.weight", "b": "lora_B.weight", "magnitude": "lora_magnitude_vector"}
_PARTS = {
    **{ending: part for part, ending in _ENDINGS.items()},
    # The name in memory, which some programs write.
    "lora_magnitude_vector.weight": "magnitude",
}

_CHECKED = {
    "peft_type",
    "r",
    "lora_alpha",
    "rank_pattern",
    "alpha_pattern",
    "use_dora",
    "use_rslora",
    "bias",
    "init_lora_weights",
}
_ELSEWHERE = {
    # Where the adapter came from, and how it was trained.
    *("auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision"),
    *("corda_config", "ensure_weight_tying", "eva_config", "loftq_config", "lora_dropout"),
    *("lora_ga_config", "megatron_core", "qalora_group_size", "runtime_config", "task_type"),
    # Which layers have one: the tensors tell.
    *("exclude_modules", "layers_pattern", "layers_to_transform", "target_modules"),
    # Of CLIP's layers, which are stored (out, in), peft takes it as false and warns.
    "fan_in_fan_out",
}
"""Keys of the config that change nothing about what the tensors mean."""

_INITS = (True, False, None, "gaussian", "eva", "orthogonal", "mica")
"""How A and B began; peft's other ways also change the weights below them."""


def write(
    path: str | pathlib.Path,
    arrays: rules.Arrays,
    *,
    rank: int,
    alpha: float,
    dora: bool,
    base: str = "",
) -> list[pathlib.Path]:
    """Writes a folder that `peft.PeftModel.from_pretrained` puts on a CLIPModel; returns the files.

    Args:
      path: the folder; what is there of such files goes.
      arrays, rank, alpha, dora: see `adapter_file.Contents`.
      base: name or path of the CLIPModel, for people and for peft's own loaders.

    Raises:
      types.UserError: if these are no whole adapter, one is on what is no linear layer of a
        CLIPModel, or the place cannot be written.
    """
    named, modules, unknown = {}, set(), []
    for name, array in adapter_file.check(arrays, rank, dora, "the adapter").items():
        kernel, _, part = name.rpartition("/")
        module = _module(kernel)
        if module is None:
            unknown.append(kernel)
            continue
        modules.add(module)
        named[f"{_PREFIX}{module}.{_ENDINGS[part]}"] = np.ascontiguousarray(array.T)
    if unknown:
        shown = types.at_most_ten(sorted(set(unknown)))
        raise types.UserError(
            f"peft's format has no place for adapters of {shown}; keep this one as "
            f"{adapter_file.FILE_NAME}, or merge it"
        )
    folder = pathlib.Path(path)
    if folder.is_file() or folder.suffix in (".safetensors", ".bin"):
        raise types.UserError(f"an adapter for peft is a folder, but {path} names a file")
    config = json.dumps(_config(modules, rank, alpha, dora, base), indent=2) + "\n"
    with export.placed(folder, {CONFIG: config}):
        files.write_safetensors(folder / FILE_NAMES[0], named, {"format": "pt"})
    return [folder / FILE_NAMES[0], folder / CONFIG]


def locate(path: str | pathlib.Path) -> pathlib.Path | None:
    """Returns the tensors of a peft adapter that a path leads to, None if to no such file.

    Args:
      path: the folder, or the file of tensors in it.
    """
    path = pathlib.Path(path)
    places = [path / name for name in FILE_NAMES] if path.is_dir() else [path]
    for file in places:
        if file.name in FILE_NAMES and file.is_file() and file.with_name(CONFIG).is_file():
            return file
    return None


def read(path: str | pathlib.Path) -> adapter_file.Contents:
    """Returns a LoRA or DoRA adapter that peft trained on a CLIPModel, or on one of its towers.

    alpha is such that alpha / rank is the scale, also with use_rslora (alpha / sqrt(rank) there).

    Args:
      path: the folder, or the file of tensors in it.

    Raises:
      types.UserError: if there is none; it is of another kind or another model; ranks or scales
        differ between layers; or it holds what is no part of an adapter, as biases and whole
        modules.
    """
    file = locate(path)
    if file is None:
        raise types.UserError(f"no adapter of peft at {path}; it needs {CONFIG}, {FILE_NAMES[0]}")
    source = file.with_name(CONFIG)
    config = _json(source)
    _refuse(config, source)
    section = values.Section(str(source), config)
    arrays, modules = _decode(files.read(file).tree, file)
    rank, alpha = _sizes(section, modules)
    dora = section.switch("use_dora")
    arrays = adapter_file.check(arrays, rank, dora, str(file))
    base = config.get("base_model_name_or_path")
    note = {"base_model_name_or_path": base} if isinstance(base, str) else {}
    return adapter_file.Contents(arrays, rank, alpha, dora, note=note)


def _config(
    modules: Iterable[str], rank: int, alpha: float, dora: bool, base: str
) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "auto_mapping": {
            "base_model_class": "CLIPModel",
            "parent_library": "transformers.models.clip.modeling_clip",
        },
        "base_model_name_or_path": base or None,
        "task_type": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "modules_to_save": None,
        # Whole names: an ending would also match the other tower, which may have none.
        "target_modules": sorted(modules),
        "use_dora": dora,
        "use_rslora": False,
    }


def _module(kernel: str) -> str | None:
    """Returns their module of our ``text/blocks_03/attn/query/kernel``, None if they lack it."""
    match = re.fullmatch(r"(\w+)/blocks_(\d+)/(.+)", kernel)
    module = match and _MODULES.get(f"{match[1]}/blocks_{{layer:02d}}/{match[3]}")
    return module.format(layer=int(match[2])) if module else None


_KERNELS = {module: kernel for kernel, module in _MODULES.items()}


def _kernel(module: str) -> str | None:
    """Returns our path of their module; the reverse of `_module`."""
    match = re.fullmatch(r"(.+\.layers)\.(\d{1,4})\.(.+)", module)
    kernel = match and _KERNELS.get(f"{match[1]}.{{layer}}.{match[3]}")
    return kernel.format(layer=int(match[2])) if kernel else None


def _decode(
    tensors: Mapping[str, Any], file: pathlib.Path
) -> tuple[dict[str, stored.Stored | np.ndarray], dict[str, str]]:
    """Returns our path -> array, and their modules: our path of the kernel -> theirs."""
    arrays, modules, unknown = {}, {}, []
    for name, tensor in tensors.items():
        match = re.fullmatch(rf"{re.escape(_PREFIX)}(.+)\.(lora_.+)", str(name))
        kernel, part = (_kernel(match[1]), _PARTS.get(match[2])) if match else (None, None)
        path = f"{kernel}/{part}"
        if not kernel or not part or path in arrays or not isinstance(tensor, stored.Stored):
            unknown.append(str(name))
            continue
        modules[kernel] = match[1]
        arrays[path] = np.asarray(tensor).T
    if unknown or not arrays:
        shown = types.at_most_ten(sorted(unknown)) or "it holds no tensors"
        raise types.UserError(
            f"{file} is no adapter of linear layers in the blocks of a CLIPModel alone: {shown}"
        )
    return arrays, modules


def _sizes(section: values.Section, modules: Mapping[str, str]) -> tuple[int, float]:
    """Returns r and alpha of the modules, which must agree; alpha counts over r in any case."""
    found: dict[tuple[int, float], list[str]] = {}
    for module in sorted(modules.values()):
        rank = _own(section, "r", "rank_pattern", module).whole("r", 8)
        alpha = _own(section, "lora_alpha", "alpha_pattern", module).positive("lora_alpha", 8)
        found.setdefault((rank, alpha), []).append(module)
    (rank, alpha), *others = sorted(found, key=lambda pair: -len(found[pair]))
    if others:
        named = [f"{name} (r {r}, alpha {x:g})" for r, x in others for name in found[r, x]]
        raise types.UserError(
            f"{section.name} gives {len(found[rank, alpha])} modules r {rank} and alpha {alpha:g}, "
            f"but not {types.at_most_ten(named)}; adapters of one rank and one alpha are read"
        )
    return rank, alpha * math.sqrt(rank) if section.switch("use_rslora") else alpha


def _own(section: values.Section, key: str, patterns: str, module: str) -> values.Section:
    """Returns the config with `key` as the first pattern that matches the module has it."""
    for pattern, value in section.section(patterns).values.items():
        try:
            # As peft matches: the whole name, or its end from a dot on.
            matches = re.match(rf"(.*\.)?({pattern})$", module)
        except re.error as error:
            raise types.UserError(
                f"{section.name}: {patterns} has {faults.shown(pattern)}, which is no regular "
                f"expression: {error}"
            ) from error
        if matches:
            return values.Section(section.name, {**section.values, key: value})
    return section


def _refuse(config: Mapping[str, Any], source: pathlib.Path) -> None:
    """Raises types.UserError if the config asks for more than LoRA or DoRA of weights."""
    kind = config.get("peft_type")
    if kind != "LORA":
        raise types.UserError(
            f"{source} is of peft_type {faults.shown(kind)}; only LORA is read (with DoRA)"
        )
    asked = {
        key: value
        for key, value in config.items()
        if key not in _CHECKED | _ELSEWHERE and value not in (None, False, "", [], {})
    }
    if config.get("bias", "none") != "none":
        asked["bias"] = config["bias"]
    if config.get("init_lora_weights") not in _INITS:
        asked["init_lora_weights"] = config["init_lora_weights"]
    if asked:
        shown = [f"{key}={faults.shown(json.dumps(value))}" for key, value in asked.items()]
        raise types.UserError(
            f"{source} asks for what is not read: {types.at_most_ten(shown)}; save the adapter as "
            "plain LoRA or DoRA of weights, or merge it with peft"
        )


def _json(path: pathlib.Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise types.UserError(f"cannot read {path}: {faults.shown(error)}") from error
    if not isinstance(value, dict):
        raise types.UserError(f"{path} holds no JSON object")
    return value
