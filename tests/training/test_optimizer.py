"""Optimiser: schedule, what decays, what trains, and AdamW against a plain numpy version."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hnclip_jax import config, types
from hnclip_jax.models import dual_encoder, presets
from hnclip_jax.training import optimizer


def _rates(optim, total):
    schedule = optimizer.schedule(optim, total)
    return [float(schedule(step)) for step in range(total + 1)]


def test_warm_up_then_half_a_cosine():
    rates = _rates(config.OptimGroup(lr=2.0, warmup_steps=4), 12)
    np.testing.assert_allclose(rates[:5], [0.5, 1.0, 1.5, 2.0, 2.0], rtol=1e-6)
    expected = [1 + np.cos(np.pi * k / 8) for k in range(9)]
    np.testing.assert_allclose(rates[4:], expected, rtol=1e-5, atol=1e-6)


def test_constant_rate_and_a_cosine_that_ends_above_zero():
    assert _rates(config.OptimGroup(lr=3.0, schedule="constant"), 5) == [3.0] * 6
    np.testing.assert_allclose(_rates(config.OptimGroup(lr=3.0, end_lr_fraction=0.1), 5)[-1], 0.3)


def test_one_step_of_warm_up():
    np.testing.assert_allclose(_rates(config.OptimGroup(lr=1.0, warmup_steps=1), 4)[:2], [1.0, 1.0])


def test_a_warm_up_as_long_as_the_run_is_an_error():
    with pytest.raises(types.UserError, match="warmup_steps"):
        optimizer.schedule(config.OptimGroup(warmup_steps=5), 5)


@pytest.mark.parametrize("scan", [True, False], ids=["scan", "unrolled"])
def test_norms_and_biases_never_decay_stacked_or_not(scan):
    params = dual_encoder.create(presets.get("tiny"), scan_layers=scan).abstract_params()
    labels = optimizer.labels(config.OptimGroup(), params)
    for (path, label), leaf in zip(
        jax.tree_util.tree_leaves_with_path(labels), jax.tree.leaves(params), strict=True
    ):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        per_layer = leaf.ndim - (scan and "/blocks/" in name)
        if name == "logit_scale":
            assert label == "logit_scale"
        else:
            assert label == ("decayed" if per_layer == 2 else "plain"), name


def test_a_parameter_without_a_rule_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="image/novel"):
        optimizer.decays("image/novel")


def _params():
    return {
        "image": {"proj": jnp.array([[1.0, -2.0], [0.5, 4.0]])},
        "text": {"ln_final": {"scale": jnp.array([1.0, 3.0])}},
        "logit_scale": jnp.array(2.0),
    }


def _adamw(value, gradients, rates, *, decay, b1=0.9, b2=0.999, eps=1e-8):
    """AdamW as in the paper (arXiv 1711.05101, algorithm 2), in float64."""
    value = np.asarray(value, np.float64)
    first, second = np.zeros_like(value), np.zeros_like(value)
    for count, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        first = b1 * first + (1 - b1) * gradient
        second = b2 * second + (1 - b2) * gradient**2
        move = first / (1 - b1**count) / (np.sqrt(second / (1 - b2**count)) + eps)
        value = value - rate * (move + decay * value)
    return value


def test_three_steps_equal_adamw_in_numpy():
    optim = config.OptimGroup(lr=0.1, weight_decay=0.2, logit_scale_rate=10.0, schedule="constant")
    params = _params()
    update = optimizer.build(optim, params, 3)
    state = update.init(params)
    rng = np.random.default_rng(0)
    gradients = [
        jax.tree.map(lambda p: rng.normal(size=p.shape).astype("f4"), params) for _ in range(3)
    ]
    moved = params
    for gradient in gradients:
        updates, state = update.update(gradient, state, moved)
        moved = optax.apply_updates(moved, updates)
    for path, decay, factor in (("proj", 0.2, 1), ("scale", 0.0, 1), ("logit_scale", 0.0, 10)):
        pick = {
            "proj": lambda tree: tree["image"]["proj"],
            "scale": lambda tree: tree["text"]["ln_final"]["scale"],
            "logit_scale": lambda tree: tree["logit_scale"],
        }[path]
        expected = _adamw(
            pick(params), [np.float64(pick(g)) for g in gradients], [0.1 * factor] * 3, decay=decay
        )
        np.testing.assert_allclose(pick(moved), expected, rtol=1e-5)


def test_clipping_uses_the_norm_of_what_trains_only():
    optim = config.OptimGroup(
        lr=1.0,
        max_grad_norm=1.0,
        freeze=("^text/",),
        weight_decay=0.0,
        eps=1.0,
        schedule="constant",
    )
    params = _params()
    gradient = jax.tree.map(jnp.zeros_like, params)
    gradient["image"]["proj"] = jnp.array([[3.0, 0.0], [0.0, 4.0]])
    gradient["text"]["ln_final"]["scale"] = jnp.array([1e6, 0.0])
    update = optimizer.build(optim, params, 2)
    updates, _ = update.update(gradient, update.init(params), params)
    # Norm 5 becomes 1; the first step of Adam then gives g / (|g| + eps).
    expected = -np.array([[0.6 / 1.6, 0.0], [0.0, 0.8 / 1.8]])
    np.testing.assert_allclose(updates["image"]["proj"], expected, rtol=1e-5)
    np.testing.assert_array_equal(updates["text"]["ln_final"]["scale"], [0.0, 0.0])


def test_frozen_parameters_hold_no_state():
    params = _params()
    free = optimizer.build(config.OptimGroup(), params, 2).init(params)
    frozen = optimizer.build(config.OptimGroup(freeze=("image/",)), params, 2).init(params)
    count = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))  # noqa: E731
    assert count(free) - count(frozen) == 2 * params["image"]["proj"].size


def test_freeze_patterns_must_match_and_leave_something():
    with pytest.raises(types.UserError, match="matches no parameter"):
        optimizer.trained(config.OptimGroup(freeze=("vision",)), _params())
    with pytest.raises(types.UserError, match="leaves no parameter"):
        optimizer.trained(config.OptimGroup(freeze=(".",)), _params())
    fixed = optimizer.trained(config.OptimGroup(freeze_logit_scale=True), _params())
    assert jax.tree.leaves(fixed) == [True, False, True]


def test_the_description_counts_what_trains_and_what_decays():
    optim = config.OptimGroup(freeze=("ln_final",), weight_decay=0.2)
    assert optimizer.describe(optim, _params()) == (
        "7 parameters, 5 train, 4 of these with weight decay 0.2"
    )
