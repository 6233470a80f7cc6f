"""`hnclip train`: from a config to a run folder."""

import contextlib
import dataclasses
import json

import jax
from absl import flags
from ml_collections import config_flags

from hnclip_jax import adapters, config, pretrained, types
from hnclip_jax.commands import parts, rooms, sources
from hnclip_jax.commands import pictures as pictures_lib
from hnclip_jax.data import fraction, lists
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import agreement, cluster
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.training import (
    checkpoint,
    folder,
    logging,
    loop,
    optimizer,
    state,
    step,
    summary,
)
from hnclip_jax.training import recipe as recipe_lib

EXAMPLE = "hnclip train --config=configs/demo.py --workdir=runs/demo --config.optim.lr=1e-3"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    config_flags.DEFINE_config_file(
        "config",
        None,
        "config file, with ':argument' where it takes one; --config.group.field=value sets a value",
        flag_values=values,
        sys_argv=argv,
        lock_config=True,
    )
    flags.DEFINE_string("workdir", None, "folder of the run, made if need be", flag_values=values)
    flags.DEFINE_integer(
        "stop_after",
        0,
        "stop after this step, saved, as if by Ctrl-C; the same command without it goes on",
        lower_bound=0,
        flag_values=values,
    )


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Trains, or goes on training, until the run is complete."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; flags begin with --")
    if values.config is None or not values.workdir:
        raise types.UserError(f"needs --config and --workdir; for example: {EXAMPLE}")
    try:
        settings = config.from_config_dict(values.config)
    except OSError as error:
        # ml_collections tells that the file is not there only when its values are asked for.
        path = config_flags.get_config_filename(values["config"])
        raise types.UserError(f"there is no config file {path}") from error
    train(settings, values.workdir, stop_after=values.stop_after)


def train(settings: config.Config, workdir: str, *, stop_after: int = 0) -> None:
    """Runs `settings` in `workdir`; goes on where it stopped if it was started before.

    Args:
      settings: the whole configuration.
      workdir: the run folder.
      stop_after: leave after this step, saved; 0 = run to the end.

    Raises:
      types.UserError: for a mistake in the settings, the lists or the folder; for Ctrl-C.
    """
    run_folder = folder.RunFolder(workdir)
    cluster.start(settings.parallel)
    agreement.check(
        agreement.config_facts(config.to_json(settings))
        | {"--workdir": str(run_folder.path), "--stop_after": stop_after},
        "start the same command on every host",
    )
    with agreement.together():
        run_folder.check(settings)
        job, params, plan = _settled(settings, run_folder)
    plan = dataclasses.replace(plan, stop_after=stop_after)
    agreement.check(_facts(job, plan), "give every process the same lists and weights")
    logging.say(_described(settings, job.recipe))
    began = _begin(job, params)
    agreement.check_shared(run_folder.path)
    with agreement.together():
        if jax.process_index() == 0:
            run_folder.claim(settings)
    with contextlib.closing(
        checkpoint.Checkpoints(run_folder.checkpoints, settings.train.keep_checkpoints)
    ) as checkpoints:
        began, best = _restored(job, checkpoints, began, plan)
        first = int(began.step)
        owed = _owes_evaluation(job, plan, first)
        if first < plan.last_step or owed or mesh_lib.any_process(not _finished(run_folder, plan)):
            _loop(job, checkpoints, plan, began, best, owed)
    if jax.process_index() == 0:
        logging.say(summary.table(summary.read(run_folder.metrics)))
    if (reached := max(first, plan.last_step)) < plan.total_steps:
        logging.say(f"stopped after step {reached} of {plan.total_steps}, as asked")
    else:
        logging.say(f"complete: {plan.total_steps} steps, weights in {run_folder.weights}")


def _settled(
    settings: config.Config, run_folder: folder.RunFolder
) -> tuple[rooms.Job, types.Params | None, loop.Plan]:
    """Returns what is settled before the first step, parameters to start from, and the plan."""
    mesh = _devices(settings)
    model, params, provenance = parts.start(settings.model)
    if settings.method.adapter and "adapter" in provenance:
        # Its file would name the weights below both as its base, and be put on those alone.
        raise types.UserError(
            f"adapters would train on weights with an adapter in them, {provenance['adapter']}; "
            "merge that first (hnclip convert --adapter) and start from the result"
        )
    pictures = _training_list(settings, model)
    test = _list(settings, "test", model) if settings.eval.data else None
    pairs = pictures.report.pairs
    plan = parts.plan(settings, pairs)
    recipe = parts.recipe(settings, model, plan.total_steps, pairs)
    load = rooms.loader(settings, recipe, pictures)
    job = rooms.Job(settings, run_folder, mesh, recipe, load, pictures, test, provenance)
    return job, params, plan


def _facts(job: rooms.Job, plan: loop.Plan) -> dict[str, str | int | None]:
    """Returns what all processes of a run must have alike, beside the settings."""
    return {
        "SHA-256 of the list": job.pictures.sha256,
        "pairs": job.pictures.report.pairs,
        "SHA-256 of the test list": job.test.pictures.sha256 if job.test else None,
        "SHA-256 of the weights": job.provenance.get("weights_sha256"),
        "steps": plan.total_steps,
    }


