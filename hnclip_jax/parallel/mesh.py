"""The mesh of devices, and which batches fit it."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh

from hnclip_jax import groups, types
from hnclip_jax.parallel import cluster

AXES = ("data", "fsdp")
"""Mesh axes. The batch is split over both; large parameters are split over "fsdp"."""

start = cluster.start
"""Joins the processes of a run; see parallel/cluster.py."""


def create(group: groups.ParallelGroup, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns the ("data", "fsdp") mesh over `devices` (default: all of them).

    Raises:
      types.UserError: if the two axes do not multiply to the number of devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    data = len(devices) // group.fsdp if group.data == -1 else group.data
    if data * group.fsdp != len(devices):
        raise types.UserError(
            f"parallel.data ({group.data}) x parallel.fsdp ({group.fsdp}) does not give the "
            f"{len(devices)} devices here; set data=-1 and an fsdp that divides {len(devices)}"
        )
    if group.mapper == "pmap" and jax.process_count() > 1:
        raise types.UserError(
            f"parallel.mapper='pmap' maps over the devices of one process, but this run has "
            f"{jax.process_count()}; use mapper='mesh'"
        )
    if group.mapper == "pmap" and group.fsdp > 1:
        raise types.UserError(
            f"parallel.mapper='pmap' copies every parameter, so parallel.fsdp ({group.fsdp}) must "
            "be 1; use mapper='mesh' to split parameters"
        )
    # Auto axes: under explicit ones the embedding look-up of the text tower does not type-check.
    grid = np.asarray(devices, dtype=object).reshape(data, group.fsdp)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def any_process(flag: bool) -> bool:
    """Returns whether `flag` is set on any process; all of them must ask, and get one answer."""
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.asarray(flag)).any())


def check_batch(mesh: Mesh, batch_size: int, micro_batches: int = 1) -> None:
    """Raises types.UserError unless a batch splits evenly over the devices and micro-batches."""
    parts = mesh.size * micro_batches
    if batch_size % parts:
        lower, upper = batch_size // parts * parts, -(-batch_size // parts) * parts
        nearest = f"{lower} or {upper}" if lower else f"{upper}"
        each = f" x {micro_batches} micro-batches" if micro_batches > 1 else ""
        raise types.UserError(
            f"a batch of {batch_size} pairs cannot be split evenly over {mesh.size} devices{each}; "
            f"nearest sizes: {nearest}"
        )
