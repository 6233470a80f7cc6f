"""Weights meet models: file -> model and parameters, and back; the one place that knows both."""

from hnclip_jax.pretrained.adapted import save as save_adapter
from hnclip_jax.pretrained.reading import Imported, create_model, from_group, load, read
from hnclip_jax.pretrained.writing import FILE_NAME, check_target, convert, save

__all__ = [
    "FILE_NAME",
    "Imported",
    "check_target",
    "convert",
    "create_model",
    "from_group",
    "load",
    "read",
    "save",
    "save_adapter",
]
