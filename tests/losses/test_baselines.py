"""Sigmoid loss, CyCLIP, soft targets: by hand, against float64, limits, edges, over devices."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import losses, types
from hnclip_jax.losses import baselines, margins
from tests.losses import baseline_reference as slow
from tests.losses import reference

PAIRS, WIDTH = 5, 4
TOLERANCE = {5.0: 2e-6, 100.0: 5e-5}  # as in test_contrastive.py: s times the rounding of a cosine
SAME = np.array([3, 0, 3, 1, 2], np.int32)
HN = functools.partial(margins.hn, gamma=0.5)

# By name: the loss with its settings, and the same of the float64 reference.
CASES = {
    "siglip": (
        functools.partial(baselines.siglip, bias=-2.0),
        functools.partial(slow.siglip, bias=-2.0),
    ),
    "siglip + HN": (
        functools.partial(baselines.siglip, bias=-2.0, margin=HN),
        functools.partial(slow.siglip, bias=-2.0, gamma=0.5),
    ),
    "cyclip": (
        functools.partial(baselines.cyclip, cross=0.3, within=0.2),
        functools.partial(slow.cyclip, cross=0.3, within=0.2),
    ),
    "soft targets": (
        functools.partial(baselines.soft_targets, share=0.3, temperature=0.2),
        functools.partial(slow.soft_targets, share=0.3, temperature=0.2),
    ),
}


def two_pairs():
    """S = [[1, .6], [0, .8]]; G off the diagonal is .6, v v^T is 0 there."""
    return np.eye(2, dtype=np.float32), np.array([[1, 0], [0.6, 0.8]], np.float32)


def value_and_grads(loss, image, text, scale):
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(image, text, jnp.float32(scale))


def test_golden_siglip():
    # 2 S - 1 = [[1, .2], [-1, .6]]: softplus of -1, .2, -1, -.6.
    plain = (0.3132617 + 0.7981389 + 0.3132617 + 0.4374879) / 2
    # The negatives with 2 (S + .5 * .6) - 1 instead: softplus of .8 and -.4.
    boosted = (0.3132617 + 1.1711007 + 0.5130153 + 0.4374879) / 2
    np.testing.assert_allclose(baselines.siglip(*two_pairs(), 2.0, bias=-1.0), plain, rtol=1e-6)
    np.testing.assert_allclose(
        baselines.siglip(*two_pairs(), 2.0, bias=-1.0, margin=HN), boosted, rtol=1e-6
    )


def test_golden_siglip_of_equal_ids_keeps_the_positives_alone():
    got = baselines.siglip(*two_pairs(), 2.0, bias=-1.0, same_pair=np.zeros(2, np.int32))
    np.testing.assert_allclose(got, (0.3132617 + 0.4374879) / 2, rtol=1e-6)


def test_golden_cyclip():
    plain = losses.info_nce(*two_pairs(), 1.0)
    # (.6 - 0)^2 and (0 - .6)^2 each come twice among four entries, whose mean counts twice.
    got = [baselines.cyclip(*two_pairs(), 1.0, cross=c, within=w) for c, w in ((0.25, 0), (0, 0.5))]
    np.testing.assert_allclose(got, [plain + 0.25 * 0.36, plain + 0.5 * 0.36], rtol=1e-6)


def test_golden_soft_targets():
    # softmax([1, .6] / .5) = [.6899745, .3100255]; a fifth of the second moves to the negative,
    # whose logit is lower by .4, .8 (rows), 1 and .2 (columns).
    plain = (0.5130153 + 0.3711007 + 0.3132617 + 0.5981389) / 4
    wanted = plain + 0.2 * 0.3100255 * (0.4 + 0.8 + 1 + 0.2) / 4
    got = baselines.soft_targets(*two_pairs(), 1.0, share=0.2, temperature=0.5)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("same_pair", [None, SAME], ids=["all", "guarded"])
@pytest.mark.parametrize("scale", [5.0, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_equal_float64(name, scale, same_pair):
    image, text = reference.batch(0, PAIRS, WIDTH)
    loss, plain = CASES[name]
    wanted = functools.partial(plain, ids=same_pair)
    value, grads = value_and_grads(functools.partial(loss, same_pair=same_pair), image, text, scale)
    assert (
        reference.relative_error(value, slow.exact(wanted, image, text, scale)) < TOLERANCE[scale]
    )
    for got, right in zip(grads, slow.gradients(wanted, image, text, scale), strict=True):
        assert reference.relative_error(got, right) < TOLERANCE[scale]


def test_the_bias_is_trained():
    image, text = reference.batch(1, PAIRS, WIDTH)

    def loss(bias):
        return baselines.siglip(image, text, 5.0, bias=bias)

    def wanted(bias):
        return slow.exact(functools.partial(slow.siglip, bias=bias), image, text, 5.0)

    got = jax.grad(loss)(jnp.float32(-2.0))
    np.testing.assert_allclose(got, (wanted(-1.9999) - wanted(-2.0001)) / 2e-4, rtol=1e-5)


@pytest.mark.parametrize("same_pair", [None, SAME], ids=["all", "guarded"])
@pytest.mark.parametrize(
    "loss",
    [
        functools.partial(baselines.cyclip, cross=0.0, within=0.0),
        functools.partial(baselines.soft_targets, share=0.0),
    ],
    ids=["cyclip", "soft targets"],
)
def test_without_its_part_it_is_info_nce(loss, same_pair):
    image, text = reference.batch(2, PAIRS, WIDTH)
    loss, plain = (functools.partial(f, same_pair=same_pair) for f in (loss, losses.info_nce))
    chex.assert_trees_all_close(
        value_and_grads(loss, image, text, 20.0),
        value_and_grads(plain, image, text, 20.0),
        rtol=1e-5,
        atol=1e-6,
    )


def test_soft_targets_push_look_alikes_less_and_hn_more():
    image, text = reference.batch(3, PAIRS, 8)
    text[1] = text[0] + 0.3 * reference.unit(4, 8)
    text[1] /= np.linalg.norm(text[1])

    def push(loss):
        """Returns how hard picture 0 is pushed away from caption 1."""
        gradient = np.asarray(jax.jit(jax.grad(loss))(image, text, 5.0)[0])
        return np.linalg.lstsq(text.T, gradient, rcond=None)[0][1]

    plain = push(losses.info_nce)
    assert push(functools.partial(baselines.soft_targets, share=0.3)) < 0.8 * plain
    assert push(losses.hn_clip) > 1.2 * plain


def test_no_gradient_flows_through_the_targets():
    image, text = reference.batch(5, PAIRS, WIDTH)

    def frozen(text):
        g = jax.lax.stop_gradient(jnp.asarray(text) @ jnp.asarray(text).T)
        targets = 0.7 * jnp.eye(PAIRS) + 0.3 * jax.nn.softmax(g / 0.2, axis=1)
        logits = 5.0 * jnp.asarray(image) @ text.T
        rows = jax.nn.log_softmax(logits, axis=1) + jax.nn.log_softmax(logits, axis=0).T
        return -jnp.sum(targets * rows) / (2 * PAIRS)

    def loss(text):
        return baselines.soft_targets(image, text, 5.0, share=0.3, temperature=0.2)

    chex.assert_trees_all_close(
        jax.grad(loss)(jnp.asarray(text)), jax.grad(frozen)(jnp.asarray(text)), atol=1e-6
    )


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_equal_embeddings_are_finite(name, scale):
    same = np.tile(np.array([[0.6, 0.8]], np.float32), (4, 1))
    chex.assert_tree_all_finite(value_and_grads(CASES[name][0], same, same, scale))


@pytest.mark.parametrize("name", CASES)
def test_opposite_pairs_do_not_overflow(name):
    image = np.array([[1, 0], [-1, 0], [0, 1]], np.float32)
    loss, plain = CASES[name]
    value, grads = value_and_grads(loss, image, -image, 100.0)
    assert reference.relative_error(value, slow.exact(plain, image, -image, 100.0)) < 1e-5
    chex.assert_tree_all_finite(grads)


def test_without_negatives_soft_targets_are_exactly_zero():
    image, text = reference.batch(6, PAIRS, WIDTH)
    loss = functools.partial(CASES["soft targets"][0], same_pair=np.zeros(PAIRS, np.int32))
    got = value_and_grads(loss, image, text, 100.0)
    chex.assert_trees_all_equal(got, jax.tree.map(np.zeros_like, got))


@pytest.mark.parametrize("name", CASES)
def test_bfloat16_input_gives_a_float32_loss(name):
    image, text = (jnp.asarray(x, jnp.bfloat16) for x in reference.batch(7, PAIRS, WIDTH))
    value = CASES[name][0](image, text, 14.0)
    assert value.dtype == jnp.float32
    exact = CASES[name][0](image.astype(jnp.float32), text.astype(jnp.float32), 14.0)
    np.testing.assert_array_equal(value, exact)


def all_cases(trained, given, scale, axis_name):
    """All losses in one program, since compiling each of them is slow; the bias follows scale."""
    shared = {"axis_name": axis_name, "same_pair": given[0]}
    total = 1.0 * baselines.siglip(*trained, scale, bias=-0.3 * scale, **shared)
    total += 1.3 * baselines.siglip(*trained, scale, bias=-2.0, margin=HN, **shared)
    total += 1.7 * CASES["cyclip"][0](*trained, scale, **shared)
    return total + 2.1 * CASES["soft targets"][0](*trained, scale, **shared)


@pytest.fixture(scope="module")
def sixteen():
    """Trained arrays, given arrays and scale; equal ids lie on one device and on different ones."""
    same_pair = np.array([0, 1, 2, 3, 4, 4, 6, 0, 8, 9, 10, 11, 12, 13, 13, 2], np.int32)
    return reference.batch(8, 16, 12), (same_pair,), 14


@pytest.fixture(scope="module")
def alone(in_mapping, sixteen):
    return in_mapping("none", all_cases, *sixteen)


@pytest.mark.parametrize("mapping", ["jit 4x2", "shard_map 8x1", "shard_map 4x2", "pmap"])
def test_devices_agree_with_one(in_mapping, sixteen, alone, mapping):
    got = in_mapping(mapping, all_cases, *sixteen)
    chex.assert_trees_all_close(got, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_one_is_refused(name):
    with pytest.raises(types.UserError, match="at least 2 pairs"):
        CASES[name][0](np.ones((1, 4)), np.ones((1, 4)), 1.0)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_of_nothing_is_named(temperature):
    with pytest.raises(types.UserError, match="temperature of soft targets"):
        baselines.soft_targets(*two_pairs(), 1.0, temperature=temperature)
