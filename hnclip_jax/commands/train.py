"""`hnclip train`: from a config to a run folder."""

import contextlib
import dataclasses
import json

import jax
from absl import flags
from ml_collections import config_flags

from hnclip_jax import config, pretrained, types
from hnclip_jax.commands import rooms, settled
from hnclip_jax.parallel import agreement, alarm, cluster, compiled
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.training import (
    checkpoint,
    folder,
    gradients,
    logging,
    loop,
    profile,
    state,
    step,
    summary,
)

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


@alarm.plain_errors()
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
    compiled.keep(settings.parallel.compilation_cache)
    cluster.start(settings.parallel)
    agreement.check(
        agreement.config_facts(config.to_json(settings))
        | {"--workdir": str(run_folder.path), "--stop_after": stop_after},
        "start the same command on every host",
    )
    with agreement.together():
        run_folder.check(settings)
        job, params, plan = settled.settle(settings, run_folder)
    plan = dataclasses.replace(plan, stop_after=stop_after)
    agreement.check(settled.facts(job, plan), "give every process the same lists and weights")
    logging.say(settled.described(settings, job.recipe))
    agreement.check_shared(run_folder.path)
    with contextlib.ExitStack() as stack:
        with agreement.together():
            if jax.process_index() == 0:
                run_folder.claim(settings)
                stack.enter_context(run_folder.held())
        keep, limit_s = settings.train.keep_checkpoints, settings.train.save_timeout_s
        reached = _work(
            job,
            stack.enter_context(checkpoint.Checkpoints(run_folder.checkpoints, keep, limit_s)),
            plan,
            params,
        )
    if jax.process_index() == 0:
        logging.say(summary.table(summary.read(run_folder.metrics)))
    if reached < plan.total_steps:
        logging.say(f"stopped after step {reached} of {plan.total_steps}, as asked")
    else:
        logging.say(f"complete: {plan.total_steps} steps, weights in {run_folder.weights}")


def _work(
    job: rooms.Job,
    checkpoints: checkpoint.Checkpoints,
    plan: loop.Plan,
    params: types.Params | None,
) -> int:
    """Does what is left of a run; returns how many steps it has then."""
    latest = checkpoints.latest_step
    agreement.check(
        {"latest checkpoint": latest}, "give every process one --workdir that all hosts share"
    )
    done = latest or 0
    owed = _owes_evaluation(job, plan, done)
    if done >= plan.last_step and not owed and not mesh_lib.any_process(_unfinished(job, plan)):
        logging.say(f"nothing is left to do: {job.folder.path} has its {done} steps")
        return done
    progress = loop.Progress(_begin(job, params))
    if latest is not None:
        progress = _restored(job, checkpoints, progress.state, plan)
    progress.owed = owed
    with alarm.listening("train"), alarm.plain_errors():
        _loop(job, checkpoints, plan, progress)
    return max(done, plan.last_step)


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
) -> loop.Progress:
    """Returns where the latest checkpoint stands; `began` says where its arrays go."""
    saved = checkpoints.meta()
    now = (job.pictures.sha256, job.pictures.report.pairs)
    if (saved["list_sha256"], saved.get("pairs", now[1])) != now:
        raise types.UserError(
            f"{job.pictures.path} is not the list that this run began with (its content changed), "
            "so the order of the data would be another; restore the list or choose another "
            "--workdir"
        )
    _check_base(job, saved["start"])
    logging.say(f"goes on after step {checkpoints.latest_step} of {plan.total_steps}")
    return loop.Progress(checkpoints.restore(began), saved["best"], saved.get("skipped", 0))


def _check_base(job: rooms.Job, start: dict[str, str]) -> None:
    """Raises types.UserError if adapters would be put on other weights than they began with."""
    began, now = (of.get("weights_sha256", "") for of in (start, job.provenance))
    if job.settings.method.adapter and began != now:
        raise types.UserError(
            f"the adapters of this run lie on weights of SHA-256 {began or '(random)'}, but "
            f"model.weights now has {now or '(random)'}; name the file that the run began with"
        )


def _unfinished(job: rooms.Job, plan: loop.Plan) -> bool:
    """Returns whether the weights of a run that has all its steps have yet to be written."""
    weights = job.folder.weights / pretrained.FILE_NAME
    return plan.last_step == plan.total_steps and not weights.exists()


def _owes_evaluation(job: rooms.Job, plan: loop.Plan, step: int) -> bool:
    """Returns whether the run broke off in the evaluation that was due after `step` steps."""
    due = job.test is not None and step > 0 and plan.evaluates(step)
    return mesh_lib.any_process(due and not job.folder.eval_file(step).exists())


def _loop(
    job: rooms.Job,
    checkpoints: checkpoint.Checkpoints,
    plan: loop.Plan,
    progress: loop.Progress,
) -> None:
    settings, first = job.settings.log, int(progress.state.step)
    log = logging.Run(job.folder, first, plan.total_steps, settings.tensorboard)
    recorded = profile.Profile(profile.parse(settings.profile_steps), job.folder.profile)
    with contextlib.closing(log), contextlib.closing(recorded):
        given = loop.Rooms(
            step=step.build(job.recipe, job.mesh, job.settings.parallel.mapper),
            batches=rooms.batches(job),
            measure=step.build_measure(job.recipe),
            compare=gradients.build(job.recipe, job.mesh, job.settings.parallel.mapper),
            evaluate=rooms.evaluate(job) if job.test else None,
            save_weights=rooms.save_weights(job),
            name_of=rooms.name_of(job),
            checkpoints=checkpoints,
            log=log,
            profile=recorded,
            meta={
                "list_sha256": job.pictures.sha256,
                "pairs": job.pictures.report.pairs,
                "config": json.loads(config.to_json(job.settings)),
                "start": job.provenance,
            },
        )
        loop.train(given, plan, progress)
