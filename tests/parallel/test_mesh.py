"""Mesh: shapes, and what does not fit."""

import jax
import pytest

from hnclip_jax import groups, types
from hnclip_jax.parallel import mesh as mesh_lib


@pytest.mark.parametrize(
    ("data", "fsdp", "count", "shape"),
    [
        (-1, 1, 8, (8, 1)),
        (-1, 2, 8, (4, 2)),
        (1, 8, 8, (1, 8)),
        (2, 2, 4, (2, 2)),
        (-1, 1, 1, (1, 1)),
    ],
)
def test_axes_multiply_to_the_devices(data, fsdp, count, shape):
    group = groups.ParallelGroup(data=data, fsdp=fsdp)
    mesh = mesh_lib.create(group, jax.devices()[:count])
    assert tuple(mesh.shape.values()) == shape
    assert mesh.axis_names == mesh_lib.AXES


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (groups.ParallelGroup(data=3), "does not give the 8 devices"),
        (groups.ParallelGroup(fsdp=3), "does not give the 8 devices"),
        (groups.ParallelGroup(mapper="pmap", fsdp=2), "must be 1"),
    ],
    ids=["data", "fsdp", "pmap"],
)
def test_axes_that_do_not_fit(group, message):
    with pytest.raises(types.UserError, match=message):
        mesh_lib.create(group)


def test_a_batch_must_split_evenly_and_the_message_names_the_nearest_sizes():
    mesh = mesh_lib.create(groups.ParallelGroup())
    mesh_lib.check_batch(mesh, 16)
    mesh_lib.check_batch(mesh, 16, micro_batches=2)
    with pytest.raises(types.UserError, match="nearest sizes: 16 or 24"):
        mesh_lib.check_batch(mesh, 20)
    with pytest.raises(types.UserError, match=r"nearest sizes: 32$"):
        mesh_lib.check_batch(mesh, 24, micro_batches=4)


def test_a_demanded_platform_is_checked():
    mesh_lib.start(groups.ParallelGroup(platform="cpu"))
    with pytest.raises(types.UserError, match="asks for 'tpu', but JAX found 'cpu'"):
        mesh_lib.start(groups.ParallelGroup(platform="tpu"))
