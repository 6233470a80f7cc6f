"""Label smoothing and absent pairs: against PyTorch and loops, bits without them, over devices."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hnclip_jax import types
from hnclip_jax.losses import batch, contrastive, margins
from tests.losses import reference

PAIRS, WIDTH, SHARE = 8, 6, 0.1
TOLERANCE = {5.0: 2e-6, 100.0: 5e-5}  # as in test_contrastive.py: s times the rounding of a cosine
SAME = np.array([3, 0, 3, 1, 2, 2, 2, 7], np.int32)
VALID = np.array([True, True, True, False, True, True, False, True])
HN = functools.partial(margins.hn, gamma=0.5)
GUARDS = {
    "all": {},
    "same_pair": {"same_pair": SAME},
    "valid": {"valid": VALID},
    "both": {"same_pair": SAME, "valid": VALID},
}


def smoothed(image, text, scale, smoothing=SHARE, **settings):
    return contrastive.shifted_info_nce(image, text, scale, HN, smoothing=smoothing, **settings)


def value_and_grads(loss, image, text, scale):
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(image, text, jnp.float32(scale))


def seen_by(i, pairs, same_pair=None, valid=None):
    """Returns the columns that row i sees, its own first."""
    there = np.ones(pairs, bool) if valid is None else valid
    ids = np.arange(pairs) if same_pair is None else same_pair
    return [i] + [j for j in range(pairs) if there[j] and ids[j] != ids[i]]


def by_torch(image, text, scale, smoothing, same_pair=None, valid=None):
    """Returns loss and gradients of cross entropies on the columns that each row sees, float64."""
    image, text = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (image, text))
    scale = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
    geometry = torch.tensor(reference.geometry(text.detach().numpy()))
    logits = scale * (image @ text.T + 0.5 * geometry)
    rows = [i for i in range(len(image)) if valid is None or valid[i]]
    first = torch.tensor([0])
    costs = [
        F.cross_entropy(
            direction[i, seen_by(i, len(image), same_pair, valid)][None],
            first,
            label_smoothing=smoothing,
        )
        for direction in (logits, logits.T)
        for i in rows
    ]
    loss = torch.stack(costs).mean()
    loss.backward()
    return loss.item(), [x.grad.numpy() for x in (image, text, scale)]


def by_loops(image, text, scale, smoothing, same_pair=None, valid=None):
    """Returns the loss: -sum of targets times log p, with the targets written out."""
    logits = scale * (np.float64(image) @ np.float64(text).T + 0.5 * reference.geometry(text))
    costs = []
    for direction in (logits, logits.T):
        for i in np.flatnonzero(np.ones(len(image)) if valid is None else valid):
            seen = seen_by(i, len(image), same_pair, valid)
            target = np.full(len(seen), smoothing / len(seen))
            target[0] += 1 - smoothing
            p = np.exp(direction[i, seen] - direction[i].max())
            costs.append(-np.sum(target * np.log(p / p.sum())))
    return np.mean(costs)


def test_golden_of_two_pairs():
    image = np.array([[1, 0], [0, 1]], np.float32)
    text = np.array([[1, 0], [0.6, 0.8]], np.float32)
    # Half of the share goes to the negative, whose logit is lower by .4, .8; 1, .2 (columns).
    plain = (0.5130153 + 0.3711007 + 0.3132617 + 0.5981389) / 4
    wanted = plain + 0.1 / 2 * (0.4 + 0.8 + 1 + 0.2) / 4
    got = contrastive.shifted_info_nce(image, text, 1.0, margins.none, smoothing=0.1)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("block_rows", [None, 3])
@pytest.mark.parametrize("scale", [5.0, 100.0])
@pytest.mark.parametrize("guard", GUARDS)
def test_value_and_gradients_equal_torch_and_loops(guard, scale, block_rows):
    image, text = reference.batch(0, PAIRS, WIDTH)
    wanted = by_torch(image, text, scale, SHARE, **GUARDS[guard])
    loss = functools.partial(smoothed, block_rows=block_rows, **GUARDS[guard])
    value, grads = value_and_grads(loss, image, text, scale)
    assert reference.relative_error(value, wanted[0]) < TOLERANCE[scale]
    loops = by_loops(image, text, scale, SHARE, **GUARDS[guard])
    assert reference.relative_error(value, loops) < TOLERANCE[scale]
    for got, right in zip(grads, wanted[1], strict=True):
        assert reference.relative_error(got, right) < TOLERANCE[scale]


@pytest.mark.parametrize("guard", ["valid", "both"])
def test_valid_alone_equals_torch(guard):
    image, text = reference.batch(1, PAIRS, WIDTH)
    wanted = by_torch(image, text, 5.0, 0.0, **GUARDS[guard])
    value, grads = value_and_grads(
        functools.partial(smoothed, smoothing=0.0, **GUARDS[guard]), image, text, 5.0
    )
    assert reference.relative_error(value, wanted[0]) < TOLERANCE[5.0]
    for got, right in zip(grads, wanted[1], strict=True):
        assert reference.relative_error(got, right) < TOLERANCE[5.0]


@pytest.mark.parametrize("smoothing", [0.0, SHARE])
def test_absent_pairs_might_as_well_not_be_in_the_arrays(smoothing):
    image, text = reference.batch(2, PAIRS, WIDTH)
    junk = np.where(VALID[:, None], image, np.float32(9)), np.where(VALID[:, None], text, 0)
    loss = functools.partial(smoothed, smoothing=smoothing, same_pair=SAME, valid=VALID)
    value, (d_image, d_text, d_scale) = value_and_grads(loss, *junk, 5.0)
    alone = functools.partial(smoothed, smoothing=smoothing, same_pair=SAME[VALID])
    wanted = value_and_grads(alone, image[VALID], text[VALID], 5.0)
    chex.assert_trees_all_close(
        (value, (d_image[VALID], d_text[VALID], d_scale)), wanted, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(d_image[~VALID], 0)
    np.testing.assert_array_equal(d_text[~VALID], 0)


@pytest.mark.parametrize("smoothing", [0.0, SHARE])
@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("block_rows", [None, 3])
def test_with_nothing_to_tell_apart_all_is_exactly_zero(left, smoothing, block_rows):
    image, text = reference.batch(3, PAIRS, WIDTH)
    valid = np.arange(PAIRS) < left
    loss = functools.partial(smoothed, smoothing=smoothing, valid=valid, block_rows=block_rows)
    got = value_and_grads(loss, image, text, 100.0)
    chex.assert_trees_all_equal(got, jax.tree.map(np.zeros_like, got))


def bare(image, text, scale):
    """The loss without guards and smoothing, from the parts that it is made of."""
    index = jnp.arange(PAIRS)
    similarity = jnp.matmul(image, text.T, precision="highest")
    block = margins.Block(index, similarity, *jax.lax.stop_gradient((text, text)))
    logits = scale * (similarity + HN(block))
    row_loss, positive, column = contrastive.cross_entropies(logits, logits, index)
    return contrastive.mean_loss(row_loss, positive, column, index, None, PAIRS)


def test_without_both_the_bits_are_those_of_the_bare_loss():
    image, text = reference.batch(4, PAIRS, WIDTH)
    loss = functools.partial(smoothed, smoothing=0.0, valid=None)
    chex.assert_trees_all_equal(
        value_and_grads(loss, image, text, 14.0), value_and_grads(bare, image, text, 14.0)
    )


def test_arcface_is_smoothed_with_its_own_positive():
    image, text = reference.batch(5, PAIRS, WIDTH)
    arcface = functools.partial(margins.arcface, margin=0.1)
    s = np.float64(image) @ np.float64(text).T
    np.fill_diagonal(s, np.cos(np.arccos(np.diag(s)) + 0.1))
    wanted = by_loops(s, np.eye(PAIRS), 5.0, SHARE)
    got = contrastive.shifted_info_nce(image, text, 5.0, arcface, smoothing=SHARE)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


IDS = {
    "all different": np.arange(PAIRS),
    "mixed": SAME,
    "one": np.zeros(PAIRS),
    "the largest integer": np.where(np.arange(PAIRS) < 5, 2**31 - 1, SAME),
    "negative": -SAME,
}


@pytest.mark.parametrize("valid", [None, VALID, ~VALID, np.zeros(PAIRS, bool)])
@pytest.mark.parametrize("ids", [None, *IDS])
def test_shown_counts_what_hide_leaves(ids, valid):
    ids = None if ids is None else np.asarray(IDS[ids], np.int32)
    guard = batch.Guard(ids, valid)
    logits = batch.hide(jnp.zeros((PAIRS, PAIRS)), jnp.arange(PAIRS), guard, guard)
    there = np.ones(PAIRS, bool) if valid is None else valid
    wanted = [len(seen_by(i, PAIRS, ids, valid)) if there[i] else 1 for i in range(PAIRS)]
    np.testing.assert_array_equal(np.sum(np.asarray(logits) == 0, axis=1), wanted)
    got = batch.shown(guard, PAIRS)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == jnp.float32


def test_hide_keeps_the_own_column_of_some_rows():
    rows, columns = batch.Guard(SAME[2:5], VALID[2:5]), batch.Guard(SAME, VALID)
    got = batch.hide(jnp.ones((3, PAIRS)), jnp.arange(2, 5), rows, columns)
    wanted = np.zeros((3, PAIRS), bool)
    for row, i in enumerate(range(2, 5)):
        wanted[row, seen_by(i, PAIRS, SAME, VALID) if VALID[i] else [i]] = True
    np.testing.assert_array_equal(got, np.where(wanted, 1, np.float32(batch.MASKED)))


def test_count_of_pairs():
    assert batch.count(None, PAIRS, None) == PAIRS
    assert batch.count(VALID, PAIRS, None) == 6
    assert batch.count(np.zeros(PAIRS, bool), PAIRS, None) == 1


def guarded(trained, given, scale, axis_name, block_rows=None):
    same_pair, valid = given
    shared = {"axis_name": axis_name, "same_pair": same_pair, "block_rows": block_rows}
    total = smoothed(*trained, scale, valid=valid, **shared)
    total += 1.3 * smoothed(*trained, scale, **shared)
    return total + 1.7 * smoothed(*trained, scale, smoothing=0.0, valid=valid, **shared)


@pytest.fixture(scope="module")
def sixteen():
    """Trained arrays, given arrays and scale; a device of eight has no valid pair at all."""
    same_pair = np.array([0, 1, 2, 3, 4, 4, 6, 0, 8, 9, 10, 11, 12, 13, 13, 2], np.int32)
    valid = np.array([1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1], bool)
    return reference.batch(6, 16, 12), (same_pair, valid), 14


@pytest.fixture(scope="module")
def alone(in_mapping, sixteen):
    return in_mapping("none", guarded, *sixteen)


@pytest.mark.parametrize("mapping", ["jit 4x2", "shard_map 8x1", "shard_map 4x2", "pmap"])
def test_devices_agree_with_one(in_mapping, sixteen, alone, mapping):
    got = in_mapping(mapping, guarded, *sixteen)
    chex.assert_trees_all_close(got, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mapping", ["none", "shard_map 2x2"])
def test_blocks_on_devices_agree_with_one(in_mapping, sixteen, alone, mapping):
    got = in_mapping(mapping, functools.partial(guarded, block_rows=3), *sixteen)
    chex.assert_trees_all_close(got, alone, rtol=1e-5, atol=1e-5)


def test_a_mask_that_does_not_fit_is_named():
    with pytest.raises(types.UserError, match="one row per pair"):
        smoothed(*reference.batch(7, PAIRS, WIDTH), 1.0, valid=VALID[1:])
