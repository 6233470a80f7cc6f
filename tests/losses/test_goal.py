"""GOAL: pooling, similarity, the three terms and who takes part, against numpy and over devices."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.losses import goal, terms
from tests.losses import reference

PAIRS, WIDTH, PATCHES, WORDS = 8, 6, 5, 7
SAME = np.array([0, 1, 2, 1, 4, 5, 0, 7], np.int32)
HAS_CROP = np.array([1, 1, 0, 1, 1, 1, 0, 1], bool)
SETTINGS = terms.Settings(groups.LossGroup(), groups.MethodGroup())
TERMS = {term.name: term for term in goal.TERMS}


def masks(seed, width, empty):
    """Returns [PAIRS, width] bool, every row with some True but row `empty`."""
    mask = np.random.default_rng(seed).random((PAIRS, width)) < 0.5
    mask[:, 0] = True
    mask[empty] = False
    return mask


PATCH_MASK, WORD_MASK = masks(0, PATCHES, empty=3), masks(1, WORDS, empty=4)


def test_golden_of_a_mean():
    states = np.array([[[1, 2], [5, 6], [9, 9]], [[1, 2], [3, 4], [5, 9]]], np.float32)
    mask = np.array([[True, True, False], [False, False, False]])
    np.testing.assert_array_equal(goal.mean_inside(states, mask), [[[3, 4]], [[0, 0]]])


def test_a_mean_spreads_its_gradient_evenly_and_an_empty_one_has_none():
    states = reference.unit(0, PAIRS, WORDS, WIDTH)
    weight = reference.unit(1, PAIRS, 1, WIDTH)
    got = jax.grad(lambda x: jnp.sum(goal.mean_inside(x, WORD_MASK) * weight))(states)
    wanted = np.zeros_like(states)
    for b, t in zip(*np.nonzero(WORD_MASK), strict=True):
        wanted[b, t] = weight[b, 0] / WORD_MASK[b].sum()
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_states_outside_change_nothing_even_if_they_are_not_finite():
    states = reference.unit(0, PAIRS, WORDS, WIDTH)
    other = np.where(WORD_MASK[:, :, None], states, np.nan)
    np.testing.assert_array_equal(
        goal.mean_inside(other, WORD_MASK), goal.mean_inside(states, WORD_MASK)
    )


def test_a_mean_of_bfloat16_states_is_taken_in_float32():
    states = jnp.asarray(reference.unit(0, 2, 300, WIDTH), jnp.bfloat16)
    got = goal.mean_inside(states, np.ones((2, 300), bool))
    assert got.dtype == jnp.float32
    exact = np.asarray(states, np.float64).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-6)


def test_the_pair_pools_what_belongs_to_the_crop():
    arrays = {"patch_mask": PATCH_MASK, "word_mask_of_crop": WORD_MASK}
    pair = goal.VIEWS[terms.PAIR]
    assert (pair.image, pair.text) == ("image", "tokens")
    patches, words = (reference.unit(2, PAIRS, n, WIDTH) for n in (PATCHES, WORDS))
    chex.assert_trees_all_equal(
        (pair.pool_patches(patches, arrays), pair.pool_words(words, arrays)),
        (goal.mean_inside(patches, PATCH_MASK), goal.mean_inside(words, WORD_MASK)),
    )


def test_golden_of_similarity():
    pooled = np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32)
    target = np.array([[0, 1], [1, 0], [0, -1]], np.float32)
    # Cosines 0, .6 and -1: (1 + .16) / 2 without the last.
    value = goal.similarity(pooled, target, np.array([True, True, False]))
    np.testing.assert_allclose(value, 0.58, rtol=1e-6)


def slow_similarity(pooled, target, valid):
    """Returns the loss and its gradients, float64."""
    pooled, target = np.asarray(pooled, np.float64), np.asarray(target, np.float64)
    loss, d_pooled, d_target = 0.0, np.zeros_like(pooled), np.zeros_like(target)
    for b in np.flatnonzero(valid):
        rest = 1 - pooled[b] @ target[b]
        loss += rest**2 / valid.sum()
        d_pooled[b], d_target[b] = (-2 * rest * x[b] / valid.sum() for x in (target, pooled))
    return loss, (d_pooled, d_target)


def test_similarity_equals_float64():
    pooled, target = reference.batch(3, PAIRS, WIDTH)
    wanted = slow_similarity(pooled, target, HAS_CROP)
    value, grads = jax.value_and_grad(goal.similarity, argnums=(0, 1))(pooled, target, HAS_CROP)
    assert reference.relative_error(value, wanted[0]) < 1e-6
    for got, right in zip(grads, wanted[1], strict=True):
        assert reference.relative_error(got, right) < 1e-6


def embedded(crop_image, crop_text, region, span):
    """Returns the views; the pair's own embeddings must not matter."""
    return {
        terms.PAIR: types.Embeddings(regions=region[:, None], spans=span[:, None]),
        "crop": types.Embeddings(image=crop_image, text=crop_text),
    }


