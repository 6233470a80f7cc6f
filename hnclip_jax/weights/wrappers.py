"""What training loops put around a model's tensors: dicts, and prefixes of names."""

import pathlib
import re
from collections.abc import Collection
from typing import Any

from hnclip_jax import types
from hnclip_jax.weights import stored

_WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "net")
_PREFIXES = ("module.", "model.")
_INNER = re.compile(r"(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")


def remove(tree: dict[str, Any], file: pathlib.Path) -> tuple[dict[str, Any], list[str]]:
    """Returns the dict of tensors inside a training checkpoint, without its wrappers' prefixes.

    Args:
      tree: what the file holds.
      file: where it is.

    Returns:
      name -> tensor (or plain value), and a sentence about each thing that was taken off.

    Raises:
      types.UserError: if there is no dict of tensors, or two names become one.
    """
    notes = []
    while not _holds_tensors(tree):
        inside = next((key for key in _WRAPPERS if isinstance(tree.get(key), dict)), None)
        if inside is None:
            held = types.at_most_ten(map(repr, tree)) or "nothing"
            raise types.UserError(f"{file} holds no dict of tensors; it holds {held}")
        notes.append(f"taken from {inside!r} of a training checkpoint")
        tree = tree[inside]
    names = {str(name): _INNER.sub("", str(name)) for name in tree}
    if any(name != short for name, short in names.items()):
        notes.append("prefixes of torch.compile or FSDP were dropped")
    while prefix := _common_prefix(names.values()):
        names = {name: short.removeprefix(prefix) for name, short in names.items()}
        notes.append(f"prefix {prefix!r} was dropped")
    if len(set(names.values())) < len(names):
        raise types.UserError(
            f"{file} has tensors of the same name, with and without a prefix of torch.compile or "
            "FSDP; save them again from one model"
        )
    return {short: tree[name] for name, short in names.items()}, notes


def _holds_tensors(tree: dict[str, Any]) -> bool:
    return any(isinstance(value, stored.Stored) for value in tree.values())


def _common_prefix(names: Collection[str]) -> str:
    return next((p for p in _PREFIXES if all(name.startswith(p) for name in names)), "")
