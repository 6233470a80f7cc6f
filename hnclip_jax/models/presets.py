"""Table of architectures: preset name -> ModelConfig (numbers only).

Sizes follow OpenAI's CLIP (QuickGELU), Long-CLIP (the same with 248 text positions) and the LAION
models of open_clip (GELU). LAION also trained the sizes B and L: the same presets with
`dataclasses.replace(get("ViT-B/32"), activation="gelu")`. Its L/14 of LAION-2B also has
`pixel_mean` and `pixel_std` of 0.5.
"""

import dataclasses
import numbers
from typing import Any, NamedTuple

from hnclip_jax import groups, types

ACTIVATIONS = ("quick_gelu", "gelu")

# CLIP's own, of pixels from 0 to 1 in RGB order; every preset uses them.
PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)
PIXEL_STD = (0.26862954, 0.26130258, 0.27577711)


class Tower(NamedTuple):
    """What the blocks of one tower need to know."""

    width: int
    layers: int
    heads: int
    mlp_width: int
    activation: str
    layer_norm_eps: float


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Every number that fixes the shapes and the arithmetic of a dual encoder.

    Sizes of the two towers are independent of each other and of `embed_dim`. The MLPs' widths are
    integers, not ratios: the published ratios (4.3637, 4.9231) are roundings of the real widths.
    `pixel_mean` and `pixel_std` belong to pixels from 0 to 1, red, green and blue.
    """

    vision_width: int
    vision_layers: int
    vision_heads: int
    vision_mlp_width: int
    patch_size: int
    text_width: int
    text_layers: int
    text_heads: int
    text_mlp_width: int
    embed_dim: int
    image_size: int = 224
    context_length: int = 77
    vocab_size: int = 49408
    activation: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    pixel_mean: tuple[float, ...] = PIXEL_MEAN
    pixel_std: tuple[float, ...] = PIXEL_STD

    def __post_init__(self) -> None:
        for name in ("pixel_mean", "pixel_std"):
            # Lists come from JSON, and cannot be hashed.
            object.__setattr__(self, name, _per_channel(name, getattr(self, name)))
        if self.activation not in ACTIVATIONS:
            raise types.unknown_name("activation", self.activation, ACTIVATIONS)
        if self.image_size < 1 or self.image_size % self.patch_size:
            raise types.UserError(
                f"image_size is {self.image_size}, but patches are {self.patch_size} pixels wide; "
                f"give a multiple of {self.patch_size}"
            )
        if self.context_length < 3:
            raise types.UserError(
                f"context_length is {self.context_length}, but a begin token, one word and an end "
                "token need 3; give at least 3"
            )
        for name, tower in (("vision", self.vision), ("text", self.text)):
            if tower.width % tower.heads:
                raise types.UserError(
                    f"{name}_width is {tower.width}, which {tower.heads} heads do not divide; "
                    f"change {name}_heads"
                )

    @property
    def vision(self) -> Tower:
        """Sizes of the vision tower's blocks."""
        return self._tower("vision")

    @property
    def text(self) -> Tower:
        """Sizes of the text tower's blocks."""
        return self._tower("text")

    def _tower(self, name: str) -> Tower:
        own = (
            getattr(self, f"{name}_{size}") for size in ("width", "layers", "heads", "mlp_width")
        )
        return Tower(*own, self.activation, self.layer_norm_eps)

    @property
    def patch_count(self) -> int:
        """Patches per image, without the class token."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def begin_id(self) -> int:
        """Token id that starts every caption: the last but one of the vocabulary."""
        return self.vocab_size - 2

    @property
    def end_id(self) -> int:
        """Token id that ends every caption: the largest of the vocabulary."""
        return self.vocab_size - 1


def _per_channel(name: str, values: Any) -> tuple[float, ...]:
    values = tuple(values) if isinstance(values, list | tuple) else (values,)
    numeric = all(isinstance(x, numbers.Real) and not isinstance(x, bool) for x in values)
    # Finite in float32, and an integer of any length may stand in a file.
    if len(values) != 3 or not numeric or not all(abs(x) < 1e38 for x in values):
        raise types.UserError(
            f"{name} is {values!r}, but must be three finite numbers, for red, green and blue"
        )
    if name == "pixel_std" and min(values) <= 0:
        raise types.UserError(
            f"pixel_std is {values!r}, but pixels are divided by it; give numbers above 0"
        )
    return tuple(map(float, values))


_BASE = ModelConfig(
    vision_width=768,
    vision_layers=12,
    vision_heads=12,
    vision_mlp_width=3072,
    patch_size=16,
    text_width=512,
    text_layers=12,
    text_heads=8,
    text_mlp_width=2048,
    embed_dim=512,
)
_LARGE = ModelConfig(
    vision_width=1024,
    vision_layers=24,
    vision_heads=16,
    vision_mlp_width=4096,
    patch_size=14,
    text_width=768,
    text_layers=12,
    text_heads=12,
    text_mlp_width=3072,
    embed_dim=768,
)
_HUGE = ModelConfig(
    vision_width=1280,
    vision_layers=32,
    vision_heads=16,
    vision_mlp_width=5120,
    patch_size=14,
    text_width=1024,
    text_layers=24,
    text_heads=16,
    text_mlp_width=4096,
    embed_dim=1024,
    activation="gelu",
)

PRESETS: dict[str, ModelConfig] = {
    # For tests, demonstrations and laptops: 607,681 parameters beside the token table.
    "tiny": ModelConfig(
        vision_width=96,
        vision_layers=3,
        vision_heads=3,
        vision_mlp_width=384,
        patch_size=8,
        text_width=96,
        text_layers=2,
        text_heads=3,
        text_mlp_width=384,
        embed_dim=96,
        image_size=48,
    ),
    "ViT-B/32": dataclasses.replace(_BASE, patch_size=32),
    "ViT-B/16": _BASE,
    "ViT-L/14": _LARGE,
    "ViT-L/14@336": dataclasses.replace(_LARGE, image_size=336),
    "ViT-H/14": _HUGE,
    "ViT-g/14": dataclasses.replace(
        _HUGE, vision_width=1408, vision_layers=40, vision_mlp_width=6144
    ),
    "ViT-bigG/14": dataclasses.replace(
        _HUGE,
        vision_width=1664,
        vision_layers=48,
        vision_mlp_width=8192,
        text_width=1280,
        text_layers=32,
        text_heads=20,
        text_mlp_width=5120,
        embed_dim=1280,
    ),
    "LongCLIP-B": dataclasses.replace(_BASE, context_length=248),
    "LongCLIP-L": dataclasses.replace(_LARGE, context_length=248),
}


def list_presets() -> list[str]:
    """Returns the names of all presets, small to large within a family."""
    return list(PRESETS)


def get(name: str) -> ModelConfig:
    """Returns the architecture called `name`.

    Raises:
      types.UserError: if there is none; it names the nearest one.
    """
    if name not in PRESETS:
        raise types.unknown_name("preset", name, PRESETS)
    return PRESETS[name]


def from_group(group: groups.ModelGroup) -> ModelConfig:
    """Returns the group's preset with its image size and context length, where it sets them.

    Args:
      group: `image_size` in pixels and `context_length` in tokens; 0 keeps the preset's.

    Raises:
      types.UserError: if the preset is unknown, patches do not tile the image, or the context is
        below 3 tokens.
    """
    if not group.preset:
        raise types.UserError(
            "random weights need an architecture; set model.preset, say to ViT-B/16"
        )
    preset = get(group.preset)
    return dataclasses.replace(
        preset,
        image_size=group.image_size or preset.image_size,
        context_length=group.context_length or preset.context_length,
    )
