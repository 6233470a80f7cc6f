"""Every test runs on eight fake CPU devices; implicit rank promotion is an error."""

import os

# Most of the suite's time is compilation of programs that run once: compile them quickly instead.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")


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
