"""`hnclip convert`: weights from any layout to any other."""

import pathlib
import sys

import tqdm
from absl import flags

from hnclip_jax import pretrained, types
from hnclip_jax.commands import reading
from hnclip_jax.weights import export, layouts

EXAMPLE = "hnclip convert longclip-L.pt longclip-L-hf --to=huggingface"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    del argv
    flags.DEFINE_enum("to", "hnclip", list(layouts.LAYOUTS), "layout to write", flag_values=values)
    flags.DEFINE_enum(
        "dtype", "float32", list(export.DTYPES), "type of the tensors to write", flag_values=values
    )
    flags.DEFINE_string(
        "vocabulary",
        "",
        "byte-pair file for the tokenizer of a Hugging Face folder; empty = the installed "
        "package's",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "overwrite", False, "replace files that are there already", flag_values=values
    )
    reading.define_flags(values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Says what was read, writes, and prints the files that were written."""
    if len(arguments) != 2:
        raise types.UserError(f"needs SRC and DST; for example: {EXAMPLE}")
    source, target = (pathlib.Path(argument).expanduser() for argument in arguments)
    if not values.overwrite:
        pretrained.check_target(target, values.to)
    imported = pretrained.read(source, reading.group(values))
    print(imported.account(), file=sys.stderr, flush=True)
    with tqdm.tqdm(
        desc="writing",
        unit="B",
        unit_scale=True,
        total=imported.size(export.DTYPES[values.dtype]),
        disable=not sys.stderr.isatty(),
    ) as progress:
        written = pretrained.convert(
            imported,
            target,
            values.to,
            dtype=values.dtype,
            vocabulary=values.vocabulary,
            progress=progress.update,
        )
    if imported.adapter and values.dtype != "float32":
        lost = imported.rounding(export.DTYPES[values.dtype])
        print(
            f"{values.dtype} rounds away {lost:.1%} of what the adapter changed; float32 keeps all",
            file=sys.stderr,
        )
    for file in written:
        print(file)
