"""The content words of a caption, where they stand in it, and which of them two captions share."""

import math
import re
from collections.abc import Collection
from typing import NamedTuple

_STOP = """
    a an the this that these those it its itself he him his she her hers they them their theirs
    i me my we us our you your who whom whose which what when where while how why
    and or but nor so yet if then than as both either neither
    of to in on at by for from with into onto upon about via per
    is are was were be been being am has have had having do does did doing
    can could may might must shall should will would
    there here also just very too such some any each every other others another own same
    s t
"""
STOP = frozenset(_STOP.split())
"""Words that captions share whatever they are about. Where things are ("left", "behind", "under"),
how many there are and what is not there tells captions apart, so such words are content."""

_APOSTROPHE = "\N{RIGHT SINGLE QUOTATION MARK}"
_WORD = re.compile(rf"[^\W_]+(?:['{_APOSTROPHE}][^\W_]+)*")


class Word(NamedTuple):
    """A content word of a text: text[start:end], and what it is compared as."""

    start: int
    end: int
    word: str


def content(text: str) -> list[Word]:
    """Returns the content words of a text, in their order.

    A word is a run of letters and digits, with apostrophes inside; hyphens part words. It is
    compared in lower case and without an owner's "'s". Words of `STOP` are left out.
    """
    found = []
    for match in _WORD.finditer(text):
        word = match[0].casefold().replace(_APOSTROPHE, "'").removesuffix("'s")
        if word not in STOP:
            found.append(Word(match.start(), match.end(), word))
    return found


def shared(a: str, b: str) -> tuple[str, ...]:
    """Returns the content words that both texts have, each once, in the order of `a`."""
    other = {word.word for word in content(b)}
    return tuple(dict.fromkeys(word.word for word in content(a) if word.word in other))


def share(a: str, b: str) -> float:
    """Returns the share of a's different content words that `b` has too; nan if `a` has none."""
    own = {word.word for word in content(a)}
    return len(shared(a, b)) / len(own) if own else math.nan


def spans(text: str, wanted: Collection[str]) -> list[tuple[int, int]]:
    """Returns (start, end) in `text` of its content words that are among `wanted`."""
    return [(word.start, word.end) for word in content(text) if word.word in wanted]
