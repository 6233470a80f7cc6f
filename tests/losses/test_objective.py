"""From config groups to terms, total and margin."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import groups, losses, types
from hnclip_jax.losses import contrastive, kinds, margins, objective
from tests.losses import reference

PAIRS, WIDTH, SCALE = 8, 6, 14.0
SAME = np.array([0, 1, 2, 1, 4, 5, 6, 7], np.int32)


class Made:
    """An objective that is called with the pair's embeddings, as most tests here have no others."""

    def __init__(self, loss, **method):
        self.inner = objective.build(loss, groups.MethodGroup("clip", **method), 10)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __call__(self, embeddings, scale, *, same_pair=None, **more):
        arrays = {} if same_pair is None else {"pair_id": same_pair}
        return self.inner({"pair": embeddings}, scale, arrays=arrays, **more)


build = Made


@pytest.fixture
def embeddings():
    image, text = reference.batch(0, PAIRS, WIDTH)
    words, patches = reference.unit(1, PAIRS, 4, WIDTH), reference.unit(2, PAIRS, 3, WIDTH)
    return types.Embeddings(image, text, patches, words, np.ones((PAIRS, 4), bool))


def test_total_is_the_weighted_sum_of_the_named_terms(embeddings):
    made = build(groups.LossGroup(token_weight=0.25))
    total, terms = made(embeddings, SCALE, step=0, same_pair=SAME)
    image, text, patches, words, word_mask, *_ = embeddings
    wanted = {
        "global": losses.hn_clip(image, text, SCALE, 0.5, same_pair=SAME),
        "token": losses.token_interaction(patches, words, word_mask, SCALE, same_pair=SAME),
    }
    chex.assert_trees_all_equal(terms, wanted)
    np.testing.assert_allclose(total, wanted["global"] + 0.25 * wanted["token"], rtol=1e-6)


def test_without_weight_there_is_no_token_term(embeddings):
    made = build(groups.LossGroup())
    total, terms = made(types.Embeddings(embeddings.image, embeddings.text), SCALE, step=0)
    assert not made.needs_tokens
    assert terms == {"global": total}
    assert build(groups.LossGroup(token_weight=1.0)).needs_tokens


def test_kinds_are_the_margins_they_name(embeddings):
    frozen, key = reference.unit(3, PAIRS, WIDTH), jax.random.key(0)
    wanted = {
        "row_centred": functools.partial(margins.row_centred, gamma=0.5),
        "arcface": functools.partial(margins.arcface, margin=0.1),
        "info_nce": margins.none,
        "hn_clip": functools.partial(margins.hn, gamma=0.5),
        "constant": functools.partial(margins.constant, gamma=0.5),
        "centred": functools.partial(margins.centred, gamma=0.5),
        "row_shuffled": functools.partial(margins.row_shuffled, gamma=0.5, key=key),
        "frozen": functools.partial(margins.hn, gamma=0.5),
    }
    seen = set()
    for kind, margin in wanted.items():
        made = build(groups.LossGroup(kind=kind))
        total, _ = made(embeddings, SCALE, step=0, key=key, geometry=frozen)
        geometry = frozen if kind == "frozen" else None
        direct = contrastive.shifted_info_nce(
            embeddings.image, embeddings.text, SCALE, margin, geometry=geometry
        )
        np.testing.assert_array_equal(total, direct, err_msg=kind)
        assert made.needs_frozen_text == (kind == "frozen")
        seen.add(float(total))
    assert len(seen) == len(wanted)


def test_every_kind_of_the_config_is_known():
    field = {field.name: field for field in dataclasses.fields(groups.LossGroup)}["kind"]
    for kind in field.metadata["choices"]:
        kinds.margin_at(groups.LossGroup(kind=kind), 0, jax.random.key(0))


@pytest.mark.parametrize(
    ("start", "ramp", "step", "gamma"),
    [
        (0, 0, 0, 0.5),
        (100, 0, 99, 0.0),
        (100, 0, 100, 0.5),
        (100, 200, 0, 0.0),
        (100, 200, 100, 0.0),
        (100, 200, 150, 0.125),
        (100, 200, 300, 0.5),
        (100, 200, 10_000, 0.5),
    ],
)
def test_gamma_follows_its_schedule(start, ramp, step, gamma):
    loss = groups.LossGroup(gamma=0.5, gamma_start_step=start, gamma_ramp_steps=ramp)
    got = jax.jit(functools.partial(kinds.gamma_at, loss))(jnp.int32(step))
    assert got.dtype == jnp.float32
    np.testing.assert_array_equal(got, np.float32(gamma))
    np.testing.assert_array_equal(kinds.gamma_at(loss, step), got)


