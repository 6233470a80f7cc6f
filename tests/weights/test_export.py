"""Writing is all or nothing, in every layout; targets and refusals are tested with the command."""

import errno
import os
import pathlib

import numpy as np
import pytest
import torch

from hnclip_jax import types
from hnclip_jax.models import presets
from hnclip_jax.weights import export, layouts, stored
from tests.weights import reference

TARGETS = {"hnclip": "out", "huggingface": "out", "open_clip": "out", "longclip": "out/a.pt"}


@pytest.fixture
def model(tmp_path):
    """Arrays and numbers of a small Long-CLIP."""
    torch.save(reference.state_dict(reference.SMALL_LONG, 2, tables=2), tmp_path / "source")
    arrays = dict(layouts.read(tmp_path / "source").arrays)
    config = presets.ModelConfig(**reference.SMALL_LONG.numbers())
    return arrays, {name: getattr(config, name) for name in config.__dataclass_fields__}


@pytest.mark.parametrize("layout", TARGETS)
@pytest.mark.parametrize("there", [False, True], ids=["nothing there", "something there"])
def test_a_full_disk_leaves_what_was_there(model, tmp_path, monkeypatch, layout, there):
    arrays, numbers = model
    path = tmp_path / TARGETS[layout]
    if there:
        export.write(path, layout, arrays, numbers)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    arrays["logit_scale"] = np.float32(1)

    def fail(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(types.UserError, match=r"cannot write .*No space left on device"):
        export.write(path, layout, arrays, numbers)
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert after == before
    assert (tmp_path / "out").exists() == there


@pytest.mark.parametrize("layout", TARGETS)
def test_stopping_half_way_leaves_nothing(model, tmp_path, layout):
    arrays, numbers = model

    def stop():
        raise KeyboardInterrupt

    proj = arrays["text/proj"]
    arrays["text/proj"] = stored.Stored(proj.shape, proj.dtype, stop)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        export.write(tmp_path / TARGETS[layout], layout, arrays, numbers)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("layout", TARGETS)
def test_equal_models_are_equal_bytes(model, tmp_path, layout):
    arrays, numbers = model
    written = []
    for place in ("one", "two"):
        path = tmp_path / place / TARGETS[layout]
        files = export.write(path, layout, arrays, numbers, note={"step": 1})
        written.append({file.name: file.read_bytes() for file in files})
    assert written[0] == written[1]


def test_progress_counts_every_byte(model, tmp_path):
    arrays, numbers = model
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        told = []
        export.write(
            tmp_path / dtype, "huggingface", arrays, numbers, dtype=dtype, progress=told.append
        )
        count = sum(np.prod(x.shape) for name, x in arrays.items() if not name.startswith("unused"))
        assert sum(told) == count * size
        assert len(told) == 75 + 2 * 2 * 5 - 1  # Query, key and value apart; one table.


def test_a_type_or_layout_that_does_not_exist_names_the_nearest(model):
    arrays, numbers = model
    with pytest.raises(types.UserError, match="did you mean 'float16'"):
        export.write(pathlib.Path("x"), "hnclip", arrays, numbers, dtype="float61")
    with pytest.raises(types.UserError, match="did you mean 'huggingface'"):
        export.targets(pathlib.Path("x"), "hugging_face")
