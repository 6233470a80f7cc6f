"""Sizes of a file -> the whole architecture: heads and activation, which tensors do not tell."""

from typing import Any

from hnclip_jax import types
from hnclip_jax.models import presets
from hnclip_jax.weights import layouts, open_clip

_SIZES = (
    "vision_width",
    "vision_layers",
    "vision_mlp_width",
    "patch_size",
    "text_width",
    "text_layers",
    "text_mlp_width",
    "embed_dim",
)
"""What identifies a published architecture; image size and context length may have been changed."""

_LEFT_OPEN = ("vision_heads", "text_heads", "activation", "layer_norm_eps")


def complete(
    weights: layouts.Weights, preset: str = "", activation: str = ""
) -> tuple[dict[str, Any], str]:
    """Returns all fields of presets.ModelConfig, and what had to be assumed ("" if nothing).

    A config beside the file or the layout itself comes first, then `preset` and `activation`, then
    a published architecture of the same sizes, then CLIP's rule of heads of width 64.

    Args:
      weights: what was found.
      preset: name of a preset, ours or open_clip's, that the weights are said to be; or empty.
      activation: "quick_gelu", "gelu" or empty.

    Raises:
      types.UserError: if the file contradicts `preset` or `activation`, or leaves open what nothing
        tells.
    """
    numbers = dict(weights.numbers)
    if preset:
        _add(numbers, _named(preset, numbers, weights), f"preset {preset!r}", weights)
    if activation:
        _add(numbers, {"activation": activation}, "the activation asked for", weights)
    twins = [p for p in presets.PRESETS.values() if _same_sizes(p, numbers)]
    for tower in ("vision", "text"):
        if f"{tower}_heads" not in numbers:
            numbers[f"{tower}_heads"] = _heads(tower, numbers, twins, weights)
    assumed = ""
    if "activation" not in numbers:
        numbers["activation"] = _activation(numbers, twins, weights)
        assumed = (
            "activation quick_gelu is assumed, as OpenAI's: open_clip uses the same names, but no "
            "open_clip_config.json lies beside the file; if it is not so, say activation=gelu"
        )
    return numbers, assumed


def _named(preset: str, numbers: dict[str, Any], weights: layouts.Weights) -> dict[str, Any]:
    """Returns what a preset tells beyond the sizes, which must be its own."""
    name, activation = open_clip.NAMES.get(preset, (preset, ""))
    wanted = presets.get(name)
    differing = [
        f"{size} {numbers[size]}, not {getattr(wanted, size)}"
        for size in _SIZES
        if numbers[size] != getattr(wanted, size)
    ]
    if differing:
        raise types.UserError(
            f"{weights.path} is no {preset}: it has {types.at_most_ten(differing)}; "
            "leave the preset out, or name the right one"
        )
    found = {field: getattr(wanted, field) for field in _LEFT_OPEN}
    return {**found, "activation": activation} if activation else found


def _add(
    numbers: dict[str, Any], more: dict[str, Any], source: str, weights: layouts.Weights
) -> None:
    for key, value in more.items():
        if numbers.setdefault(key, value) != value:
            raise types.UserError(
                f"{weights.path} ({weights.title}) has {key} {numbers[key]}, but {source} says "
                f"{value}; one of them is wrong, and scores would move"
            )


def _same_sizes(preset: presets.ModelConfig, numbers: dict[str, Any]) -> bool:
    return all(getattr(preset, size) == numbers[size] for size in _SIZES)


def _heads(
    tower: str,
    numbers: dict[str, Any],
    twins: list[presets.ModelConfig],
    weights: layouts.Weights,
) -> int:
    width = numbers[f"{tower}_width"]
    if twins:
        return getattr(twins[0], f"{tower}_heads")
    if width % 64:
        raise types.UserError(
            f"{weights.path} does not say how many heads its {tower} tower of width {width} has "
            "(64 wide each, in CLIP); put the config of the model beside it"
        )
    return width // 64


def _activation(
    numbers: dict[str, Any], twins: list[presets.ModelConfig], weights: layouts.Weights
) -> str:
    # OpenAI published no model of the sizes that only gelu presets have.
    own = weights.layout == "openai" and (
        not twins or any(twin.activation == "quick_gelu" for twin in twins)
    )
    if not own:
        raise types.UserError(
            f"{weights.path} ({weights.title}) does not say whether its activation is quick_gelu "
            "or gelu; put the model's config beside it, or say activation=quick_gelu or gelu"
        )
    return "quick_gelu"
