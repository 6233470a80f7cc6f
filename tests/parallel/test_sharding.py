"""Sharding: every parameter has a rule, large ones are split, rows arrive where they belong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from hnclip_jax import groups
from hnclip_jax.models import dual_encoder, presets
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from tools import plan_program


def _mesh(fsdp):
    return mesh_lib.create(groups.ParallelGroup(fsdp=fsdp))


@pytest.mark.parametrize("preset", ["tiny", "LongCLIP-L"])
def test_every_parameter_has_a_rule_where_layers_are_written_out(preset):
    # Stacked ones, of all presets: tests/test_plan_rules.py.
    shapes = dual_encoder.create(presets.get(preset), scan_layers=False).abstract_params()
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


@pytest.mark.parametrize("fsdp", [1, 4])
def test_the_gradient_of_a_look_up_arrives_split_as_the_table_is(fsdp):
    mesh = _mesh(fsdp)
    look_up = sharding.look_up(mesh)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(64, 16)).astype("f4")
    ids = rng.integers(0, 64, (16, 5)).astype("i4")
    weights = rng.normal(size=(16, 5, 16)).astype("f4")

    @jax.jit
    def gradient(table, ids, weights):
        return jax.value_and_grad(lambda table: jnp.sum(look_up(table, ids) * weights))(table)

    place = sharding.state_shardings(mesh, {"token_embedding": table})["token_embedding"]
    rows = sharding.batch_sharding(mesh)
    given = jax.device_put((table, ids, weights), (place, rows, rows))
    total, found = gradient(*given)
    np.testing.assert_allclose(total, np.sum(table[ids] * weights), rtol=1e-5)
    expected = np.zeros_like(table)
    np.add.at(expected, ids, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.sharding.is_equivalent_to(place, 2)
    exchanged = plan_program.read(gradient.lower(*given).compile().as_text()).collectives
    # No device sees the sum of the whole table, unless it keeps all of it; a scalar is the loss.
    assert exchanged["all-reduce"].bytes == 64 * 16 * 4 // fsdp + 4
    assert exchanged.get("reduce-scatter", (0, 0)) == (
        (1, 64 * 16 * 4 // 4) if fsdp > 1 else (0, 0)
    )


def test_rows_keep_their_order_on_the_mesh():
    mesh = _mesh(2)
    rows = {"image": np.arange(16 * 3).reshape(16, 3), "pair_id": np.arange(16)}
    placed = sharding.put_batch(mesh, rows)
    np.testing.assert_array_equal(placed["image"], rows["image"])
    assert placed["pair_id"].sharding.spec == P(("data", "fsdp"))
    shard = placed["pair_id"].addressable_shards[3]
    np.testing.assert_array_equal(shard.data, [6, 7])
