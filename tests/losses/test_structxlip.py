"""StructXLIP: phrases, the three terms, their weights over epochs; against numpy, over devices."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.losses import structxlip, terms
from tests.losses import reference

PAIRS, PHRASES, MAPS, WIDTH = 8, 3, 2, 6
SAME = np.array([0, 1, 2, 1, 4, 5, 0, 7], np.int32)
HAS_EDGE = np.array([1, 1, 0, 1, 1, 1, 1, 1], bool)
# Picture 3 has no map, caption 5 no phrase.
HAS_LOCAL = np.array([[1, 1], [1, 0], [1, 1], [0, 0], [0, 1], [1, 1], [1, 1], [1, 0]], bool)
STOPS = np.array(
    [[4, 3, 1], [2, 2, 5], [1, 2, 3], [5, 6, 7], [3, 0, 9], [0, 1, 2], [2, 5, 1], [3] * 3]
)
SPANS = np.stack([np.tile([0, 1, 2], (PAIRS, 1)), STOPS], axis=2).astype(np.int32)
PHRASE_THERE = SPANS[:, :, 1] > SPANS[:, :, 0]
TERMS = {term.name: term for term in structxlip.TERMS}


def settings(**method):
    return terms.Settings(groups.LossGroup(), groups.MethodGroup(name="structxlip", **method))


def slow_pool(states, spans):
    """Returns phrases [B, K, W] and their weights [B, K, S], float64."""
    states = np.asarray(states, np.float64)
    weights = np.zeros((*spans.shape[:2], states.shape[1]))
    for b, k in np.ndindex(spans.shape[:2]):
        inside = range(spans[b, k, 0], min(spans[b, k, 1], states.shape[1]))
        powers = [np.exp(np.linalg.norm(states[b, t])) for t in inside]
        for t, power in zip(inside, powers, strict=True):
            weights[b, k, t] = power / sum(powers)
    return np.stack([w @ x for w, x in zip(weights, states, strict=True)]), weights


def test_golden_of_a_phrase():
    # Norms 0 and log 3: weights 1/4 and 3/4. The last state is outside.
    states = np.array([[[0, 0], [np.log(3), 0], [7, 7]]], np.float32)
    got = structxlip.pool_spans(states, np.array([[[0, 2], [2, 2], [2, 3]]], np.int32))
    np.testing.assert_allclose(got, [[[0.75 * np.log(3), 0], [0, 0], [7, 7]]], rtol=1e-6)


def test_phrases_equal_float64_and_their_weights_carry_no_gradient():
    states = 3 * reference.unit(0, PAIRS, 7, WIDTH)
    states *= np.linspace(0.2, 2, 7, dtype=np.float32)[None, :, None]
    wanted, weights = slow_pool(states, SPANS)
    upstream = reference.unit(1, *wanted.shape)

    def run(states):
        phrases = structxlip.pool_phrases(states, {"spans": SPANS})
        return jnp.sum(phrases * upstream), phrases

    grad, phrases = jax.grad(run, has_aux=True)(states)
    np.testing.assert_allclose(phrases, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(phrases)[~PHRASE_THERE], 0)
    d_states = np.einsum("bks,bkw->bsw", weights, upstream)
    np.testing.assert_allclose(grad, d_states, rtol=1e-5, atol=1e-6)


def test_states_of_zero_have_a_finite_gradient():
    states = np.zeros((PAIRS, 7, WIDTH), np.float32)
    grad = jax.grad(lambda x: jnp.sum(structxlip.pool_spans(x, SPANS)))(states)
    chex.assert_tree_all_finite(grad)


def test_large_bfloat16_states_are_pooled_in_float32():
    states = jnp.asarray(400 * reference.unit(2, PAIRS, 7, WIDTH), jnp.bfloat16)
    got = structxlip.pool_spans(states, SPANS)
    assert got.dtype == jnp.float32
    wanted, _ = slow_pool(np.asarray(states, np.float64), SPANS)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-2)


def test_golden_and_gradient_of_consistency():
    image = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    edge = np.array([[0.6, 0.8], [1, 0], [1, 0]], np.float32)
    has = np.array([True, False, True])
    value, grads = jax.value_and_grad(structxlip.consistency, argnums=(0, 1))(image, edge, has)
    np.testing.assert_allclose(value, (0.4 + 0.4) / 2, rtol=1e-6)
    keep = np.array([[0.5], [0], [0.5]], np.float32)
    chex.assert_trees_all_close(grads, (-edge * keep, -image * keep), rtol=1e-6)


def slow_local(spans, edges, scale, same_pair=None):
    """Returns the loss in float64; the masks are the module's."""
    k = min(scale / 0.07, 100.0)
    ids = np.arange(PAIRS) if same_pair is None else same_pair
    of_pictures = []
    for i in range(PAIRS):
        if not (PHRASE_THERE[i].any() and HAS_LOCAL[i].any()):
            continue
        of_phrases = []
        for phrase in spans[i][PHRASE_THERE[i]]:
            own, every = 0.0, 0.0
            for j, m in zip(*np.nonzero(HAS_LOCAL), strict=True):
                likeness = np.exp(k * (phrase @ edges[j, m] - 1))
                own += likeness if i == j else 0.0
                every += likeness if i == j or ids[i] != ids[j] else 0.0
            of_phrases.append(np.log(every) - np.log(own))
        of_pictures.append(np.mean(of_phrases))
    return np.mean(of_pictures)


