"""`hnclip <command>`: finds the command, parses its flags, turns user mistakes into one line."""

import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Protocol

from absl import flags

from hnclip_jax import types

COMMANDS = {
    "train": "fine-tune a dual encoder on a list of pictures and captions",
    "eval": "recall of given weights on a list or a benchmark",
    "embed": "embeddings of a list, for `hnclip eval --embeddings` and for looking at",
    "compare": "result files side by side, with what papers report",
    "zeroshot": "classification by class names alone: ImageNet, CIFAR, any folder per class",
    "convert": "weights from any layout to any other",
    "inspect": "what a file of weights or a run is",
    "look": "pictures of what training does: geometry, gradients, runs, duplicates, retrieval",
    "report": "one page about runs: results, curves, geometry, galleries, settings, provenance",
    "data": "lists of pictures and captions: scenes, check, stats, leak, pack, benchmarks",
}
"""Name -> what it does; each is a module of hnclip_jax.commands."""


class Command(Protocol):
    """What a module in commands/ offers."""

    EXAMPLE: str
    """How it is typed. Those with actions also have `describe(argv) -> (what, example)`."""

    def define_flags(self, values: flags.FlagValues, argv: list[str]) -> None:
        """Adds the command's flags to `values`."""

    def run(self, values: flags.FlagValues, arguments: list[str]) -> None:
        """Does the work; `arguments` are those that are no flags."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns its exit code: 0 done, else see types.MISTAKE and its like.

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
        code = _complain(name, str(error), error.exit_code)
        return _end(code) if error.at_once else code
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing must be flushed to it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        said = "stopped at once; what was saved before is untouched"
        return _complain(name, said, types.STOPPED)


def _run(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        raise types.unknown_name("command", name, COMMANDS)
    command: Command = importlib.import_module(f"hnclip_jax.commands.{name}")
    values = flags.FlagValues()
    argv = [f"hnclip {name}", *words]
    command.define_flags(values, argv)
    if "--help" in words or "-h" in words:
        what, example = COMMANDS[name], command.EXAMPLE
        if hasattr(command, "describe"):
            what, example = command.describe(argv)
        print(f"hnclip {name}: {what}\n\nExample:\n  {example}\n\nFlags:")
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
    except (flags.Error, OSError) as error:
        # A ValueError inside a config file comes with its whole traceback as text.
        lines = str(error).strip().splitlines()
        plain = lines[-1] if "Traceback" in str(error) else " ".join(" ".join(lines).split())
        raise types.UserError(plain.removeprefix("hnclip_jax.types.UserError: ")) from error
    except Exception as error:
        raise types.UserError(_mistake_in_config(error, argv)) from error


def _mistake_in_config(error: Exception, argv: list[str]) -> str:
    """Returns one line for an error that came up as a config was loaded and its values set."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    name = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {name}: {error.msg}"
    if isinstance(error, AttributeError | KeyError) and "ml_collections" in last.filename:
        return _unknown_setting(str(error.args[0]), argv)
    return f"{last.filename}, line {last.lineno}: {name}: {error}"


def _unknown_setting(complaint: str, argv: list[str]) -> str:
    """Returns one line for what ml_collections says of a key that the config does not have."""
    names = re.findall(r"['\"](\w+)['\"]", complaint)
    typed = (word.split("=")[0] for word in argv if names and f".{names[0]}" in word)
    nearest = re.search(r'Did you mean "(\w+)"', complaint)
    hint = f"did you mean {nearest[1]!r}?" if nearest else "see hnclip_jax/groups for all of them"
    return f"unknown setting {next(typed, complaint)}; {hint}"


def _flags_help(values: flags.FlagValues) -> str:
    lines = []
    for name in values:
        default = values[name].default
        shown = "" if default in (None, "") else f" (default {default})"
        lines.append(f"  --{name}: {values[name].help}{shown}")
    return "\n".join(lines)


def _overview() -> str:
    lines = [f"  {name:<10}{what}" for name, what in COMMANDS.items()]
    return "\n".join(
        ["hnclip <command> [flags]", "", *lines, "", "hnclip <command> --help tells the flags."]
    )


def _complain(name: str, message: str, exit_code: int) -> int:
    print(f"hnclip {name}: {message}", file=sys.stderr)
    return exit_code


def _end(code: int) -> int:
    """Ends the program without waiting for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
