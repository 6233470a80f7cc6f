"""Activations, layer norm, block layouts and initialisation."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.models import dual_encoder, presets, transformer


def test_activations_by_hand():
    x = jnp.asarray([-2.0, 0.0, 1.0], jnp.float32)
    quick = [-2 / (1 + math.exp(3.404)), 0, 1 / (1 + math.exp(-1.702))]
    exact = [-2 * 0.022750131948179, 0, 0.841344746068543]
    np.testing.assert_allclose(transformer.activate("quick_gelu", x), quick, atol=1e-6)
    np.testing.assert_allclose(transformer.activate("gelu", x), exact, atol=1e-6)


def test_layer_norm_is_float32_and_survives_an_offset():
    x = np.asarray([[4096.0, 4096.5, 4097.0, 4098.5]])
    scale, bias = np.asarray([1.0, 2.0, 3.0, 4.0]), np.asarray([0.5, 0.0, -0.5, 1.0])
    expected = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * scale + bias
    norm = transformer.layer_norm(1e-5, "norm")
    params = {"params": {"scale": jnp.float32(scale), "bias": jnp.float32(bias)}}
    np.testing.assert_allclose(norm.apply(params, jnp.float32(x)), expected, atol=1e-5)

    rounded = jnp.asarray([[1.0, 2.0, 3.0, 4.5]], jnp.bfloat16)
    result = norm.apply(params, rounded)
    x = np.asarray(rounded, np.float64)
    expected = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * scale + bias
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_layer_norm_uses_its_epsilon():
    x = jnp.asarray([[-1.0, 1.0]], jnp.float32)
    norm = transformer.layer_norm(3.0, "norm")
    params = {"params": {"scale": jnp.ones(2), "bias": jnp.zeros(2)}}
    np.testing.assert_allclose(norm.apply(params, x), [[-0.5, 0.5]], atol=1e-6)


def _layers(count):
    rng = np.random.default_rng(2)
    return {
        "image": {
            f"blocks_{i:02d}": {"attn": {"kernel": rng.normal(size=(2, 3))}, "b": np.full(4, i)}
            for i in range(count)
        }
        | {"proj": rng.normal(size=(2, 2))},
        "logit_scale": np.float32(1.5),
    }


def test_stack_blocks_puts_layers_in_order_of_their_numbers():
    shuffled = _layers(12)
    shuffled["image"] = dict(reversed(shuffled["image"].items()))
    stacked = transformer.stack_blocks(shuffled)
    assert set(stacked["image"]) == {"blocks", "proj"}
    np.testing.assert_array_equal(stacked["image"]["blocks"]["b"][:, 0], np.arange(12))
    assert stacked["image"]["blocks"]["attn"]["kernel"].shape == (12, 2, 3)


@pytest.mark.parametrize("module", [np, jnp], ids=["numpy", "jax"])
def test_stack_and_unstack_are_inverse(module):
    params = jax.tree.map(lambda leaf: module.asarray(leaf, "float32"), _layers(3))
    stacked = transformer.stack_blocks(params)
    back = transformer.unstack_blocks(stacked)
    assert jax.tree.structure(back) == jax.tree.structure(params)
    for tree, reference in ((back, params), (transformer.stack_blocks(back), stacked)):
        for leaf, wanted in zip(jax.tree.leaves(tree), jax.tree.leaves(reference), strict=True):
            assert isinstance(leaf, np.ndarray) == (module is np)
            np.testing.assert_array_equal(leaf, wanted)


def test_unstack_of_a_tower_alone():
    tower = transformer.unstack_blocks({"blocks": {"b": np.arange(6).reshape(2, 3)}, "proj": 7})
    assert set(tower) == {"blocks_00", "blocks_01", "proj"}
    np.testing.assert_array_equal(tower["blocks_01"]["b"], [3, 4, 5])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"remat": "dot"}, "unknown remat 'dot'; did you mean 'dots'"),
    ],
    ids=["dtype", "remat"],
)
def test_compute_refuses(wrong, message):
    with pytest.raises(types.UserError, match=message):
        transformer.Compute(**wrong)


@pytest.fixture(scope="module")
def starts():
    """Initial parameters of one key, stacked and written out; towers large enough to measure."""
    model = presets.ModelConfig(
        vision_width=64,
        vision_layers=2,
        vision_heads=2,
        vision_mlp_width=256,
        patch_size=8,
        text_width=96,
        text_layers=3,
        text_heads=2,
        text_mlp_width=384,
        embed_dim=48,
        image_size=64,
        vocab_size=300,
    )
    encoders = [dual_encoder.create(model, scan_layers=scan) for scan in (True, False)]
    # It runs once: all the time goes into compiling.
    jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    starts = jit(lambda key: [encoder.init(key) for encoder in encoders])(jax.random.key(3))
    for encoder, start in zip(encoders, starts, strict=True):
        shapes = jax.tree.map(lambda x: (x.shape, x.dtype), encoder.abstract_params())
        assert jax.tree.map(lambda x: (x.shape, x.dtype), start) == shapes
    return starts


@pytest.mark.slow
def test_init_gives_the_same_values_in_both_layouts(starts):
    stacked, written_out = starts
    same = jax.tree.map(np.array_equal, transformer.stack_blocks(written_out), stacked)
    assert all(jax.tree.leaves(same))
    assert set(written_out["text"]) >= {"blocks_00", "blocks_01", "blocks_02"}
    first, second = stacked["text"]["blocks"]["attn"]["query"]["kernel"][:2]
    assert np.abs(first - second).max() > 0.1


@pytest.mark.parametrize(
    ("tower", "width", "layers"), [("image", 64, 2), ("text", 96, 3)], ids=["image", "text"]
)
def test_initial_deviations_are_those_of_clip(starts, tower, width, layers):
    own, blocks = starts[0][tower], starts[0][tower]["blocks"]
    residual = width**-0.5 * (2 * layers) ** -0.5
    expected = [
        *((blocks["attn"][name], width**-0.5) for name in ("query", "key", "value")),
        (blocks["attn"]["out"], residual),
        (blocks["mlp"]["fc_in"], (2 * width) ** -0.5),
        (blocks["mlp"]["fc_out"], residual),
    ]
    for layer, std in expected:
        assert np.std(layer["kernel"]) == pytest.approx(std, rel=0.05)
        assert not np.any(layer["bias"])
    assert np.std(own["proj"]) == pytest.approx(width**-0.5, rel=0.05)


def test_initial_deviations_outside_the_blocks(starts):
    image, text = starts[0]["image"], starts[0]["text"]
    kernel = image["patch_embed"]["kernel"]
    assert np.abs(kernel).max() == pytest.approx((8 * 8 * 3) ** -0.5, rel=0.01)
    assert np.std(kernel) == pytest.approx((3 * 8 * 8 * 3) ** -0.5, rel=0.05)
    assert np.std(image["position_embedding"]) == pytest.approx(64**-0.5, rel=0.05)
    assert np.std(image["class_embedding"]) == pytest.approx(64**-0.5, rel=0.3)
    assert np.std(text["token_embedding"]) == pytest.approx(0.02, rel=0.05)
    assert np.std(text["position_embedding"]) == pytest.approx(0.01, rel=0.05)
    assert float(starts[0]["logit_scale"]) == pytest.approx(math.log(1 / 0.07))
