"""Start of the processes of a run: who this one is, who has come, and then JAX's own start."""

import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping

import jax

from hnclip_jax import groups, types
from hnclip_jax.parallel import environment, rollcall

_LEAVE_TIMEOUT_S = 60
"""So long a process that ends with a mistake waits for the others, which then end as well."""


def start(group: groups.ParallelGroup) -> None:
    """Joins the processes of a run. Must come before anything touches a device.

    Raises:
      types.UserError: on every process that came, if others do not come within `start_timeout_s`,
        or if versions differ between them; if the variables of a cluster are incomplete; if the
        platform is not the one that `group.platform` demands.
    """
    if group.coordinator and not jax.distributed.is_initialized():
        _join(resolve(group, os.environ), group.start_timeout_s)
    if group.platform and jax.default_backend() != group.platform:
        raise types.UserError(
            f"parallel.platform asks for {group.platform!r}, but JAX found "
            f"{jax.default_backend()!r} ({jax.device_count()} devices); install the matching jaxlib"
        )


def resolve(group: groups.ParallelGroup, environ: Mapping[str, str]) -> environment.Start:
    """Returns who this process is, by the flags or, if `coordinator` is "auto", by the cluster.

    Raises:
      types.UserError: if the cluster does not tell, or tells something else than the flags.
    """
    if group.coordinator != "auto":
        return environment.Start(group.coordinator, group.process_count, group.process_index)
    if group.process_count > 1:  # The one number that not every cluster tells.
        environ = {"NNODES": str(group.process_count), **environ}
    found = environment.from_environment(environ)
    # JAX sets this variable where there is no TPU.
    if found is None and "TPU_SKIP_MDS_QUERY" not in environ:
        found = environment.from_metadata(environment.read_metadata(environ))
    if found is None:
        raise types.UserError(
            "parallel.coordinator is 'auto', but no cluster tells who this process is (looked for "
            f"{environment.LOOKED_FOR}, and a TPU's metadata server); give "
            "parallel.coordinator=host:port, process_count and process_index"
        )
    for name, given, told in (
        ("process_count", group.process_count if group.process_count > 1 else None, found.count),
        ("process_index", group.process_index or None, found.index),
    ):
        if given not in (None, told):
            raise types.UserError(
                f"parallel.{name} is {given}, but {found.source} says {told}; leave the flag out"
            )
    return found


def versions() -> dict[str, str]:
    """Returns the versions that all processes must share."""
    names = ("hnclip_jax", "jax", "jaxlib")
    return {
        **{name: importlib.metadata.version(name) for name in names},
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def _join(me: environment.Start, timeout_s: int) -> None:
    present = rollcall.Present(me.index, me.count, socket.gethostname(), versions())
    rollcall.meet(present, me.coordinator, timeout_s)
    try:
        jax.distributed.initialize(
            coordinator_address=me.coordinator,
            num_processes=me.count,
            process_id=me.index,
            local_device_ids=me.devices,
            # It has found nothing that is not known here, and would take one GPU of a SLURM node.
            cluster_detection_method="deactivate",
            initialization_timeout=timeout_s,
            shutdown_timeout_seconds=_LEAVE_TIMEOUT_S,
        )
    except Exception as error:
        raise types.UserError(
            f"process {me.index} of {me.count} could not join the run at {me.coordinator}: "
            f"{str(error).splitlines()[0]}; check that this host can reach that port"
        ) from error
