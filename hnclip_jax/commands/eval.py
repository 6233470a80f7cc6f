"""`hnclip eval`: recall of given weights on a list, with the protocol it was measured by."""

import contextlib
import pathlib

import jax
from absl import flags

from hnclip_jax import groups, pretrained, types
from hnclip_jax.commands import reading, sources
from hnclip_jax.data import tokenizer
from hnclip_jax.evaluation import protocol
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import logging

EXAMPLE = "hnclip eval --weights=runs/demo --data=data/scenes/test.json --out=result.json"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    del argv
    text = (
        ("weights", None, "run folder, or weights in any layout that `hnclip inspect` knows"),
        ("data", None, "list of pictures and captions, or 'scenes'"),
        ("image_root", "", "folder of the pictures, where the list's paths do not lead to them"),
        ("out", "", "result file (JSON) to write"),
        ("vocabulary", "", "byte-pair vocabulary file; empty = the installed package's"),
    )
    for name, default, what in text:
        flags.DEFINE_string(name, default, what, flag_values=values)
    choices = (
        ("missing", "error", ("error", "skip"), "what a missing picture does"),
        ("empty_caption", "error", ("error", "skip", "keep"), "what an empty caption does"),
        ("dtype", "float32", ("float32", "bfloat16"), "compute type of the towers"),
    )
    for name, default, valid, what in choices:
        flags.DEFINE_enum(name, default, valid, what, flag_values=values)
    numbers = (
        ("batch_size", 128, "pairs embedded at once, over all devices"),
        ("workers", 0, "processes that decode pictures; 0 = this one"),
    )
    for name, default, what in numbers:
        flags.DEFINE_integer(name, default, what, lower_bound=0, flag_values=values)
    reading.define_flags(values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints a table of recall; writes the result file if asked."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; flags begin with --")
    if not values.weights or not values.data:
        raise types.UserError(f"needs --weights and --data; for example: {EXAMPLE}")
    group = reading.group(values, dtype=values.dtype)
    imported = pretrained.read(values.weights, group)
    logging.say(imported.summary())
    model, params = imported.load(group)
    data = groups.DataGroup(missing=values.missing, empty_caption=values.empty_caption)
    pictures = sources.read_list(
        values.data,
        "test",
        data,
        image_root=values.image_root,
        image_size=model.config.image_size,
    )
    mesh = mesh_lib.create(groups.ParallelGroup())
    evaluator = protocol.Evaluator(
        model,
        pictures,
        mesh,
        groups.EvalGroup(batch_size=_fitting(values.batch_size, mesh.size)),
        tokenize=tokenizer.Tokenizer(values.vocabulary or None),
        workers=values.workers,
    )
    params = jax.device_put(params, sharding.state_shardings(mesh, params))
    with contextlib.closing(logging.Progress("embedding", "row")) as progress:
        result = evaluator(params, progress)
    print(protocol.table(result))
    if values.out:
        protocol.write(pathlib.Path(values.out), result, **imported.provenance())
        logging.say(f"wrote {values.out}")


def _fitting(batch_size: int, devices: int) -> int:
    """Returns the next larger batch that the devices divide: padding makes any size right."""
    return -(-max(batch_size, 1) // devices) * devices
