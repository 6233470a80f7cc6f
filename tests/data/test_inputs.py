"""What is loaded beside the pair: the shapes that the losses count on, and what stands in them."""

import pickle

import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.data import example, images, inputs, lists, regions, segments, tokenizer
from tests.data import drawing, writing

SIZE, PATCH, LENGTH = 32, 8, 40
BOX = {"x1": 10, "y1": 5, "x2": 50, "y2": 39, "width": 40, "height": 34}
WIDE, TALL = (80, 40), (30, 64)
CAPTION = "A red kite. It hangs in a tree, 3.5 m high. A dog watches it."


def _segment(caption="It hangs in a tree, 3.5 m high", score=20.0, **fields):
    return {"caption": caption, "similarity_score": score, "bbox_coordinates": BOX, **fields}


ROWS = [
    {
        "original_filename": "a.png",
        "original_caption": CAPTION,
        "segment": [_segment("A red kite", 19.5), _segment(), _segment("A dog watches it", 5)],
    },
    {
        "original_filename": "b.png",
        "original_caption": ["A wall.", CAPTION],
        "segment": [_segment(filename="parts/b.png")],
    },
    {"original_filename": "a.png", "original_caption": "Nothing here.\nOr there. Is it?"},
]


@pytest.fixture
def folder(tmp_path):
    """Two pictures, and a part of the second."""
    (tmp_path / "parts").mkdir()
    for name, sides in (("a.png", WIDE), ("b.png", TALL), ("parts/b.png", (20, 20))):
        (tmp_path / name).write_bytes(drawing.file(drawing.noise(*sides), "PNG"))
    return tmp_path


@pytest.fixture
def context(folder):
    """Makes the context of a list with these rows."""

    def make(rows=ROWS, image_root="", **changes):
        method = groups.MethodGroup(**changes)
        found = lists.read(writing.write(folder, rows), image_root=image_root)
        options = images.DEFAULT
        return inputs.Context(found, SIZE, PATCH, LENGTH, tokenizer.default(), options, method)

    return make


def _load(name, context):
    """Returns all rows that a loader gives after it went to a worker, stacked."""
    load = pickle.loads(pickle.dumps(inputs.INPUTS[name](context)))
    rows = [load(row) for row in range(len(lists.pairs(context.pictures.records)))]
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize("name", ["short", "segment", "negatives"])
def test_shapes_and_types_are_those_of_made_up_batches(name, context):
    rows = [{**row, "negative_caption": "A blue kite."} for row in ROWS]
    found = _load(name, context(rows))
    sizes = example.Sizes(SIZE, PATCH, LENGTH)
    made = example.batch(sizes, len(found[next(iter(found))]), (name,))
    expected = {key: (made[key].shape, made[key].dtype) for key in found}
    assert {key: (value.shape, value.dtype) for key, value in found.items()} == expected
    assert made.keys() - found.keys() == {"image", "tokens", "truncated", "pair_id", "index"}


def _texts(ids):
    """Returns ids between begin and end."""
    return [row[1 : row.tolist().index(tokenizer.END_ID)].tolist() for row in ids]


def test_short_captions(context):
    found = _load("short", context())["short_tokens"]
    encode = tokenizer.default().encode
    expected = ["A red kite", "A wall.", "A red kite", "Nothing here. Or there"]
    expected[3] = "Nothing here"
    assert _texts(found) == [encode(text) for text in expected]
    said = inputs.INPUTS["short"](context()).describe()
    assert said == "short: 3 of 4 captions have more than one sentence"


@pytest.mark.parametrize(
    ("caption", "short"),
    [
        ("One. Two. Three.", "One"),
        ("One\n. Two", "One "),
        ("One.\nTwo.", "One"),
        ("3.5 m.Two", "3.5 m.Two"),
        ("One.", "One."),
        (". Two", ". Two"),
        ("", ""),
    ],
)
def test_the_first_sentence(caption, short):
    assert inputs.first_sentence(caption) == short