def differences(loss, x, step=1e-5):
    """Returns the gradient of `loss` at `x`, by central differences."""
    grad = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        lower, upper = x.copy(), x.copy()
        lower[at], upper[at] = x[at] - step, x[at] + step
        grad[at] = (loss(upper) - loss(lower)) / (2 * step)
    return grad


def phrases_and_maps():
    spans = reference.unit(3, PAIRS, PHRASES, WIDTH)
    edges = spans[:, :MAPS] + 0.5 * reference.unit(4, PAIRS, MAPS, WIDTH)
    return spans, (edges / np.linalg.norm(edges, axis=-1, keepdims=True)).astype(np.float32)


def test_golden_of_local():
    spans = np.array([[[1, 0]], [[0, 1]]], np.float32)
    edges = np.array([[[1, 0]], [[0.6, 0.8]]], np.float32)
    there = np.ones((2, 1), bool)
    # k = 1. Phrase 0: cosines 1 (own), .6. Phrase 1: 0, .8 (own).
    wanted = (np.log1p(np.exp(-0.4)) + np.log1p(np.exp(-0.8))) / 2
    got = structxlip.local(spans, there, edges, there, 0.07)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("same_pair", [None, SAME], ids=["all", "guarded"])
@pytest.mark.parametrize("scale", [0.5, 14.0])
def test_local_equals_float64(scale, same_pair):
    spans, edges = phrases_and_maps()

    def loss(spans, edges, scale):
        return structxlip.local(
            spans, PHRASE_THERE, edges, HAS_LOCAL, scale, same_pair=same_pair, block_rows=3
        )

    exact = [np.asarray(x, np.float64) for x in (spans, edges, scale)]
    value, grads = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(
        spans, edges, jnp.float32(scale)
    )
    assert reference.relative_error(value, slow_local(*exact, same_pair)) < 1e-5
    for number, got in enumerate(grads[: 2 if scale == 14.0 else 3]):

        def of_one(x, number=number):
            return slow_local(*exact[:number], x, *exact[number + 1 :], same_pair)

        assert reference.relative_error(got, differences(of_one, exact[number])) < 1e-4
    if scale == 14.0:  # 14 / 0.07 is above 100
        assert grads[2] == 0


def test_guard_of_local_matters():
    spans, edges = phrases_and_maps()
    assert abs(slow_local(spans, edges, 0.5, SAME) - slow_local(spans, edges, 0.5)) > 1e-3


def test_a_local_loss_near_zero_keeps_its_digits():
    spans = np.eye(4, dtype=np.float32)[:, None]
    there = np.ones((4, 1), bool)
    got = structxlip.local(spans, there, spans, there, 0.07 * 40)
    assert reference.relative_error(got, np.log1p(3 * np.exp(-40.0))) < 1e-4


NOTHING = {
    "no phrase": (np.zeros_like(PHRASE_THERE), HAS_LOCAL),
    "no map": (PHRASE_THERE, np.zeros_like(HAS_LOCAL)),
    "one picture's maps": (PHRASE_THERE, HAS_LOCAL & (np.arange(PAIRS) == 6)[:, None]),
}


@pytest.mark.parametrize("there", NOTHING.values(), ids=NOTHING)
def test_nothing_to_compare_is_zero(there):
    spans, edges = phrases_and_maps()

    def loss(spans, edges, scale):
        return structxlip.local(spans, there[0], edges, there[1], scale)

    got = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(spans, edges, jnp.float32(0.5))
    chex.assert_trees_all_equal(got, jax.tree.map(np.zeros_like, got))


def trained():
    spans, local_edge = phrases_and_maps()
    edge, text = reference.batch(5, PAIRS, WIDTH)
    return reference.unit(6, PAIRS, WIDTH), edge, text, spans, local_edge


GIVEN = (HAS_EDGE, HAS_LOCAL, SPANS, SAME)


