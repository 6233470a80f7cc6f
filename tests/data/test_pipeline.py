"""The pipeline: the batch of a step depends on seed and step alone."""

import collections
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.data import pipeline, tokenizer

COUNT, BATCH = 22, 4  # Epochs end within a batch, and within a process's share.


def numbered(row):
    """Loads nothing but the row number, twice."""
    return {"copy": np.int32(row)}


def rows_of(batches, steps):
    return [batch["index"].tolist() for batch in itertools.islice(batches, steps)]


def training(load=numbered, count=COUNT, **options):
    return pipeline.training(load, count, **{"seed": 5, "batch_size": BATCH, **options})


@pytest.fixture(scope="module")
def pairs(drawn):
    """Loads the pairs of the drawn set as the command does; and their captions."""
    rows = json.loads(drawn[0].read_text())
    captions = [row["caption"] for row in rows]
    load = pipeline.LoadPair(
        pipeline.LoadImage([str(drawn[0].parent / row["filename"]) for row in rows], 24),
        pipeline.LoadText(captions, tokenizer.default(), 40),
        np.arange(100, 100 + len(rows), dtype=np.int32),
    )
    return load, captions


@pytest.mark.parametrize("processes", [2, 4])
def test_the_global_batch_is_the_same_for_any_number_of_processes(processes):
    steps = 13
    whole = rows_of(training(), steps)
    parts = [
        rows_of(training(share=pipeline.Share(index, processes)), steps)
        for index in range(processes)
    ]
    for step, expected in enumerate(whole):
        shares = [part[step] for part in parts]
        assert {len(share) for share in shares} == {BATCH // processes}
        assert sorted(itertools.chain(*shares)) == sorted(expected)


@pytest.mark.parametrize("start", [1, 5, 6, 40])
def test_a_pipeline_begun_at_a_step_equals_one_that_ran_there(start):
    ran = rows_of(training(), start + 8)
    assert rows_of(training(start_step=start), 8) == ran[start:]
    share = pipeline.Share(1, 2)
    ran = rows_of(training(share=share), start + 8)
    assert rows_of(training(share=share, start_step=start), 8) == ran[start:]


def test_every_epoch_has_every_row_once_in_another_order():
    rows = [*itertools.chain(*rows_of(training(), 3 * COUNT // BATCH + 1))]
    epochs = [tuple(rows[epoch * COUNT : (epoch + 1) * COUNT]) for epoch in range(3)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len({*epochs, tuple(range(COUNT))}) == 4


def test_the_seed_alone_decides_the_order():
    assert rows_of(training(), 5) == rows_of(training(), 5)
    assert rows_of(training(), 5) != rows_of(training(seed=6), 5)


def test_a_batch_holds_what_its_rows_say(pairs):
    load, captions = pairs
    batch = next(training(load, len(captions)))
    assert {name: (array.shape, array.dtype) for name, array in batch.items()} == {
        "image": ((BATCH, 24, 24, 3), np.uint8),
        "tokens": ((BATCH, 40), np.int32),
        "truncated": ((BATCH,), np.bool_),
        "pair_id": ((BATCH,), np.int32),
        "index": ((BATCH,), np.int32),
    }
    for place, row in enumerate(batch["index"]):
        ids, truncated = tokenizer.default()(captions[row], 40)
        np.testing.assert_array_equal(batch["tokens"][place], ids[0])
        assert batch["truncated"][place] == truncated[0]
        np.testing.assert_array_equal(batch["image"][place], load.image(row)["image"])
    np.testing.assert_array_equal(batch["pair_id"], batch["index"] + 100)


@pytest.mark.parametrize(("processes", "count"), [(1, 22), (2, 22), (1, 3), (2, 24)])
def test_a_single_pass_is_padded_and_marked(processes, count):
    found = collections.Counter()
    steps = -(-count // BATCH)
    for index in range(processes):
        share = pipeline.Share(index, processes)
        batches = list(pipeline.once(numbered, count, batch_size=BATCH, share=share))
        assert [len(batch["index"]) for batch in batches] == [BATCH // processes] * steps
        for batch in batches:
            real = batch["index"] != pipeline.PAD
            np.testing.assert_array_equal(batch["copy"], np.where(real, batch["index"], 0))
        found.update(row for batch in batches for row in batch["index"].tolist())
    padding = found.pop(pipeline.PAD, 0)
    assert found == dict.fromkeys(range(count), 1)
    assert padding == steps * BATCH - count


def test_a_single_pass_is_in_order():
    first, second = rows_of(pipeline.once(numbered, 6, batch_size=4), 2)
    assert [*first, *second] == [0, 1, 2, 3, 4, 5, pipeline.PAD, pipeline.PAD]


def test_what_does_not_fit():
    with pytest.raises(types.UserError, match="3 pairs, fewer than the batch of 4"):
        training(count=3)
    with pytest.raises(types.UserError, match="batch of 4 cannot be split evenly over 3 processes"):
        training(share=pipeline.Share(0, 3))


def test_a_mistake_in_a_row_comes_out_as_it_is_at_its_step():
    bad = rows_of(training(), 4)[3][1]

    def load(row):
        if row == bad:
            raise types.UserError(f"row {row} is broken")
        return numbered(row)

    batches = training(load)
    assert len(rows_of(batches, 3)) == 3
    with pytest.raises(types.UserError) as caught:
        next(batches)
    assert str(caught.value) == f"row {bad} is broken"


@pytest.mark.slow
def test_workers_change_no_bit_and_leave_nothing_behind(pairs, parsed_flags):
    load, captions = pairs
    begun = {process.pid for process in multiprocessing.active_children()}
    alone = training(load, len(captions), start_step=3)
    helped = training(load, len(captions), start_step=3, workers=2)
    for expected, found in itertools.islice(zip(alone, helped, strict=True), 5):
        assert found.keys() == expected.keys()
        for name, array in found.items():
            assert type(array) is np.ndarray  # Not a view of memory that the worker takes back.
            assert array.dtype == expected[name].dtype
            np.testing.assert_array_equal(array, expected[name])
    workers = [p for p in multiprocessing.active_children() if p.pid not in begun]
    assert len(workers) == 2
    assert all(
        isinstance(worker, multiprocessing.get_context("spawn").Process) for worker in workers
    )
    for worker in workers:  # Ctrl-C and a batch system's SIGTERM reach them too.
        os.kill(worker.pid, signal.SIGINT)
        os.kill(worker.pid, signal.SIGTERM)
    assert len(rows_of(helped, 4)) == 4
    assert all(worker.is_alive() for worker in workers)
    workers[0].kill()
    with pytest.raises(types.UserError, match=r"was killed.*data\.workers"):
        collections.deque(helped, maxlen=0)
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.slow
def test_workers_do_not_outlive_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from absl import flags\n"
        "from hnclip_jax.data import pipeline\n"
        "def load(row):\n"
        "    return {}\n"
        "if __name__ == '__main__':\n"
        "    flags.FLAGS(['script'])\n"
        "    batches = pipeline.training(load, 8, seed=0, batch_size=4, workers=1)\n"
        "    print(len(next(batches)['index']), flush=True)\n"
        "    input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout.readline() == "4\n"
    parent.kill()
    # The worker inherited the stream, which ends when the last process that holds it does.
    assert parent.communicate(timeout=30) == ("", None)
