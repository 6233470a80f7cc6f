"""HN-NCE, HCL, VSE++ and NegCLIP: by hand, against float64, limits, edges, over devices."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import losses, types
from hnclip_jax.losses import hard_negatives
from tests.losses import baseline_reference as slow
from tests.losses import reference

PAIRS, WIDTH = 5, 4
TOLERANCE = {5.0: 2e-6, 100.0: 5e-5}  # as in test_contrastive.py: s times the rounding of a cosine
SAME = np.array([3, 0, 3, 1, 2], np.int32)
THERE = np.array([True, False, True, True, False])
WRONG = reference.unit(30, PAIRS, WIDTH)


def case(name, **settings):
    return (
        functools.partial(getattr(hard_negatives, name), **settings),
        functools.partial(getattr(slow, name), **settings),
    )


# By name: the loss with its settings, and the same of the float64 reference.
CASES = {
    "hn_nce": case("hn_nce", alpha=0.7, beta=0.5),
    "hn_nce decoupled": case("hn_nce", alpha=0.0, beta=0.25),
    "hn_nce detached": case("hn_nce", alpha=1.0, beta=0.5, detach=True),
    "hcl": case("hcl", beta=1.0, prior=0.0),
    "hcl corrected": case("hcl", beta=0.5, prior=0.1),
    "dcl": case("hcl", beta=0.0, prior=0.3),
    "vse": case("vse", margin=0.2),
    "vse of all": case("vse", margin=0.2, hardest=False),
}

# exp(S) of three pairs: positives 4, 3, 1.
RATIOS = np.array([[4, 1, 2], [3, 3, 1], [2, 2, 1]], np.float32)


def with_scores(scores):
    """Returns image and text with these products; they are not of unit norm."""
    return np.eye(len(scores), dtype=np.float32), np.asarray(scores, np.float32).T


def value_and_grads(loss, image, text, scale):
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(image, text, jnp.float32(scale))


def negclip(image, text, scale, **settings):
    settings = {"negative_text": WRONG, "has_negative": THERE, **settings}
    return hard_negatives.negclip(image, text, scale, **settings)


def test_golden_hn_nce():
    # The two negatives e, f of a query count 2 (e^2 + f^2) / (e + f) at beta 1.
    # Rows: (1, 2), (3, 1), (2, 2); columns: (3, 2), (1, 2), (2, 1).
    rest = np.array([10 / 3, 5, 4, 26 / 5, 10 / 3, 10 / 3])
    positive = np.array([4, 3, 1, 4, 3, 1])
    pair = with_scores(np.log(RATIOS))
    for alpha in (0.0, 1.0, 2.0):
        got = hard_negatives.hn_nce(*pair, 1.0, alpha=alpha, beta=1.0)
        np.testing.assert_allclose(got, np.mean(np.log(alpha + rest / positive)), rtol=1e-6)


def test_golden_hcl():
    pair = with_scores(np.log(RATIOS))
    # As above, then 2 prior times the positive is taken away and (1 - prior) divides.
    tenth = (
        np.array([4 - 4 / 6 - 0.8, 5 - 0.6, 4 - 0.2, 5.2 - 0.8, 10 / 3 - 0.6, 10 / 3 - 0.2]) / 0.9
    )
    # With half of them false the first and the fifth are below the least value, 2 / e.
    half = np.array([2 / np.e, 4, 6, 2.4, 2 / np.e, 14 / 3])
    positive = np.array([4, 3, 1, 4, 3, 1])
    for prior, rest in ((0.1, tenth), (0.5, half)):
        got = hard_negatives.hcl(*pair, 1.0, beta=1.0, prior=prior)
        np.testing.assert_allclose(got, np.mean(np.log1p(rest / positive)), rtol=1e-6)


def test_golden_vse():
    pair = with_scores([[0.5, 0.4, 0.6], [0.1, 0.7, 0.2], [0.25, 0.65, 0.2]])
    # Rows: .1 and .3; none; .25 and .65. Columns: none; .15; .6 and .2. The scale plays no part.
    hardest, every = (0.3 + 0.65 + 0.15 + 0.6) / 3, (0.4 + 0.9 + 0.15 + 0.8) / 3
    got = [hard_negatives.vse(*pair, 9.0, margin=0.2, hardest=x) for x in (True, False)]
    np.testing.assert_allclose(got, [hardest, every], rtol=1e-6)


def test_golden_negclip():
    image = np.array([[1, 0], [0, 1]], np.float32)
    text = np.array([[1, 0], [0.6, 0.8]], np.float32)
    wrong = np.array([[0.8, 0.6], [0, 1]], np.float32)
    got = negclip(image, text, 1.0, negative_text=wrong, has_negative=np.array([True, False]))
    # S = [[1, .6], [0, .8]]; the one wrong caption is at .8 and .6 to the two pictures.
    rows = np.log(1 + np.exp(-0.4) + np.exp(-0.2)) + np.log(1 + np.exp(-0.8) + np.exp(-0.2))
    columns = np.log(1 + np.exp(-1)) + np.log(1 + np.exp(-0.2))
    np.testing.assert_allclose(got, (rows + columns) / 4, rtol=1e-6)


@pytest.mark.parametrize("same_pair", [None, SAME], ids=["all", "guarded"])
@pytest.mark.parametrize("scale", [5.0, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_equal_float64(name, scale, same_pair):
    image, text = reference.batch(0, PAIRS, WIDTH)
    loss, plain = CASES[name]
    wanted = functools.partial(plain, ids=same_pair)
    value, (d_image, d_text, d_scale) = value_and_grads(
        functools.partial(loss, same_pair=same_pair), image, text, scale
    )
    right = slow.gradients(wanted, image, text, scale)
    assert (
        reference.relative_error(value, slow.exact(wanted, image, text, scale)) < TOLERANCE[scale]
    )
    assert reference.relative_error(d_image, right[0]) < TOLERANCE[scale]
    assert reference.relative_error(d_text, right[1]) < TOLERANCE[scale]
    if "vse" in name:
        assert d_scale == 0
    else:
        assert reference.relative_error(d_scale, right[2]) < TOLERANCE[scale]


@pytest.mark.parametrize("same_pair", [None, SAME], ids=["all", "guarded"])
@pytest.mark.parametrize("scale", [5.0, 100.0])
def test_negclip_equals_float64(scale, same_pair):
    image, text = reference.batch(1, PAIRS, WIDTH)
    wanted = functools.partial(slow.negclip, there=THERE, ids=same_pair)

    @jax.jit
    def run(*arrays):
        def loss(image, text, scale, wrong):
            return negclip(image, text, scale, negative_text=wrong, same_pair=same_pair)

        return jax.value_and_grad(loss, argnums=(0, 1, 2, 3))(*arrays)

    arrays = (image, text, jnp.float32(scale), WRONG)
    value, grads = run(*arrays)
    assert reference.relative_error(value, slow.exact(wanted, *arrays)) < TOLERANCE[scale]
    for got, right in zip(grads, slow.gradients(wanted, *arrays), strict=True):
        assert reference.relative_error(got, right) < TOLERANCE[scale]
    np.testing.assert_array_equal(grads[3][~THERE], 0)


@pytest.mark.parametrize("same_pair", [None, SAME], ids=["all", "guarded"])
@pytest.mark.parametrize(
    "loss",
    [
        functools.partial(hard_negatives.hn_nce, alpha=1.0, beta=0.0),
        functools.partial(hard_negatives.hcl, beta=0.0, prior=0.0),
        functools.partial(negclip, has_negative=np.zeros(PAIRS, bool)),
    ],
    ids=["hn_nce", "hcl", "negclip"],
)
def test_without_its_part_it_is_info_nce(loss, same_pair):
    image, text = reference.batch(2, PAIRS, WIDTH)
    loss, plain = (functools.partial(f, same_pair=same_pair) for f in (loss, losses.info_nce))
    chex.assert_trees_all_close(
        value_and_grads(loss, image, text, 20.0),
        value_and_grads(plain, image, text, 20.0),
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_wrong_caption_that_is_not_there_does_not_matter():
    image, text = reference.batch(3, PAIRS, WIDTH)
    other = np.where(THERE[:, None], WRONG, np.float32(7))
    np.testing.assert_array_equal(
        negclip(image, text, 14.0), negclip(image, text, 14.0, negative_text=other)
    )


def test_a_wrong_caption_is_wrong_for_its_own_picture_and_for_equal_ids():
    image, text = reference.batch(4, PAIRS, WIDTH)
    one = np.arange(PAIRS) == 2
    loss = functools.partial(negclip, has_negative=one, same_pair=np.zeros(PAIRS, np.int32))
    # No real negative is left: each picture has two captions to choose from.
    gaps = image @ WRONG[2] - np.sum(image * text, axis=1)
    np.testing.assert_allclose(
        loss(image, text, 5.0), np.mean(np.log1p(np.exp(5 * gaps))) / 2, rtol=1e-5
    )


def test_hn_nce_weights_are_those_of_the_query():
    """Code in circulation divides by the sums of another row, which only equal sums would hide."""
    scores = np.log(RATIOS)
    scores[0] -= 3
    low = np.exp(-3)
    # Positive and negatives: the rows as before, as weights are ratios, then the columns.
    queries = [(4, (1, 2)), (3, (3, 1)), (1, (2, 2))]
    queries += [(4 * low, (3, 2)), (3, (low, 2)), (1, (2 * low, 1))]
    wanted = np.mean([np.log1p(2 * np.sum(np.square(x)) / np.sum(x) / p) for p, x in queries])
    got = hard_negatives.hn_nce(*with_scores(scores), 1.0, beta=1.0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("prior", [0.0, 0.1, 0.9])
def test_hcl_at_its_least_value_is_finite(prior):
    """Positives at 1, negatives at -1: e^200 apart at s = 100, a correction far below 0."""
    image = np.array([[1, 0], [-1, 0]], np.float32)
    loss = functools.partial(hard_negatives.hcl, beta=1.0, prior=prior)
    value, (d_image, _, d_scale) = value_and_grads(loss, image, image, 100.0)
    chex.assert_tree_all_finite((value, d_image, d_scale))
    np.testing.assert_allclose(value, 0, atol=1e-30)
    reverse, grads = value_and_grads(loss, image, -image, 100.0)
    np.testing.assert_allclose(reverse, 200 - np.log(1 - prior), rtol=1e-5)
    chex.assert_tree_all_finite(grads)


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_equal_embeddings_are_finite(name, scale):
    same = np.tile(np.array([[0.6, 0.8]], np.float32), (4, 1))
    value, grads = value_and_grads(CASES[name][0], same, same, scale)
    chex.assert_tree_all_finite(grads)
    wanted = slow.exact(CASES[name][1], same, same, scale)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_without_negatives_it_is_exactly_zero(name):
    image, text = reference.batch(5, PAIRS, WIDTH)
    loss = functools.partial(CASES[name][0], same_pair=np.zeros(PAIRS, np.int32))
    got = value_and_grads(loss, image, text, 100.0)
    chex.assert_trees_all_equal(got, jax.tree.map(np.zeros_like, got))


@pytest.mark.parametrize("name", CASES)
def test_bfloat16_input_gives_a_float32_loss(name):
    image, text = (jnp.asarray(x, jnp.bfloat16) for x in reference.batch(6, PAIRS, WIDTH))
    value = CASES[name][0](image, text, 14.0)
    assert value.dtype == jnp.float32
    exact = CASES[name][0](image.astype(jnp.float32), text.astype(jnp.float32), 14.0)
    np.testing.assert_array_equal(value, exact)


def all_cases(trained, given, scale, axis_name):
    """All losses in one program, since compiling each of them is slow."""
    image, text, wrong = trained
    shared = {"axis_name": axis_name, "same_pair": given[0]}
    total = 1.1 * negclip(image, text, scale, negative_text=wrong, has_negative=given[1], **shared)
    for number, (loss, _) in enumerate(CASES.values()):
        total += (1.3 + 0.2 * number) * loss(image, text, scale, **shared)
    return total


@pytest.fixture(scope="module")
def sixteen():
    """Trained arrays, given arrays and scale; equal ids lie on one device and on different ones."""
    same_pair = np.array([0, 1, 2, 3, 4, 4, 6, 0, 8, 9, 10, 11, 12, 13, 13, 2], np.int32)
    there = np.arange(16) % 3 != 1
    trained = (*reference.batch(7, 16, 12), reference.unit(9, 16, 12))
    return trained, (same_pair, there), 14


@pytest.fixture(scope="module")
def alone(in_mapping, sixteen):
    return in_mapping("none", all_cases, *sixteen)


@pytest.mark.parametrize("mapping", ["jit 4x2", "shard_map 8x1", "shard_map 4x2", "pmap"])
def test_devices_agree_with_one(in_mapping, sixteen, alone, mapping):
    got = in_mapping(mapping, all_cases, *sixteen)
    chex.assert_trees_all_close(got, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_one_is_refused(name):
    with pytest.raises(types.UserError, match="at least 2 pairs"):
        CASES[name][0](np.ones((1, 4)), np.ones((1, 4)), 1.0)


@pytest.mark.parametrize("prior", [-0.1, 1.0])
def test_a_prior_that_is_no_share_is_named(prior):
    with pytest.raises(types.UserError, match="prior of hcl"):
        hard_negatives.hcl(np.eye(2), np.eye(2), 1.0, prior=prior)


@pytest.mark.parametrize(
    "wrong",
    [{"negative_text": np.ones((4, 4))}, {"has_negative": np.ones(4, bool)}],
    ids=["text", "mask"],
)
def test_wrong_captions_that_do_not_fit_are_named(wrong):
    with pytest.raises(types.UserError, match="give each pair one row"):
        negclip(*reference.batch(8, PAIRS, WIDTH), 1.0, **wrong)
