"""The dual encoder as a whole: layouts, remat, types, constraint, either tower alone."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from hnclip_jax import types, vectors
from hnclip_jax.models import dual_encoder, presets, transformer

MODEL = presets.ModelConfig(
    vision_width=16,
    vision_layers=1,
    vision_heads=2,
    vision_mlp_width=32,
    patch_size=4,
    text_width=24,
    text_layers=2,
    text_heads=3,
    text_mlp_width=48,
    embed_dim=20,
    image_size=12,
    context_length=10,
    vocab_size=60,
)
SCANNED = dual_encoder.create(MODEL)
WRITTEN_OUT = dual_encoder.create(MODEL, scan_layers=False)

SAME = 2e-6  # the same arithmetic in another order
ROUNDED = 0.05  # bfloat16 towers of two layers, coordinates of unit vectors

# These programs run once: all the time goes into compiling them.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 58, (8, 9)).astype(np.int32)
    ids[:, 0], ids[:, 6] = 58, 59
    return rng.integers(0, 256, (8, 12, 12, 3), dtype=np.uint8), ids


@pytest.fixture(scope="module")
def params():
    """Stacked parameters with distinct random values, biases and norms included."""
    rng = np.random.default_rng(1)

    def fill(path, leaf):
        values = 0.3 * rng.normal(size=leaf.shape)
        return jnp.asarray(values + (path[-1].key == "scale"), jnp.float32)

    return jax.tree_util.tree_map_with_path(fill, SCANNED.abstract_params())


@pytest.fixture(scope="module")
def split(params):
    """The same parameters, one block per layer."""
    return transformer.unstack_blocks(params)


@pytest.fixture(scope="module")
def exact(split, batch):
    """All embeddings in float32."""
    return WRITTEN_OUT.embed(split, *batch, tokens=True)


@pytest.fixture(scope="module")
def gradient(params, split, batch):
    """Function of an encoder: value and stacked gradients of `_loss`, computed once each."""

    @functools.cache
    def compute(encoder):
        own = params if encoder.compute.scan_layers else split
        value, grads = jit(jax.value_and_grad(lambda p: _loss(encoder, p, batch)))(own)
        return value, transformer.stack_blocks(grads)

    return compute


def _loss(encoder, params, batch):
    found = encoder.embed(params, *batch, tokens=True)
    picked = jnp.einsum("bnd,bsd->bns", found.patches, found.words)
    scores = encoder.scale(params) * jnp.einsum("bd,cd->bc", found.image, found.text)
    return jnp.square(scores).mean() + jnp.square(picked).mean()


def _assert_close(found, wanted, atol):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol)


def _products(jaxpr):
    """Every matrix product of a jaxpr, those of inner jaxprs included, counted once per trace."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        values = jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda value: hasattr(value, "eqns")
        )
        for value in values:
            if hasattr(value, "eqns"):
                yield from _products(getattr(value, "jaxpr", value))


@pytest.mark.slow
def test_scan_on_equals_off(gradient):
    (value, grads), (other, other_grads) = gradient(SCANNED), gradient(WRITTEN_OUT)
    assert float(other) == pytest.approx(float(value), rel=1e-5)
    _assert_close(other_grads, grads, SAME)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remat", "scan_layers"),
    [("dots", True), ("full", False)],
    ids=["dots-scan", "full-written-out"],
)
def test_remat_on_equals_off(gradient, remat, scan_layers):
    encoder = dual_encoder.create(MODEL, remat=remat, scan_layers=scan_layers)
    (value, grads), (other, other_grads) = gradient(SCANNED), gradient(encoder)
    assert float(other) == pytest.approx(float(value), rel=1e-5)
    _assert_close(other_grads, grads, SAME)


@pytest.mark.parametrize("scan_layers", [True, False], ids=["scan", "written-out"])
def test_remat_recomputes_what_it_says(params, split, batch, scan_layers):
    counts = {}
    for remat in ("none", "dots", "full"):
        encoder = dual_encoder.create(MODEL, scan_layers=scan_layers, remat=remat)
        grad = jax.make_jaxpr(jax.grad(lambda p, e=encoder: _loss(e, p, batch)))
        counts[remat] = len(list(_products(grad(params if scan_layers else split).jaxpr)))
    blocks = 2 if scan_layers else MODEL.vision_layers + MODEL.text_layers
    # Of a block's eight products the gradient needs seven (not the last one's result). Two of them
    # have no weights: those are what "dots" does again.
    assert counts["dots"] - counts["none"] == 2 * blocks
    assert counts["full"] - counts["none"] == 7 * blocks


