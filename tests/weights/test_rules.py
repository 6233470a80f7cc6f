"""Renaming and reshaping by table: made-up layouts, both ways, and the account of what differs."""

import functools

import ml_dtypes
import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.models import vision
from hnclip_jax.weights import rules, stored


def _layers(theirs, ours, form):
    return rules.Rule((f"{theirs[0]}.{{layer}}.{theirs[1]}",), (ours,), form)


LAYOUT = (
    _layers(("eye.blocks", "weight"), "image/blocks_{layer:02d}/kernel", rules.MATRIX),
    _layers(("eye.blocks", "norm"), "image/blocks_{layer:02d}/scale", rules.VECTOR),
    _layers(("blocks", "weight"), "text/blocks_{layer:02d}/kernel", rules.MATRIX),
    rules.Rule(("table",), ("text/table",), rules.TABLE),
    rules.Rule(("temperature",), ("logit_scale",), rules.SCALAR),
)
IGNORED = r"ids|mask\d"


def tensors(image_layers=3, text_layers=2):
    """Returns a file of LAYOUT: every number of it is there once."""
    shapes = {f"eye.blocks.{i}.weight": (2, 3) for i in range(image_layers)}
    shapes |= {f"eye.blocks.{i}.norm": (4,) for i in range(image_layers)}
    shapes |= {f"blocks.{i}.weight": (3, 2) for i in range(text_layers)}
    shapes |= {"table": (5, 2), "temperature": ()}
    start, arrays = 0, {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        arrays[name] = np.arange(start, start + size, dtype=np.float32).reshape(shape)
        start += size
    return arrays


def decode(arrays, layout=LAYOUT):
    return rules.decode(arrays, layout, IGNORED, "the file")


def one(form, array):
    """Returns what a layout of one tensor makes of `array`."""
    rule = rules.Rule(("theirs",), ("ours",), form)
    return np.asarray(rules.decode({"theirs": array}, (rule,), "", "the file").arrays["ours"])


def complaint(arrays, layout=LAYOUT):
    with pytest.raises(types.UserError, match=r"^the file does not match its layout: ") as caught:
        decode(arrays, layout)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def without(arrays, *names):
    return {name: array for name, array in arrays.items() if name not in names}


def assert_same(found, wanted):
    """Same names, shapes, types and values."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        got = np.asarray(found[name])
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype), name
        assert (got.shape, got.dtype) == (array.shape, array.dtype), name
        np.testing.assert_array_equal(got, array, err_msg=name)


def test_names_change_and_matrices_are_transposed():
    given = tensors()
    wanted = {"text/table": given["table"], "logit_scale": given["temperature"]}
    for i in range(3):
        wanted[f"image/blocks_0{i}/kernel"] = given[f"eye.blocks.{i}.weight"].T
        wanted[f"image/blocks_0{i}/scale"] = given[f"eye.blocks.{i}.norm"]
    for i in range(2):
        wanted[f"text/blocks_0{i}/kernel"] = given[f"blocks.{i}.weight"].T
    found = decode(given)
    assert_same(found.arrays, wanted)
    assert found.origin["image/blocks_02/kernel"] == ("eye.blocks.2.weight",)
    assert found.origin.keys() == wanted.keys()
    assert found.ignored == ()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_floating_types_stay_as_they_are(dtype):
    given = {name: array.astype(dtype) for name, array in tensors().items()}
    assert {array.dtype for array in decode(given).arrays.values()} == {np.dtype(dtype)}
    assert_same(rules.encode(decode(given).arrays, LAYOUT), given)


@pytest.mark.parametrize(("image_layers", "text_layers"), [(1, 1), (12, 2), (3, 11), (101, 1)])
def test_towers_have_as_many_layers_as_the_file_shows(image_layers, text_layers):
    given = tensors(image_layers, text_layers)
    found = decode(dict(reversed(given.items()))).arrays
    for i in range(image_layers):
        np.testing.assert_array_equal(
            found[f"image/blocks_{i:02d}/kernel"], given[f"eye.blocks.{i}.weight"].T
        )
    for i in range(text_layers):
        np.testing.assert_array_equal(
            found[f"text/blocks_{i:02d}/kernel"], given[f"blocks.{i}.weight"].T
        )
    assert len(found) == 2 * image_layers + text_layers + 2
    kernels = [path for path in found if path.startswith("image/") and path.endswith("kernel")]
    assert kernels == [f"image/blocks_{i:02d}/kernel" for i in range(image_layers)]
    assert_same(rules.encode(found, LAYOUT), given)


def test_encode_keeps_the_order_of_the_layout():
    assert list(rules.encode(decode(tensors()).arrays, LAYOUT)) == list(tensors())


# Forms ---------------------------------------------------------------------------------------


def test_every_number_of_a_patch_kernel_has_its_place():
    width, patch = 2, 4
    w, c, y, x = np.indices((width, 3, patch, patch))
    kernel = one(rules.PATCHES, (1000 * w + 100 * c + 10 * y + x).astype(np.float32))
    assert kernel.shape == (patch * patch * 3, width)
    for row in range(patch):
        for column in range(patch):
            for channel in range(3):
                wanted = [1000 * n + 100 * channel + 10 * row + column for n in range(width)]
                assert kernel[(row * patch + column) * 3 + channel].tolist() == wanted


def test_one_pixel_meets_its_own_weights():
    weight = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4) + 1
    picture = np.zeros((1, 8, 12, 3), np.float32)
    picture[0, 5, 11, 2] = 10  # Row 1 and column 3 of the last of six patches; blue.
    features = np.asarray(vision.patchify(picture, 4))[0] @ one(rules.PATCHES, weight)
    wanted = np.zeros((6, 2))
    # 32 numbers into a feature's weights begins blue, 4 a row: 1 + 32 + 4 + 3, 48 further for each.
    wanted[5] = 400, 880
    np.testing.assert_array_equal(features, wanted)


def test_patches_are_a_convolution():
    rng = np.random.default_rng(0)
    weight, picture = rng.normal(size=(5, 3, 2, 2)), rng.normal(size=(1, 4, 6, 3))
    features = np.asarray(vision.patchify(picture, 2))[0] @ one(rules.PATCHES, weight)
    for row in range(2):
        for column in range(3):
            patch = picture[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            wanted = [np.sum(kernel.transpose(1, 2, 0) * patch) for kernel in weight]
            np.testing.assert_allclose(features[3 * row + column], wanted, rtol=1e-12)


@pytest.mark.parametrize("shape", [(6, 5), (6,)], ids=["kernels", "biases"])
def test_rows_are_query_then_key_then_value(shape):
    paths = ("query", "key", "value")
    layout = (rules.Rule(("in_proj",), paths, rules.QUERY_KEY_VALUE),)
    joined = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = decode({"in_proj": joined}, layout)
    wanted = {path: joined[2 * i : 2 * i + 2].T for i, path in enumerate(paths)}
    assert_same(found.arrays, wanted)
    assert found.origin == dict.fromkeys(paths, ("in_proj",))
    assert_same(rules.encode(found.arrays, layout), {"in_proj": joined})


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_number_is_a_scalar(shape):
    found = one(rules.SCALAR, np.full(shape, 4.5, np.float32))
    assert found.shape == ()
    assert found == 4.5


@pytest.mark.parametrize(
    ("form", "shape", "reason"),
    [
        (rules.SCALAR, (2,), "is one number"),
        (rules.SCALAR, (1, 1), "is one number"),
        (rules.SCALAR, (0,), "is one number"),
        (rules.VECTOR, (), "needs 1 dimensions"),
        (rules.VECTOR, (2, 1), "needs 1 dimensions"),
        (rules.TABLE, (6,), "needs 2 dimensions"),
        (rules.MATRIX, (6,), "needs 2 dimensions"),
        (rules.MATRIX, (2, 3, 1), "needs 2 dimensions"),
        (rules.QUERY_KEY_VALUE, (), "needs 1 dimensions"),
        (rules.QUERY_KEY_VALUE, (7, 2), "holds three of one size"),
        (rules.QUERY_KEY_VALUE, (6, 2, 2), "needs 1 dimensions"),
        (rules.PATCHES, (8, 12), "needs 4 dimensions"),
        (rules.PATCHES, (8, 4, 2, 2), r"needs (width, 3, patch, patch)"),
        (rules.PATCHES, (8, 3, 2, 3), r"needs (width, 3, patch, patch)"),
        (rules.PATCHES, (2, 2, 3, 8), r"needs (width, 3, patch, patch)"),
    ],
)
def test_another_shape_is_named(form, shape, reason):
    message = complaint({"x": np.zeros(shape)}, (rules.Rule(("x",), ("ours",), form),))
    assert f"x has shape {shape}, but " in message
    assert reason in message
    assert "0 tensors matched" in message


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        (rules.VECTOR, (7,)),
        (rules.TABLE, (3, 5)),
        (rules.MATRIX, (3, 5)),
        (rules.SCALAR, ()),
        (rules.PATCHES, (5, 3, 1, 1)),
        (rules.PATCHES, (7, 3, 14, 14)),
        (rules.QUERY_KEY_VALUE, (9, 5)),
        (rules.QUERY_KEY_VALUE, (9,)),
    ],
)
def test_encode_is_the_inverse_of_decode(form, shape):
    given = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    parts = form.decode(given)
    (back,) = form.encode(*parts)
    assert_same({"x": np.asarray(back)}, {"x": given})
    for again, part in zip(form.decode(back), parts, strict=True):
        np.testing.assert_array_equal(again, part)


# The account ---------------------------------------------------------------------------------


def test_what_is_missing_is_named_and_counted():
    message = complaint(without(tensors(), "table", "eye.blocks.1.norm"))
    assert message == (
        "the file does not match its layout: 8 tensors matched; "
        "2 missing (eye.blocks.1.norm, table)"
    )


def test_what_is_left_over_is_named_and_counted():
    message = complaint(tensors() | {"zoo": np.ones(1), "head.bias": np.ones(1)})
    assert message == (
        "the file does not match its layout: 10 tensors matched; 2 left over (head.bias, zoo)"
    )


def test_everything_wrong_is_said_at_once():
    given = without(tensors(), "table") | {"extra": np.ones(1), "temperature": np.ones(2)}
    message = complaint(given)
    assert message == (
        "the file does not match its layout: 8 tensors matched; 1 missing (table); "
        "1 left over (extra); temperature has shape (2,), but is one number"
    )


def test_of_many_names_ten_are_shown():
    few = {"table": np.ones((2, 2)), "temperature": np.ones(())}
    far = few | {"eye.blocks.5.norm": np.ones(1), "blocks.0.weight": np.ones((1, 1))}
    message = complaint(far)
    assert "11 missing (eye.blocks.0.norm, eye.blocks.0.weight, eye.blocks.1.norm" in message
    assert "eye.blocks.4.weight and 1 more)" in message
    message = complaint(tensors() | {f"head.{i:02d}": np.ones(1) for i in range(25)})
    assert "25 left over (head.00, head.01, " in message
    assert "head.09 and 15 more)" in message
    message = complaint(tensors(12) | {f"eye.blocks.{i}.norm": np.ones((1, 1)) for i in range(12)})
    assert message.count("has shape (1, 1)") == 10
    assert message.endswith(" and 2 more")


def test_a_layer_missing_in_the_middle_is_missing():
    message = complaint(without(tensors(12), "eye.blocks.5.weight", "eye.blocks.5.norm"))
    assert "2 missing (eye.blocks.5.norm, eye.blocks.5.weight)" in message
    assert "left over" not in message


def test_a_layer_that_lacks_one_tensor_is_not_dropped():
    assert "1 missing (eye.blocks.2.norm)" in complaint(without(tensors(), "eye.blocks.2.norm"))


def test_a_tower_that_is_not_there_misses_its_first_layer():
    message = complaint(without(tensors(3, 2), "blocks.0.weight", "blocks.1.weight"))
    assert "1 missing (blocks.0.weight)" in message


@pytest.mark.parametrize("number", ["01", "x", "-1", "1e2", "", "20000", "٣"])
def test_a_number_that_is_none_of_a_layer_is_left_over(number):
    name = f"blocks.{number}.weight"
    message = complaint(tensors() | {name: np.ones((3, 2))})
    assert f"10 tensors matched; 1 left over ({name})" in message


def test_a_name_that_only_contains_a_known_one_is_left_over():
    given = tensors() | {"table2": np.ones((5, 2)), "my.table": np.ones((5, 2))}
    assert "2 left over (my.table, table2)" in complaint(given)


def test_known_buffers_are_listed_and_may_be_missing():
    buffers = {"mask1": np.ones(3, np.int64), "ids": np.arange(4), "mask2": np.ones(3)}
    found = decode(tensors() | buffers)
    assert sorted(found.ignored) == sorted(buffers)
    assert_same(found.arrays, {k: np.asarray(v) for k, v in decode(tensors()).arrays.items()})
    assert "1 left over (mask10)" in complaint(tensors() | {"mask10": np.ones(1)})
    assert "1 left over (my.ids)" in complaint(tensors() | {"my.ids": np.ones(1)})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, bool, np.complex64])
def test_numbers_that_are_not_floating_are_no_weights(dtype):
    given = tensors()
    given["blocks.1.weight"] = given["blocks.1.weight"].astype(dtype)
    message = complaint(given)
    wanted = f"9 tensors matched; blocks.1.weight holds {np.dtype(dtype)}, but weights are floating"
    assert message.endswith(wanted)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda a: without(a, "text/table"), "9 parameters matched; 1 missing (text/table)"),
        (
            lambda a: without(a, "image/blocks_01/scale"),
            "9 parameters matched; 1 missing (image/blocks_01/scale)",
        ),
        (lambda a: a | {"head/bias": np.ones(1)}, "10 parameters matched; 1 left over (head/bias)"),
        (
            lambda a: a | {"text/blocks_00/adapter": np.ones(1)},
            "10 parameters matched; 1 left over (text/blocks_00/adapter)",
        ),
    ],
    ids=["missing", "missing in a layer", "left over", "left over in a layer"],
)
def test_a_model_that_the_layout_cannot_hold_is_not_written(change, wanted):
    with pytest.raises(types.UserError) as caught:
        rules.encode(change(decode(tensors()).arrays), LAYOUT)
    assert str(caught.value) == f"the model does not match its layout: {wanted}"


def test_no_part_of_a_joined_tensor_stands_for_another():
    layout = (rules.Rule(("in_proj",), ("query", "key", "value"), rules.QUERY_KEY_VALUE),)
    with pytest.raises(types.UserError, match=r"0 parameters matched; 1 missing \(value\)"):
        rules.encode({"query": np.ones((2, 2)), "key": np.ones((2, 2))}, layout)


# What is kept though it is no parameter ------------------------------------------------------

SWAPPED = rules.Form(lambda one, two: [two, one], lambda one, two: [two, one])
KEPT = (
    rules.Rule(("a", "b"), ("ours", f"{rules.UNUSED}ours"), SWAPPED),
    rules.Rule(("c",), ("other",), rules.VECTOR),
)
BOTH = {"a": np.array([1.0]), "b": np.array([2.0]), "c": np.array([3.0])}


def test_what_is_unused_comes_back():
    found = decode(BOTH, KEPT).arrays
    assert_same(found, {"ours": BOTH["b"], f"{rules.UNUSED}ours": BOTH["a"], "other": BOTH["c"]})
    assert_same(rules.encode(found, KEPT), BOTH)


def test_without_it_the_parameter_stands_for_it():
    arrays = {"ours": np.array([5.0]), "other": np.array([6.0])}
    wanted = {"a": np.array([5.0]), "b": np.array([5.0]), "c": np.array([6.0])}
    assert_same(rules.encode(arrays, KEPT), wanted)


def test_a_layout_without_a_place_for_it_leaves_it_out():
    layout = (rules.Rule(("plain",), ("ours",), rules.VECTOR), KEPT[1])
    found = decode(BOTH, KEPT).arrays
    assert_same(rules.encode(found, layout), {"plain": BOTH["b"], "c": BOTH["c"]})


def test_two_tensors_of_one_rule_are_both_needed():
    assert "1 tensors matched; 1 missing (b)" in complaint(without(BOTH, "b"), KEPT)
    assert "1 tensors matched; 2 missing (a, b)" in complaint(without(BOTH, "a", "b"), KEPT)
    assert "3 tensors matched; 1 left over (d)" in complaint(BOTH | {"d": np.ones(1)}, KEPT)


# Reading -------------------------------------------------------------------------------------


def counted(arrays):
    """Returns `arrays` as if in a file, and the list of the names read so far."""
    read = []

    def reader(name):
        read.append(name)
        return arrays[name]

    return {
        name: stored.Stored(array.shape, array.dtype, functools.partial(reader, name))
        for name, array in arrays.items()
    }, read


def test_nothing_is_read_before_it_is_asked_for():
    given, read = counted(tensors())
    found = decode(given).arrays
    back = rules.encode(found, LAYOUT)
    assert {name: array.shape for name, array in back.items()} == {
        name: array.shape for name, array in given.items()
    }
    assert read == []
    np.asarray(found["image/blocks_01/kernel"])
    assert read == ["eye.blocks.1.weight"]
    np.asarray(back["table"])
    assert read == ["eye.blocks.1.weight", "table"]
    np.asarray(found["text/table"])
    assert read == ["eye.blocks.1.weight", "table", "table"]  # Nothing is kept.


def test_a_file_that_does_not_match_is_not_read_either():
    given, read = counted(tensors() | {"temperature": np.ones(2), "extra": np.ones(1)})
    complaint(given)
    assert read == []


def test_a_wanted_type_is_converted_and_an_array_is_a_copy():
    source = np.arange(6, dtype=np.float16).reshape(2, 3)
    array = stored.Stored(source.shape, source.dtype, lambda: source)
    assert np.asarray(array, np.float32).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(array, np.float32), source)
    assert np.asarray(array) is source  # A file that is mapped to memory is not copied.
    assert not np.shares_memory(np.array(array), source)


@pytest.mark.parametrize(("shape", "size"), [((2, 3), 12), ((), 2), ((0, 4), 0)])
def test_the_size_in_bytes_is_known_without_reading(shape, size):
    given, read = counted({"x": np.zeros(shape, np.float16)})
    assert given["x"].nbytes == size
    assert read == []
