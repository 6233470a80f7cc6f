"""Peak speed of devices in bfloat16 products, and the work of a train step, counted by shapes."""

from hnclip_jax.models import presets

PEAKS: tuple[tuple[str, float], ...] = (
    ("TPU v4", 275),
    ("TPU v5 lite", 197),
    ("TPU v5e", 197),
    ("TPU v5", 459),
    ("TPU v6", 918),
    ("A100", 312),
    ("L40S", 362),
    ("GH200", 989),
    ("H200", 989),
    ("H100 PCIe", 756),
    ("H100", 989),
    ("B200", 2250),
)
"""(part of a device kind's name, TFLOP/s of dense bfloat16 products as its maker states them); the
first match counts."""


def peak(device_kind: str) -> float | None:
    """Returns FLOP/s of bfloat16 products, or None where that is not known (a CPU)."""
    for name, tera in PEAKS:
        if name.lower() in device_kind.lower():
            return tera * 1e12
    return None


def step_flops(model: presets.ModelConfig, pairs: int) -> float:
    """Returns the FLOPs of products of one train step, backward pass included, nothing recomputed.

    Backward is twice forward. Attention counts in full, also where a causal mask hides half of it.
    The loss is left out: it is nothing beside the towers.

    Args:
      model: the architecture.
      pairs: of the batch.
    """
    patch = model.patch_size**2 * 3 * model.vision_width * model.patch_count
    vision = _tower(model.vision, model.patch_count + 1) + 2 * patch
    text = _tower(model.text, model.context_length)
    heads = 2 * model.embed_dim * (model.vision_width + model.text_width)
    return 3.0 * pairs * (vision + text + heads)


def _tower(tower: presets.Tower, positions: int) -> float:
    weights = 4 * tower.width**2 + 2 * tower.width * tower.mlp_width
    return tower.layers * positions * (2 * weights + 4 * positions * tower.width)
