"""Long-CLIP's short term: components and their gradient against float64, ranks, devices."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.losses import longclip, terms
from tests.losses import reference

PAIRS = 8
# Fewer pairs than dimensions, and more: [B, B] and [D, D] are decomposed.
SHAPES = {"gram": 11, "covariance": 5}
# float32 knows an eigenvector to about 1e-7 over the gap; the gaps at the cut are 0.1 and more.
VALUE, GRADIENT = 2e-6, 1e-5


def settings(smoothing=0.0, **method):
    return terms.Settings(groups.LossGroup(label_smoothing=smoothing), groups.MethodGroup(**method))


KEEP_TWO = settings(pcm_dim=2)


def short(image, text, scale, chosen=KEEP_TWO, **others):
    views = {
        terms.PAIR: types.Embeddings(image=image, text=0 * text),
        longclip.SHORT: types.Embeddings(text=text),
    }
    return longclip.short_term(terms.Inputs(views, {}, scale, None, 0.0, {}, chosen, **others))


def reduced(image, keep, components=None):
    """The float64 reference, by a singular value decomposition; with components, on those."""
    image = np.asarray(image, np.float64)
    mean = image.mean(axis=0)
    if components is None:
        components = np.linalg.svd(image - mean, full_matrices=False)[2][:keep]
    return (image - mean) @ components.T @ components + mean


def differences(function, x, eps=1e-5):
    """The gradient of a float64 function at x, by central differences."""
    x = np.array(x, np.float64)
    gradient = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = eps
        gradient[place] = (function(x + step) - function(x - step)) / (2 * eps)
    return gradient


def of_spectrum(sizes, width, seed=0):
    """Pictures [PAIRS, width] float32 whose centred matrix has these singular values."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(PAIRS, len(sizes)))
    left, _ = np.linalg.qr(left - left.mean(axis=0))
    right, _ = np.linalg.qr(rng.normal(size=(width, len(sizes))))
    image = left @ np.diag(sizes) @ right.T + rng.normal(size=width) / np.sqrt(width)
    return image.astype(np.float32)


@functools.partial(jax.jit, static_argnums=(2, 3))
def pull(image, weights, keep, gradient="full"):
    """Returns v_c and the gradient of sum(weights * v_c)."""
    value, back = jax.vjp(
        lambda x: longclip.principal_components(x, keep, gradient=gradient), image
    )
    return value, back(weights)[0]


@pytest.mark.parametrize("width", [2, 5])
def test_golden_of_a_cross(width):
    # Centre (1, 1); the long arm, (+-2, 0), is the first component, the short one, (0, +-1), goes.
    image = np.ones((4, width), np.float32)
    image[:, :2] += np.array([[2, 0], [-2, 0], [0, 1], [0, -1]])
    wanted = np.ones((4, width), np.float32)
    wanted[:2, 0] = 3, -1
    weights = np.zeros((4, width), np.float32)
    weights[0, 1] = 1.0
    value, gradient = pull(image, weights, 1)
    np.testing.assert_allclose(value, wanted, atol=1e-6)
    # Eigenvalues 8 and 2. A step e of picture k along axis 1 turns the component by x_k e / 6 and
    # so moves picture 0 by 2 x_k e / 6 along axis 1, x = (2, -2, 0, 0), beside e / 4 by the mean.
    # One along axis 0 turns it by y_k e / 6, y = (0, 0, 1, -1).
    np.testing.assert_allclose(gradient[:, 1], [11 / 12, -5 / 12, 1 / 4, 1 / 4], atol=1e-6)
    np.testing.assert_allclose(gradient[:, 0], [0, 0, 1 / 3, -1 / 3], atol=1e-6)


SPECTRA = {
    "apart": [2.0, 1.4, 1.0, 0.6, 0.3],
    "kept nearly equal": [2.0, 1.0 + 1e-6, 1.0, 0.6, 0.3],
    "kept equal": [1.5, 1.5, 1.5, 0.6, 0.3],
    "dropped equal": [2.0, 1.4, 1.0, 0.5, 0.5],
}


