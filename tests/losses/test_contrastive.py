"""The global loss: value and gradient against float64, invariances, guards, blocks, devices."""

import collections
import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from hnclip_jax import losses, types
from tests.losses import reference

PAIRS, WIDTH = 14, 24
# Largest absolute error over the largest absolute reference. float32 rounds a cosine by about 1e-7,
# which the softmax multiplies by s.
TOLERANCE = {1.0: 1e-6, 14.0: 1e-6, 100.0: 2e-5}
PARITY = 1e-5
SAME = np.array([0, 1, 2, 1, 4, 5, 6, 7, 8, 4, 10, 4, 12, 13], np.int32)


boosted_with_grads = jax.jit(jax.value_and_grad(losses.hn_clip, argnums=(0, 1, 2)))


def value_and_grads(loss, image, text, scale):
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(image, text, jnp.float32(scale))


def test_golden_of_two_pairs():
    image = np.array([[1, 0], [0, 1]], np.float32)
    text = np.array([[1, 0], [0.6, 0.8]], np.float32)
    # S = [[1, .6], [0, .8]] and G off the diagonal is .6: Z = [[1, .9], [.3, .8]] at gamma = .5.
    # Rows: log(1 + e^-.1), log(1 + e^-.5). Columns: log(1 + e^-.7), log(1 + e^.1).
    boosted = (0.6443967 + 0.4740770 + 0.4031860 + 0.7443967) / 4
    # Z = S: log(1 + e^-.4), log(1 + e^-.8), log(1 + e^-1), log(1 + e^-.2).
    plain = (0.5130153 + 0.3711007 + 0.3132617 + 0.5981389) / 4
    np.testing.assert_allclose(losses.hn_clip(image, text, 1.0, gamma=0.5), boosted, rtol=1e-6)
    np.testing.assert_allclose(losses.info_nce(image, text, 1.0), plain, rtol=1e-6)


