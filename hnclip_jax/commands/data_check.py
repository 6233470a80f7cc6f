"""`hnclip data check`: reads all that a list names, once, and says what is wrong with it."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

from absl import flags

from hnclip_jax import types
from hnclip_jax.commands import pictures, sources
from hnclip_jax.data import tokenizer
from hnclip_jax.data.checks import clean, findings, preflight, texts, workers
from hnclip_jax.evaluation import protocol
from hnclip_jax.training import logging

EXAMPLE = "hnclip data check train.json --fix_out=clean.json"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    text = (
        ("image_root", "", "folder of the pictures, where the list's paths do not lead to them"),
        (
            "fix_out",
            "",
            "list (JSON) to write, without what is at fault; repeated and long captions stay. The "
            "exit code is 2 if there are faults, 0 if there are none or only notes",
        ),
        ("out", "", "file (JSON) to write all findings to; the text shows the first ones"),
        ("vocabulary", "", "byte-pair vocabulary file; empty = the installed package's"),
    )
    for name, default, what in text:
        flags.DEFINE_string(name, default, what, flag_values=values)
    flags.DEFINE_list(
        "contexts", list(map(str, texts.CONTEXTS)), "text lengths, in tokens", flag_values=values
    )
    flags.DEFINE_integer(
        "image_size",
        224,
        "pixels that pictures are resized to in the end",
        lower_bound=1,
        flag_values=values,
    )
    define_workers(values)
    pictures.define_flags(values)


def define_workers(values: flags.FlagValues) -> None:
    """Adds the flag of actions that read with all cores."""
    flags.DEFINE_integer(
        "workers",
        workers.ALL_CORES,
        f"processes that read; -1 = one per core (none below {workers.FEW} pictures), 0 = this one",
        lower_bound=workers.ALL_CORES,
        flag_values=values,
    )


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints the findings; writes the clean list if asked.

    Raises:
      types.UserError: if the list has faults, after they were printed.
    """
    if len(arguments) != 1:
        raise types.UserError(f"needs one LIST; for example: {EXAMPLE}")
    path = os.path.expanduser(arguments[0])
    fix_out, out = os.path.expanduser(values.fix_out), os.path.expanduser(values.out)
    if fix_out:
        clean.check_target(fix_out, path)
    with contextlib.ExitStack() as stack:
        bars = [
            bar(stack, what, unit)
            for what, unit in (("reading pictures", "picture"), ("counting tokens", "caption"))
        ]
        found = preflight.check(
            path,
            tokenizer.Tokenizer(os.path.expanduser(values.vocabulary) or None),
            image_root=os.path.expanduser(values.image_root),
            options=pictures.options(values),
            size=values.image_size,
            contexts=contexts(values.contexts),
            workers=values.workers,
            list_progress=stack.enter_context(sources.list_bar(path)),
            picture_progress=bars[0],
            caption_progress=bars[1],
        )
    print(found.text())
    if out:
        write_json(out, found.to_json())
    if fix_out and not found.not_utf8:
        clean.write(found.clean, fix_out, path)
        logging.say(f"wrote {fix_out}: {len(found.clean):,} of {found.rows:,} rows")
    _judge(found, fix_out)


def bar(stack: contextlib.ExitStack, what: str, unit: str) -> Callable[[int, int], None]:
    """Returns the progress of one of several works that follow each other.

    It ends with its work: the bar of the next would else be drawn below one that still moves.
    """
    progress = stack.enter_context(contextlib.closing(logging.Progress(what, unit)))

    def move(done: int, total: int) -> None:
        progress(done, total)
        if done == total:
            progress.close()

    return move


def contexts(words: list[str]) -> tuple[int, ...]:
    """Returns text lengths, ascending.

    Raises:
      types.UserError: if a word is no number, or a length has no room for a word.
    """
    if not words or not all(word.strip().isdecimal() and int(word) > 2 for word in words):
        raise types.UserError(
            f"contexts are {','.join(words)!r}, but must be numbers of tokens above 2, such as "
            "77,248"
        )
    return tuple(sorted({int(word) for word in words}))


def write_json(path: str, content: dict[str, Any]) -> None:
    """Writes a result file, and says so.

    Raises:
      types.UserError: if it cannot be written.
    """
    protocol.write_json(path, content)
    logging.say(f"wrote {path}")


def _judge(found: findings.Findings, fix_out: str) -> None:
    faults = found.faults()
    if not faults:
        return
    hint = "mend them, or write a list without them by --fix_out=FILE"
    if found.not_utf8:
        hint = "save it as UTF-8, then check it again"
    elif fix_out:
        hint = f"train on {fix_out}"
    named = ", ".join(f"{count:,} {what}" for what, count in faults.items())
    raise types.UserError(f"{found.path} has {named}; {hint}")
