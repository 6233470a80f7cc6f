"""What a run starts from: the weights that are named, or random ones that are asked for."""

import hashlib
import json

import jax
import numpy as np
import pytest

from hnclip_jax import config, groups, pretrained, types
from hnclip_jax.commands import parts
from hnclip_jax.models import dual_encoder
from hnclip_jax.training import state

FROM = ("--config.model.init=weights", "--config.model.weights={}")


@pytest.fixture(scope="module")
def saved(small_config, tmp_path_factory):
    """Weights of the small model, no two values equal: the file, and the parameters in it."""
    rng = np.random.default_rng(0)
    encoder = dual_encoder.create(small_config)
    params = jax.tree.map(
        lambda leaf: np.asarray(rng.normal(size=leaf.shape), np.float32), encoder.abstract_params()
    )
    return pretrained.save(tmp_path_factory.mktemp("start") / "weights", encoder, params), params


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--config.model.init=weights"], "set model.weights=PATH, or model.init=random"),
        (["--config.model.init=runs/old"], "unknown value of model.init 'runs/old'"),
        (["--config.model.weights=a.pt"], "set model.init=weights to start from them"),
        (["--config.model.stretch=248"], "model.stretch is 248, but"),
        (["--config.model.activation=gelu"], "model.activation is 'gelu', but"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_start_that_is_not_said_or_said_twice(quick, train, words, part):
    assert part in train(*words).one_line()
    assert not quick.rows


def test_weights_that_lie_about_are_not_taken_for_those_that_are_not_named(
    quick, train, saved, monkeypatch
):
    monkeypatch.chdir(saved[0].parent.parent)
    assert "none are named" in train("--config.model.init=weights").one_line()
    assert not quick.rows


def test_a_run_says_which_weights_it_starts_from(quick, train, saved):
    file, _ = saved
    ran = train(*(word.format(file.parent) for word in FROM))
    assert ran.code == 0, ran.err
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    lines = [line for line in ran.err.splitlines() if line.startswith("starts from")]
    assert lines == [f"starts from {file}: hnclip_jax, 78 tensors, SHA-256 {digest}"]


def test_a_run_says_that_it_starts_from_nothing(quick, train):
    ran = train()
    assert ran.code == 0, ran.err
    lines = [line for line in ran.err.splitlines() if line.startswith("starts from")]
    assert lines == ["starts from random weights: model.init=random, preset small"]


def test_the_run_gets_the_parameters_of_the_file(quick, train, saved, monkeypatch):
    given = []
    create = quick.create

    def seeing(*args, params, **kwargs):
        given.append(params)
        return create(*args, **kwargs)

    monkeypatch.setattr(state, "create", seeing)
    assert train(*(word.format(saved[0]) for word in FROM)).code == 0
    assert train(workdir="random").code == 0
    jax.tree.map(np.testing.assert_array_equal, given[0], saved[1])
    assert given[1] is None


def test_a_run_goes_on_with_the_weights_it_began_with_only(quick, train, saved, tmp_path):
    file, _ = saved
    assert train(*(word.format(file) for word in FROM), "--stop_after=2").code == 0
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (kept["model"]["init"], kept["model"]["weights"]) == ("weights", str(file))
    message = train(*(word.format(file.parent) for word in FROM)).one_line()
    assert f"model.weights was {str(file)!r}, is {str(file.parent)!r}" in message
    assert train(*(word.format(file) for word in FROM)).code == 0


def test_tools_cannot_go_round_the_check():
    with pytest.raises(types.UserError, match="none are named"):
        parts.start(config.Config().model)
    with pytest.raises(types.UserError, match=r"names 'a\.pt'"):
        parts.start(groups.ModelGroup(init="random", weights="a.pt"))
