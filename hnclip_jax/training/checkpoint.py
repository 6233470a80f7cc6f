"""Checkpoints of a run: save in the background, restore onto any mesh. The only Orbax room."""

import contextlib
import dataclasses
import errno
import logging
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from hnclip_jax import types
from hnclip_jax.parallel import sharding
from hnclip_jax.training import state as state_lib
from hnclip_jax.training import storage

SCHEMA = 1
"""Raised when a change makes older checkpoints unreadable."""

_STATE = "state"


class Hanging(types.TryAgain):
    """A save takes too long; its threads may never end, so the program has to be ended."""

    at_once = True


class Checkpoints:
    """The checkpoints of one run folder, by step.

    Every process of a run must make the same calls in the same order.
    """

    def __init__(self, folder: str | pathlib.Path, keep: int, timeout_s: int = 1800) -> None:
        """Opens (and makes) the folder.

        Args:
          folder: may be relative; it is made absolute here.
          keep: how many of the latest checkpoints stay. An older one goes only after a newer one is
            complete.
          timeout_s: so long may a save take.
        """
        # What goes wrong in the background is raised here. Orbax also logs it, from every thread.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        training = ocp.training
        with storage.plain_errors(folder, "checkpoints"):
            self._manager = training.Checkpointer(
                pathlib.Path(folder).absolute(),
                save_decision_policy=training.save_decision_policies.FixedIntervalPolicy(1),
                preservation_policy=training.preservation_policies.LatestN(keep),
                cleanup_tmp_directories=True,
            )
        # A mount that goes away leaves an empty folder of the local disk behind.
        self._device = os.stat(self._manager.directory).st_dev
        self._timeout_s = timeout_s
        self._pending: Any = None
        self._began = 0.0

    def __enter__(self) -> "Checkpoints":
        """Returns itself; the end of the block closes it."""
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Closes, unless the program has to end without waiting."""
        if not getattr(error, "at_once", False):
            self.close()

    @property
    def latest_step(self) -> int | None:
        """The newest complete checkpoint's step, or None."""
        latest = self._manager.latest
        return None if latest is None else latest.step

    def save(self, state: state_lib.TrainState, meta: dict[str, Any]) -> None:
        """Starts to save `state` with `meta` (JSON values) under the state's step.

        An error of the previous save, which ran in the background, is raised here.

        Raises:
          types.UserError: if the folder cannot be written (full, read-only, gone).
          Hanging: if the save before is not complete in time.
        """
        self.wait()
        step = int(state.step)
        if step == self.latest_step:
            return
        self._began = time.monotonic()
        with storage.plain_errors(self._manager.directory, f"step {step}"):
            # Orbax would make it anew, wherever that is.
            if os.stat(self._manager.directory).st_dev != self._device:
                raise OSError(errno.ENOTCONN, storage.UNMOUNTED)
            self._pending = self._manager.save_checkpointables_async(
                step, {_STATE: _kept(state)}, custom_metadata={"schema": SCHEMA, **meta}
            )

    def check(self) -> None:
        """Raises what `wait` would, if the save in progress has ended or its time is up.

        With several processes an error here would be one of this process alone, so all wait for
        the next save, where they meet anyway.
        """
        if self._pending is None or jax.process_count() > 1:
            return
        if not self._manager.is_saving_in_progress() or self._left_s() <= 0:
            self.wait()

    def wait(self) -> None:
        """Returns once the save in progress, if any, is complete; raises if it failed."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            with storage.plain_errors(self._manager.directory, "the last checkpoint"):
                pending.result(timeout=max(self._left_s(), 0.0))
        except TimeoutError as error:
            self._pending = pending
            raise Hanging(
                f"a checkpoint is not complete after {self._timeout_s} s "
                f"(train.save_timeout_s), so the storage of {self._manager.directory} is slow or "
                "hangs; earlier checkpoints are untouched: the same command goes on from there"
            ) from error

    def _left_s(self) -> float:
        return self._began + self._timeout_s - time.monotonic()

    def meta(self) -> dict[str, Any]:
        """Returns what was saved as `meta` with the latest checkpoint.

        Raises:
          types.UserError: if a newer version of this package wrote it, or it is damaged.
        """
        with self._damaged():
            found = self._manager.checkpointables_metadata(self.latest_step)
            meta = dict(found.custom_metadata)
            meta["schema"]
        if meta["schema"] > SCHEMA:
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
          types.UserError: if the saved arrays have other paths, shapes or dtypes, or are damaged.
        """
        wanted = state_lib.abstract_like(_kept(like))
        with self._damaged():
            saved = _shapes(
                self._manager.checkpointables_metadata(self.latest_step).metadata[_STATE]
            )
            if not saved:
                raise ValueError("the names of its arrays are gone")
        _compare(saved, _shapes(wanted))
        with self._damaged():
            found = self._manager.load_checkpointables(self.latest_step, {_STATE: wanted})[_STATE]
        return dataclasses.replace(found, base=like.base)

    @contextlib.contextmanager
    def _damaged(self) -> Iterator[None]:
        """Turns whatever reading the latest checkpoint raises into one line."""
        try:
            yield
        except jax.errors.JaxRuntimeError:
            raise  # Too little memory, a lost process: not the checkpoint's fault.
        except Exception as error:
            folder = pathlib.Path(self._manager.directory) / str(self.latest_step)
            said = str(error).strip().splitlines() or [""]
            raise types.UserError(
                f"the checkpoint {folder} is damaged ({type(error).__name__}: {said[0][:200]}); "
                "move it away to go on from the one before, if there is one"
            ) from error

    def close(self) -> None:
        """Waits for the save in progress and lets go of the folder."""
        try:
            self.wait()
        except Hanging:
            raise  # Orbax would wait for ever.
        except BaseException:
            # It would raise the error of a failed save here once more.
            with contextlib.suppress(Exception):
                self._manager.close()
            raise
        with storage.plain_errors(self._manager.directory, "the last checkpoint"):
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
