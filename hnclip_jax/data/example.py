"""A made-up batch of the right shapes and types: for benchmarks, plans and tests."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hnclip_jax import groups
from hnclip_jax.data import structure_text


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Numbers of the model: pixels on a side, pixels of a patch, tokens per caption, vocabulary."""

    image_size: int
    patch_size: int
    context_length: int
    begin_id: int = 49406
    end_id: int = 49407

    @classmethod
    def of(cls, model: Any) -> "Sizes":
        """Returns those of a `models.presets.ModelConfig`."""
        return cls(
            model.image_size, model.patch_size, model.context_length, model.begin_id, model.end_id
        )

    @property
    def patches(self) -> int:
        """Patches of a picture."""
        return (self.image_size // self.patch_size) ** 2


def batch(
    sizes: Sizes,
    rows: int,
    inputs: Sequence[str] = (),
    method: groups.MethodGroup | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Returns a random batch of `rows` different pairs, as `types.Batch` describes it.

    Captions fill the context, so that no less work is done than by long ones.

    Args:
      sizes: of the model.
      rows: B.
      inputs: what else it holds, by the names of data/inputs.py.
      method: its settings; None = their defaults.
      seed: of everything.
    """
    draw = _Draw(sizes, rows, method or groups.MethodGroup(), np.random.default_rng(seed))
    made = {
        "image": draw.pictures(),
        "tokens": draw.tokens(),
        "truncated": np.zeros(rows, bool),
        "pair_id": np.arange(rows, dtype=np.int32),
        "index": np.arange(rows, dtype=np.int32),
    }
    for name in inputs:
        made |= _MORE[name](draw)
    return made


@dataclasses.dataclass(frozen=True)
class _Draw:
    sizes: Sizes
    rows: int
    method: groups.MethodGroup
    rng: np.random.Generator

    def pictures(self, *axes: int) -> np.ndarray:
        side = self.sizes.image_size
        return self.rng.integers(0, 256, (self.rows, *axes, side, side, 3), dtype=np.uint8)

    def tokens(self) -> np.ndarray:
        ids = self.rng.integers(1, 400, (self.rows, self.sizes.context_length)).astype(np.int32)
        ids[:, 0], ids[:, -1] = self.sizes.begin_id, self.sizes.end_id
        return ids

    def mask(self, length: int) -> np.ndarray:
        return self.rng.random((self.rows, length)) < 0.3

    def flags(self, *axes: int) -> np.ndarray:
        return np.ones((self.rows, *axes), bool)


def _short(draw: _Draw) -> dict[str, np.ndarray]:
    return {"short_tokens": draw.tokens()}


def _segment(draw: _Draw) -> dict[str, np.ndarray]:
    return {
        "crop": draw.pictures(),
        "crop_tokens": draw.tokens(),
        "has_crop": draw.flags(),
        "patch_mask": draw.mask(draw.sizes.patches),
        "word_mask_of_crop": draw.mask(draw.sizes.context_length),
    }


def _structure(draw: _Draw) -> dict[str, np.ndarray]:
    top = draw.method.structxlip_top_k
    start = draw.rng.integers(
        1, draw.sizes.context_length - 3, (draw.rows, structure_text.MAX_PHRASES)
    )
    return {
        "edge": draw.pictures(),
        "has_edge": draw.flags(),
        "structure_tokens": draw.tokens(),
        "spans": np.stack([start, start + 2], axis=2).astype(np.int32),
        "local_edge": draw.pictures(top),
        "has_local": draw.flags(top),
    }


def _negatives(draw: _Draw) -> dict[str, np.ndarray]:
    return {"negative_tokens": draw.tokens(), "has_negative": draw.flags()}


_MORE: dict[str, Callable[[_Draw], dict[str, np.ndarray]]] = {
    "short": _short,
    "segment": _segment,
    "structure": _structure,
    "negatives": _negatives,
}
