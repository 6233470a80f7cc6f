"""`hnclip <command>`: finds the command, parses its flags, turns user mistakes into one line."""

import importlib
import sys
from collections.abc import Sequence
from typing import Protocol

from absl import flags

from hnclip_jax import types

COMMANDS = {
    "train": "fine-tune a dual encoder on a list of pictures and captions",
    "eval": "recall of given weights on a list",
    "data": "the built-in data set: `hnclip data scenes --out=DIR`",
}
"""Name -> what it does; each is a module of hnclip_jax.commands."""


class Command(Protocol):
    """What a module in commands/ offers."""

    EXAMPLE: str

    def define_flags(self, values: flags.FlagValues, argv: list[str]) -> None:
        """Adds the command's flags to `values`."""

    def run(self, values: flags.FlagValues, arguments: list[str]) -> None:
        """Does the work; `arguments` are those that are no flags."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns its exit code: 0 done, 2 a mistake or stopped by the user.

    Args:
      argv: the words behind `hnclip`; None = from sys.argv.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if words else 2
    name = words[0]
    try:
        return _run(name, words[1:])
    except types.UserError as error:
        return _complain(name, str(error))
    except KeyboardInterrupt:
        return _complain(name, "stopped at once; what was saved before is untouched")


def _run(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        raise types.unknown_name("command", name, COMMANDS)
    command: Command = importlib.import_module(f"hnclip_jax.commands.{name}")
    values = flags.FlagValues()
    argv = [f"hnclip {name}", *words]
    command.define_flags(values, argv)
    if "--help" in words or "-h" in words:
        print(f"hnclip {name}: {COMMANDS[name]}\n\nExample:\n  {command.EXAMPLE}\n\nFlags:")
        print(_flags_help(values))
        return 0
    command.run(values, _parse(values, argv))
    return 0


def _parse(values: flags.FlagValues, argv: list[str]) -> list[str]:
    try:
        # Data workers look at absl's own flags, which must have been parsed before they start.
        if not flags.FLAGS.is_parsed():
            flags.FLAGS(argv[:1])
        return values(argv)[1:]
    except (flags.Error, AttributeError, KeyError, OSError) as error:
        # ml_collections raises the first for a bad value, the next two for an unknown key, and the
        # last for a config file that is not there.
        text = error.args[0] if error.args else error
        raise types.UserError(" ".join(str(text).split())) from error


def _flags_help(values: flags.FlagValues) -> str:
    lines = []
    for name in values:
        default = values[name].default
        shown = "" if default in (None, "") else f" (default {default})"
        lines.append(f"  --{name}: {values[name].help}{shown}")
    return "\n".join(lines)


def _overview() -> str:
    lines = [f"  {name:<8}{what}" for name, what in COMMANDS.items()]
    return "\n".join(
        ["hnclip <command> [flags]", "", *lines, "", "hnclip <command> --help tells the flags."]
    )


def _complain(name: str, message: str) -> int:
    print(f"hnclip {name}: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
