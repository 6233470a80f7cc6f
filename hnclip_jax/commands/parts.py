"""Config -> the parts of a run: model, plan, recipe. Shared by commands and tools."""

import functools
from typing import NamedTuple

import jax

from hnclip_jax import config, groups, pretrained, types
from hnclip_jax.data import images, lists, pipeline, tokenizer
from hnclip_jax.losses import objective
from hnclip_jax.models import dual_encoder
from hnclip_jax.training import logging, loop, optimizer, step


class Start(NamedTuple):
    """What a run starts from.

    model: the model.
    params: its parameters; None = random ones, asked for by name.
    provenance: JSON values that say where they come from.
    """

    model: dual_encoder.DualEncoder
    params: types.Params | None
    provenance: dict[str, str]


def start(group: groups.ModelGroup) -> Start:
    """Returns the model and the parameters to start from, and says which these are.

    Raises:
      types.UserError: if the group names no weights and does not ask for random ones, or does both;
        if the weights do not load.
    """
    config.check_start(group)
    if group.init == "random":
        logging.say(f"starts from random weights: model.init=random, preset {group.preset}")
        return Start(pretrained.from_group(group), None, {"weights": "random"})
    imported = pretrained.read(group.weights, group)
    logging.say(f"starts from {imported.summary()}")
    return Start(*imported.load(group), imported.provenance())


def plan(settings: config.Config, pairs: int) -> loop.Plan:
    """Returns when things happen in a run over a list of `pairs` pairs.

    Raises:
      types.UserError: if neither steps nor epochs are set.
    """
    train, evaluation = settings.train, settings.eval
    per_epoch = max(pairs // train.global_batch_size, 1)
    total = train.steps or train.epochs * per_epoch
    if not total:
        raise types.UserError("the run has no length: set train.steps or train.epochs")
    return loop.Plan(
        total_steps=total,
        pairs_per_step=train.global_batch_size,
        log_every=settings.log.every_steps,
        eval_every=evaluation.every_steps or evaluation.every_epochs * per_epoch,
        save_every=train.save_every_steps,
        best_metric=train.best_metric,
    )


def recipe(
    settings: config.Config, encoder: dual_encoder.DualEncoder, total_steps: int
) -> step.Recipe:
    """Returns what the train step computes."""
    shapes = encoder.abstract_params()
    return step.Recipe(
        model=encoder,
        objective=objective.build(settings.loss, settings.method),
        optimizer=optimizer.build(settings.optim, shapes, total_steps),
        trained=optimizer.trained(settings.optim, shapes),
        seed=settings.train.seed,
        max_scale=settings.optim.max_logit_scale,
        micro_batches=settings.train.micro_batches,
        hold=functools.partial(optimizer.hold_positions, settings.optim),
    )


def load_pair(
    pictures: lists.PictureList,
    encoder: dual_encoder.DualEncoder,
    tokenize: tokenizer.Tokenizer,
    options: images.Options = images.DEFAULT,
) -> tuple[pipeline.LoadPair, int]:
    """Returns what loads one training pair of a list, and how many pairs there are."""
    records = pictures.records
    pictures_of, captions = lists.views(records)
    load = pipeline.LoadPair(
        pipeline.LoadImage(pictures_of, encoder.config.image_size, options),
        pipeline.LoadText(captions, tokenize, encoder.config.context_length),
        lists.pair_ids(records),
    )
    return load, len(captions)


def share() -> pipeline.Share:
    """Returns the part of the data that this process reads."""
    return pipeline.Share(jax.process_index(), jax.process_count())