def test_segments(context, folder):
    found = _load("segment", context())
    assert found["has_crop"].tolist() == [True, True, True, False]
    encode = tokenizer.default().encode
    sentence = encode("It hangs in a tree, 3.5 m high")
    assert _texts(found["crop_tokens"]) == [sentence] * 3 + [[]]
    # The best one of the first picture is cut out of it; the second has a file of its own.
    box = regions.Box(10, 5, 50, 39)
    cut = images.load_image(regions.CutOut(str(folder / "a.png"), box), SIZE)
    np.testing.assert_array_equal(found["crop"][0], cut)
    own = images.load_image(str(folder / "parts/b.png"), SIZE)
    np.testing.assert_array_equal(found["crop"][1:3], [own, own])
    assert not found["crop"][3].any()
    for row, sides in enumerate((WIDE, TALL, TALL)):
        expected = regions.patch_mask(box, sides, SIZE, PATCH)
        np.testing.assert_array_equal(found["patch_mask"][row], expected)
        assert 0 < expected.sum() < expected.size
    assert not found["patch_mask"][3].any()
    # The sentence is in the first picture's caption and in the second one of the other.
    words = found["word_mask_of_crop"]
    assert words.sum(axis=1).tolist() == [len(sentence), 0, len(sentence), 0]
    ids = tokenizer.default()(CAPTION, LENGTH).ids[0]
    assert ids[words[0]].tolist() == ids[words[2]].tolist() == sentence


def test_segments_as_released(context):
    # Pictures of 32 pixels have 2 x 2 patches of 16 there.
    found = _load("segment", context(goal_mode="as_released"))
    box = regions.Box(10, 5, 50, 39)
    mask = regions.patch_mask_as_released(box, (40, 34), SIZE, 16)
    np.testing.assert_array_equal(found["patch_mask"], [mask, mask, mask, [False] * 16])
    words = segments.word_mask_as_released(
        tokenizer.default(), CAPTION, "It hangs in a tree, 3.5 m high", LENGTH
    )
    np.testing.assert_array_equal(found["word_mask_of_crop"][[0, 2]], [words, words])
    assert found["has_crop"].tolist() == [True, True, True, False]


def test_as_released_needs_as_many_patches(context):
    made = context(goal_mode="as_released")
    with pytest.raises(types.UserError, match="counts 4 patches of 16 pixels"):
        inputs.INPUTS["segment"](inputs.dataclasses.replace(made, patch_size=32))


MASKED = {
    "file without a box": ({"filename": "parts/b.png", "bbox_coordinates": None}, True, False),
    "neither": ({"filename": "none.png", "bbox_coordinates": None}, False, False),
    "box beside the picture": ({"bbox_coordinates": {**BOX, "x1": 80, "x2": 99}}, False, False),
    "box beside the square": ({"bbox_coordinates": {**BOX, "x1": 0, "x2": 9}}, True, False),
    "file that is not there": ({"filename": "none.png"}, True, True),
}


@pytest.mark.parametrize("case", MASKED)
def test_what_is_not_there_is_masked(case, context):
    fields, has_crop, has_patches = MASKED[case]
    rows = [{**ROWS[0], "segment": [_segment(**fields)]}, ROWS[1]]
    found = _load("segment", context(rows))
    assert found["has_crop"].tolist() == [has_crop, True, True]
    assert found["patch_mask"][0].any() == has_patches
    assert found["crop"][0].any() == has_crop
    assert found["word_mask_of_crop"][0].any() == has_crop
    assert (found["crop_tokens"][0, 1] != tokenizer.END_ID) == has_crop


