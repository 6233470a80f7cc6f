"""Adapters in a file of their own: what is written comes back, and what is not whole is refused."""

import json

import ml_dtypes
import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.weights import adapter_file, files, layouts

RANK = 2
ABOUT = {"rank": RANK, "alpha": 3.5, "base_sha256": "ab" * 32}


def arrays(dora, rank=RANK):
    """Returns adapters of two kernels, every number another one."""
    rng = np.random.default_rng(1)
    flat = {}
    for path, inner, out in (
        ("image/blocks_00/attn/query/kernel", 5, 5),
        ("text/blocks_11/mlp/fc_in/kernel", 4, 7),
    ):
        shapes = {"a": (inner, rank), "b": (rank, out), "magnitude": (out,)}
        for name in ("a", "b", "magnitude")[: 3 if dora else 2]:
            flat[f"{path}/{name}"] = rng.normal(size=shapes[name]).astype(np.float32)
    return flat


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("name", ["", "one.safetensors"], ids=["folder", "file"])
def test_there_and_back(tmp_path, dora, name):
    given = arrays(dora)
    path = tmp_path / "new" / name
    file = adapter_file.write(path, given, dora=dora, **ABOUT, note={"step": 7})
    assert file == (tmp_path / "new" / (name or "adapter.safetensors"))
    for place in (path, str(file)):
        found = adapter_file.read(place)
        assert found[1:] == (RANK, 3.5, dora, "ab" * 32, {"step": 7})
        assert found.arrays.keys() == given.keys()
        for path_of, values in given.items():
            assert found.arrays[path_of].dtype == np.float32
            np.testing.assert_array_equal(found.arrays[path_of], values)


def test_equal_adapters_are_equal_bytes(tmp_path):
    for name in ("one", "two"):
        adapter_file.write(tmp_path / name, arrays(True), dora=True, **ABOUT)
    first, second = (tmp_path / name / "adapter.safetensors" for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_short_floats_are_read_as_float32(tmp_path):
    short = {path: values.astype(ml_dtypes.bfloat16) for path, values in arrays(False).items()}
    file = adapter_file.write(tmp_path, short, dora=False, **ABOUT)
    for path, values in adapter_file.read(file).arrays.items():
        np.testing.assert_array_equal(values, short[path].astype(np.float32))


def test_it_is_found_where_it_is(tmp_path):
    file = adapter_file.write(tmp_path, arrays(False), dora=False, **ABOUT)
    assert adapter_file.locate(tmp_path) == adapter_file.locate(file) == file
    other = tmp_path / "other.safetensors"
    files.write(other, arrays(False), {"step": 1})
    (tmp_path / "adapter.txt").write_text("x")
    for path in (other, tmp_path / "adapter.txt", tmp_path / "none", tmp_path.parent):
        assert adapter_file.locate(path) is None
        with pytest.raises(types.UserError, match=r"no adapter at .*give an adapter.safetensors"):
            adapter_file.read(path)
    with pytest.raises(types.UserError):
        layouts.read(file)


QUERY = "image/blocks_00/attn/query/kernel"


@pytest.mark.parametrize(
    ("dora", "changes", "message"),
    [
        (False, {f"{QUERY}/b": None}, "query/kernel has a, but needs a, b"),
        (True, {f"{QUERY}/magnitude": None}, "has a, b, but needs a, b, magnitude"),
        (False, {f"{QUERY}/magnitude": np.ones(5, np.float32)}, "has a, b, magnitude, but needs a"),
        (
            False,
            {f"{QUERY}/a": np.ones((5, 3), np.float32)},
            r"a \(5, 3\) and b \(2, 5\), but needs",
        ),
        (False, {f"{QUERY}/b": np.ones(5, np.float32)}, r"a \(5, 2\) and b \(5,\), but needs"),
        (
            True,
            {f"{QUERY}/magnitude": np.ones(4, np.float32)},
            r"magnitude \(4,\), but needs \(5,\)",
        ),
        (False, {"image/proj": np.ones((5, 5), np.float32)}, "image/proj is no part of an adapter"),
        (False, {f"{QUERY}/c": np.ones((5, 5), np.float32)}, "kernel/c is no part of an adapter"),
        (False, {f"{QUERY}/a": np.ones((5, 2), np.int32)}, "kernel/a holds int32"),
        (
            False,
            {f"{QUERY}/a": np.full((5, 2), np.nan, np.float32)},
            "kernel/a has values that are",
        ),
        (False, dict.fromkeys(arrays(False)), "there are no arrays"),
    ],
)
def test_what_is_not_whole(tmp_path, dora, changes, message):
    given = {**arrays(dora), **changes}
    given = {path: values for path, values in given.items() if values is not None}
    with pytest.raises(types.UserError, match=f"the adapter is no whole .*{message}"):
        adapter_file.write(tmp_path / "out", given, dora=dora, **ABOUT)
    assert not (tmp_path / "out").exists()
    # The same from a file that another program wrote.
    about = {"version": 1, "kind": "dora" if dora else "lora", **ABOUT}
    files.write(tmp_path / "adapter.safetensors", given, {"adapter": about})
    with pytest.raises(
        types.UserError, match=f"adapter.safetensors is no whole .*{message}"
    ) as caught:
        adapter_file.read(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "is an adapter of version 2, this version reads 1; update"),
        ({"version": None}, "of version None"),
        ({"kind": "ia3"}, "does not say what adapter it is"),
        ({"rank": True}, "does not say what adapter it is"),
        ({"rank": 3}, "of rank 3: .*but needs"),
        ({"alpha": "16"}, "does not say what adapter it is"),
        ({"alpha": float("inf")}, "does not say what adapter it is"),
    ],
)
def test_a_note_that_was_changed(tmp_path, changes, message):
    about = {"version": 1, "kind": "lora", **ABOUT, **changes}
    files.write(tmp_path / "adapter.safetensors", arrays(False), {"adapter": about})
    with pytest.raises(types.UserError, match=message):
        adapter_file.read(tmp_path)


def test_what_rounding_loses():
    base = {"a": np.float32([1, 2, 3]), "b": np.float32([0.1, 0.2])}
    merged = {"a": np.float32([1.0, 2.0, 3.0 + 2**-9]), "b": base["b"]}
    # bfloat16 has seven bits after the first: next to 3 lies 3 + 2^-6, so all of it is lost. "b"
    # loses too, but is not the adapter's.
    assert adapter_file.rounding(base, merged, np.dtype(ml_dtypes.bfloat16)) == 1
    merged["a"] = np.float32([1.0, 2.0 + 2**-6, 3.0 + 2**-9])
    found = adapter_file.rounding(base, merged, np.dtype(ml_dtypes.bfloat16))
    assert found == pytest.approx(2**-9 / np.hypot(2**-6, 2**-9))
    assert adapter_file.rounding(base, merged, np.dtype(np.float32)) == 0
    assert adapter_file.rounding(base, base, np.dtype(np.float16)) == 0


def test_the_note_is_json_in_the_header(tmp_path):
    file = adapter_file.write(tmp_path, arrays(False), dora=False, **ABOUT)
    head = file.read_bytes()
    size = int.from_bytes(head[:8], "little")
    note = json.loads(json.loads(head[8 : 8 + size])["__metadata__"]["hnclip"])
    assert note == {"adapter": {"version": 1, "kind": "lora", **ABOUT}}
