"""FineLIP: aggregation, interaction and hinge against torch and loops, guards, ramp, devices."""

import functools

import chex
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.losses import finelip, terms
from tests.losses import reference

PAIRS, PATCHES, WORDS, WIDTH, KEPT = 8, 6, 7, 10, 3
SAME = np.array([0, 1, 2, 1, 4, 5, 0, 7], np.int32)
TOLERANCE = 1e-5


def settings(**method):
    return terms.Settings(groups.LossGroup(), groups.MethodGroup(**method))


def embeddings(pairs=PAIRS, seed=0):
    """Captions of up to 5 words, some of none; patches and words of norm 0.01 to 3."""
    rng = np.random.default_rng(seed)
    image, text = reference.batch(seed, pairs, WIDTH)
    lengths = np.arange(pairs) % (WORDS - 1)
    position = np.arange(WORDS)[None, :]
    norms = np.geomspace(0.01, 3, pairs)[:, None, None]
    patches, words = (
        (norms * (image[:, None, :] + 0.5 * rng.normal(size=(pairs, n, WIDTH)))).astype(np.float32)
        for n in (PATCHES, WORDS)
    )
    word_mask = (position >= 1) & (position <= lengths[:, None])
    return types.Embeddings(image, text, patches, words, word_mask)


@pytest.fixture(scope="module")
def parameters():
    """Those of init, moved so that none is 0 or 1."""
    sizes = terms.Sizes(WIDTH, PATCHES)
    made = finelip.init(jax.random.key(0), sizes, settings(finelip_tokens=KEPT))
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: np.asarray(x) + rng.normal(size=x.shape).astype(np.float32) * 0.3, made
    )


def term(parameters, rows, settings, **others):
    inputs = terms.Inputs({terms.PAIR: rows}, {}, 1.0, None, 0.0, parameters, settings, **others)
    return finelip.triplet_term(inputs)


def torch_term(parameters, rows, margin=0.2, gamma=0.0, same_pair=None, hardest=False):
    """The whole term in torch, float64, a caption at a time; returns value and gradients."""
    import torch
    import torch.nn.functional as layers

    def leaf(x):
        return torch.tensor(np.asarray(x), dtype=torch.float64, requires_grad=True)

    weights = jax.tree.map(leaf, parameters)
    image, text, patches, words = map(leaf, rows[:4])

    def aggregated(weights, tokens):
        norm = weights["norm"]
        normed = layers.layer_norm(tokens, (WIDTH,), norm["scale"], norm["bias"])
        hidden = layers.gelu(normed @ weights["fc_in"]["kernel"] + weights["fc_in"]["bias"])
        logits = hidden @ weights["fc_out"]["kernel"] + weights["fc_out"]["bias"]
        return torch.softmax(weights["scale"] * logits.T, dim=-1) @ tokens

    def unit(tokens):
        return tokens / tokens.norm(dim=-1, keepdim=True)

    pairs = len(image)
    scores = {}
    for j in range(pairs):
        end = 1 + int(rows.word_mask[j].sum())
        caption = torch.cat([aggregated(weights["text"], words[j, :end]), text[j : j + 1]])
        for i in range(pairs):
            picture = torch.cat([image[i : i + 1], aggregated(weights["image"], patches[i])])
            cosines = layers.leaky_relu(unit(caption) @ unit(picture).T, 0.1)
            scores[i, j] = cosines.max(dim=1)[0].mean() + cosines.max(dim=0)[0].mean()
    geometry = reference.geometry(rows.text)
    ids = np.arange(pairs) if same_pair is None else same_pair
    total = torch.zeros((), dtype=torch.float64)
    for i in range(pairs):
        others = [j for j in range(pairs) if ids[j] != ids[i]]
        row = [margin + gamma * geometry[i, j] + scores[i, j] - scores[i, i] for j in others]
        column = [margin + gamma * geometry[j, i] + scores[j, i] - scores[i, i] for j in others]
        for violations in (row, column):
            violations = torch.stack(violations).clamp(min=0)
            total = total + (violations.max() if hardest else violations.sum())
    total.backward()
    moved = jax.tree.map(lambda x: x.grad.numpy(), (weights, [image, text, patches, words]))
    return total.item(), moved


