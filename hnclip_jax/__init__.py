"""Fine-tune CLIP for long captions with the HN-CLIP objective, in JAX.

The public names; each is loaded when first used, and none touches a device on import.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "list_presets": "hnclip_jax.models.presets",
    "create_model": "hnclip_jax.pretrained",
    "load": "hnclip_jax.pretrained",
    "save": "hnclip_jax.pretrained",
    "tokenize": "hnclip_jax.data.tokenizer",
    "load_image": "hnclip_jax.data.images",
    "retrieval_metrics": "hnclip_jax.evaluation.retrieval",
}
"""Public name -> the module it lives in."""

_ROOMS = ("losses",)

__all__ = [*_HOMES, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
