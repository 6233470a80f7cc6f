"""Train steps of PyTorch models on our weights: transformers' CLIPModel, open_clip's CLIP."""

import contextlib
import functools
import importlib.util
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hnclip_jax import types

LIBRARIES = {"transformers": "transformers", "open_clip": "open_clip_torch"}
"""Module -> the package that has it."""

LAYOUTS = {"transformers": "huggingface", "open_clip": "open_clip"}
"""Module -> the layout of `pretrained.save` that its weights are read from."""

B1, B2, EPS = 0.9, 0.999, 1e-8


class Told(NamedTuple):
    """What a step tells: loss, norm of its gradient, seconds of the whole and of its parts."""

    loss: float
    grad_norm: float
    seconds: float
    parts: tuple[float, ...] = ()


def check_installed(names: tuple[str, ...]) -> None:
    """Raises types.UserError, with the package's name, for a library that is not there."""
    for name in ("torch", *names):
        if importlib.util.find_spec(name) is None:
            package = LIBRARIES.get(name, name)
            raise types.UserError(
                f"{name} is not installed: pip install {package}, or leave it out of --beside"
            )


class Model(NamedTuple):
    """A torch model in training, its optimiser, and the loss as its library computes it."""

    module: Any
    optimizer: Any
    loss: Callable[[Any, Mapping[str, Any]], Any]
    device: Any
    dtype: str


def load(library: str, folder: pathlib.Path, dtype: str, lr: float, decay: float) -> Model:
    """Returns a library's model with the weights in `folder`, which `pretrained.save` wrote.

    Args:
      library: "transformers" or "open_clip".
      folder: in the library's layout; see LAYOUTS.
      dtype: of the compute: "float32", or "bfloat16" by autocast.
      lr, decay: of AdamW.
    """
    import torch

    module, loss = _READ[library](folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module = module.to(device).train()
    # What decays with us: tables and kernels, not biases, norms, the class token and the scale.
    many = [p for p in module.parameters() if p.ndim > 1]
    rest = [p for p in module.parameters() if p.ndim <= 1]
    groups = [{"params": many, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(B1, B2), eps=EPS, fused=True)
    return Model(module, optimizer, loss, device, dtype)


def _read_transformers(folder: pathlib.Path) -> tuple[Any, Callable]:
    import transformers

    module = transformers.CLIPModel.from_pretrained(folder, dtype="float32")

    def loss(run: Any, batch: Mapping[str, Any]) -> Any:
        return run(input_ids=batch["ids"], pixel_values=batch["pixels"], return_loss=True).loss

    return module, loss


def _read_open_clip(folder: pathlib.Path) -> tuple[Any, Callable]:
    import open_clip
    from safetensors import torch as safetensors

    settings = json.loads((folder / "open_clip_config.json").read_text("utf-8"))["model_cfg"]
    module = open_clip.CLIP(**settings)
    tensors = safetensors.load_file(folder / "open_clip_model.safetensors")
    module.load_state_dict(tensors, strict=False)
    if missing := {name for name, _ in module.named_parameters()} - tensors.keys():
        raise types.UserError(f"open_clip's model has parameters that were not written: {missing}")
    contrast = open_clip.ClipLoss()

    def loss(run: Any, batch: Mapping[str, Any]) -> Any:
        return contrast(*run(batch["pixels"], batch["ids"]))

    return module, loss


_READ = {"transformers": _read_transformers, "open_clip": _read_open_clip}


def batch(model: Model, rows: types.Batch, mean: Any, std: Any) -> dict[str, Any]:
    """Returns a batch of ours as torch takes it: normalised pixels [B, 3, H, W], ids [B, S]."""
    import torch

    pixels = (np.asarray(rows["image"], np.float32) / 255 - np.float32(mean)) / np.float32(std)
    pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    return {
        "pixels": torch.from_numpy(pixels).to(model.device),
        "ids": torch.from_numpy(np.asarray(rows["tokens"], np.int64)).to(model.device),
    }


def steps(model: Model, rows: dict[str, Any], compiled: bool) -> Callable[[], Told]:
    """Returns a function that takes one step and tells about it.

    Two of them may share a model: the same work is done in turn on the same parameters.

    Args:
      model: from `load`.
      rows: from `batch`.
      compiled: by torch.compile, in its default mode.
    """
    import torch

    run = torch.compile(model.module) if compiled else model.module
    return functools.partial(_step, torch, model, run, rows)


def _step(torch: Any, model: Model, run: Any, rows: dict[str, Any]) -> Told:
    marks = [_now(torch, model.device)]
    with _cast(torch, model):
        loss = model.loss(run, rows)
    marks.append(_now(torch, model.device))
    loss.backward()
    marks.append(_now(torch, model.device))
    model.optimizer.step()
    marks.append(_now(torch, model.device))
    # Ours reports the norm, too; but in its step, so the clock stands still here.
    norms = [p.grad.norm() for p in model.module.parameters() if p.grad is not None]
    norm = float(torch.stack(norms).norm())
    model.optimizer.zero_grad()
    parts = tuple(after - before for before, after in itertools.pairwise(marks))
    return Told(float(loss.detach()), norm, sum(parts), parts)


def _now(torch: Any, device: Any) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _cast(torch: Any, model: Model) -> contextlib.AbstractContextManager:
    if model.dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(model.device.type, dtype=getattr(torch, model.dtype))
