"""Embeds pictures and captions on the mesh, in padded batches of one shape."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import numpy as np

from hnclip_jax import types
from hnclip_jax.data import pipeline
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding

Progress = Callable[[int, int], None]

Head: TypeAlias = Callable[[types.Params, types.Embeddings], Any]
"""(parameters, one tower's embeddings, tokens among them) -> tree of arrays [B, ...] to keep."""

# One batch is computed while the next is loaded; results of more would fill the devices.
_IN_FLIGHT = 2


class Embedder:
    """A model on a mesh; compiled once per tower, used with any parameters."""

    def __init__(
        self,
        model: dual_encoder.DualEncoder,
        mesh: jax.sharding.Mesh,
        *,
        batch_size: int,
        workers: int = 0,
        head: Head | None = None,
    ) -> None:
        """Prepares both towers.

        Args:
          model: the model.
          mesh: the device mesh.
          batch_size: rows embedded at once, over all devices.
          workers: processes that load rows; 0 = threads of this one.
          head: what is kept of each row; None = its embedding.

        Raises:
          types.UserError: if the devices do not divide the batch.
        """
        mesh_lib.check_batch(mesh, batch_size)
        self._mesh, self._batch_size, self._workers = mesh, batch_size, workers
        more = {"tokens": head is not None, "constrain": sharding.pin_to_batch(mesh)}

        def image(params: types.Params, batch: types.Batch) -> Any:
            found = model.embed(params, images=batch["image"], **more)
            return head(params, found) if head else found.image

        def text(params: types.Params, batch: types.Batch) -> Any:
            found = model.embed(params, ids=batch["tokens"], **more)
            return head(params, found) if head else found.text

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
    ) -> tuple[Any, int]:
        """Returns the embeddings of all rows, the same on every process.

        Args:
          tower: "image" or "text".
          params: the model's parameters, and those of the head.
          load: row -> {"image": ...} or {"tokens": ..., "truncated": ...}.
          count: how many rows.
          progress: called with (rows done, rows) after each batch.

        Returns:
          [count, D] float32, unit norm, in the order of the rows, or what the head makes of them;
          and how many captions were truncated.

        Raises:
          types.UserError: for a picture that cannot be decoded, or embeddings that are not finite.
        """
        share = pipeline.Share(jax.process_index(), jax.process_count())
        batches = pipeline.once(
            load, count, batch_size=self._batch_size, share=share, workers=self._workers
        )
        rows, waiting = _Rows(count), []
        with contextlib.closing(batches):
            for done in range(self._batch_size, count + self._batch_size, self._batch_size):
                batch = sharding.put_batch(self._mesh, next(batches))
                cut = self._spread(batch.pop("truncated", batch["index"] < pipeline.PAD))
                place = self._spread(batch.pop("index"))
                waiting.append((self._towers[tower](params, batch), place, cut))
                if len(waiting) == _IN_FLIGHT:
                    rows.put(*jax.device_get(waiting.pop(0)))
                if progress:
                    progress(min(done, count), count)
        for last in waiting:
            rows.put(*jax.device_get(last))
        rows.check(tower)
        return rows.arrays, rows.truncated


class _Rows:
    """All rows of a tower, on the host, each put in its place as its batch comes."""

    def __init__(self, count: int) -> None:
        self.arrays: Any = None
        self.truncated = 0
        self._finite = np.ones(count, bool)

    def put(self, part: Any, index: np.ndarray, truncated: np.ndarray) -> None:
        """Takes a batch: arrays [B, ...], the number of each row, and whether it was cut."""
        real = index != pipeline.PAD
        if self.arrays is None:
            count = len(self._finite)
            self.arrays = jax.tree.map(lambda x: np.empty((count, *x.shape[1:]), x.dtype), part)
        for whole, rows in zip(jax.tree.leaves(self.arrays), jax.tree.leaves(part), strict=True):
            whole[index[real]] = rows[real]
            inner = tuple(range(1, rows.ndim))
            self._finite[index[real]] &= np.isfinite(rows[real]).all(axis=inner)
        self.truncated += int(np.sum(truncated[real]))

    def check(self, tower: str) -> None:
        """Raises types.UserError unless all values are finite."""
        bad = np.flatnonzero(~self._finite)
        if bad.size:
            raise types.UserError(
                f"{bad.size} of {len(self._finite)} {tower} embeddings are not finite, the first "
                f"in row {bad[0]}; the weights are damaged or the compute type overflows: try "
                "model.dtype=float32"
            )
