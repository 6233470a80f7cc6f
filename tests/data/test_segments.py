"""Segments: what a list says of them, and the words of a caption that are their sentence."""

import math

import numpy as np
import pytest

from hnclip_jax.data import regions, segments, tokenizer

BOX = {"x1": 10, "y1": 22, "x2": 310, "y2": 260, "width": 300, "height": 238}
GOAL = {
    "filename": "segments/7.jpg_results/7_max_1.png",
    "caption": "It hangs in a tree",
    "similarity_score": 24.7,
    "bbox_coordinates": BOX,
}


def test_a_segment_of_goals_list():
    (found,) = segments.parse([GOAL])
    assert found == segments.Segment(
        "It hangs in a tree", 24.7, GOAL["filename"], regions.Box(10, 22, 310, 260), (300, 238)
    )


def test_a_segment_needs_a_sentence_and_a_score_only():
    bare = {"caption": " A kite\n", "similarity_score": -3}
    assert segments.parse([bare]) == [segments.Segment("A kite", -3, "", None, (0, 0))]
    assert segments.parse([]) == segments.parse(None) == []


@pytest.mark.parametrize(
    "change",
    [
        None,
        {},
        {**BOX, "x2": 10},
        {**BOX, "x2": 9.5},
        {**BOX, "y1": 300},
    ],
    ids=["null", "empty", "no width", "negative width", "negative height"],
)
def test_boxes_without_area_are_no_boxes(change):
    (found,) = segments.parse([{**GOAL, "bbox_coordinates": change}])
    assert found.box is None
    assert found.caption == "It hangs in a tree"
    without = {key: value for key, value in GOAL.items() if key != "bbox_coordinates"}
    assert segments.parse([without])[0].box is None


def test_the_frame_of_a_box_may_be_absent():
    box = {key: BOX[key] for key in ("x1", "y1", "x2", "y2")}
    (found,) = segments.parse([{**GOAL, "bbox_coordinates": box}])
    assert (found.box, found.frame) == (regions.Box(10, 22, 310, 260), (0, 0))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"caption": "c"}, "it is {'caption': 'c'} and no list"),
        ("parts/1.png", "it is 'parts/1.png' and no list"),
        ([GOAL, None], "a segment is None and no object"),
        ([{**GOAL, "caption": " "}], "its caption is ' '"),
        ([{**GOAL, "caption": "\ud83d"}], "its caption is '\\ud83d'"),
        ([{**GOAL, "caption": ["a"]}], "its caption is ['a']"),
        ([{**GOAL, "similarity_score": "24.7"}], "its similarity_score is '24.7'"),
        ([{**GOAL, "similarity_score": math.nan}], "its similarity_score is nan"),
        ([{**GOAL, "similarity_score": True}], "its similarity_score is True"),
        ([{"caption": "c"}], "its similarity_score is None"),
        ([{**GOAL, "filename": 7}], "its filename is 7"),
        ([{**GOAL, "bbox_coordinates": [1, 2, 3, 4]}], "its bbox_coordinates are [1, 2, 3, 4]"),
        ([{**GOAL, "bbox_coordinates": {**BOX, "x1": None}}], "its bbox_coordinates are {'x1': No"),
        ([{**GOAL, "bbox_coordinates": {"x1": 1}}], "its bbox_coordinates are {'x1': 1}"),
        ([{**GOAL, "bbox_coordinates": {**BOX, "width": "3"}}], "its bbox_coordinates are {"),
    ],
)
def test_what_is_no_segment(values, reason):
    with pytest.raises(ValueError) as error:
        segments.parse(values)
    assert str(error.value).startswith(reason)
    assert len(str(error.value)) < 100


def test_the_best_segment_is_the_first_with_the_highest_score():
    scores = [3.0, -1.0, 7.5, 7.5]
    made = [segments.Segment(f"{n}", score) for n, score in enumerate(scores)]
    assert segments.best(made).caption == "2"
    assert segments.best([]) is None


CAPTION = "A red kite. It hangs in a tree, 3.5 m high.  A dog\nwatches it."


def _words(mask, caption, tokenize):
    """Returns the ids that a mask shows in the tokens of a caption."""
    return tokenize(caption, len(mask)).ids[0][mask].tolist()


