"""Pictures with classes: trees of folders, names by file, CIFAR's pickles, tensorflow-datasets."""

import hashlib
import pickle
import sys
import types as module_types

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import cifar, classes, images


def picture(path, colour):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), colour).save(path)


@pytest.fixture
def imagenet(tmp_path):
    """Two classes of ImageNet's shape, with what archives leave beside them."""
    for number, wnid in enumerate(("n02000002", "n01000001")):
        for index in range(2 + number):
            picture(tmp_path / "val" / wnid / f"ILSVRC2012_val_{index:08d}.JPEG", "red")
    picture(tmp_path / "val" / "n01000001" / "._hidden.JPEG", "red")
    picture(tmp_path / "val" / "__MACOSX" / "x.JPEG", "red")
    (tmp_path / "val" / "n01000001" / "readme.txt").write_text("")
    (tmp_path / "val" / "empty").mkdir()
    names = tmp_path / "names.txt"
    names.write_text("n02000002\tgreat white shark, white shark\nn01000001 tench\nn03 unseen\n")
    return tmp_path, names


def test_imagenet_with_names_by_file(imagenet):
    folder, names = imagenet
    found = classes.read(str(folder), str(names))
    # The file gives the order and all candidates; the folders only have to be among them.
    assert found.names == ("great white shark, white shark", "tench", "unseen")
    assert [image.removeprefix(str(folder / "val") + "/") for image in found.images] == [
        "n01000001/ILSVRC2012_val_00000000.JPEG",
        "n01000001/ILSVRC2012_val_00000001.JPEG",
        "n01000001/ILSVRC2012_val_00000002.JPEG",
        "n02000002/ILSVRC2012_val_00000000.JPEG",
        "n02000002/ILSVRC2012_val_00000001.JPEG",
    ]
    assert found.labels.tolist() == [1, 1, 1, 0, 0]
    assert found.path == str(folder / "val")
    same = classes.read(str(folder / "val"), str(names))
    assert (same.images, same.sha256) == (found.images, found.sha256)


def test_the_hash_tells_another_tree(imagenet):
    folder, names = imagenet
    before = classes.read(str(folder), str(names)).sha256
    picture(folder / "val" / "n01000001" / "one_more.png", "red")
    assert classes.read(str(folder), str(names)).sha256 != before


def test_any_tree_is_called_as_its_folders(tmp_path):
    picture(tmp_path / "polar_bear" / "1.png", "white")
    picture(tmp_path / "ant" / "1.WEBP", "black")
    found = classes.read(str(tmp_path))
    assert found.names == ("ant", "polar bear")
    assert found.labels.tolist() == [0, 1]


MISTAKES = {
    "numbers say nothing": (None, "WordNet numbers such as n01000001.*--classes=FILE"),
    "a class without a name": ("n01000001 tench\n", "names no class n02000002"),
    "a class twice": ("n01000001 a\nn02000002 b\nn01000001 c\n", "names twice class n01000001"),
    "a bare line": ("n01000001 a\nn02000002\n", "1 lines have no name .*: n02000002"),
    "an empty file": ("", "is empty"),
}


@pytest.mark.parametrize(("content", "message"), list(MISTAKES.values()), ids=list(MISTAKES))
def test_names_that_do_not_fit(imagenet, content, message):
    folder, names = imagenet
    if content is not None:
        names.write_text(content)
    with pytest.raises(types.UserError, match=message):
        classes.read(str(folder), str(names) if content is not None else "")


def test_names_that_cannot_be_read(imagenet, tmp_path):
    (tmp_path / "latin").write_bytes(b"n01000001 caf\xe9\n")
    for name, message in (("latin", "is not UTF-8"), ("gone", "cannot read .*gone")):
        with pytest.raises(types.UserError, match=message):
            classes.read(str(imagenet[0]), str(tmp_path / name))


