"""Sharding: every parameter has a rule, large ones are split, rows arrive where they belong."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from hnclip_jax import groups
from hnclip_jax.models import dual_encoder, presets
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding


def _mesh(fsdp):
    return mesh_lib.create(groups.ParallelGroup(fsdp=fsdp))


@pytest.mark.parametrize(
    ("preset", "scan"),
    [
        *((preset, True) for preset in presets.list_presets()),
        ("tiny", False),
        ("LongCLIP-L", False),
    ],
)
def test_every_parameter_of_every_preset_has_a_rule(preset, scan):
    shapes = dual_encoder.create(presets.get(preset), scan_layers=scan).abstract_params()
    placed = sharding.state_shardings(_mesh(8), shapes)
    sizes = {True: 0, False: 0}
    for leaf, where in zip(jax.tree.leaves(shapes), jax.tree.leaves(placed), strict=True):
        sizes[where.spec != P()] += leaf.size
    assert sizes[True] / sum(sizes.values()) > 0.97


def test_the_layer_axis_of_stacked_blocks_is_never_split():
    shapes = {
        "image": {"blocks": {"attn": {"query": {"kernel": jax.ShapeDtypeStruct((16, 4, 4), "f4")}}}}
    }
    placed = sharding.state_shardings(_mesh(4), shapes)
    assert jax.tree.leaves(placed)[0].spec == P(None, "fsdp", None)


def test_a_size_that_does_not_divide_is_copied():
    shapes = {"proj": jax.ShapeDtypeStruct((6, 10), "f4")}
    assert sharding.state_shardings(_mesh(8), shapes)["proj"].spec == P()
    assert sharding.state_shardings(_mesh(2), shapes)["proj"].spec == P(None, "fsdp")


def test_a_parameter_without_a_rule_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="novel/thing"):
        sharding.state_shardings(_mesh(2), {"novel": {"thing": jax.ShapeDtypeStruct((2,), "f4")}})


def test_rows_keep_their_order_on_the_mesh():
    mesh = _mesh(2)
    rows = {"image": np.arange(16 * 3).reshape(16, 3), "pair_id": np.arange(16)}
    placed = sharding.put_batch(mesh, rows)
    np.testing.assert_array_equal(placed["image"], rows["image"])
    assert placed["pair_id"].sharding.spec == P(("data", "fsdp"))
    shard = placed["pair_id"].addressable_shards[3]
    np.testing.assert_array_equal(shard.data, [6, 7])
