"""The step: the same on one device, on every mesh, by pmap and in micro-batches.

HN-CLIP with the token term, over several steps, is in test_parity.py.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax._src import monitoring

from hnclip_jax import groups
from hnclip_jax.losses import objective
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import optimizer, state, step
from hnclip_jax.training import recipe as recipe_lib

pytestmark = pytest.mark.slow  # Every case compiles two towers with their gradients.

TOLERANCE = 1e-5  # float32 sums in another order, through two towers
LAYOUTS = {
    "mesh 8x1": (8, 1, "mesh"),
    "mesh 4x2": (4, 2, "mesh"),
    "mesh 1x8": (1, 8, "mesh"),
    "pmap 8": (8, 1, "pmap"),
}
LOSSES = {
    "info_nce": groups.LossGroup(kind="info_nce"),
    "hn_clip": groups.LossGroup(gamma=0.5),
    "hn_clip and tokens": groups.LossGroup(gamma=0.5, token_weight=1.0),
    "row_shuffled": groups.LossGroup(kind="row_shuffled"),
    "frozen": groups.LossGroup(kind="frozen"),
    "constant": groups.LossGroup(kind="constant"),
}


class Setting:
    """A recipe with plain gradient descent, so that the update shows the gradient itself."""

    def __init__(self, small_config, loss, layout=(1, 1, "mesh"), **recipe):
        data, fsdp, mapper = layout
        self.mesh = mesh_lib.create(
            groups.ParallelGroup(mapper=mapper, data=data, fsdp=fsdp),
            jax.devices()[: data * fsdp],
        )
        self.model = dual_encoder.create(small_config, scan_layers=recipe.pop("scan_layers", True))
        optim = recipe.pop("optim", groups.OptimGroup())
        made = recipe.pop("objective", None) or objective.build(loss, groups.MethodGroup())
        start = state.Start(self.model, seed=1, scale_init=20.0)
        self.recipe = recipe_lib.Recipe(
            start=start,
            objective=made,
            optimizer=recipe.pop("optimizer", optax.sgd(1.0)),
            trained=optimizer.trained(optim, start.shapes()),
            **recipe,
        )
        self.step = step.build(self.recipe, self.mesh, mapper)

    def begin(self):
        return state.create(
            self.recipe.start,
            self.recipe.optimizer,
            self.mesh,
            params=_params(self.model),
            keep_reference=self.recipe.objective.needs_frozen_text,
        )

    def run(self, batch, steps=1):
        now = self.begin()
        for _ in range(steps):
            now, output = self.step(now, sharding.put_batch(self.mesh, batch))
        return jax.device_get(now), jax.device_get(output)


@functools.cache
def _params(model):
    return jax.device_get(jax.jit(model.init)(jax.random.key(5)))


def _batch(seed=0, rows=16):
    rng = np.random.default_rng(seed)
    tokens = np.zeros((rows, 12), np.int32)
    for row in tokens:
        end = rng.integers(3, 12)
        row[0], row[1:end], row[end] = 49406, rng.integers(1, 99, end - 1), 49407
    tokens[3], tokens[9] = tokens[2], tokens[2]
    pair_id = np.arange(rows, dtype=np.int32)
    pair_id[3], pair_id[9] = 2, 2
    return {
        "image": rng.integers(0, 256, (rows, 24, 24, 3), dtype=np.uint8),
        "tokens": tokens,
        "pair_id": pair_id,
        "index": np.arange(rows, dtype=np.int32),
        "truncated": np.zeros(rows, bool),
    }


def _close(left, right, tolerance=TOLERANCE):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        # The floor is for gradients that vanish by symmetry, such as that of the keys' bias.
        scale = max(float(np.max(np.abs(b))), 1e-1)
        np.testing.assert_allclose(a, b, atol=tolerance * scale, rtol=tolerance)


@functools.cache
def _on_one_device(small_config, loss):
    return Setting(small_config, loss).run(_batch())


@pytest.mark.parametrize(
    ("loss", "layout"),
    [
        ("frozen", "mesh 4x2"),
        ("frozen", "pmap 8"),
        ("row_shuffled", "mesh 4x2"),
        ("row_shuffled", "pmap 8"),
    ],
)
def test_loss_and_gradient_equal_one_device(small_config, loss, layout):
    expected_state, expected = _on_one_device(small_config, LOSSES[loss])
    found_state, found = Setting(small_config, LOSSES[loss], LAYOUTS[layout]).run(_batch())
    _close(found.terms, expected.terms)
    _close(found.grad_norm, expected.grad_norm)
    _close(found_state.params, expected_state.params)
    _close(found.seen.text, expected.seen.text)


@pytest.mark.parametrize("layout", ["mesh 4x2", "pmap 8"])
def test_the_order_of_the_rows_does_not_matter(small_config, layout):
    order = np.random.default_rng(7).permutation(16)
    shuffled = {name: rows[order] for name, rows in _batch().items()}
    expected, one = _on_one_device(small_config, LOSSES["hn_clip"])
    found, other = Setting(small_config, LOSSES["hn_clip"], LAYOUTS[layout]).run(shuffled)
    _close(other.terms, one.terms)
    _close(found.params, expected.params)


def test_the_guard_reaches_across_devices(small_config):
    free = groups.LossGroup(gamma=0.5, guard_same_pair=False)
    unguarded = Setting(small_config, free, LAYOUTS["mesh 8x1"]).run(_batch())[1]
    guarded = _on_one_device(small_config, LOSSES["hn_clip"])[1]
    assert guarded.terms["loss"] < unguarded.terms["loss"] - 1e-3


@pytest.mark.parametrize(
    "layout",
    [LAYOUTS["mesh 4x2"], LAYOUTS["pmap 8"]],
    ids=["mesh 4x2", "pmap 8"],
)
def test_micro_batches_average_their_own_losses(small_config, layout):
    batch = _batch(rows=16)
    parts = 2
    data, fsdp, _ = layout
    # Every device deals its own rows out in turn.
    place = np.arange(16).reshape(data * fsdp, parts, -1)
    halves = [
        {name: rows[place[:, part].ravel()] for name, rows in batch.items()}
        for part in range(parts)
    ]
    loss = LOSSES["hn_clip"]
    one = Setting(small_config, loss)
    start = jax.device_get(one.begin()).params
    ends = [one.run(half) for half in halves]
    expected = jax.tree.map(
        lambda p, a, b: p - ((p - a) + (p - b)) / 2, start, *[e[0].params for e in ends]
    )
    found_state, found = Setting(small_config, loss, layout, micro_batches=parts).run(batch)
    _close(found.terms["loss"], np.mean([end[1].terms["loss"] for end in ends]))
    _close(found_state.params, expected)
    assert found.seen.image.shape == (2, 8, 8)


def _collectives(setting):
    now = setting.begin()
    text = setting.step.lower(now, sharding.put_batch(setting.mesh, _batch())).compile().as_text()
    names = "all-gather|all-reduce|reduce-scatter|collective-permute|all-to-all"
    return sorted(re.findall(rf" ({names})(?:-start)?\(", text))


def test_the_boost_adds_no_collective(small_config):
    counts = [
        _collectives(Setting(small_config, groups.LossGroup(gamma=gamma), LAYOUTS["mesh 4x2"]))
        for gamma in (0.0, 0.5)
    ]
    assert counts[0]
    assert counts[0] == counts[1]


class _Counted:
    """An objective that counts how often it is traced."""

    def __init__(self, inner):
        self.inner, self.traces = inner, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __call__(self, *args, **kwargs):
        self.traces += 1
        return self.inner(*args, **kwargs)


@pytest.fixture
def lowered():
    """What was lowered to be compiled so far, in seconds: arguments that lie elsewhere count."""
    seen = []

    def note(event, seconds, **_):
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            seen.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield seen
    monitoring.unregister_event_duration_listener(note)


# On 1x8 the compiler, left to itself, splits moments of copied parameters.
@pytest.mark.parametrize("layout", ["mesh 1x8", "pmap 8"])
def test_one_compilation_and_no_hidden_transfer(small_config, layout, lowered):
    counted = _Counted(objective.build(LOSSES["hn_clip"], groups.MethodGroup()))
    shapes = dual_encoder.create(small_config).abstract_params()
    adam = optimizer.build(groups.OptimGroup(), shapes, total_steps=9)
    setting = Setting(small_config, None, LAYOUTS[layout], objective=counted, optimizer=adam)
    now = setting.begin()
    traces, programs = [], []
    for seed in range(4):
        batch = sharding.put_batch(setting.mesh, _batch(seed))
        with jax.transfer_guard("disallow" if layout.startswith("mesh") else "allow"):
            now, _ = setting.step(now, batch)
        traces.append(counted.traces)
        programs.append(len(lowered))
    assert int(now.step) == 4
    assert len(set(traces)) == 1, traces
    assert len(set(programs)) == 1, programs


def test_frozen_parameters_do_not_move_by_a_bit(small_config):
    optim = groups.OptimGroup(freeze=("^image/",), lr=0.1, schedule="constant")
    model = dual_encoder.create(small_config)
    setting = Setting(
        small_config,
        LOSSES["hn_clip"],
        optim=optim,
        optimizer=optimizer.build(optim, model.abstract_params(), 10),
    )
    start = jax.device_get(setting.begin()).params
    end = setting.run(_batch(), steps=3)[0].params
    jax.tree.map(np.testing.assert_array_equal, end["image"], start["image"])
    assert np.abs(end["text"]["proj"] - start["text"]["proj"]).max() > 1e-3
    _, output = setting.run(_batch())
    _, free = _on_one_device(small_config, LOSSES["hn_clip"])
    assert output.grad_norm < free.grad_norm


@pytest.mark.parametrize(
    ("layout", "scan", "split"),
    [((1, 1, "mesh"), False, False), (LAYOUTS["mesh 4x2"], True, True)],
    ids=["one device, unrolled", "mesh 4x2, a split table"],
)
def test_the_first_positions_do_not_move_by_a_bit(small_config, layout, scan, split, monkeypatch):
    if split:
        rules = ((r"position_embedding$", "split"), *sharding.RULES)
        monkeypatch.setattr(sharding, "RULES", rules)
    steps, held = 3, 5

    def setting(**more):
        # An epsilon of 1 keeps Adam from dividing rounding by rounding.
        optim = groups.OptimGroup(lr=0.5, eps=1.0, schedule="constant", weight_decay=0.1, **more)
        shapes = dual_encoder.create(small_config, scan_layers=scan).abstract_params()
        return Setting(
            small_config,
            LOSSES["hn_clip"],
            layout,
            scan_layers=scan,
            optimizer=optimizer.build(optim, shapes, steps + 1),
        )

    found = setting(freeze_first_positions=held).run(_batch(), steps)[0].params
    # By hand: steps of the whole table, after each of which its first rows are put back.
    free = setting()
    now = free.begin()
    start = jax.device_get(now.params["text"]["position_embedding"])
    for _ in range(steps):
        now, _ = free.step(now, sharding.put_batch(free.mesh, _batch()))
        text = now.params["text"]
        table = text["position_embedding"]
        assert table.sharding.is_fully_replicated != split
        back = jax.device_put(table.at[:held].set(start[:held]), table.sharding)
        params = {**now.params, "text": {**text, "position_embedding": back}}
        now = dataclasses.replace(now, params=params)
    expected = jax.device_get(now.params)
    np.testing.assert_array_equal(found["text"]["position_embedding"][:held], start[:held])
    _close(found, expected)
    moved = np.abs(found["text"]["position_embedding"] - start)[held:].max(axis=1)
    assert moved.min() > 1e-5


def test_the_gradient_s_norm_leaves_out_held_positions(small_config):
    def setting(**more):
        return Setting(small_config, LOSSES["hn_clip"], **more)

    optim = groups.OptimGroup(freeze_first_positions=5)
    free = setting()
    now, whole = free.run(_batch())
    # The optimiser is plain gradient descent of rate 1, so that the difference is the gradient.
    start = jax.device_get(free.begin()).params
    gradient = jax.tree.map(lambda a, b: np.float64(a) - b, start, now.params)
    rows = gradient["text"]["position_embedding"][:5]
    held = setting(hold=functools.partial(optimizer.hold_positions, optim)).run(_batch())[1]
    expected = np.sqrt(float(whole.grad_norm) ** 2 - (rows**2).sum())
    np.testing.assert_allclose(held.grad_norm, expected, rtol=TOLERANCE)
    assert held.grad_norm < whole.grad_norm * (1 - 100 * TOLERANCE)


def test_the_scale_never_exceeds_its_limit(small_config):
    push = optax.GradientTransformation(
        lambda params: optax.EmptyState(),
        lambda updates, state, params: (jax.tree.map(jnp.ones_like, updates), state),
    )
    setting = Setting(small_config, LOSSES["hn_clip"], optimizer=push, max_scale=50.0)
    now, output = setting.run(_batch(), steps=3)
    np.testing.assert_allclose(np.exp(now.params["logit_scale"]), 50.0, rtol=1e-6)
    np.testing.assert_allclose(output.scale, 50.0, rtol=1e-6)


def test_gamma_follows_its_schedule_inside_one_compiled_step(small_config):
    loss = groups.LossGroup(gamma=0.5, gamma_start_step=2)
    setting = Setting(small_config, loss, optimizer=optax.set_to_zero())
    plain = _on_one_device(small_config, LOSSES["info_nce"])[1].terms["loss"]
    boosted = _on_one_device(small_config, LOSSES["hn_clip"])[1].terms["loss"]
    found = [setting.run(_batch(), steps=steps)[1].terms["loss"] for steps in (1, 2, 3)]
    np.testing.assert_allclose(found, [plain, plain, boosted], rtol=1e-6)
    assert boosted > plain + 1


@pytest.mark.parametrize("loss", [LOSSES["info_nce"], LOSSES["frozen"]], ids=["info_nce", "frozen"])
def test_the_measured_numbers_belong_to_the_step(small_config, loss):
    setting = Setting(small_config, loss, LAYOUTS["mesh 8x1"], micro_batches=2)
    _, output = setting.step(setting.begin(), sharding.put_batch(setting.mesh, _batch()))
    values = {
        name: float(value) for name, value in step.build_measure(setting.recipe)(output, 0).items()
    }
    np.testing.assert_allclose(values["train/scale"], 20.0, rtol=1e-6)
    assert values["train/loss"] == float(output.terms["loss"])
    assert 0 < values["train/g_mean"] < values["train/g_hardest"] <= 1 + 1e-6
    assert values["train/gamma"] == (0.5 if loss.gamma else 0.0)
    if loss.kind == "info_nce":
        np.testing.assert_allclose(values["train/info_nce"], values["train/loss"], rtol=1e-5)


def test_a_step_that_is_not_finite_names_its_rows_and_is_left_out(small_config):
    setting = Setting(
        small_config,
        LOSSES["hn_clip"],
        LAYOUTS["mesh 4x2"],
        optimizer=optax.adam(1e-2),
        skips=True,
    )
    table = np.array(_params(setting.model)["text"]["token_embedding"])
    table[99] = np.nan  # A word that no caption has, but for those that are given it below.
    began = setting.begin()
    text = {**began.params["text"], "token_embedding": jax.device_put(table)}
    began = dataclasses.replace(began, params={**began.params, "text": text})
    before = jax.device_get((began.params, began.opt_state))
    spoilt = _batch()
    spoilt["tokens"][[4, 11], 1] = 99
    spoilt["index"] = spoilt["index"] + 100
    now, output = setting.step(began, sharding.put_batch(setting.mesh, spoilt))
    assert np.isnan(output.terms["loss"])
    assert sorted(np.asarray(output.seen.broken).ravel())[-3:] == [-1, 104, 111]
    assert int(now.step) == 1
    jax.tree.map(np.testing.assert_array_equal, (now.params, now.opt_state), before)
    now, output = setting.step(now, sharding.put_batch(setting.mesh, _batch()))
    assert np.isfinite(output.terms["loss"])
    assert (np.asarray(output.seen.broken) == -1).all()
    assert int(now.step) == 2
    assert float(jnp.abs(now.params["image"]["proj"] - before[0]["image"]["proj"]).max()) > 1e-3