def test_the_vision_tower_runs_back_when_the_text_tower_is_done(params, batch):
    made = jax.make_jaxpr(jax.grad(lambda p: _loss(SCANNED, p, batch)))(params).jaxpr
    gradient = jax.tree.unflatten(jax.tree.structure(params), made.outvars)
    (turn,) = (eqn for eqn in made.eqns if eqn.primitive.name == "optimization_barrier")
    # One variable is the embedding's gradient, all others are the whole of the text tower's.
    assert set(turn.outvars[1:]) == set(jax.tree.leaves(gradient["text"]))
    before = {out for eqn in made.eqns[: made.eqns.index(turn)] for out in eqn.outvars}
    assert not before & set(jax.tree.leaves(gradient["image"]["blocks"]))
    alone = jax.make_jaxpr(lambda p: SCANNED.encode_image(p, batch[0]))(params)
    assert "optimization_barrier" not in str(alone)


def test_bfloat16_keeps_float32_parameters_and_results(params, batch, exact):
    encoder = dual_encoder.create(MODEL, dtype="bfloat16")
    found = jit(lambda p: encoder.embed(p, *batch, tokens=True))(params)
    for name in ("image", "text", "patches", "words"):
        rounded, wanted = vectors.unit(getattr(found, name)), vectors.unit(getattr(exact, name))
        assert getattr(found, name).dtype == jnp.float32
        np.testing.assert_allclose(rounded, wanted, rtol=0, atol=ROUNDED)
        assert np.abs(rounded - wanted).max() > 1e-5
        if name in ("patches", "words"):
            continue
        rounded = getattr(found, name)
        np.testing.assert_allclose(np.linalg.norm(rounded, axis=-1), 1, rtol=0, atol=1e-6)
    grads = jax.eval_shape(jax.grad(lambda p: _loss(encoder, p, batch)), params)
    for leaf in jax.tree.leaves((grads, encoder.abstract_params())):
        assert leaf.dtype == jnp.float32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_product_has_the_type_and_precision_of_its_dtype(params, batch, dtype):
    encoder = dual_encoder.create(MODEL, dtype=dtype)
    jaxpr = jax.make_jaxpr(lambda p: encoder.embed(p, *batch, tokens=True))(params)
    products = list(_products(jaxpr.jaxpr))
    assert len(products) == 1 + 8 + 2 + 8 + 2  # patches; a block and two projections per tower
    highest = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)
    for product in products:
        assert {str(operand.aval.dtype) for operand in product.invars} == {dtype}
        assert product.params["precision"] == (highest if dtype == "float32" else None)


