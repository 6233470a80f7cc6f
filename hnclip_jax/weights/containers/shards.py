"""The index of weights that lie in several files: which names are in which."""

import json
import pathlib
from collections.abc import Iterable

from hnclip_jax import types
from hnclip_jax.weights.containers import faults

_MOST_BYTES = 64 << 20


def read(path: pathlib.Path) -> dict[pathlib.Path, set[str]]:
    """Returns shard -> names in it, sorted by shard; all lie beside the index.

    Raises:
      types.UserError: if this is no such index, it leads out of its folder, or a shard is missing.
    """
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
    except OSError as error:
        raise types.UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise faults.damaged(path, error) from error
    names = content.get("weight_map") if isinstance(content, dict) else None
    if (
        not names
        or not isinstance(names, dict)
        or not all(isinstance(v, str) for v in names.values())
    ):
        raise types.UserError(
            f"{path} is JSON, but no index of shards (weight_map: name -> file); give the file of "
            "weights, or the folder it lies in"
        )
    shards: dict[pathlib.Path, set[str]] = {}
    for shard in sorted(set(names.values())):
        if shard in ("", ".", "..") or any(mark in shard for mark in "/\\:\0"):
            raise types.UserError(
                f"{path} names a shard outside of its folder ({faults.shown(shard)}); nothing was "
                "read, and such an index should not be trusted"
            )
        shards[path.parent / shard] = {name for name, at in names.items() if at == shard}
    if missing := [shard.name for shard in shards if not shard.is_file()]:
        raise types.UserError(
            f"{path} names shards that are not there: "
            f"{types.at_most_ten(map(faults.shown, missing))}; download them into its folder"
        )
    return shards


def check(shard: pathlib.Path, found: Iterable[str], promised: set[str]) -> None:
    """Raises types.UserError if a shard does not hold exactly the names its index promises."""
    found = {str(name) for name in found}
    for names, what in ((promised - found, "lacks"), (found - promised, "also holds")):
        if names:
            listed = types.at_most_ten(map(faults.shown, sorted(names)))
            raise types.UserError(
                f"{shard} {what} {listed}, unlike its index says; download both again"
            )
