"""Data sets of tensorflow-datasets as lists: prepared ones need no TensorFlow, others say so."""

import importlib.resources.abc
import json
import pathlib
import sys
import types as module_types

import numpy as np
import pytest
import tensorflow_datasets as tfds

from hnclip_jax import types
from hnclip_jax.data import images, lists, pack
from hnclip_jax.data.packed import tfds_names
from tests.data import drawing

COUNTS = {"train": 5, "val": 4}


def captions(number):
    texts = [f"Caption {at} of {number}, é. " for at in range(number % 3 + 1)]
    return [*texts, " "] if number == 1 else texts


def picture(number):
    return drawing.file(drawing.noise(30, 20 + number, number), "JPEG", quality=90)


class DenseCaptions(tfds.core.GeneratorBasedBuilder):
    """A data set with the features of coco_captions."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(encoding_format="jpeg"),
                    "image/filename": tfds.features.Text(),
                    "image/id": np.int64,
                    "objects": tfds.features.Sequence({"id": np.int64, "area": np.int64}),
                    "captions": tfds.features.Sequence({"id": np.int64, "text": np.str_}),
                }
            )
        )

    def _split_generators(self, manager):
        return {split: self._generate_examples(count) for split, count in COUNTS.items()}

    def _generate_examples(self, count):
        for number in range(count):
            yield (
                number,
                {
                    "image": picture(number),
                    "image/filename": f"{number:03d}.jpg",
                    # Numbers of different length: as texts they have another order.
                    "image/id": number * 4 + 3,
                    "objects": [{"id": 1, "area": 2}],
                    "captions": [{"id": 0, "text": text} for text in captions(number)],
                },
            )


class Plain(tfds.core.GeneratorBasedBuilder):
    """A data set with one split, whose captions are a plain list of texts."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(),
                    "id": tfds.features.Text(),
                    "captions": tfds.features.Sequence(tfds.features.Text()),
                }
            )
        )

    def _split_generators(self, manager):
        return {"test": self._generate_examples()}

    def _generate_examples(self):
        for number in range(3):
            yield number, {"image": picture(number), "id": f"{number}", "captions": ["Same."]}


