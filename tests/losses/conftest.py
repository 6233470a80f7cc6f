"""Shared by the loss tests: one loss run in any mapping over devices."""

import functools

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

AXES = ("data", "fsdp")


@pytest.fixture(autouse=True)
def _strict_dtypes():
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="session")
def in_mapping():
    """in_mapping(mapping, loss, trained, given, scale): value, (gradients of trained, of scale).

    loss(trained, given, scale, axis_name) takes two tuples of arrays with one row per pair. A
    mapping is "none" (one device), "shard_map AxB", "jit AxB" (sharded arrays) or "pmap".
    """
    return _in_mapping


def mesh_of(mapping):
    shape = tuple(map(int, mapping.split()[1].split("x")))
    devices = jax.devices()[: shape[0] * shape[1]]
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 2, devices=devices)


def _in_mapping(mapping, loss, trained, given, scale):
    scale = np.float32(scale)
    if mapping == "pmap":
        return _in_pmap(loss, trained, given, scale)
    run = functools.partial(loss, axis_name=None)
    if mapping.startswith("shard_map"):
        run = jax.shard_map(
            functools.partial(loss, axis_name=AXES),
            mesh=mesh_of(mapping),
            in_specs=(P(AXES), P(AXES), P()),
            out_specs=P(),
        )
    elif mapping.startswith("jit"):
        trained, given = jax.device_put((trained, given), NamedSharding(mesh_of(mapping), P(AXES)))
    return jax.jit(jax.value_and_grad(run, argnums=(0, 2)))(trained, given, scale)


def _in_pmap(loss, trained, given, scale):
    def split(x):
        return x.reshape(8, -1, *x.shape[1:])

    def step(trained, given, scale):
        run = functools.partial(loss, axis_name="batch")
        value, (rows, of_scale) = jax.value_and_grad(run, argnums=(0, 2))(trained, given, scale)
        # Eight times too large each: rows are divided, shared parameters averaged.
        return value, (jax.tree.map(lambda x: x / 8, rows), jax.lax.pmean(of_scale, "batch"))

    value, (rows, of_scale) = jax.pmap(step, axis_name="batch", in_axes=(0, 0, None))(
        *jax.tree.map(split, (trained, given)), scale
    )
    np.testing.assert_array_equal(value, np.full(8, value[0]))
    rows = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), rows)
    return value[0], (rows, of_scale[0])
