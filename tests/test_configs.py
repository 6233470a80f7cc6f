"""Every file in configs/ gives a configuration that passes its checks and says how to run it."""

import ast
import importlib.util
import pathlib

import pytest

from hnclip_jax import config, types
from hnclip_jax.models import presets

FILES = sorted((pathlib.Path(__file__).parent.parent / "configs").glob("*.py"))


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_config_is_valid_and_its_header_has_the_command(path):
    settings = config.from_config_dict(_load(path).get_config())
    assert settings.train.steps or settings.train.epochs
    if settings.model.preset:
        presets.from_group(settings.model)
    header = ast.get_docstring(ast.parse(path.read_text()))
    assert f"hnclip train --config=configs/{path.name}" in header


def test_the_paper_s_recipe():
    module = _load(FILES[0].parent / "longclip_l.py")
    for name in module.LISTS:
        made = config.from_config_dict(module.get_config(name))
        assert (made.loss.kind, made.loss.gamma, made.loss.token_weight) == ("hn_clip", 0.5, 1.0)
        assert (made.optim.lr, made.optim.schedule, made.train.epochs) == (2e-6, "cosine", 10)
        assert (made.train.global_batch_size, made.train.micro_batches) == (128, 8)
        assert (made.train.seed, presets.from_group(made.model).context_length) == (42, 248)
    with pytest.raises(types.UserError, match="did you mean 'docci'"):
        module.get_config("doci")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_the_demonstration_starts_from_nothing(path):
    made = config.from_config_dict(_load(path).get_config())
    if path.stem == "demo":
        config.check_start(made.model)
    else:
        assert made.model.init == "weights"
        header = ast.get_docstring(ast.parse(path.read_text()))
        assert "--config.model.weights=PATH" in header


def test_the_demonstration_boosts_in_its_second_phase():
    made = config.from_config_dict(_load(FILES[0].parent / "demo.py").get_config())
    assert 0 < made.loss.gamma_start_step < made.train.steps
    assert made.eval.every_steps % made.log.every_steps == 0
    # The end of the first phase is measured and saved.
    assert made.loss.gamma_start_step % made.eval.every_steps == 0
    assert made.loss.gamma_start_step % made.train.save_every_steps == 0
