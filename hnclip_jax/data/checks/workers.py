"""Work on many items with all cores: processes that are started without fork, results in order."""

import collections
import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import process
from multiprocessing import resource_tracker
from typing import TypeVar

from hnclip_jax import types

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]

ALL_CORES = -1
FEW = 256
"""With fewer items, the processes would start longer than they work."""

_CHUNK = 16

_KEPT: list[Callable] = []
"""The work of a process that was started for it."""


def each(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int = ALL_CORES,
    progress: Progress | None = None,
) -> list[Result]:
    """Returns work(item) of every item, in the order of the items.

    Args:
      work: picklable, as items and results are. Each process gets it once.
      items: what is worked on.
      workers: processes; 0 = this one, ALL_CORES = one per core, or this one for FEW items. Changes
        speed, never a result.
      progress: called with (items done, items).

    Raises:
      types.UserError: if a process was killed.
    """
    if workers == ALL_CORES:
        workers = cores() if len(items) >= FEW else 0
    size = _CHUNK if workers else 1
    chunks = (items[start : start + size] for start in range(0, len(items), size))
    done: list[Result] = []
    with contextlib.closing((_spread if workers else _here)(work, chunks, workers)) as found:
        for results in found:
            done.extend(results)
            if progress:
                progress(len(done), len(items))
    return done


def cores() -> int:
    """Returns how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on every system.
        return os.cpu_count() or 1


def _here(work: Callable, chunks: Iterator[Sequence], workers: int) -> Iterator[list]:
    del workers
    return (list(map(work, chunk)) for chunk in chunks)


def _spread(work: Callable, chunks: Iterator[Sequence], workers: int) -> Iterator[list]:
    pool = futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(work,)
    )
    waiting: collections.deque[futures.Future] = collections.deque()

    def submit(number: int) -> None:
        with _interrupts_held():
            waiting.extend(pool.submit(_chunk, chunk) for chunk in itertools.islice(chunks, number))

    # Processes start with it; while it starts, it would let interrupts through.
    resource_tracker.ensure_running()
    try:
        # A few chunks ahead of the processes, so that a list of millions is not pickled at once.
        submit(4 * workers)
        while waiting:
            results = waiting.popleft().result()
            submit(1)
            yield results
    except process.BrokenProcessPool as error:
        raise types.UserError(
            "a process that reads was killed, perhaps for want of memory; lower workers"
        ) from error
    finally:
        # After Ctrl-C or an error nobody waits for what is left.
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Lets Ctrl-C wait.

    Processes that start meanwhile never get one, since it is for their parent: they inherit what is
    blocked. And the pool is not left half changed, in which state it would wait for ever. Blocking
    alone would not do that: the system may hand the signal to another thread, and Python then
    interrupts the main one all the same.
    """
    held: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda *_: held.append(1)) if is_main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_main:
            signal.signal(signal.SIGINT, handler)
    if held:
        signal.raise_signal(signal.SIGINT)


def _begin(work: Callable) -> None:
    """Prepares a process, whose end is that of its parent."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _KEPT.append(work)


def _chunk(items: Sequence) -> list:
    return list(map(_KEPT[0], items))


def _leave_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
