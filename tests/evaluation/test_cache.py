"""A folder of embeddings: comes back as it was, whole or not at all, and damage is noticed."""

import dataclasses
import json
import os

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.evaluation import cache


@pytest.fixture
def embedded():
    rng = np.random.default_rng(0)
    return cache.Embedded(
        image=rng.standard_normal((3, 4)).astype(np.float32),
        text=rng.standard_normal((5, 4)).astype(np.float32),
        text_to_image=np.array([0, 0, 1, 2, 2]),
        ids=("a", "b", "é"),
        groups=("", "x", "x"),
        queries=(0, 2),
        protocol={"list_sha256": "abc", "pictures": 3},
    )


def test_a_round_trip_is_exact(embedded, tmp_path):
    cache.write(tmp_path / "deep" / "folder", embedded, data="list.json", root="")
    found, source = cache.read(tmp_path / "deep" / "folder")
    assert source == {"data": "list.json", "root": ""}
    for field in dataclasses.fields(embedded):
        one, other = (getattr(x, field.name) for x in (embedded, found))
        np.testing.assert_array_equal(one, other)
    assert found.image.dtype == np.float32
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["folder"]


def test_all_ask_where_none_are_named(embedded, tmp_path):
    cache.write(tmp_path / "folder", dataclasses.replace(embedded, queries=None))
    assert cache.read(tmp_path / "folder")[0].queries is None


def test_the_arrays_are_plain_numpy_files(embedded, tmp_path):
    cache.write(tmp_path / "folder", embedded)
    np.testing.assert_array_equal(np.load(tmp_path / "folder" / "image.npy"), embedded.image)
    content = json.loads((tmp_path / "folder" / "embeddings.json").read_text())
    assert content["text_to_image"] == [0, 0, 1, 2, 2]
    assert content["ids"] == ["a", "b", "é"]


def test_an_older_folder_goes_only_if_told_so(embedded, tmp_path):
    cache.write(tmp_path / "folder", embedded)
    other = dataclasses.replace(embedded, image=embedded.image + 1)
    with pytest.raises(types.UserError, match=r"already there: .*; choose .* or say --overwrite"):
        cache.write(tmp_path / "folder", other)
    np.testing.assert_array_equal(cache.read(tmp_path / "folder")[0].image, embedded.image)
    cache.write(tmp_path / "folder", other, overwrite=True)
    np.testing.assert_array_equal(cache.read(tmp_path / "folder")[0].image, other.image)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_of_something_else_never_goes(embedded, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("precious")
    with pytest.raises(types.UserError, match="holds no embeddings; choose another --out"):
        cache.write(tmp_path / "thesis", embedded, overwrite=True)
    assert (tmp_path / "thesis" / "thesis.tex").read_text() == "precious"


def test_a_write_that_breaks_off_leaves_what_was_there(embedded, tmp_path, monkeypatch):
    cache.write(tmp_path / "folder", embedded)
    before = {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(types.UserError, match=r"cannot write .*: No space left on device"):
        cache.write(tmp_path / "folder", embedded, overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_cannot_be_put_in_its_place_leaves_the_older_one(
    embedded, tmp_path, monkeypatch
):
    cache.write(tmp_path / "folder", embedded)
    rename = os.rename

    def failing(source, target):
        if source.name == "new":
            raise OSError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(types.UserError, match="Permission denied"):
        cache.write(tmp_path / "folder", embedded, overwrite=True)
    np.testing.assert_array_equal(cache.read(tmp_path / "folder")[0].image, embedded.image)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def spoil_array(folder):
    content = bytearray((folder / "text.npy").read_bytes())
    content[-1] ^= 1
    (folder / "text.npy").write_bytes(content)


def change(folder, **values):
    path = folder / "embeddings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


DAMAGE = {
    "an array": (spoil_array, "text.npy is not the file that was written; embed again"),
    "no array": (lambda folder: (folder / "image.npy").unlink(), "no embeddings in .*image.npy"),
    "no json": (lambda folder: (folder / "embeddings.json").write_text("{"), "is damaged"),
    "no object": (lambda folder: (folder / "embeddings.json").write_text("[]"), "is damaged"),
    "a field": (lambda folder: (folder / "embeddings.json").write_text('{"format": 1}'), "damaged"),
    "another format": (lambda folder: change(folder, format=9), "has format 9, .* reads 1"),
}


@pytest.mark.parametrize(("spoil", "message"), list(DAMAGE.values()), ids=list(DAMAGE))
def test_damage_is_one_line(embedded, tmp_path, spoil, message):
    cache.write(tmp_path / "folder", embedded)
    spoil(tmp_path / "folder")
    with pytest.raises(types.UserError, match=message) as caught:
        cache.read(tmp_path / "folder")
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(types.UserError, match=r"`hnclip embed --out=.*gone` makes them"):
        cache.read(tmp_path / "gone")
