"""Both gradients against separate backward passes, on every layout; numbers too small to square."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hnclip_jax import groups
from hnclip_jax.losses import contrastive, objective
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import gradients, optimizer, state, step
from hnclip_jax.training import recipe as recipe_lib

TOLERANCE = 1e-5  # float32 sums in another order, through two towers
GAMMA = 0.5
NONE = groups.MethodGroup()
LORA = groups.MethodGroup(adapter="lora", adapter_rank=2)


def _batch(rows=16):
    rng = np.random.default_rng(3)
    tokens = np.zeros((rows, 12), np.int32)
    for row in tokens:
        end = rng.integers(3, 12)
        row[0], row[1:end], row[end] = 49406, rng.integers(1, 99, end - 1), 49407
    tokens[5] = tokens[4]
    pair_id = np.arange(rows, dtype=np.int32)
    pair_id[5] = 4
    return {
        "image": rng.integers(0, 256, (rows, 24, 24, 3), dtype=np.uint8),
        "tokens": tokens,
        "pair_id": pair_id,
        "index": np.arange(rows, dtype=np.int32),
        "truncated": np.zeros(rows, bool),
    }


class Setting:
    """A recipe on a mesh, the state it begins with, and what is measured there."""

    def __init__(self, small_config, layout, method=NONE, freeze=(), **recipe):
        data, fsdp, self.mapper = layout
        self.mesh = mesh_lib.create(
            groups.ParallelGroup(mapper=self.mapper, data=data, fsdp=fsdp),
            jax.devices()[: data * fsdp],
        )
        loss = groups.LossGroup(gamma=recipe.pop("gamma", GAMMA), token_weight=1.0)
        start = state.Start(
            dual_encoder.create(small_config), seed=1, scale_init=20.0, method=method
        )
        self.recipe = recipe_lib.Recipe(
            start=start,
            objective=objective.build(loss, method),
            optimizer=optax.sgd(1.0),
            trained=optimizer.trained(groups.OptimGroup(freeze=freeze), start.shapes()),
            **recipe,
        )
        self.state = state.create(start, self.recipe.optimizer, self.mesh, params=_params(start))
        if method.adapter:
            self.state = dataclasses.replace(self.state, params=_stirred(self.state.params))

    def compare(self, batch):
        compare = gradients.build(self.recipe, self.mesh, self.mapper)
        found = compare(self.state, sharding.put_batch(self.mesh, batch))
        return {name: float(value) for name, value in found.items()}

    def separately(self, batch, gamma):
        """Returns the loss and its gradient, float64 vectors, by one backward pass of its own."""
        start, now = self.recipe.start, jax.device_get(self.state)

        @jax.jit
        @jax.value_and_grad
        def loss(params):
            towers = start.model_params(params, now.base)
            seen = start.model.embed(towers, batch["image"], batch["tokens"])
            scale = start.model.scale(towers)
            pairs = {"same_pair": batch["pair_id"]}
            return contrastive.hn_clip(seen.image, seen.text, scale, gamma=gamma, **pairs)

        value, gradient = loss(now.params)
        gradient = jax.tree.map(lambda g, moves: g * moves, gradient, self.recipe.trained)
        flat = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(gradient)]
        return float(value), np.concatenate(flat)


@functools.cache
def _params(start):
    return jax.device_get(jax.jit(start.model.init)(jax.random.key(5)))


def _stirred(params):
    """Returns adapters that do something; those of a beginning do nothing."""
    draw = lambda leaf: leaf + 0.05 * np.random.default_rng(leaf.size).normal(size=leaf.shape)  # noqa: E731
    fresh = jax.tree.map(lambda leaf: draw(leaf).astype(np.float32), jax.device_get(params))
    return jax.tree.map(lambda new, old: jax.device_put(new, old.sharding), fresh, params)


def _check(found, plain, trained):
    (plain_loss, plain), (trained_loss, trained) = plain, trained
    norms = np.linalg.norm(plain), np.linalg.norm(trained)
    expected = {
        "info_nce": plain_loss,
        "global": trained_loss,
        "norm_info_nce": norms[0],
        "norm_global": norms[1],
        "max_info_nce": np.abs(plain).max(),
        "max_global": np.abs(trained).max(),
        "ratio": norms[1] / norms[0],
        "cosine": plain @ trained / (norms[0] * norms[1]),
    }
    assert found == pytest.approx(
        {f"gradients/{name}": value for name, value in expected.items()}, rel=TOLERANCE
    )
    assert abs(expected["ratio"] - 1) > 0.05
    assert expected["cosine"] < 0.99


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "options"),
    [
        ((1, 1, "mesh"), {"freeze": ("text/",)}),
        ((4, 2, "mesh"), {"cache_parts": 2}),
        ((8, 1, "pmap"), {}),
        ((1, 1, "mesh"), {"method": LORA}),
        ((4, 2, "mesh"), {"method": LORA}),
    ],
    ids=["one device, frozen text", "mesh 4x2, cached", "pmap 8", "lora", "lora on mesh 4x2"],
)
def test_both_gradients_are_those_of_separate_backward_passes(small_config, layout, options):
    setting = Setting(small_config, layout, **options)
    found = setting.compare(_batch())
    _check(found, setting.separately(_batch(), 0.0), setting.separately(_batch(), GAMMA))


@pytest.mark.slow
def test_micro_batches_are_averaged_before_they_are_measured(small_config):
    setting = Setting(small_config, (1, 1, "mesh"), micro_batches=2)
    halves = [{name: rows[half] for name, rows in _batch().items()} for half in _HALVES]
    means = []
    for gamma in (0.0, GAMMA):
        losses, vectors = zip(*(setting.separately(half, gamma) for half in halves), strict=True)
        means.append((np.mean(losses), np.mean(vectors, axis=0)))
    _check(setting.compare(_batch()), *means)


_HALVES = (slice(0, 8), slice(8, 16))


@pytest.mark.slow
def test_without_a_boost_the_two_are_one_and_the_run_does_not_notice(small_config):
    setting = Setting(small_config, (4, 2, "mesh"), gamma=0.0)
    batch = sharding.put_batch(setting.mesh, _batch())
    run = step.build(setting.recipe, setting.mesh)
    copy = jax.tree.map(jnp.copy, setting.state)
    unseen, _ = run(copy, batch)
    found = setting.compare(_batch())
    assert found["gradients/cosine"] == pytest.approx(1, abs=1e-6)
    assert found["gradients/ratio"] == pytest.approx(1, abs=1e-6)
    seen, _ = run(setting.state, batch)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(seen), jax.device_get(unseen))


def test_gradients_whose_squares_are_zero_still_have_a_norm():
    plain = {"a": jnp.array([3e-30, -4e-30]), "b": jnp.zeros(3)}
    trained = {"a": jnp.array([4e-30, 3e-30]), "b": jnp.array([0.0, 12e-30, 0.0])}
    found = gradients.relate(plain, trained)
    assert found == {
        "norm_info_nce": pytest.approx(5e-30, rel=1e-6),
        "norm_global": pytest.approx(13e-30, rel=1e-6),
        "max_info_nce": pytest.approx(4e-30, rel=1e-6),
        "max_global": pytest.approx(12e-30, rel=1e-6),
        "ratio": pytest.approx(2.6, rel=1e-6),
        "cosine": pytest.approx(0.0, abs=1e-6),
    }
    opposite = gradients.relate(plain, jax.tree.map(lambda x: -2 * x, plain))
    assert float(opposite["cosine"]) == pytest.approx(-1, abs=1e-6)


def test_a_gradient_that_is_zero_has_no_cosine():
    zero, one = {"a": jnp.zeros(3)}, {"a": jnp.ones(3)}
    found = gradients.relate(zero, one)
    assert np.isnan(found["cosine"])
    assert np.isinf(found["ratio"])
    assert float(found["norm_info_nce"]) == float(found["max_info_nce"]) == 0
    assert float(gradients.relate(one, zero)["ratio"]) == 0
