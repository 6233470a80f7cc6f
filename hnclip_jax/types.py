"""The words every room shares: array aliases, batch and embeddings, the shape letters, user errors.

Shape letters, used in every docstring and einsum of the package:

    B  examples of the global batch          D  shared embedding width
    L  examples on one device                W  width of a tower
    S  text length in tokens                 N  image patches (with class token where said)
    H  attention heads                       P  width of a head
    V  vocabulary entries                    M  gallery items in an evaluation

A lower-case suffix on a name appears only where a local and a gathered version of one quantity
meet: ``text_ld`` holds a device's own rows, ``text_bd`` those of the whole batch.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import jax
    import numpy as np

    Array: TypeAlias = jax.Array | np.ndarray
else:
    Array: TypeAlias = Any

Params: TypeAlias = Mapping[str, Any]
"""Nested dict of float32 arrays. Paths are written ``image/blocks_03/attn/query/kernel``."""

Batch: TypeAlias = dict[str, Array]
"""What the pipeline hands to the step. Keys that are always there:

    image    [B, height, width, 3] uint8, RGB
    tokens   [B, S] int32, zero-padded after the end token
    pair_id  [B] int32; equal ids: no negatives of each other (the same picture, for instance)
    index    [B] int32, number of the pair in the list, from 0

Methods ask for more; see data/inputs.py.
"""


class Embeddings(NamedTuple):
    """What the two towers return; a field is None where it was not asked for.

    image: [B, D] float32, unit norm.
    text: [B, D] float32, unit norm.
    patches: [B, N, D] float32, projected, of any norm, class token left out.
    words: [B, S, D] float32, projected, of any norm.
    word_mask: [B, S] bool; True on the words, False on begin token, end token and padding.
    regions: [B, K, D] float32, unit norm, of parts of the picture.
    spans: [B, K, D] float32, unit norm, of parts of the caption.
    """

    image: Array | None = None
    text: Array | None = None
    patches: Array | None = None
    words: Array | None = None
    word_mask: Array | None = None
    regions: Array | None = None
    spans: Array | None = None


MISTAKE, STOPPED, AGAIN = 2, 130, 75
"""Exit codes: it would happen again; stopped by hand; to be started again, by a scheduler say."""


class UserError(ValueError):
    """Something the user gave does not fit.

    One line that says what was found, what was needed and what to do. Commands print the message
    without a traceback and leave with `exit_code`.
    """

    exit_code = MISTAKE
    at_once = False
    """Threads hang that the interpreter would wait for at its end."""


class TryAgain(UserError):
    """Nothing is wrong with what was given; the same command, started again, goes on."""

    exit_code = AGAIN


def at_most_ten(items: Iterable[str], separator: str = ", ") -> str:
    """Returns the first ten items as one line of text, and how many more there are."""
    items = [item if item.isprintable() else ascii(item)[1:-1] for item in items]
    more = f" and {len(items) - 10} more" if len(items) > 10 else ""
    return separator.join(items[:10]) + more


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """Returns the error for a name that is not in `valid`; it names the nearest valid one."""
    valid = sorted(valid)
    nearest = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"valid: {', '.join(valid)}"
    return UserError(f"unknown {kind} {name!r}; {hint}")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and those that it came from, the latest first.

    Each is there once: an error that is raised anew while its consequence is handled has itself
    behind it.
    """
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and not any(cause is one for one in seen):
        yield cause
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
