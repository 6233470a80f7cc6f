"""The launchers, with stand-ins for gcloud, srun, scontrol and hnclip: what they run, and again."""

import os
import pathlib
import shlex
import signal
import stat
import subprocess
import time

import pytest
import yaml

from hnclip_jax import config
from hnclip_jax.parallel import environment

LAUNCH = pathlib.Path(__file__).parent.parent / "tools" / "launch"
SHELL = sorted([*LAUNCH.glob("*.sh"), *LAUNCH.glob("*.sbatch")])
FLAGS = ["--config=configs/demo.py", "--workdir=/shared/it's here", "--config.data.train=a $b.json"]


class Stage:
    """A PATH whose programs write down what they are called with, and end with given codes."""

    def __init__(self, folder):
        self.folder, self.written = folder, folder / "calls"
        self.codes = folder / "codes"
        self.codes.touch()

    def put(self, name, body=""):
        """Puts a stand-in there; it ends with the next of the codes, or with 0."""
        path = self.folder / name
        path.write_text(
            f"#!/bin/bash\n{{ printf '%s' {name}; printf ' %q' \"$@\"; echo; }} >> {self.written}\n"
            f"{body}\ncode=$(head -n 1 {self.codes}); sed -i 1d {self.codes}; exit ${{code:-0}}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, script, *words, **environ):
        environ = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "SLURM_JOB_ID": "77",
            **environ,
        }
        return subprocess.Popen(
            ["bash", str(LAUNCH / script), *words],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script, *words, codes=(), **environ):
        self.codes.write_text("".join(f"{code}\n" for code in codes))
        self.written.unlink(missing_ok=True)
        process = self.start(script, *words, **environ)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    @property
    def calls(self):
        if not self.written.exists():
            return []
        return [shlex.split(line) for line in self.written.read_text().splitlines()]


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    for name in ("gcloud", "srun", "scontrol", "hnclip"):
        made.put(name)
    return made


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_the_shell_can_read_it(path):
    subprocess.run(["bash", "-n", path], check=True)
    assert "set -euo pipefail" in path.read_text()


def test_all_launchers_are_tested_here():
    assert [path.name for path in SHELL] == ["gpu_host.sh", "slurm.sbatch", "tpu_pod.sh"]
    assert [path.name for path in LAUNCH.glob("*.yaml")] == ["gke_jobset.yaml"]


POD = ["--tpu=pod1", "--zone=us-west4-a"]


def test_a_pod_runs_the_same_command_on_all_workers(stage):
    code, _, err = stage.run("tpu_pod.sh", *POD, "--project=mine", "--", *FLAGS, codes=[5])
    assert code == 5, err
    (call,) = stage.calls
    assert call[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "pod1"]
    assert call[6:9] == ["--zone=us-west4-a", "--worker=all", "--project=mine"]
    assert call[9].startswith("--command=cd hnclip_jax && exec .venv/bin/hnclip train ")


@pytest.mark.parametrize("log", [False, True])
def test_what_a_host_of_a_pod_runs(stage, log):
    """The command goes through the shell of a host, and arrives there word for word."""
    here = stage.folder / "a folder"
    (here / ".venv" / "bin").mkdir(parents=True)
    (here / ".venv" / "bin" / "hnclip").symlink_to(stage.folder / "hnclip")
    words = [*POD, f"--dir={here}", *(["--log=said there.txt"] if log else []), "--", *FLAGS]
    assert stage.run("tpu_pod.sh", *words)[0] == 0
    command = stage.calls[0][-1].removeprefix("--command=")
    stage.written.unlink()
    stage.put("hnclip", "sleep 3" if log else "")
    began = time.monotonic()
    subprocess.run(["bash", "-c", command], check=True, timeout=30)
    assert time.monotonic() - began < 2  # A detached run holds nobody up.
    until = time.monotonic() + 10
    while not stage.calls and time.monotonic() < until:
        time.sleep(0.05)
    given = ["--config.parallel.coordinator=auto", "--config.parallel.platform=tpu"]
    assert stage.calls == [["hnclip", "train", *given, *FLAGS]]
    assert (here / "said there.txt").exists() == log


