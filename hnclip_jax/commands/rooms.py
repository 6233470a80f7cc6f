"""What the training loop is given by a run's settings: batches, evaluation, the weights folder."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from hnclip_jax import added as added_lib
from hnclip_jax import config, pretrained, types
from hnclip_jax.commands import parts, sources
from hnclip_jax.commands import pictures as pictures_lib
from hnclip_jax.data import grouping, images, lists, neighbours, pipeline, tokenizer
from hnclip_jax.evaluation import protocol
from hnclip_jax.parallel import agreement, sharding
from hnclip_jax.training import folder, logging, state
from hnclip_jax.training import recipe as recipe_lib


@dataclasses.dataclass(frozen=True)
class Job:
    """What is settled before the first step."""

    settings: config.Config
    folder: folder.RunFolder
    mesh: jax.sharding.Mesh
    recipe: recipe_lib.Recipe
    load: pipeline.LoadPair
    pictures: lists.PictureList
    test: sources.Found | None
    provenance: dict[str, str]


def loader(
    settings: config.Config, recipe: recipe_lib.Recipe, pictures: lists.PictureList
) -> pipeline.LoadPair:
    """Returns what loads a training pair, and all else that the objective needs.

    Raises:
      types.UserError: if the list has nothing of that.
    """
    return parts.load_pair(
        pictures,
        recipe.model,
        tokenizer.Tokenizer(settings.data.vocabulary or None),
        pictures_lib.options(settings.data),
        recipe.objective.inputs,
        settings.method,
    )[0]


def batches(job: Job) -> Callable[[int], Iterator[types.Batch]]:
    """Returns a function of the first step that yields global batches for ever."""
    data, train = job.settings.data, job.settings.train
    order = _order(job)

    def begin(start_step: int) -> Iterator[types.Batch]:
        rows = pipeline.training(
            job.load,
            job.pictures.report.pairs,
            seed=train.seed,
            batch_size=train.global_batch_size,
            start_step=start_step,
            share=parts.share(),
            workers=data.workers,
            order=order,
        )
        return (sharding.put_batch(job.mesh, row) for row in rows)

    return begin


def _order(job: Job) -> pipeline.Order | None:
    """Returns the order of the training rows; None = shuffled, without groups."""
    data, train = job.settings.data, job.settings.train
    if data.grouping == "none":
        return None
    parts_of = train.micro_batches * job.mesh.local_mesh.size if train.micro_batches > 1 else 1
    grouping.check(data.group_size, train.global_batch_size // parts_of)
    pair_ids, wanted = job.load.pair_ids, grouping.PER_MEMBER * (data.group_size - 1)
    with contextlib.closing(logging.Progress("nearest captions", "caption")) as progress:
        rows, cosines = neighbours.find(job.load.text.captions, pair_ids, wanted, progress)
    agreement.check(
        {"SHA-256 of the nearest captions": hashlib.sha256(rows).hexdigest()},
        "give every process the same list and the same version of numpy",
    )
    near = cosines[rows >= 0]
    logging.say(
        f"groups of {data.group_size} near-duplicate captions: of the {wanted} nearest by words "
        f"the median cosine is {np.median(near):.2f}"
        if near.size
        else f"groups of {data.group_size} captions, at random: none has others to be near to"
    )
    return grouping.Order(grouping.Groups(rows, pair_ids, data.group_size, train.seed))


def name_of(job: Job) -> Callable[[int], str]:
    """Returns a function that says which pair of the training list a number is."""
    return lambda row: f"{row} ({images.name(job.load.image.paths[row])})"


def evaluate(job: Job) -> Callable[[state.TrainState], dict[str, float]]:
    """Returns a function that measures recall on the test list, and writes its result file."""
    evaluator = protocol.Evaluator(
        job.recipe.model,
        job.test.pictures,
        job.mesh,
        job.settings.eval,
        tokenize=tokenizer.Tokenizer(job.settings.data.vocabulary or None),
        workers=job.settings.data.workers,
        options=pictures_lib.options(job.settings.data),
        benchmark=job.test.benchmark,
    )
    model_params = _model_params(job)

    def measure(now: state.TrainState) -> dict[str, float]:
        result = evaluator(model_params(now))
        if jax.process_index() == 0:
            number = int(now.step)
            protocol.write(job.folder.eval_file(number), result, step=number)
        return {f"eval/{name}": value for name, value in result.metrics.items()}

    return measure


def _model_params(job: Job) -> Callable[[state.TrainState], types.Params]:
    """Returns a function that gives what the model computes with, placed as the state is."""
    start = job.recipe.start
    if not job.settings.method.adapter:
        return lambda now: start.model_params(now.params, None)
    place = sharding.state_shardings(job.mesh, start.model.abstract_params())
    merge = jax.jit(start.model_params, out_shardings=place)
    return lambda now: merge(now.params, now.base)


def save_weights(job: Job) -> Callable[[state.TrainState, dict], None]:
    """Returns a function that writes the weights folder: the whole model, adapters merged."""
    start, everywhere = job.recipe.start, sharding.replicated(job.mesh)
    whole = jax.jit(start.model_params, out_shardings=everywhere)
    small = jax.jit(lambda added: added, out_shardings=everywhere)

    def save(now: state.TrainState, note: dict) -> None:
        params = whole(now.params, now.base)
        added = small({name: now.params.get(name, {}) for name in ("adapter", "method")})
        if jax.process_index() != 0:
            return
        pictures = job.pictures
        note = {
            **note,
            "list": pictures.path,
            "list_sha256": pictures.sha256,
            "pairs": pictures.report.pairs,
            "start": job.provenance,
        }
        params, added = jax.device_get((params, added))
        # The model comes last: a run whose folder has it is complete.
        _save_added(job, added, params, note)
        pretrained.save(job.folder.weights, job.recipe.model, params, note=note)

    return save


def _save_added(job: Job, added: types.Params, params: types.Params, note: dict[str, Any]) -> None:
    """Writes what the run trained beside the model: the adapter, parameters of the method."""
    method = job.settings.method
    if added["adapter"]:
        pretrained.save_adapter(
            job.folder.weights,
            added["adapter"],
            alpha=method.adapter_alpha,
            logit_scale=params["logit_scale"],
            base=job.provenance,
            group=job.settings.model,
            note=note,
        )
    if added["method"]:
        added_lib.save_method(job.folder.weights, method.name, added["method"], note)
