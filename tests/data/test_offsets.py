"""Tokens and the characters they are from, against the tokenizer on the two halves of a text."""

import random

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.data import offsets, tokenizer

pytest.importorskip(
    "instant_clip_tokenizer", reason="no wheel for this Python, so no vocabulary to test with"
)

TEXTS = 150
LONG = 10_000

PIECES = """
it's I'M they'LL we've You're he'd don't x'y '' 'em a_b __x__ 4077 3.14 1,000 !? ... ((:)) <b>
&amp; &amp;lt; &#39; &nbsp; &#x1F600; &am &amp p; schÃ¶n Ã© â€œhiâ€\x9d ﬁne … “so” — 😀 👍🏽 🇫🇮
👩\u200d🚀 中文字 日本 한국 العربية हिन्दी ไทย עברית Ελληνικά Русский ΣΑΣ İ ß ½ Ⅷ ² ٣ ④ \x00 \x1b[0m
\x7f \u200b \ufeff e\u0301 n\u0303 \u0345 red kite bridge umbrella photograph unphotographable s '
"""


def spans(text, *parts, context_length=LONG):
    """Returns the token positions of parts of a text, each written as (start, stop)."""
    found = offsets.token_spans(tokenizer.default(), text, list(parts), context_length)
    assert found.dtype == np.int32
    assert found.shape == (len(parts), 2)
    return found.tolist()


def inside(text, part, context_length=LONG):
    """Returns the positions of the tokens of a part that occurs once."""
    assert text.count(part) == 1
    start = text.index(part)
    return spans(text, (start, start + len(part)), context_length=context_length)[0]


def random_text(rng):
    blanks = [" ", "", "\n", "  ", "\u3000", "\u00a0", "\r\n"]
    pieces = [*PIECES.split(), "Ã\xa0 la"]
    return "".join(rng.choice(pieces) + rng.choice(blanks) for _ in range(rng.randint(1, 12)))


def test_known_positions():
    text = "A red kite, umbrellaless."
    symbols = tokenizer.vocabulary().symbols
    assert [symbols[token] for token in tokenizer.default().encode(text)] == [
        "a</w>", "red</w>", "kite</w>", ",</w>", "umb", "rell", "ale", "ss</w>", ".</w>",
    ]  # fmt: skip
    assert inside(text, "A") == [1, 2]
    assert inside(text, "red kite") == [2, 4]
    assert inside(text, "umbrellaless") == [5, 9]
    assert inside(text, ".") == [9, 10]
    assert spans(text, (0, len(text))) == [[1, 10]]


