"""From config groups to terms, total and margin."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import groups, losses, types
from hnclip_jax.losses import (
    baselines,
    contrastive,
    hard_negatives,
    kinds,
    margins,
    objective,
    terms,
)
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


def test_every_kind_of_the_config_is_a_row_of_the_table():
    field = {field.name: field for field in dataclasses.fields(groups.LossGroup)}["kind"]
    assert set(field.metadata["choices"]) == set(kinds.KINDS)


BASELINES = {
    "siglip": functools.partial(baselines.siglip, bias=-3.0),
    "siglip_hn": functools.partial(
        baselines.siglip, bias=-3.0, margin=functools.partial(margins.hn, gamma=0.5)
    ),
    "hn_nce": functools.partial(hard_negatives.hn_nce, alpha=0.9, beta=0.4, detach=True),
    "hcl": functools.partial(hard_negatives.hcl, beta=0.7, prior=0.05),
    "vse": functools.partial(hard_negatives.vse, margin=0.3),
    "cyclip": functools.partial(baselines.cyclip, cross=0.3, within=0.6),
    "soft_targets": functools.partial(baselines.soft_targets, share=0.3, temperature=0.2),
    "negclip": functools.partial(
        hard_negatives.negclip,
        negative_text=reference.unit(9, PAIRS, WIDTH),
        has_negative=np.arange(PAIRS) % 3 > 0,
    ),
}


@pytest.mark.parametrize("kind", BASELINES)
def test_a_baseline_is_given_its_settings(embeddings, kind):
    loss = groups.LossGroup(
        kind=kind,
        siglip_bias=-3.0,
        hn_nce_alpha=0.9,
        hn_nce_beta=0.4,
        hn_nce_detach=True,
        hcl_beta=0.7,
        hcl_prior=0.05,
        vse_margin=0.3,
        cyclip_cross=0.3,
        cyclip_within=0.6,
        soft_share=0.3,
        soft_temperature=0.2,
    )
    made = objective.build(loss, groups.MethodGroup())
    wrong = types.Embeddings(text=reference.unit(9, PAIRS, WIDTH))
    views = {"pair": embeddings, "negatives": wrong}
    arrays = {"pair_id": SAME, "has_negative": np.arange(PAIRS) % 3 > 0}
    parameters = made.init(jax.random.key(0), terms.Sizes(WIDTH, 9))
    total, _ = made(views, SCALE, step=0, arrays=arrays, parameters=parameters)
    wanted = BASELINES[kind](embeddings.image, embeddings.text, SCALE, same_pair=SAME)
    np.testing.assert_allclose(total, wanted, rtol=1e-6)
    assert bool(parameters) == kind.startswith("siglip")
    assert made.inputs == (("negatives",) if kind == "negclip" else ())
    assert not made.compares_with_info_nce


@pytest.mark.parametrize(("kind", "plain"), [("hn_clip", "info_nce"), ("siglip_hn", "siglip")])
def test_without_gamma_a_kind_is_its_plain_one(kind, plain):
    assert kinds.kind_of(groups.LossGroup(kind=kind, gamma=0.0)) is kinds.KINDS[plain]
    assert kinds.kind_of(groups.LossGroup(kind=kind)) is kinds.KINDS[kind]
    by_epoch = groups.LossGroup(kind=kind, gamma=0.0, gamma_by_epoch=(0.0, 0.25))
    assert kinds.kind_of(by_epoch) is kinds.KINDS[kind]
    never = groups.LossGroup(kind=kind, gamma=0.5, gamma_by_epoch=(0.0,))
    assert kinds.kind_of(never) is kinds.KINDS[plain]


@pytest.mark.parametrize(
    ("step", "gamma"), [(0, 0.0), (9, 0.0), (10, 0.25), (19, 0.25), (20, 0.5), (990, 0.5)]
)
def test_gamma_may_go_by_epochs(step, gamma):
    loss = groups.LossGroup(gamma=7.0, gamma_by_epoch=(0.0, 0.25, 0.5))
    found = jax.jit(lambda step: kinds.gamma_at(loss, step, 10))(jnp.int32(step))
    np.testing.assert_array_equal(found, np.float32(gamma))
    with pytest.raises(types.UserError, match="steps per epoch"):
        kinds.gamma_at(loss, step)


def test_smoothing_reaches_the_global_loss(embeddings):
    made = build(groups.LossGroup(kind="info_nce", label_smoothing=0.1))
    wanted = contrastive.shifted_info_nce(
        embeddings.image, embeddings.text, SCALE, margins.none, smoothing=0.1
    )
    np.testing.assert_array_equal(made(embeddings, SCALE, step=0)[0], wanted)
    assert not made.compares_with_info_nce


def test_a_method_s_terms_go_by_their_weights():
    def names(method, **loss):
        return [term.name for term, _ in objective.build(groups.LossGroup(**loss), method).terms]

    goal = groups.MethodGroup("goal", goal_image_weight=0.0)
    assert names(goal) == ["global", "goal_local", "goal_text"]
    bare = groups.MethodGroup(
        "goal", goal_local_weight=0.0, goal_image_weight=0.0, goal_text_weight=0.0
    )
    made = objective.build(groups.LossGroup(), bare)
    # Without its terms a method needs neither its data nor its views.
    assert (made.inputs, list(made.views)) == ((), ["pair"])
    assert made.views["pair"].pool_patches is None
    released = groups.MethodGroup("finelip", global_weight=0.0)
    assert names(released, token_weight=1.0) == ["triplet", "token"]
    with pytest.raises(types.UserError, match="no term left"):
        objective.build(groups.LossGroup(), groups.MethodGroup("clip", global_weight=0.0))


def test_weights_that_go_by_epochs_need_their_length(embeddings):
    made = objective.build(groups.LossGroup(), groups.MethodGroup("finelip"))
    parameters = made.init(jax.random.key(0), terms.Sizes(WIDTH, 25))
    with pytest.raises(types.UserError, match="steps_per_epoch"):
        made({"pair": embeddings}, SCALE, step=0, parameters=parameters)


def test_a_view_that_is_missing_is_named(embeddings):
    made = objective.build(groups.LossGroup(), groups.MethodGroup("longclip"))
    with pytest.raises(types.UserError, match="looks at short, but was given embeddings of pair"):
        made({"pair": embeddings}, SCALE, step=0)


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
