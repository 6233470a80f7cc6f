"""What training puts beside a model's weights: the parameters of a method, and adapters."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from hnclip_jax import types
from hnclip_jax.parallel import sharding
from hnclip_jax.weights import files

METHOD_FILE = "method.safetensors"


def save_method(
    folder: str | pathlib.Path, method: str, parameters: types.Params, note: Mapping[str, Any]
) -> pathlib.Path:
    """Writes the parameters that a method adds to the model; returns the file.

    Args:
      folder: the weights folder.
      method: name of the method.
      parameters: {term: nested dict of arrays}.
      note: JSON values to keep with them.
    """
    file = pathlib.Path(folder) / METHOD_FILE
    flat = {
        sharding.path_of(key): np.asarray(leaf)
        for key, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }
    files.write(file, flat, {"method": method, **note})
    return file


def load_method(path: str | pathlib.Path) -> tuple[str, types.Params]:
    """Returns the name of a method, and {term: parameters that it added}, float32 numpy arrays.

    Args:
      path: a run folder, its weights folder, or the file itself.

    Raises:
      types.UserError: if there are none.
    """
    path = pathlib.Path(path).expanduser()
    places = [path] if path.is_file() else [path / "weights" / METHOD_FILE, path / METHOD_FILE]
    file = next((place for place in places if place.is_file()), None)
    contents = files.read(file) if file else None
    if contents is None or "method" not in contents.note:
        raise types.UserError(
            f"{path} holds no parameters of a method; give the folder of a run whose method adds "
            f"some, which has weights/{METHOD_FILE}"
        )
    arrays = {name: np.array(array, np.float32) for name, array in contents.tree.items()}
    return contents.note["method"], sharding.nested(arrays)
