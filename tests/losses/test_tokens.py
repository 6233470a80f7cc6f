"""The token term: scores, value and gradient against numpy loops, masks, switches, devices."""

import functools

import chex
import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from hnclip_jax import groups, losses, types, vectors
from hnclip_jax.losses import terms
from hnclip_jax.losses import tokens as tokens_lib
from tests.losses import reference

PAIRS, PATCHES, WORDS, WIDTH = 8, 5, 7, 6
SAME = np.array([0, 1, 2, 1, 4, 5, 0, 7], np.int32)


@pytest.fixture
def tokens():
    """patches, words, word_mask; captions of 1 to 6 words, caption 2 without any."""
    lengths = np.array([3, 6, 0, 1, 5, 2, 4, 6])
    position = np.arange(WORDS)[None, :]
    word_mask = (position >= 1) & (position <= lengths[:, None])
    patches = reference.unit(0, PAIRS, PATCHES, WIDTH)
    return patches, reference.unit(1, PAIRS, WORDS, WIDTH), word_mask


def test_golden_of_one_word_and_two_patches():
    patches = np.array([[[1, 0], [0, 1]], [[0.6, 0.8], [0, 1]]], np.float32)
    words = np.array([[[1, 0], [9, 9]], [[0, 1], [0.6, 0.8]]], np.float32)
    word_mask = np.array([[True, False], [True, True]])
    image_to_text, text_to_image = losses.late_interaction(patches, words, word_mask)
    # Picture 0 and caption 1: cosines [[0, .6], [1, .8]]; patches take .6 and 1, words 1 and .8.
    np.testing.assert_allclose(image_to_text, [[0.5, 0.8], [0.3, 1.0]], rtol=1e-6)
    np.testing.assert_allclose(text_to_image, [[1.0, 0.9], [0.6, 1.0]], rtol=1e-6)


def test_scores_equal_the_slow_ones(tokens):
    wanted, _ = reference.late_interaction(*tokens)
    got = jax.jit(losses.late_interaction)(*tokens)
    np.testing.assert_allclose(np.stack(got), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.stack(got)[:, :, 2], np.zeros((2, PAIRS)))


@pytest.mark.parametrize("same_pair", [None, SAME], ids=["all", "guarded"])
@pytest.mark.parametrize("scale", [1.0, 14.0])
def test_value_and_gradients_equal_float64(tokens, scale, same_pair):
    patches, words, word_mask = tokens

    def loss(patches, words, scale):
        return losses.token_interaction(patches, words, word_mask, scale, same_pair=same_pair)

    value, grads = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(
        patches, words, jnp.float32(scale)
    )
    wanted = reference.token_interaction(patches, words, word_mask, scale, same_pair)
    assert reference.relative_error(value, wanted[0]) < 2e-6
    for got, right in zip(grads, wanted[1], strict=True):
        assert reference.relative_error(got, right) < 2e-6


def test_gradients_equal_differences(tokens):
    patches, words, word_mask = tokens

    @jax.jit
    def loss(patches, words, scale):
        return losses.token_interaction(patches, words, word_mask, scale)

    jax.test_util.check_grads(
        loss, (patches, words, np.float32(2.0)), order=1, modes=("rev",), eps=1e-3, rtol=2e-2
    )


def test_hidden_words_change_nothing(tokens):
    patches, words, word_mask = tokens
    other = np.where(word_mask[:, :, None], words, reference.unit(5, *words.shape))
    run = jax.jit(jax.grad(losses.token_interaction, argnums=(0, 1)))
    got = run(patches, words, word_mask, 14.0)
    chex.assert_trees_all_equal(got, run(patches, other, word_mask, 14.0))
    np.testing.assert_array_equal(np.asarray(got[1])[~word_mask], 0)


def test_no_words_at_all_is_the_loss_of_chance(tokens):
    patches, words, word_mask = tokens
    run = jax.jit(jax.value_and_grad(losses.token_interaction, argnums=(0, 1)))
    value, grads = run(patches, words, np.zeros_like(word_mask), 14.0)
    np.testing.assert_allclose(value, np.log(PAIRS), rtol=1e-6)
    chex.assert_trees_all_equal(grads, jax.tree.map(np.zeros_like, grads))