def test_one_host_starts_again_after_a_crash_only(stage):
    words = ["--restarts=2", "--wait=0", "--", *FLAGS]
    call = ["hnclip", "train", "--config.parallel.platform=gpu", *FLAGS]
    for codes, ended, times in (
        ([0], 0, 1),
        ([2], 2, 1),
        ([130], 130, 1),
        ([75, 0], 0, 2),
        ([134, 0], 0, 2),
        ([1, 2], 2, 2),
        ([1, 137, 134, 0], 134, 3),
    ):
        code, _, err = stage.run("gpu_host.sh", *words, codes=codes)
        assert code == ended
        assert stage.calls == [call] * times
        assert err.count("ended with code") == times - 1


def test_one_host_uses_the_gpus_it_is_told(stage):
    stage.put("hnclip", f"echo $CUDA_VISIBLE_DEVICES > {stage.folder}/gpus")
    stage.run("gpu_host.sh", "--gpus=1,3", "--", *FLAGS)
    assert (stage.folder / "gpus").read_text() == "1,3\n"


def _sleeper(stage, name, code):
    """A program that takes a moment to save when asked to stop; hnclip then ends with code 75."""
    stage.put(
        name,
        f"trap 'sleep 0.3; echo saved >> {stage.folder}/saved; exit {code}' TERM\n"
        f"touch {stage.folder}/up; for ((i = 0; i < 200; i++)); do sleep 0.1; done",
    )


def _signalled(stage, process, number):
    until = time.monotonic() + 10
    while not (stage.folder / "up").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert (stage.folder / "saved").read_text() == "saved\n"
    return process.returncode, err


@pytest.mark.parametrize("left", [75, 143])
def test_one_host_hands_sigterm_on_and_waits_for_the_save(stage, left):
    _sleeper(stage, "hnclip", left)
    process = stage.start("gpu_host.sh", "--restarts=3", "--wait=0", "--", *FLAGS)
    code, _ = _signalled(stage, process, signal.SIGTERM)
    assert code == left
    assert len(stage.calls) == 1


STEP = ["srun", "--kill-on-bad-exit=0", "--wait=120", "hnclip", "train"]
STEP += ["--config.parallel.coordinator=auto", "--config.parallel.platform=gpu", *FLAGS]


@pytest.mark.parametrize(
    ("code", "started", "again"),
    [
        *((code, 0, False) for code in (0, 2, 130)),
        *((code, 0, True) for code in (1, 75)),
        (134, 19, True),
        (134, 20, False),
    ],
)
def test_a_slurm_job_goes_back_into_the_queue_after_a_crash(stage, code, started, again):
    ended, _, err = stage.run(
        "slurm.sbatch", *FLAGS, codes=[code], SLURM_RESTART_COUNT=str(started)
    )
    expected = [["scontrol", "requeue", "77"]] if again else []
    assert stage.calls == [STEP, *expected]
    assert ended == (0 if again else code), err


@pytest.mark.parametrize(
    ("number", "left", "again"),
    [(signal.SIGUSR1, 75, True), (signal.SIGTERM, 75, False), (signal.SIGTERM, 143, False)],
)
def test_a_slurm_job_whose_time_is_up_saves_and_goes_on_later(stage, number, left, again):
    _sleeper(stage, "srun", left)
    process = stage.start("slurm.sbatch", *FLAGS)
    code, err = _signalled(stage, process, number)
    assert (["scontrol", "requeue", "77"] in stage.calls) == again
    assert code == (0 if again else left), err


