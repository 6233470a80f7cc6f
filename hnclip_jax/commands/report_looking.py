"""What `hnclip report` sees of the test list by weights: how alike captions are, and galleries."""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from hnclip_jax import groups
from hnclip_jax.analysis import boost, companions, geometry, queries
from hnclip_jax.analysis.report import cosines, galleries, items
from hnclip_jax.commands import embedding, looking, report_inputs, run_folders
from hnclip_jax.data import lists
from hnclip_jax.training import logging

GAMMA = groups.LossGroup().gamma
"""Of the boost that is looked at."""

_TOP = 5
"""Companions of a caption, and pictures that a model puts first."""


class Looked(NamedTuple):
    """What the page shows of embeddings.

    pictures: the list.
    measured: its captions before and after.
    notes: sentences on the weights.
    galleries: more items than may be shown.
    """

    pictures: lists.PictureList
    measured: list[cosines.Measured]
    notes: list[str]
    galleries: list[galleries.Gallery]


class _Seen(NamedTuple):
    """The list by some weights: image [M, D], text [T, D], and s."""

    weights: report_inputs.Weights
    image: np.ndarray
    text: np.ndarray
    scale: float


def look(values: flags.FlagValues, runs: Sequence[run_folders.Run], names: Sequence[str]) -> Looked:
    """Returns geometry and galleries of the test list, with progress bars.

    Args:
      values: with the flags of `report`.
      runs, names: the runs and what they are called.

    Raises:
      types.UserError: if a run has no weights, or there is no one list.
    """
    report_inputs.check(values, runs)
    weights, notes = report_inputs.find(values, runs, names)
    size = weights[-1].imported.config.image_size
    found = report_inputs.read(values, runs, size)
    seen = [_embed(values, one, found) for one in weights]
    records = found.pictures.records
    pair_ids, owners = lists.pair_ids(records), lists.views(records)[1].positions
    measured = [_measure(one, owners, pair_ids) for one in seen]
    after = [one for one in seen if one.weights.after]
    shown = _galleries(after, found.pictures, pair_ids, values.pictures)
    return Looked(found.pictures, measured, notes, shown)


def _embed(
    values: flags.FlagValues, weights: report_inputs.Weights, found: report_inputs.sources.Found
) -> _Seen:
    loaded = embedding.load(values, weights.imported)
    with _bar(f"embedding by {weights.name}", "row") as progress:
        done = embedding.evaluator(values, loaded, found).embed(loaded.params, progress)
    return _Seen(weights, done.image, done.text, embedding.scale(loaded))


def _measure(one: _Seen, owners: np.ndarray, pair_ids: np.ndarray) -> cosines.Measured:
    with _bar(f"comparing captions, {one.weights.name}", "pair") as progress:
        seen = geometry.measure(one.text, pair_ids, progress)
    train = one.weights.run.settings.train
    solved = boost.count_solved(
        one.image,
        one.text,
        owners,
        pair_ids,
        scale=one.scale,
        gamma=GAMMA,
        size=train.global_batch_size // train.micro_batches,
        seed=0,
    )
    predicted = boost.predict(seen.mean, seen.std, scale=one.scale, gamma=GAMMA, solved=solved)
    return cosines.Measured(one.weights.name, seen, predicted)


def _galleries(
    seen: Sequence[_Seen], pictures: lists.PictureList, pair_ids: np.ndarray, most: int
) -> list[galleries.Gallery]:
    """Returns near-duplicates by the first run; what the others find and it does not, and so on."""
    records = pictures.records
    captions = lists.views(records)[1]
    texts = items.Texts(captions, captions.positions, [record.captions[0] for record in records])
    first = seen[0]
    with _bar("looking for near-duplicates", "caption") as progress:
        near = companions.choose(
            first.text, pair_ids, "hardest", max(most // (1 + _TOP), 1), _TOP, progress=progress
        )
    made = [items.duplicates(first.weights.name, near, texts)]
    models = []
    for one in seen:
        shown = one.weights.name, one.image, one.text
        found = looking.ranked(*shown, captions.positions, pictures.queries, 1)
        models.append(items.Model(*shown, found))
    for direction in queries.DIRECTIONS:
        asking = queries.asking(captions.positions, len(records), pictures.queries, direction)
        wanted = [(by, (models[0], other)) for other in models[1:] for by in queries.PAIRED]
        for by, some in wanted or [("worst", models)]:
            made.append(items.retrieval(by, direction, some, asking, texts, most, _TOP))
    return made


def _bar(what: str, unit: str) -> contextlib.closing[logging.Progress]:
    return contextlib.closing(logging.Progress(what, unit))
