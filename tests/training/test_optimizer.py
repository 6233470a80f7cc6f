"""Optimiser: schedule, what decays, what trains, and AdamW against a plain numpy version."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from hnclip_jax import groups, types
from hnclip_jax.models import dual_encoder, presets
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import checkpoint, optimizer
from hnclip_jax.training import state as state_lib


def _rates(optim, total):
    schedule = optimizer.schedule(optim, total)
    return [float(schedule(step)) for step in range(total + 1)]


def test_warm_up_then_half_a_cosine():
    rates = _rates(groups.OptimGroup(lr=2.0, warmup_steps=4), 12)
    np.testing.assert_allclose(rates[:5], [0.5, 1.0, 1.5, 2.0, 2.0], rtol=1e-6)
    expected = [1 + np.cos(np.pi * k / 8) for k in range(9)]
    np.testing.assert_allclose(rates[4:], expected, rtol=1e-5, atol=1e-6)


def test_constant_rate_and_a_cosine_that_ends_above_zero():
    assert _rates(groups.OptimGroup(lr=3.0, schedule="constant"), 5) == [3.0] * 6
    np.testing.assert_allclose(_rates(groups.OptimGroup(lr=3.0, end_lr_fraction=0.1), 5)[-1], 0.3)


def test_one_step_of_warm_up():
    np.testing.assert_allclose(_rates(groups.OptimGroup(lr=1.0, warmup_steps=1), 4)[:2], [1.0, 1.0])


def test_a_warm_up_as_long_as_the_run_is_an_error():
    with pytest.raises(types.UserError, match="warmup_steps"):
        optimizer.schedule(groups.OptimGroup(warmup_steps=5), 5)


@pytest.mark.parametrize("scan", [True, False], ids=["scan", "unrolled"])
def test_norms_and_biases_never_decay_stacked_or_not(scan):
    params = dual_encoder.create(presets.get("tiny"), scan_layers=scan).abstract_params()
    labels = optimizer.labels(groups.OptimGroup(), params)
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


def _adamw(value, gradients, rates, *, decay, b1=0.9, b2=0.999, eps=1e-8, kept=np.float64):
    """AdamW as in the paper (arXiv 1711.05101, algorithm 2), in float64.

    Between steps the first moment is kept in the type `kept`.
    """
    value = np.asarray(value, np.float64)
    first, second = np.zeros_like(value), np.zeros_like(value)
    for count, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        first = b1 * first + (1 - b1) * gradient
        second = b2 * second + (1 - b2) * gradient**2
        move = first / (1 - b1**count) / (np.sqrt(second / (1 - b2**count)) + eps)
        value = value - rate * (move + decay * value)
        first = first.astype(kept).astype(np.float64)
    return value


def test_three_steps_equal_adamw_in_numpy():
    optim = groups.OptimGroup(lr=0.1, weight_decay=0.2, logit_scale_rate=10.0, schedule="constant")
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


def test_a_first_moment_in_bfloat16_is_rounded_between_steps_and_nowhere_else():
    # Of a beta that bfloat16 does not have: 0.99 would be 0.988.
    optim = groups.OptimGroup(lr=0.1, b1=0.99, schedule="constant", mu_dtype="bfloat16")
    params = _params()
    rng = np.random.default_rng(3)
    gradients = [
        jax.tree.map(lambda p: rng.normal(size=p.shape).astype("f4"), params) for _ in range(5)
    ]
    found, state = _walk(optim, params, gradients)
    steps = [np.float64(gradient["image"]["proj"]) for gradient in gradients]
    expected, exact = (
        _adamw(params["image"]["proj"], steps, [0.1] * 5, decay=0.01, b1=0.99, kept=kept)
        for kept in (jnp.bfloat16, np.float64)
    )
    np.testing.assert_allclose(found["image"]["proj"], expected, rtol=0, atol=3e-5)
    assert np.abs(expected - exact).max() > 3e-4
    # A first moment of each of the three parameters, and no other state, is in bfloat16.
    kinds = [leaf.dtype.name for leaf in jax.tree.leaves(state)]
    assert (kinds.count("bfloat16"), kinds.count("float32")) == (3, 3)


@pytest.mark.parametrize(("dtype", "same"), [("float32", True), ("bfloat16", False)])
def test_a_first_moment_in_float32_is_the_program_of_optax(dtype, same):
    found, expected = (
        jax.make_jaxpr(lambda params, adam=adam: adam.update(params, adam.init(params)))(_params())
        for adam in (optimizer._adam(groups.OptimGroup(mu_dtype=dtype)), optax.scale_by_adam())
    )
    assert (str(found) == str(expected)) == same


def test_a_moment_in_bfloat16_lies_split_and_comes_back_from_a_checkpoint(tmp_path):
    mesh = mesh_lib.create(groups.ParallelGroup(fsdp=4))
    params = jax.device_put(_params_to_split(), sharding.state_shardings(mesh, _params_to_split()))
    optim = groups.OptimGroup(mu_dtype="bfloat16")
    shapes = jax.eval_shape(optimizer.build(optim, params, 9).init, params)
    places = sharding.state_shardings(mesh, shapes)
    rng = np.random.default_rng(5)
    drawn = jax.tree.map(
        lambda leaf: np.asarray(9 * rng.normal(size=leaf.shape), leaf.dtype), shapes
    )
    made = state_lib.TrainState(
        jax.device_put(np.int32(3), sharding.replicated(mesh)),
        params,
        jax.device_put(drawn, places),
        None,
    )
    with contextlib.closing(checkpoint.Checkpoints(tmp_path, 1)) as found:
        found.save(made, {})
        found.wait()
        back = found.restore(state_lib.abstract_like(made))
    (moment,) = (
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(back.opt_state)
        if leaf.dtype == jnp.bfloat16 and leaf.ndim == 2
    )
    assert moment.sharding.spec == P("fsdp", None)
    assert moment.addressable_shards[0].data.nbytes == moment.size * 2 // 4
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(back.opt_state), drawn)


def _params_to_split():
    return {"text": {"token_embedding": jnp.ones((16, 4))}, "logit_scale": jnp.array(2.0)}


def test_clipping_uses_the_norm_of_what_trains_only():
    optim = groups.OptimGroup(
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
    free = optimizer.build(groups.OptimGroup(), params, 2).init(params)
    frozen = optimizer.build(groups.OptimGroup(freeze=("image/",)), params, 2).init(params)
    count = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))  # noqa: E731
    assert count(free) - count(frozen) == 2 * params["image"]["proj"].size


def test_freeze_patterns_must_match_and_leave_something():
    with pytest.raises(types.UserError, match="matches no parameter"):
        optimizer.trained(groups.OptimGroup(freeze=("vision",)), _params())
    with pytest.raises(types.UserError, match="leaves no parameter"):
        optimizer.trained(groups.OptimGroup(freeze=(".",)), _params())
    fixed = optimizer.trained(groups.OptimGroup(freeze_logit_scale=True), _params())
    assert jax.tree.leaves(fixed) == [True, False, True]


def test_the_description_counts_what_trains_and_what_decays():
    optim = groups.OptimGroup(freeze=("ln_final",), weight_decay=0.2)
    assert optimizer.describe(optim, _params()) == (
        "7 parameters, 5 train, 4 of these with weight decay 0.2"
    )


HELD = 3


def _tables():
    """Two tables of positions, of which only the text's has rows that may be held; -0.0 in one."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(8, 4)).astype("f4")
    table[1, 2] = -0.0
    return {
        "image": {"position_embedding": jnp.asarray(rng.normal(size=(8, 4)), jnp.float32)},
        "text": {
            "ln_final": {"scale": jnp.array([1.0, 3.0])},
            "position_embedding": jnp.asarray(table),
        },
        "logit_scale": jnp.array(2.0),
    }


