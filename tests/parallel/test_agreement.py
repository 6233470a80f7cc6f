"""What processes must have in common, compared by three real ones."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from hnclip_jax import config, groups, types
from hnclip_jax.parallel import agreement


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """What each process heard: case -> messages of processes 0, 1 and 2."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "file").touch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = pathlib.Path(__file__).with_name("agreeing.py")
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), str(port), str(index), str(folder)],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(3)
    ]
    try:
        written = [process.communicate(timeout=90)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0]
    lines = zip(*(text.splitlines() for text in written), strict=True)
    split = [[line.split(": ", 1) for line in three] for three in lines]
    assert not list(folder.glob("**/.shared-*"))
    return {three[0][0]: [message for _, message in three] for three in split}


def test_those_who_agree_go_on(heard):
    assert heard["agree"] == heard["shared"] == ["none"] * 3


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "config",
            "config optim.lr is '1e-05' on processes 0, 2, '0.001' on process 1; start the same "
            "command on every host",
        ),
        (
            "list",
            "data list sha256 is 'cd34' on processes 0, 2, 'ab12' on process 1; give all one list",
        ),
    ],
)
def test_a_difference_is_told_to_all_in_the_same_words(heard, case, message):
    assert heard[case] == [message] * 3


def test_a_mistake_of_one_process_ends_all(heard):
    assert heard["mistake"][1] == "there is no list x.json"
    for index in (0, 2):
        assert heard["mistake"][index] == "process 1 cannot go on: there is no list x.json"
    assert heard["mistakes"] == [
        "processes 1-2 cannot go on; 1 says: there is no list 1.json",
        "there is no list 1.json",
        "there is no list 2.json",
    ]


def test_a_folder_that_one_process_does_not_see(heard):
    assert all(
        one.startswith("process 1 cannot see what process 0 writes") for one in heard["apart"]
    )


def test_a_folder_that_cannot_be_made(heard):
    assert all(one.startswith("process 0 cannot write to") for one in heard["unwritable"])


def test_settings_that_may_differ_are_no_facts():
    one, other = (
        config.Config(
            parallel=groups.ParallelGroup(coordinator=f"{index}:1", process_index=index),
            data=groups.DataGroup(workers=index, image_root=f"/{index}"),
        )
        for index in (0, 1)
    )
    facts = agreement.config_facts(config.to_json(one))
    assert facts == agreement.config_facts(config.to_json(other))
    assert facts["config optim.lr"] == json.dumps(config.Config().optim.lr)
    assert facts["config model.init"] == config.Config().model.init


def test_every_setting_that_may_differ_exists():
    known = json.loads(config.to_json(config.Config()))
    for name in agreement.MAY_DIFFER:
        group, field = name.split(".")
        assert field in known[group]


def test_one_process_agrees_with_itself(tmp_path):
    agreement.check({"a": 1}, "")
    agreement.check_shared(tmp_path / "not made")
    assert not (tmp_path / "not made").exists()
    with pytest.raises(types.UserError, match="mine"), agreement.together():
        raise types.UserError("mine")


def test_processes_must_have_as_many_devices(monkeypatch):
    class Device:
        def __init__(self, process_index):
            self.process_index = process_index

    monkeypatch.setattr(agreement.jax, "process_count", lambda: 2)
    monkeypatch.setattr(agreement.jax, "devices", lambda: [Device(0), Device(0), Device(1)])
    with pytest.raises(types.UserError, match="number of devices is '2' on process 0, '1' on pro"):
        agreement.check({}, "")