def loss_of(name, method=None):
    def loss(trained, given, scale, axis_name=None):
        image, edge, text, spans, local_edge = trained
        has_edge, has_local, positions, same_pair = given
        inputs = terms.Inputs(
            views={
                # Of the pair only the picture, and in one mode its phrases, may matter.
                terms.PAIR: types.Embeddings(image=image, spans=-spans),
                "edge": types.Embeddings(image=edge, text=text, spans=spans),
                "local_edge": types.Embeddings(image=local_edge),
            },
            arrays={"has_edge": has_edge, "has_local": has_local, "spans": positions},
            scale=scale,
            margin=None,  # the boost is the global term's alone
            gamma=0.5,
            parameters={},
            settings=method or settings(),
            axis_name=axis_name,
            same_pair=same_pair,
        )
        return TERMS[name].compute(inputs)

    return loss


def test_structure_term_is_info_nce_of_the_edge_maps_that_are_there():
    _, edge, text, *_ = trained()
    there = np.flatnonzero(HAS_EDGE)
    wanted, (d_edge, d_text, of_scale) = reference.contrastive(
        edge[there], text[there], 14.0, 0.0, SAME[there]
    )
    run = jax.jit(jax.value_and_grad(loss_of("structxlip_structure"), argnums=(0, 2)))
    value, ((_, *grads, _, _), scale_grad) = run(trained(), GIVEN, jnp.float32(14.0))
    assert reference.relative_error(value, wanted) < 2e-6
    assert scale_grad == 0
    assert abs(of_scale) > 1e-3
    for got, right in zip(grads, (d_edge, d_text), strict=True):
        assert reference.relative_error(np.asarray(got)[there], right) < 2e-6


def test_rgb_and_local_terms_take_what_is_theirs():
    image, edge, _, spans, local_edge = trained()
    rgb = loss_of("structxlip_rgb")(trained(), GIVEN, 14.0)
    np.testing.assert_array_equal(rgb, structxlip.consistency(image, edge, HAS_EDGE))
    own = functools.partial(loss_of, "structxlip_local")
    run = functools.partial(
        structxlip.local,
        span_valid=PHRASE_THERE,
        edges=local_edge,
        edge_valid=HAS_LOCAL,
        scale=0.5,
        same_pair=SAME,
    )
    as_released = own(settings(structxlip_mode="as_released"))
    np.testing.assert_array_equal(own()(trained(), GIVEN, 0.5), run(spans))
    np.testing.assert_array_equal(as_released(trained(), GIVEN, 0.5), run(-spans))


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("mapping", ["jit 4x2", "shard_map 8x1", "shard_map 4x2", "pmap"])
def test_devices_agree_with_one(in_mapping, mapping, name):
    arguments = loss_of(name), trained(), GIVEN, 0.5
    chex.assert_trees_all_close(
        in_mapping(mapping, *arguments), in_mapping("none", *arguments), rtol=1e-5, atol=1e-5
    )


FLOORS = {"structxlip_structure": 0.7, "structxlip_rgb": 0.5, "structxlip_local": 0.4}


@pytest.mark.parametrize("name", TERMS)
def test_weights_fall_by_epoch(name):
    floor, factor = FLOORS[name], TERMS[name].factor
    # Half a cosine over 7 epochs: (1 + cos(2 pi / 7)) / 2 at the start of epoch 3.
    wanted = {0: 1, 0.99: 1, 1: 1, 1.99: 1, 3: floor + (1 - floor) * 0.8117449, 8: floor, 20: floor}
    got = [factor(settings(), np.float32(epoch)) for epoch in wanted]
    np.testing.assert_allclose(got, list(wanted.values()), rtol=1e-6)
    assert factor(settings(), np.float32(4.9)) == factor(settings(), np.float32(4.0))
    rounded = np.nextafter(np.float32(5), np.float32(0))  # a step over the steps of an epoch
    assert factor(settings(), rounded) == factor(settings(), np.float32(5))
    assert factor(settings(structxlip_decay=False), np.float32(8)) == 1


def test_rows_of_the_table():
    given = settings(
        structxlip_structure_weight=3, structxlip_rgb_weight=5, structxlip_local_weight=7
    )
    assert [term.weight(given) for term in structxlip.TERMS] == [3, 5, 7]
    assert [term.weight(settings()) for term in structxlip.TERMS] == [0.25, 0.001, 0.001]
    assert {term.inputs for term in structxlip.TERMS} == {("structure",)}
    views = {name for term in structxlip.TERMS for name in term.views}
    assert {*views, terms.PAIR} == set(structxlip.VIEWS)
    assert structxlip.VIEWS["edge"][:2] == ("edge", "structure_tokens")
    assert structxlip.VIEWS["local_edge"] == terms.View("local_edge")