def test_embeddings_are_unit_vectors_with_word_mask(exact):
    given = {name: value for name, value in exact._asdict().items() if value is not None}
    shapes = {name: value.shape for name, value in given.items()}
    assert shapes == {
        "image": (8, 20),
        "text": (8, 20),
        "patches": (8, 9, 20),
        "words": (8, 9, 20),
        "word_mask": (8, 9),
    }
    for name in ("image", "text"):
        norms = np.linalg.norm(getattr(exact, name), axis=-1)
        np.testing.assert_allclose(norms, 1, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(exact.word_mask, [[False] + [True] * 5 + [False] * 3] * 8)


def test_without_tokens_the_global_embeddings_are_the_same(split, batch, exact):
    plain = WRITTEN_OUT.embed(split, *batch)
    assert plain.patches is plain.words is plain.word_mask is None
    _assert_close((plain.image, plain.text), (exact.image, exact.text), SAME)


def test_image_tower_runs_without_the_text_towers_parameters(split, batch, exact):
    own, images = {"image": split["image"]}, batch[0]
    alone = WRITTEN_OUT.embed(own, images=images)
    assert alone == types.Embeddings(image=alone.image)
    _assert_close(alone.image, exact.image, SAME)
    _assert_close(WRITTEN_OUT.encode_image(own, images), exact.image, SAME)


def test_text_tower_runs_without_the_image_towers_parameters(split, batch, exact):
    own, ids = {"text": split["text"]}, batch[1]
    alone = WRITTEN_OUT.embed(own, ids=ids)
    assert alone == types.Embeddings(text=alone.text)
    _assert_close(alone.text, exact.text, SAME)
    _assert_close(WRITTEN_OUT.encode_text(own, ids), exact.text, SAME)


def test_scale_is_the_inverse_temperature():
    scale = SCANNED.scale({"logit_scale": jnp.float32(math.log(1 / 0.07))})
    assert float(scale) == pytest.approx(1 / 0.07, rel=1e-6)


def test_float_images_are_taken_as_normalised(split, batch, exact):
    mean = np.asarray([0.48145466, 0.4578275, 0.40821073])
    std = np.asarray([0.26862954, 0.26130258, 0.27577711])
    floats = ((batch[0] / 255 - mean) / std).astype(np.float32)
    _assert_close(WRITTEN_OUT.encode_image(split, floats), exact.image, 1e-5)


def test_constrain_sees_the_input_of_every_block(split, batch):
    shapes = []

    def constrain(x):
        shapes.append(x.shape)
        return x

    WRITTEN_OUT.embed(split, *batch, constrain=constrain)
    assert shapes == [(8, 10, 16)] + [(8, 9, 24)] * 2


def test_constrain_acts_at_every_block_under_scan_and_remat(params, split, batch, exact):
    def halve(x):
        return 0.5 * x

    encoder = dual_encoder.create(MODEL, remat="full")
    found = jit(lambda p: encoder.embed(p, *batch, constrain=halve))(params)
    other = WRITTEN_OUT.embed(split, *batch, constrain=halve)
    _assert_close(found, other, SAME)
    assert np.abs(found.image - exact.image).max() > 1e-3


def test_constrain_as_a_sharding_constraint(params, batch, exact):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, P("data"))

    def pin(x):
        return jax.lax.with_sharding_constraint(x, rows)

    def embed(params, images, ids):
        return SCANNED.embed(params, images, ids, constrain=pin)

    assert str(jax.make_jaxpr(embed)(params, *batch)).count("sharding_constraint") == 2
    found = jit(embed)(params, *jax.device_put(batch, rows))
    assert found.image.sharding.is_equivalent_to(rows, 2)
    _assert_close((found.image, found.text), (exact.image, exact.text), SAME)


def test_unit_is_safe_at_zero():
    x = jnp.asarray([[0.0, 0.0], [3.0, 4.0], [1e-25, 0.0], [1e-11, 0.0]], jnp.float32)
    np.testing.assert_allclose(
        vectors.unit(x), [[0, 0], [0.6, 0.8], [0, 0], [1, 0]], rtol=0, atol=1e-6
    )
    gradient = jax.grad(lambda x: vectors.unit(x) @ jnp.asarray([1.0, 2.0]) @ jnp.ones(4))(x)
    assert np.isfinite(gradient).all()
    # d/dx of (x . c) / |x| is c / |x| - (x . c) x / |x|^3.
    expected = np.asarray([1, 2]) / 5 - 11 * np.asarray([3, 4]) / 125
    np.testing.assert_allclose(gradient[1], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("tower", ["image", "text"])
def test_a_zero_embedding_has_a_finite_gradient(split, batch, tower):
    own = {**split[tower], "proj": jnp.zeros_like(split[tower]["proj"])}
    inputs = {"images": batch[0][:1]} if tower == "image" else {"ids": batch[1][:1]}

    def total(own):
        found = getattr(WRITTEN_OUT.embed({tower: own}, **inputs), tower)
        return jnp.sum(found + jnp.square(found))

    value, grads = jit(jax.value_and_grad(total))(own)
    assert float(value) == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))
    assert np.abs(grads["proj"]).max() > 0


def test_encoders_of_equal_settings_are_one_static_argument(split, batch):
    encode = jit(lambda encoder, p, x: encoder.encode_image(p, x), static_argnums=0)
    for _ in range(2):
        encode(dual_encoder.create(MODEL, scan_layers=False), split, batch[0])
    assert encode._cache_size() == 1


def test_create_refuses_an_unknown_word():
    with pytest.raises(types.UserError, match="unknown remat 'dot'; did you mean 'dots'"):
        dual_encoder.create(MODEL, remat="dot")