@pytest.mark.parametrize("seed", range(3))
def test_borders_where_both_halves_encode_alone(seed):
    rng, encode = random.Random(seed), tokenizer.default().encode
    checked = coarse = 0
    for _ in range(TEXTS // 3):
        text = random_text(rng)
        ids = encode(text)
        for border in range(1, len(text)):
            left, right = encode(text[:border]), encode(text[border:])
            if left + right != ids:
                continue
            middle, end = 1 + len(left), 1 + len(ids)
            (start, before), (behind, stop) = spans(text, (0, border), (border, len(text)))
            shown = ascii(text[:border]), ascii(text[border:])
            assert (start, stop) == (1, end), shown
            assert before >= middle >= behind, shown
            checked += 1
            coarse += before > middle or behind < middle
    # What is next to a broken encoding can mend alone and still be mended together with it.
    assert checked > 500
    assert coarse <= checked / 200


@pytest.mark.parametrize("seed", range(3))
def test_every_token_is_from_somewhere_in_order(seed):
    rng, words = random.Random(100 + seed), tokenizer.default()
    for _ in range(TEXTS // 3):
        text = random_text(rng)
        found = offsets.token_characters(words, text)
        assert len(found) == len(words.encode(text)), ascii(text)
        assert (found[1:] >= found[:-1]).all(), ascii(text)
        assert (found[:, 0] < found[:, 1]).all(), ascii(text)
        assert not len(found) or (found[0, 0] >= 0 and found[-1, 1] <= len(text))


@pytest.mark.parametrize(
    ("text", "part", "tokens"),
    [
        ("it's here", "'s", [2, 3]),
        ("it\u2019s here", "\u2019s", [2, 3]),
        ("it's here", "it'", [1, 3]),
        ("in 1987 it", "87", [4, 6]),
        ("caf\u00e9 red", "red", [2, 3]),
        ("cafe\u0301 red", "red", [2, 3]),
        ("a &amp; b", "amp", [2, 3]),
        ("a &amp;lt; b", ";lt", [2, 3]),
        ("x &lt;b&gt; y", "&gt;", [4, 5]),
        ("schÃ¶n red", "Ã", [2, 3]),
        ("schÃ¶n red", "¶n", [2, 4]),
        ("Ã\xa0 la carte", "carte", [3, 4]),
        ("\u201cso\u201d red", "so", [2, 3]),
        ("\ufb01ne red", "ne", [1, 2]),
        ("a\x00b c", "c", [2, 3]),
        ("\u0130x red", "\u0130", [1, 3]),
        ("\u0130x red", "x", [3, 4]),
        ("red  \n\t kite", "kite", [2, 3]),
        ("red  \n\t kite", "  \n\t ", [2, 2]),
    ],
    ids=ascii,
)
def test_mended_text(text, part, tokens):
    assert inside(text, part) == tokens


def test_an_emoji_of_several_tokens_is_whole():
    text = "a \U0001f6f8 \U0001f600 b"
    saucer = len(tokenizer.default().encode("\U0001f6f8"))
    assert saucer > 1
    assert inside(text, "\U0001f6f8") == [2, 2 + saucer]
    assert inside(text, "b")[1] == 1 + len(tokenizer.default().encode(text))


def test_what_is_mended_by_its_neighbours_is_shared():
    # Alone, what stands behind "so" would be taken for a broken encoding.
    text = "a \u201cso\u201d&eacute; b"
    start, stop = inside(text, "so")
    assert start <= 3
    assert stop >= 4
    assert inside(text, "b")[1] == 1 + len(tokenizer.default().encode(text))


def test_border_inside_of_a_word():
    text = "unphotographable kite"  # un photogra pha ble kite
    assert spans(text, (0, 2), (2, 16)) == [[1, 2], [2, 5]]
    # One character more than the border of the tokens: both hold it.
    assert spans(text, (0, 3), (3, 16)) == [[1, 3], [2, 5]]
    assert spans(text, (11, 12), (9, 11), (13, 18)) == [[3, 4], [2, 4], [4, 6]]


def test_letters_of_other_scripts_are_cut_by_character():
    text = "中文字日本"
    ids = tokenizer.default().encode(text)
    found = offsets.token_characters(tokenizer.default(), text)
    assert len(found) == len(ids) > 2
    assert spans(text, (3, 5))[0][0] > spans(text, (0, 1))[0][0]
    assert spans(text, (3, 5))[0][1] == len(ids) + 1


def test_the_context_cuts():
    text = "one two three four five"
    words = [(0, 3), (4, 7), (8, 13), (14, 18), (19, 23), (4, 18), (0, 23)]
    # Of six positions, 1 to 4 hold words and 5 the end token.
    assert spans(text, *words, context_length=6) == [
        [1, 2], [2, 3], [3, 4], [4, 5], [5, 5], [2, 5], [1, 5],
    ]  # fmt: skip
    assert spans(text, *words, context_length=3)[:3] == [[1, 2], [2, 2], [2, 2]]


def test_no_characters_and_no_parts():
    assert spans("red kite", (2, 2), (3, 3), (0, 0), (8, 8)) == [[1, 1], [2, 2], [1, 1], [3, 3]]
    assert spans("", (0, 0)) == [[1, 1]]
    assert spans("red kite") == []
    assert spans("\x00 \x1b[0m", (0, 6)) == [[1, 1]]


@pytest.mark.parametrize("part", [(-1, 2), (3, 2), (0, 9)], ids=str)
def test_a_part_outside_of_the_text(part):
    with pytest.raises(types.UserError, match=f"characters {part[0]} to {part[1]} .* 8 characters"):
        spans("red kite", (0, 1), part)


def test_an_own_vocabulary(tmp_path):
    path = tmp_path / "words.txt"
    symbols = tokenizer.vocabulary()
    path.write_text("#version\n" + "\n".join(symbols.merges) + "\n", encoding="utf-8")
    own = tokenizer.Tokenizer(str(path))
    text = "unphotographable kites"
    np.testing.assert_array_equal(
        offsets.token_characters(own, text),
        offsets.token_characters(tokenizer.default(), text),
    )
