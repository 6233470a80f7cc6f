"""Our parameters -> files of any layout: the tensors, and the configs that belong beside them."""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from hnclip_jax import types
from hnclip_jax.models import presets
from hnclip_jax.weights import files, huggingface, layouts, open_clip, positions, rules, stored

FILE_NAME = "model.safetensors"
OPEN_CLIP_NAME = "open_clip_model.safetensors"

DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}

Progress = Callable[[int], None]
"""Is told the bytes just written."""


def write(
    path: pathlib.Path,
    layout: str,
    arrays: rules.Arrays,
    numbers: dict[str, Any],
    *,
    dtype: str = "float32",
    note: dict[str, Any] | None = None,
    vocabulary: Any = None,
    progress: Progress | None = None,
) -> list[pathlib.Path]:
    """Writes a model; returns the files, the one with the tensors first.

    Nothing is replaced before everything is written, and a failure leaves nothing behind.

    Args:
      path: a file or a folder; see `targets`.
      layout: key of layouts.LAYOUTS.
      arrays: our path -> array; read one by one.
      numbers: all fields of models.presets.ModelConfig.
      dtype: key of DTYPES.
      note: JSON values to keep; only our own layout has a place for them.
      vocabulary: data.tokenizer.Vocabulary for the tokenizer of a Hugging Face folder, or None.
      progress: is told the bytes just written.

    Raises:
      types.UserError: if the layout cannot hold this model, a value does not fit `dtype`, or the
        place cannot be written.
    """
    check(layout, numbers)
    if dtype not in DTYPES:
        raise types.unknown_name("dtype", dtype, DTYPES)
    file = targets(path, layout)[0]
    ours = {name: _cast(name, array, DTYPES[dtype]) for name, array in arrays.items()}
    texts = _sidecars(layout, numbers, dtype, vocabulary)
    with placed(file.parent, texts) as written:
        if layout == "hnclip":
            header = {"layout": layouts.OWN_VERSION, "model": numbers, **(note or {})}
            files.write(file, ours, header, progress)
        elif file.suffix == ".safetensors":
            named = rules.encode(ours, layouts.LAYOUTS[layout].table)
            # transformers refuses a file that does not say so.
            files.write_safetensors(file, named, {"format": "pt"}, progress)
        else:
            files.write_torch(file, rules.encode(ours, layouts.LAYOUTS[layout].table))
    return [file, *written]


def targets(path: pathlib.Path, layout: str) -> list[pathlib.Path]:
    """Returns the files that `write` would make, the one with the tensors first.

    hnclip       a .safetensors file, or a folder for model.safetensors
    huggingface  a folder
    open_clip    a file (.safetensors, .pt, .bin), or a folder; open_clip_config.json beside it
    longclip, openai   a file: a PyTorch state dict, or .safetensors

    Raises:
      types.UserError: if the layout is unknown, or needs a file where a folder is given, or the
        reverse.
    """
    if layout not in layouts.LAYOUTS:
        raise types.unknown_name("layout", layout, layouts.LAYOUTS)
    title = layouts.LAYOUTS[layout].title
    is_file = path.suffix in (".safetensors", ".pt", ".pth", ".bin", ".ckpt") and not path.is_dir()
    if layout == "hnclip":
        return [path if path.suffix == ".safetensors" and is_file else path / FILE_NAME]
    if layout == "huggingface":
        if is_file or path.is_file():
            raise types.UserError(f"a {title} is a folder, but {path} names a file")
        return [path / FILE_NAME, path / "config.json"]
    if layout == "open_clip":
        file = path if is_file else path / OPEN_CLIP_NAME
        return [file, file.with_name("open_clip_config.json")]
    if not is_file:
        raise types.UserError(
            f"{title} weights are one file, but {path} has no ending of one; "
            f"say {path.with_suffix('.pt')}"
        )
    return [path]


def check(layout: str, numbers: dict[str, Any]) -> None:
    """Raises types.UserError if programs that read `layout` would compute something else."""
    title = layouts.LAYOUTS[layout].title
    wrong = []
    if layout in ("openai", "longclip"):
        if numbers["activation"] != "quick_gelu":
            wrong.append(f"activation {numbers['activation']} (they take quick_gelu)")
        for tower in ("vision", "text"):
            width = numbers[f"{tower}_width"]
            if numbers[f"{tower}_heads"] * 64 != width:
                wrong.append(f"{numbers[f'{tower}_heads']} {tower} heads (they take width / 64)")
            if numbers[f"{tower}_mlp_width"] != 4 * width:
                wrong.append(f"{tower} MLP of width {numbers[f'{tower}_mlp_width']} (4 x width)")
        if [*numbers["pixel_mean"], *numbers["pixel_std"]] != [
            *presets.PIXEL_MEAN,
            *presets.PIXEL_STD,
        ]:
            wrong.append(f"pixel mean {numbers['pixel_mean']} (they take CLIP's)")
        if numbers["layer_norm_eps"] != 1e-5:
            wrong.append(f"layer norm epsilon {numbers['layer_norm_eps']} (they take 1e-5)")
    if layout == "longclip" and numbers["context_length"] != positions.LONG:
        wrong.append(f"{numbers['context_length']} text positions (248; 77 can be stretched)")
    if wrong:
        raise types.UserError(
            f"{title} files cannot say what this model has: {'; '.join(wrong)}; "
            "choose another layout"
        )


def _sidecars(layout: str, numbers: dict[str, Any], dtype: str, vocabulary: Any) -> dict[str, str]:
    if layout == "huggingface":
        return huggingface.sidecars(numbers, dtype, vocabulary)
    if layout == "open_clip":
        return {"open_clip_config.json": json.dumps(open_clip.config(numbers), indent=2) + "\n"}
    return {}


def _cast(name: str, array: stored.Stored | np.ndarray, dtype: np.dtype) -> stored.Stored:
    def read() -> np.ndarray:
        value = np.asarray(array)
        low, high = (float(value.min()), float(value.max())) if value.size else (0.0, 0.0)
        if not np.isfinite([low, high]).all():
            raise types.UserError(f"{name} has values that are not finite")
        if max(abs(low), abs(high)) > float(ml_dtypes.finfo(dtype).max):
            raise types.UserError(
                f"{name} has values from {low:g} to {high:g}, which {dtype} cannot hold"
            )
        return value.astype(dtype, copy=False)

    return stored.Stored(tuple(array.shape), dtype, read)


@contextlib.contextmanager
def placed(folder: pathlib.Path, texts: dict[str, str]) -> Iterator[list[pathlib.Path]]:
    """Writes text files beside what the body writes: all of them, or none if the body fails."""
    new = not folder.exists()
    scratch = {folder / name: folder / f"{name}.part" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, part in scratch.items():
            part.write_text(texts[file.name], encoding="utf-8")
        yield list(scratch)
        for file, part in scratch.items():
            os.replace(part, file)
    except OSError as error:
        raise types.UserError(f"cannot write to {folder}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            for part in scratch.values():
                part.unlink(missing_ok=True)
            if new:
                folder.rmdir()  # Only succeeds if nothing was written.
