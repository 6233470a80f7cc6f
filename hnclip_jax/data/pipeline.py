"""grain: rows -> shuffle -> repeat -> load -> this process's share -> batch -> prefetch.

The global batch of step k depends on (seed, k) alone: not on the number of processes or workers,
and not on where a run was started. So the step number is the position in the data, and nothing else
has to be saved. Which is why nothing may be filtered behind the shuffle.
"""

import dataclasses
import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

import grain
import numpy as np

from hnclip_jax import types
from hnclip_jax.data import images, tokenizer

Load = Callable[[int], dict[str, np.ndarray]]
"""Row number -> the arrays of one example. Picklable: workers are separate processes."""

Order = Callable[[int], int]
"""Place in the endless order of the training rows -> row number. Picklable, as `Load`."""

PAD = -1
"""`index` of rows that only fill up the last batch of a single pass."""


@dataclasses.dataclass(frozen=True)
class Share:
    """Which part of the global batch this process reads."""

    process_index: int = 0
    process_count: int = 1


@dataclasses.dataclass(frozen=True)
class LoadImage:
    """Row -> {"image": [size, size, 3] uint8}.

    paths: what names the pictures: paths, or references of another kind.
    size: pixels.
    options: how files become pixels.
    """

    paths: Sequence[images.Reference]
    size: int
    options: images.Options = images.DEFAULT

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        """Decodes one picture."""
        return {"image": images.load_image(self.paths[row], self.size, self.options)}


@dataclasses.dataclass(frozen=True)
class LoadText:
    """Row -> {"tokens": [S] int32, "truncated": bool}."""

    captions: Sequence[str]
    tokenize: tokenizer.Tokenizer
    context_length: int

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        """Encodes one caption."""
        ids, truncated = self.tokenize(self.captions[row], self.context_length)
        return {"tokens": ids[0], "truncated": truncated[0]}


@dataclasses.dataclass(frozen=True)
class LoadPair:
    """Row -> picture, caption and pair_id, as types.Batch describes them, and what `more` loads."""

    image: LoadImage
    text: LoadText
    pair_ids: np.ndarray
    more: tuple[Load, ...] = ()

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        """Loads one pair."""
        pair = {**self.image(row), **self.text(row), "pair_id": np.int32(self.pair_ids[row])}
        for load in self.more:
            pair |= load(row)
        return pair


@dataclasses.dataclass(frozen=True)
class _Indexed:
    """Adds the row number; rows past the end repeat row 0 and are marked as padding."""

    load: Load
    count: int

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        inside = row < self.count
        return {**self.load(row if inside else 0), "index": np.int32(row if inside else PAD)}


def training(
    load: Load,
    count: int,
    *,
    seed: int,
    batch_size: int,
    start_step: int = 0,
    share: Share = Share(),
    workers: int = 0,
    order: Order | None = None,
) -> Iterator[types.Batch]:
    """Yields this process's rows of the global batches of steps start_step, start_step + 1, ...

    Args:
      load: loads one row.
      count: rows of the list; at least one batch.
      seed: of the order, which is another one in every epoch; unused if that is given.
      batch_size: pairs of the global batch.
      start_step: first step to yield.
      share: which rows are this process's.
      workers: processes that load; 0 = threads of this one. Changes speed, never a batch.
      order: which row is where; None = rows are shuffled anew in every epoch.

    Raises:
      types.UserError: if the list is smaller than a batch, or processes do not divide the batch.
    """
    if count < batch_size:
        raise types.UserError(
            f"the list has {count} pairs, fewer than the batch of {batch_size}; a pair must not be "
            f"its own negative: lower train.global_batch_size to at most {count}"
        )
    if order is None:
        rows = grain.MapDataset.range(count).seed(seed).shuffle().repeat(None)
    else:
        places = grain.MapDataset.range(count).repeat(None)
        rows = places.map_with_index(functools.partial(_ordered, order))
    return _batches(rows, _Indexed(load, count), batch_size, share, workers, start_step)


def _ordered(order: Order, place: int, _: int) -> int:
    return order(place)


def once(
    load: Load,
    count: int,
    *,
    batch_size: int,
    share: Share = Share(),
    workers: int = 0,
) -> Iterator[types.Batch]:
    """Yields this process's rows of one pass in order; `index` is PAD on the rows that fill up.

    Every process gets equally many batches, all of one shape.

    Args:
      load: loads one row.
      count: rows of the list.
      batch_size: rows of the global batch.
      share: which rows are this process's.
      workers: processes that load; 0 = threads of this one.
    """
    padded = -(-count // batch_size) * batch_size
    rows = grain.MapDataset.range(padded)
    return _batches(rows, _Indexed(load, count), batch_size, share, workers, 0)


def _batches(
    rows: grain.MapDataset,
    load: Load,
    batch_size: int,
    share: Share,
    workers: int,
    start_step: int,
) -> Iterator[types.Batch]:
    if batch_size % share.process_count:
        raise types.UserError(
            f"a batch of {batch_size} cannot be split evenly over {share.process_count} processes"
        )
    mine = slice(share.process_index, None, share.process_count)
    # More threads than cores would only take turns, and pay for it.
    threads = max(1, min(4, (os.cpu_count() or 1) // workers)) if workers else 4
    batches = (
        rows.map(load)
        .slice(mine)
        .batch(batch_size // share.process_count, drop_remainder=True)
        .slice(slice(start_step, None))
        .to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=8))
    )
    if workers:
        # grain starts them anew instead of forking, which threads of JAX would not survive.
        options = grain.MultiprocessingOptions(num_workers=workers)
        batches = batches.mp_prefetch(options, worker_init_fn=_begin_worker)
    return _closing(iter(batches))


def _closing(batches: grain.DatasetIterator) -> Iterator[types.Batch]:
    """Yields `batches`; ends their threads and processes when it is closed, dropped or raises."""
    try:
        for batch in batches:
            # Copied, because workers hand over shared memory, which JAX would hold on to until some
            # garbage collection; a container may have little of it.
            yield {name: np.array(rows) for name, rows in batch.items()}
    except RuntimeError as error:
        if not str(error).startswith("Worker process"):
            raise
        raise types.UserError(
            "a process that loads data was killed, perhaps for want of memory; lower data.workers"
        ) from error
    finally:
        batches.close()


def _begin_worker(index: int, count: int) -> None:
    """Makes a worker outlive Ctrl-C and SIGTERM, which are for its parent, but not its parent."""
    del index, count
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