def test_bfloat16_input_gives_float32(tokens):
    patches, words, word_mask = tokens
    patches, words = jnp.asarray(patches, jnp.bfloat16), jnp.asarray(words, jnp.bfloat16)
    value = losses.token_interaction(patches, words, word_mask, 14.0)
    exact = losses.token_interaction(
        patches.astype(jnp.float32), words.astype(jnp.float32), word_mask, 14.0
    )
    assert value.dtype == jnp.float32
    np.testing.assert_array_equal(value, exact)


@pytest.mark.parametrize("mapping", ["shard_map 8x1", "shard_map 4x2", "shard_map 1x8", "pmap"])
def test_devices_agree_with_one(in_mapping, mapping, tokens):
    patches, words, word_mask = tokens

    def loss(trained, given, scale, axis_name):
        word_mask, same_pair = given
        return losses.token_interaction(
            *trained, word_mask, scale, axis_name=axis_name, same_pair=same_pair
        )

    run = functools.partial(
        in_mapping, loss=loss, trained=(patches, words), given=(word_mask, SAME), scale=14
    )
    chex.assert_trees_all_close(run(mapping), run("none"), rtol=1e-5, atol=1e-5)


def test_memory_stays_below_the_table_of_all_cosines():
    pairs, patches, words = 32, 32, 32
    shapes = (
        jax.ShapeDtypeStruct((pairs, patches, 4), jnp.float32),
        jax.ShapeDtypeStruct((pairs, words, 4), jnp.float32),
        jax.ShapeDtypeStruct((pairs, words), jnp.bool_),
    )
    step = jax.jit(jax.grad(losses.token_interaction, argnums=(0, 1)))
    temporaries = step.lower(*shapes, 14.0).compile().memory_analysis().temp_size_in_bytes
    assert temporaries < pairs * pairs * patches * words * 4 / 4


def inputs_of(tokens, *, scale=14.0, parameters=None, axis_name=None, **loss):
    """Returns what the term gets: tokens of any norm, embeddings of their own."""
    patches, words, word_mask = tokens
    image, text = reference.batch(8, PAIRS, WIDTH)
    return terms.Inputs(
        views={terms.PAIR: types.Embeddings(image, text, 3 * patches, 0.2 * words, word_mask)},
        arrays={},
        scale=scale,
        margin=None,
        gamma=0.5,
        parameters=parameters or {},
        settings=terms.Settings(groups.LossGroup(**loss), groups.MethodGroup()),
        axis_name=axis_name,
        same_pair=SAME,
    )


def test_the_term_without_switches_is_the_interaction_bit_for_bit(tokens):
    patches, words, word_mask = tokens

    @jax.jit
    def term(patches, words, scale):
        raw = inputs_of((patches, words, word_mask), scale=scale)
        return tokens_lib.token_term(raw)

    @jax.jit
    def plain(patches, words, scale):
        patches, words = vectors.unit(3 * patches), vectors.unit(0.2 * words)
        return losses.token_interaction(patches, words, word_mask, scale, same_pair=SAME)

    scale = jnp.float32(14.0)
    of_term, of_plain = (
        jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2)))(patches, words, scale)
        for run in (term, plain)
    )
    chex.assert_trees_all_equal(of_term, of_plain)


def test_one_score_for_both_directions_equals_float64(tokens):
    patches, words, word_mask = tokens
    (to_text, to_image), parts = reference.late_interaction(*tokens)
    mean = (to_text + to_image) / 2
    wanted, d_row, d_column = reference.pair_losses(14.0 * mean, 14.0 * mean, SAME)
    d_patches = np.zeros(patches.shape)
    for i, j, n, word, weight in parts[0] + parts[1]:
        d_patches[i, n] += 7.0 * (d_row + d_column)[i, j] * weight * words[j, word]

    def loss(patches):
        return tokens_lib.boosted_interaction(
            patches, words, word_mask, 14.0, symmetric=True, same_pair=SAME
        )

    value, grad = jax.jit(jax.value_and_grad(loss))(patches)
    assert reference.relative_error(value, wanted.mean()) < 2e-6
    assert reference.relative_error(grad, d_patches) < 2e-6
    term = tokens_lib.token_term(inputs_of(tokens, token_symmetric=True))
    np.testing.assert_allclose(term, value, rtol=1e-6)


