"""Captions for edge maps: words of looks are left out, and clauses are cut into phrases.

The rules are StructXLIP's, arXiv 2602.20089, as its code was released; words and cleaning are our
own, see `structure_words`.
"""

import functools
import re
from collections.abc import Collection, Sequence

from hnclip_jax import types
from hnclip_jax.data import structure_words

MAX_PHRASES = 64
"""Phrases of a caption; later ones are left out."""

_LEAST_CONTENT = 2
_GONE = "\0"  # Stands where something was taken out, until the blanks around it are set right.
_HYPHEN = "[-\u2010\u2011]"
_BETWEEN = f"(?:\\s+|{_HYPHEN})"
_STEMS = f"(?:[^\\W\\d_]+{_HYPHEN})"  # the parts of a hyphenated word before its last one
_LOOK = f"(?:{_HYPHEN}(?:ish|hued|toned|tinted|tinged|like|looking|colou?red)|\\s+colou?red)"
_DETERMINER = "a|an|the|this|that|these|those|its|his|her|their|some|two|three|four|several|many"

# In this order; each is about the place of what was taken out, the rest of the text stays as it is.
_CLEANING = [
    (re.compile(pattern, re.IGNORECASE), by)
    for pattern, by in (
        # Brackets and quotes around nothing.
        (rf"\(\s*{_GONE}\s*\)|\[\s*{_GONE}\s*\]|[\"\u201c]{_GONE}[\"\u201d]", _GONE),
        (rf"(?<!\w)['\u2018]{_GONE}['\u2019]", _GONE),
        # "red, white and blue"; "red/blue"
        (rf"{_GONE}(?:\s*,\s*{_GONE})*\s*,?\s*\b(?:and|or)\s+{_GONE}", _GONE),
        (rf"{_GONE}(?:\s*[/&+]?\s*{_GONE})+", _GONE),
        # "a red, blue, long train"
        (rf"\b({_DETERMINER})\s+{_GONE}(?:\s*,\s*{_GONE})*(?:\s*,(?=\s*\w))?", rf"\1 {_GONE}"),
        # Of two signs that now meet, the stronger one.
        (rf"([,.;:!?(])\s*{_GONE}\s*[,;:]\s*", r"\1 "),
        (rf"[,;:]\s*{_GONE}\s*(?=[.!?)\]]|$)", ""),
        (rf"^\W*{_GONE}[\s,.;:!?]*", ""),
        (rf"\s*{_GONE}\s*(?=[,.;:!?)\]])", ""),
        (rf"([(\[])\s*{_GONE}\s*", r"\1"),
        (rf"\s*{_GONE}\s*", " "),
    )
]

_WORD = re.compile(r"\w+")
_CLAUSE = re.compile(r"[^.,;!?]+")
_WINDOWS = ((4, 2), (10, 3), (20, 4), (40, 5))
_LONGEST_WINDOW = 6


def without_looks(text: str, lists: Sequence[str]) -> str:
    """Returns a caption without the words of some lists, with blanks and punctuation set right.

    Words are whole ones, in upper or lower case; of several that fit at one place the longest goes,
    whichever list it is on. What belongs to a word goes with it: the shade of a colour ("dark
    green"), what is joined by "and" ("red and white"), and a hyphenated word that ends in it or
    says no more than it ("blood-red", "cream-coloured", "metal-like"). Of others their rest stays:
    "red-roofed" becomes "roofed". If fewer than two words of content are left, or none is taken
    out, the caption comes back as it is.

    Args:
      text: the caption.
      lists: names of lists in `structure_words.LISTS`; in any order, none at all too.

    Raises:
      types.UserError: for a list that there is not.
    """
    pattern = _pattern(tuple(lists))
    if pattern is None:
        return text
    left, count = pattern.subn(_GONE, text.replace(_GONE, " "))
    if not count:
        return text
    for place, by in _CLEANING:
        left = place.sub(by, left)
    left = left.strip()
    words = _WORD.findall(left.lower())
    content = sum(word not in structure_words.STOPWORDS for word in words)
    return left if content >= _LEAST_CONTENT else text


def phrases(text: str, lone_words: bool = True) -> list[tuple[int, int]]:
    """Returns the characters (start, stop) of phrases: windows that slide along each clause.

    Clauses are split at . , ; ! ? and a window moves word by word. It is 2 words long in clauses of
    up to 4 words, 3 in those of up to 10, 4 up to 20, 5 up to 40, and else 6.

    Args:
      text: the caption.
      lone_words: whether a clause of one word is a phrase; in the released code it is none.

    Returns:
      At most 64 pairs, in the order of the text.
    """
    found: list[tuple[int, int]] = []
    for clause in _CLAUSE.finditer(text):
        words = [word.span() for word in _WORD.finditer(text, *clause.span())]
        window = _window(len(words))
        if lone_words and len(words) == 1:
            window = 1
        found += [
            (start, stop) for (start, _), (_, stop) in zip(words, words[window - 1 :], strict=False)
        ]
        if len(found) >= MAX_PHRASES:
            break
    return found[:MAX_PHRASES]


def check_lists(lists: Sequence[str]) -> None:
    """Raises types.UserError for a list that there is not."""
    for name in lists:
        if name not in structure_words.LISTS:
            raise types.unknown_name("list of words", name, structure_words.LISTS)


def _window(words: int) -> int:
    return next((window for most, window in _WINDOWS if words <= most), _LONGEST_WINDOW)


@functools.cache
def _pattern(lists: tuple[str, ...]) -> re.Pattern | None:
    """Returns what finds the words of some lists; None for no list."""
    check_lists(lists)
    words = {word for name in lists for word in structure_words.LISTS[name]}
    if not words:
        return None
    patterns = [_term(words)]
    if "colours" in lists:
        lend = _any_of([*structure_words.SHADES, *structure_words.THINGS]) + _BETWEEN
        patterns = [
            f"(?:{lend})+{_term(structure_words.LISTS['colours'])}",
            *patterns,
            f"(?:(?:{lend})+|{_STEMS}+)colou?red",
        ]
    # A hyphen behind it goes with it, as in "red-roofed".
    return re.compile(f"\\b(?:{'|'.join(patterns)})\\b(?:{_HYPHEN}(?=\\w))?", re.IGNORECASE)


def _term(words: Collection[str]) -> str:
    return f"{_STEMS}*{_any_of(words)}{_LOOK}?(?:['\u2019]s)?"


def _any_of(words: Collection[str]) -> str:
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return f"(?:{'|'.join(map(re.escape, longest_first))})".replace("\\ ", _BETWEEN)