def _described(settings: config.Config, recipe: recipe_lib.Recipe) -> str:
    """Returns what trains: a line, and one about the adapter if that is it."""
    shapes = recipe.start.shapes()
    trains = optimizer.describe(settings.optim, shapes)
    if not settings.method.adapter:
        return trains
    base = recipe.model.abstract_params()
    alpha = settings.method.adapter_alpha
    return f"{adapters.describe(base, shapes['adapter'], alpha)}\n{trains}"


def _devices(settings: config.Config) -> jax.sharding.Mesh:
    mesh = mesh_lib.create(settings.parallel)
    train = settings.train
    mesh_lib.check_batch(mesh, train.global_batch_size, train.micro_batches * train.gradient_cache)
    logging.say(
        f"{mesh.size} x {mesh.devices.flat[0].device_kind} ({jax.default_backend()}), "
        f"{jax.process_count()} process(es), mesh {dict(mesh.shape)}, {settings.parallel.mapper}"
    )
    return mesh


def _list(settings: config.Config, part: str, model: dual_encoder.DualEncoder) -> sources.Found:
    data, test = settings.data, settings.eval
    if part == "train" and not data.train:
        raise types.UserError("data.train is empty; set it to a list file, or to 'scenes'")
    policies = {"missing": data.missing, "empty_caption": data.empty_caption}
    source = (
        sources.Source(data.train, "", data.image_root, data.split, **policies)
        if part == "train"
        else sources.Source(test.data, test.root, test.image_root, test.split, **policies)
    )
    return sources.read(
        source.absolute(),
        part=part,
        drawn=data,
        image_size=model.config.image_size,
        options=pictures_lib.options(data),
    )


def _training_list(settings: config.Config, model: dual_encoder.DualEncoder) -> lists.PictureList:
    data = settings.data
    pictures = _list(settings, "train", model).pictures
    some = fraction.take(pictures, data.fraction, data.fraction_seed)
    if some is not pictures:
        logging.say(
            f"  of these {len(some.records):,} pictures, {some.report.pairs:,} pairs: "
            f"data.fraction={data.fraction:g}, data.fraction_seed={data.fraction_seed}"
        )
    return some


def _begin(job: rooms.Job, params: types.Params | None) -> state.TrainState:
    return state.create(
        job.recipe.start,
        job.recipe.optimizer,
        job.mesh,
        params=params,
        keep_reference=job.recipe.objective.needs_frozen_text,
    )


def _restored(
    job: rooms.Job, checkpoints: checkpoint.Checkpoints, began: state.TrainState, plan: loop.Plan
) -> tuple[state.TrainState, float | None]:
    """Returns the state to go on from, and the best metric so far."""
    latest = checkpoints.latest_step
    agreement.check(
        {"latest checkpoint": latest}, "give every process one --workdir that all hosts share"
    )
    if latest is None:
        return began, None
    saved = checkpoints.meta()
    now = (job.pictures.sha256, job.pictures.report.pairs)
    if (saved["list_sha256"], saved.get("pairs", now[1])) != now:
        raise types.UserError(
            f"{job.pictures.path} is not the list that this run began with (its content changed), "
            "so the order of the data would be another; restore the list or choose another "
            "--workdir"
        )
    _check_base(job, saved["start"])
    logging.say(f"goes on after step {latest} of {plan.total_steps}")
    return checkpoints.restore(began), saved["best"]


def _check_base(job: rooms.Job, start: dict[str, str]) -> None:
    """Raises types.UserError if adapters would be put on other weights than they began with."""
    began, now = (of.get("weights_sha256", "") for of in (start, job.provenance))
    if job.settings.method.adapter and began != now:
        raise types.UserError(
            f"the adapters of this run lie on weights of SHA-256 {began or '(random)'}, but "
            f"model.weights now has {now or '(random)'}; name the file that the run began with"
        )


def _finished(run_folder: folder.RunFolder, plan: loop.Plan) -> bool:
    """Returns whether nothing is left to do at the plan's last step."""
    return plan.last_step < plan.total_steps or (run_folder.weights / pretrained.FILE_NAME).exists()


def _owes_evaluation(job: rooms.Job, plan: loop.Plan, step: int) -> bool:
    """Returns whether the run broke off in the evaluation that was due after `step` steps."""
    due = job.test is not None and step > 0 and plan.evaluates(step)
    return mesh_lib.any_process(due and not job.folder.eval_file(step).exists())


def _loop(
    job: rooms.Job,
    checkpoints: checkpoint.Checkpoints,
    plan: loop.Plan,
    began: state.TrainState,
    best: float | None,
    owed: bool,
) -> None:
    log = logging.Run(job.folder, int(began.step), plan.total_steps, job.settings.log.tensorboard)
    with contextlib.closing(log):
        given = loop.Rooms(
            step=step.build(job.recipe, job.mesh, job.settings.parallel.mapper),
            batches=rooms.batches(job),
            measure=step.build_measure(job.recipe),
            evaluate=rooms.evaluate(job) if job.test else None,
            save_weights=rooms.save_weights(job),
            checkpoints=checkpoints,
            log=log,
            meta={
                "list_sha256": job.pictures.sha256,
                "pairs": job.pictures.report.pairs,
                "config": json.loads(config.to_json(job.settings)),
                "start": job.provenance,
            },
        )
        loop.train(given, plan, began, best, owed)
