"""What is known about a file of weights, as a table for people."""

import collections
import math
from typing import Any

import numpy as np

from hnclip_jax import types
from hnclip_jax.weights import layouts, rules


def table(weights: layouts.Weights, config: dict[str, Any], notes: list[str]) -> str:
    """Returns one line per fact: file, hash, layout, counts, types, sizes, activation, positions.

    Args:
      weights: an opened file.
      config: all fields of models.presets.ModelConfig.
      notes: sentences to close with.
    """
    rows = [
        ("file", f"{weights.path} ({_size(weights)}, {weights.contents.container})"),
        ("sha256", weights.sha256),
        ("layout", weights.title),
        ("tensors", _tensors(weights)),
        ("dtype", _dtypes(weights)),
        ("parameters", f"{_parameters(weights):,}"),
        ("vision", _tower(config, "vision") + f", patches of {config['patch_size']}"),
        ("text", _tower(config, "text") + f", vocabulary of {config['vocab_size']:,}"),
        ("embedding", str(config["embed_dim"])),
        ("activation", config["activation"]),
        ("positions", _positions(config)),
        ("scale", f"s = {math.exp(float(np.asarray(weights.arrays['logit_scale']))):.2f}"),
        ("pixels", f"mean {_numbers(config['pixel_mean'])}, std {_numbers(config['pixel_std'])}"),
    ]
    rows += _kept(weights.contents.note)
    rows += [("note", note) for note in notes]
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)


def _kept(note: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Returns what this package noted in its own file: step, list, what the run began with."""
    rows = []
    for key, value in note.items():
        if isinstance(value, dict) and key != "model":
            rows += _kept(value, f"{key} ")
        elif key not in ("layout", "model"):
            rows.append((above + key.replace("_", " "), str(value)))
    return rows


def _size(weights: layouts.Weights) -> str:
    paths = weights.contents.paths
    count = f"{len(paths)} files, " if len(paths) > 1 else ""
    return f"{count}{sum(path.stat().st_size for path in paths) / 1e6:,.1f} MB"


def _tensors(weights: layouts.Weights) -> str:
    text = f"{weights.matched} matched, none missing, none left over"
    if weights.ignored:
        shown = types.at_most_ten(sorted(weights.ignored))
        text += f"; {len(weights.ignored)} known buffers ignored: {shown}"
    return text


def _learned(weights: layouts.Weights) -> list[Any]:
    return [x for path, x in weights.arrays.items() if not path.startswith(rules.UNUSED)]


def _dtypes(weights: layouts.Weights) -> str:
    counts = collections.Counter(str(array.dtype) for array in _learned(weights))
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{dtype} ({count} arrays)" for dtype, count in counts.most_common())


def _parameters(weights: layouts.Weights) -> int:
    return sum(math.prod(array.shape) for array in _learned(weights))


def _tower(config: dict[str, Any], name: str) -> str:
    width, layers, heads, mlp = (
        config[f"{name}_{size}"] for size in ("width", "layers", "heads", "mlp_width")
    )
    return f"{layers} layers of width {width}, {heads} heads, MLP {mlp}"


def _positions(config: dict[str, Any]) -> str:
    grid = config["image_size"] // config["patch_size"]
    return f"{config['context_length']} text, {grid} x {grid} image ({config['image_size']} pixels)"


def _numbers(values: Any) -> str:
    return " ".join(f"{value:.4g}" for value in values)
