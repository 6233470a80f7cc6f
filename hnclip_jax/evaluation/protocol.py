"""Recall of a list, and the protocol by which it came about: what a result file holds."""

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import tempfile
from typing import Any

import jax

from hnclip_jax import groups, types
from hnclip_jax.data import benchmarks, images, lists, pipeline, tokenizer
from hnclip_jax.evaluation import bootstrap, cache, counting, embed, fused, retrieval
from hnclip_jax.models import dual_encoder

TIES = "expected rank among equal scores"
_VERSIONS = ("hnclip_jax", "jax", "flax", "numpy", "pillow")


@dataclasses.dataclass(frozen=True)
class Result:
    """What a result file holds.

    metrics: {"t2i_r@1": percent, ..., "ties": count}.
    protocol: JSON values.
    intervals: {"t2i_r@1": [low, high], ...}; empty = not asked for.
    diagnostics: recall by the other rules for ties, and tied queries per direction.
    """

    metrics: dict[str, float]
    protocol: dict[str, Any]
    intervals: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    diagnostics: dict[str, Any] = dataclasses.field(default_factory=dict)


class Evaluator:
    """One list, one model, one mesh: recall for any parameters."""

    def __init__(
        self,
        model: dual_encoder.DualEncoder,
        pictures: lists.PictureList,
        mesh: jax.sharding.Mesh,
        group: groups.EvalGroup,
        *,
        tokenize: tokenizer.Tokenizer,
        workers: int = 0,
        options: images.Options = images.DEFAULT,
        benchmark: str | None = None,
    ) -> None:
        """Prepares; nothing is embedded yet.

        Args:
          model: the model.
          pictures: the list, checked.
          mesh: the device mesh.
          group: batch and block sizes, ks, and what else is measured.
          tokenize: caption -> ids.
          workers: processes that load rows; 0 = threads of this one.
          options: how files become pixels.
          benchmark: the name of the protocol that the list is; None = it is none.
        """
        self._model, self._pictures, self._group = model, pictures, group
        self._benchmark = benchmark
        sizes = {"batch_size": group.batch_size, "workers": workers}
        self._embedders = {
            "whole": embed.Embedder(model, mesh, **sizes),
            "tokens": embed.Embedder(model, mesh, **sizes, head=fused.head),
        }
        records = pictures.records
        _, captions = lists.views(records)
        self._text_to_image = captions.positions
        self._images = pipeline.LoadImage(
            [record.image for record in records], model.config.image_size, options
        )
        self._texts = pipeline.LoadText(captions, tokenize, model.config.context_length)

    def __call__(self, params: types.Params, progress: embed.Progress | None = None) -> Result:
        """Returns recall both ways and its protocol.

        Args:
          params: the model's parameters.
          progress: called with (rows done, rows) as pictures and captions are embedded.
        """
        return measure(self.embed(params, progress), self._group)

    def embed(self, params: types.Params, progress: embed.Progress | None = None) -> cache.Embedded:
        """Returns the embeddings of the list, and how they came about; see `__call__`."""
        return self._embedded(*self._towers("whole", params, progress))

    def embed_tokens(
        self, params: types.Params, weight: float, progress: counting.Progress | None = None
    ) -> tuple[cache.Embedded, fused.Late]:
        """Returns what `embed` does, and the tokens of the list, for `measure`.

        Args:
          params: the model's parameters, with {"method": what `fused.check` returns}.
          weight: share of the tokens in a score.
          progress: as in `__call__`.
        """
        image, text, truncated = self._towers("tokens", params, progress)
        late = fused.Late(image.tokens, text.tokens, weight)
        return self._embedded(image.whole, text.whole, truncated), late

    def _towers(
        self, kept: str, params: types.Params, progress: counting.Progress | None
    ) -> tuple[Any, Any, int]:
        """Returns what is kept of pictures and captions, and how many captions were cut."""
        pictures, texts = len(self._pictures.records), len(self._texts.captions)
        embedder = self._embedders[kept]

        def shift(before: int) -> embed.Progress | None:
            return progress and (lambda done, _: progress(before + done, pictures + texts))

        image, _ = embedder("image", params, self._images, pictures, shift(0))
        text, truncated = embedder("text", params, self._texts, texts, shift(pictures))
        return image, text, truncated

    def _embedded(self, image: types.Array, text: types.Array, truncated: int) -> cache.Embedded:
        records = self._pictures.records
        return cache.Embedded(
            image=image,
            text=text,
            text_to_image=self._text_to_image,
            ids=tuple(record.id for record in records),
            groups=tuple(record.group for record in records),
            queries=self._pictures.queries,
            protocol=self._protocol(len(image), len(text), truncated),
        )

    def _protocol(self, pictures: int, texts: int, truncated: int) -> dict[str, Any]:
        report = self._pictures.report
        return {
            # A part of a benchmark is not that benchmark.
            "benchmark": None if report.skipped_missing else self._benchmark,
            "list": str(self._pictures.path),
            "list_sha256": self._pictures.sha256,
            "content_sha256": benchmarks.fingerprint(self._pictures),
            "pictures": pictures,
            "captions": texts,
            "skipped_missing": report.skipped_missing,
            "skipped_empty": report.skipped_empty,
            "duplicate_captions": report.duplicates,
            "truncated_captions": truncated,
            "context_length": self._model.config.context_length,
            **image_protocol(self._images, self._model),
            "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
            "versions": versions(),
        }


