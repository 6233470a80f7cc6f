"""Each margin against numpy, the shuffle, and all kinds over devices and blocks."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax.losses import contrastive, margins
from tests.losses import baseline_reference as slow
from tests.losses import reference

PAIRS, WIDTH, GAMMA = 16, 12, 0.5
KEY = 3


def block_of(text, rows=slice(None), similarity=None):
    index = np.arange(len(text), dtype=np.int32)[rows]
    similarity = np.zeros((len(index), len(text)), np.float32) if similarity is None else similarity
    return margins.Block(index, similarity, text[rows], text)


def mean_of_pairs(g):
    pairs = [(i, j) for i in range(len(g)) for j in range(len(g)) if i != j]
    return np.mean([g[i, j] for i, j in pairs])


def test_none_is_zero():
    np.testing.assert_array_equal(
        margins.none(block_of(reference.unit(0, PAIRS, WIDTH))), np.zeros((PAIRS, PAIRS))
    )


def test_mean_off_diagonal_equals_the_mean_over_pairs():
    for text in (reference.unit(0, PAIRS, WIDTH), reference.batch(0, PAIRS, WIDTH, near=True)[1]):
        wanted = mean_of_pairs(np.asarray(text, np.float64) @ np.asarray(text, np.float64).T)
        np.testing.assert_allclose(margins.mean_off_diagonal(text), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("rows", [slice(None), slice(5, 9)], ids=["all rows", "some rows"])
@pytest.mark.parametrize("kind", ["hn", "constant", "given", "centred", "row_centred"])
def test_margin_equals_numpy(kind, rows):
    text = reference.batch(1, PAIRS, WIDTH, near=True)[1] + 0.3 * reference.unit(2, PAIRS, WIDTH)
    g = reference.geometry(text)
    off = 1 - np.eye(PAIRS)
    wanted = {
        "hn": GAMMA * g,
        "constant": GAMMA * mean_of_pairs(g) * off,
        "given": 0.3 * off,
        "centred": GAMMA * (g - mean_of_pairs(g)) * off,
        "row_centred": GAMMA * (g - g.sum(axis=1, keepdims=True) / (PAIRS - 1)) * off,
    }
    margin = {
        "hn": functools.partial(margins.hn, gamma=GAMMA),
        "constant": functools.partial(margins.constant, gamma=GAMMA),
        "given": functools.partial(margins.constant, margin=0.3),
        "centred": functools.partial(margins.centred, gamma=GAMMA),
        "row_centred": functools.partial(margins.row_centred, gamma=GAMMA),
    }
    got = margin[kind](block_of(text, rows))
    np.testing.assert_allclose(got, wanted[kind][rows], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(got)[wanted[kind][rows] == 0], 0)


def test_row_centred_leaves_no_part_that_a_row_shares():
    text = reference.batch(1, PAIRS, WIDTH, near=True)[1]
    got = np.asarray(margins.row_centred(block_of(text), GAMMA))
    np.testing.assert_allclose(got.sum(axis=1), np.zeros(PAIRS), atol=1e-5)
    assert np.ptp(got) > 0
    two = margins.row_centred(block_of(reference.unit(4, 2, WIDTH)), GAMMA)
    np.testing.assert_array_equal(two, np.zeros((2, 2)))


@pytest.mark.parametrize("rows", [slice(None), slice(1, 3)], ids=["all rows", "some rows"])
def test_golden_arcface(rows):
    cosine = np.array([0.5, 0.0, -0.5], np.float32)  # 60, 90 and 120 degrees, and 30 more
    similarity = np.full((3, 3), 0.9, np.float32)
    np.fill_diagonal(similarity, cosine)
    block = block_of(np.ones((3, 1), np.float32), rows, similarity[rows])
    wanted = np.diag(np.array([0, -0.5, -np.sqrt(0.75)]) - cosine)
    got = margins.arcface(block, np.pi / 6)
    np.testing.assert_allclose(got, wanted[rows], atol=1e-6)


@pytest.mark.parametrize("scale", [5.0, 100.0])
def test_arcface_equals_float64(scale):
    image, text = reference.batch(1, 5, 4)
    image[3] = text[3] + 0.02 * image[3]  # an angle of about 1 degree
    image[3] /= np.linalg.norm(image[3])
    margin = functools.partial(margins.arcface, margin=0.1)

    def loss(image, text, scale):
        return contrastive.shifted_info_nce(image, text, scale, margin)

    def exact(image, text, scale, fixed=None):
        cosines = image @ text.T
        turned = np.cos(np.arccos(np.diag(cosines)) + 0.1)
        logits = scale * (cosines + np.diag(turned - np.diag(cosines)))
        return reference.pair_losses(logits, logits)[0].mean()

    value, grads = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(image, text, scale)
    assert reference.relative_error(value, slow.exact(exact, image, text, scale)) < 1e-6
    for got, right in zip(grads, slow.gradients(exact, image, text, scale), strict=True):
        assert reference.relative_error(got, right) < 2e-5


def test_arcface_of_an_angle_of_zero_changes_nothing():
    image, text = reference.batch(2, PAIRS, WIDTH)
    block = block_of(text, similarity=image @ text.T)
    np.testing.assert_allclose(margins.arcface(block, 0.0), np.zeros((PAIRS, PAIRS)), atol=1e-7)


@pytest.mark.parametrize("sign", [1, -1], ids=["equal", "opposite"])
def test_arcface_is_finite_where_the_angle_has_no_slope(sign):
    text = reference.unit(5, 4, WIDTH)
    margin = functools.partial(margins.arcface, margin=0.1)

    def loss(image):
        return contrastive.shifted_info_nce(image, text, 100.0, margin)

    chex.assert_tree_all_finite(jax.jit(jax.value_and_grad(loss))(sign * text))
    chex.assert_tree_all_finite(jax.jit(jax.value_and_grad(loss))(sign * 1.001 * text))


def test_row_shuffled_permutes_the_negatives_of_each_row():
    text = reference.unit(3, PAIRS, WIDTH)
    got = np.asarray(margins.row_shuffled(block_of(text), GAMMA, jax.random.key(KEY)))
    plain = np.asarray(margins.hn(block_of(text), GAMMA))
    np.testing.assert_array_equal(np.diag(got), np.zeros(PAIRS))
    for row in range(PAIRS):
        others = np.arange(PAIRS) != row
        np.testing.assert_array_equal(np.sort(got[row, others]), np.sort(plain[row, others]))
        assert np.sum(got[row, others] != plain[row, others]) > PAIRS // 2


def test_row_shuffled_permutes_each_row_in_its_own_way():
    column = np.arange(PAIRS, dtype=np.float32)[:, None]
    block = margins.Block(
        np.arange(PAIRS), np.zeros((PAIRS, PAIRS), np.float32), np.ones_like(column), column
    )
    # G[i, j] = j here, so a shuffled row reads as the columns that its entries came from.
    source = np.asarray(margins.row_shuffled(block, 1.0, jax.random.key(KEY)))
    orders = set()
    for row in range(PAIRS):
        others = np.delete(source[row], row)
        orders.add(tuple(np.where(others > row, others - 1, others)))
    assert len(orders) == PAIRS


def test_row_shuffled_depends_on_key_and_row_alone():
    text = reference.unit(3, PAIRS, WIDTH)
    whole = margins.row_shuffled(block_of(text), GAMMA, jax.random.key(KEY))
    part = margins.row_shuffled(block_of(text, slice(5, 9)), GAMMA, jax.random.key(KEY))
    np.testing.assert_allclose(part, whole[5:9], rtol=1e-5, atol=1e-7)
    other = margins.row_shuffled(block_of(text), GAMMA, jax.random.key(KEY + 1))
    assert np.mean(np.asarray(other) != np.asarray(whole)) > 0.5


def test_row_shuffled_of_two_pairs_has_one_choice():
    block = block_of(reference.unit(4, 2, WIDTH))
    got = margins.row_shuffled(block, GAMMA, jax.random.key(KEY))
    chex.assert_trees_all_equal(got, margins.hn(block, GAMMA))


def test_a_margin_may_depend_on_the_cosines():
    """What later margins (say, weights from S itself) need: S is shown and its gradient flows."""
    image, text = reference.batch(5, PAIRS, WIDTH)

    def doubled(block):
        return block.similarity

    def run(scale, margin):
        loss = functools.partial(contrastive.shifted_info_nce, scale=scale, margin=margin)
        return jax.jit(jax.value_and_grad(loss))(image, text)

    chex.assert_trees_all_close(run(7.0, doubled), run(14.0, margins.none), rtol=1e-5, atol=1e-6)


KINDS = {
    "row_shuffled": lambda: functools.partial(
        margins.row_shuffled, gamma=GAMMA, key=jax.random.key(KEY)
    ),
    "constant": lambda: functools.partial(margins.constant, gamma=GAMMA),
    "centred": lambda: functools.partial(margins.centred, gamma=GAMMA),
    "row_centred": lambda: functools.partial(margins.row_centred, gamma=GAMMA),
    "arcface": lambda: functools.partial(margins.arcface, margin=0.1),
    "frozen": lambda: functools.partial(margins.hn, gamma=GAMMA),
}


def arrays():
    return {
        "trained": reference.batch(6, PAIRS, WIDTH),
        "given": (reference.unit(7, PAIRS, 5),),
        "scale": 14,
    }


def loss_of(kind, block_rows=None):
    def loss(trained, given, scale, axis_name):
        return contrastive.shifted_info_nce(
            *trained,
            scale,
            KINDS[kind](),
            axis_name=axis_name,
            block_rows=block_rows,
            geometry=given[0] if kind == "frozen" else None,
        )

    return loss


@pytest.fixture(scope="module")
def alone(in_mapping):
    """alone(kind): value and gradients on one device."""
    return functools.cache(lambda kind: in_mapping("none", loss_of(kind), **arrays()))


@pytest.mark.parametrize("kind", KINDS)
def test_devices_agree_with_one(in_mapping, alone, kind):
    got = in_mapping("shard_map 4x2", loss_of(kind), **arrays())
    chex.assert_trees_all_close(got, alone(kind), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mapping", ["shard_map 8x1", "shard_map 1x8", "pmap"])
def test_all_kinds_agree_in_every_mapping(in_mapping, alone, mapping):
    """One program for the sum of all kinds, since compiling each of them is slow."""

    def loss(*args, axis_name):
        return sum(loss_of(kind)(*args, axis_name=axis_name) for kind in KINDS)

    got = in_mapping(mapping, loss, **arrays())
    wanted = jax.tree.map(lambda *parts: sum(parts), *(alone(kind) for kind in KINDS))
    chex.assert_trees_all_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["row_shuffled", "row_centred", "arcface", "frozen"])
def test_blocks_agree_with_the_whole(in_mapping, alone, kind):
    got = in_mapping("none", loss_of(kind, block_rows=5), **arrays())
    chex.assert_trees_all_close(got, alone(kind), rtol=1e-5, atol=1e-6)


def test_frozen_geometry_changes_the_loss():
    image, text = reference.batch(8, PAIRS, WIDTH)
    hn = functools.partial(margins.hn, gamma=jnp.float32(GAMMA))
    live = contrastive.shifted_info_nce(image, text, 14.0, hn)
    frozen = contrastive.shifted_info_nce(
        image, text, 14.0, hn, geometry=reference.unit(9, PAIRS, WIDTH)
    )
    assert abs(live - frozen) > 1e-3
