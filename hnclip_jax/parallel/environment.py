"""Which process of a run this is, as launchers and clusters tell it: variables, TPU metadata."""

import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hnclip_jax import types

PORT = 8482
"""Where process 0 listens if nothing else is said: `JAX_COORDINATOR_PORT` says something else."""


class Start(NamedTuple):
    """How a process joins its run.

    coordinator: "host:port" of process 0.
    count: of the processes.
    index: of this one, from 0.
    devices: numbers of the host's accelerators that are this process's own; None = all of them.
    source: who told, in words for a message.
    """

    coordinator: str
    count: int
    index: int
    devices: tuple[int, ...] | None = None
    source: str = "flags"


def from_environment(environ: Mapping[str, str]) -> Start | None:
    """Returns what the variables of a known launcher say; None if there is none.

    Looked for in this order, because the later ones may be there as well: TPU pods of Kubernetes,
    Open MPI, SLURM, indexed Jobs and JobSets of Kubernetes, torchrun and its like.

    Raises:
      types.UserError: if a launcher's variables are incomplete or contradict each other; it names
        them.
    """
    for telling, reader in _LAUNCHERS:
        if telling in environ:
            return _checked(reader(environ))
    return None


def from_metadata(read: Callable[[str], str | None]) -> Start | None:
    """Returns what the metadata server of a Cloud TPU machine says; None if it is no TPU machine.

    Args:
      read: the name of an attribute of the machine -> its text; None if there is no such attribute.

    Raises:
      types.UserError: if the server says what this function does not understand.
    """
    index, workers = read("agent-worker-number"), read("worker-network-endpoints")
    if index is None or workers is None:
        return None
    # Each worker is a host name, or name:number:address.
    hosts = [worker.split(":")[-1].strip() for worker in workers.split(",")]
    pairs = (line.split(":", 1) for line in (read("tpu-env") or "").splitlines() if ":" in line)
    tpu = {name.strip(): value.strip().strip("'") for name, value in pairs}
    tpu |= {"TPU_WORKER_ID": index, "TPU_WORKER_HOSTNAMES": ",".join(hosts)}
    return _checked(_tpu_pod(tpu)._replace(source="the TPU's metadata server"))


def read_metadata(environ: Mapping[str, str]) -> Callable[[str], str | None]:
    """Returns a reader for `from_metadata` that asks the server of the machine it runs on."""
    host = environ.get("GCE_METADATA_IP", "metadata.google.internal")

    def read(name: str) -> str | None:
        request = urllib.request.Request(
            f"http://{host}/computeMetadata/v1/instance/attributes/{name}",
            headers={"Metadata-Flavor": "Google"},
        )
        # The server is on the machine itself; a proxy would not know it.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, OSError):
            return None

    return read


def _tpu_pod(environ: Mapping[str, str]) -> Start:
    """Variables that Google's Kubernetes gives to TPU pods; several slices are one run."""
    source = "TPU pods of Kubernetes (TPU_WORKER_HOSTNAMES)"
    hosts = (environ.get("TPU_PROCESS_ADDRESSES") or environ["TPU_WORKER_HOSTNAMES"]).split(",")
    index = _number(environ, "TPU_WORKER_ID", source)
    if index >= len(hosts):
        raise types.UserError(
            f"TPU_WORKER_ID is {index}, but TPU_WORKER_HOSTNAMES names {len(hosts)} hosts; "
            "correct the one that is wrong"
        )
    slices, number, first = 1, 0, hosts[0]
    if environ.get("MEGASCALE_NUM_SLICES"):
        slices = _number(environ, "MEGASCALE_NUM_SLICES", source)
        number = _number(environ, "MEGASCALE_SLICE_ID", source)
        first = _text(environ, "MEGASCALE_COORDINATOR_ADDRESS", source)
    return Start(
        _address(first.split(":")[0].strip(), environ),
        slices * len(hosts),
        number * len(hosts) + index,
        source=source,
    )