def test_global_tokens_are_one_more_patch_and_one_more_word(tokens):
    patches, words, word_mask = tokens
    image, text = reference.batch(8, PAIRS, WIDTH)
    wanted, _ = reference.token_interaction(
        np.concatenate([patches, image[:, None]], axis=1),
        np.concatenate([words, text[:, None]], axis=1),
        np.concatenate([word_mask, np.ones((PAIRS, 1), bool)], axis=1),
        14.0,
        SAME,
    )
    got = tokens_lib.token_term(inputs_of(tokens, token_include_global=True))
    assert reference.relative_error(got, wanted) < 2e-6


SCALES = {
    "shared": ({}, 14.0),
    "fixed": ({"token_scale": "fixed", "token_scale_value": 5.0}, 5.0),
    "learned": ({"token_scale": "learned", "token_scale_value": 5.0}, 3.0),
}


@pytest.mark.parametrize("detach", [False, True], ids=["attached", "detached"])
@pytest.mark.parametrize("kind", SCALES)
def test_temperatures(tokens, kind, detach):
    switches, scale = SCALES[kind]

    @jax.jit
    def loss(shared, learned):
        parameters = {"token_scale": learned}
        return tokens_lib.token_term(
            inputs_of(
                tokens, scale=shared, parameters=parameters, token_detach_scale=detach, **switches
            )
        )

    learned = jnp.log(jnp.float32(3.0))
    value, grads = jax.value_and_grad(loss, argnums=(0, 1))(jnp.float32(14.0), learned)
    wanted, (*_, of_scale) = reference.token_interaction(*tokens, scale, SAME)
    assert reference.relative_error(value, wanted) < 2e-6
    chain = {"shared": (1.0, 0.0), "fixed": (0.0, 0.0), "learned": (0.0, scale)}[kind]
    wanted_grads = [0.0 if detach else of_scale * factor for factor in chain]
    np.testing.assert_allclose(grads, wanted_grads, rtol=1e-5)


def test_a_learned_scale_begins_with_the_given_one():
    loss = groups.LossGroup(token_weight=2, token_scale="learned", token_scale_value=50.0)
    settings = terms.Settings(loss, groups.MethodGroup())
    made = tokens_lib.term(loss)
    assert (made.name, made.tokens, made.weight(settings)) == ("token", True, 2)
    parameters = made.init(jax.random.key(0), terms.Sizes(8, 9), settings)
    np.testing.assert_allclose(parameters["token_scale"], np.log(50.0), rtol=1e-6)
    assert parameters["token_scale"].dtype == jnp.float32
    assert tokens_lib.term(groups.LossGroup()) == tokens_lib.TERM
    assert tokens_lib.TERM.init is None


def test_a_scale_of_zero_is_a_mistake(tokens):
    zero = {"token_scale": "fixed", "token_scale_value": 0.0}
    with pytest.raises(types.UserError, match=r"token_scale_value is 0\.0"):
        tokens_lib.token_term(inputs_of(tokens, **zero))


@pytest.mark.parametrize(
    ("patches", "words", "word_mask", "message"),
    [
        ((4, 5, 6), (4, 7, 6), (4, 9), "word_mask"),
        ((4, 5, 6), (4, 7, 8), (4, 7), "word_mask"),
        ((3, 5, 6), (4, 7, 6), (4, 7), "3 rows and words 4"),
        ((1, 5, 6), (1, 7, 6), (1, 7), "at least 2 pairs"),
    ],
    ids=["mask", "width", "rows", "one pair"],
)
def test_mistakes_are_named(patches, words, word_mask, message):
    with pytest.raises(types.UserError, match=message):
        losses.token_interaction(np.ones(patches), np.ones(words), np.ones(word_mask, bool), 1.0)
