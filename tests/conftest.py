"""Every test runs on eight fake CPU devices; implicit rank promotion is an error."""

import atexit
import collections
import contextlib
import importlib.metadata
import io
import os
import shutil
import tempfile
import warnings
from typing import NamedTuple
from unittest import mock

# Most of the suite's time is compilation of programs that run once: compile them quickly instead.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    # One module per program: to split it up costs more than two cores bring.
    + " --xla_cpu_parallel_codegen_split_count=1"
)
# An unknown flag ends the program, and newer releases do not know this one.
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
# And many tests compile the same programs; so do the processes that some of them start.
os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="hnclip-compiled-")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax
import pytest

atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items):
    """Puts files with many slow tests first: begun last, one would leave the other workers idle."""
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(scope="session")
def small_config():
    """A dual encoder of width 16, for tests that need a real model but not a good one."""
    from hnclip_jax.models import presets

    return presets.ModelConfig(
        vision_width=16,
        vision_layers=2,
        vision_heads=2,
        vision_mlp_width=32,
        patch_size=8,
        text_width=16,
        text_layers=2,
        text_heads=2,
        text_mlp_width=32,
        embed_dim=8,
        image_size=24,
        context_length=77,
    )


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """The training and the test list of a small drawn set: 64 pairs, 4 families, 24 pixels."""
    from hnclip_jax.data import scenes

    folder = tmp_path_factory.mktemp("drawn") / "scenes"
    return scenes.write(folder, seed=3, train=64, test_families=4, size=24)


@pytest.fixture(scope="session")
def write_config(small_config, drawn):
    """Writes a config file: (path, {"group.field": value}) -> path.

    It trains the small model on the drawn set, and is whole in itself, so that other processes can
    use it: importing it makes the preset "small" known.
    """

    def write(path, values):
        values = {
            "data.train": str(drawn[0]),
            "model.init": "random",
            "model.preset": "small",
            "train.global_batch_size": 16,
            "eval.batch_size": 16,
            "log.every_steps": 1,
            **values,
        }
        path.write_text(
            "from hnclip_jax import config\n"
            "from hnclip_jax.models import presets\n"
            f"presets.PRESETS['small'] = presets.{small_config!r}\n"
            "def get_config():\n"
            "    c = config.defaults()\n"
            f"    c.update_from_flattened_dict({values!r})\n"
            "    return c\n"
        )
        return path

    return write


@pytest.fixture(scope="session")
def parsed_flags():
    """Data workers look at absl's flags, which the command parses and a test has to."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["pytest"])


class Ran(NamedTuple):
    """What a command left: its exit code and what it wrote on both streams."""

    code: int
    out: str
    err: str

    def one_line(self, command="train", code=2):
        """Returns the message of a command that failed as it should."""
        *before, last = self.err.splitlines()
        assert self.code == code, self.err
        assert last.startswith(f"hnclip {command}: "), self.err
        assert not any(line.startswith(("hnclip ", "Traceback")) for line in before), self.err
        return last


@pytest.fixture(scope="session")
def hnclip():
    """Runs a command line in this process, on so many of its devices: words -> Ran."""
    from hnclip_jax import cli
    from hnclip_jax.models import presets
    from hnclip_jax.parallel import mesh as mesh_lib

    create = mesh_lib.create

    def run(*words, devices=8):
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.dict(presets.PRESETS),
            mock.patch.object(
                mesh_lib, "create", lambda group: create(group, jax.devices()[:devices])
            ),
            warnings.catch_warnings(),
        ):
            # ml_collections loads config files in a way that Python will drop.
            warnings.filterwarnings("ignore", "the load_module", DeprecationWarning)
            code = cli.main([str(word) for word in words])
        return Ran(code, out.getvalue(), err.getvalue())

    return run
