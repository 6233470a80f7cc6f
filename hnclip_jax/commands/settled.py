"""What is settled before the first step of a run: devices, weights, lists, recipe, plan."""

import jax

from hnclip_jax import adapters, config, types
from hnclip_jax.commands import parts, rooms, sources
from hnclip_jax.commands import pictures as pictures_lib
from hnclip_jax.data import fraction, lists
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.training import folder, logging, loop, optimizer, profile
from hnclip_jax.training import recipe as recipe_lib


def settle(
    settings: config.Config, run_folder: folder.RunFolder
) -> tuple[rooms.Job, types.Params | None, loop.Plan]:
    """Returns what is settled before the first step, parameters to start from, and the plan."""
    profile.parse(settings.log.profile_steps)
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


def facts(job: rooms.Job, plan: loop.Plan) -> dict[str, str | int | None]:
    """Returns what all processes of a run must have alike, beside the settings."""
    return {
        "SHA-256 of the list": job.pictures.sha256,
        "pairs": job.pictures.report.pairs,
        "SHA-256 of the test list": job.test.pictures.sha256 if job.test else None,
        "SHA-256 of the weights": job.provenance.get("weights_sha256"),
        "steps": plan.total_steps,
    }


def described(settings: config.Config, recipe: recipe_lib.Recipe) -> str:
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
