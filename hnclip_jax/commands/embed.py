"""`hnclip embed`: the embeddings of a list, to be measured, compared and looked at later."""

import dataclasses
import os
import pathlib

import jax
from absl import flags

from hnclip_jax import types
from hnclip_jax.commands import embedding, sources
from hnclip_jax.evaluation import cache
from hnclip_jax.training import logging

EXAMPLE = "hnclip embed --weights=runs/demo --data=data/scenes/test.json --out=embeddings/demo"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    del argv
    embedding.define_flags(values)
    flags.DEFINE_string("out", None, "folder to write, made if need be", flag_values=values)
    flags.DEFINE_boolean("overwrite", False, "an older folder of ours may go", flag_values=values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Embeds, and prints the folder."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; flags begin with --")
    if not values.weights or not values.data or not values.out:
        raise types.UserError(f"needs --weights, --data and --out; for example: {EXAMPLE}")
    out = pathlib.Path(os.path.expanduser(values.out))
    cache.check_target(out, values.overwrite)
    embedded = embedding.embed(values)
    if jax.process_index() == 0:
        source = dataclasses.asdict(sources.from_flags(values))
        cache.write(out, embedded, overwrite=values.overwrite, **source)
        logging.say(f"{len(embedded.image):,} pictures, {len(embedded.text):,} captions")
        print(out)
