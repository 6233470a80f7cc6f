"""`hnclip compare`: result files side by side, with what papers report if asked."""

import pathlib

from absl import flags

from hnclip_jax import types
from hnclip_jax.evaluation import comparison, side_by_side
from hnclip_jax.training import logging

EXAMPLE = "hnclip compare plain.json hn.json --published --out=comparison.md"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    del argv
    flags.DEFINE_bool(
        "published", False, "add what papers report on the files' benchmark", flag_values=values
    )
    flags.DEFINE_string("out", "", "Markdown file to write", flag_values=values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints the tables; writes them as Markdown if asked."""
    if not arguments:
        raise types.UserError(f"needs result files; for example: {EXAMPLE}")
    measured = comparison.read(arguments)
    print(side_by_side.report(measured, with_published=values.published))
    if values.out:
        path = pathlib.Path(values.out).expanduser()
        text = side_by_side.report(measured, with_published=values.published, markdown=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", "utf-8")
        except OSError as error:
            raise types.UserError(f"cannot write {path}: {error.strerror}") from error
        logging.say(f"wrote {path}")
