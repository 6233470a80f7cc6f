"""Where the tokens of a caption stand in its text, and which tokens a part of the text becomes.

The tokenizer mends a caption before it cuts it (ftfy, HTML entities, lower case), so token and text
do not meet character by character. Here every token knows the characters it was made from. What
is mended as one, such as an entity, belongs together and is never cut.
"""

import functools
import itertools
import re
from collections.abc import Iterable, Sequence

import numpy as np

from hnclip_jax import types
from hnclip_jax.data import tokenizer

_WORDS_AND_BLANKS = re.compile(r"\s+|\S+")


def token_spans(
    tokenize: tokenizer.Tokenizer,
    text: str,
    spans: Sequence[tuple[int, int]],
    context_length: int,
) -> np.ndarray:
    """Returns which tokens parts of a caption become.

    A token belongs to a part if it is made from at least one of its characters. So a border inside
    of a token takes the token in, and parts that meet there share it.

    Args:
      tokenize: makes the tokens.
      text: the caption, as the tokenizer gets it.
      spans: n pairs (start, stop) of characters of `text`.
      context_length: S. Positions 1 to S - 2 hold words, as 0 is the begin token and the last one
        is left to the end token.

    Returns:
      [n, 2] int32 (start, stop) positions in the row of tokens. A span that runs over the context
      is cut; stop = start where nothing is left: behind the context, blanks only, or no characters.

    Raises:
      types.UserError: for a part that does not lie in the text.
    """
    borders = np.array(spans, np.int64).reshape(-1, 2)
    outside = (borders[:, 0] < 0) | (borders[:, 1] < borders[:, 0]) | (borders[:, 1] > len(text))
    if outside.any():
        start, stop = borders[outside][0]
        raise types.UserError(
            f"characters {start} to {stop} are no part of a caption of {len(text)} characters"
        )
    made_from = token_characters(tokenize, text)
    # Both columns rise, so the tokens that touch a part are neighbours.
    first = np.searchsorted(made_from[:, 1], borders[:, 0], side="right")
    last = np.searchsorted(made_from[:, 0], borders[:, 1], side="left")
    last = np.where(borders[:, 0] < borders[:, 1], np.maximum(first, last), first)
    return np.minimum(np.stack([first, last], axis=1) + 1, context_length - 1).astype(np.int32)


def token_characters(tokenize: tokenizer.Tokenizer, text: str) -> np.ndarray:
    """Returns [T, 2] int64: the characters (start, stop) that each of the T words' tokens is from.

    T is the length of `tokenize.encode(text)`: begin and end are not counted, nothing is cut off.
    Tokens overlap where a character takes several, or several are mended as one. An empty range
    stands where a token is made from nothing.
    """
    mended, made_from = _mend(text)
    lower = mended.lower()
    if len(lower) != len(mended):  # A capital I with a dot becomes two characters.
        made_from = np.repeat(made_from, [len(char.lower()) for char in mended], axis=0)
    # No word holds blanks, so it is the same whether the text is first cut there.
    found = [
        (word.start() + start, word.start() + stop - 1)
        for word in tokenizer.word_pattern().finditer(lower)
        for start, stop in _pieces(tokenize, word.group())
    ]
    ends = np.array(found, np.int64).reshape(-1, 2)
    return np.stack([made_from[ends[:, 0], 0], made_from[ends[:, 1], 1]], axis=1)


def _pieces(tokenize: tokenizer.Tokenizer, word: str) -> list[tuple[int, int]]:
    """Returns the characters (start, stop) of a word that each of its tokens holds bytes of."""
    ids = tokenize.word_ids(word)
    if len(ids) == 1:
        return [(0, len(word))]
    lengths = _byte_lengths(tokenize.vocab_path)
    ends = list(itertools.accumulate(lengths[token] for token in ids))
    char_of_byte = [place for place, char in enumerate(word) for _ in char.encode()]
    return [
        (char_of_byte[start], char_of_byte[stop - 1] + 1)
        for start, stop in zip([0, *ends[:-1]], ends, strict=True)
    ]


@functools.cache
def _byte_lengths(vocab_path: str | None) -> tuple[int, ...]:
    """Returns how many bytes each id stands for; in the vocabulary a byte is one letter."""
    symbols = tokenizer.vocabulary(vocab_path).symbols
    return tuple(len(symbol.removesuffix("</w>")) for symbol in symbols)


def _mend(text: str) -> tuple[str, np.ndarray]:
    """Returns the mended text, and [its length, 2] int64 characters each of its own is from."""
    whole = tokenizer.mend(text)
    if whole == text:
        places = np.arange(len(text))
        return text, np.stack([places, places + 1], axis=1)
    words = [(word, _clean_word(word)) for word in _WORDS_AND_BLANKS.findall(text)]
    # Broken encodings can reach over blanks; then words have to be found that do mend alone.
    if "".join(mended for _, mended in words) != whole:
        words = _cut(text, itertools.accumulate(len(word) for word, _ in words))
    parts = [
        part
        for word, mended in words
        for part in (_atoms(word) if _clean_word(word) == mended else [(word, mended)])
    ]
    borders = np.cumsum([0, *(len(part) for part, _ in parts)])
    made_from = np.stack([borders[:-1], borders[1:]], axis=1)
    return whole, np.repeat(made_from, [len(mended) for _, mended in parts], axis=0)


@functools.lru_cache(maxsize=2**14)
def _atoms(word: str) -> list[tuple[str, str]]:
    """Returns the smallest parts of a text that mend alone as they do together, and the mended."""
    if _clean_word(word) == word:
        return [(char, char) for char in word]
    return _cut(word, range(1, len(word) + 1))


def _cut(text: str, places: Iterable[int]) -> list[tuple[str, str]]:
    """Returns the parts of a text and what each is mended to; both join to the whole.

    Args:
      text: to cut.
      places: where it may be cut, rising; the last one is its end. It is cut where both sides mend
        as they do together.
    """
    whole, start, before = tokenizer.mend(text), 0, 0
    parts = []
    for place in places:
        left = tokenizer.mend(text[:place])
        if len(left) >= before and left + tokenizer.mend(text[place:]) == whole:
            parts.append((text[start:place], whole[before : len(left)]))
            start, before = place, len(left)
    return parts


# Captions repeat their words, and mending one takes as long as cutting a sentence into tokens.
_clean_word = functools.lru_cache(maxsize=2**14)(tokenizer.mend)