CASES = {
    "paper": {},
    "gamma and guard": {"gamma": 0.5, "same_pair": SAME},
    "hardest": {"hardest": True, "margin": 0.05},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_term_equals_torch(parameters, case):
    same_pair = case.get("same_pair")
    chosen = settings(**{f"finelip_{key}": case[key] for key in case if key != "same_pair"})
    rows = embeddings()

    def loss(parameters, given):
        rows_now = types.Embeddings(*given, rows.word_mask)
        return term(parameters, rows_now, chosen, same_pair=same_pair)

    value, grads = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(parameters, list(rows[:4]))
    wanted = torch_term(parameters, rows, **case)
    assert reference.relative_error(value, wanted[0]) < TOLERANCE
    for modality in ("image", "text"):
        # The softmax over tokens does not see what all of them have more.
        for tree in (grads, wanted[1]):
            assert np.max(np.abs(tree[0][modality]["fc_out"].pop("bias"))) < 1e-6
    for got, right in zip(jax.tree.leaves(grads), jax.tree.leaves(wanted[1]), strict=True):
        assert np.max(np.abs(right)) > 1e-3
        assert reference.relative_error(got, right) < TOLERANCE


def test_golden_of_scores():
    image = np.array([[[1, 0], [0, 1]], [[-1, 0], [-1, 0]]], np.float32)
    text = np.array([[[0.6, 0.8]], [[1, 0]]], np.float32)
    # Picture 0, caption 0: the word's best is .8, the patches have .6 and .8. Picture 1, caption 1:
    # -1 everywhere, a tenth of it by the leak, from both sides.
    wanted = [[0.8 + 0.7, 1 + 0.5], [-0.12, -0.2]]
    np.testing.assert_allclose(finelip.scores(image, text), wanted, rtol=1e-6)


def test_golden_of_the_hinge():
    scores = np.array([[1.0, 0.9, 0.5], [0.4, 1.1, 0.7], [0.85, 1.2, 1.0]], np.float32)
    index = np.arange(3)
    # Rows: .2 + .9 - 1; none; .2 + .85 - 1 and .2 + 1.2 - 1. Columns, against the diagonal below:
    # .2 + .85 - 1; .2 + 1.2 - 1.1 and .2 + .9 - 1.1 = 0; none.
    rows, columns = 0.1 + 0.05 + 0.4, 0.05 + 0.3
    value = functools.partial(finelip.triplet, scores, index=index)
    np.testing.assert_allclose(value(margin=0.2), rows + columns, rtol=1e-5)
    np.testing.assert_allclose(value(margin=0.2, hardest=True), rows + columns - 0.05, rtol=1e-5)
    # Of pairs 1 and 2, now one, the violations .4 and .3 go.
    guarded = value(margin=0.2, same_pair=np.array([0, 5, 5]))
    np.testing.assert_allclose(guarded, rows + columns - 0.7, rtol=1e-5)
    margin = np.zeros((3, 3), np.float32)
    margin[0, 2] = 0.8
    # What is left without margin: .2 of row 2, .1 of column 1; and 0.3 of either by the new one.
    np.testing.assert_allclose(value(margin=margin), 0.2 + 0.1 + 0.3 + 0.3, rtol=1e-5)


def test_hidden_tokens_change_nothing(parameters):
    rows = embeddings()
    shown = rows.word_mask.copy()
    shown[:, 0] = True
    noise = np.random.default_rng(5).normal(size=rows.words.shape).astype(np.float32)
    other = np.where(shown[:, :, None], rows.words, noise)

    @jax.jit
    @jax.grad
    def run(words):
        return jnp.sum(finelip.text_tokens_of(parameters, rows._replace(words=words))[:, :, 0])

    got = run(rows.words)
    chex.assert_trees_all_equal(got, run(other))
    np.testing.assert_array_equal(np.asarray(got)[~shown], 0)
    assert np.all(np.abs(np.asarray(got)[shown]).sum(axis=-1) > 0)


def test_global_tokens_stand_at_the_ends(parameters):
    rows = embeddings()
    image_tokens = jax.jit(finelip.image_tokens_of)(parameters, rows)
    text_tokens = jax.jit(finelip.text_tokens_of)(parameters, rows)
    chex.assert_shape((image_tokens, text_tokens), (PAIRS, KEPT + 1, WIDTH))
    np.testing.assert_allclose(image_tokens[:, 0], rows.image, rtol=1e-6)
    np.testing.assert_allclose(text_tokens[:, -1], rows.text, rtol=1e-6)
    norms = np.linalg.norm(np.concatenate([image_tokens, text_tokens]), axis=-1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-6)


def test_degenerate_input_is_finite(parameters):
    rows = embeddings()
    nothing = np.zeros_like(rows.word_mask)
    hidden = finelip.aggregate(parameters["text"], rows.words, nothing)
    np.testing.assert_array_equal(hidden, np.zeros_like(hidden))

    @jax.jit
    def run(given, same_pair):
        def loss(given):
            rows_now = types.Embeddings(*given, nothing)
            return term(parameters, rows_now, settings(), same_pair=same_pair)

        return jax.value_and_grad(loss)(given)

    zeros = [np.zeros_like(x) for x in rows[:4]]
    value, grads = run(zeros, np.arange(PAIRS, dtype=np.int32))
    np.testing.assert_allclose(value, 0.2 * 2 * PAIRS * (PAIRS - 1), rtol=1e-6)
    chex.assert_tree_all_finite(grads)
    # All pairs are one: no negatives.
    apart = run(list(rows[:4]), np.zeros(PAIRS, np.int32))
    chex.assert_trees_all_equal(apart, jax.tree.map(np.zeros_like, apart))


def test_margin_takes_no_gradient_and_geometry_replaces_the_texts(parameters):
    rows = embeddings()
    frozen = reference.unit(9, PAIRS, 4)
    chosen = settings(finelip_gamma=0.5)
    given = jax.jit(lambda geometry: term(parameters, rows, chosen, geometry=geometry))
    own, other = given(rows.text), given(frozen)
    np.testing.assert_allclose(own, term(parameters, rows, chosen), rtol=1e-6)
    assert abs(own - other) > 0.1
    np.testing.assert_array_equal(jax.grad(given)(frozen), np.zeros_like(frozen))


def test_init_is_that_of_torch():
    run = jax.jit(finelip.init, static_argnums=(1, 2))
    made = run(jax.random.key(0), terms.Sizes(512, 196), settings())
    assert made["image"]["fc_in"]["kernel"].shape == (512, 102)
    assert made["text"]["fc_out"]["kernel"].shape == (102, 39)
    for layer, inputs in (("fc_in", 512), ("fc_out", 102)):
        for leaf in jax.tree.leaves([made[tower][layer] for tower in ("image", "text")]):
            assert leaf.dtype == jnp.float32
            assert np.abs(leaf).max() <= inputs**-0.5
            np.testing.assert_allclose(np.std(leaf), (3 * inputs) ** -0.5, rtol=0.25)
    kernels = [made[tower]["fc_in"]["kernel"].ravel() for tower in ("image", "text")]
    assert abs(np.corrcoef(*kernels)[0, 1]) < 0.05
    assert made["image"]["scale"] == 1
    np.testing.assert_array_equal(made["text"]["norm"]["scale"], np.ones(512))
    large = jax.eval_shape(lambda: run(jax.random.key(0), terms.Sizes(768, 256), settings()))
    assert large["image"]["fc_out"]["bias"].shape == (51,)


def test_the_weight_rises_over_the_first_epochs():
    (only,) = finelip.TERMS
    rising = functools.partial(only.factor, settings(finelip_ramp_epochs=2.0))
    factors = [float(rising(jnp.float32(epoch))) for epoch in (0.0, 0.5, 2.0, 5.0)]
    assert factors == [0.0, 0.25, 1.0, 1.0]
    assert only.factor(settings(finelip_ramp_epochs=0.0), jnp.float32(0.0)) == 1
    assert only.weight(settings(finelip_weight=0.3)) == 0.3


def test_fusion_for_ranking():
    np.testing.assert_allclose(finelip.fused(np.array([0.5]), np.array([1.5])), [0.7])


@pytest.mark.parametrize("block", [1, 3, 50])
def test_blocks_change_nothing(block):
    tokens = reference.unit(1, 5, 4, WIDTH), reference.unit(2, PAIRS, 3, WIDTH)
    got = finelip.scores(*tokens, block=block)
    np.testing.assert_allclose(got, finelip.scores(*tokens), rtol=1e-6)


def test_blocks_bound_the_memory_of_the_gradient():
    rows = jax.ShapeDtypeStruct((64, 40, 8), jnp.float32)

    def temporaries(block):
        loss = jax.grad(lambda *tokens: jnp.sum(finelip.scores(*tokens, block)), argnums=(0, 1))
        return jax.jit(loss).lower(rows, rows).compile().memory_analysis().temp_size_in_bytes

    whole = 64 * 64 * 40 * 40 * 4
    assert temporaries(4) < whole / 3
    assert temporaries(64) > whole


@pytest.mark.parametrize(
    ("hardest", "mappings"),
    [(False, ["jit 4x2", "shard_map 4x2", "pmap"]), (True, ["shard_map 8x1", "pmap"])],
    ids=["all negatives", "hardest"],
)
def test_devices_agree_with_one(in_mapping, parameters, hardest, mappings):
    rows = embeddings(16)
    same_pair = np.arange(16, dtype=np.int32)
    same_pair[[9, 15]] = 1, 14
    flat, unravel = jax.flatten_util.ravel_pytree(parameters)
    chosen = settings(finelip_gamma=0.5, finelip_hardest=hardest)

    def loss(trained, given, flat, axis_name):
        word_mask, same_pair = given
        rows = types.Embeddings(*trained, word_mask)
        return term(unravel(flat), rows, chosen, axis_name=axis_name, same_pair=same_pair)

    arrays = tuple(rows[:4]), (rows.word_mask, same_pair), flat
    alone = in_mapping("none", loss, *arrays)
    for mapping in mappings:
        got = in_mapping(mapping, loss, *arrays)
        for one, right in zip(jax.tree.leaves(got), jax.tree.leaves(alone), strict=True):
            assert reference.relative_error(one, right) < 1e-5, mapping


def test_mistakes_are_named():
    with pytest.raises(types.UserError, match="at least 2 pairs"):
        finelip.triplet(np.ones((1, 1), np.float32), margin=0.2, index=np.arange(1))
    with pytest.raises(types.UserError, match="same model"):
        finelip.scores(np.ones((2, 3, 4), np.float32), np.ones((2, 3, 5), np.float32))
    with pytest.raises(types.UserError, match="only 4; give the number"):
        finelip.init(jax.random.key(0), terms.Sizes(8, 4), settings())
