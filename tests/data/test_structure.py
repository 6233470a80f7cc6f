"""Edge maps, filtered captions and phrases of a list as people write it, loaded pair by pair."""

import dataclasses
import pickle

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hnclip_jax import groups, types
from hnclip_jax.data import images, inputs, lists, structure, tokenizer
from tests.data import drawing, writing

pytest.importorskip(
    "instant_clip_tokenizer", reason="no wheel for this Python, so no vocabulary to test with"
)

SIZE, CONTEXT = 16, 32
CAPTION = "A red kite hangs in a tall green tree. Wide sky."
FILTERED = "A kite hangs in a tall tree. Wide sky."


def box(x1, y1, x2, y2):
    return {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "width": x2 - x1, "height": y2 - y1}


def segment(score, **entries):
    return {"similarity_score": score, "filename": "s.png", "caption": "a kite", **entries}


def row(name="a.png", edges="edges/a.png", segments=(), **entries):
    named = {"original_filename_structure": edges} if edges else {}
    return {
        "original_filename": name,
        "original_caption": CAPTION,
        "segment": list(segments),
        **named,
        **entries,
    }


@pytest.fixture
def folder(tmp_path):
    """Two pictures of 40 x 20 pixels, and edge maps: bars of different grey, so that all differ."""
    for name in ("a.png", "b.png"):
        drawing.noise(40, 20).save(tmp_path / name)
    (tmp_path / "edges").mkdir()
    for name, size in (("a", (40, 20)), ("half", (20, 10)), ("one", (9, 9)), ("two", (12, 12))):
        bars(size).save(tmp_path / "edges" / f"{name}.png")
    return tmp_path


def bars(size):
    """Returns a grey picture whose four quarters, from left to right, are 40, 80, 120 and 160."""
    image = Image.new("L", size)
    draw = ImageDraw.Draw(image)
    for quarter in range(4):
        left = size[0] * quarter // 4
        draw.rectangle((left, 0, size[0], size[1]), fill=40 * (quarter + 1))
    return image


def context(folder, rows, **settings):
    """Returns the context of a list; settings of the method begin with structxlip_."""
    return inputs.Context(
        pictures=lists.read(writing.write(folder, rows)),
        image_size=SIZE,
        patch_size=8,
        context_length=settings.pop("context_length", CONTEXT),
        tokenize=tokenizer.default(),
        options=settings.pop("options", images.DEFAULT),
        method=groups.MethodGroup(name="structxlip", **settings),
    )


def load(folder, rows, number=0, **settings):
    return structure.build(context(folder, rows, **settings))(number)


def pixels(path):
    return images.load_image(path, SIZE)


def test_shapes_and_types(folder):
    found = load(folder, [row(segments=[segment(3.5, bbox_coordinates=box(0, 0, 9, 9))])])
    assert {name: (array.shape, str(array.dtype)) for name, array in found.items()} == {
        "edge": ((SIZE, SIZE, 3), "uint8"),
        "has_edge": ((), "bool"),
        "structure_tokens": ((CONTEXT,), "int32"),
        "spans": ((64, 2), "int32"),
        "local_edge": ((2, SIZE, SIZE, 3), "uint8"),
        "has_local": ((2,), "bool"),
    }
    assert found["has_local"].tolist() == [True, False]


def test_the_edge_map_is_resized_like_a_picture(folder):
    found = load(folder, [row()])
    np.testing.assert_array_equal(found["edge"], pixels(folder / "edges/a.png"))
    assert found["has_edge"]
    assert not found["has_local"].any()


def test_rows_are_pairs(folder):
    first = row("a.png", original_caption=["A red kite flies.", "A tall tree stands."])
    rows = [first, row("b.png", "edges/half.png")]
    made = structure.build(context(folder, rows))
    for number, (edges, text) in enumerate(
        [
            ("edges/a.png", "A kite flies."),
            ("edges/a.png", "A tall tree stands."),
            ("edges/half.png", FILTERED),
        ]
    ):
        found = made(number)
        np.testing.assert_array_equal(found["edge"], pixels(folder / edges))
        np.testing.assert_array_equal(
            found["structure_tokens"], tokenizer.tokenize(text, CONTEXT)[0]
        )


