"""tf.train.Example messages: what tensorflow-datasets writes is what is read."""

import numpy as np
import pytest
from tensorflow_datasets.proto import tf_example_pb2

from hnclip_jax.data.packed import examples


def message(**values):
    """Returns the bytes of an example, written by protobuf."""
    example = tf_example_pb2.Example()
    for name, value in values.items():
        feature = example.features.feature[name]
        if isinstance(value[0], bytes):
            feature.bytes_list.value.extend(value)
        elif isinstance(value[0], float):
            feature.float_list.value.extend(value)
        else:
            feature.int64_list.value.extend(value)
    return example.SerializeToString()


def test_strings_are_read_byte_by_byte():
    given = [b"", b"\x00", "é".encode(), bytes(range(256)) * 700, b"end\x00"]
    found = examples.features(message(one=[b"x"], many=given, number=[3]))
    assert set(found) == {"one", "many", "number"}
    assert examples.strings(found["one"]) == [b"x"]
    assert examples.strings(found["many"]) == given
    assert examples.strings(found["number"]) == []


def test_integers_have_64_bits_and_a_sign():
    given = [0, 1, 127, 128, 300, -1, 2**63 - 1, -(2**63), *np.arange(1000).tolist()]
    found = examples.features(message(many=given, text=[b"\x01"], real=[1.5]))
    assert examples.integers(found["many"]) == given
    assert examples.integers(found["text"]) == examples.integers(found["real"]) == []


def test_integers_may_stand_one_by_one():
    # Number 3 of a feature is a list of integers, whose number 1 they are.
    assert examples.integers(memoryview(b"\x1a\x05\x08\x07\x08\xac\x02")) == [7, 300]


def test_a_feature_without_a_value_is_empty():
    example = tf_example_pb2.Example()
    example.features.feature["nothing"].SetInParent()
    found = examples.features(example.SerializeToString())
    assert examples.strings(found["nothing"]) == examples.integers(found["nothing"]) == []
    assert examples.features(b"") == {}


@pytest.mark.parametrize("cut", [1, 2, 5, 40])
def test_bytes_that_are_no_example(cut):
    with pytest.raises(ValueError, match=r"is no tf\.train\.Example"):
        examples.features(message(text=[b"words" * 20])[:-cut])
    with pytest.raises(ValueError, match=r"is no tf\.train\.Example"):
        examples.features(b"\xff\xff")
    with pytest.raises(ValueError, match=r"is no tf\.train\.Example"):
        examples.features(b"\x0d\x00\x00\x00\x00")