def test_a_folder_without_classes(tmp_path):
    picture(tmp_path / "1.png", "red")
    with pytest.raises(types.UserError, match="has no folders with pictures; needed is one per"):
        classes.read(str(tmp_path))
    with pytest.raises(types.UserError, match="gone is no folder"):
        classes.read(str(tmp_path / "gone"))


def python_2_pickle(values):
    """The bytes of a dict as CIFAR's authors wrote them: protocol 2, byte strings, numpy 1."""
    content = pickle.dumps(values, protocol=2)
    return content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


KINDS = {
    "cifar-10": ("cifar-10-batches-py", "test_batch", "batches.meta", "labels", "label_names"),
    "cifar-100": ("cifar-100-python", "test", "meta", "fine_labels", "fine_label_names"),
}


@pytest.fixture(params=KINDS)
def cifar_files(request, tmp_path):
    """Four pictures of three classes in either layout: the folder, and its two files."""
    folder, test, meta, labels, names = KINDS[request.param]
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    (tmp_path / folder).mkdir()
    batch = {b"data": pixels, labels.encode(): [2, 0, 1, 2], b"coarse_labels": [0, 0, 0, 0]}
    (tmp_path / folder / test).write_bytes(python_2_pickle(batch))
    words = {names.encode(): [b"cat", b"dog", b"ship"]}
    (tmp_path / folder / meta).write_bytes(python_2_pickle(words))
    return tmp_path / folder, pixels, tmp_path / folder / test, tmp_path / folder / meta