@pytest.mark.parametrize("name", [None, "", "edges/gone.png", 7, ["edges/a.png"], "edges"], ids=str)
def test_a_map_that_is_not_there_is_no_data(folder, name):
    other = row("b.png", "", [segment(1, bbox_coordinates=box(0, 0, 9, 9))])
    found = load(folder, [row(), {**other, "original_filename_structure": name}], 1)
    assert not found["has_edge"]
    assert not found["has_local"].any()
    assert not any(found[name].any() for name in ("edge", "local_edge"))


def test_a_map_that_cannot_be_read_is_an_error(folder):
    (folder / "edges/broken.png").write_bytes(b"no picture")
    with pytest.raises(types.UserError, match=r"broken\.png"):
        load(folder, [row(edges="edges/broken.png")])


def test_transparent_and_coloured_maps_are_white_lines_on_black(folder):
    image = Image.new("LA", (16, 16), (0, 0))
    ImageDraw.Draw(image).line((0, 8, 16, 8), fill=(255, 255))
    image.save(folder / "edges/clear.png")
    found = load(folder, [row(edges="edges/clear.png")])["edge"]
    assert found[8].min() == 255
    assert found[0].max() == 0
    Image.new("RGB", (16, 16), (255, 0, 0)).save(folder / "edges/red.png")
    assert np.unique(load(folder, [row(edges="edges/red.png")])["edge"]).tolist() == [76]


def test_best_segments_by_score(folder):
    segments = [
        segment(float("nan"), filename_structure_cropped="edges/a.png"),
        segment(20.5, filename_structure_cropped="edges/one.png"),
        segment(24.7, filename_structure_cropped="edges/two.png"),
        segment(20.5, filename_structure_cropped="edges/half.png"),
        {"filename_structure_cropped": "edges/a.png"},
        "no segment",
    ]
    found = load(folder, [row(segments=segments)], structxlip_top_k=3)
    assert found["has_local"].all()
    for number, name in enumerate(("two", "one", "half")):
        np.testing.assert_array_equal(
            found["local_edge"][number], pixels(folder / f"edges/{name}.png")
        )
    found = load(folder, [row(segments=segments)], structxlip_top_k=1)
    assert found["local_edge"].shape[0] == 1
    np.testing.assert_array_equal(found["local_edge"][0], pixels(folder / "edges/two.png"))


@pytest.mark.parametrize("edges", ["edges/a.png", "edges/half.png"], ids=["as large", "half"])
def test_cut_out_of_the_whole_map(folder, edges):
    # The third quarter of 40 pixels, which is all of one grey, whatever size the map has.
    best = segment(2, bbox_coordinates=box(20, 0, 30, 20), filename_structure_cropped="gone.png")
    found = load(folder, [row(edges=edges, segments=[segment(1), best])])
    assert found["has_local"].tolist() == [True, False]
    assert np.unique(found["local_edge"][0]).tolist() == [120]


def test_cut_out_of_a_map_of_another_shape(folder):
    Image.fromarray(np.repeat(np.uint8([[0], [200]]), [20, 20], axis=0)).save(
        folder / "edges/2.png"
    )
    below = segment(1, bbox_coordinates=box(0, 10, 40, 20))
    found = load(folder, [row(edges="edges/2.png", segments=[below])])
    assert np.unique(found["local_edge"][0]).tolist() == [200]


def test_an_own_map_goes_before_the_cut(folder):
    left = box(0, 0, 10, 20)
    both = segment(2, bbox_coordinates=left, filename_structure_cropped="edges/one.png")
    found = load(folder, [row(segments=[both, segment(1, bbox_coordinates=left)])])
    np.testing.assert_array_equal(found["local_edge"][0], pixels(folder / "edges/one.png"))
    assert np.unique(found["local_edge"][1]).tolist() == [40]
    found = load(folder, [row(), row("b.png", None, [both])], 1)
    assert not found["has_edge"]
    assert found["has_local"].tolist() == [True, False]


def test_boxes_are_clipped_and_keep_parts_of_pixels(folder):
    # In a map of half the size the box covers columns 4.75 to 5.25, so columns 4 and 5.
    thin = segment(1, bbox_coordinates=box(9.5, -5, 10.5, 99))
    found = load(folder, [row(edges="edges/half.png", segments=[thin])])["local_edge"][0]
    assert found.min() < 80
    assert found.max() > 40


