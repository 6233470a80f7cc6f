"""What `hnclip report` embeds: a list, by the weights of runs and by those they began with."""

import dataclasses
import os
from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from hnclip_jax import pretrained, types
from hnclip_jax.commands import embedding, pictures, run_folders, sources

_WITHOUT = "or leave geometry and galleries out by --noembed"
_OF_RUN = ("exif_orientation", "max_pixels", "transparency", "vocabulary")
"""Flags that are as the first run has them in group `data`, unless they are given."""
_START = ("weights", "adapter", "stretch", "activation", "image_size", "context_length")
"""Settings in group `model` that make other weights to begin with."""


class Weights(NamedTuple):
    """Weights that were found; no value is read yet.

    name: what the page calls them.
    imported: what they are.
    run: one that has them, or began with them.
    after: whether the run ended with them.
    """

    name: str
    imported: pretrained.Imported
    run: run_folders.Run
    after: bool


def check(values: flags.FlagValues, runs: Sequence[run_folders.Run]) -> None:
    """Checks what can be checked at once, and takes flags that were not given from the first run.

    Raises:
      types.UserError: if a run has no weights, or the runs were tested on several lists or on none.
    """
    without = [str(run.path) for run in runs if not run.has_weights]
    if without:
        raise types.UserError(
            f"no weights yet in {types.at_most_ten(without)}; wait for the end of the run, "
            f"{_WITHOUT}"
        )
    source(values, runs)
    for name in _OF_RUN:
        if not values[name].present:
            values[name].value = getattr(runs[0].settings.data, name)


def source(values: flags.FlagValues, runs: Sequence[run_folders.Run]) -> sources.Source:
    """Returns which list is embedded: that of --data, or the one that all runs were tested on."""
    if values.data:
        return sources.from_flags(values, values.data)
    lone = [name for name in sources.NAMES if values[name].present]
    if lone:
        raise types.UserError(f"--{lone[0]} says how another list is read; name it by --data")
    said = {}
    for run in runs:
        data, test = run.settings.data, run.settings.eval
        policies = {"missing": data.missing, "empty_caption": data.empty_caption}
        one = sources.Source(test.data, test.root, test.image_root, test.split, **policies)
        said.setdefault(dataclasses.replace(one, missing="", empty_caption=""), one)
    tested = [one for one in said.values() if one.data]
    if len(said) == 1 and tested:
        return tested[0].absolute()
    found = types.at_most_ten([one.data for one in tested])
    raise types.UserError(
        f"the runs were tested on several lists, {found}, or some on none; "
        f"name one by --data, {_WITHOUT}"
        if tested
        else f"no run was tested on a list; name one by --data, {_WITHOUT}"
    )


def find(
    values: flags.FlagValues, runs: Sequence[run_folders.Run], names: Sequence[str]
) -> tuple[list[Weights], list[str]]:
    """Returns the weights, first those that runs began with; and a sentence on each of them.

    Weights to begin with that are not there any more are told of and left out.
    """
    before: dict[tuple, list[int]] = {}
    for place, run in enumerate(runs):
        model = run.settings.model
        key = (model.init, *(getattr(model, name) for name in _START))
        before.setdefault(key, []).append(place)
    found, notes = [], []
    for key, places in before.items():
        run, who = runs[places[0]], ", ".join(names[place] for place in places)
        if key[0] == "random":
            notes.append(f"{who}: began with random weights, so there is no geometry before.")
            continue
        start = run.settings.model.weights
        path = os.path.expanduser(start)
        if not os.path.exists(path):
            notes.append(f"{who}: began with {start}, which is not there, so its geometry is not.")
            continue
        imported = pretrained.read(path, run.settings.model)
        # Read in several ways, they are told apart by their runs.
        twice = sum(start == runs[other[0]].settings.model.weights for other in before.values()) > 1
        name = f"before: {start}" + (f", as of {who}" if twice else "")
        found.append(Weights(name, imported, run, False))
        notes.append(f"{who}: began with {start}.")
    for run, name in zip(runs, names, strict=True):
        found.append(Weights(name, embedding.find(values, str(run.path)), run, True))
    return found, notes


def read(values: flags.FlagValues, runs: Sequence[run_folders.Run], size: int) -> sources.Found:
    """Returns the list, checked.

    Args:
      values: with the flags of `report`.
      runs: whose settings say how the built-in set is drawn.
      size: pixels that it is drawn at.
    """
    drawn, options = runs[0].settings.data, pictures.options(values)
    try:
        return sources.read(source(values, runs), drawn=drawn, image_size=size, options=options)
    except types.UserError as error:
        if values.data:
            raise
        raise types.UserError(f"{error}; name another list by --data, {_WITHOUT}") from error
