"""Who a process is: by the variables of each launcher, by a TPU's metadata, and what is amiss."""

import http.server
import threading

import pytest

from hnclip_jax import types
from hnclip_jax.parallel import environment

SLURM = {
    "SLURM_JOB_ID": "4103",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-08,12]",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "JAX_COORDINATOR_ADDRESS": "node1",
}
JOB_SET = {
    "JOBSET_NAME": "run",
    "REPLICATED_JOB_NAME": "worker",
    "JOB_COMPLETION_INDEX": "2",
    "NNODES": "4",
}
TPU = {"TPU_WORKER_HOSTNAMES": "a.svc,b.svc", "TPU_WORKER_ID": "1"}
SLICES = {
    "MEGASCALE_NUM_SLICES": "3",
    "MEGASCALE_SLICE_ID": "2",
    "MEGASCALE_COORDINATOR_ADDRESS": "first.svc:8080",
}
TORCHRUN = {
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (SLURM, ("gpu07:61447", 8, 5, (1,))),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "1(x8)"}, ("gpu07:61447", 8, 5, None)),
        (SLURM | {"CUDA_VISIBLE_DEVICES": "3"}, ("gpu07:61447", 8, 5, None)),
        (SLURM | {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, ("gpu07:61447", 8, 5, (1,))),
        (SLURM | {"JAX_LOCAL_DEVICE_IDS": "0"}, ("gpu07:61447", 8, 5, None)),
        (SLURM | {"JAX_COORDINATOR_PORT": "7000"}, ("gpu07:7000", 8, 5, (1,))),
        (SLURM | {"SLURM_STEP_NODELIST": "one,two[1-9]"}, ("one:61447", 8, 5, (1,))),
        (SLURM | {"SLURM_STEP_NODELIST": "c4-gpu[001-128]"}, ("c4-gpu001:61447", 8, 5, (1,))),
        (OPEN_MPI, ("node1:8482", 4, 3, (1,))),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, ("node1:8482", 4, 3, None)),
        (OPEN_MPI | {"JAX_COORDINATOR_ADDRESS": "n:99"}, ("n:99", 4, 3, (1,))),
        (JOB_SET, ("run-worker-0-0.run:8482", 4, 2, None)),
        (
            {"JOB_COMPLETION_INDEX": "1", "NNODES": "2", "JAX_COORDINATOR_ADDRESS": "job-0.pods:9"},
            ("job-0.pods:9", 2, 1, None),
        ),
        (TPU, ("a.svc:8482", 2, 1, None)),
        (TPU | SLICES, ("first.svc:8482", 6, 5, None)),
        (TPU | JOB_SET, ("a.svc:8482", 2, 1, None)),  # A TPU pod lies in a Job as well.
        (OPEN_MPI | SLURM, ("node1:8482", 4, 3, (1,))),  # mpirun inside a SLURM job.
        (TORCHRUN, ("10.0.0.1:29500", 16, 9, (1,))),
        (TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "True"}, ("10.0.0.1:29501", 16, 9, (1,))),
        (
            {"MASTER_ADDR": "h", "RANK": "0", "WORLD_SIZE": "2"},
            ("h:8482", 2, 0, None),
        ),
    ],
)
def test_a_launcher_tells_who_this_is(variables, expected):
    assert environment.from_environment(variables)[:4] == expected


def test_no_launcher_is_no_mistake():
    assert environment.from_environment({"HOME": "/root", "HOSTNAME": "a"}) is None


def _without(variables, name):
    return {key: value for key, value in variables.items() if key != name}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (_without(SLURM, "SLURM_JOB_ID"), "SLURM.*SLURM_JOB_ID is not set"),
        (_without(SLURM, "SLURM_NTASKS"), "SLURM_NTASKS is not set"),
        (_without(SLURM, "SLURM_STEP_NODELIST"), "SLURM_JOB_NODELIST is not set"),
        (SLURM | {"SLURM_NTASKS": "4"}, r"SLURM \(SLURM_PROCID\) says .* process 5 of 4"),
        (SLURM | {"SLURM_NTASKS": "5"}, "process 5 of 5; they count from 0"),
        (SLURM | {"SLURM_NTASKS": "all"}, "SLURM_NTASKS is 'all'"),
        (_without(OPEN_MPI, "JAX_COORDINATOR_ADDRESS"), "mpirun -x JAX_COORDINATOR_ADDRESS="),
        (_without(OPEN_MPI, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set"),
        (_without(JOB_SET, "NNODES"), "NNODES is not set"),
        (_without(JOB_SET, "JOBSET_NAME"), "REPLICATED_JOB_NAME is set, but JOBSET_NAME is not"),
        (_without(JOB_SET, "REPLICATED_JOB_NAME"), "JOBSET_NAME is set, but REPLICATED_JOB_NAME"),
        ({"JOB_COMPLETION_INDEX": "0", "NNODES": "2"}, "JAX_COORDINATOR_ADDRESS: in the manifest"),
        (_without(TPU, "TPU_WORKER_ID"), "TPU_WORKER_ID is not set"),
        (TPU | {"TPU_WORKER_ID": "2"}, "TPU_WORKER_ID is 2, but .* names 2 hosts"),
        (TPU | _without(SLICES, "MEGASCALE_SLICE_ID"), "MEGASCALE_SLICE_ID is not set"),
        (TPU | SLICES | {"MEGASCALE_SLICE_ID": "3"}, "process 7 of 6"),
        (_without(TORCHRUN, "RANK"), "RANK is not set"),
    ],
)
def test_what_is_incomplete_or_contradicts_itself_is_named(variables, message):
    with pytest.raises(types.UserError, match=message) as caught:
        environment.from_environment(variables)
    assert "\n" not in str(caught.value)


METADATA = {
    "agent-worker-number": "1",
    "worker-network-endpoints": "unknown:0:10.0.0.7,unknown:1:10.0.0.8",
    "tpu-env": "ACCELERATOR_TYPE: 'v5litepod-8'\nZONE: 'z'",
}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (METADATA, ("10.0.0.7:8482", 2, 1)),
        (METADATA | {"worker-network-endpoints": "w-0,w-1,w-2"}, ("w-0:8482", 3, 1)),
        (
            METADATA
            | {
                "tpu-env": "MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\n"
                "MEGASCALE_COORDINATOR_ADDRESS: '10.0.0.1:8080'"
            },
            ("10.0.0.1:8482", 4, 3),
        ),
    ],
    ids=["addresses", "names", "slices"],
)
def test_the_metadata_of_a_tpu_tells_who_this_is(metadata, expected):
    assert environment.from_metadata(metadata.get)[:3] == expected


def test_another_machine_has_no_tpu_metadata():
    assert environment.from_metadata({}.get) is None


@pytest.fixture
def server():
    """A metadata server on this machine; its address."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            value = METADATA.get(self.path.rpartition("attributes/")[2])
            if value is None or self.headers["Metadata-Flavor"] != "Google":
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(value.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()


def test_the_metadata_server_is_asked(server):
    read = environment.read_metadata({"GCE_METADATA_IP": server})
    assert read("agent-worker-number") == "1"
    assert read("of-no-such-name") is None
    assert environment.from_metadata(read).coordinator == "10.0.0.7:8482"
    assert environment.read_metadata({"GCE_METADATA_IP": "127.0.0.1:1"})("tpu-env") is None
