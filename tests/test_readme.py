"""What the README tells people to type exists: commands, flags, settings, files."""

import dataclasses
import importlib
import pathlib
import re

import pytest
from absl import flags

from hnclip_jax import cli, config

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("configs/*.py"),
]
TEXT = {page: page.read_text() for page in PAGES}
COMMANDS = [
    (page.name, re.sub(r"\\\n\s*", "", command))
    for page, text in TEXT.items()
    for command in re.findall(r"(?<![`\w])hnclip (?:[a-z]+)(?:[^\n`]|(?<=\\)\n)*", text)
]


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=[f"{page} {i}" for i, (page, _) in enumerate(COMMANDS)]
)
def test_a_command_has_the_flags_it_is_shown_with(page, command):
    _, name, *words = command.split()
    module = importlib.import_module(f"hnclip_jax.commands.{name}")
    assert name in cli.COMMANDS
    values = flags.FlagValues()
    argv = [name, *(word.replace("configs/", f"{ROOT}/configs/") for word in words)]
    module.define_flags(values, argv)
    values(argv)
    if name == "train":
        config.from_config_dict(values.config)


def test_there_are_commands_to_check():
    assert {command.split()[1] for _, command in COMMANDS} >= {"train", "eval"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_and_files_that_are_named_exist(page):
    fields = {
        f"{group.name}.{field.name}"
        for group in dataclasses.fields(config.Config)
        for field in dataclasses.fields(group.type)
    }
    groups = "|".join(group.name for group in dataclasses.fields(config.Config))
    for name in re.findall(
        rf"`(?:--config\.)?((?:{groups})\.(?!safetensors`)[a-z_]+)[=`]", TEXT[page]
    ):
        assert name in fields, name
    for name in re.findall(r"`((?:hnclip_jax|configs|tools|tests)/[\w/]+\.py)", TEXT[page]):
        assert (ROOT / name).exists(), name


def test_every_command_has_an_example_that_runs_it():
    for name in cli.COMMANDS:
        module = importlib.import_module(f"hnclip_jax.commands.{name}")
        assert module.EXAMPLE.startswith(f"hnclip {name} ")
