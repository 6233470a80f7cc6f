"""Five steps come to the same on every mesh, by pmap and with several processes, cached or not.

A word's best patch may be a near tie. Where rounding turns it, the loss stays and its gradient
jumps; the settings of five_steps.py have no such tie.
"""

import dataclasses
import functools
import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from hnclip_jax import groups
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from tests.training import five_steps

pytestmark = pytest.mark.slow  # Every case compiles two towers with their gradients.

TOLERANCE = 1e-5  # float32 sums in another order, through two towers
TIMEOUT_S = 300
LAYOUTS = {
    "one device": (1, 1, "mesh"),
    "mesh 8x1": (8, 1, "mesh"),
    "mesh 4x2": (4, 2, "mesh"),
    "mesh 1x8": (1, 8, "mesh"),
    "pmap 8": (8, 1, "pmap"),
}
PROCESSES = {2: (1, 4), 4: (4, 2)}
"""Number of processes, of two devices each -> mesh. Two share out parameters, four only rows."""


@functools.cache
def _begin(config):
    params = jax.jit(dual_encoder.create(config).init)(jax.random.key(5))
    return {name.removeprefix("/"): leaf for name, leaf in five_steps.named("", params).items()}


@functools.cache
def _run(config, layout, parts):
    data, fsdp, mapper = LAYOUTS[layout]
    group = groups.ParallelGroup(mapper=mapper, data=data, fsdp=fsdp)
    mesh = mesh_lib.create(group, jax.devices()[: data * fsdp])
    return five_steps.run(config, _begin(config), mesh, mapper, parts)


def _close(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if name.endswith("key/bias"):
            # Softmax does not see what all keys share: nothing but rounding is left.
            assert max(np.abs(found[name]).max(), np.abs(values).max()) < 1e-6, name
        else:
            limit = TOLERANCE * np.abs(values).max()
            np.testing.assert_allclose(found[name], values, atol=limit, rtol=0, err_msg=name)


# Every layout once, each way of embedding several times; all nine pairs were seen to hold.
@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        ("one device", 2),
        ("mesh 8x1", 1),
        ("mesh 4x2", 2),
        ("mesh 1x8", 1),
        ("pmap 8", 2),
    ],
)
def test_devices_of_one_process(small_config, layout, parts):
    _close(_run(small_config, layout, parts), _run(small_config, "one device", 1))


def test_what_is_compared_can_differ(small_config):
    found, begun = _run(small_config, "one device", 1), _begin(small_config)
    for name, start in begun.items():
        if not name.endswith("key/bias"):
            moved = np.abs(found[f"params/{name}"] - start).max()
            assert moved > 30 * TOLERANCE * max(np.abs(start).max(), 0.1), name
    assert found["terms 1/token"] > 1
    assert found["terms 1/global"] > 1


@pytest.fixture(scope="module", params=PROCESSES)
def together(request, small_config, tmp_path_factory):
    """What several processes came to, each: {"1 params/...": array}."""
    count, folder = request.param, tmp_path_factory.mktemp("processes")
    np.savez(folder / "given.npz", **_begin(small_config))
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(small_config)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, pathlib.Path(five_steps.__file__), folder, port, count]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    processes = [
        subprocess.Popen(
            [str(word) for word in (*words, index, *PROCESSES[count])],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    try:
        written = [process.communicate(timeout=TIMEOUT_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * count, written
    return [dict(np.load(folder / f"process_{index}.npz")) for index in range(count)]


@pytest.mark.parametrize("parts", [1, 2])
def test_several_processes(together, small_config, parts):
    first, *others = (
        {
            name.removeprefix(f"{parts} "): values
            for name, values in found.items()
            if name.startswith(f"{parts} ")
        }
        for found in together
    )
    _close(first, _run(small_config, "one device", 1))
    for other in others:
        for name, values in first.items():
            np.testing.assert_array_equal(other[name], values, err_msg=name)
