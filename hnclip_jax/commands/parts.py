"""Config -> the parts of a run: model, plan, recipe. Shared by commands and tools."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax

from hnclip_jax import config, groups, pretrained, types
from hnclip_jax.data import images, inputs, lists, pipeline, tokenizer
from hnclip_jax.losses import objective, terms
from hnclip_jax.models import dual_encoder
from hnclip_jax.training import logging, loop, optimizer, state
from hnclip_jax.training import recipe as recipe_lib


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
    per_epoch = steps_per_epoch(settings, pairs)
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
        skip_limit=train.skip_nonfinite_steps,
        gradients_every=settings.log.gradients_every,
    )


def steps_per_epoch(settings: config.Config, pairs: int) -> int:
    """Returns how many whole batches a list of `pairs` pairs has, at least 1."""
    return max(pairs // settings.train.global_batch_size, 1)


def recipe(
    settings: config.Config, encoder: dual_encoder.DualEncoder, total_steps: int, pairs: int
) -> recipe_lib.Recipe:
    """Returns what the train step computes.

    Args:
      settings: of the run.
      encoder: the model.
      total_steps: of the run.
      pairs: of the training list.

    Raises:
      types.UserError: if the settings do not fit the model, or each other.
    """
    made = objective.build(settings.loss, settings.method, steps_per_epoch(settings, pairs))
    numbers = encoder.config
    sizes = terms.Sizes(width=numbers.embed_dim, patches=numbers.patch_count)
    start = state.Start(
        encoder,
        settings.train.seed,
        scale_init=settings.optim.logit_scale_init,
        method=settings.method,
        add=lambda key: made.init(key, sizes),
    )
    shapes = start.shapes()
    return recipe_lib.Recipe(
        start=start,
        objective=made,
        optimizer=optimizer.build(settings.optim, shapes, total_steps, made.rates),
        trained=optimizer.trained(settings.optim, shapes),
        max_scale=settings.optim.max_logit_scale,
        micro_batches=settings.train.micro_batches,
        cache_parts=settings.train.gradient_cache,
        skips=settings.train.skip_nonfinite_steps > 0,
        hold=functools.partial(optimizer.hold_positions, settings.optim),
    )


def load_pair(
    pictures: lists.PictureList,
    encoder: dual_encoder.DualEncoder,
    tokenize: tokenizer.Tokenizer,
    options: images.Options = images.DEFAULT,
    names: Sequence[str] = (),
    method: groups.MethodGroup | None = None,
) -> tuple[pipeline.LoadPair, int]:
    """Returns what loads one training pair of a list, and how many pairs there are.

    Args:
      pictures: the list.
      encoder: whose picture size and text length count.
      tokenize: caption -> ids.
      options: how files become pixels.
      names: of what else is loaded, as `Objective.inputs` has them.
      method: tells these how; None = its defaults.

    Raises:
      types.UserError: if the list has nothing of what is to be loaded.
    """
    records, numbers = pictures.records, encoder.config
    pictures_of, captions = lists.views(records)
    context = inputs.Context(
        pictures=pictures,
        image_size=numbers.image_size,
        patch_size=numbers.patch_size,
        context_length=numbers.context_length,
        tokenize=tokenize,
        options=options,
        method=method or groups.MethodGroup(),
    )
    more = tuple(inputs.INPUTS[name](context) for name in names)
    if jax.process_index() == 0:  # It may look at every picture.
        for one in more:
            logging.say(one.describe())
    load = pipeline.LoadPair(
        pipeline.LoadImage(pictures_of, numbers.image_size, options),
        pipeline.LoadText(captions, tokenize, numbers.context_length),
        lists.pair_ids(records),
        more,
    )
    return load, len(captions)


def share() -> pipeline.Share:
    """Returns the part of the data that this process reads."""
    return pipeline.Share(jax.process_index(), jax.process_count())