def versions() -> dict[str, str]:
    """Returns the versions of what results depend on."""
    return {name: importlib.metadata.version(name) for name in _VERSIONS}


def image_protocol(
    load: pipeline.LoadImage, model: dual_encoder.DualEncoder
) -> dict[str, str | int]:
    """Returns how pictures became embeddings."""
    size, options = model.config.image_size, load.options
    ready = sum(hasattr(reference, "pixels") for reference in load.paths)
    packed = f"{ready} of {len(load.paths)} when packed: " if ready else ""
    return {
        "image_size": size,
        "image_transform": f"{packed}shorter side to {size}, Pillow bicubic, centre crop",
        "exif_orientation": options.exif_orientation,
        "transparency": options.background,
        "compute_dtype": model.compute.dtype,
    }


def measure(
    embedded: cache.Embedded,
    group: groups.EvalGroup,
    progress: embed.Progress | None = None,
    late: fused.Late | None = None,
) -> Result:
    """Returns recall both ways, and what else the group asks for.

    Args:
      embedded: the list.
      group: ks, map_k, relevance, block_rows, bootstrap.
      progress: called with (captions done, captions) as they are ranked.
      late: tokens of the list, to rank by fused scores; None = by cosine.
    """
    measured = retrieval.measure(
        embedded.image,
        embedded.text,
        embedded.text_to_image,
        queries=embedded.queries,
        groups=embedded.groups,
        relevance=group.relevance,
        map_k=group.map_k,
        block_rows=group.block_rows,
        scorer=late.scorer if late else counting.Products,
        progress=progress,
    )
    samples, seed = group.bootstrap, group.bootstrap_seed
    protocol = {
        **embedded.protocol,
        **{f"{name}_queries": len(found.greater) for name, found in measured.ranks.items()},
        **{f"{name}_gallery": count for name, count in measured.gallery.items()},
        "similarity": f"{late or 'cosine'}, float32, precision highest",
        "ties": TIES,
        "unit": "percent",
    }
    if late:
        protocol["score"] = str(late)
    if group.map_k:
        protocol["relevance"] = group.relevance
    if samples:
        protocol["interval"] = (
            f"{bootstrap.LEVEL:.0%} percentile bootstrap over queries, {samples} samples, "
            f"seed {seed}"
        )
    return Result(
        measured.metrics(group.ks),
        protocol,
        bootstrap.intervals(measured, group.ks, samples, seed) if samples else {},
        measured.diagnostics(group.ks),
    )


def write(path: str | pathlib.Path, result: Result, **more: Any) -> None:
    """Writes {"metrics": ..., "protocol": ..., ...} as JSON; `more` joins the protocol.

    Raises:
      types.UserError: if the file cannot be written.
    """
    content = dataclasses.asdict(result)
    content["protocol"].update(more)
    write_json(path, {name: value for name, value in content.items() if value})


def write_json(path: str | pathlib.Path, content: dict[str, Any]) -> None:
    """Writes a JSON file, whole or not at all.

    Raises:
      types.UserError: if it cannot be written.
    """
    path = pathlib.Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
            file = pathlib.Path(scratch) / path.name
            file.write_text(json.dumps(content, indent=2) + "\n")
            os.replace(file, path)
    except OSError as error:
        raise types.UserError(f"cannot write {path}: {error.strerror}") from error