def trained():
    crop_image, crop_text = reference.batch(4, PAIRS, WIDTH)
    region, span = reference.batch(5, PAIRS, WIDTH)
    return crop_image, crop_text, region, span


GIVEN = (HAS_CROP, PATCH_MASK, WORD_MASK, SAME)


def loss_of(name, block_rows=None):
    def loss(trained, given, scale, axis_name=None):
        *arrays, same_pair = given
        inputs = terms.Inputs(
            views=embedded(*trained),
            arrays=dict(zip(("has_crop", "patch_mask", "word_mask_of_crop"), arrays, strict=True)),
            scale=scale,
            margin=None,  # the boost is the global term's alone
            gamma=0.5,
            parameters={},
            settings=SETTINGS,
            block_rows=block_rows,
            axis_name=axis_name,
            same_pair=same_pair,
        )
        return TERMS[name].compute(inputs)

    return loss


def value_and_grads(name, given=GIVEN, scale=14.0, block_rows=None):
    run = jax.value_and_grad(loss_of(name, block_rows), argnums=(0, 2))
    return jax.jit(run)(trained(), given, jnp.float32(scale))


@pytest.mark.parametrize("block_rows", [None, 3])
def test_local_term_is_info_nce_of_the_crops_that_are_there(block_rows):
    image, text, *_ = trained()
    there = np.flatnonzero(HAS_CROP)
    wanted, (*rows, of_scale) = reference.contrastive(
        image[there], text[there], 14.0, 0.0, SAME[there]
    )
    unguarded, _ = reference.contrastive(image[there], text[there], 14.0, 0.0)
    value, (grads, scale_grad) = value_and_grads("goal_local", block_rows=block_rows)
    assert abs(wanted - unguarded) > 1e-3
    assert reference.relative_error(value, wanted) < 2e-6
    assert reference.relative_error(scale_grad, of_scale) < 2e-6
    for got, right in zip(grads, rows, strict=False):
        assert reference.relative_error(np.asarray(got)[there], right) < 2e-6
        np.testing.assert_array_equal(np.asarray(got)[~HAS_CROP], 0)


@pytest.mark.parametrize(
    ("name", "part", "whole", "mask"),
    [("goal_image", 0, 2, PATCH_MASK), ("goal_text", 1, 3, WORD_MASK)],
    ids=["image", "text"],
)
def test_similarity_terms_take_what_has_a_crop_and_a_place(name, part, whole, mask):
    arrays = trained()
    valid = HAS_CROP & mask.any(axis=1)
    assert valid.sum() == HAS_CROP.sum() - 1
    loss, (d_whole, d_part) = slow_similarity(arrays[whole], arrays[part], valid)
    wanted = [np.zeros_like(x) for x in arrays]
    wanted[part], wanted[whole] = d_part, d_whole
    value, (grads, scale_grad) = value_and_grads(name)
    assert reference.relative_error(value, loss) < 1e-6
    assert scale_grad == 0
    chex.assert_trees_all_close(list(grads), wanted, atol=1e-6)


@pytest.mark.parametrize("name", TERMS)
def test_no_crop_at_all_is_zero(name):
    nothing = (np.zeros(PAIRS, bool), *GIVEN[1:])
    got = value_and_grads(name, nothing)
    chex.assert_trees_all_equal(got, jax.tree.map(np.zeros_like, got))


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("mapping", ["jit 4x2", "shard_map 8x1", "shard_map 4x2", "pmap"])
def test_devices_agree_with_one(in_mapping, mapping, name):
    arguments = loss_of(name), trained(), GIVEN, 14
    chex.assert_trees_all_close(
        in_mapping(mapping, *arguments), in_mapping("none", *arguments), rtol=1e-5, atol=1e-5
    )


def test_rows_of_the_table():
    weights = groups.MethodGroup(goal_local_weight=3, goal_image_weight=5, goal_text_weight=7)
    settings = terms.Settings(groups.LossGroup(), weights)
    assert {name: term.weight(settings) for name, term in TERMS.items()} == {
        "goal_local": 3,
        "goal_image": 5,
        "goal_text": 7,
    }
    assert [term.weight(SETTINGS) for term in goal.TERMS] == [0.5, 1.0, 1.0]
    assert {(term.views, term.inputs, term.tokens) for term in goal.TERMS} == {
        (("crop",), ("segment",), False)
    }
    assert goal.VIEWS["crop"] == terms.View("crop", "crop_tokens")
