"""`hnclip train`: from a config to a run folder."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator

import jax
from absl import flags
from ml_collections import config_flags

from hnclip_jax import config, pretrained, types
from hnclip_jax.commands import parts, sources
from hnclip_jax.commands import pictures as pictures_lib
from hnclip_jax.data import lists, pipeline, tokenizer
from hnclip_jax.evaluation import protocol
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import checkpoint, folder, logging, loop, optimizer, state, step, summary

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
    run_folder.check(settings)
    mesh = _devices(settings)
    model, params, provenance = parts.start(settings.model)
    pictures = _list(settings, "train", model).pictures
    test = _list(settings, "test", model) if settings.eval.data else None
    plan = dataclasses.replace(parts.plan(settings, pictures.report.pairs), stop_after=stop_after)
    recipe = parts.recipe(settings, model, plan.total_steps)
    job = _Job(settings, run_folder, mesh, recipe, pictures, test, provenance)
    logging.say(optimizer.describe(settings.optim, model.abstract_params()))
    began = _begin(job, params)
    if jax.process_index() == 0:
        run_folder.claim(settings)
    with contextlib.closing(
        checkpoint.Checkpoints(run_folder.checkpoints, settings.train.keep_checkpoints)
    ) as checkpoints:
        began, best = _restored(job, checkpoints, began, plan)
        first = int(began.step)
        owed = _owes_evaluation(job, plan, first)
        if first < plan.last_step or owed or not _finished(run_folder, plan):
            _loop(job, checkpoints, plan, began, best, owed)
    if jax.process_index() == 0:
        logging.say(summary.table(summary.read(run_folder.metrics)))
    if (reached := max(first, plan.last_step)) < plan.total_steps:
        logging.say(f"stopped after step {reached} of {plan.total_steps}, as asked")
    else:
        logging.say(f"complete: {plan.total_steps} steps, weights in {run_folder.weights}")


@dataclasses.dataclass(frozen=True)
class _Job:
    """What is settled before the first step."""

    settings: config.Config
    folder: folder.RunFolder
    mesh: jax.sharding.Mesh
    recipe: step.Recipe
    pictures: lists.PictureList
    test: sources.Found | None
    provenance: dict[str, str]


def _devices(settings: config.Config) -> jax.sharding.Mesh:
    mesh_lib.start(settings.parallel)
    mesh = mesh_lib.create(settings.parallel)
    mesh_lib.check_batch(mesh, settings.train.global_batch_size, settings.train.micro_batches)
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


def _begin(job: _Job, params: types.Params | None) -> state.TrainState:
    return state.create(
        job.recipe.model,
        job.recipe.optimizer,
        job.mesh,
        seed=job.settings.train.seed,
        params=params,
        scale_init=job.settings.optim.logit_scale_init,
        keep_reference=job.recipe.objective.needs_frozen_text,
    )


def _restored(
    job: _Job, checkpoints: checkpoint.Checkpoints, began: state.TrainState, plan: loop.Plan
) -> tuple[state.TrainState, float | None]:
    """Returns the state to go on from, and the best metric so far."""
    latest = checkpoints.latest_step
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
    logging.say(f"goes on after step {latest} of {plan.total_steps}")
    return checkpoints.restore(began), saved["best"]


def _finished(run_folder: folder.RunFolder, plan: loop.Plan) -> bool:
    """Returns whether nothing is left to do at the plan's last step."""
    return plan.last_step < plan.total_steps or (run_folder.weights / pretrained.FILE_NAME).exists()


def _owes_evaluation(job: _Job, plan: loop.Plan, step: int) -> bool:
    """Returns whether the run broke off in the evaluation that was due after `step` steps."""
    due = job.test is not None and step > 0 and plan.evaluates(step)
    return mesh_lib.any_process(due and not job.folder.eval_file(step).exists())


def _loop(
    job: _Job,
    checkpoints: checkpoint.Checkpoints,
    plan: loop.Plan,
    began: state.TrainState,
    best: float | None,
    owed: bool,
) -> None:
    log = logging.Run(job.folder, int(began.step), plan.total_steps, job.settings.log.tensorboard)
    with contextlib.closing(log):
        rooms = loop.Rooms(
            step=step.build(job.recipe, job.mesh, job.settings.parallel.mapper),
            batches=_batches(job),
            measure=step.build_measure(job.recipe),
            evaluate=_evaluate(job) if job.test else None,
            save_weights=_save_weights(job),
            checkpoints=checkpoints,
            log=log,
            meta={
                "list_sha256": job.pictures.sha256,
                "pairs": job.pictures.report.pairs,
                "config": json.loads(config.to_json(job.settings)),
                "start": job.provenance,
            },
        )
        loop.train(rooms, plan, began, best, owed)


def _batches(job: _Job) -> Callable[[int], Iterator[types.Batch]]:
    data, train_group = job.settings.data, job.settings.train
    tokenize = tokenizer.Tokenizer(data.vocabulary or None)
    load, count = parts.load_pair(
        job.pictures, job.recipe.model, tokenize, pictures_lib.options(data)
    )

    def batches(start_step: int) -> Iterator[types.Batch]:
        rows = pipeline.training(
            load,
            count,
            seed=train_group.seed,
            batch_size=train_group.global_batch_size,
            start_step=start_step,
            share=parts.share(),
            workers=data.workers,
        )
        return (sharding.put_batch(job.mesh, row) for row in rows)

    return batches


def _evaluate(job: _Job) -> Callable[[state.TrainState], dict[str, float]]:
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

    def evaluate(now: state.TrainState) -> dict[str, float]:
        result = evaluator(now.params)
        if jax.process_index() == 0:
            number = int(now.step)
            protocol.write(job.folder.eval_file(number), result, step=number)
        return {f"eval/{name}": value for name, value in result.metrics.items()}

    return evaluate


def _save_weights(job: _Job) -> Callable[[state.TrainState, dict], None]:
    whole = jax.jit(lambda params: params, out_shardings=sharding.replicated(job.mesh))

    def save(now: state.TrainState, note: dict) -> None:
        params = whole(now.params)
        if jax.process_index() == 0:
            pictures = job.pictures
            note = {
                **note,
                "list": pictures.path,
                "list_sha256": pictures.sha256,
                "start": job.provenance,
            }
            pretrained.save(job.folder.weights, job.recipe.model, jax.device_get(params), note=note)

    return save
