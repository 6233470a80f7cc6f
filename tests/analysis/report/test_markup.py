"""Markup: what a user gave is text wherever it stands."""

import pytest

from hnclip_jax.analysis.report import markup
from tests.analysis.report import reading

HOSTILE = """<script>alert("1")</script> & ' " > </p>"""


def test_text_stays_text_inside_and_in_attributes():
    made = markup.tag("p", HOSTILE, title=HOSTILE)
    node = reading.read(made).one("p")
    assert node.children == [HOSTILE]
    assert node.attributes == {"title": HOSTILE}
    for raw in ("<script", "</p> ", "'", '"1"'):
        assert raw not in made.removesuffix("</p>")


def test_markup_is_not_escaped_again():
    inside = markup.tag("b", "x & y")
    assert markup.tag("p", inside, 3, None, " <") == "<p><b>x &amp; y</b>3 &lt;</p>"
    assert markup.join([inside, "<"], ", ") == "<b>x &amp; y</b>, &lt;"


def test_attributes_by_their_names():
    made = markup.tag("i", class_="a", aria_label="b", viewBox="0 0 1 1", x=None, y=False, z=True)
    assert made == '<i class="a" aria-label="b" viewBox="0 0 1 1" z></i>'
    assert markup.tag("img", src="a.png") == '<img src="a.png">'


@pytest.mark.parametrize("text", ["half \ud83d surrogate", "file\udcff.jpg"])
def test_what_utf8_does_not_have_becomes_a_question_mark(text):
    made = markup.tag("p", text)
    assert "?" in made
    made.encode("utf-8")