def _gradients(params, steps=3):
    """Gradients that are large where rows may be held, so that a leak would show."""
    rng = np.random.default_rng(2)
    made = [
        jax.tree.map(lambda p: rng.normal(size=p.shape).astype("f4"), params) for _ in range(steps)
    ]
    for gradient in made:
        gradient["text"]["position_embedding"][:HELD] *= 1e3
    return made


def _walk(optim, params, gradients, place=lambda tree: tree):
    """Parameters and optimiser state after a compiled update for each gradient."""
    update = optimizer.build(optim, params, len(gradients) + 1)
    params = place(params)
    state = jax.jit(update.init)(params)

    @jax.jit
    def one(params, state, gradient):
        moves, state = update.update(gradient, state, params)
        return optax.apply_updates(params, moves), state

    for gradient in gradients:
        params, state = one(params, state, place(gradient))
    return params, state


def _bits(array):
    return np.asarray(array).view(np.int32)


def _clipped(gradient, limit):
    """A gradient in float64 without the held rows, scaled down to the norm `limit` where not 0."""
    exact = jax.tree.map(np.float64, gradient)
    exact["text"]["position_embedding"] = exact["text"]["position_embedding"][HELD:]
    norm = np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(exact)))
    factor = min(1, limit / norm) if limit else 1
    return jax.tree.map(lambda leaf: leaf * factor, exact)