@pytest.mark.parametrize(
    "sentence",
    ["A red kite", "It hangs in a tree, 3.5 m high", "A dog watches it", "A dog\nwatches it"],
)
@pytest.mark.parametrize("length", [248, 60])
def test_the_words_of_a_sentence_are_its_tokens(sentence, length):
    tokenize = tokenizer.default()
    mask = segments.word_mask(tokenize, CAPTION, sentence, length)
    assert mask.shape == (length,)
    assert mask.dtype == bool
    assert _words(mask, CAPTION, tokenize) == tokenize.encode(sentence)


def test_the_words_of_a_sentence_that_is_cut_off():
    tokenize = tokenizer.default()
    before = len(tokenize.encode("A red kite. "))
    whole = segments.word_mask(tokenize, CAPTION, "It hangs in a tree", 248)
    assert np.flatnonzero(whole).tolist() == [before + 1 + n for n in range(5)]
    # Begin, the words before, two words of the sentence, end.
    cut = segments.word_mask(tokenize, CAPTION, "It hangs in a tree", before + 4)
    assert np.flatnonzero(cut).tolist() == [before + 1, before + 2]
    assert not segments.word_mask(tokenize, CAPTION, "It hangs in a tree", before + 2).any()


def test_a_sentence_that_is_mended_and_one_beside_it():
    tokenize = tokenizer.default()
    caption = "The “sign” says caf\u00e9 &amp; bar. It\u2019s green."
    for sentence in ("The “sign” says café &amp; bar", "It\u2019s green"):
        mask = segments.word_mask(tokenize, caption, sentence, 77)
        assert _words(mask, caption, tokenize) == tokenize.encode(sentence)


def test_a_sentence_that_is_not_there():
    tokenize = tokenizer.default()
    for sentence in ("A blue kite", "red kit", "kites", ""):
        assert segments.find(CAPTION, sentence) is None
        assert not segments.word_mask(tokenize, CAPTION, sentence, 77).any()


def test_parts_of_words_do_not_count():
    caption = "A category. A cat. (A cat)"
    assert segments.find(caption, "A cat") == (12, 17)
    assert segments.find(caption, "(A cat)") == (19, 26)
    assert segments.find("A wildcat. cat", "cat") == (11, 14)
    assert segments.find("a+b", "+") == (1, 2)


def _as_released(tokenize, caption, sentence, length):
    """Returns the released rule as the positions that it takes."""
    caption, sentence = " ".join(caption.split()), " ".join(sentence.split())
    parts = [part.strip() for part in caption.split(".")]
    parts = [part for part in parts if part]
    before = caption[: caption.find(sentence)]
    for number, part in enumerate(parts):
        if part == sentence:
            before = ". ".join(parts[:number]) + (". " if number else "")
            break
    start = len([0, *tokenize.encode(before), 0])
    count = len(tokenize.encode(sentence))
    if start >= length:
        stop = length - 1
        start = max(1, stop - count)
    else:
        stop = min(start + count, length - 1)
    positions = list(range(start, stop))
    return positions or list(range(1, min(1 + count, length)))


@pytest.mark.parametrize(
    "sentence", ["A red kite", "A dog watches it", "hangs in a tree, 3", "It hangs", "dog"]
)
@pytest.mark.parametrize("length", range(5, 34))
def test_the_words_as_released(sentence, length):
    tokenize = tokenizer.default()
    caption = f"{CAPTION} It hangs. dog."
    mask = segments.word_mask_as_released(tokenize, caption, sentence, length)
    assert np.flatnonzero(mask).tolist() == _as_released(tokenize, caption, sentence, length)


def test_the_released_words_begin_one_too_late():
    tokenize = tokenizer.default()
    caption, sentence = "A red kite. It hangs in a tree. Wind blows.", "It hangs in a tree"
    right = np.flatnonzero(segments.word_mask(tokenize, caption, sentence, 77))
    wrong = segments.word_mask_as_released(tokenize, caption, sentence, 77)
    assert np.flatnonzero(wrong).tolist() == (right + 1).tolist()
    # The last of them is the full stop.
    assert _words(wrong, caption, tokenize)[-1] == tokenize.encode(".")[0]
    assert not segments.word_mask_as_released(tokenize, caption, "A blue kite", 77).any()
