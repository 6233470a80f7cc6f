"""`hnclip train`: from a config to a run folder."""

import contextlib

import jax
from absl import flags
from ml_collections import config_flags

from hnclip_jax import config, pretrained, types
from hnclip_jax.commands import parts, sources
from hnclip_jax.data import lists, pipeline, tokenizer
from hnclip_jax.evaluation import protocol
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


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Trains, or goes on training, until the run is complete."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; flags begin with --")
    if values.config is None or not values.workdir:
        raise types.UserError(f"needs --config and --workdir; for example: {EXAMPLE}")
    train(config.from_config_dict(values.config), values.workdir)


def train(settings: config.Config, workdir: str) -> None:
    """Runs `settings` in `workdir`; goes on where it stopped if it was started before.

    Raises:
      types.UserError: for a mistake in the settings, the lists or the folder; for Ctrl-C.
    """
    run_folder = folder.RunFolder(workdir)
    run_folder.check(settings)
    mesh = _devices(settings)
    model, params = parts.model(settings.model)
    pictures = _list(settings, "train", model)
    test = _list(settings, "test", model) if settings.eval.data else None
    plan = parts.plan(settings, pictures.report.pairs)
    recipe = parts.recipe(settings, model, plan.total_steps)
    logging.say(optimizer.describe(settings.optim, model.abstract_params()))
    began = state.create(
        model,
        recipe.optimizer,
        mesh,
        seed=settings.train.seed,
        params=params,
        scale_init=settings.optim.logit_scale_init,
        keep_reference=recipe.objective.needs_frozen_text,
    )
    if jax.process_index() == 0:
        run_folder.claim(settings)
    checkpoints = checkpoint.Checkpoints(run_folder.checkpoints, settings.train.keep_checkpoints)
    meta = {"list_sha256": pictures.sha256, "total_steps": plan.total_steps}
    with contextlib.closing(checkpoints):
        began, best = _restored(checkpoints, began, meta, pictures)
        first = int(began.step)
        if first < plan.total_steps or not run_folder.weights.exists():
            log = logging.Run(run_folder, first, plan.total_steps, settings.log.tensorboard)
            with contextlib.closing(log):
                rooms = loop.Rooms(
                    step=step.build(recipe, mesh, settings.parallel.mapper),
                    batches=_batches(settings, recipe, mesh, pictures),
                    measure=step.build_measure(recipe),
                    evaluate=_evaluate(settings, run_folder, recipe, mesh, test),
                    save_weights=_save_weights(run_folder, recipe, mesh, pictures),
                    checkpoints=checkpoints,
                    log=log,
                    meta=meta,
                )
                loop.train(rooms, plan, began, best)
    if jax.process_index() == 0:
        logging.say(summary.table(summary.read(run_folder.metrics)))
    logging.say(f"complete: {plan.total_steps} steps, weights in {run_folder.weights}")


def _devices(settings: config.Config) -> jax.sharding.Mesh:
    mesh_lib.start(settings.parallel)
    mesh = mesh_lib.create(settings.parallel)
    mesh_lib.check_batch(mesh, settings.train.global_batch_size, settings.train.micro_batches)
    logging.say(
        f"{mesh.size} x {mesh.devices.flat[0].device_kind} ({jax.default_backend()}), "
        f"{jax.process_count()} process(es), mesh {dict(mesh.shape)}, {settings.parallel.mapper}"
    )
    return mesh


def _list(settings: config.Config, split: str, model) -> lists.PictureList:
    group = settings.data if split == "train" else settings.eval
    name = settings.data.train if split == "train" else settings.eval.data
    return sources.read_list(
        name,
        split,
        settings.data,
        image_root=group.image_root,
        image_size=model.config.image_size,
    )


def _restored(
    checkpoints: checkpoint.Checkpoints,
    began: state.TrainState,
    meta: dict,
    pictures: lists.PictureList,
) -> tuple[state.TrainState, float | None]:
    """Returns the state to go on from, and the best metric so far."""
    latest = checkpoints.latest_step
    if latest is None:
        return began, None
    saved = checkpoints.meta()
    if saved["list_sha256"] != meta["list_sha256"]:
        raise types.UserError(
            f"{pictures.path} is not the list that this run began with (its content changed), so "
            "the order of the data would be another; restore the list or choose another --workdir"
        )
    logging.say(f"goes on after step {latest} of {meta['total_steps']}")
    return checkpoints.restore(began), saved["best"]


def _batches(settings, recipe, mesh, pictures):
    tokenize = tokenizer.Tokenizer(settings.data.vocabulary or None)
    load, count = parts.load_pair(pictures, recipe.model, tokenize)

    def batches(start_step: int):
        rows = pipeline.training(
            load,
            count,
            seed=settings.train.seed,
            batch_size=settings.train.global_batch_size,
            start_step=start_step,
            share=parts.share(),
            workers=settings.data.workers,
        )
        return (sharding.put_batch(mesh, row) for row in rows)

    return batches


def _evaluate(settings, run_folder, recipe, mesh, test):
    if test is None:
        return None
    evaluator = protocol.Evaluator(
        recipe.model,
        test,
        mesh,
        settings.eval,
        tokenize=tokenizer.Tokenizer(settings.data.vocabulary or None),
        workers=settings.data.workers,
    )

    def evaluate(now: state.TrainState) -> dict[str, float]:
        result = evaluator(now.params)
        if jax.process_index() == 0:
            number = int(now.step)
            protocol.write(run_folder.eval / f"step_{number:08d}.json", result, step=number)
        return {f"eval/{name}": value for name, value in result.metrics.items()}

    return evaluate


def _save_weights(run_folder, recipe, mesh, pictures):
    whole = jax.jit(lambda params: params, out_shardings=sharding.replicated(mesh))

    def save(now: state.TrainState, note: dict) -> None:
        params = whole(now.params)
        if jax.process_index() == 0:
            note = {**note, "list": pictures.path, "list_sha256": pictures.sha256}
            pretrained.save(run_folder.weights, recipe.model, jax.device_get(params), note=note)

    return save
