"""What lies in a run folder, also in one that was broken off, and where two of them differ."""

import json
import pathlib
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from hnclip_jax.training import folder

_TIMES = ("time/", "data/wait_s")
"""Keys of metrics.jsonl that no two runs have alike begin so."""

_COMPLETE = "_CHECKPOINT_METADATA"
"""A checkpoint appears with this file under its name in one move, and loses it first of all."""


def committed(run: folder.RunFolder) -> list[int]:
    """Returns the steps of the complete checkpoints, in order."""
    found = run.checkpoints.glob("*")
    return sorted(
        int(path.name) for path in found if path.name.isdigit() and (path / _COMPLETE).exists()
    )


def broken_off(run: folder.RunFolder) -> str:
    """Returns "save" or "deletion" if the checkpoints folder shows one that did not end, or ""."""
    names = [path.name for path in run.checkpoints.glob("*")]
    if not all(name.isdigit() for name in names):
        return "save"
    return "deletion" if len(names) > len(committed(run)) else ""


def last_logged(run: folder.RunFolder) -> int:
    """Returns the last step of metrics.jsonl; 0 = none. A line that is cut off does not count."""
    if not run.metrics.exists():
        return 0
    whole = run.metrics.read_text().rpartition("\n")[0]
    return json.loads(whole.splitlines()[-1])["step"] if whole else 0


def lines(run: folder.RunFolder) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl without times."""
    if not run.metrics.exists():
        return []
    return [
        {name: value for name, value in json.loads(line).items() if not name.startswith(_TIMES)}
        for line in run.metrics.read_text().splitlines()
    ]


def arrays(run: folder.RunFolder, step: int) -> dict[str, np.ndarray]:
    """Returns all that the checkpoint of a step holds: {path: array}."""
    where = run.checkpoints / str(step)
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    # Without a target, arrays would come back on the devices of the run.
    wanted = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here),
        ocp.checkpointables_metadata(where).metadata["state"],
    )
    state = ocp.load_checkpointables(where, {"state": wanted})["state"]
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def differing(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> list[str]:
    """Returns the names whose arrays differ in shape, dtype or any bit, or are on one side only."""
    alike = {
        name
        for name in found.keys() & expected.keys()
        if (found[name].shape, found[name].dtype) == (expected[name].shape, expected[name].dtype)
        and found[name].tobytes() == expected[name].tobytes()
    }
    return sorted((found.keys() | expected.keys()) - alike)


def files(path: pathlib.Path) -> dict[str, bytes]:
    """Returns the files below a folder: {relative path: content}."""
    found = sorted(one for one in path.rglob("*") if one.is_file())
    return {str(one.relative_to(path)): one.read_bytes() for one in found}


def ends(run: folder.RunFolder, unbroken: folder.RunFolder) -> list[str]:
    """Returns in what a complete run differs from the unbroken one, a line for each kind."""
    wrong = []
    for name in ("weights", "eval"):
        one, other = files(run.path / name), files(unbroken.path / name)
        names = sorted(
            file for file in one.keys() | other.keys() if one.get(file) != other.get(file)
        )
        if names or not other:
            wrong.append(f"{name}/: {', '.join(names) or 'nothing is there'}")
    step, last = max(committed(run), default=0), max(committed(unbroken))
    if step != last:
        wrong.append(f"checkpoints/: the last one is of step {step}, not {last}")
    elif names := differing(arrays(run, step), arrays(unbroken, step)):
        wrong.append(f"checkpoints/{step}: {', '.join(names[:3])} ({len(names)} arrays)")
    if (found := lines(run)) != (expected := lines(unbroken)):
        pairs = zip(found, expected, strict=False)
        at = next((n for n, (one, other) in enumerate(pairs) if one != other), len(expected))
        wrong.append(f"metrics.jsonl: from line {at + 1} on ({len(found)} lines, {len(expected)})")
    return wrong
