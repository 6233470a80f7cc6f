"""Recall of a list, and the protocol by which it came about: what a result file holds."""

import dataclasses
import importlib.metadata
import json
import pathlib
from typing import Any

import jax
import numpy as np

from hnclip_jax import groups, types
from hnclip_jax.data import lists, pipeline, tokenizer
from hnclip_jax.evaluation import embed, retrieval
from hnclip_jax.models import dual_encoder


@dataclasses.dataclass(frozen=True)
class Result:
    """metrics: {"t2i_r@1": percent, ..., "ties": count}; protocol: JSON values."""

    metrics: dict[str, float]
    protocol: dict[str, Any]


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
    ) -> None:
        """Prepares; nothing is embedded yet.

        Args:
          model: the model.
          pictures: the list, checked.
          mesh: the device mesh.
          group: batch and block sizes, ks.
          tokenize: caption -> ids.
          workers: processes that load rows; 0 = threads of this one.
        """
        self._model, self._pictures, self._group = model, pictures, group
        self._embed = embed.Embedder(model, mesh, batch_size=group.batch_size, workers=workers)
        records = pictures.records
        positions, captions = zip(*lists.pairs(records), strict=True)
        self._text_to_image = np.asarray(positions)
        self._images = pipeline.LoadImage(
            [record.image for record in records], model.config.image_size
        )
        self._texts = pipeline.LoadText(captions, tokenize, model.config.context_length)

    def __call__(self, params: types.Params, progress: embed.Progress | None = None) -> Result:
        """Returns recall both ways and its protocol.

        Args:
          params: the model's parameters.
          progress: called with (rows done, rows) as pictures and captions are embedded.
        """
        pictures, texts = len(self._images.paths), len(self._texts.captions)

        def shift(before: int) -> embed.Progress | None:
            return progress and (lambda done, _: progress(before + done, pictures + texts))

        image, _ = self._embed("image", params, self._images, pictures, shift(0))
        text, truncated = self._embed("text", params, self._texts, texts, shift(pictures))
        metrics = retrieval.retrieval_metrics(
            image,
            text,
            self._text_to_image,
            self._group.ks,
            block_rows=self._group.block_rows,
        )
        return Result(metrics, self._protocol(pictures, texts, truncated))

    def _protocol(self, pictures: int, texts: int, truncated: int) -> dict[str, Any]:
        report = self._pictures.report
        size = self._model.config.image_size
        return {
            "list": str(self._pictures.path),
            "list_sha256": self._pictures.sha256,
            "pictures": pictures,
            "captions": texts,
            "skipped_missing": report.skipped_missing,
            "skipped_empty": report.skipped_empty,
            "duplicate_captions": report.duplicates,
            "truncated_captions": truncated,
            "context_length": self._model.config.context_length,
            "image_size": size,
            "image_transform": f"shorter side to {size}, Pillow bicubic, centre crop",
            "compute_dtype": self._model.compute.dtype,
            "similarity": "cosine, float32, precision highest",
            "ties": "expected rank among equal scores",
            "unit": "percent",
            "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
            "versions": {
                name: importlib.metadata.version(name)
                for name in ("hnclip_jax", "jax", "flax", "numpy", "pillow")
            },
        }


def table(result: Result) -> str:
    """Returns recall as text: a line per direction, a column per K."""
    ks = [name.removeprefix("t2i_r@") for name in result.metrics if name.startswith("t2i_r@")]
    lines = [f"{result.protocol['captions']:,} captions, {result.protocol['pictures']:,} pictures"]
    lines.append("".join(["direction".ljust(16), *(f"R@{k}".rjust(8) for k in ks)]))
    for title, key in (("text to image", "t2i"), ("image to text", "i2t")):
        values = (f"{result.metrics[f'{key}_r@{k}']:.2f}".rjust(8) for k in ks)
        lines.append("".join([title.ljust(16), *values]))
    lines.append(
        f"ties {result.metrics['ties']}, truncated captions "
        f"{result.protocol['truncated_captions']}, duplicate captions "
        f"{result.protocol['duplicate_captions']}"
    )
    return "\n".join(lines)


def write(path: str | pathlib.Path, result: Result, **more: Any) -> None:
    """Writes {"metrics": ..., "protocol": ...} as JSON; `more` joins the protocol.

    Raises:
      types.UserError: if the file cannot be written.
    """
    path = pathlib.Path(path)
    content = {"metrics": result.metrics, "protocol": {**result.protocol, **more}}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise types.UserError(f"cannot write {path}: {error.strerror}") from error