def test_schedule_reaches_the_loss(embeddings):
    made = build(groups.LossGroup(gamma=0.5, gamma_start_step=10, gamma_ramp_steps=4))
    run = jax.jit(lambda step: made(embeddings, SCALE, step=step)[0])
    for step, gamma in ((0, 0.0), (11, 0.125), (20, 0.5)):
        wanted = losses.hn_clip(embeddings.image, embeddings.text, SCALE, gamma)
        np.testing.assert_allclose(run(step), wanted, rtol=1e-6)


def test_schedule_scales_a_given_constant_margin(embeddings):
    made = build(
        groups.LossGroup(kind="constant", gamma=0.0, constant_margin=0.4, gamma_ramp_steps=4)
    )
    for step, margin in ((0, 0.0), (2, 0.2), (9, 0.4)):
        wanted = contrastive.shifted_info_nce(
            embeddings.image,
            embeddings.text,
            SCALE,
            functools.partial(margins.constant, margin=margin),
        )
        np.testing.assert_allclose(made(embeddings, SCALE, step=step)[0], wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "products"),
    [
        (groups.LossGroup(gamma=0.5), 2),
        (groups.LossGroup(gamma=0.0), 1),
        (groups.LossGroup(kind="info_nce"), 1),
        (groups.LossGroup(kind="constant"), 1),
        (groups.LossGroup(kind="row_shuffled", gamma=0.0), 1),
        (groups.LossGroup(kind="frozen", gamma=0.0), 1),
    ],
    ids=["boosted", "gamma 0", "info_nce", "constant", "shuffled 0", "frozen 0"],
)
def test_geometry_is_computed_only_where_it_is_used(embeddings, loss, products):
    def run(embeddings):
        return build(loss)(embeddings, SCALE, step=0)[0]

    assert str(jax.make_jaxpr(run)(embeddings)).count("dot_general") == products


def test_guard_can_be_switched_off(embeddings):
    plain, _ = build(groups.LossGroup())(embeddings, SCALE, step=0)
    guarded, _ = build(groups.LossGroup())(embeddings, SCALE, step=0, same_pair=SAME)
    off, _ = build(groups.LossGroup(guard_same_pair=False))(
        embeddings, SCALE, step=0, same_pair=SAME
    )
    assert plain == off
    assert plain != guarded


def test_block_rows_reach_the_loss(embeddings):
    def run(loss):
        return lambda: build(loss)(embeddings, SCALE, step=0)[0]

    blocked, whole = run(groups.LossGroup(block_rows=3)), run(groups.LossGroup())
    np.testing.assert_allclose(blocked(), whole(), rtol=1e-6)
    assert "scan" in str(jax.make_jaxpr(blocked)())
    assert "scan" not in str(jax.make_jaxpr(whole)())


def test_measure_uses_the_margin_and_the_guard(embeddings):
    made = build(groups.LossGroup())
    got = made.measure(embeddings, SCALE, step=0, same_pair=SAME)
    wanted = losses.measure(
        embeddings.image,
        embeddings.text,
        SCALE,
        functools.partial(margins.hn, gamma=0.5),
        same_pair=SAME,
    )
    chex.assert_trees_all_close(got, wanted, rtol=1e-6)


def test_unknown_method_names_the_nearest():
    with pytest.raises(types.UserError, match="did you mean 'clip'"):
        objective.build(groups.LossGroup(), groups.MethodGroup("clpi"))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (groups.LossGroup(token_weight=1.0), "patches"),
        (groups.LossGroup(kind="row_shuffled"), "key"),
        (groups.LossGroup(kind="frozen"), "geometry"),
    ],
    ids=["tokens", "key", "geometry"],
)
def test_what_is_missing_is_named(embeddings, loss, message):
    image_and_text = types.Embeddings(embeddings.image, embeddings.text)
    with pytest.raises(types.UserError, match=message):
        build(loss)(image_and_text, SCALE, step=0)