class Classes(tfds.core.GeneratorBasedBuilder):
    """A data set without captions."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict({"image": tfds.features.Image(), "label": np.int64})
        )

    def _split_generators(self, manager):
        return {"test": self._generate_examples()}

    def _generate_examples(self):
        yield 0, {"image": picture(0), "label": 4}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The folder that the three are prepared in, without TensorFlow."""
    folder = tmp_path_factory.mktemp("tfds")
    with pytest.MonkeyPatch.context() as patch:
        # Builders use this package, which nothing installs any more; Python's own is the same.
        patch.setitem(sys.modules, "importlib_resources", importlib.resources)
        for builder in (DenseCaptions, Plain, Classes):
            builder(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


@pytest.fixture
def dense(data_dir):
    return data_dir / "dense_captions" / "1.0.0"


@pytest.fixture
def here(data_dir, monkeypatch):
    """Makes the folder the one where tensorflow-datasets looks for prepared data sets."""
    from tensorflow_datasets.core.utils import file_utils

    monkeypatch.setattr(file_utils, "list_data_dirs", lambda *args, **options: [str(data_dir)])


def assert_is(found, count):
    assert [record.id for record in found.records] == [f"{n:03d}.jpg" for n in range(count)]
    assert [record.index for record in found.records] == list(range(count))
    for number, record in enumerate(found.records):
        assert record.captions == tuple(t.strip() for t in captions(number) if t.strip())
        assert record.image.read() == picture(number)
        assert f"{number:03d}.jpg" in str(record.image)
    assert "tensorflow" not in sys.modules


@pytest.mark.parametrize("split", COUNTS)
def test_a_prepared_folder_is_a_list(split, dense):
    name = f"{dense}/{split}"
    assert tfds_names.is_name(name)
    calls = []
    found = tfds_names.read(name, lambda *call: calls.append(call))
    assert_is(found, COUNTS[split])
    assert found.path == name
    assert calls == [(done, COUNTS[split]) for done in range(1, COUNTS[split] + 1)]
    texts = [text.strip() for number in range(COUNTS[split]) for text in captions(number)]
    assert found.report == lists.Report(
        rows=COUNTS[split],
        pairs=len(texts) - 1,
        skipped_missing=0,
        skipped_empty=1,
        duplicates=0,
    )


def test_a_prepared_name_is_a_list(here):
    assert tfds_names.is_name("tfds:dense_captions/val")
    assert_is(tfds_names.read("tfds:dense_captions/val"), COUNTS["val"])
    assert_is(tfds_names.read("tfds:dense_captions:1.0.0/train"), COUNTS["train"])


def test_a_part_of_a_split(dense):
    whole = tfds_names.read(f"{dense}/train").records
    parts = [
        record.id
        for part in ("train[:2]", "train[2:]")
        for record in tfds_names.read(f"{dense}/{part}").records
    ]
    assert len(tfds_names.read(f"{dense}/train[:2]").records) == 2
    assert sorted(parts) == [record.id for record in whole]


def test_the_only_split_needs_no_name(data_dir):
    found = tfds_names.read(str(data_dir / "plain" / "1.0.0"))
    assert [record.id for record in found.records] == ["0", "1", "2"]
    assert found.report.duplicates == 2


def test_the_identity_is_that_of_the_content(dense, data_dir):
    one, other = (tfds_names.read(f"{dense}/{split}") for split in COUNTS)
    assert one.sha256 != other.sha256
    assert one.sha256 == tfds_names.read(f"{dense}/train[:100%]").sha256
    assert len(one.sha256) == 64


def test_many_records_are_held_compressed_and_equal(dense, monkeypatch):
    expected = tfds_names.read(f"{dense}/train").records
    monkeypatch.setattr(tfds_names, "_IN_FULL", 2)
    found = tfds_names.read(f"{dense}/train").records
    assert not isinstance(found, tuple)
    assert tuple(found) == expected


def test_a_data_set_can_be_packed(dense, tmp_path):
    given = tfds_names.read(f"{dense}/train")
    found = pack.read(pack.write(given, tmp_path / "set", size=16))
    assert found.sha256 == given.sha256
    for number, record in enumerate(found.records):
        assert record.captions == given.records[number].captions
        np.testing.assert_array_equal(
            record.image.pixels(16), images.load_image(picture(number), 16)
        )


@pytest.mark.parametrize("split", ["", "/tset"])
def test_a_split_that_is_not_there_lists_those_that_are(split, dense, here):
    for name in (f"{dense}{split}", f"tfds:dense_captions{split}"):
        with pytest.raises(types.UserError, match="names no split") as caught:
            tfds_names.read(name)
        known = name.removesuffix("/tset")
        assert f"add one: {known}/train, {known}/val" in str(caught.value)


def test_a_data_set_without_captions(data_dir):
    with pytest.raises(types.UserError, match="has the features image, label, but needed are"):
        tfds_names.read(str(data_dir / "classes" / "1.0.0"))


@pytest.mark.parametrize("name", ["tfds:coco_captions", "tfds:coco_captions/2014/val"])
def test_without_tensorflow_it_says_what_to_install(name, here, monkeypatch, capfd):
    monkeypatch.setattr(tfds_names, "_has_tensorflow", lambda: False)
    with pytest.raises(types.UserError, match="pip install tensorflow") as caught:
        tfds_names.read(name)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(name)
    assert capfd.readouterr() == ("", "")


def test_with_tensorflow_it_is_prepared(here, tmp_path, monkeypatch):
    hidden = []
    stub = module_types.SimpleNamespace(
        config=module_types.SimpleNamespace(set_visible_devices=lambda *args: hidden.append(args))
    )
    builder = tfds.builder

    def make(name, **options):
        # From here on, the real one is not there either; this builder does not need it.
        monkeypatch.delitem(sys.modules, "tensorflow")
        return builder(name, data_dir=tmp_path, **options)

    monkeypatch.setitem(sys.modules, "importlib_resources", importlib.resources)
    monkeypatch.setattr(tfds_names, "_has_tensorflow", lambda: True)
    monkeypatch.setitem(sys.modules, "tensorflow", stub)
    monkeypatch.setattr(tfds, "builder", make)
    from tensorflow_datasets.core.utils import file_utils

    monkeypatch.setattr(file_utils, "list_data_dirs", lambda *args, **options: [str(tmp_path)])
    assert_is(tfds_names.read("tfds:dense_captions/val"), COUNTS["val"])
    assert hidden == [([], "GPU")]
    assert (tmp_path / "dense_captions" / "1.0.0" / "dataset_info.json").is_file()
    monkeypatch.setitem(sys.modules, "tensorflow", stub)
    with pytest.raises(types.UserError, match="cannot prepare tfds:dense_cations/val: ") as caught:
        tfds_names.read("tfds:dense_cations/val")
    assert "\n" not in str(caught.value)


def test_records_that_cannot_be_read_in_any_order(dense, tmp_path):
    info = json.loads((dense / "dataset_info.json").read_text())
    (tmp_path / "features.json").write_text((dense / "features.json").read_text())
    (tmp_path / "dataset_info.json").write_text(json.dumps(info | {"fileFormat": "tfrecord"}))
    with pytest.raises(types.UserError, match=r"prepared as tfrecord.*'array_record'"):
        tfds_names.read(f"{tmp_path}/train")


def test_a_broken_folder_is_one_line(tmp_path):
    (tmp_path / "dataset_info.json").write_text("{")
    with pytest.raises(types.UserError, match="cannot open data set") as caught:
        tfds_names.read(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_what_is_no_data_set(tmp_path, dense):
    assert not tfds_names.is_name(str(tmp_path))
    assert not tfds_names.is_name(str(tmp_path / "list.json"))
    # A file in the folder of a data set is that file.
    assert not tfds_names.is_name(str(dense / "features.json"))
    with pytest.raises(types.UserError, match="is no prepared data set"):
        tfds_names.read(str(pathlib.Path(tmp_path, "list.json")))
