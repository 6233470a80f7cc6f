"""Checkpoints: bit for bit onto any mesh, never fewer complete ones, errors that are not lost."""

import contextlib
import dataclasses
import resource

import jax
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import checkpoint, optimizer, state

MESHES = {"8 devices": (2, 4), "1 device": (1, 1), "4 devices": (4, 1)}


def _on(layout, values):
    data, fsdp = MESHES[layout]
    mesh = mesh_lib.create(groups.ParallelGroup(data=data, fsdp=fsdp), jax.devices()[: data * fsdp])
    return jax.device_put(values, sharding.state_shardings(mesh, values))


@pytest.fixture(scope="module")
def values(small_config):
    """A whole train state of the small model, no two values of it equal, on the host."""
    model = dual_encoder.create(small_config)
    params = model.abstract_params()
    # AdamW with clipping and frozen parameters: as many kinds of containers as there are.
    optim = groups.OptimGroup(max_grad_norm=1.0, freeze=("^image/class",))
    shapes = jax.eval_shape(
        lambda params: state.TrainState(
            np.int32(0), params, optimizer.build(optim, params, 10).init(params), params["text"]
        ),
        params,
    )
    rng = np.random.default_rng(0)

    def draw(leaf):
        if leaf.dtype == np.int32:
            return np.asarray(rng.integers(1, 1000, leaf.shape), np.int32)
        return np.asarray(rng.normal(size=leaf.shape), leaf.dtype)

    return dataclasses.replace(jax.tree.map(draw, shapes), step=np.int32(7))


def _small(step=1, width=3, **more):
    return state.TrainState(
        np.int32(step), {"a": {"bias": np.full(width, step, np.float32), **more}}, (), None
    )


def _like(values):
    return _on("1 device", values)


@contextlib.contextmanager
def _opened(folder, keep=2):
    with contextlib.closing(checkpoint.Checkpoints(folder, keep)) as found:
        yield found


def _complete(folder):
    return sorted(int(path.parent.name) for path in folder.glob("*/commit_success.txt"))


@contextlib.contextmanager
def _full_disk():
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, unlimited[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)


def _large(step):
    noise = np.random.default_rng(step).normal(size=2**18).astype(np.float32)
    return _on("1 device", state.TrainState(np.int32(step), {"proj": noise}, (), None))


@pytest.mark.parametrize(
    ("saved_on", "restored_on"),
    [("8 devices", "1 device"), ("1 device", "8 devices"), ("8 devices", "4 devices")],
)
def test_a_state_goes_to_another_mesh_bit_for_bit(values, tmp_path, saved_on, restored_on):
    with _opened(tmp_path) as found:
        found.save(_on(saved_on, values), {"best": None})
    wanted = _on(restored_on, jax.tree.map(np.zeros_like, values))
    with _opened(tmp_path) as found:
        restored = found.restore(wanted)
    assert jax.tree.structure(restored) == jax.tree.structure(values)
    jax.tree.map(np.testing.assert_array_equal, restored, values)
    placed = jax.tree.map(
        lambda a, b: (a.sharding, a.dtype) == (b.sharding, b.dtype), restored, wanted
    )
    assert all(jax.tree.leaves(placed))


def test_meta_comes_back_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # A relative folder is no trap either.
    meta = {"best": 12.5, "list_sha256": "ab", "total_steps": 10}
    with _opened("checkpoints") as found:
        assert found.latest_step is None
        found.save(_like(_small(3)), meta)
        found.wait()
        assert found.latest_step == 3
        assert found.meta() == {"schema": checkpoint.SCHEMA, **meta}
        found.save(_like(_small(3)), {"best": 99.0})  # The step is there: nothing happens.
    with _opened("checkpoints") as found:
        assert found.meta()["best"] == 12.5


def test_the_latest_are_kept(tmp_path):
    with _opened(tmp_path, keep=2) as found:
        for step in range(1, 5):
            found.save(_like(_small(step)), {})
    assert _complete(tmp_path) == [3, 4]
    with _opened(tmp_path, keep=2) as found:
        assert found.restore(_like(_small())).params["a"]["bias"].tolist() == [4.0] * 3


@pytest.mark.parametrize("call", ["save", "wait", "close"])
def test_a_save_that_fails_in_the_background_surfaces_at_the_next_call(tmp_path, call):
    found = checkpoint.Checkpoints(tmp_path, keep=1)
    found.save(_large(1), {})
    found.wait()
    with _full_disk():
        found.save(_large(2), {})
        with pytest.raises(types.UserError, match="file too large; earlier checkpoints are unt"):
            {"save": lambda: found.save(_large(3), {}), "wait": found.wait, "close": found.close}[
                call
            ]()
    # keep=1: had the older one been removed before the newer was complete, nothing were left.
    assert _complete(tmp_path) == [1]
    if call != "close":
        with pytest.raises(types.UserError, match="file too large"):
            found.close()
    with _opened(tmp_path, keep=1) as found:
        assert found.latest_step == 1
        found.save(_large(2), {})
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_what_is_no_fault_of_the_disk_is_not_called_so(tmp_path, monkeypatch):
    class Strange:
        def result(self, timeout):
            raise RuntimeError("something else")

    with _opened(tmp_path) as found:
        manager = type(found._manager)
        monkeypatch.setattr(manager, "save_checkpointables_async", lambda *_, **__: Strange())
        found.save(_like(_small(1)), {})
        with pytest.raises(RuntimeError, match="something else"):
            found.wait()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (_small(width=4), r"params/a/bias is \(\(3,\), 'float32'\), needs \(\(4,\), 'float32'\)"),
        (_small(proj=np.zeros(2, np.float32)), "params/a/proj is missing"),
        (
            state.TrainState(np.int32(1), {"a": {"scale": np.zeros(3, np.float32)}}, (), None),
            "params/a/scale is missing; params/a/bias is left over",
        ),
        (
            dataclasses.replace(_small(), params={"a": {"bias": np.zeros(3, np.int32)}}),
            r"params/a/bias is \(\(3,\), 'float32'\), needs \(\(3,\), 'int32'\)",
        ),
    ],
    ids=["shape", "missing", "left over", "dtype"],
)
def test_a_state_that_does_not_fit_is_refused_by_path(tmp_path, wanted, message):
    with _opened(tmp_path) as found:
        found.save(_like(_small()), {})
        found.wait()
        with pytest.raises(types.UserError, match=message):
            found.restore(_like(wanted))


def test_a_newer_schema_is_refused(tmp_path, monkeypatch):
    with _opened(tmp_path) as found:
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "SCHEMA", checkpoint.SCHEMA + 1)
            found.save(_like(_small()), {})
            found.wait()
        with pytest.raises(types.UserError, match=r"has schema 2, this version reads up to 1"):
            found.meta()
