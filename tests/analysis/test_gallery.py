"""The page of pictures: everything is on it, in its place, and can be told without colours."""

import itertools

import numpy as np
import pytest
from matplotlib import colors

from hnclip_jax.analysis import gallery

PIXELS = np.zeros((8, 8, 3), np.uint8)
CAPTION = "a red kite \U0001f600 over $the$ hills and " + "very " * 400 + "far away"


def cell(name, **options):
    caption = options.pop("caption", "")
    value = PIXELS + np.uint8(sum(map(ord, name)) % 255)
    return gallery.Cell(
        f"{name}\ncosine 0.5", options.pop("picture", value), caption=caption, **options
    )


@pytest.fixture
def blocks():
    """Two blocks, of two labelled rows and of one; the longest has three cells."""
    marked = [(2, 5), (len(CAPTION) - 4, len(CAPTION))]
    long = cell("long", caption=CAPTION, marked=marked)
    return [
        gallery.Block(
            gallery.Cell("first: asks", PIXELS, True, CAPTION),
            [
                (
                    "A: one\nrank 2",
                    [cell("a", caption=CAPTION), cell("b", true=True, caption=CAPTION), long],
                ),
                ("B: two\nrank 1", [cell("c", true=True), cell("d")]),
            ],
        ),
        gallery.Block(gallery.Cell("second: asks", None, False, "short"), [("A", [cell("e")])]),
    ]


def draw(blocks):
    drawn = gallery.draw("headline \U0001f600", blocks)
    drawn.set_dpi(150)
    drawn.canvas.draw()
    (axes,) = drawn.axes
    return drawn, axes, [found.get_text() for found in axes.texts]


def test_every_picture_is_there_once_and_square(blocks):
    _, axes, _ = draw(blocks)
    pictures = [one.picture for block in blocks for one in _cells(block)]
    expected = [picture for picture in pictures if picture is not None]
    assert len(axes.images) == len(expected) == 7
    for image, pixels in zip(axes.images, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), pixels)
        left, right, bottom, top = image.get_extent()
        assert right - left == pytest.approx(bottom - top)
    assert axes.get_aspect() == 1


def _cells(block):
    return [block.heading, *itertools.chain.from_iterable(cells for _, cells in block.rows)]


def test_pictures_stand_in_rows_and_below_each_other(blocks):
    _, axes, _ = draw(blocks)
    corners = [(image.get_extent()[0], image.get_extent()[3]) for image in axes.images]
    head, a, b, long, c, d, e = corners
    assert a[1] == b[1] == long[1]
    assert c[1] == d[1]
    assert head[1] < a[1] < c[1] < e[1]
    assert head[0] < a[0] == c[0] == e[0] < b[0] == d[0] < long[0]


def test_all_that_is_drawn_is_on_the_page_and_no_text_over_another(blocks):
    drawn, axes, _ = draw(blocks)
    page = drawn.bbox
    boxes = []
    for artist in (*axes.texts, *axes.images):
        box = artist.get_window_extent()
        assert page.x0 <= box.x0, artist
        assert box.x1 <= page.x1, artist
        assert page.y0 <= box.y0, artist
        assert box.y1 <= page.y1, artist
        boxes.append((artist, box.padded(-2)))
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        # The two faces of one line lie over each other, and the word over its picture.
        same_line = getattr(one, "get_position", int)() == getattr(other, "get_position", int)()
        told = any(getattr(artist, "get_text", str)() == "TRUE" for artist in (one, other))
        assert same_line or told or not a.overlaps(b), (one, other)


def test_right_answers_have_a_thick_frame_and_a_word(blocks):
    _, axes, texts = draw(blocks)
    thick = [line for line in axes.lines if line.get_linewidth() > 3]
    assert texts.count("TRUE") == len(thick) == 3
    expected = {0, 2, 4}  # heading, b, c
    corners = {(line.get_xdata()[0], line.get_ydata()[0]) for line in thick}
    images = [(image.get_extent()[0], image.get_extent()[3]) for image in axes.images]
    assert {number for number, corner in enumerate(images) if corner in corners} == expected
    words = {found.get_position() for found in axes.texts if found.get_text() == "TRUE"}
    assert words == corners
    assert {colors.to_hex(line.get_color()) for line in thick} == {gallery.TRUE}


def test_the_legend_says_what_marks_mean_where_there_are_some(blocks):
    _, _, texts = draw(blocks)
    told = "\n".join(texts)
    assert "content words that both captions have" in told
    assert "thick green frame and the word TRUE: a right answer" in told
    plain = [gallery.Block(gallery.Cell("asks", PIXELS, False, "short"), [("", [cell("a")])])]
    _, _, texts = draw(plain)
    assert "content words" not in "\n".join(texts)
    assert "TRUE" not in "\n".join(texts)


def test_marked_words_of_a_cut_caption_are_bold(blocks):
    _, axes, _ = draw(blocks)
    bold = [found for found in axes.texts if found.get_weight() == "bold"]
    words = [word for found in bold for word in found.get_text().split()]
    assert words.count("red") == words.count("away") == 1  # Only one of the cells has marks.
    assert "\N{HORIZONTAL ELLIPSIS}" in "".join(found.get_text() for found in axes.texts)


def test_titles_labels_and_headline_are_there(blocks):
    _, _, texts = draw(blocks)
    told = [text.strip() for text in texts]
    for expected in ("headline \N{WHITE SQUARE}", "A: one", "rank 2", "B: two", "first: asks"):
        assert expected in told
    assert told.count("cosine 0.5") == 6


def test_a_picture_that_cannot_be_read_is_a_box_that_says_so(blocks):
    _, axes, texts = draw(blocks)
    assert texts.count("picture cannot\nbe read") == 1
    (note,) = (found for found in axes.texts if found.get_text().startswith("picture cannot"))
    x, y = note.get_position()
    boxes = [
        (line.get_xdata(), line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 5
    ]
    assert any(min(a) < x < max(a) and min(b) < y < max(b) for a, b in boxes)


def test_without_labels_cells_begin_at_the_left(blocks):
    rows = [("", cells) for _, cells in blocks[0].rows]
    wide, _, _ = draw(blocks)
    narrow, axes, _ = draw([gallery.Block(blocks[0].heading, rows)])
    assert narrow.get_size_inches()[0] < wide.get_size_inches()[0]
    assert axes.images[0].get_extent()[0] == axes.images[1].get_extent()[0]


def test_a_heading_alone_is_a_page():
    drawn, axes, _ = draw([gallery.Block(gallery.Cell("asks", PIXELS, False, "x"), [])])
    assert len(axes.images) == 1
    assert drawn.get_size_inches()[0] == 7
