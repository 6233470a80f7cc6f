"""The loss in row blocks: equal to the plain one, in O(block x B) memory, with no more exchange."""

import collections
import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads

from hnclip_jax import losses
from hnclip_jax.losses import blockwise, contrastive, margins
from tests.losses import conftest, reference

PAIRS, WIDTH = 14, 10
PARITY = 1e-5
SAME = np.array([0, 1, 2, 1, 4, 5, 6, 7, 8, 4, 10, 4, 12, 13], np.int32)
VALID = np.array([1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0], bool)
KINDS = {
    "none": lambda gamma, key: margins.none,
    "hn": lambda gamma, key: functools.partial(margins.hn, gamma=gamma),
    "constant": lambda gamma, key: functools.partial(margins.constant, gamma=gamma),
    "given": lambda gamma, key: functools.partial(margins.constant, margin=gamma),
    "centred": lambda gamma, key: functools.partial(margins.centred, gamma=gamma),
    "row_centred": lambda gamma, key: functools.partial(margins.row_centred, gamma=gamma),
    "row_shuffled": lambda gamma, key: functools.partial(
        margins.row_shuffled, gamma=gamma, key=key
    ),
    "arcface": lambda gamma, key: functools.partial(margins.arcface, margin=gamma),
    "by the cosines": lambda gamma, key: functools.partial(_curved, gamma),
}
SETTINGS = {
    "bare": {},
    "guarded": {"same_pair": SAME, "valid": VALID},
    "smoothed": {"smoothing": 0.1, "same_pair": SAME, "valid": VALID},
    "frozen": {"smoothing": 0.1, "geometry": reference.unit(7, PAIRS, 5)},
}


def _curved(gamma, block):
    """A margin through which gradient flows to both towers everywhere."""
    return gamma * jnp.square(block.similarity)


def value_and_grads(kind, scale, block_rows, **settings):
    """Returns the loss and its gradients by image, text, scale and gamma; key and gamma traced."""

    def loss(image, text, scale, gamma, key):
        margin = KINDS[kind](gamma, key)
        return contrastive.shifted_info_nce(
            image, text, scale, margin, block_rows=block_rows, **settings
        )

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)))
    image, text = reference.batch(0, PAIRS, WIDTH)
    return run(image, text, jnp.float32(scale), jnp.float32(0.3), jax.random.key(3))


plain = functools.cache(
    lambda kind, settings: value_and_grads(kind, 14, None, **SETTINGS[settings])
)


def assert_equal(got, wanted, tolerance=PARITY):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        error = np.max(np.abs(one - other))
        assert error <= tolerance * max(np.max(np.abs(other)), 1e-2), (error, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("settings", "block_rows"), [("bare", 7), ("smoothed", 4)])
def test_every_margin_equals_the_plain_loss(kind, settings, block_rows):
    wanted = plain(kind, settings)
    assert_equal(value_and_grads(kind, 14, block_rows, **SETTINGS[settings]), wanted)
    assert kind == "none" or abs(wanted[1][3]) > 1e-4


@pytest.mark.parametrize("block_rows", [1, 3, 9, 13])
@pytest.mark.parametrize("settings", SETTINGS)
def test_every_size_of_block_equals_the_plain_loss(settings, block_rows):
    got = value_and_grads("hn", 14, block_rows, **SETTINGS[settings])
    assert_equal(got, plain("hn", settings))


@pytest.mark.parametrize("block_rows", [PAIRS, 50])
def test_one_block_is_the_plain_loss_bit_for_bit(block_rows):
    got = value_and_grads("hn", 14, block_rows, **SETTINGS["smoothed"])
    chex.assert_trees_all_equal(got, plain("hn", "smoothed"))


@pytest.mark.parametrize("near", [False, True], ids=["random", "near-duplicates"])
def test_many_blocks_at_a_high_scale_equal_float64(near):
    image, text = reference.batch(1, 60, WIDTH, near)
    wanted = reference.contrastive(image, text, 100.0, 0.5 * reference.geometry(text))
    loss = functools.partial(losses.hn_clip, block_rows=1)
    value, grads = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(image, text, 100.0)
    assert reference.relative_error(value, wanted[0]) < 1e-6
    for got, right in zip(grads, wanted[1], strict=True):
        assert reference.relative_error(got, right) < 2e-5  # as in test_contrastive.py


def test_a_loss_near_zero_keeps_its_digits():
    text = np.eye(16, dtype=np.float32)
    loss = functools.partial(losses.info_nce, block_rows=5)
    value, d_image = jax.jit(jax.value_and_grad(loss))(text, text, 40.0)
    rest = 15 * np.exp(-40.0)  # far below the rounding of the positive's probability
    np.testing.assert_allclose(value, np.log1p(rest), rtol=2e-5)
    np.testing.assert_allclose(np.diag(d_image), np.full(16, -40 * rest / 16), rtol=2e-5)


def test_gradients_equal_differences_of_the_value():
    image, text = reference.batch(2, 7, 4)

    def loss(image, text, scale):
        margin = functools.partial(margins.arcface, margin=0.3)
        return contrastive.shifted_info_nce(
            image, text, scale, margin, block_rows=3, smoothing=0.1, valid=VALID[:7]
        )

    check_grads(jax.jit(loss), (image, text, np.float32(5)), order=1, modes=["rev"], eps=1e-2)


def test_no_second_gradient_is_lost():
    image, text = reference.batch(3, PAIRS, WIDTH)

    def slope(image, block_rows):
        loss = functools.partial(losses.hn_clip, block_rows=block_rows)
        return jnp.vdot(jax.grad(loss)(image, text, 14.0), text)

    run = jax.jit(jax.grad(slope), static_argnums=1)
    assert_equal(run(image, 5), run(image, None))


