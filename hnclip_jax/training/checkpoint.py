"""Checkpoints of a run: save in the background, restore onto any mesh. The only Orbax room."""

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from hnclip_jax import types
from hnclip_jax.parallel import sharding
from hnclip_jax.training import state as state_lib

SCHEMA = 1
"""Raised when a change makes older checkpoints unreadable."""

_STATE = "state"


class Checkpoints:
    """The checkpoints of one run folder, by step.

    Every process of a run must make the same calls in the same order.
    """

    def __init__(self, folder: str | pathlib.Path, keep: int) -> None:
        """Opens (and makes) the folder.

        Args:
          folder: may be relative; it is made absolute here.
          keep: how many of the latest checkpoints stay. An older one goes only after a newer one is
            complete.
        """
        # What goes wrong in the background is raised here. Orbax also logs it, from every thread.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        training = ocp.training
        with _plain_errors(folder, "checkpoints"):
            self._manager = training.Checkpointer(
                pathlib.Path(folder).absolute(),
                save_decision_policy=training.save_decision_policies.FixedIntervalPolicy(1),
                preservation_policy=training.preservation_policies.LatestN(keep),
                cleanup_tmp_directories=True,
            )
        self._pending: Any = None

    @property
    def latest_step(self) -> int | None:
        """The newest complete checkpoint's step, or None."""
        latest = self._manager.latest
        return None if latest is None else latest.step

    def save(self, state: state_lib.TrainState, meta: dict[str, Any]) -> None:
        """Starts to save `state` with `meta` (JSON values) under the state's step.

        An error of the previous save, which ran in the background, is raised here.

        Raises:
          types.UserError: if the folder cannot be written (full, read-only).
        """
        self.wait()
        step = int(state.step)
        if step == self.latest_step:
            return
        with _plain_errors(self._manager.directory, f"step {step}"):
            self._pending = self._manager.save_checkpointables_async(
                step, {_STATE: _kept(state)}, custom_metadata={"schema": SCHEMA, **meta}
            )

    def wait(self) -> None:
        """Returns once the save in progress, if any, is complete; raises if it failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            with _plain_errors(self._manager.directory, "the last checkpoint"):
                pending.result()

    def meta(self) -> dict[str, Any]:
        """Returns what was saved as `meta` with the latest checkpoint.

        Raises:
          types.UserError: if a newer version of this package wrote it.
        """
        meta = dict(self._manager.checkpointables_metadata(self.latest_step).custom_metadata or {})
        if meta.get("schema", 0) > SCHEMA:
            raise types.UserError(
                f"the checkpoint in {self._manager.directory} has schema {meta['schema']}, this "
                f"version reads up to {SCHEMA}; update hnclip_jax"
            )
        return meta

    def restore(self, like: state_lib.TrainState) -> state_lib.TrainState:
        """Returns the latest state, placed as `like` says.

        Args:
          like: a state, or its shapes with shardings; the mesh may differ from the one that saved.
            Its base comes back as it is.

        Raises:
          types.UserError: if the saved arrays have other paths, shapes or dtypes.
        """
        wanted = state_lib.abstract_like(_kept(like))
        saved = self._manager.checkpointables_metadata(self.latest_step).metadata[_STATE]
        _compare(_shapes(saved), _shapes(wanted))
        found = self._manager.load_checkpointables(self.latest_step, {_STATE: wanted})[_STATE]
        return dataclasses.replace(found, base=like.base)

    def close(self) -> None:
        """Waits for the save in progress and lets go of the folder."""
        try:
            self.wait()
        finally:
            # Orbax raises the error of a failed save here once more.
            with _plain_errors(self._manager.directory, "the last checkpoint"):
                self._manager.close()


def _kept(state: state_lib.TrainState) -> state_lib.TrainState:
    """Returns `state` without the base of its adapters, which a run has from its weights."""
    return dataclasses.replace(state, base=None)


def _shapes(tree: Any) -> dict[str, tuple]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        sharding.path_of(path): (tuple(leaf.shape), str(leaf.dtype))
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    }


def _compare(saved: dict[str, tuple], wanted: dict[str, tuple]) -> None:
    wrong = [f"{path} is missing" for path in wanted if path not in saved]
    wrong += [f"{path} is left over" for path in saved if path not in wanted]
    wrong += [
        f"{path} is {saved[path]}, needs {wanted[path]}"
        for path in wanted
        if path in saved and saved[path] != wanted[path]
    ]
    if wrong:
        raise types.UserError(
            f"the checkpoint does not fit this configuration: {types.at_most_ten(wrong, '; ')}"
        )


_DISK_FAULTS = (
    "No space left",
    "Disk quota",
    "File too large",
    "Read-only file system",
    "Permission denied",
)


@contextlib.contextmanager
def _plain_errors(folder: Any, what: str) -> Iterator[None]:
    """Turns what the file system says into one line; anything else passes through."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            fault = next((fault for fault in _DISK_FAULTS if fault in str(cause)), None)
            if fault:
                raise types.UserError(
                    f"{what} could not be saved in {folder}: {fault.lower()}; earlier checkpoints "
                    "are untouched: make room there and run the same command again"
                ) from error
            cause = cause.__cause__ or cause.__context__
        raise
