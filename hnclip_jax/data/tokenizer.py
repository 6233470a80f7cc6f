"""Captions to CLIP byte-pair ids, equal to OpenAI's reference tokenizer.

One byte-pair loop, over a vocabulary that comes from the installed package
`instant-clip-tokenizer` or from the user's file. Control ids are added by id only: "<|endoftext|>"
written in a caption is plain text here (the reference would take it for the control token).
Letters and numbers are those of the running Python's Unicode tables.
"""

import functools
import gzip
import html
import importlib
import itertools
import math
import pathlib
import re
import sys
import unicodedata
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import ftfy
import numpy as np

from hnclip_jax import types

BEGIN_ID = 49406
END_ID = 49407
VOCAB_SIZE = 49408

_BYTE_SYMBOLS = 512  # each byte inside a word, then each byte at the end of a word
_RULES = VOCAB_SIZE - _BYTE_SYMBOLS - 2
_HEADER = b'"bpe_simple_vocab_16e6.txt#version'
# All that ftfy and html.unescape change in ASCII; line ends are left, which both count as white.
_MENDABLE = re.compile(r"[&\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_REMEDY = "give OpenAI's bpe_simple_vocab_16e6.txt(.gz) by data.vocabulary or vocab_path"


class Tokens(NamedTuple):
    """Token ids of B captions.

    ids: [B, S] int32; begin id, words, end id, zeros.
    truncated: [B] bool; True where words were cut off.
    """

    ids: np.ndarray
    truncated: np.ndarray


class Vocabulary(NamedTuple):
    """What fixes the ids: every symbol, and the pairs of symbols that are joined.

    symbols: 49408 in the order of their ids; the last two are the begin and the end mark.
    merges: 48894 pairs "left right", the earliest first.
    """

    symbols: tuple[str, ...]
    merges: tuple[str, ...]


class Tokenizer:
    """Byte-pair tokenizer; pickles as its vocabulary path, which a process reads only once.

    `word_ids` gives the ids of one match of `word_pattern` in lower case.

    Args:
      vocab_path: file in the format of OpenAI's `bpe_simple_vocab_16e6.txt`, gzipped or not;
        None or empty = the installed package's.

    Raises:
      types.UserError: if there is no such file, if it has another format, or if none is given
        where the package is missing.
    """

    def __init__(self, vocab_path: str | None = None):
        self.vocab_path = vocab_path
        self._rules = _merge_rules(vocab_path)
        # Both repeat, so nearly every look-up hits; bounded because captions never end.
        self.word_ids = functools.lru_cache(maxsize=2**16)(self._merge)
        self._piece_ids = functools.lru_cache(maxsize=2**17)(self._ids_of_piece)

    def __reduce__(self):
        return Tokenizer, (self.vocab_path,)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one caption, without begin and end."""
        if not isinstance(text, str):
            raise types.UserError(f"a caption must be a string, but this one is {text!r}")
        if not text.isascii() or _MENDABLE.search(text):
            text = mend(text)
        # No word holds white space, so the pieces between it can be looked up whole.
        return list(itertools.chain.from_iterable(map(self._piece_ids, text.lower().split())))

    def __call__(self, texts: Sequence[str] | str, context_length: int) -> Tokens:
        """Returns the padded ids of one or many captions.

        Args:
          texts: B captions; a single string is B = 1.
          context_length: S, at least 3. Longer captions are cut; their last slot holds the end id.

        Raises:
          types.UserError: for a shorter context, or a caption that is no string.
        """
        if context_length < 3:
            raise types.UserError(
                f"context_length is {context_length}, but begin, one word and end need at least 3"
            )
        texts = [texts] if isinstance(texts, str) else texts
        ids = np.zeros((len(texts), context_length), np.int32)
        truncated = np.zeros(len(texts), bool)
        for row, text in enumerate(texts):
            words = self.encode(text)
            kept = words[: context_length - 2]
            ids[row, : len(kept) + 2] = [BEGIN_ID, *kept, END_ID]
            truncated[row] = len(words) > len(kept)
        return Tokens(ids, truncated)

    def _ids_of_piece(self, piece: str) -> tuple[int, ...]:
        words = word_pattern().findall(piece)
        return tuple(itertools.chain.from_iterable(map(self.word_ids, words)))

    def _merge(self, word: str) -> tuple[int, ...]:
        byte_ids = _byte_ids()
        ids = [byte_ids[byte] for byte in word.encode()]
        ids[-1] += _BYTE_SYMBOLS // 2
        while True:
            found = [self._rules.get(pair, math.inf) for pair in itertools.pairwise(ids)]
            earliest = min(found, default=math.inf)
            if earliest == math.inf:
                return tuple(ids)
            merged, position = [], 0
            while position < len(ids):
                joins = position < len(found) and found[position] == earliest
                merged.append(earliest if joins else ids[position])
                position += 2 if joins else 1
            ids = merged


@functools.cache
def default() -> Tokenizer:
    """Returns the tokenizer over the installed package's vocabulary, made once per process."""
    return Tokenizer()


def tokenize(texts: Sequence[str] | str, context_length: int = 248) -> np.ndarray:
    """Returns [B, S] int32 ids of B captions; see `Tokenizer.__call__`."""
    return default()(texts, context_length).ids


def vocabulary(vocab_path: str | None = None) -> Vocabulary:
    """Returns the vocabulary in words, for files that other programs read.

    Args:
      vocab_path: as `Tokenizer` takes it.

    Raises:
      types.UserError: as `Tokenizer` does.
    """
    source = vocab_path or "instant-clip-tokenizer"
    lines = (_read(vocab_path) if vocab_path else _bundled()).split("\n")[1 : _RULES + 1]
    if len(lines) < _RULES:
        raise types.UserError(
            f"vocabulary {source} has {len(lines)} merge rules, but CLIP's {_RULES}; {_REMEDY}"
        )
    # In the file, a byte that does not print stands as a letter from U+0100 on.
    letters = [chr(byte if i < 188 else 0x100 + i - 188) for byte, i in _byte_ids().items()]
    symbols = dict.fromkeys([*letters, *(f"{letter}</w>" for letter in letters)])
    merges = []
    for number, line in enumerate(lines):
        left, _, right = line.rstrip("\r").partition(" ")
        if left not in symbols or right not in symbols or left + right in symbols:
            raise types.UserError(
                f"vocabulary {source}, line {number + 2}: {line[:40]!r} does not join two earlier "
                f"symbols to a new one; {_REMEDY}"
            )
        symbols[left + right] = None
        merges.append(f"{left} {right}")
    return Vocabulary((*symbols, "<|startoftext|>", "<|endoftext|>"), tuple(merges))


def mend(text: str) -> str:
    """Returns a caption as it is before it is cut into words: encoding and HTML entities mended."""
    return html.unescape(html.unescape(ftfy.fix_text(text)))


@functools.cache
def word_pattern() -> re.Pattern:
    """Returns the reference's split into contractions, letters, single numbers and other signs."""
    letters, numbers = _ranges("L"), _ranges("N")
    # The reference ignores case, which matters for two code points in lower-cased text: the long s
    # (U+017F) is an s after an apostrophe, and U+0345, whose other case is a letter, has no class.
    contractions = "'[s\u017ftmd]|'re|'ve|'ll"
    signs = f"[^\\s\u0345{letters}{numbers}]+"
    return re.compile(f"{contractions}|[{letters}]+|[{numbers}]|{signs}")


def _ranges(category: str) -> str:
    points = [
        point
        for point in range(sys.maxunicode + 1)
        if unicodedata.category(chr(point))[0] == category
    ]
    runs = itertools.groupby(enumerate(points), lambda pair: pair[1] - pair[0])
    spans = [[point for _, point in run] for _, run in runs]
    return "".join(f"{chr(span[0])}-{chr(span[-1])}" for span in spans)


@functools.cache
def _byte_ids() -> dict[int, int]:
    """Returns byte -> id; printable bytes come first, which is how the reference numbers them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {byte: index for index, byte in enumerate(printable + rest)}


@functools.cache
def _merge_rules(vocab_path: str | None) -> dict[tuple[int, int], int]:
    """Returns (left id, right id) -> merged id; a lower id merges earlier."""
    symbols, merges = vocabulary(vocab_path)
    ids = {symbol: index for index, symbol in enumerate(symbols)}
    pairs = (line.split(" ") for line in merges)
    return {
        (ids[left], ids[right]): _BYTE_SYMBOLS + index for index, (left, right) in enumerate(pairs)
    }


def _read(vocab_path: str) -> str:
    try:
        content = pathlib.Path(vocab_path).read_bytes()
        zipped = content.startswith(b"\x1f\x8b")
        return (gzip.decompress(content) if zipped else content).decode()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise types.UserError(f"cannot read vocabulary {vocab_path}: {error}") from error


def _bundled() -> str:
    """Returns OpenAI's file, which lies as text in the package's module; no call gives it out."""
    try:
        extension = importlib.import_module("instant_clip_tokenizer.instant_clip_tokenizer")
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise types.UserError(
            "package instant-clip-tokenizer is missing (it has no wheel for Python 3.13 and later; "
            f"this is {version}); {_REMEDY}, or use Python 3.11 or 3.12"
        ) from error
    content = pathlib.Path(extension.__file__).read_bytes()
    return content[max(content.find(_HEADER), 0) :].decode(errors="replace")
