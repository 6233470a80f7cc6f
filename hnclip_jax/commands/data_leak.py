"""`hnclip data leak`: which pictures and captions of one list are in another."""

import contextlib
import os

from absl import flags

from hnclip_jax import types
from hnclip_jax.commands import data_check, pictures, sources
from hnclip_jax.data import lists
from hnclip_jax.data.checks import clean, leakage, overlap
from hnclip_jax.training import logging

EXAMPLE = "hnclip data leak train.json test.json --fix_out=train_without_test.json"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    text = (
        ("image_root", "", "folder of A's pictures, where its paths do not lead to them"),
        ("image_root_b", "", "folder of B's pictures; empty = that of A's"),
        ("split", "", "rows of A of which split, where it has several"),
        ("split_b", "", "rows of B of which split"),
        ("fix_out", "", "list (JSON) to write: A without the rows that are in B"),
        ("out", "", "file (JSON) to write all matches to; the text shows the first ones"),
    )
    for name, default, what in text:
        flags.DEFINE_string(name, default, what, flag_values=values)
    flags.DEFINE_integer(
        "radius",
        overlap.RADIUS,
        "bits of 128 by which perceptual hashes may differ, before thumbnails are compared",
        lower_bound=0,
        upper_bound=64,
        flag_values=values,
    )
    data_check.define_workers(values)
    pictures.define_flags(values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints what of A is in B; writes A without it if asked."""
    if len(arguments) != 2:
        raise types.UserError(f"needs two lists, A and B; for example: {EXAMPLE}")
    fix_out, out = os.path.expanduser(values.fix_out), os.path.expanduser(values.out)
    if fix_out:
        for path in arguments:
            clean.check_target(fix_out, os.path.expanduser(path))
    a = _read(arguments[0], values.image_root, values.split)
    b = _read(arguments[1], values.image_root_b or values.image_root, values.split_b)
    with contextlib.ExitStack() as stack:
        bars = [
            data_check.bar(stack, what, "picture")
            for what in ("reading A", "reading B", "comparing")
        ]
        found = leakage.find(
            a,
            b,
            options=pictures.options(values),
            radius=values.radius,
            workers=values.workers,
            progress=bars,
        )
    print(found.text())
    if out:
        data_check.write_json(out, found.to_json())
    if fix_out:
        rest = found.rest()
        clean.write(rest, fix_out, a.path)
        logging.say(f"wrote {fix_out}: {len(rest):,} of {len(a.records):,} rows")


def _read(path: str, image_root: str, split: str) -> lists.PictureList:
    path = os.path.expanduser(path)
    with sources.list_bar(path) as progress:
        found = lists.read(
            path,
            image_root=os.path.expanduser(image_root),
            missing="skip",
            empty_caption="skip",
            split=split,
            progress=progress,
        )
    logging.say(sources.describe(found))
    return found