def test_segments_are_described(context):
    rows = [
        *ROWS,
        {**ROWS[0], "segment": [_segment(bbox_coordinates={**BOX, "x1": 0, "x2": 9})]},
        {**ROWS[0], "segment": [_segment("A blue kite", filename="parts/b.png")]},
        {**ROWS[0], "segment": [_segment(bbox_coordinates=None)]},
    ]
    assert inputs.INPUTS["segment"](context(rows)).describe() == (
        "segment: 4 of 6 pictures have one, 2 in a file, 2 to be cut out; 1 have no usable box, "
        "1 boxes are outside of the crop, 1 sentences are not in the caption"
    )


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([ROWS[2]], "no row has a 'segment' with a box or a file .*tools/make_segments.py makes"),
        ([{**ROWS[0], "segment": []}], "no row has a 'segment'"),
        ([{**ROWS[0], "segment": [_segment(bbox_coordinates=None)]}], "no row has a 'segment'"),
        (
            [ROWS[0], *[{**ROWS[0], "segment": {}}] * 7],
            r"7 of 8 rows have a segment that is none \(row 1, 2, 3, 4, 5, \.\.\., counted from "
            r"0\); in the first, it is \{\} and no list; needed are",
        ),
        ([{**ROWS[0], "segment": [{"caption": "c"}]}], "similarity_score is None; needed"),
    ],
)
def test_lists_that_segments_cannot_be_loaded_from(rows, reason, context):
    with pytest.raises(types.UserError, match=reason) as error:
        inputs.INPUTS["segment"](context(rows))
    assert str(error.value).count("list.json") == 1
    assert "\n" not in str(error.value)


def test_two_files_of_segments_that_would_be_one(context, folder):
    rows = [
        {**ROWS[0], "segment": [_segment(filename=f"there/{name}/parts/b.png")]} for name in "xy"
    ]
    made = context(rows, image_root=str(folder))
    with pytest.raises(types.UserError, match=r"'there/x/parts/b\.png' and 'there/y/parts/b\.png'"):
        inputs.INPUTS["segment"](made)
    rows[1] = rows[0]
    assert _load("segment", context(rows, image_root=str(folder)))["has_crop"].all()


def _negative(caption, negative):
    return {"filename": "a.png", "caption": caption, "negative_caption": negative}


NEGATIVES = {
    "one text": ("x", "A blue kite.", ["A blue kite."]),
    "of several the first": ("x", ["A blue kite.", "No kite."], ["A blue kite."]),
    "one for all captions": (["x", "y"], "A blue kite.", ["A blue kite."] * 2),
    "one each": (["x", "y"], ["A blue kite.", "No kite."], ["A blue kite.", "No kite."]),
    "not for all": (["x", "y"], [None, "No kite."], ["", "No kite."]),
    "blank": (["x", "y"], [" \n", "No kite. "], ["", "No kite."]),
    "null": ("x", None, [""]),
    "none": ("x", [], [""]),
    "no text at all": ("x", "\ud83d", [""]),
}


@pytest.mark.parametrize("case", NEGATIVES)
def test_negatives(case, context):
    caption, negative, expected = NEGATIVES[case]
    rows = [_negative(caption, negative), _negative("z", "A dog."), ROWS[2]]
    found = _load("negatives", context(rows))
    expected = [*expected, "A dog.", ""]
    encode = tokenizer.default().encode
    assert _texts(found["negative_tokens"]) == [encode(text) for text in expected]
    assert found["has_negative"].tolist() == [text != "" for text in expected]
    said = inputs.INPUTS["negatives"](context(rows)).describe()
    count = sum(text != "" for text in expected)
    assert said == f"negatives: {count} of {len(expected)} captions have one"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([ROWS[0], _negative("x", None)], "no row has a 'negative_caption', which this loss needs"),
        (
            [_negative("x", "y"), _negative(["x", "y"], ["A dog."])],
            r"1 of 2 rows have a 'negative_caption' .*\(row 1, .* it has 1 for 2 captions; needed",
        ),
        ([_negative("x", 7)], "in the first, it is 7; needed"),
        ([_negative("x", [["y"]])], r"in the first, it is \['y'\]; needed"),
    ],
)
def test_lists_that_negatives_cannot_be_loaded_from(rows, reason, context):
    with pytest.raises(types.UserError, match=reason):
        inputs.INPUTS["negatives"](context(rows))


def test_the_structure_input_is_structures(context, monkeypatch):
    from hnclip_jax.data import structure

    seen = []
    monkeypatch.setattr(structure, "build", seen.append)
    made = context()
    inputs.INPUTS["structure"](made)
    assert seen == [made]
