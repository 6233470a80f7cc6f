"""The start of a run: flags against the cluster, and real processes that miss one of them."""

import os
import socket
import subprocess
import sys
import time

import pytest

from hnclip_jax import groups, types
from hnclip_jax.parallel import cluster, environment

AUTO = groups.ParallelGroup(coordinator="auto")
RANKS = {"MASTER_ADDR": "h", "RANK": "1", "WORLD_SIZE": "4"}
POD = {"JOB_COMPLETION_INDEX": "1", "JAX_COORDINATOR_ADDRESS": "job-0.pods"}
NO_TPU = {"TPU_SKIP_MDS_QUERY": "1"}


def _group(**values):
    return groups.ParallelGroup(coordinator="auto", **values)


@pytest.mark.parametrize(
    ("group", "environ", "expected"),
    [
        (
            groups.ParallelGroup(coordinator="a:1", process_count=3, process_index=2),
            RANKS,
            "a:1 3 2",
        ),
        (AUTO, RANKS, "h:8482 4 1"),
        (_group(process_count=4, process_index=1), RANKS, "h:8482 4 1"),
        (_group(process_count=2), POD, "job-0.pods:8482 2 1"),
        (_group(process_count=2), POD | {"NNODES": "2"}, "job-0.pods:8482 2 1"),
    ],
)
def test_flags_and_cluster_together_tell_who_this_is(group, environ, expected):
    found = cluster.resolve(group, environ)
    assert f"{found.coordinator} {found.count} {found.index}" == expected


@pytest.mark.parametrize(
    ("group", "environ", "message"),
    [
        (AUTO, NO_TPU, "no cluster tells .*SLURM_PROCID.*; give parallel.coordinator=host:port"),
        (_group(process_count=3), RANKS, "process_count is 3, but torchrun.* says 4"),
        (_group(process_count=4, process_index=2), RANKS, "process_index is 2, but .* says 1"),
        (_group(process_count=3), POD | {"NNODES": "2"}, "process_count is 3, but Kubern.* says 2"),
        (AUTO, POD, "NNODES is not set"),
    ],
)
def test_flags_that_contradict_the_cluster(group, environ, message):
    with pytest.raises(types.UserError, match=message):
        cluster.resolve(group, environ)


def test_metadata_is_asked_where_there_may_be_a_tpu(monkeypatch):
    told = {"agent-worker-number": "1", "worker-network-endpoints": "w-0,w-1"}
    monkeypatch.setattr(environment, "read_metadata", lambda environ: told.get)
    assert cluster.resolve(AUTO, {}).coordinator == "w-0:8482"
    with pytest.raises(types.UserError, match="no cluster tells"):
        cluster.resolve(AUTO, NO_TPU)


def test_versions_are_those_of_this_program():
    assert set(cluster.versions()) == {"hnclip_jax", "jax", "jaxlib", "Python"}
    assert cluster.versions()["Python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"


PROGRAM = """
import sys
from hnclip_jax import groups, types
from hnclip_jax.parallel import cluster
import jax
try:
    cluster.start(groups.ParallelGroup(coordinator="auto", start_timeout_s=int(sys.argv[1])))
except types.UserError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
print(jax.process_index(), jax.process_count(), jax.device_count())
"""


def _run(indices, count, timeout_s):
    """Real processes, who find out about each other as under torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(timeout_s)],
            env={**environ, "RANK": str(index)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in indices
    ]
    try:
        written = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *text) for process, text in zip(processes, written, strict=True)]


def test_processes_find_each_other_by_variables():
    assert _run([1, 0], 2, 60) == [(0, "1 2 4\n", ""), (0, "0 2 4\n", "")]


def test_a_missing_process_is_named_in_one_line_by_all_who_came():
    began = time.monotonic()
    ended = _run([0, 1], 3, 5)
    assert time.monotonic() - began < 30
    for code, _, err in ended:
        assert code == 2
        assert err.count("\n") == 1
        assert "expected 3 processes, saw 2 in 5 s" in err
        assert "missing: 2;" in err
