"""The processes of a run that is going to be killed: started, killed, waited for."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

_POLL_S = 0.02


class Hosts:
    """One start of a run by one or several processes, each with one CPU device."""

    def __init__(
        self, words: Sequence[str], count: int, logs: pathlib.Path, compiled: pathlib.Path
    ) -> None:
        """Starts them.

        Args:
          words: of the command line, behind `hnclip`.
          count: of processes.
          logs: folder for what they say, made here.
          compiled: where compiled programs are kept.
        """
        logs.mkdir(parents=True)
        self._logs = [logs / f"process_{index}.txt" for index in range(count)]
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self._processes = []
        port = _free_port()
        for index, path in enumerate(self._logs):
            own = _place(index, count, port) if count > 1 else []
            with path.open("w") as log:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "hnclip_jax.cli", *words, *own],
                        env=environment,
                        stdout=log,
                        stderr=log,
                    )
                )

    def running(self) -> bool:
        """Returns whether all of them are."""
        return all(process.poll() is None for process in self._processes)

    def kill(self, victims: Iterable[int]) -> None:
        """Sends SIGKILL to some of them."""
        for index in victims:
            self._processes[index].send_signal(signal.SIGKILL)

    def wait(self, limit_s: float) -> list[int | None]:
        """Returns the exit codes once all have ended, after `limit_s` at most; None = still runs.

        Those that still run then are killed.
        """
        end = time.monotonic() + limit_s
        while time.monotonic() < end and any(p.poll() is None for p in self._processes):
            time.sleep(_POLL_S)
        codes = [process.poll() for process in self._processes]
        self.end()
        return codes

    def end(self) -> None:
        """Kills what still runs."""
        for process in self._processes:
            process.kill()
            process.wait()

    def last_words(self) -> str:
        """Returns the last line that each has said."""
        said = (path.read_text(errors="replace").strip() for path in self._logs)
        return " / ".join(text.rpartition("\n")[2] for text in said)

    def goes_on_after(self) -> int | None:
        """Returns the step after which process 0 said that it goes on; None if it did not.

        A run that was complete already says so in other words.
        """
        said = self._logs[0].read_text(errors="replace")
        words = r"^(?:goes on after step|nothing is left to do: .* has its) (\d+) (?:of|steps)"
        found = re.search(words, said, re.MULTILINE)
        return int(found[1]) if found else None


def _place(index: int, count: int, port: int) -> list[str]:
    return [
        f"--config.parallel.coordinator=127.0.0.1:{port}",
        f"--config.parallel.process_count={count}",
        f"--config.parallel.process_index={index}",
        f"--config.parallel.fsdp={count}",
    ]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
