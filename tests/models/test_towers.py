"""The two towers against a float64 forward pass written out in numpy, and their doors."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import types, vectors
from hnclip_jax.models import dual_encoder, presets, text, transformer, vision

# No two sizes are equal, so a mix-up of axes cannot pass.
MODEL = presets.ModelConfig(
    vision_width=8,
    vision_layers=2,
    vision_heads=2,
    vision_mlp_width=20,
    patch_size=3,
    text_width=12,
    text_layers=3,
    text_heads=4,
    text_mlp_width=28,
    embed_dim=6,
    image_size=9,
    context_length=11,
    vocab_size=50,
)
BEGIN, END = 48, 49
IDS = np.asarray(
    [
        [BEGIN, 5, 9, 2, END, 0, 0, 0, 0],
        [BEGIN, END, 7, 7, 7, 7, 7, 7, 7],
        [BEGIN, *range(1, 8), END],
    ]
)
TOLERANCE = 1e-5  # float32 against float64 over three layers, values near 1


def _params(model=MODEL, seed=0):
    """Distinct random values for every parameter, biases and norms included."""
    rng = np.random.default_rng(seed)
    encoder = dual_encoder.create(model, scan_layers=False)

    def fill(path, leaf):
        values = 0.3 * rng.normal(size=leaf.shape)
        return np.asarray(values + (path[-1].key == "scale"), np.float32)

    return jax.tree_util.tree_map_with_path(fill, encoder.abstract_params())


def _pixels(seed=1, batch=3):
    return np.random.default_rng(seed).integers(0, 256, (batch, 9, 9, 3), dtype=np.uint8)


def _norm(x, params):
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return (x - x.mean(axis=-1, keepdims=True)) / deviation * params["scale"] + params["bias"]


def _dense(x, params):
    return x @ params["kernel"] + params["bias"]


def _activate(x, name):
    if name == "quick_gelu":
        return x / (1 + np.exp(-1.702 * x))
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def _attend(x, params, heads, causal):
    query, key, value = (_dense(x, params[name]) for name in ("query", "key", "value"))
    mixed, width = np.zeros_like(value), value.shape[-1] // heads
    for h in range(heads):
        own = slice(h * width, (h + 1) * width)
        for t in range(len(x)):
            seen = slice(0, t + 1 if causal else len(x))
            weights = np.exp(key[seen, own] @ query[t, own] / math.sqrt(width))
            mixed[t, own] = weights @ value[seen, own] / weights.sum()
    return _dense(mixed, params["out"])


def _blocks(x, params, model, heads, layers, causal):
    for i in range(layers):
        block = params[f"blocks_{i:02d}"]
        x = x + _attend(_norm(x, block["ln_1"]), block["attn"], heads, causal)
        hidden = _dense(_norm(x, block["ln_2"]), block["mlp"]["fc_in"])
        x = x + _dense(_activate(hidden, model.activation), block["mlp"]["fc_out"])
    return x


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _slow_image(params, pixels, model):
    """[1 + N, D] unit vectors of one image: class token, then patches."""
    kernel = params["patch_embed"]["kernel"].reshape(3, 3, 3, model.vision_width)
    image = (pixels / 255 - np.asarray(model.pixel_mean)) / model.pixel_std
    tokens = [params["class_embedding"]]
    for row in range(0, 9, 3):
        for column in range(0, 9, 3):
            patch = np.zeros(model.vision_width)
            for r in range(3):
                for c in range(3):
                    for channel in range(3):
                        patch += image[row + r, column + c, channel] * kernel[r, c, channel]
            tokens.append(patch)
    x = _norm(np.stack(tokens) + params["position_embedding"], params["ln_pre"])
    x = _blocks(x, params, model, model.vision_heads, model.vision_layers, causal=False)
    return _unit(_norm(x, params["ln_post"]) @ params["proj"])


def _slow_text(params, ids, model):
    """[S, D] unit vectors of one caption, every position."""
    x = params["token_embedding"][ids] + params["position_embedding"][: len(ids)]
    x = _blocks(x, params, model, model.text_heads, model.text_layers, causal=True)
    return _unit(_norm(x, params["ln_final"]) @ params["proj"])


@pytest.mark.parametrize("activation", presets.ACTIVATIONS)
def test_both_towers_equal_the_numpy_forward_pass(activation):
    model = dataclasses.replace(MODEL, activation=activation)
    params, pixels = _params(model), _pixels()
    encoder = dual_encoder.create(model, scan_layers=False)
    found = jax.jit(lambda p, i, t: encoder.embed(p, i, t, tokens=True))(params, pixels, IDS)
    exact = jax.tree.map(lambda leaf: leaf.astype(np.float64), params)
    images = np.stack([_slow_image(exact["image"], image, model) for image in pixels])
    words = np.stack([_slow_text(exact["text"], ids, model) for ids in IDS])
    np.testing.assert_allclose(found.image, images[:, 0], rtol=0, atol=TOLERANCE)
    patches, found_words = vectors.unit(found.patches), vectors.unit(found.words)
    np.testing.assert_allclose(patches, images[:, 1:], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(found_words, words, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(found.text, words[[0, 1, 2], [4, 1, 8]], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("pixel", [(0, 1, 2), (4, 8, 0), (7, 2, 1)], ids=str)
def test_one_pixel_lands_in_its_patch_and_kernel_row(pixel):
    row, column, channel = pixel
    images = np.zeros((1, 9, 9, 3), np.float32)
    images[0, row, column, channel] = 1
    patches = np.asarray(vision.patchify(images, 3))
    expected = np.zeros((1, 9, 27))
    expected[0, row // 3 * 3 + column // 3, (row % 3 * 3 + column % 3) * 3 + channel] = 1
    np.testing.assert_array_equal(patches, expected)


def test_uint8_is_normalised_and_floats_are_taken_as_they_are():
    pixels = _pixels()
    clip = presets.PIXEL_MEAN, presets.PIXEL_STD
    normalised = (pixels / 255 - np.asarray(clip[0])) / np.asarray(clip[1])
    np.testing.assert_allclose(vision.normalise(pixels, *clip), normalised, rtol=0, atol=1e-6)
    floats = jnp.asarray(normalised, jnp.bfloat16)
    np.testing.assert_array_equal(vision.normalise(floats, *clip), floats.astype(jnp.float32))
    black = vision.normalise(np.zeros((1, 1, 1, 3), np.uint8), *clip)[0, 0, 0]
    np.testing.assert_allclose(black, [-1.7922626, -1.7520971, -1.4802198], rtol=0, atol=1e-6)


def test_a_model_takes_pixels_by_its_own_mean_and_deviation():
    # Three of each that differ: channels and the two quantities cannot be mixed up.
    mean, std = (0.5, 0.4, 0.3), (0.5, 0.25, 0.125)
    model = dataclasses.replace(MODEL, pixel_mean=mean, pixel_std=std)
    params, pixels = _params(model), _pixels()
    found = dual_encoder.create(model, scan_layers=False).encode_image(params, pixels)
    by_hand = (pixels / 255 - np.asarray(mean)) / np.asarray(std)
    plain = dual_encoder.create(MODEL, scan_layers=False)
    expected = plain.encode_image(params, by_hand.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    assert np.abs(found - plain.encode_image(params, pixels)).max() > 1e-2


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            np.zeros((9, 9, 3), np.uint8),
            r"shape \(9, 9, 3\), but the model needs \[batch, 9, 9, 3\]",
        ),
        (np.zeros((2, 3, 9, 9), np.uint8), "channels last"),
        (np.zeros((2, 12, 12, 3), np.uint8), r"shape \(2, 12, 12, 3\)"),
        (np.zeros((2, 9, 9, 4), np.uint8), r"shape \(2, 9, 9, 4\)"),
        (np.zeros((2, 9, 9, 3), np.int32), "images are int32, but must be uint8"),
    ],
    ids=["rank", "channels-first", "size", "alpha", "dtype"],
)
def test_images_are_refused(images, message):
    encoder = dual_encoder.create(MODEL)
    with pytest.raises(types.UserError, match=message):
        encoder.encode_image({}, images)


def _encode(ids, params=None, model=MODEL):
    encoder = dual_encoder.create(model, scan_layers=False)
    encode = jax.jit(encoder.encode_text)
    return np.asarray(encode(params or _params(model), np.asarray(ids)))


def test_ids_after_the_end_token_change_nothing():
    others = IDS.copy()
    others[0, 5:] = [9, END, 4, BEGIN]
    others[1, 2:] = END
    np.testing.assert_array_equal(_encode(others), _encode(IDS))


def test_a_word_before_the_end_token_changes_the_embedding():
    others = IDS.copy()
    others[0, 3] = 30
    change = np.abs(_encode(others) - _encode(IDS)).max(axis=1)
    assert change[0] > 1e-3
    assert not change[1:].any()


def test_the_first_end_token_is_pooled():
    words = dual_encoder.create(MODEL, scan_layers=False).embed(_params(), ids=IDS, tokens=True)
    others = IDS.copy()
    others[0, 6] = others[1, 4] = END
    np.testing.assert_array_equal(text.end_positions(others), [4, 1, 8])
    expected = vectors.unit(words.words[np.arange(3), [4, 1, 8]])
    np.testing.assert_allclose(_encode(others), expected, rtol=0, atol=1e-6)


def test_words_see_no_later_word():
    encoder, params = dual_encoder.create(MODEL, scan_layers=False), _params()
    others = IDS.copy()
    others[2, 5] = 40
    found, changed = (encoder.embed(params, ids=ids, tokens=True).words[2] for ids in (IDS, others))
    np.testing.assert_array_equal(found[:5], changed[:5])
    assert (np.abs(found[5:] - changed[5:]).max(axis=-1) > 1e-3).all()


def test_short_ids_use_the_first_positions():
    params = _params()
    longer = np.pad(IDS, ((0, 0), (0, 2)))
    np.testing.assert_allclose(_encode(IDS, params), _encode(longer, params), rtol=0, atol=1e-6)
    cut = {**params["text"], "position_embedding": params["text"]["position_embedding"][:9]}
    model = dataclasses.replace(MODEL, context_length=9)
    np.testing.assert_array_equal(_encode(IDS, params), _encode(IDS, {"text": cut}, model))


def test_a_pooled_state_is_normed_and_projected_like_the_whole():
    encoder, params = dual_encoder.create(MODEL, scan_layers=False), _params()
    images = np.random.default_rng(4).integers(0, 256, (2, 9, 9, 3), dtype=np.uint8)

    def embed(pool_patches=None, pool_words=None, **more):
        pools = {"pool_patches": pool_patches, "pool_words": pool_words, **more}
        # Compiled as one: operation by operation takes ten times as long.
        return jax.jit(lambda *given: encoder.embed(*given, **pools))(params, images, IDS[:2])

    # One state taken as it is: the token at that place, to unit length.
    found = embed(lambda states: states[:, 1:3], lambda states: states[:, 2:3], tokens=True)
    regions, spans = vectors.unit(found.patches[:, 1:3]), vectors.unit(found.words[:, 2:3])
    np.testing.assert_allclose(found.regions, regions, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.spans, spans, rtol=0, atol=1e-6)
    # A mean is taken before the norm, and is something else than the mean of the tokens.
    mean = embed(lambda states: jnp.mean(states, axis=1, keepdims=True)).regions
    of_tokens = vectors.unit(jnp.mean(found.patches, axis=1, keepdims=True))
    assert np.abs(mean - of_tokens).max() > 1e-3
    assert embed().regions is embed().spans is None


def test_words_may_pass_the_norm_before_they_are_pooled():
    encoder, params = dual_encoder.create(MODEL, scan_layers=False), _params()
    seen = []

    def pool(states):
        seen.append(np.asarray(states))
        return states[:, 2:3]

    found = [
        np.asarray(encoder.embed(params, ids=IDS, pool_words=pool, words_normed=normed).spans)
        for normed in (False, True)
    ]
    norm = params["text"]["ln_final"]

    def normed(x):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * np.asarray(norm["scale"]) + np.asarray(norm["bias"])

    np.testing.assert_allclose(seen[1], normed(seen[0]), rtol=0, atol=1e-5)
    for spans, states in zip(found, seen, strict=True):
        expected = normed(states[:, 2:3]) @ np.asarray(params["text"]["proj"])
        np.testing.assert_allclose(spans, vectors.unit(expected), rtol=0, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_pictures_may_have_more_axes():
    encoder, params = dual_encoder.create(MODEL, scan_layers=False), _params()
    images = np.random.default_rng(4).integers(0, 256, (2, 3, 9, 9, 3), dtype=np.uint8)
    encode = jax.jit(encoder.encode_image)
    expected = np.stack([encode(params, row) for row in images])
    found = encode(params, images)
    assert found.shape == (2, 3, MODEL.embed_dim)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_word_mask_keeps_words_only():
    expected = np.zeros((3, 9), bool)
    expected[0, 1:4] = expected[2, 1:8] = True
    np.testing.assert_array_equal(text.word_mask(IDS), expected)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.full((2, 12), BEGIN), "ids are 12 tokens long, but the model has 11 positions"),
        (IDS[None], r"ids have shape \(1, 3, 9\), but the model needs \[batch, length\]"),
        (IDS[0], r"ids have shape \(9,\)"),
        (IDS.astype(np.float32), "ids are float32, but must be integers"),
        (IDS[:, 1:], "row 0 of ids is not a caption: it needs begin token 48 first"),
        (np.where(IDS == END, 3, IDS), "end token 49"),
        (np.where(IDS == 7, 50, IDS), "row 1 of ids .* no id outside 0..49"),
        (np.where(IDS == 0, -1, IDS), "row 0 of ids .* no id outside 0..49"),
    ],
    ids=[
        "length",
        "extra-axis",
        "no-batch",
        "dtype",
        "no-begin",
        "no-end",
        "too-large",
        "negative",
    ],
)
def test_ids_are_refused(ids, message):
    with pytest.raises(types.UserError, match=message):
        dual_encoder.create(MODEL).encode_text({}, ids)


def test_traced_ids_skip_the_checks_of_values_but_not_of_shape():
    encoder, params = dual_encoder.create(MODEL), transformer.stack_blocks(_params())
    encode = jax.jit(encoder.encode_text)
    assert np.isfinite(encode(params, IDS[:, 1:])).all()
    with pytest.raises(types.UserError, match="11 positions"):
        encode(params, np.full((2, 12), BEGIN))


def test_a_traced_id_beyond_the_vocabulary_gives_nan_not_another_word():
    encoder, params = dual_encoder.create(MODEL), transformer.stack_blocks(_params())
    found = jax.jit(encoder.encode_text)(params, np.where(IDS == 9, 60, IDS))
    np.testing.assert_array_equal(np.isnan(found).all(axis=1), [True, False, False])