def test_cifar_is_read_as_it_is(cifar_files):
    folder, pixels, test, _ = cifar_files
    for place in (folder, folder.parent):
        found = classes.read(str(place))
        assert found.names == ("cat", "dog", "ship")
        assert found.labels.tolist() == [2, 0, 1, 2]
        assert found.path == str(test)
        assert found.sha256 == hashlib.sha256(test.read_bytes()).hexdigest()
    # A row is a plane of red, one of green, one of blue.
    picture = np.stack([pixels[1, plane * 1024 :][:1024].reshape(32, 32) for plane in range(3)], 2)
    np.testing.assert_array_equal(found.images[1].array, picture)
    np.testing.assert_array_equal(images.load_image(found.images[1], 32), picture)
    larger = np.array(Image.fromarray(picture).resize((64, 64), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(images.load_image(found.images[1], 64), larger)
    assert pickle.loads(pickle.dumps(found.images[1])).array.shape == (32, 32, 3)


@pytest.mark.parametrize("protocol", range(6))
def test_cifar_saved_again_by_today_s_python(cifar_files, protocol):
    _, pixels, test, _ = cifar_files
    again = {
        "data": pixels,
        "labels": [2, 0, 1, 2],
        "fine_labels": [2, 0, 1, 2],
    }
    test.write_bytes(pickle.dumps(again, protocol=protocol))
    np.testing.assert_array_equal(cifar.read(test).labels, [2, 0, 1, 2])


def test_columns_before_rows(cifar_files):
    _, pixels, test, _ = cifar_files
    labels = {b"labels": [0] * 4, b"fine_labels": [0] * 4}
    test.write_bytes(python_2_pickle({b"data": pixels, **labels}))
    straight = cifar.read(test).pixels
    test.write_bytes(python_2_pickle({b"data": np.asfortranarray(pixels), **labels}))
    np.testing.assert_array_equal(cifar.read(test).pixels, straight)


def test_other_names_for_cifar(cifar_files, tmp_path):
    (tmp_path / "names").write_text("kitten\n\npuppy\nboat\n")
    found = classes.read(str(cifar_files[0]), str(tmp_path / "names"))
    assert found.names == ("kitten", "puppy", "boat")
    (tmp_path / "names").write_text("kitten\n")
    with pytest.raises(types.UserError, match=r"has 1 lines, but .* has 3 classes"):
        classes.read(str(cifar_files[0]), str(tmp_path / "names"))


class Runs:
    """A pickle of it calls a function as it is read."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def test_a_hostile_pickle_is_refused_by_name_and_nothing_runs(cifar_files, tmp_path):
    folder, _, test, meta = cifar_files
    import os

    for file in (test, meta):
        before = file.read_bytes()
        file.write_bytes(pickle.dumps({b"data": Runs(os.mkdir, str(tmp_path / "ran"))}))
        with pytest.raises(types.UserError, match=rf"{file} is refused: it wants to run \w+.mkdir"):
            classes.read(str(folder))
        file.write_bytes(before)
    assert not (tmp_path / "ran").exists()


HOSTILE = {
    "builtins": (Runs(eval, "1"), r"wants to run \w+\.eval"),
    "numpy": (Runs(np.load, "x"), r"wants to run numpy\.\S*load"),
    "a list of objects": (np.array([{}], object), "is damaged"),
    "a large type": (np.zeros((4, 3072), np.float64), "is damaged"),
    "no array": (b"abc", "has no pictures of 32 x 32"),
    "another shape": (np.zeros((4, 10), np.uint8), "has no pictures of 32 x 32"),
}


@pytest.mark.parametrize(("data", "message"), list(HOSTILE.values()), ids=list(HOSTILE))
def test_what_is_no_array_of_bytes_is_refused(cifar_files, data, message):
    folder, _, test, _ = cifar_files
    test.write_bytes(pickle.dumps({b"data": data}, protocol=2))
    with pytest.raises(types.UserError, match=message) as caught:
        classes.read(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, -1], None, [0, 1, 2, b"3"]])
def test_labels_that_do_not_fit(cifar_files, labels):
    folder, pixels, test, _ = cifar_files
    batch = {b"data": pixels, b"labels": labels, b"fine_labels": labels}
    test.write_bytes(python_2_pickle(batch))
    with pytest.raises(types.UserError, match=r"4 pictures, but its labels do not fit .* 3 names"):
        classes.read(str(folder))


@pytest.mark.parametrize("content", [b"", b"no pickle", None], ids=["empty", "text", "cut"])
def test_a_damaged_file(cifar_files, content):
    folder, _, test, _ = cifar_files
    test.write_bytes(test.read_bytes()[:-200] if content is None else content)
    with pytest.raises(types.UserError, match=r"is damaged .*download it again"):
        classes.read(str(folder))
    test.write_bytes(pickle.dumps([1]))
    with pytest.raises(types.UserError, match="holds no table"):
        classes.read(str(folder))


def stub_of_tfds(rows):
    """A module that answers like tensorflow-datasets with one prepared set of two classes."""

    class Builder:
        info = module_types.SimpleNamespace(
            features={"label": module_types.SimpleNamespace(names=["cat", "dog"])}
        )

        def as_data_source(self, split):
            assert split == "test"
            return rows

    def builder(name):
        if name != "cifar10":
            raise ValueError(f"Dataset {name} not found\nand more")
        return Builder()

    module = module_types.ModuleType("tensorflow_datasets")
    module.builder = builder
    return module


def test_sets_of_tensorflow_datasets(monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    rows = [{"image": pixels[0], "label": 1}, {"image": pixels[1], "label": 0}]
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", stub_of_tfds(rows))
    found = classes.read("tfds:cifar10")
    assert (found.names, found.labels.tolist()) == (("cat", "dog"), [1, 0])
    np.testing.assert_array_equal(found.images[1].pixels(32), pixels[1])
    rows[1]["image"] = pixels[1, :, :, :1]
    grey = np.repeat(pixels[1, :, :, :1], 3, axis=2)
    np.testing.assert_array_equal(classes.read("tfds:cifar10").images[1].pixels(32), grey)
    with pytest.raises(types.UserError, match="cannot read tfds:gone: Dataset gone not found and"):
        classes.read("tfds:gone")


def test_without_tensorflow_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(
        types.UserError, match="pip install tensorflow-datasets; or give the folder"
    ):
        classes.read("tfds:cifar10")
