"""Captions as lines: every character in its place, marked words in sight, nothing that warns."""

import itertools

import numpy as np
import pytest
from matplotlib import font_manager

from hnclip_jax.analysis import gallery_text, page


def both(line):
    """The line as it is read: each place holds a character of one of the two parts."""
    assert len(line.plain) == len(line.marked)
    assert all(" " in pair for pair in zip(line.plain, line.marked, strict=True))
    return "".join(max(pair) for pair in zip(line.plain, line.marked, strict=True))


def spans(text, *words):
    return [(text.index(word), text.index(word) + len(word)) for word in words]


LONG = " ".join(f"word{n}" for n in range(200))


def test_a_text_that_fits_is_whole_and_its_marks_are_where_they_were():
    text = "A red kite,  high\nabove\tthe hill"
    laid = gallery_text.lay(text, spans(text, "kite", "hill"), 12, 5)
    assert [both(line).rstrip() for line in laid] == ["A red kite,", "high above", "the hill"]
    assert [line.marked.split() for line in laid] == [["kite"], [], ["hill"]]
    assert laid[0].marked.index("kite") == 6


def test_no_line_is_wider_than_asked_whatever_the_words():
    text = "a " + "x" * 25 + " b"
    laid = gallery_text.lay(text, spans(text, "x" * 25), 10, 9)
    assert [both(line) for line in laid] == ["a", "x" * 10, "x" * 10, "xxxxx b"]
    assert "".join(line.marked.strip() for line in laid) == "x" * 25


@pytest.mark.parametrize("width", range(1, 12))
def test_lines_are_as_full_as_they_can_be(width):
    text = "abc def g hijkl m no pqrstu"
    laid = [both(line) for line in gallery_text.lay(text, [], width, 99)]
    assert max(map(len, laid)) <= width
    assert "".join(laid).replace(" ", "") == text.replace(" ", "")
    for line, following in itertools.pairwise(laid):
        assert len(line) + 1 + len(following.split()[0]) > width


def test_without_marks_the_end_is_cut():
    laid = gallery_text.lay(LONG, [], 30, 3)
    assert len(laid) == 3
    assert max(len(both(line)) for line in laid) <= 30
    assert both(laid[0]).startswith("word0 word1 ")
    assert both(laid[2]).endswith(" …")


def test_marked_words_stay_in_sight_when_a_long_text_is_cut():
    marked = ["word7 ", "word90 ", "word91 ", "word199"]
    laid = gallery_text.lay(LONG, spans(LONG, *(word.strip() for word in marked)), 40, 6)
    assert len(laid) <= 6
    assert [word for line in laid for word in line.marked.split()] == [w.strip() for w in marked]
    read = " ".join(both(line).strip() for line in laid)
    # The most around them that has room, and one ellipsis for each gap.
    assert read.startswith("… word")
    assert read.count("…") == 3
    near = [word for word in read.split() if word != "…"]
    assert near == sorted(near, key=lambda word: int(word[4:]))
    assert {"word6", "word8", "word89", "word92", "word198"} <= {*near}


def test_the_more_room_the_more_is_shown_around_marks():
    words = [
        len(" ".join(both(line) for line in gallery_text.lay(LONG, spans(LONG, "word90"), 40, n)))
        for n in (1, 2, 3, 99)
    ]
    assert words == sorted(words)
    assert words[0] < words[1]
    assert words[-1] >= len(LONG)


def test_if_even_marked_words_are_too_many_the_end_is_cut():
    laid = gallery_text.lay(LONG, [(0, len(LONG))], 40, 4)
    assert len(laid) == 4
    assert both(laid[-1]).endswith(" …")
    assert laid[0].marked.startswith("word0 word1 ")


def test_what_has_no_width_goes_and_what_the_font_lacks_is_a_square():
    text = "a \U0001f600\ufe0f cafe\u0301 \u200b 漢字 $x$ \ud800 \x07é"
    (line,) = gallery_text.lay(text, spans(text, "cafe"), 60, 1)
    assert both(line) == "a □ cafe □□ $x$ é"
    assert line.marked.split() == ["cafe"]


def test_a_character_that_one_of_the_two_faces_lacks_is_a_square():
    faces = [font_manager.FontProperties(family=gallery_text.FONT, weight=w) for w in (400, 700)]
    fonts = [font_manager.get_font(font_manager.findfont(face)) for face in faces]
    regular, bold = (set(font.get_charmap()) for font in fonts)
    (line,) = gallery_text.lay(chr(min(regular - bold)), [(0, 1)], 9, 1)
    assert line.marked == "□"


@pytest.mark.parametrize("text", ["", "  \n", "\u200b"])
def test_a_text_of_nothing_has_no_characters(text):
    assert "".join(both(line) for line in gallery_text.lay(text, [], 10, 3)) == ""


def test_lines_are_drawn_below_each_other_marked_ones_in_bold_over_their_gaps():
    drawn, axes = page.page(4, 2)
    text = "a red kite above $the$ hill"
    lines = gallery_text.lay(text, spans(text, "red", "hill"), 12, 5)
    end = gallery_text.write(axes, 1, 0.5, lines, 7)
    assert end == pytest.approx(0.5 + len(lines) * gallery_text.step(7))
    bold = [found for found in axes.texts if found.get_weight() == "bold"]
    plain = [found for found in axes.texts if found.get_weight() != "bold"]
    assert [found.get_text().split() for found in bold] == [["red"], ["hill"]]
    assert [found.get_text().split() for found in plain] == [["a", "kite"], ["above", "$the$"]]
    assert {found.get_color() for found in bold} == {gallery_text.MARK}
    assert {found.get_position()[0] for found in axes.texts} == {1}
    heights = [found.get_position()[1] for found in plain]
    assert np.diff(heights) == pytest.approx(gallery_text.step(7))
    assert bold[0].get_position()[1] == heights[0]
    assert not any(found.get_parse_math() for found in axes.texts)
    drawn.canvas.draw()


def test_as_many_characters_fit_as_it_says():
    """Bold and regular ones are equally wide, and a full line ends before its width."""
    drawn, axes = page.page(6, 1)
    drawn.set_dpi(150)
    for size in (5.5, 7, 10):
        count = gallery_text.chars(5, size)
        gallery_text.write(axes, 0, 0, [gallery_text.Line("m" * count, "W" * count)], size)
        plain, bold = (found.get_window_extent().width / 150 for found in axes.texts[-2:])
        assert 4.5 < plain <= 5
        assert bold == pytest.approx(plain, abs=0.02)
