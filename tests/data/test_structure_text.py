"""What is left of captions, and their phrases, on sentences that people could have written."""

import re

import pytest

from hnclip_jax import types
from hnclip_jax.data import structure, structure_text, structure_words, tokenizer

ALL = tuple(structure_words.LISTS)

COLOURS = {
    "A dark green door and a white wall.": "A door and a wall.",
    "RED KITE flies over GREEN hills": "KITE flies over hills",
    "Redwood trees, an Alfred, a tanned man.": "Redwood trees, an Alfred, a tanned man.",
    "a cream-colored wall, a sky-blue door": "a wall, a door",
    "multi-coloured lamps on a rust colored shelf": "lamps on a shelf",
    "a brightly colored kite in the tree": "a kite in the tree",
    "the reddish-brown, large dog barks": "the large dog barks",
    "A black-and-white dog meets a black and white cat": "A dog meets a cat",
    "The red, white and blue flag waves": "The flag waves",
    "The flag is red, white, and blue, and large.": "The flag is, and large.",
    "a red/blue kite and a green-ish tree": "a kite and a tree",
    "a red-roofed house by an off-white fence": "a roofed house by an fence",
    "a blue\u2011eyed cat and a blue \u2010 eyed dog": "a eyed cat and a \u2010 eyed dog",
    "the car is red, silver birds fly": "the car is, birds fly",
    "a kite (red) and a tree (large, red)": "a kite and a tree (large)",
    "it says \"red\" or 'blue' there on top": "it says there on top",
    "blood-red flowers (blue ones) grow": "flowers (ones) grow",
    "the red's edge, the red\u2019s end": "the edge, the end",
    "The kite is large, red.": "The kite is large.",
    "a large kite, red": "a large kite",
    "It is big, red, and round. Blue, it flies.": "It is big, and round. it flies.",
    "Blue, a kite flies; green. It lands": "a kite flies. It lands",
    " the  kite\nis  large... :) ,, no ": " the  kite\nis  large... :) ,, no ",
    "a navy   blue\nkite lands here": "a kite lands here",
    "light falls on a light green wall in deep water": "light falls on a wall in deep water",
    "hot soup, cream and a rose on the brick wall": "hot soup, cream and a rose on the brick wall",
}


@pytest.mark.parametrize("text", COLOURS, ids=lambda text: text[:30])
def test_colours_go(text):
    assert structure_text.without_looks(text, ["colours"]) == COLOURS[text]


@pytest.mark.parametrize(
    "text",
    [
        "She looks down at a glass of fine wine and felt happy.",
        "A fly sits on paper, the fur is soft, bamboo and straw grow.",
        "He spotted a hard rock and a lace on the canvas.",
        "A bee, two ants and a butterfly visit.",
        "It is left of, above and between them, tall, round and thin.",
    ],
)
def test_what_names_things_places_and_deeds_stays(text):
    assert structure_text.without_looks(text, ALL) == text


def test_lists_are_switched_one_by_one():
    text = "a shiny red wooden beetle, ferruginous, sits"
    expected = {
        "colours": "a shiny wooden beetle, ferruginous, sits",
        "materials": "a shiny red beetle, ferruginous, sits",
        "textures": "a red wooden beetle, ferruginous, sits",
        "insects": "a shiny red wooden beetle, sits",
    }
    for name, left in expected.items():
        assert structure_text.without_looks(text, [name]) == left
    assert structure_text.without_looks(text, []) == text
    assert structure_text.without_looks(text, ALL) == "a beetle, sits"
    assert structure_text.without_looks(text, ALL[::-1]) == "a beetle, sits"


@pytest.mark.parametrize("names", [("short", "long"), ("long", "short")], ids=str)
def test_longest_first_over_all_lists(monkeypatch, names):
    # Either list alone, whichever goes first, would leave "green".
    lists = {"short": ("dark", "dusty"), "long": ("dark green", "red")}
    monkeypatch.setattr(structure_words, "LISTS", lists)
    structure_text._pattern.cache_clear()
    assert structure_text.without_looks("a dark green kite flies", names) == "a kite flies"
    assert structure_text.without_looks("a dark kite flies", names) == "a kite flies"
    structure_text._pattern.cache_clear()


