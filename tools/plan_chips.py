"""Names of topologies -> devices to compile for, none of which need be here, and their memory."""

import importlib.util
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from hnclip_jax import types


class Chip(NamedTuple):
    """A kind of TPU: GiB that a device has, GiB of them that programs get, options of libtpu."""

    memory: int
    usable: float
    options: dict[str, Any]


# Memory is as Google gives it for Cloud TPUs. What programs get is what libtpu 0.0.52 says of one
# that asks for more ("exceeds available HBM (15.75G)"). A v4 chip is one device only in its
# "megacore" setting, which Cloud TPUs have; libtpu's own default is two.
CHIPS = {
    "v4": Chip(32, 30.75, {"chip_config_name": "megacore"}),
    "v5e": Chip(16, 15.75, {}),
    "v5p": Chip(95, 95.73, {}),
    "v6e": Chip(32, 31.24, {}),
}

_ENVIRONMENT = {
    # Without these libtpu asks Google's metadata server what it runs on, and complains.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-256",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    # No chip is opened, so two plans, or a plan and a run, do not disturb each other.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


class Target(NamedTuple):
    """What a step is compiled for.

    name: as it was asked for.
    devices: in the order of the mesh.
    memory: bytes that programs get on each; 0 = no limit is known.
    """

    name: str
    devices: tuple[jax.Device, ...]
    memory: int


def find(names: Sequence[str], memory: int = 0) -> list[Target]:
    """Returns what the names mean: "v5e:16x16", "v5p:4x4x4", "cpu:8" and so on.

    Must come before anything touches a device when CPU topologies of another size than this
    process has are among them.

    Args:
      names: of topologies.
      memory: bytes per device, instead of the chip's own; 0 = the chip's.

    Raises:
      types.UserError: for an unknown chip, a shape that it does not come in, or without libtpu.
    """
    parts = [_split(name) for name in names]
    _make_cpus(max((shape[0] for kind, shape in parts if kind == "cpu"), default=0))
    return [
        Target(name, _devices(name, kind, shape), memory or _usable(kind))
        for name, (kind, shape) in zip(names, parts, strict=True)
    ]


def _split(name: str) -> tuple[str, tuple[int, ...]]:
    kind, _, shape = name.partition(":")
    if kind not in CHIPS and kind != "cpu":
        raise types.unknown_name("chip", kind, [*CHIPS, "cpu"])
    if not re.fullmatch(r"[1-9]\d*" if kind == "cpu" else r"[1-9]\d*(x[1-9]\d*){1,2}", shape):
        raise types.UserError(
            f"topology {name!r} has no shape that can be read; write cpu:8, v5e:16x16 or v5p:4x4x4"
        )
    return kind, tuple(int(n) for n in shape.split("x"))


def _usable(kind: str) -> int:
    return int(CHIPS[kind].usable * 2**30) if kind in CHIPS else 0


def _make_cpus(count: int) -> None:
    if not count:
        return
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # They exist already; there may be enough of them.
        there = len(jax.devices("cpu"))
        if there < count:
            raise types.UserError(
                f"topology 'cpu:{count}' needs {count} devices, but this process has {there}"
            ) from None


def _devices(name: str, kind: str, shape: tuple[int, ...]) -> tuple[jax.Device, ...]:
    if kind == "cpu":
        return tuple(jax.devices("cpu")[: shape[0]])
    if importlib.util.find_spec("libtpu") is None:
        raise types.UserError(
            f"topology {name!r} needs the compiler of TPUs; pip install 'hnclip_jax[plan]' "
            "(libtpu), no TPU is needed"
        )
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    try:
        found = topologies.get_topology_desc(name, platform="tpu", **CHIPS[kind].options)
    except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
        first = str(error).splitlines()[0]
        raise types.UserError(f"libtpu refuses topology {name!r}: {first}") from error
    return tuple(found.devices)