def test_slurm_reads_one_process_per_node():
    text = (LAUNCH / "slurm.sbatch").read_text()
    head = text[: text.index("set -euo pipefail")]
    options = [line.split(" ", 1)[1] for line in text.splitlines() if line.startswith("#SBATCH")]
    assert head.count("#SBATCH") == len(options)  # SLURM reads none behind the first command.
    assert {"--ntasks-per-node=1", "--signal=B:USR1@600", "--requeue"} <= set(options)


@pytest.mark.parametrize(
    ("script", "words", "environ", "first"),
    [
        ("tpu_pod.sh", [*POD, "--dry-run", "--"], {}, "gcloud"),
        ("gpu_host.sh", ["--dry-run", "--"], {}, "hnclip"),
        ("slurm.sbatch", [], {"DRY_RUN": "1"}, "srun"),
    ],
)
def test_a_dry_run_prints_what_would_be_called(stage, script, words, environ, first):
    code, out, _ = stage.run(script, *words, *FLAGS, **environ)
    assert code == 0
    assert stage.calls == []
    printed = shlex.split(out)
    stage.run(script, *(word for word in words if word != "--dry-run"), *FLAGS)
    assert printed == stage.calls[0]
    assert printed[0] == first


@pytest.mark.parametrize(
    ("script", "words", "message"),
    [
        ("tpu_pod.sh", ["--zone=z", "--", *FLAGS], "needs --tpu=NAME and --zone=ZONE"),
        ("tpu_pod.sh", POD, "needs the flags of hnclip train behind --"),
        ("tpu_pod.sh", [*POD, "--config=x.py"], "unknown option --config=x.py"),
        ("gpu_host.sh", [], "needs the flags of hnclip train behind --"),
        ("gpu_host.sh", ["--restarts=many", "--", *FLAGS], "--restarts is 'many'"),
        ("gpu_host.sh", ["--wait=1s", "--", *FLAGS], "--wait is '1s'"),
        ("slurm.sbatch", [], "needs the flags of hnclip train"),
    ],
)
def test_a_mistake_is_one_line(stage, script, words, message):
    code, _, err = stage.run(script, *words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert stage.calls == []


@pytest.fixture(scope="module")
def job_set():
    return yaml.safe_load((LAUNCH / "gke_jobset.yaml").read_text())


def test_the_job_set_has_a_pod_per_host(job_set):
    (worker,) = job_set["spec"]["replicatedJobs"]
    job = worker["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    chips = container["resources"]["limits"]["google.com/tpu"]
    assert container["resources"]["requests"]["google.com/tpu"] == chips
    topology = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    x, y = map(int, topology.split("x"))
    assert job["parallelism"] == job["completions"] == x * y // chips
    assert (job["completionMode"], job["backoffLimit"]) == ("Indexed", 0)
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    assert environment.PORT in [port["containerPort"] for port in container["ports"]]


def test_the_job_set_starts_again_unless_it_was_a_mistake(job_set):
    (worker,) = job_set["spec"]["replicatedJobs"]
    job = worker["template"]["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # Else the rules are not allowed.
    lost, mistake = job["podFailurePolicy"]["rules"]
    assert (lost["action"], lost["onPodConditions"][0]["type"]) == ("Count", "DisruptionTarget")
    assert (mistake["action"], mistake["onExitCodes"]["values"]) == ("FailJob", [2])
    names = [one["name"] for one in job["template"]["spec"]["containers"]]
    assert mistake["onExitCodes"]["containerName"] in names
    (rule,) = job_set["spec"]["failurePolicy"]["rules"]
    assert rule == {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    assert job_set["spec"]["failurePolicy"]["maxRestarts"] > 0


def test_every_setting_of_the_launchers_exists(job_set):
    (worker,) = job_set["spec"]["replicatedJobs"]
    command = worker["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    words = [*command, *" ".join(path.read_text() for path in SHELL).split()]
    names = {word.split("=")[0] for word in words if word.startswith("--config.")}
    assert "--config.parallel.coordinator" in names
    for name in names:
        group, field = name.removeprefix("--config.").split(".")
        assert hasattr(getattr(config.Config(), group), field), name