@pytest.mark.parametrize("width", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("sizes", SPECTRA.values(), ids=SPECTRA)
def test_value_and_whole_gradient_equal_float64(sizes, width):
    image = of_spectrum(sizes, width)
    weights = np.random.default_rng(1).normal(size=image.shape).astype(np.float32)
    value, gradient = pull(image, weights, 3)
    wanted = differences(lambda x: np.sum(weights * reduced(x, 3)), image)
    assert reference.relative_error(value, reduced(image, 3)) < VALUE
    assert reference.relative_error(gradient, wanted) < GRADIENT


@pytest.mark.parametrize("width", SHAPES.values(), ids=SHAPES)
def test_forward_derivative_equals_float64(width):
    image = of_spectrum(SPECTRA["apart"], width)
    step = np.random.default_rng(1).normal(size=image.shape).astype(np.float32)
    run = jax.jit(functools.partial(longclip.principal_components, keep=3))
    _, got = jax.jvp(run, (image,), (step,))
    eps = np.float64(1e-5)
    wanted = (reduced(image + eps * step, 3) - reduced(image - eps * step, 3)) / (2 * eps)
    assert reference.relative_error(got, wanted) < GRADIENT


@pytest.mark.parametrize("width", SHAPES.values(), ids=SHAPES)
def test_gradient_with_the_components_given(width):
    image = of_spectrum(SPECTRA["apart"], width)
    weights = np.random.default_rng(1).normal(size=image.shape).astype(np.float32)
    value, gradient = pull(image, weights, 3, "stop_basis")
    components = np.linalg.svd(image - image.mean(axis=0), full_matrices=False)[2][:3]
    wanted = differences(lambda x: np.sum(weights * reduced(x, 3, components)), image)
    assert reference.relative_error(value, reduced(image, 3)) < VALUE
    assert reference.relative_error(gradient, wanted) < GRADIENT
    assert reference.relative_error(pull(image, weights, 3)[1], wanted) > 0.1


@pytest.mark.parametrize("keep", [PAIRS - 1, PAIRS, 40])
def test_few_pairs_are_returned_bit_for_bit(keep):
    image = of_spectrum(SPECTRA["apart"], 11)
    weights = np.ones_like(image)
    chex.assert_trees_all_equal(pull(image, weights, keep), (image, weights))


@pytest.mark.parametrize("width", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    ("sizes", "keep"),
    [([1.0, 0.5], 2), ([1.0, 0.5], 4), ([], 1)],
    ids=["rank as kept", "below", "all equal"],
)
def test_low_rank_is_left_alone(sizes, keep, width):
    image = of_spectrum(sizes, width)[:7]  # of 8 equal rows the mean is exact
    image /= np.linalg.norm(image, axis=1).max()
    weights = np.random.default_rng(1).normal(size=image.shape).astype(np.float32)
    value, gradient = pull(image, weights, keep)
    np.testing.assert_allclose(value, image, atol=1e-6)
    np.testing.assert_allclose(gradient, weights, atol=1e-5)
    # Given components are those that there are.
    value, gradient = pull(image, weights, keep, "stop_basis")
    np.testing.assert_allclose(value, image, atol=1e-6)
    components = np.linalg.svd(image - image.mean(axis=0))[2][: len(sizes)]
    mean = weights.mean(axis=0)
    wanted = (weights - mean) @ components.T @ components + mean
    np.testing.assert_allclose(gradient, wanted, atol=1e-5)


@pytest.mark.parametrize("width", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("gradient", ["full", "stop_basis"])
def test_equal_eigenvalues_at_the_cut_are_finite(gradient, width):
    image = of_spectrum([1.0, 0.7, 0.7, 0.2], width)
    weights = np.random.default_rng(1).normal(size=image.shape).astype(np.float32)
    _, got = pull(image, weights, 2, gradient)
    # The rest of the gradient is of the weights' size; 1 / gap would be 1e4 of it and more.
    assert np.max(np.abs(got)) < 20 * np.max(np.abs(weights))
    exact = np.eye(4, 5, dtype=np.float32)[np.array([0, 1, 2, 3, 0, 1, 2, 3])]
    chex.assert_tree_all_finite(pull(exact, np.ones_like(exact), 2, gradient))


def slow_term(image, text, scale, keep, smoothing, same_pair):
    """Label-smoothed InfoNCE by loops, float64."""
    logits = scale * reduced(image, keep) @ np.asarray(text, np.float64).T
    total = 0.0
    for square in (logits, logits.T):
        for i, row in enumerate(square):
            shown = [j for j in range(len(row)) if j == i or same_pair[j] != same_pair[i]]
            log_sum = np.log(np.sum(np.exp(row[shown])))
            target = (1 - smoothing) * row[i] + smoothing * np.mean(row[shown])
            total += (log_sum - target) / (2 * len(logits))
    return total


def test_term_equals_float64():
    image, text = reference.batch(0, PAIRS, 5)
    same_pair = np.array([0, 1, 2, 3, 4, 1, 6, 7], np.int32)

    @jax.jit
    def run(image, text, same_pair):
        given = functools.partial(
            short, chosen=settings(0.1, pcm_dim=2), same_pair=same_pair, block_rows=3
        )
        return jax.value_and_grad(given, argnums=(0, 1))(image, text, 5.0)

    value, grads = run(image, text, same_pair)
    slow = functools.partial(slow_term, keep=2, smoothing=0.1, same_pair=same_pair)
    assert reference.relative_error(value, slow(image, text, 5.0)) < VALUE
    wanted = differences(lambda x: slow(x, text, 5.0), image)
    assert reference.relative_error(grads[0], wanted) < GRADIENT
    wanted = differences(lambda x: slow(image, x, 5.0), text)
    assert reference.relative_error(grads[1], wanted) < GRADIENT


def test_the_settings_reach_the_components():
    image, text = reference.batch(0, PAIRS, 5)
    run = jax.jit(jax.value_and_grad(short), static_argnums=3)
    value, whole = run(image, text, 5.0, KEEP_TWO)
    same_value, given = run(image, text, 5.0, settings(pcm_dim=2, pcm_grad="stop_basis"))
    np.testing.assert_allclose(same_value, value, rtol=1e-6)
    assert reference.relative_error(given, whole) > 1e-2
    (term,) = longclip.TERMS
    assert term.weight(settings(pcm_weight=0.25)) == 0.25
    assert longclip.VIEWS[term.views[0]].text == "short_tokens"


def test_pictures_of_one_short_caption_share_the_target():
    # Both score 0.6 with the caption of both: the best there is, and nothing pulls.
    image = np.array([[0.6, 0.8], [0.6, -0.8]], np.float32)
    text = np.array([[1, 0], [1, 0]], np.float32)
    value, grads = jax.jit(jax.value_and_grad(short, argnums=(0, 1)))(image, text, 10.0)
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)
    # Of the captions together: they are one output of the tower.
    np.testing.assert_allclose(grads[0], np.zeros((2, 2)), atol=1e-6)
    np.testing.assert_allclose(grads[1].sum(axis=0), np.zeros(2), atol=1e-6)


@pytest.mark.parametrize(
    ("gradient", "width", "mappings"),
    [
        ("full", 20, ["jit 4x2", "shard_map 8x1", "pmap"]),
        ("full", 6, ["jit 4x2", "shard_map 4x2", "pmap"]),
        ("stop_basis", 20, ["shard_map 4x2"]),
        ("stop_basis", 6, ["pmap"]),
    ],
    ids=["gram", "covariance", "gram given", "covariance given"],
)
def test_devices_agree_with_one(in_mapping, gradient, width, mappings):
    def loss(trained, given, scale, axis_name):
        chosen = settings(0.1, pcm_dim=2, pcm_grad=gradient)
        return short(*trained, scale, chosen, axis_name=axis_name, same_pair=given[0])

    same_pair = np.arange(16, dtype=np.int32)
    same_pair[9] = 1
    arrays = reference.batch(1, 16, width), (same_pair,), 5
    alone = in_mapping("none", loss, *arrays)
    for mapping in mappings:
        got = in_mapping(mapping, loss, *arrays)
        chex.assert_trees_all_close(got, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mapping", ["shard_map 4x2", "pmap"])
def test_scope_device_is_of_the_own_rows(in_mapping, mapping):
    chosen = settings(pcm_dim=2, pcm_scope="device")

    def loss(trained, given, scale, axis_name):
        image, text = trained
        if axis_name is not None:
            return short(image, text, scale, chosen, axis_name=axis_name)
        parts = [longclip.principal_components(part, 2) for part in jnp.split(image, 8)]
        return short(jnp.concatenate(parts), text, scale, settings(pcm_dim=40))

    arrays = reference.batch(2, 40, 6), (), 5
    alone = in_mapping("none", loss, *arrays)
    got = in_mapping(mapping, loss, *arrays)
    chex.assert_trees_all_close(got, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mistake", [{"scope": "devices"}, {"gradient": "ful"}])
def test_mistakes_are_named(mistake):
    with pytest.raises(types.UserError, match=r"did you mean '(device|full)'"):
        longclip.principal_components(np.ones((4, 4), np.float32), 2, **mistake)