@pytest.mark.parametrize("kind", ["hn", "row_shuffled"])
@pytest.mark.parametrize("mapping", ["jit 4x2", "shard_map 2x1", "shard_map 2x2", "pmap"])
def test_devices_agree_with_one(in_mapping, mapping, kind):
    """Gamma and the key come from scale, so that both are of a trace and gamma has a gradient."""

    def loss(trained, given, scale, axis_name, block_rows=1 if mapping == "pmap" else 3):
        key = jax.random.key(scale.astype(jnp.int32))
        return contrastive.shifted_info_nce(
            *trained,
            scale,
            KINDS[kind](scale / 28, key),
            axis_name=axis_name,
            block_rows=block_rows,
            same_pair=given[0],
            valid=given[1],
            smoothing=0.1,
        )

    given = (np.append(SAME, [2, 15]).astype(np.int32), np.append(VALID, [True, True]))
    arrays = reference.batch(4, 16, WIDTH), given, 14
    wanted = in_mapping("none", functools.partial(loss, block_rows=None), *arrays)
    assert_equal(in_mapping(mapping, loss, *arrays), wanted)


def collectives(gamma, block_rows, inside):
    """Counts the exchanges by kind and shape; `inside`: the gradient is taken in shard_map."""
    mesh = conftest.mesh_of("shard_map 4x2")

    def loss(image, text, scale):
        return losses.hn_clip(
            image, text, scale, gamma, axis_name=conftest.AXES, block_rows=block_rows
        )

    of_rows, grads = P(conftest.AXES), functools.partial(jax.grad, argnums=(0, 1, 2))
    specs = of_rows, of_rows, P()
    mapped = jax.shard_map(
        grads(loss) if inside else loss,
        mesh=mesh,
        in_specs=specs,
        out_specs=specs if inside else P(),
    )
    rows, scale = jax.ShapeDtypeStruct((48, WIDTH), jnp.float32), jnp.float32(14)
    step = jax.jit(mapped if inside else grads(mapped))
    text = step.lower(rows, rows, scale).compile().as_text()
    kinds = "all-gather|all-reduce|reduce-scatter|collective-permute|all-to-all"
    found = re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", text)
    of_entry = re.findall(rf" ({kinds})(?:-start)?\(", text[text.index("\nENTRY ") :])
    assert len(of_entry) == len(found), "an exchange in a loop"
    return collections.Counter(found)


@pytest.mark.parametrize("inside", [False, True], ids=["gradient outside", "gradient inside"])
def test_blocks_and_the_boost_exchange_no_more_than_the_plain_loss(inside):
    whole = collectives(0.0, None, inside)
    assert sum(whole.values()) > 3
    assert collectives(0.0, 2, inside) == whole
    assert collectives(0.5, 2, inside) == whole


def temporaries(block_rows, pairs=65_536, width=768, **settings):
    rows = jax.ShapeDtypeStruct((pairs, width), jnp.float32)

    def loss(image, text, scale, same_pair):
        guard = {"same_pair": same_pair} if settings else {}
        margin = functools.partial(margins.hn, gamma=0.5)
        return contrastive.shifted_info_nce(
            image, text, scale, margin, block_rows=block_rows, **guard, **settings
        )

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    ids = jax.ShapeDtypeStruct((pairs,), jnp.int32)
    compiled = run.lower(rows, rows, jax.ShapeDtypeStruct((), jnp.float32), ids).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_65536_pairs_of_width_768_fit_into_2_gb():
    rows, block = 65_536 * 768 * 4, 1024 * 65_536 * 4
    # One gradient as it is added up, and some blocks; G alone would be 17 GB.
    assert temporaries(1024) < rows + 3 * block < 1.01e9
    assert temporaries(1000) < rows + 3 * block  # does not divide the rows: no copies of them
    assert temporaries(1024, smoothing=0.1) < rows + 4 * block


def test_memory_does_not_grow_with_the_number_of_blocks():
    """B numbers kept for each of the 512 blocks would be half as much as the whole matrix."""
    pairs = 1024
    assert temporaries(2, pairs, 8) < 32 * 4 * pairs
    assert temporaries(2, pairs, 8, smoothing=0.1) < 32 * 4 * pairs
    assert temporaries(None, pairs, 8) > 4 * pairs**2


def test_unbind_tells_floats_from_other_arrays_and_binds_them_again():
    key = jax.random.key(0)
    function = functools.partial(dict, a=np.float32([1]), b=key, c=np.arange(2), d="word", e=None)
    rebind, floats, others = blockwise.unbind(function)
    assert len(floats) == 1
    assert len(others) == 2
    doubled = rebind({n: 2 * x for n, x in floats.items()}, others)(f=3.0)
    assert doubled.pop("b") is key
    assert doubled.pop("c").tolist() == [0, 1]
    assert doubled == {"a": np.float32([2]), "d": "word", "e": None, "f": 3.0}
    rebind, floats, others = blockwise.unbind(margins.none)
    assert (floats, others) == ({}, {})
    np.testing.assert_array_equal(rebind({}, {})(margins.Block(None, np.ones(2), None, None)), 0)


def test_an_array_that_is_closed_over_is_no_silent_loss_of_its_gradient():
    image, text = reference.batch(5, PAIRS, WIDTH)

    def loss(gamma):
        margin = KINDS["hn"](gamma, None)
        return contrastive.shifted_info_nce(
            image, text, 14.0, lambda block: margin(block), block_rows=4
        )

    with pytest.raises(jax.errors.UnexpectedTracerError):
        jax.grad(loss)(0.5)
