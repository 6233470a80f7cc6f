"""Commands with actions, `hnclip data check`: finds the action's file, data_check.py."""

import importlib
import types as module_types
from collections.abc import Mapping

from absl import flags

from hnclip_jax import types


class Actions:
    """What a command with actions offers to the command line; see cli.Command."""

    def __init__(self, command: str, actions: Mapping[str, str]) -> None:
        """Names the command, and its actions: name -> what it does.

        Each action is a module commands/<command>_<action>.py with EXAMPLE, define_flags and run,
        as a command is.
        """
        self._command, self._actions = command, actions

    def define_flags(self, values: flags.FlagValues, argv: list[str]) -> None:
        """Adds the flags of the action, which is the first word that is no flag."""
        action = _action(argv)
        if action in self._actions:
            self._module(action).define_flags(values, argv)

    def describe(self, argv: list[str], example: str) -> tuple[str, str]:
        """Returns what the action that is named does, and an example; of all if none is."""
        action = _action(argv)
        if action in self._actions:
            return f"{action}: {self._actions[action]}", self._module(action).EXAMPLE
        return "; ".join(f"{name}: {what}" for name, what in self._actions.items()), example

    def run(self, values: flags.FlagValues, arguments: list[str]) -> None:
        """Does what the action says, with the words behind it."""
        if not arguments:
            first = next(iter(self._actions))
            raise types.UserError(
                f"needs an action: {', '.join(self._actions)}; for example: "
                f"{self._module(first).EXAMPLE}"
            )
        action, *rest = arguments
        if action not in self._actions:
            raise types.unknown_name("action", action, self._actions)
        self._module(action).run(values, rest)

    def _module(self, action: str) -> module_types.ModuleType:
        return importlib.import_module(f"hnclip_jax.commands.{self._command}_{action}")


def _action(argv: list[str]) -> str | None:
    return next((word for word in argv[1:] if not word.startswith("-")), None)