@pytest.mark.parametrize("clip", [0.0, 1.0], ids=["unclipped", "clipped"])
def test_the_first_positions_keep_every_bit_and_the_rest_moves_as_adamw_says(clip):
    # An epsilon of 1 lets the size of a gradient show, which Adam would divide away.
    optim = groups.OptimGroup(
        lr=0.1,
        schedule="constant",
        weight_decay=0.2,
        eps=1.0,
        max_grad_norm=clip,
        freeze_first_positions=HELD,
    )
    params = _tables()
    gradients = _gradients(params)
    found, _ = _walk(optim, params, gradients)
    start, end = (tree["text"]["position_embedding"] for tree in (params, found))
    np.testing.assert_array_equal(_bits(end)[:HELD], _bits(start)[:HELD])
    exact = [_clipped(gradient, clip) for gradient in gradients]
    for tower, first in (("text", HELD), ("image", 0)):
        start, end = (tree[tower]["position_embedding"][first:] for tree in (params, found))
        steps = [gradient[tower]["position_embedding"] for gradient in exact]
        expected = _adamw(start, steps, [0.1] * 3, decay=0.2, eps=1.0)
        np.testing.assert_allclose(end, expected, rtol=1e-5, atol=1e-6)


def test_the_other_rows_move_as_without_the_setting():
    params = _tables()
    gradients = _gradients(params)
    free, _ = _walk(groups.OptimGroup(weight_decay=0.2), params, gradients)
    held, _ = _walk(
        groups.OptimGroup(weight_decay=0.2, freeze_first_positions=HELD), params, gradients
    )
    free["text"]["position_embedding"] = free["text"]["position_embedding"][HELD:]
    held["text"]["position_embedding"] = held["text"]["position_embedding"][HELD:]
    jax.tree.map(np.testing.assert_array_equal, held, free)


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_what_is_no_number_in_a_held_row_reaches_nothing(bad):
    params = _tables()
    gradients = _gradients(params)
    for gradient in gradients:
        gradient["text"]["position_embedding"][0, 0] = bad
    optim = groups.OptimGroup(max_grad_norm=1.0, freeze_first_positions=HELD)
    found, state = _walk(optim, params, gradients)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((found, state)))


@pytest.mark.parametrize("spec", [P("fsdp", None), P(None, "fsdp")], ids=["rows", "widths"])
def test_a_table_that_is_split_over_devices_is_held_as_well(spec):
    mesh = jax.make_mesh((2, 4), ("data", "fsdp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    split = jax.sharding.NamedSharding(mesh, spec)
    whole = jax.sharding.NamedSharding(mesh, P())

    def place(tree):
        return jax.tree.map(
            lambda leaf: jax.device_put(leaf, split if np.ndim(leaf) == 2 else whole), tree
        )

    params = _tables()
    gradients = _gradients(params)
    optim = groups.OptimGroup(weight_decay=0.2, max_grad_norm=1.0, freeze_first_positions=HELD)
    expected, _ = _walk(optim, params, gradients)
    found, _ = _walk(optim, params, gradients, place)
    table = found["text"]["position_embedding"]
    assert table.sharding.is_equivalent_to(split, 2)
    np.testing.assert_array_equal(
        _bits(table)[:HELD], _bits(params["text"]["position_embedding"])[:HELD]
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


def test_held_rows_of_a_table_that_is_frozen_anyway_change_nothing():
    params = _tables()
    gradients = _gradients(params)
    frozen = {"freeze": ("text/position_embedding",), "max_grad_norm": 1.0}
    expected, state = _walk(groups.OptimGroup(**frozen), params, gradients)
    both = groups.OptimGroup(**frozen, freeze_first_positions=HELD)
    found, other = _walk(both, params, gradients)
    jax.tree.map(np.testing.assert_array_equal, (found, other), (expected, state))
    np.testing.assert_array_equal(
        found["text"]["position_embedding"], params["text"]["position_embedding"]
    )
    assert optimizer.describe(both, params) == optimizer.describe(
        groups.OptimGroup(**frozen), params
    )


@pytest.mark.parametrize("held", [8, 9, 20])
def test_as_many_held_rows_as_positions_are_an_error(held):
    optim = groups.OptimGroup(freeze_first_positions=held)
    for check in (optimizer.trained, optimizer.describe):
        with pytest.raises(types.UserError) as caught:
            check(optim, jax.eval_shape(_tables))
        message = str(caught.value)
        assert f"freeze_first_positions is {held}, but the model has 8 text positions" in message
        assert "\n" not in message
    optimizer.trained(groups.OptimGroup(freeze_first_positions=7), jax.eval_shape(_tables))


def test_the_description_counts_held_rows_as_frozen():
    optim = groups.OptimGroup(freeze_first_positions=HELD, weight_decay=0.2)
    assert optimizer.describe(optim, _tables()) == (
        "67 parameters, 55 train, 52 of these with weight decay 0.2"
    )


@pytest.mark.parametrize("scan", [True, False], ids=["scan", "unrolled"])
def test_the_description_of_long_clip(scan):
    shapes = dual_encoder.create(presets.get("LongCLIP-B"), scan_layers=scan).abstract_params()
    free, held = (
        optimizer.describe(groups.OptimGroup(freeze_first_positions=held), shapes)
        for held in (0, 20)
    )
    assert free.startswith("149,708,289 parameters, 149,708,289 train")
    assert held.startswith(f"149,708,289 parameters, {149_708_289 - 20 * 512:,} train")
