"""The run folder: to whom it belongs, and what a run may be continued with."""

import dataclasses
import json

import pytest

from hnclip_jax import config, types
from hnclip_jax.training import folder


def _with(**groups):
    return config.from_config_dict(groups)


@pytest.fixture
def begun(tmp_path):
    """A run folder in which the default configuration has been at work."""
    found = folder.RunFolder(tmp_path / "run")
    found.check(config.Config())
    found.claim(config.Config())
    found.metrics.write_text('{"step": 1}\n')
    return found


def test_a_new_and_an_empty_folder_are_free(tmp_path):
    folder.RunFolder(tmp_path / "deep" / "new").check(config.Config())
    folder.RunFolder(tmp_path).check(config.Config())
    assert list(tmp_path.iterdir()) == []


def test_a_claimed_folder_holds_the_configuration_alone(tmp_path):
    found = folder.RunFolder(tmp_path / "deep" / "new")
    wanted = _with(optim={"freeze": ["^image/"]}, eval={"ks": [1, 3]})
    found.claim(wanted)
    assert config.from_json(found.config.read_text()) == wanted
    assert [path.name for path in found.path.iterdir()] == ["config.json"]
    found.check(wanted)


@pytest.mark.parametrize(
    "groups",
    [
        {"parallel": {"fsdp": 8}},
        {"log": {"every_steps": 7}},
        {"eval": {"batch_size": 64}},
        {"data": {"workers": 4}},
        {"data": {"image_root": "/elsewhere"}},
        {"model": {"remat": "full"}},
        {"train": {"save_every_steps": 9}},
        {"train": {"keep_checkpoints": 9}},
    ],
    ids=str,
)
def test_what_changes_no_number_may_change(begun, groups):
    begun.check(_with(**groups))


@pytest.mark.parametrize(
    ("groups", "part"),
    [
        ({"train": {"seed": 1}}, "train.seed was 42, is 1"),
        ({"data": {"split": "val"}}, "data.split was '', is 'val'"),
        ({"model": {"dtype": "bfloat16"}}, "model.dtype was 'float32', is 'bfloat16'"),
        ({"model": {"weights": "b.pt"}}, "model.weights was '', is 'b.pt'"),
        ({"loss": {"gamma": 0.1}}, "loss.gamma was 0.5, is 0.1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_changes_numbers_may_not(begun, groups, part):
    before = begun.config.read_text()
    with pytest.raises(types.UserError) as caught:
        begun.check(_with(**groups))
    assert part in str(caught.value)
    assert begun.config.read_text() == before


def test_every_setting_that_may_change_is_one():
    names = [
        f"{group.name}.{field.name}"
        for group in dataclasses.fields(config.Config)
        for field in dataclasses.fields(group.type)
    ]
    for allowed in folder.MAY_CHANGE:
        assert any(name.startswith(allowed) for name in names), allowed


@pytest.mark.parametrize("trace", ["metrics", "checkpoint"])
def test_only_a_run_that_has_begun_holds_its_folder(tmp_path, trace):
    found = folder.RunFolder(tmp_path)
    found.claim(config.Config())
    found.metrics.write_text("")
    found.checkpoints.mkdir()
    other = _with(train={"seed": 1})
    found.check(other)
    if trace == "metrics":
        found.metrics.write_text('{"step": 1}\n')
    else:
        (found.checkpoints / "20").mkdir()
    with pytest.raises(types.UserError, match=r"train\.seed was 42, is 1"):
        found.check(other)


@pytest.mark.parametrize("content", ["", "{", json.dumps({"train": {"stepz": 1}})])
def test_a_config_that_is_none_is_one_line(begun, content):
    begun.config.write_text(content)
    with pytest.raises(types.UserError, match=r"cannot read .*config\.json") as caught:
        begun.check(config.Config())
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(types.UserError, match=r"cannot write to .*; choose another --workdir"):
        folder.RunFolder(tmp_path / "file" / "run").claim(config.Config())


def test_paths_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder.RunFolder("run").checkpoints == tmp_path / "run" / "checkpoints"
    assert folder.RunFolder("~/run").path == tmp_path / "home" / "run"
    assert folder.RunFolder("run").eval_file(7).name == "step_00000007.json"
