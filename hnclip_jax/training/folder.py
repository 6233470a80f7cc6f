"""A run folder: what lies where in it, and whether it belongs to the configuration at hand."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from hnclip_jax import config, types

MAY_CHANGE = (
    "parallel.",
    "log.",
    "eval.",
    "data.train",  # A packed list; that it holds the same is checked by its hash.
    "data.workers",
    "data.image_root",
    "model.remat",
    "train.save_every_steps",
    "train.keep_checkpoints",
    "train.save_timeout_s",
    "train.skip_nonfinite_steps",
)
"""Settings (whole groups end in a dot) that a run may be continued with.

They change no number; but skip_nonfinite_steps says what becomes of a step that has none to give.
"""


class RunFolder:
    """Paths of a run; made absolute, so that no library below has to."""

    def __init__(self, path: str | pathlib.Path) -> None:
        """Names the folder; nothing is read or made yet.

        Raises:
          types.UserError: for the address of a bucket.
        """
        if "://" in str(path):
            raise types.UserError(
                f"{path} is an address, but a run needs a folder (it appends and renames); mount "
                "the bucket and give the path of the mount"
            )
        self.path = pathlib.Path(path).expanduser().absolute()
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.weights = self.path / "weights"
        self.eval = self.path / "eval"
        self.profile = self.path / "profile"

    def eval_file(self, step: int) -> pathlib.Path:
        """The result file of the evaluation after `step` steps."""
        return self.eval / f"step_{step:08d}.json"

    def check(self, wanted: config.Config) -> None:
        """Checks that the folder is new, or that its run has the configuration `wanted`.

        A run that ended in a mistake before its first step may be given any other configuration.

        Raises:
          types.UserError: if it holds another run, or something that is no run.
        """
        if not self.config.exists():
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise types.UserError(
                    f"{self.path} is there already and is no run of hnclip; choose another "
                    "--workdir"
                )
            return
        found = config.differences(self._read(), wanted)
        changed = {name: pair for name, pair in found.items() if not name.startswith(MAY_CHANGE)}
        if changed and self._has_begun():
            shown = "; ".join(
                f"{name} was {old!r}, is {new!r}" for name, (old, new) in list(changed.items())[:5]
            )
            raise types.UserError(
                f"{self.path} holds a run of another configuration ({shown}); choose another "
                "--workdir, or give the old values to go on with that run"
            )

    def claim(self, wanted: config.Config) -> None:
        """Makes the folder and writes config.json.

        Raises:
          types.UserError: if that is not possible.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            scratch = self.config.with_suffix(".tmp")
            scratch.write_text(config.to_json(wanted) + "\n")
            os.replace(scratch, self.config)
        except OSError as error:
            raise types.UserError(
                f"cannot write to {self.path}: {error.strerror}; choose another --workdir"
            ) from error

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other runs out of the folder; the system lets go of it however this one ends.

        Where a file system has no locks, nothing keeps them out.

        Raises:
          types.UserError: if another run is in it.
        """
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise types.UserError(
                    f"another run is at work in {self.path}; wait for its end, stop it, or choose "
                    "another --workdir"
                ) from error
            except OSError:
                pass
            yield

    def _read(self) -> config.Config:
        try:
            return config.from_json(self.config.read_text())
        except (OSError, ValueError) as error:
            raise types.UserError(
                f"cannot read {self.config} ({error}); choose another --workdir"
            ) from error

    def _has_begun(self) -> bool:
        logged = self.metrics.exists() and self.metrics.stat().st_size > 0
        return logged or any(self.checkpoints.glob("[0-9]*"))