def test_words_of_several_words():
    text = "a copper red lid on the stainless steel sink"
    assert structure_text.without_looks(text, ["materials", "colours"]) == "a lid on the sink"
    text = "a tie dyed shirt, a brushed metal door, dyed hair"
    assert structure_text.without_looks(text, ["textures"]) == "a shirt, a door, dyed hair"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Red.", "Red."),
        ("The kite is red.", "The kite is red."),
        ("  A  red kite of the ", "  A  red kite of the "),
        ("A red kite flies.", "A kite flies."),
        ("", ""),
        ("red, blue and green", "red, blue and green"),
    ],
)
def test_two_words_of_content_are_left_or_all(text, left):
    assert structure_text.without_looks(text, ["colours"]) == left


@pytest.mark.parametrize("name", ALL)
def test_every_word_goes_whole(name):
    for word in structure_words.LISTS[name]:
        for form in (word, word.upper(), word.replace(" ", "-"), word.replace(" ", "  ")):
            text = f"the {form} kite stands there"
            left = structure_text.without_looks(text, [name])
            assert left == "the kite stands there", form


def test_the_table_is_tidy():
    for words in (*structure_words.LISTS.values(), structure_words.SHADES, structure_words.THINGS):
        assert len(set(words)) == len(words) > 15
        assert all(re.fullmatch("[a-z]+( [a-z]+)*", word) for word in words)
    assert not set(structure_words.SHADES) & set(structure_words.LISTS["colours"])


def test_an_unknown_list():
    with pytest.raises(types.UserError, match="unknown list of words 'colors'; did you mean"):
        structure_text.without_looks("a red kite", ["colors"])
    with pytest.raises(types.UserError, match="'silk'"):
        structure_text.check_lists(["colours", "silk"])


def phrases(text, **options):
    return [text[start:stop] for start, stop in structure_text.phrases(text, **options)]


def clause(words, start=0):
    return " ".join(f"w{number}" for number in range(start, start + words))


@pytest.mark.parametrize(
    ("words", "window"),
    [(2, 2), (4, 2), (5, 3), (10, 3), (11, 4), (20, 4), (21, 5), (40, 5), (41, 6), (60, 6)],
)
def test_windows_by_the_length_of_a_clause(words, window):
    text = clause(words)
    numbers = range(words - window + 1)
    assert phrases(text) == [clause(window, start) for start in numbers]


def test_clauses_are_split_at_five_signs_only():
    text = "a b. c d, e f; g h! i j? k: l (m) n-o - p'q"
    assert phrases(text)[:5] == ["a b", "c d", "e f", "g h", "i j"]
    assert phrases(text)[5:] == ["k: l (m", "l (m) n", "m) n-o", "n-o - p", "o - p'q"]


def test_a_clause_of_one_word():
    text = "Kites, red. no more; yes!"
    assert phrases(text) == ["Kites", "red", "no more", "yes"]
    assert phrases(text, lone_words=False) == ["no more"]


def test_no_more_than_64_and_the_first():
    text = clause(61) + ". " + clause(10, start=100) + ". lone"
    found = phrases(text)
    assert len(found) == structure_text.MAX_PHRASES == 64
    assert found[55:] == [clause(6, 55), *(clause(3, start) for start in range(100, 108))]
    assert len(phrases(clause(100))) == 64


@pytest.mark.parametrize("text", ["", "  ", "... !?", ".", "\n"])
def test_no_words_no_phrases(text):
    assert phrases(text) == []


def spans(text, context_length, mode):
    found = structure.phrase_spans(tokenizer.default(), text, context_length, mode).tolist()
    return [pair for pair in found if pair != [0, 0]]


def test_tokens_of_phrases_in_both_modes():
    pytest.importorskip("instant_clip_tokenizer", reason="no wheel for this Python")
    text = "one two three. lone. four five"  # 3 words, a stop, 1, a stop, 2: tokens 1 to 8
    assert spans(text, 32, "fixed") == [[1, 3], [2, 4], [5, 6], [7, 9]]
    assert spans(text, 32, "as_released") == [[1, 3], [2, 4], [7, 9]]
    # Of 9 positions, the last one is left to the end token; of 10, position 8 holds a word.
    assert spans(text, 10, "fixed")[-1] == [7, 9]
    assert spans(text, 9, "fixed")[-1] == [5, 6]
    assert spans(text, 9, "as_released")[-1] == [7, 9]
    assert spans(text, 8, "as_released")[-1] == [2, 4]
    assert spans("...", 8, "fixed") == []