@pytest.mark.parametrize("near", [False, True], ids=["random", "near-duplicates"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("scale", [1.0, 14.0, 100.0])
def test_value_and_gradients_equal_float64(scale, gamma, near):
    image, text = reference.batch(0, PAIRS, WIDTH, near)
    delta = gamma * reference.geometry(text)
    wanted = reference.contrastive(image, text, scale, delta)
    value, grads = boosted_with_grads(image, text, scale, gamma)
    assert reference.relative_error(value, wanted[0]) < TOLERANCE[scale]
    for got, right in zip(grads, wanted[1], strict=True):
        assert reference.relative_error(got, right) < TOLERANCE[scale]


def test_same_pair_equals_float64():
    image, text = reference.batch(1, PAIRS, WIDTH)
    wanted = reference.contrastive(image, text, 14.0, 0.5 * reference.geometry(text), SAME)
    unguarded = reference.contrastive(image, text, 14.0, 0.5 * reference.geometry(text))
    value, grads = value_and_grads(
        functools.partial(losses.hn_clip, same_pair=SAME), image, text, 14.0
    )
    assert abs(wanted[0] - unguarded[0]) > 1e-3
    assert reference.relative_error(value, wanted[0]) < TOLERANCE[14.0]
    for got, right in zip(grads, wanted[1], strict=True):
        assert reference.relative_error(got, right) < TOLERANCE[14.0]


def test_negative_gamma_spares_look_alikes():
    image, text = reference.batch(1, PAIRS, WIDTH)
    wanted, _ = reference.contrastive(image, text, 14.0, -0.25 * reference.geometry(text))
    value = losses.hn_clip(image, text, 14.0, gamma=-0.25)
    assert reference.relative_error(value, wanted) < TOLERANCE[14.0]


@pytest.mark.parametrize("same_pair", [None, SAME], ids=["all", "guarded"])
def test_gamma_zero_is_info_nce_bit_for_bit(same_pair):
    image, text = reference.batch(2, PAIRS, WIDTH)
    boosted = functools.partial(losses.hn_clip, same_pair=same_pair)
    step = jax.value_and_grad(boosted, argnums=(0, 1, 2))
    plain = functools.partial(losses.info_nce, same_pair=same_pair)
    wanted = value_and_grads(plain, image, text, 100.0)
    for static in ((), (3,)):
        got = jax.jit(step, static_argnums=static)(image, text, jnp.float32(100.0), 0.0)
        chex.assert_trees_all_equal(got, wanted)


def test_no_gradient_flows_through_the_geometry():
    image, text = reference.batch(3, PAIRS, WIDTH)
    _, (_, own, _) = boosted_with_grads(image, text, 14.0)

    def constant(text, geometry):
        return losses.hn_clip(image, text, 14.0, geometry=geometry)

    of_text, of_geometry = jax.jit(jax.grad(constant, argnums=(0, 1)))(text, text)
    chex.assert_trees_all_close(own, of_text, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(of_geometry, np.zeros_like(text))


def test_geometry_replaces_the_texts_in_g_only():
    image, text = reference.batch(4, PAIRS, WIDTH)
    frozen = reference.unit(9, PAIRS, 7)
    wanted = reference.contrastive(image, text, 14.0, 0.5 * reference.geometry(frozen))
    loss = functools.partial(losses.hn_clip, geometry=frozen)
    value, grads = value_and_grads(loss, image, text, 14.0)
    assert reference.relative_error(value, wanted[0]) < TOLERANCE[14.0]
    assert reference.relative_error(grads[1], wanted[1][1]) < TOLERANCE[14.0]


def test_order_of_the_pairs_does_not_matter():
    image, text = reference.batch(5, PAIRS, WIDTH)
    order = np.random.default_rng(0).permutation(PAIRS)

    @jax.jit
    def run(image, text, same_pair):
        loss = functools.partial(losses.hn_clip, same_pair=same_pair)
        return jax.value_and_grad(loss, argnums=(0, 1, 2))(image, text, 14.0)

    value, (d_image, d_text, d_scale) = run(image, text, SAME)
    chex.assert_trees_all_close(
        run(image[order], text[order], SAME[order]),
        (value, (d_image[order], d_text[order], d_scale)),
        rtol=1e-5,
        atol=1e-7,
    )


@pytest.mark.parametrize("block_rows", [None, 5])
def test_all_negatives_masked_is_exactly_zero_and_finite(block_rows):
    image, text = reference.batch(6, PAIRS, WIDTH)
    loss = functools.partial(
        losses.hn_clip, same_pair=np.zeros(PAIRS, np.int32), block_rows=block_rows
    )
    value, grads = value_and_grads(loss, image, text, 100.0)
    chex.assert_trees_all_equal((value, grads), jax.tree.map(np.zeros_like, (value, grads)))


def test_equal_embeddings_are_finite():
    same = np.tile(np.array([[0.6, 0.8]], np.float32), (4, 1))
    value, grads = value_and_grads(functools.partial(losses.hn_clip, gamma=0.0), same, same, 100.0)
    np.testing.assert_allclose(value, np.log(4), rtol=1e-5)
    chex.assert_tree_all_finite(grads)


def test_bfloat16_input_gives_a_float32_loss():
    image, text = (jnp.asarray(x, jnp.bfloat16) for x in reference.batch(7, PAIRS, WIDTH))
    value = losses.hn_clip(image, text, 14.0)
    exact = losses.hn_clip(image.astype(jnp.float32), text.astype(jnp.float32), 14.0)
    assert value.dtype == jnp.float32
    np.testing.assert_array_equal(value, exact)


@pytest.mark.parametrize("block_rows", [4, 7, 50])
def test_blocks_equal_float64(block_rows):
    image, text = reference.batch(8, PAIRS, WIDTH)
    wanted = reference.contrastive(image, text, 14.0, 0.5 * reference.geometry(text), SAME)
    loss = functools.partial(losses.hn_clip, same_pair=SAME, block_rows=block_rows)
    value, grads = value_and_grads(loss, image, text, 14.0)
    assert reference.relative_error(value, wanted[0]) < TOLERANCE[14.0]
    for got, right in zip(grads, wanted[1], strict=True):
        assert reference.relative_error(got, right) < 2e-6


def test_blocks_bound_the_memory_of_the_gradient():
    rows = jax.ShapeDtypeStruct((1024, 8), jnp.float32)

    def temporaries(block_rows):
        loss = functools.partial(losses.hn_clip, block_rows=block_rows)
        compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(rows, rows, 14.0).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    matrix = 1024 * 1024 * 4
    assert temporaries(None) > matrix
    assert temporaries(64) < matrix


def guarded_loss(trained, given, scale, axis_name, block_rows=None):
    return losses.hn_clip(
        *trained, scale, axis_name=axis_name, same_pair=given[0], block_rows=block_rows
    )


@pytest.fixture(scope="module")
def sixteen():
    """Trained arrays, given arrays and scale; equal ids lie on one device and on different ones."""
    same_pair = np.array([0, 1, 2, 3, 4, 5, 6, 0, 8, 9, 10, 11, 12, 13, 13, 2], np.int32)
    same_pair[4:6] = 4
    return reference.batch(9, 16, WIDTH), (same_pair,), 14


@pytest.fixture(scope="module")
def alone(in_mapping, sixteen):
    return in_mapping("none", guarded_loss, *sixteen)


@pytest.mark.parametrize(
    "mapping",
    ["shard_map 8x1", "shard_map 4x2", "shard_map 1x8", "shard_map 2x1", "jit 4x2", "pmap"],
)
def test_devices_agree_with_one(in_mapping, sixteen, alone, mapping):
    got = in_mapping(mapping, guarded_loss, *sixteen)
    chex.assert_trees_all_close(got, alone, rtol=PARITY, atol=PARITY)


@pytest.mark.parametrize("mapping", ["shard_map 2x2", "pmap"])
def test_blocks_on_devices_agree_with_one(in_mapping, sixteen, alone, mapping):
    block_rows = 1 if mapping == "pmap" else 3
    loss = functools.partial(guarded_loss, block_rows=block_rows)
    chex.assert_trees_all_close(
        in_mapping(mapping, loss, *sixteen), alone, rtol=PARITY, atol=PARITY
    )


def test_a_loss_near_zero_keeps_its_digits_over_devices(in_mapping):
    text = np.eye(16, dtype=np.float32)

    def loss(trained, given, scale, axis_name):
        return losses.info_nce(*trained, scale, axis_name=axis_name)

    value, ((d_image, _), _) = in_mapping("shard_map 4x2", loss, (text, text), (), 40.0)
    rest = 15 * np.exp(-40.0)  # 6e-17, far below the rounding of the positive's probability
    assert reference.relative_error(value, np.log1p(rest)) < TOLERANCE[100.0]
    assert (
        reference.relative_error(np.diag(d_image), np.full(16, -40 * rest / 16)) < TOLERANCE[100.0]
    )


def collectives(gamma, with_geometry=False):
    axes = ("data", "fsdp")
    mesh = jax.make_mesh((4, 2), axes, axis_types=(AxisType.Auto,) * 2)

    def loss(image, text, scale, geometry):
        geometry = geometry if with_geometry else None
        return losses.hn_clip(image, text, scale, gamma, axis_name=axes, geometry=geometry)

    mapped = jax.shard_map(
        loss, mesh=mesh, in_specs=(P(axes), P(axes), P(), P(axes)), out_specs=P()
    )
    rows = jax.ShapeDtypeStruct((16, WIDTH), jnp.float32)
    step = jax.jit(jax.value_and_grad(mapped, argnums=(0, 1, 2)))
    text = step.lower(rows, rows, jax.ShapeDtypeStruct((), jnp.float32), rows).compile().as_text()
    kinds = "all-gather|all-reduce|reduce-scatter|collective-permute|all-to-all"
    return collections.Counter(re.findall(rf" ({kinds})(?:-start)?\(", text))


def test_the_boost_adds_no_collective():
    plain, boosted = collectives(0.0), collectives(0.5)
    assert boosted == plain
    assert boosted["all-gather"] == 1
    assert boosted["reduce-scatter"] == 1
    assert collectives(0.5, with_geometry=True)["all-gather"] == 2


@pytest.mark.parametrize(
    ("image", "text", "kwargs", "message"),
    [
        ((1, 4), (1, 4), {}, "at least 2 pairs"),
        ((4, 4), (5, 4), {}, "one row per pair"),
        ((4, 4), (4, 4), {"same_pair": np.arange(3)}, "one row per pair"),
        ((4, 4), (4, 4), {"geometry": np.ones((3, 4))}, "one row per pair"),
        ((4, 4), (4, 4), {"block_rows": 0}, "block_rows is 0"),
    ],
    ids=["one pair", "unequal", "ids", "geometry", "block of nothing"],
)
def test_mistakes_are_named(image, text, kwargs, message):
    with pytest.raises(types.UserError, match=message):
        losses.hn_clip(np.ones(image), np.ones(text), 1.0, **kwargs)