@pytest.mark.parametrize(
    "wrong",
    [
        None, {}, [1, 2, 3, 4], {"x1": 1, "y1": 1}, box(5, 5, 5, 9), box(9, 9, 5, 5),
        box(40, 0, 50, 9), box(-9, -9, 0, 0), box(0, 0, float("nan"), 9),
        {**box(0, 0, 9, 9), "x2": "9"},
    ],
    ids=str,
)  # fmt: skip
def test_a_box_that_is_none_is_no_data(folder, wrong):
    found = load(folder, [row(segments=[segment(1, bbox_coordinates=wrong)])])
    assert found["has_edge"]
    assert not found["has_local"].any()
    assert not found["local_edge"].any()


def test_the_filter_that_is_set(folder):
    def tokens(*names):
        return load(folder, [row()], structxlip_filter=names)["structure_tokens"]

    np.testing.assert_array_equal(tokens(), tokenizer.tokenize(CAPTION, CONTEXT)[0])
    np.testing.assert_array_equal(tokens("colours"), tokenizer.tokenize(FILTERED, CONTEXT)[0])
    with pytest.raises(types.UserError, match="unknown list of words 'color'"):
        tokens("color")


def test_spans_are_tokens_of_the_filtered_caption(folder):
    found = load(folder, [row()])
    encode = tokenizer.default().encode
    ids = [int(token) for token in found["structure_tokens"]]
    used = [(start, stop) for start, stop in found["spans"].tolist() if stop > start]
    assert [ids[start:stop] for start, stop in used] == [
        encode(part)
        for part in ("a kite hangs", "kite hangs in", "hangs in a", "in a tall", "a tall tree",
                     "wide sky")
    ]  # fmt: skip
    assert not found["spans"][len(used) :].any()


def test_the_mode_that_is_set(folder):
    lone = row(original_caption="Kites fly high. Wonderful. More kites.")
    fixed = load(folder, [lone])["spans"]
    released = load(folder, [lone], structxlip_mode="as_released")["spans"]
    assert (fixed[:, 1] > 0).sum() == (released[:, 1] > 0).sum() + 1


def test_no_edge_map_at_all(folder):
    with pytest.raises(types.UserError, match=r"no row has a .*is there.*tools/make_edges\.py"):
        structure.build(context(folder, [row(edges="edges/gone.png"), row("b.png", None)]))


def test_a_picture_is_no_edge_map(folder):
    # With the edge maps elsewhere, what is left of their path is the path of the picture.
    rows = [row("b.png", "edges/half.png"), row("a.png", "elsewhere/a.png")]
    pictures = lists.read(writing.write(folder, rows), image_root=folder)
    made = dataclasses.replace(context(folder, rows), pictures=pictures)
    with pytest.raises(types.UserError, match=r"'elsewhere/a\.png'.*would both be.*/a\.png"):
        structure.build(made)


def test_what_it_says_of_a_list(folder):
    rows = [
        row(segments=[segment(1, bbox_coordinates=box(0, 0, 9, 9))]),
        row("b.png", None, [segment(1, filename_structure_cropped="edges/one.png")]),
        row("a.png", "edges/gone.png", [segment(1, bbox_coordinates=box(0, 0, 9, 9))]),
        row("b.png", "edges/half.png", [segment(1, bbox_coordinates=box(9, 0, 9, 9))]),
    ]
    assert structure.build(context(folder, rows)).describe() == (
        "structure: 2 of 4 pictures have an edge map, 2 have edge maps of segments"
    )


def test_goes_to_another_process(folder):
    made = structure.build(context(folder, [row(segments=[segment(1)])]))
    there = pickle.loads(pickle.dumps(made))
    np.testing.assert_equal(there(0), made(0))


def test_a_turned_picture_and_its_map(folder):
    # The camera held the 40 x 20 pixels upright; map and box are of the picture as it is seen.
    exif = Image.Exif()
    exif[0x0112] = 6
    drawing.noise(40, 20).save(folder / "a.png", exif=exif)
    bars((20, 40)).save(folder / "edges/a.png")
    best = segment(1, bbox_coordinates=box(5, 0, 10, 40))
    options = images.Options(exif_orientation="apply")
    found = load(folder, [row(segments=[best])], options=options)
    assert np.unique(found["local_edge"][0]).tolist() == [80]