def _open_mpi(environ: Mapping[str, str]) -> Start:
    """mpirun of Open MPI; the first host is on its command line only, so it has to be told."""
    source = "Open MPI (OMPI_COMM_WORLD_RANK)"
    return Start(
        _coordinator(environ, source, "mpirun -x JAX_COORDINATOR_ADDRESS=first-host:8482 ..."),
        _number(environ, "OMPI_COMM_WORLD_SIZE", source),
        _number(environ, "OMPI_COMM_WORLD_RANK", source),
        _own_devices(environ, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", source),
        source,
    )


def _slurm(environ: Mapping[str, str]) -> Start:
    """A task of srun; the step's first node is where task 0 runs."""
    source = "SLURM (SLURM_PROCID)"
    count = _number(environ, "SLURM_NTASKS", source)
    name = "SLURM_STEP_NODELIST" if environ.get("SLURM_STEP_NODELIST") else "SLURM_JOB_NODELIST"
    first = _first_node(_text(environ, name, source))
    # Jobs that share a node must not share a port.
    port = 61440 + _number(environ, "SLURM_JOB_ID", source) % 4096
    return Start(
        environ.get("JAX_COORDINATOR_ADDRESS") or _address(first, environ, port),
        count,
        _number(environ, "SLURM_PROCID", source),
        _own_devices(environ, "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", source),
        source,
    )


def _kubernetes(environ: Mapping[str, str]) -> Start:
    """A pod of an indexed Job. Kubernetes tells its number only; the manifest tells the rest."""
    source = "Kubernetes (JOB_COMPLETION_INDEX)"
    job_set, job = environ.get("JOBSET_NAME"), environ.get("REPLICATED_JOB_NAME")
    if bool(job_set) != bool(job):
        there, lacking = ("JOBSET_NAME", "REPLICATED_JOB_NAME")[:: 1 if job_set else -1]
        raise types.UserError(
            f"{there} is set, but {lacking} is not; set both in the manifest, or neither and "
            "JAX_COORDINATOR_ADDRESS"
        )
    given = environ.get("JAX_COORDINATOR_ADDRESS")
    if job_set and not given:
        coordinator = _address(f"{job_set}-{job}-0-0.{job_set}", environ)
    else:
        coordinator = _coordinator(
            environ,
            source,
            "in the manifest: job-name-0.service-name, or JOBSET_NAME and REPLICATED_JOB_NAME",
        )
    return Start(
        coordinator,
        _number(environ, "NNODES", source),
        _number(environ, "JOB_COMPLETION_INDEX", source),
        source=source,
    )


def _torchrun(environ: Mapping[str, str]) -> Start:
    """RANK, WORLD_SIZE and MASTER_ADDR, as torchrun sets them and many scripts after it."""
    source = "torchrun's variables (MASTER_ADDR)"
    port = _number(environ, "MASTER_PORT", source) if environ.get("MASTER_PORT") else PORT
    # torchrun itself keeps MASTER_PORT in use.
    port += environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
    return Start(
        _address(_text(environ, "MASTER_ADDR", source), environ, port),
        _number(environ, "WORLD_SIZE", source),
        _number(environ, "RANK", source),
        _own_devices(environ, "LOCAL_RANK", "LOCAL_WORLD_SIZE", source)
        if environ.get("LOCAL_RANK")
        else None,
        source,
    )


_LAUNCHERS: tuple[tuple[str, Callable[[Mapping[str, str]], Start]], ...] = (
    ("TPU_WORKER_HOSTNAMES", _tpu_pod),
    ("OMPI_COMM_WORLD_RANK", _open_mpi),
    ("SLURM_PROCID", _slurm),
    ("JOB_COMPLETION_INDEX", _kubernetes),
    ("MASTER_ADDR", _torchrun),
)
"""The variable that tells a launcher, and who reads the others."""

LOOKED_FOR = ", ".join(name for name, _ in _LAUNCHERS)
"""The variables, for a message."""


def _own_devices(
    environ: Mapping[str, str], local: str, local_count: str, source: str
) -> tuple[int, ...] | None:
    """Returns this process's one GPU where a host has several processes, unless it sees one only.

    A process that has its host to itself takes all devices.
    """
    if environ.get("JAX_LOCAL_DEVICE_IDS"):
        return None  # JAX reads it.
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    here = environ.get(local_count, "1")
    # SLURM writes 4(x2),3 for two nodes of four tasks and one of three.
    alone = {part.split("(")[0].strip() for part in here.split(",")} == {"1"}
    if alone or (visible and "," not in visible):
        return None
    return (_number(environ, local, source),)


def _checked(start: Start) -> Start:
    if start.index >= start.count:
        raise types.UserError(
            f"{start.source} says that this is process {start.index} of {start.count}; they count "
            "from 0"
        )
    return start


def _text(environ: Mapping[str, str], name: str, source: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise types.UserError(
            f"this looks like {source}, but {name} is not set; set it, or give "
            "parallel.coordinator=host:port, process_count and process_index instead of 'auto'"
        )
    return value


def _number(environ: Mapping[str, str], name: str, source: str) -> int:
    value = _text(environ, name, source)
    if not (value.isascii() and value.isdigit()):
        raise types.UserError(f"{name} is {value!r}, but {source} needs a whole number there")
    return int(value)


def _coordinator(environ: Mapping[str, str], source: str, example: str) -> str:
    if not environ.get("JAX_COORDINATOR_ADDRESS"):
        raise types.UserError(
            f"this looks like {source}, which does not tell where process 0 runs; set "
            f"JAX_COORDINATOR_ADDRESS: {example}"
        )
    given = environ["JAX_COORDINATOR_ADDRESS"]
    return given if ":" in given else _address(given, environ)


def _address(host: str, environ: Mapping[str, str], port: int = PORT) -> str:
    if environ.get("JAX_COORDINATOR_PORT"):
        port = _number(environ, "JAX_COORDINATOR_PORT", "JAX")
    return f"{host}:{port}"


def _first_node(nodes: str) -> str:
    """Returns the first of SLURM's node list: node[007-015,020],other -> node007."""
    head, bracket, numbers = nodes.partition("[")
    if "," in head or not bracket:
        return head.split(",")[0]
    return head + numbers.partition("]")[0].split(",")[0].split("-")[0]
