"""`hnclip data <action>`: finds the action's file, commands/data_<action>.py."""

import importlib
import types as module_types

from absl import flags

from hnclip_jax import types

ACTIONS = {
    "check": "preflight: what in a list would stop or spoil a run; can write a clean list",
    "stats": "how long captions are, and which are nearly the same",
    "leak": "pictures and captions of one list that are in another",
    "pack": "a list as ArrayRecord shards, which are read faster",
    "scenes": "draws the built-in data set",
    "benchmarks": "which benchmarks are known, and what each is loaded from",
}
"""Action -> what it does; each is a module with EXAMPLE, define_flags and run, as a command is."""

EXAMPLE = "\n  ".join(
    (
        "hnclip data check train.json --fix_out=clean.json",
        "hnclip data stats train.json --weights=longclip-L.pt",
        "hnclip data leak train.json test.json --fix_out=train_without_test.json",
        "hnclip data pack train.json packed/train",
        "hnclip data scenes --out=data/scenes --train=20000 --test_families=300",
        "hnclip data benchmarks",
        "hnclip data check --help        tells the flags of an action",
    )
)


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the flags of the action, which is the first word that is no flag."""
    action = _action(argv)
    if action in ACTIONS:
        _module(action).define_flags(values, argv)


def describe(argv: list[str]) -> tuple[str, str]:
    """Returns what the action that is named does, and an example; of all actions if none is."""
    action = _action(argv)
    if action in ACTIONS:
        return f"{action}: {ACTIONS[action]}", _module(action).EXAMPLE
    return "; ".join(f"{name}: {what}" for name, what in ACTIONS.items()), EXAMPLE


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Does what the action says, with the words behind it."""
    if not arguments:
        raise types.UserError(
            f"needs an action: {', '.join(ACTIONS)}; for example: {_module('check').EXAMPLE}"
        )
    action, *rest = arguments
    if action not in ACTIONS:
        raise types.unknown_name("action", action, ACTIONS)
    _module(action).run(values, rest)


def _action(argv: list[str]) -> str | None:
    return next((word for word in argv[1:] if not word.startswith("-")), None)


def _module(action: str) -> module_types.ModuleType:
    return importlib.import_module(f"hnclip_jax.commands.data_{action}")
