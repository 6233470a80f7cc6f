"""`hnclip data pack`: a list as ArrayRecord shards, for reading faster."""

import contextlib
import os
import time

from absl import flags

from hnclip_jax import types
from hnclip_jax.commands import pictures, sources
from hnclip_jax.data import pack
from hnclip_jax.training import logging

EXAMPLE = "hnclip data pack train.json packed/train --size=224"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    flags.DEFINE_integer(
        "size",
        0,
        "0 = the unchanged picture files; else the side in pixels of ready-cropped pictures, which "
        "are read fastest, fit models of that size only, and take 3 size^2 bytes each",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "shards", 0, "files; 0 = one per half a gigabyte", lower_bound=0, flag_values=values
    )
    sources.define_flags(values, data=False)
    pictures.define_flags(values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Packs, says how fast, and prints the folder.

    Raises:
      types.UserError: if the list or a picture cannot be read, or the folder is in use.
    """
    if len(arguments) != 2:
        raise types.UserError(f"needs LIST and OUT; for example: {EXAMPLE}")
    name, out = arguments
    source = sources.from_flags(values, name)
    found = sources.read(source, part="train", image_size=values.size or 48).pictures
    began = time.perf_counter()
    with contextlib.closing(logging.Progress("packing", "picture")) as progress:
        folder = pack.write(
            found,
            os.path.expanduser(out),
            size=values.size,
            shard_count=values.shards,
            options=pictures.options(values),
            progress=progress,
        )
    rate = len(found.records) / (time.perf_counter() - began)
    logging.say(f"packed {len(found.records):,} records, {rate:,.0f} per second")
    print(folder)
