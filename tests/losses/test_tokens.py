"""The token term: scores, value and gradient against numpy loops, masks, devices, memory."""

import functools

import chex
import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from hnclip_jax import losses, types
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
    run = jax.grad(losses.token_interaction, argnums=(0, 1))
    got = run(patches, words, word_mask, 14.0)
    chex.assert_trees_all_equal(got, run(patches, other, word_mask, 14.0))
    np.testing.assert_array_equal(np.asarray(got[1])[~word_mask], 0)


def test_no_words_at_all_is_the_loss_of_chance(tokens):
    patches, words, word_mask = tokens
    run = jax.value_and_grad(losses.token_interaction, argnums=(0, 1))
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
