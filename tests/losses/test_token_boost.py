"""The margin inside the token term: geometry, matched gamma, and the boosted loss."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.losses import terms, token_boost, tokens
from tests.losses import reference

PAIRS, PATCHES, WORDS, WIDTH = 8, 5, 7, 6
SAME = np.array([0, 1, 2, 1, 4, 5, 0, 7], np.int32)
LENGTHS = np.array([3, 6, 0, 1, 5, 2, 4, 6])
WORD_MASK = (np.arange(WORDS) >= 1) & (np.arange(WORDS) <= LENGTHS[:, None])


def token_arrays():
    """patches and words of unit norm; caption 2 has no word (see WORD_MASK)."""
    return reference.unit(0, PAIRS, PATCHES, WIDTH), reference.unit(1, PAIRS, WORDS, WIDTH)


def block_of(rows=slice(None), mask=WORD_MASK, scores=None):
    words = token_arrays()[1]
    scores = np.zeros((PAIRS, PAIRS), np.float32) if scores is None else scores
    index = np.arange(PAIRS, dtype=np.int32)[rows]
    return token_boost.Block(index, scores[rows], words[rows], mask[rows], words, mask, None)


def slow_geometry(words, mask):
    """Returns [B, B] float64, diagonal included."""
    g = np.zeros((PAIRS, PAIRS))
    for j, k in np.ndindex(PAIRS, PAIRS):
        one, other = words[j][mask[j]], words[k][mask[k]]
        if len(one) and len(other):
            there = np.mean([max(w @ x for x in other) for w in one])
            back = np.mean([max(w @ x for w in one) for x in other])
            g[j, k] = (there + back) / 2
    return g


def off_diagonal_std(matrix):
    return np.std([matrix[i, j] for i, j in np.ndindex(matrix.shape) if i != j])


def test_golden_of_two_captions():
    words = np.array([[[1, 0], [0, 1]], [[0.6, 0.8], [-1, 0]]], np.float32)
    mask = np.array([[True, True], [True, False]])
    block = token_boost.Block(np.arange(2), None, words, mask, words, mask, None)
    # Caption 0 to 1: words find .6 and .8. Back: the one word finds .8.
    np.testing.assert_allclose(token_boost.of_words(block), [[1, 0.75], [0.75, 1]], rtol=1e-6)


@pytest.mark.parametrize("rows", [slice(None), slice(2, 5)], ids=["all rows", "some rows"])
def test_geometry_of_words_equals_the_slow_one(rows):
    got = token_boost.of_words(block_of(rows))
    wanted = slow_geometry(token_arrays()[1].astype(np.float64), WORD_MASK)
    np.testing.assert_allclose(got, wanted[rows], rtol=1e-5, atol=1e-6)
    assert wanted.min() < 0.2 < wanted.max()


def test_captions_without_words_are_alike_to_none():
    got = token_boost.of_words(block_of(mask=np.zeros_like(WORD_MASK)))
    np.testing.assert_array_equal(got, np.zeros((PAIRS, PAIRS)))


def test_hidden_words_do_not_matter_to_the_geometry():
    block = block_of()
    other = np.where(WORD_MASK[:, :, None], block.words_bsd, 9).astype(np.float32)
    changed = block._replace(words_lsd=other, words_bsd=other)
    np.testing.assert_array_equal(token_boost.of_words(changed), token_boost.of_words(block))


@pytest.mark.parametrize("rows", [slice(None), slice(2, 5)], ids=["all rows", "some rows"])
def test_margin_is_gamma_g_off_the_diagonal(rows):
    boost = token_boost.Boost(token_boost.of_words, 0.5)
    wanted = 0.5 * slow_geometry(token_arrays()[1].astype(np.float64), WORD_MASK)
    np.fill_diagonal(wanted, 0)
    got = np.asarray(token_boost.margin(boost, block_of(rows)))
    np.testing.assert_allclose(got, wanted[rows], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got[:, rows].diagonal(), 0)


def test_matched_gamma_goes_by_the_spread_of_all_other_pairs():
    image, text = reference.batch(2, PAIRS, WIDTH)
    scores = (0.9 + 0.02 * reference.unit(3, PAIRS, PAIRS)).astype(np.float32)
    np.fill_diagonal(scores, 5)
    boost = token_boost.Boost(lambda block: jnp.ones_like(block.scores), 0.5, (image, text))
    cosines = image.astype(np.float64) @ text.T
    wanted = 0.5 * off_diagonal_std(scores) / off_diagonal_std(cosines)
    got = np.asarray(token_boost.margin(boost, block_of(scores=scores)))
    np.testing.assert_allclose(got[~np.eye(PAIRS, dtype=bool)], wanted, rtol=1e-4)


def test_matched_gamma_of_equal_cosines_is_zero():
    same = np.tile(reference.unit(4, 1, WIDTH), (PAIRS, 1))
    boost = token_boost.Boost(token_boost.of_words, 0.5, (same, same))
    got = token_boost.margin(boost, block_of(scores=reference.unit(5, PAIRS, PAIRS)))
    np.testing.assert_array_equal(got, np.zeros((PAIRS, PAIRS)))


def inputs_of(trained, given, scale, axis_name=None, now=0.5, geometry=None, **loss):
    """Returns what the term gets; gamma is `now` at this step."""
    patches, words, image, text = trained
    word_mask, same_pair = given
    return terms.Inputs(
        views={terms.PAIR: types.Embeddings(image, text, patches, words, word_mask)},
        arrays={},
        scale=scale,
        margin=None,
        gamma=now,
        parameters={},
        settings=terms.Settings(groups.LossGroup(**loss), groups.MethodGroup()),
        axis_name=axis_name,
        same_pair=same_pair,
        geometry=geometry,
    )


def trained():
    return *token_arrays(), *reference.batch(6, PAIRS, WIDTH)


GIVEN = (WORD_MASK, SAME)


def value_and_grads(now=0.5, geometry=None, **loss):
    """Returns the term and its gradients for (patches, words, image, text) and the scale."""

    def run(trained, scale, now):
        return tokens.token_term(inputs_of(trained, GIVEN, scale, None, now, geometry, **loss))

    step = jax.jit(jax.value_and_grad(run, argnums=(0, 1)))
    return step(trained(), jnp.float32(14.0), jnp.float32(now))


def boosted(delta, scale=14.0):
    """Returns loss, (d patches, d words), d scale of the term with a constant added, float64."""
    patches, words = token_arrays()
    scores, parts = reference.late_interaction(patches, words, WORD_MASK)
    logits = scale * (scores + delta)
    losses, *d_logits = reference.pair_losses(*logits, SAME)
    d_patches, d_words = np.zeros(patches.shape), np.zeros(words.shape)
    for d_direction, direction in zip(d_logits, parts, strict=True):
        for i, j, n, word, weight in direction:
            d_patches[i, n] += scale * d_direction[i, j] * weight * words[j, word]
            d_words[j, word] += scale * d_direction[i, j] * weight * patches[i, n]
    return losses.mean(), (d_patches, d_words), np.sum(np.stack(d_logits) * (scores + delta))


def tangent(gradient, vectors_):
    """Returns the part of a gradient across unit vectors: what their normalisation lets through."""
    along = np.sum(gradient * vectors_, axis=-1, keepdims=True)
    return gradient - along * vectors_


@pytest.mark.parametrize("token_gamma", [0.3, -1.0], ids=["given", "matched"])
@pytest.mark.parametrize("kind", ["global", "token", "frozen"])
def test_boosted_term_equals_float64(kind, token_gamma):
    patches, words, image, text = (x.astype(np.float64) for x in trained())
    geometry = reference.unit(7, PAIRS, 3) if kind == "frozen" else None
    g = {
        "global": reference.geometry(text),
        "token": slow_geometry(words, WORD_MASK),
        "frozen": reference.geometry(geometry) if kind == "frozen" else None,
    }[kind]
    np.fill_diagonal(g, 0)
    scores, _ = reference.late_interaction(patches, words, WORD_MASK)
    matched = 0.5 * off_diagonal_std(scores[0]) / off_diagonal_std(image @ text.T)
    wanted, wanted_grads, of_scale = boosted((matched if token_gamma < 0 else 0.3) * g)
    value, (grads, scale_grad) = value_and_grads(
        geometry=geometry,
        token_boost="token" if kind == "token" else "global",
        token_gamma=token_gamma,
    )
    assert abs(wanted - boosted(0.0)[0]) > 1e-2
    assert reference.relative_error(value, wanted) < 5e-6
    assert reference.relative_error(scale_grad, of_scale) < 5e-6
    for got, right, unit in zip(grads, wanted_grads, (patches, words), strict=False):
        assert reference.relative_error(got, tangent(right, unit)) < 5e-6
    # The margin has no gradient, and nothing else here looks at the embeddings.
    chex.assert_trees_all_equal(grads[2:], jax.tree.map(np.zeros_like, grads[2:]))


def test_symmetric_scores_spread_as_they_are_used():
    patches, words, image, text = (x.astype(np.float64) for x in trained())
    scores, _ = reference.late_interaction(patches, words, WORD_MASK)
    mean = scores.mean(axis=0)
    gamma = 0.5 * off_diagonal_std(mean) / off_diagonal_std(image @ text.T)
    logits = 14.0 * (mean + gamma * reference.geometry(text))
    wanted = reference.pair_losses(logits, logits, SAME)[0].mean()
    value, _ = value_and_grads(token_boost="global", token_symmetric=True)
    assert reference.relative_error(value, wanted) < 5e-6


def test_the_geometry_is_of_the_words_that_the_term_uses():
    patches, words, image, text = trained()
    value, _ = value_and_grads(token_boost="token", token_gamma=0.3, token_include_global=True)
    mask = np.concatenate([WORD_MASK, np.ones((PAIRS, 1), bool)], axis=1)
    words = np.concatenate([words, text[:, None]], axis=1)
    patches = np.concatenate([patches, image[:, None]], axis=1)
    scores, _ = reference.late_interaction(patches, words, mask)
    g = slow_geometry(words.astype(np.float64), mask)
    np.fill_diagonal(g, 0)
    wanted = reference.pair_losses(*(14.0 * (scores + 0.3 * g)), SAME)[0].mean()
    assert reference.relative_error(value, wanted) < 5e-6


@pytest.fixture(scope="module")
def unboosted():
    return value_and_grads()


@pytest.mark.parametrize("kind", ["global", "token"])
@pytest.mark.parametrize(
    ("now", "switches"),
    [
        (0.5, {"token_gamma": 0.0}),
        (0.0, {"gamma": 0.0}),
        (0.0, {"gamma_start_step": 10}),
        (0.0, {"gamma": 0.0, "gamma_by_epoch": (0.0, 0.5)}),
    ],
    ids=["given", "off for good", "not yet", "this epoch"],
)
def test_gamma_zero_gives_the_same_bits(unboosted, kind, now, switches):
    got = value_and_grads(now, token_boost=kind, **switches)
    chex.assert_trees_all_equal(got, unboosted)


def test_gamma_zero_for_good_computes_no_geometry():
    def program(**loss):
        def run(trained):
            return tokens.token_term(inputs_of(trained, GIVEN, 14.0, **loss))

        return jax.jit(run).lower(trained()).as_text()

    plain = program()
    assert program(token_boost="token", gamma=0.0) == plain
    assert program(token_boost="token", token_gamma=0.0) == plain
    assert program(token_boost="token", gamma=0.0, gamma_by_epoch=(0.0, 0.5)) != plain
    assert program(token_boost="token", gamma=0.0, token_gamma=0.3) != plain


def test_no_words_and_equal_pictures_are_finite():
    same = np.tile(np.eye(1, WIDTH, dtype=np.float32), (PAIRS, 1))
    nothing = np.zeros_like(WORD_MASK), SAME
    zeros = tuple(np.zeros_like(x) for x in token_arrays())

    def run(trained):
        return tokens.token_term(inputs_of(trained, nothing, 14.0, token_boost="token"))

    chex.assert_tree_all_finite(jax.jit(jax.value_and_grad(run))((*zeros, same, same)))


@pytest.mark.parametrize("kind", ["global", "token"])
@pytest.mark.parametrize("mapping", ["jit 4x2", "shard_map 8x1", "shard_map 4x2", "pmap"])
def test_devices_agree_with_one(in_mapping, mapping, kind):
    def loss(trained, given, scale, axis_name):
        switches = {"token_boost": kind, "token_include_global": True}
        return tokens.token_term(inputs_of(trained, given, scale, axis_name, **switches))

    arguments = loss, trained(), GIVEN, 14
    chex.assert_trees_all_close(
        in_mapping(mapping, *arguments), in_mapping("none", *arguments), rtol=1e-5, atol=1e-5
    )


def test_bfloat16_words_are_boosted_in_float32():
    patches, words = (jnp.asarray(x, jnp.bfloat16) for x in token_arrays())
    boost = token_boost.Boost(token_boost.of_words, 0.5)
    run = functools.partial(tokens.boosted_interaction, scale=14.0, boost=boost)
    value = run(patches, words, WORD_MASK)
    assert value.dtype == jnp.float32
    exact = run(patches.astype(jnp.float32), words.astype(jnp.float32), WORD_MASK)
    np.testing.assert_array_equal(value, exact)
