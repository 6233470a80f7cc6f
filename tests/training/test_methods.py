"""Every method in the compiled step: on any mesh, with the boost and without, adapters alone."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest

from hnclip_jax import adapters, groups
from hnclip_jax.data import example
from hnclip_jax.losses import objective, terms
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import optimizer, state, step
from hnclip_jax.training import recipe as recipe_lib

pytestmark = pytest.mark.slow  # Every case compiles several towers with their gradients.

ROWS, PER_EPOCH = 16, 2
METHODS = {
    "clip": {},
    "longclip": {"pcm_dim": 3},
    # Into the second epoch, where the ramp is at its top and the decay has begun.
    "finelip": {"finelip_tokens": 2, "finelip_gamma": 0.3, "finelip_ramp_epochs": 0.0},
    "goal": {},
    "structxlip": {"structxlip_rgb_weight": 0.5, "structxlip_local_weight": 0.5},
    "lora": {"adapter_rank": 2},
    "dora": {"adapter_rank": 2},
}
LAYOUTS = {"one": (1, 1, "mesh"), "4x2": (4, 2, "mesh"), "8x1": (8, 1, "mesh"), "pmap": (8, 1, "")}


class Case:
    """A method, compiled for a layout, with made-up batches."""

    def __init__(self, small_config, name, layout="one", *, rate=1.0, parts=(1, 1), **loss):
        data, fsdp, mapper = LAYOUTS[layout]
        mapper = mapper or "pmap"
        self.mesh = mesh_lib.create(
            groups.ParallelGroup(mapper=mapper, data=data, fsdp=fsdp), jax.devices()[: data * fsdp]
        )
        adapter = name if name in ("lora", "dora") else ""
        self.method = groups.MethodGroup(
            name="clip" if adapter else name, adapter=adapter, **METHODS[name]
        )
        model = dual_encoder.create(small_config)
        made = objective.build(groups.LossGroup(**loss), self.method, PER_EPOCH)
        sizes = terms.Sizes(small_config.embed_dim, small_config.patch_count)
        start = state.Start(
            model,
            seed=3,
            scale_init=20.0,
            method=self.method,
            add=lambda key: made.init(key, sizes),
        )
        self.recipe = recipe_lib.Recipe(
            start=start,
            objective=made,
            optimizer=optax.sgd(rate),
            trained=optimizer.trained(groups.OptimGroup(), start.shapes()),
            micro_batches=parts[0],
            cache_parts=parts[1],
        )
        self.step = step.build(self.recipe, self.mesh, mapper)
        self.params = _params(model)

    def begin(self):
        keep = self.recipe.objective.needs_frozen_text
        return state.create(
            self.recipe.start,
            self.recipe.optimizer,
            self.mesh,
            params=self.params,
            keep_reference=keep,
        )

    def batch(self, seed=0):
        config = self.recipe.model.config
        sizes = example.Sizes.of(config)
        rows = example.batch(sizes, ROWS, self.recipe.objective.inputs, self.method, seed)
        rows["pair_id"][5] = 2
        for name in ("has_crop", "has_edge", "has_local"):
            if name in rows:  # Rows 3, 7, ... have none.
                rows[name][3::4] = False
        return sharding.put_batch(self.mesh, rows)

    def run(self, steps=1, now=None):
        now = now or self.begin()
        for _ in range(steps):
            now, output = self.step(now, self.batch(int(now.step)))
        return jax.device_get(now), jax.device_get(output)


@functools.cache
def _params(model):
    return jax.device_get(jax.jit(model.init)(jax.random.key(5)))


@functools.cache
def _on_one_device(small_config, name):
    return Case(small_config, name).run()


def _close(left, right, tolerance):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        # The floor is for gradients that vanish by symmetry.
        scale = max(float(np.max(np.abs(b))), 1e-1)
        np.testing.assert_allclose(a, b, atol=tolerance * scale, rtol=tolerance)


# Adapters on a mesh are all alike, and plain CLIP is in test_parity.py.
@pytest.mark.parametrize(
    ("name", "layout"),
    [*((name, "4x2") for name in METHODS if name not in ("clip", "lora")), ("finelip", "pmap")],
)
def test_loss_and_gradient_equal_one_device(small_config, name, layout):
    expected_state, expected = _on_one_device(small_config, name)
    found_state, found = Case(small_config, name, layout).run()
    _close(found.terms, expected.terms, 1e-5)
    _close(found_state.params, expected_state.params, 2e-5)
    assert all(np.isfinite(value) for value in found.terms.values())


CACHED = [
    ("finelip", "4x2", (1, 2), {}),
    ("goal", "pmap", (1, 2), {"kind": "frozen"}),
    ("clip", "one", (2, 4), {"token_weight": 1.0}),
]


@pytest.mark.parametrize(("name", "layout", "parts", "loss"), CACHED)
def test_a_batch_embedded_in_parts_has_the_whole_s_gradient(
    small_config, name, layout, parts, loss
):
    expected_state, expected = Case(small_config, name, parts=(parts[0], 1), **loss).run()
    found_state, found = Case(small_config, name, layout, parts=parts, **loss).run()
    _close(found.terms, expected.terms, 1e-5)
    _close(found_state.params, expected_state.params, 2e-5)
    _close(found.seen.text, expected.seen.text, 1e-5)


def test_parts_bound_the_memory_of_the_towers(small_config):
    # Of few words: their table's gradient does not become smaller with the parts.
    config = dataclasses.replace(small_config, vocab_size=200)

    def temporaries(parts):
        case = Case(config, "clip", parts=(1, parts))
        compiled = case.step.lower(case.begin(), case.batch()).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporaries(8) < 0.6 * temporaries(1)


@pytest.mark.parametrize(("kind", "layout"), [("siglip_hn", "pmap"), ("negclip", "4x2")])
def test_a_kind_equals_one_device(small_config, kind, layout):
    expected_state, expected = _kind_on_one_device(small_config, kind)
    found_state, found = Case(small_config, "clip", layout, kind=kind).run()
    _close(found.terms, expected.terms, 1e-5)
    _close(found_state.params, expected_state.params, 2e-5)


@functools.cache
def _kind_on_one_device(small_config, kind):
    return Case(small_config, "clip", kind=kind).run()


@functools.cache
def _without_boost(small_config, name):
    return Case(small_config, name, gamma=0.0)


@pytest.mark.parametrize("name", ["longclip", "finelip", "goal", "dora"])
def test_gamma_0_is_the_method_without_the_boost_bit_for_bit(small_config, name):
    plain = Case(small_config, name, kind="info_nce").run(2)
    nothing = _without_boost(small_config, name).run(2)
    jax.tree.map(np.testing.assert_array_equal, nothing, plain)
    boosted = _on_one_device(small_config, name)[1]
    assert boosted.terms["global"] > plain[1].terms["global"] + 1


@pytest.mark.parametrize("name", ["longclip", "finelip", "goal"])
def test_the_boost_changes_the_global_term_alone(small_config, name):
    plain = _without_boost(small_config, name).run()[1].terms
    boosted = _on_one_device(small_config, name)[1].terms
    for term in plain.keys() - {"global", "loss"}:
        # The token terms are computed beside another global term, so the compiler may round anew.
        np.testing.assert_allclose(boosted[term], plain[term], rtol=1e-5, err_msg=term)
    np.testing.assert_allclose(
        boosted["loss"] - boosted["global"], plain["loss"] - plain["global"], rtol=1e-4, atol=1e-4
    )


@functools.cache
def _trained(small_config, name):
    case = Case(small_config, name, rate=0.1)
    return case, case.run(3)[0]


@pytest.mark.parametrize("name", ["lora", "dora"])
def test_only_adapters_train(small_config, name):
    case, now = _trained(small_config, name)
    began = jax.device_get(case.begin())
    assert set(began.params) == {"adapter", "logit_scale"}
    jax.tree.map(np.testing.assert_array_equal, now.base, began.base)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), now.params, began.params)
    still = [key for key, by in jax.tree_util.tree_leaves_with_path(moved["adapter"]) if by == 0]
    assert still == []


@pytest.mark.parametrize("name", ["lora", "dora"])
def test_adapters_begin_as_the_base(small_config, name):
    case = Case(small_config, name)
    began = case.begin()
    params = case.recipe.start.model_params(began.params, began.base)
    exact = np.testing.assert_array_equal
    if name == "dora":
        exact = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(exact, {k: params[k] for k in ("image", "text")}, began.base)


def test_dora_and_lora_differ_after_training(small_config):
    ends = [_merged(*_trained(small_config, name)) for name in ("lora", "dora")]
    assert np.abs(ends[0] - ends[1]).max() > 1e-5


def _merged(case, now):
    params = adapters.apply(now.base, now.params["adapter"], case.method.adapter_alpha)
    return np.asarray(params["text"]["blocks"]["mlp"]["fc_in"]["kernel"])


def test_parameters_of_a_method_have_their_own_rate(small_config):
    case = Case(small_config, "finelip")
    shapes = case.recipe.start.shapes()
    optim = groups.OptimGroup(lr=1e-3, schedule="constant", weight_decay=0.0, eps=1e-30)

    def first_move(optim):
        made = optimizer.build(optim, shapes, 10, case.recipe.objective.rates)
        ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes)
        moves, _ = made.update(ones, made.init(ones), ones)
        return jax.tree.map(lambda leaf: float(-np.mean(leaf)), moves)

    moves = first_move(optim)
    np.testing.assert_allclose(jax.tree.leaves(moves["method"]), 2e-4, rtol=1e-4)
    np.testing.assert_allclose(jax.tree.leaves(moves["image"]), 1e-3, rtol=1e-4)
    moves = first_move(groups.OptimGroup(**{**vars(optim), "method_lr": 0.5}))
    np.testing.assert_allclose(jax.tree.leaves(moves["method"]), 0.5, rtol=1e-4)
    np.testing.assert_allclose(jax.tree.leaves(moves["text"]), 1e-3, rtol=1e-4)
