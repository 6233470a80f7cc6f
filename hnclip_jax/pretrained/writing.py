"""Model -> weights: files of any layout, from parameters or straight from other files."""

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np

from hnclip_jax import types
from hnclip_jax.data import tokenizer
from hnclip_jax.models import dual_encoder, transformer
from hnclip_jax.parallel import sharding
from hnclip_jax.pretrained import reading
from hnclip_jax.weights import export

FILE_NAME = export.FILE_NAME


def save(
    path: str | pathlib.Path,
    model: dual_encoder.DualEncoder,
    params: types.Params,
    *,
    layout: str = "hnclip",
    dtype: str = "float32",
    vocabulary: str = "",
    note: dict[str, Any] | None = None,
) -> pathlib.Path:
    """Writes a model and its parameters; returns the file with the tensors. What is there goes.

    Args:
      path: a file or a folder, as the layout needs it; see `weights.export.targets`.
      model: the model.
      params: its parameters; arrays on devices are fetched.
      layout: "hnclip", "longclip", "huggingface", "open_clip" or "openai".
      dtype: "float32", "float16" or "bfloat16" in the file.
      vocabulary: byte-pair file for the tokenizer of a Hugging Face folder; empty = the installed
        package's.
      note: JSON values to keep with them (provenance); in our own layout only.

    Raises:
      types.UserError: if the layout cannot hold the model, or the place cannot be written.
    """
    # One block per layer in files, whatever the run used: names then never depend on scan_layers.
    flat = {
        sharding.path_of(key): np.asarray(leaf)
        for key, leaf in jax.tree_util.tree_leaves_with_path(transformer.unstack_blocks(params))
    }
    numbers = dataclasses.asdict(model.config)
    return export.write(
        pathlib.Path(path),
        layout,
        flat,
        numbers,
        dtype=dtype,
        note=note,
        vocabulary=_vocabulary(layout, numbers, vocabulary),
    )[0]


def convert(
    imported: reading.Imported,
    path: str | pathlib.Path,
    layout: str,
    *,
    dtype: str = "float32",
    vocabulary: str = "",
    progress: export.Progress | None = None,
) -> list[pathlib.Path]:
    """Writes what `read` found in another layout, tensor by tensor; returns the files.

    What is there goes; `check_target` tells before.

    Args:
      imported: from `read`.
      path, layout, dtype, vocabulary: as in `save`.
      progress: is told the bytes just written.

    Raises:
      types.UserError: as `save`.
    """
    numbers = dataclasses.asdict(imported.config)
    return export.write(
        pathlib.Path(path),
        layout,
        imported.arrays,
        numbers,
        dtype=dtype,
        note=imported.provenance() if layout == "hnclip" else None,
        vocabulary=_vocabulary(layout, numbers, vocabulary),
        progress=progress,
    )


def check_target(path: str | pathlib.Path, layout: str) -> None:
    """Raises types.UserError if `layout` cannot be written at `path`, or would replace files."""
    there = [str(file) for file in export.targets(pathlib.Path(path), layout) if file.exists()]
    if there:
        raise types.UserError(
            f"already there: {', '.join(there)}; choose another place, or say --overwrite"
        )


def _vocabulary(layout: str, numbers: dict[str, Any], path: str) -> tokenizer.Vocabulary | None:
    """Returns the vocabulary to write, None where the layout or the model has no use for it."""
    if layout != "huggingface" or numbers["vocab_size"] != tokenizer.VOCAB_SIZE:
        return None
    return tokenizer.vocabulary(path or None)
