"""What captions are made of: tokens, cut at several lengths, and the faults that spoil them."""

import dataclasses
import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from hnclip_jax.data import tokenizer
from hnclip_jax.data.checks import workers

CONTEXTS = (77, 128, 248)
"""Text lengths, in tokens, that lists are usually cut at: CLIP's, between, and Long-CLIP's."""


class Counted(NamedTuple):
    """A caption in tokens.

    tokens: how many, with begin and end.
    cut: for every context, 8 bytes that are equal for captions that are equal when cut there.
    """

    tokens: int
    cut: tuple[bytes, ...]


@dataclasses.dataclass(frozen=True)
class Count:
    """Caption -> Counted. Picklable: what workers do."""

    tokenize: tokenizer.Tokenizer
    contexts: tuple[int, ...] = CONTEXTS

    def __call__(self, caption: str) -> Counted:
        """Encodes one caption."""
        ids = self.tokenize.encode(caption)
        cut = tuple(_short_hash(ids[: context - 2]) for context in self.contexts)
        return Counted(len(ids) + 2, cut)


def count(
    captions: Sequence[str],
    tokenize: tokenizer.Tokenizer,
    contexts: tuple[int, ...] = CONTEXTS,
    *,
    processes: int = workers.ALL_CORES,
    progress: Callable[[int, int], None] | None = None,
) -> list[Counted]:
    """Returns every caption in tokens; captions that repeat are encoded once.

    Args:
      captions: strings that can be encoded, see `fault`.
      tokenize: caption -> ids.
      contexts: lengths, in tokens, with begin and end.
      processes: as `workers.each` takes it.
      progress: called with (different captions done, different captions).
    """
    different = list(dict.fromkeys(captions))
    counted = workers.each(
        Count(tokenize, contexts), different, workers=processes, progress=progress
    )
    found = dict(zip(different, counted, strict=True))
    return [found[caption] for caption in captions]


def fault(caption: Any) -> str:
    """Returns why a list's caption cannot be used: "empty", "no text", "broken text"; "" = it can.

    Broken text has half of a character in it (a JSON escape from \\ud800 to \\udfff without its
    other half), which no encoding can write.
    """
    if not isinstance(caption, str):
        return "empty" if caption is None else "no text"
    if not caption.strip():
        return "empty"
    try:
        caption.encode()
    except UnicodeEncodeError:
        return "broken text"
    return ""


def repeats(items: Iterable[Any]) -> int:
    """Returns how many items stand earlier in the list already."""
    items = list(items)
    return len(items) - len(set(items))


def _short_hash(ids: Sequence[int]) -> bytes:
    return hashlib.blake2b(struct.pack(f"{len(ids)}H", *ids), digest_size=8).digest()
