"""How every parameter of a config lies on a mesh: which rule places it, and what a device holds."""

import math
from typing import Any, NamedTuple

import jax

from hnclip_jax import config
from hnclip_jax.parallel import sharding
from hnclip_jax.training import optimizer
from tools import plan_chips, plan_step


class Row(NamedTuple):
    """One array of the run.

    path: in the parameters; "base/..." below adapters, "reference/..." the starting text tower.
    shape: of the whole array.
    lies: which axis is split in how many parts, or why the array is copied.
    bytes: that a device holds.
    trains: whether it moves.
    rule: the regular expression of sharding.RULES that places it.
    """

    path: str
    shape: tuple[int, ...]
    lies: str
    bytes: int
    trains: bool
    rule: str


class Rules(NamedTuple):
    """The arrays of a run, and what else a device holds.

    rows: every parameter, and every array that is kept beside them.
    moments: bytes of the optimiser's state.
    """

    rows: list[Row]
    moments: int


def of(settings: config.Config, target: plan_chips.Target) -> Rules:
    """Returns how the run of these settings lies on a target. Nothing is compiled or made.

    Raises:
      types.UserError: if the settings do not fit the target.
    """
    per_chip = settings.train.micro_batches * settings.train.gradient_cache
    case = plan_step.Case(target, per_chip, settings.model.remat)
    settings = plan_step.case_settings(settings, case)
    state = plan_step.begin(settings, target)
    trains = jax.tree.leaves(optimizer.trained(settings.optim, state.params))
    rows = [
        _row("", key_path, leaf, moves)
        for (key_path, leaf), moves in zip(_leaves(state.params), trains, strict=True)
    ]
    for name, tree in (("base/", state.base), ("reference/", state.reference)):
        rows += [_row(name, key_path, leaf, False) for key_path, leaf in _leaves(tree)]
    return Rules(rows, plan_step.bytes_of(state.opt_state))


def _leaves(tree: Any) -> list[tuple[tuple, Any]]:
    return jax.tree_util.tree_leaves_with_path(tree)


def _row(before: str, key_path: tuple, leaf: Any, moves: bool) -> Row:
    path = before + sharding.path_of(key_path)
    rule, tactic = sharding.rule_of(path)
    own = leaf.sharding.shard_shape(leaf.shape)
    cut = [axis for axis, (one, all_) in enumerate(zip(own, leaf.shape, strict=True)) if one < all_]
    if cut:
        lies = f"axis {cut[0]} in {leaf.shape[cut[0]] // own[cut[0]]}"
    else:
        lies = "copied" if tactic == "copy" else "copied: no axis divides"
    return Row(path, leaf.shape, lies, math.prod(own) * leaf.dtype.itemsize, moves, rule)


def table(rules: Rules) -> str:
    """Returns a line for every array, and the sums."""
    lines = [("path", "shape", "on the mesh", "MB per device", "trains", "rule")]
    for row in rules.rows:
        shape = " x ".join(map(str, row.shape)) or "scalar"
        trains = "yes" if row.trains else "frozen"
        lines.append((row.path, shape, row.lies, _mb(row.bytes), trains, row.rule))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    place = (str.ljust, str.rjust, str.ljust, str.rjust, str.ljust, str.ljust)
    shown = [
        "  ".join(put(c, w) for put, c, w in zip(place, line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([*shown, "", *_sums(rules)])


def _sums(rules: Rules) -> list[str]:
    parts = {
        "that train": [row for row in rules.rows if row.trains],
        "frozen": [row for row in rules.rows if not row.trains],
        "of these copied": [row for row in rules.rows if row.lies.startswith("copied")],
    }
    lines = [
        f"{name}: {len(rows)} arrays, {sum(math.prod(row.shape) for row in rows):,} numbers, "
        f"{_mb(sum(row.bytes for row in rows))} MB per device"
        for name, rows in parts.items()
    ]
    return [*lines, f"optimiser: {_mb(rules.moments)} MB per device"]


def _mb(count: int) -> str:
    return f"{count / 1e6:.3f}"
