"""Content words: which they are, where they stand, and which two texts share."""

import math

import pytest

from hnclip_jax.analysis import words


def said(text):
    return [word.word for word in words.content(text)]


def test_content_words_are_lower_case_and_without_stop_words_and_punctuation():
    text = "The red Kite, above (a) 2nd hill -- it's RED; isn't it? _x_"
    assert said(text) == ["red", "kite", "above", "2nd", "hill", "red", "isn't", "x"]


def test_words_stand_where_they_say():
    text = "A dog\u2019s T-shirt:\n\tÉtoile, STRASSE"
    found = words.content(text)
    assert [text[word.start : word.end] for word in found] == [
        "dog\u2019s", "shirt", "Étoile", "STRASSE",
    ]  # fmt: skip
    assert [word.word for word in found] == ["dog", "shirt", "étoile", "strasse"]


def test_a_letter_that_grows_in_lower_case_moves_no_span():
    text = "\u0130\u0130 straße tree"
    assert [text[slice(*span)] for span in words.spans(text, {"strasse", "tree"})] == [
        "straße",
        "tree",
    ]


def test_where_things_are_and_what_is_not_there_is_content():
    assert said("left of the tree, behind it no cat, not under two") == [
        "left", "tree", "behind", "no", "cat", "not", "under", "two",
    ]  # fmt: skip


def test_shared_words_are_named_once_in_the_order_of_the_first():
    a, b = "A red kite and a red sail, far away", "Away goes the sail: red."
    assert words.shared(a, b) == ("red", "sail", "away")
    assert words.shared(b, a) == ("away", "sail", "red")
    assert words.share(a, b) == 3 / 5
    assert words.share(b, a) == 3 / 4


@pytest.mark.parametrize("text", ["", "the of and", "...!?", "\U0001f600"])
def test_without_content_words_there_is_nothing_to_share(text):
    assert words.content(text) == []
    assert words.shared(text, "a kite") == words.shared("a kite", text) == ()
    assert math.isnan(words.share(text, "a kite"))
    assert words.share("a kite", text) == 0


def test_spans_are_those_of_all_that_are_wanted():
    text = "kite, Kite; the kites. A hill"
    assert [text[slice(*span)] for span in words.spans(text, {"kite", "hill"})] == [
        "kite", "Kite", "hill",
    ]  # fmt: skip
    assert words.spans(text, set()) == []
