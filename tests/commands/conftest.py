"""What the tests of commands share: a training whose arithmetic costs nothing."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import pretrained
from hnclip_jax.evaluation import protocol
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import sharding
from hnclip_jax.training import recipe as recipe_lib
from hnclip_jax.training import state, step
from tests.commands import report_cases
from tools import report_runs


class Quick:
    """Stands in for the arithmetic of a run, and sees what it is given.

    weight: what the steps count up.
    rows: the rows of every batch, in the order of the steps.
    before_step: called with the number of a step before it is done.
    evaluations: errors that evaluations raise one after the other; None = none.
    """

    def __init__(self):
        self.weight = jnp.zeros(3)
        self.rows, self.evaluations = [], []
        self.before_step = lambda number: None

    def create(self, model, optimizer, mesh, **_):
        start = state.TrainState(jnp.int32(0), {"weight": self.weight}, (), None)
        return jax.device_put(start, sharding.replicated(mesh))

    def build(self, recipe, mesh, mapper):
        def run(now, batch):
            self.before_step(int(now.step) + 1)
            self.rows.append(np.asarray(batch["index"]).tolist())
            params = jax.tree.map(lambda leaf: leaf + 1, now.params)
            seen = recipe_lib.Seen(None, None, None, None, np.array([-1]))
            output = step.StepOutput({"loss": jnp.float32(1)}, jnp.float32(1), jnp.float32(1), seen)
            return dataclasses.replace(now, step=now.step + 1, params=params), output

        return run

    def build_measure(self, recipe):
        return lambda output, number: {"train/loss": output.terms["loss"], "train/gamma": 0.0}

    def evaluator(self, *_, **__):
        def evaluate(params):
            error = self.evaluations.pop(0) if self.evaluations else None
            if error:
                raise error
            return protocol.Result({"t2i_r@1": float(params["weight"][0])}, {})

        return evaluate


@pytest.fixture
def quick(monkeypatch):
    """Replaces state, step and evaluation by next to nothing; the rest of the command is real."""
    stand_in = Quick()
    monkeypatch.setattr(state, "create", stand_in.create)
    monkeypatch.setattr(step, "build", stand_in.build)
    monkeypatch.setattr(step, "build_measure", stand_in.build_measure)
    monkeypatch.setattr(protocol, "Evaluator", stand_in.evaluator)
    return stand_in


STEPS = 6
"""Length of the runs of the `train` fixture."""


@pytest.fixture
def own_set(drawn, tmp_path):
    """A copy of the drawn set that a test may spoil: its training list."""
    shutil.copytree(drawn[0].parent, tmp_path / "set")
    return tmp_path / "set" / "train.json"


@pytest.fixture
def train(hnclip, write_config, own_set, tmp_path):
    """Runs `hnclip train` on the own set: (words, workdir) -> Ran."""
    path = write_config(
        tmp_path / "run_config.py", {"data.train": str(own_set), "train.steps": STEPS}
    )
    return lambda *words, workdir="run": hnclip(
        "train", f"--config={path}", f"--workdir={tmp_path / workdir}", *words
    )


@pytest.fixture(scope="module")
def weights(small_config, tmp_path_factory):
    """A small model, its random parameters, and the file of them."""
    model = dual_encoder.create(small_config)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(1)))
    return model, params, pretrained.save(tmp_path_factory.mktemp("w") / "w", model, params)


@pytest.fixture(scope="module")
def made_runs(tmp_path_factory):
    """Three made runs of a benchmark, over 16 pictures; all captions are hostile."""
    folder = tmp_path_factory.mktemp("made")
    return report_runs.write(
        folder,
        pictures=16,
        size=(60, 40),
        benchmark="docci_goal",
        prefix=report_cases.HOSTILE,
    )


@pytest.fixture
def own_runs(made_runs, tmp_path):
    """A copy that a test may spoil; the list stays where it is."""
    return [shutil.copytree(path, tmp_path / "runs" / path.name) for path in made_runs]
