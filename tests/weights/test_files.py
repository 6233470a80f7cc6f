"""Files of weights: exact round trips, and one clear line for anything else."""

import numpy as np
import pytest
import safetensors.numpy

from hnclip_jax import types
from hnclip_jax.weights import files


def _arrays():
    rng = np.random.default_rng(0)
    return {
        "a/kernel": rng.normal(size=(3, 5)).astype("f4"),
        "a/turned": rng.normal(size=(4, 2)).astype("f4").T,
        "scale": np.float32(4.5),
        "ids": np.arange(4, dtype=np.int32),
    }


def test_a_round_trip_is_exact_and_scalars_stay_scalars(tmp_path):
    files.write(tmp_path / "new" / "w.safetensors", _arrays(), {"step": 3, "list": "é"})
    arrays, note = files.read(tmp_path / "new" / "w.safetensors")
    assert note == {"step": 3, "list": "é"}
    assert arrays.keys() == _arrays().keys()
    for name, array in _arrays().items():
        assert arrays[name].shape == np.shape(array)
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_writing_again_replaces_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "w.safetensors"
    files.write(path, _arrays(), {})
    first = files.sha256(path)
    files.write(path, {"other": np.zeros(2, "f4")}, {})
    assert list(files.read(path)[0]) == ["other"]
    assert files.sha256(path) != first
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


def test_the_hash_is_that_of_the_bytes(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert files.sha256(tmp_path / "x").startswith("ba7816bf8f01cfea")


def test_a_file_of_another_program_has_no_note(tmp_path):
    safetensors.numpy.save_file({"w": np.ones(2, "f4")}, tmp_path / "w.safetensors")
    assert files.read(tmp_path / "w.safetensors")[1] == {}


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "half", "folder"])
def test_what_is_no_whole_file_is_one_line(tmp_path, damage):
    path = tmp_path / "w.safetensors"
    files.write(path, _arrays(), {})
    whole = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"empty": b"", "text": b"hello", "half": whole[: len(whole) // 2]}[damage])
    with pytest.raises(types.UserError) as caught:
        files.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
