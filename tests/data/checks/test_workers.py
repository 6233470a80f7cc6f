"""Work on many items: the same with any number of processes, and no process stays behind."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from hnclip_jax import types
from hnclip_jax.data.checks import workers


def doubled(item):
    return 2 * item


def process(item):
    return os.getpid(), multiprocessing.get_start_method(), multiprocessing.current_process().name


def fail_at_five(item):
    if item == 5:
        raise types.UserError("five is no number")
    return item


def die_at_five(item):
    if item == 5:
        os._exit(1)
    return item


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100])
@pytest.mark.parametrize("processes", [0, 1, 2])
def test_results_are_in_order(count, processes):
    seen = []
    done = workers.each(
        doubled,
        range(count),
        workers=processes,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert done == [2 * item for item in range(count)]
    assert seen[-1:] == [(count, count)] * bool(count)
    assert seen == sorted(seen)


def test_processes_are_others_and_end():
    found = workers.each(process, range(64), workers=2)
    assert os.getpid() not in {number for number, _, _ in found}
    assert all(name.startswith("SpawnProcess") for _, _, name in found)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("count", "here"), [(workers.FEW - 1, True), (workers.FEW, False)], ids=["few", "many"]
)
def test_a_few_items_start_no_process(count, here, monkeypatch):
    monkeypatch.setattr(workers, "cores", lambda: 1)
    found = {number for number, _, _ in workers.each(process, range(count))}
    assert (found == {os.getpid()}) is here


def test_there_is_a_process_for_every_core(monkeypatch):
    asked = []

    def spread(work, chunks, processes):
        asked.append(processes)
        return ([] for _ in chunks)

    monkeypatch.setattr(workers, "_spread", spread)
    workers.each(doubled, range(workers.FEW))
    assert asked == [len(os.sched_getaffinity(0))]


@pytest.mark.parametrize("processes", [0, 1])
def test_an_error_comes_through(processes):
    with pytest.raises(types.UserError, match="five is no number"):
        workers.each(fail_at_five, range(100), workers=processes)
    assert not multiprocessing.active_children()


def test_a_process_that_dies_is_one_line():
    with pytest.raises(types.UserError, match=r"was killed.*lower workers"):
        workers.each(die_at_five, range(100), workers=1)


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from hnclip_jax.data.checks import workers

def work(item):
    print("works", flush=True)
    return sum(range(200_000))

if __name__ == "__main__":
    try:
        workers.each(work, range(10_000), workers=2)
    except KeyboardInterrupt:
        print("stopped")
"""


def test_ctrl_c_while_they_work_is_for_the_parent_alone(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(root=str(pathlib.Path(__file__).parents[2])))
    with subprocess.Popen(
        [sys.executable, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as ran:
        assert ran.stdout.readline() == "works\n"
        # As a terminal does it: to all.
        os.killpg(ran.pid, signal.SIGINT)
        try:
            out, err = ran.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ran.pid, signal.SIGKILL)
    assert out.endswith("stopped\n")
    assert not err
    assert out.count("works") < 2000


def test_ctrl_c_leaves_no_process():
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workers.each(doubled, range(1000), workers=2, progress=stop)
    assert not multiprocessing.active_children()
