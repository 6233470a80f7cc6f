"""Embeds pictures and captions on the mesh, in padded batches of one shape."""

import contextlib
from collections.abc import Callable

import jax
import numpy as np

from hnclip_jax import types
from hnclip_jax.data import pipeline
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding

Progress = Callable[[int, int], None]


class Embedder:
    """A model on a mesh; compiled once per tower, used with any parameters."""

    def __init__(
        self,
        model: dual_encoder.DualEncoder,
        mesh: jax.sharding.Mesh,
        *,
        batch_size: int,
        workers: int = 0,
    ) -> None:
        """Prepares both towers.

        Args:
          model: the model.
          mesh: the device mesh.
          batch_size: rows embedded at once, over all devices.
          workers: processes that load rows; 0 = threads of this one.

        Raises:
          types.UserError: if the devices do not divide the batch.
        """
        mesh_lib.check_batch(mesh, batch_size)
        self._mesh, self._batch_size, self._workers = mesh, batch_size, workers
        constrain = sharding.pin_to_batch(mesh)

        def image(params: types.Params, batch: types.Batch) -> types.Array:
            return model.embed(params, images=batch["image"], constrain=constrain).image

        def text(params: types.Params, batch: types.Batch) -> types.Array:
            return model.embed(params, ids=batch["tokens"], constrain=constrain).text

        everywhere = sharding.replicated(mesh)
        self._towers = {
            "image": jax.jit(image, out_shardings=everywhere),
            "text": jax.jit(text, out_shardings=everywhere),
        }
        self._spread = jax.jit(lambda index: index, out_shardings=everywhere)

    def __call__(
        self,
        tower: str,
        params: types.Params,
        load: pipeline.Load,
        count: int,
        progress: Progress | None = None,
    ) -> tuple[np.ndarray, int]:
        """Returns the embeddings of all rows, the same on every process.

        Args:
          tower: "image" or "text".
          params: the model's parameters.
          load: row -> {"image": ...} or {"tokens": ..., "truncated": ...}.
          count: how many rows.
          progress: called with (rows done, rows) after each batch.

        Returns:
          [count, D] float32, unit norm, in the order of the rows; and how many captions were
          truncated.

        Raises:
          types.UserError: for a picture that cannot be decoded, or embeddings that are not finite.
        """
        share = pipeline.Share(jax.process_index(), jax.process_count())
        batches = pipeline.once(
            load, count, batch_size=self._batch_size, share=share, workers=self._workers
        )
        parts, places, cut = [], [], []
        with contextlib.closing(batches):
            for _ in range(-(-count // self._batch_size)):
                batch = sharding.put_batch(self._mesh, next(batches))
                cut.append(self._spread(batch.pop("truncated", batch["index"] < pipeline.PAD)))
                places.append(self._spread(batch.pop("index")))
                parts.append(self._towers[tower](params, batch))
                if progress:
                    progress(min(len(parts) * self._batch_size, count), count)
        return _in_order(parts, places, cut, count, tower)


def _in_order(
    parts: list, places: list, cut: list, count: int, tower: str
) -> tuple[np.ndarray, int]:
    embeddings, index, truncated = (np.concatenate(jax.device_get(x)) for x in (parts, places, cut))
    real = index != pipeline.PAD
    ordered = np.empty((count, embeddings.shape[1]), np.float32)
    ordered[index[real]] = embeddings[real]
    bad = np.flatnonzero(~np.isfinite(ordered).all(axis=1))
    if bad.size:
        raise types.UserError(
            f"{bad.size} of {count} {tower} embeddings are not finite, the first in row {bad[0]}; "
            "the weights are damaged or the compute type overflows: try model.dtype=float32"
        )
    return ordered, int(np.sum(truncated[real]))
