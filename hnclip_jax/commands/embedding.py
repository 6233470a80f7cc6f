"""Weights and a list to embeddings: what eval and embed have in common."""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from hnclip_jax import added, groups, pretrained, types
from hnclip_jax.commands import pictures, reading, sources
from hnclip_jax.data import pipeline, tokenizer
from hnclip_jax.evaluation import cache, fused, protocol
from hnclip_jax.evaluation import embed as towers
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import compiled, sharding
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.training import logging
from hnclip_jax.weights import files


def define_flags(values: flags.FlagValues) -> None:
    """Adds what names weights and list, and how they are read."""
    flags.DEFINE_string(
        "weights",
        None,
        "run folder, or weights in any layout that `hnclip inspect` knows",
        flag_values=values,
    )
    sources.define_flags(values)
    define_vocabulary(values)
    define_compute_flags(values)


def define_vocabulary(values: flags.FlagValues) -> None:
    """Adds what captions are tokenised by."""
    flags.DEFINE_string(
        "vocabulary",
        "",
        "byte-pair vocabulary file; empty = the installed package's",
        flag_values=values,
    )


def define_compute_flags(values: flags.FlagValues) -> None:
    """Adds how the towers are run, and how weights are read."""
    flags.DEFINE_enum(
        "dtype",
        "float32",
        ("float32", "bfloat16"),
        "compute type of the towers",
        flag_values=values,
    )
    numbers = (
        ("batch_size", 128, "rows embedded at once, over all devices"),
        ("workers", 0, "processes that decode pictures; 0 = this one"),
    )
    for name, default, what in numbers:
        flags.DEFINE_integer(name, default, what, lower_bound=0, flag_values=values)
    pictures.define_flags(values)
    reading.define_flags(values)


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Weights on the devices.

    model: the model.
    params: its parameters, placed on the mesh.
    mesh: all devices.
    batch_size: that of the flags, rounded up so that the devices divide it.
    provenance: JSON values that say what the weights are.
    """

    model: dual_encoder.DualEncoder
    params: types.Params
    mesh: jax.sharding.Mesh
    batch_size: int
    provenance: dict[str, str]


def find(values: flags.FlagValues, weights: str = "") -> pretrained.Imported:
    """Returns what --weights names, or `weights` where that is no flag; no value is read yet."""
    return pretrained.read(os.path.expanduser(weights or values.weights), reading.group(values))


def load(values: flags.FlagValues, imported: pretrained.Imported | None = None) -> Loaded:
    """Returns the weights that --weights names, or that `find` found; says what they are."""
    imported = imported or find(values)
    logging.say(imported.summary())
    model, params = imported.load(reading.group(values, dtype=values.dtype))
    compiled.keep(compiled.AUTO)
    mesh = mesh_lib.create(groups.ParallelGroup())
    # Padding makes any batch size right, so it is rounded and not refused.
    batch_size = -(-max(values.batch_size, 1) // mesh.size) * mesh.size
    params = sharding.put_whole(params, sharding.state_shardings(mesh, params))
    return Loaded(model, params, mesh, batch_size, imported.provenance())


def embed(values: flags.FlagValues) -> cache.Embedded:
    """Returns the embeddings of --data by --weights, with a progress bar."""
    prepared, loaded = _prepare(values)
    with contextlib.closing(logging.Progress("embedding", "row")) as progress:
        embedded = prepared.embed(loaded.params, progress)
    return _told(embedded, loaded)


def embed_tokens(values: flags.FlagValues, weight: float) -> tuple[cache.Embedded, fused.Late]:
    """Returns what `embed` does, and the tokens for fused scores.

    Raises:
      types.UserError: if beside the weights there are no parameters of FineLIP that fit them.
    """
    imported = find(values)
    file = imported.weights.path.parent / added.METHOD_FILE
    if not file.is_file():
        raise types.UserError(
            f"--fused needs what a run with method.name={fused.METHOD} adds to the model, but "
            f"there is no {file}; name such a run by --weights"
        )
    method = fused.check(file, *added.load_method(file), imported.config)
    prepared, loaded = _prepare(values, imported)
    method = jax.device_put(method, sharding.replicated(loaded.mesh))
    with contextlib.closing(logging.Progress("embedding", "row")) as progress:
        embedded, late = prepared.embed_tokens(
            {**loaded.params, "method": method}, weight, progress
        )
    logging.say(f"tokens: {(late.image.nbytes + late.text.nbytes) / 1e6:,.1f} MB of memory")
    more = {"weights_method": fused.METHOD, "weights_method_sha256": files.sha256(file)}
    return _told(embedded, loaded, **more), late


def _told(embedded: cache.Embedded, loaded: Loaded, **more: str) -> cache.Embedded:
    about = {**loaded.provenance, "scale": scale(loaded), **more}
    return dataclasses.replace(embedded, protocol={**embedded.protocol, **about})


def _prepare(
    values: flags.FlagValues, imported: pretrained.Imported | None = None
) -> tuple[protocol.Evaluator, Loaded]:
    options = pictures.options(values)
    # Weights take longest, and a list may be mistaken.
    imported = imported or find(values)
    found = sources.read(
        sources.from_flags(values), image_size=imported.config.image_size, options=options
    )
    loaded = load(values, imported)
    return evaluator(values, loaded, found), loaded


def scale(loaded: Loaded) -> float:
    """Returns s = exp(logit_scale) of the weights."""
    return float(loaded.model.scale(loaded.params))


def texts(
    values: flags.FlagValues,
    loaded: Loaded,
    captions: Sequence[str],
    tokenize: tokenizer.Tokenizer,
    progress: logging.Progress,
) -> np.ndarray:
    """Returns the embeddings of captions alone, [T, D] float32; says how many were cut."""
    tower = towers.Embedder(
        loaded.model, loaded.mesh, batch_size=loaded.batch_size, workers=values.workers
    )
    length = loaded.model.config.context_length
    load = pipeline.LoadText(captions, tokenize, length)
    text, cut = tower("text", loaded.params, load, len(captions), progress)
    if cut:
        logging.say(f"{cut:,} captions were cut at {length} tokens")
    return text


def evaluator(values: flags.FlagValues, loaded: Loaded, found: sources.Found) -> protocol.Evaluator:
    """Returns what embeds a list by weights, as the flags say."""
    return protocol.Evaluator(
        loaded.model,
        found.pictures,
        loaded.mesh,
        groups.EvalGroup(batch_size=loaded.batch_size),
        tokenize=tokenizer.Tokenizer(values.vocabulary or None),
        workers=values.workers,
        options=pictures.options(values),
        benchmark=found.benchmark,
    )


def has_changed(embedded: cache.Embedded, kept: dict[str, Any]) -> bool | None:
    """Returns whether the list is another one than it was; None if that can't be known any more.

    Args:
      embedded: from `cache.read`.
      kept: the source that came with it.
    """
    try:
        # Pictures are not needed any more; only the list is compared.
        source = sources.Source(**{name: kept.get(name, "") for name in sources.NAMES})
        found = sources.read(dataclasses.replace(source, missing="skip")).pictures
    except types.UserError as error:
        logging.say(f"cannot compare the list with the one that was embedded: {error}")
        return None
    return found.sha256 != embedded.protocol["list_sha256"]
