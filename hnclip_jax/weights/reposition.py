"""Positions as they were asked for: stretched, cut to a shorter context, or resized."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hnclip_jax import types
from hnclip_jax.weights import positions, rules, stored

_TEXT, _IMAGE = "text/position_embedding", "image/position_embedding"


def change(
    arrays: dict[str, stored.Stored],
    numbers: dict[str, Any],
    *,
    stretch: int,
    context_length: int,
    image_size: int,
    source: str,
) -> tuple[dict[str, stored.Stored], dict[str, Any], list[str]]:
    """Returns the arrays and numbers of a model with other positions, and a sentence per change.

    Args:
      arrays: path -> array; nothing is read yet.
      numbers: fields of models.presets.ModelConfig.
      stretch: 248 stretches 77 text positions; 0 = no.
      context_length: text positions to keep, the first ones; 0 = all.
      image_size: pixels; 0 = as it is.
      source: what to call the file in messages.

    Raises:
      types.UserError: if there is nothing to stretch, or too few positions.
    """
    notes: list[str] = []
    text, image, numbers = arrays[_TEXT], arrays[_IMAGE], dict(numbers)
    if stretch:
        text = _stretched(text, stretch, source)
        notes.append("text positions were stretched from 77 to 248 by Long-CLIP's rule")
    if context_length and context_length != text.shape[0]:
        text, note = _cut(text, context_length, source)
        notes.append(note)
    if image_size and image_size != numbers["image_size"]:
        image, note = _resized(image, numbers, image_size)
        notes.append(note)
    if not notes:
        return arrays, numbers, notes
    # What is kept of rows that Long-CLIP never reads belongs to the positions as they were.
    arrays = {path: x for path, x in arrays.items() if not path.startswith(rules.UNUSED)}
    numbers |= {"context_length": text.shape[0], "image_size": image_size or numbers["image_size"]}
    return {**arrays, _TEXT: text, _IMAGE: image}, numbers, notes


def _stretched(table: stored.Stored, stretch: int, source: str) -> stored.Stored:
    if (table.shape[0], stretch) != (positions.SHORT, positions.LONG):
        raise types.UserError(
            f"{source} has {table.shape[0]} text positions; only {positions.SHORT} can be "
            f"stretched, and only to {positions.LONG}; leave stretch={stretch} out"
        )
    return _mapped(table, positions.stretch, stretch)


def _cut(table: stored.Stored, length: int, source: str) -> tuple[stored.Stored, str]:
    rows = table.shape[0]
    if length > rows:
        more = f", or stretch={positions.LONG} first" if rows == positions.SHORT else ""
        raise types.UserError(
            f"context_length asks for {length} tokens, but {source} has {rows} positions; ask for "
            f"at most that many{more}"
        )
    note = f"the first {length} of {rows} text positions are used"
    return _mapped(table, lambda values: values[:length], length), note


def _resized(table: stored.Stored, numbers: dict[str, Any], size: int) -> tuple[stored.Stored, str]:
    patch = numbers["patch_size"]
    if size % patch:
        raise types.UserError(
            f"image_size asks for {size} pixels, but patches are {patch} wide; "
            f"give a multiple of {patch}"
        )
    grid, before = size // patch, numbers["image_size"]
    note = (
        f"image positions were resized from {before // patch} x {before // patch} to "
        f"{grid} x {grid} patches ({before} to {size} pixels)"
    )
    return (
        _mapped(table, lambda values: positions.resize_grid(values, grid), grid * grid + 1),
        note,
    )


def _mapped(
    table: stored.Stored, function: Callable[[np.ndarray], np.ndarray], rows: int
) -> stored.Stored:
    return stored.Stored((rows, *table.shape[1:]), table.dtype, lambda: function(np.asarray(table)))
