"""The nearest other caption of each caption: by words, or by embeddings that are given."""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

Progress = Callable[[int, int], None]

_BLOCK = 512
_WIDTH = 100


class Nearest(NamedTuple):
    """For each of some captions, the most similar one of another picture.

    asked: [q] int64, positions of the captions.
    found: [q] int64, positions of their nearest; -1 if all captions are of one picture.
    similarity: [q] float32, cosine; -inf where found is -1.
    """

    asked: np.ndarray
    found: np.ndarray
    similarity: np.ndarray

    def text(self, captions: Sequence[str], by: str, shown: int = 10) -> str:
        """Returns how near captions are, and the nearest pairs, for a terminal.

        Args:
          captions: all of them.
          by: how they were compared, for the title.
          shown: how many pairs.
        """
        if not (self.found >= 0).any():
            return "no caption has another one to be near to"
        low, median, p90, high = np.percentile(self.similarity, [0, 50, 90, 100])
        lines = [
            f"nearest other caption {by}, of {len(self.asked):,} captions: similarity "
            f"{low:.3f} to {high:.3f}, median {median:.3f}, a tenth above {p90:.3f}"
        ]
        for a, b, similarity in self._nearest_first()[:shown]:
            lines += [
                f"  {similarity:.3f}  {_shortened(captions[a])}",
                f"         {_shortened(difference(captions[a], captions[b]))}",
            ]
        return "\n".join(lines)

    def to_json(self, captions: Sequence[str]) -> list[dict[str, Any]]:
        """Returns all pairs as JSON values, the nearest first; positions count captions from 0."""
        return [
            {"a": a, "b": b, "similarity": s, "text_a": captions[a], "text_b": captions[b]}
            for a, b, s in self._nearest_first()
        ]

    def _nearest_first(self) -> list[tuple[int, int, float]]:
        """Returns (a, b, similarity); a pair that was found from both its ends is there once."""
        order = np.argsort(-self.similarity, kind="stable")
        found: dict[tuple[int, int], tuple[int, int, float]] = {}
        for a, b, similarity in zip(
            self.asked[order], self.found[order], self.similarity[order], strict=True
        ):
            if b >= 0:
                found.setdefault((min(a, b), max(a, b)), (int(a), int(b), float(similarity)))
        return list(found.values())


def sample(count: int, size: int, seed: int = 0) -> np.ndarray:
    """Returns `size` different positions below `count`, ascending; all, if there are no more."""
    if size >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, size, replace=False))


def by_words(
    captions: Sequence[str],
    pictures: np.ndarray,
    asked: np.ndarray,
    progress: Progress | None = None,
) -> Nearest:
    """Returns the nearest captions by the cosine of their words' weights.

    A word weighs (1 + log of its count in the caption) times the log of the inverse of the share of
    captions that have it, so what all captions say counts for little.

    Args:
      captions: n texts.
      pictures: [n] int, equal for captions of one picture.
      asked: positions of the captions whose nearest is wanted; their weights are held densely.
      progress: called with (captions compared, n).
    """
    starts, words, weights = word_weights(captions)
    queries = np.zeros((int(words.max(initial=-1)) + 1, len(asked)), np.float32)
    for column, position in enumerate(asked):
        inside = slice(starts[position], starts[position + 1])
        queries[words[inside], column] = weights[inside]

    def blocks() -> Iterator[np.ndarray]:
        for low in range(0, len(captions), _BLOCK):
            high = min(low + _BLOCK, len(captions))
            inside = slice(starts[low], starts[high])
            used, columns = np.unique(words[inside], return_inverse=True)
            block = np.zeros((high - low, len(used)), np.float32)
            rows = np.repeat(np.arange(high - low), np.diff(starts[low : high + 1]))
            block[rows, columns] = weights[inside]
            yield block @ queries[used]

    return _best(blocks(), pictures, asked, progress)


def by_embeddings(
    embeddings: np.ndarray,
    pictures: np.ndarray,
    asked: np.ndarray,
    progress: Progress | None = None,
) -> Nearest:
    """Returns the nearest captions by cosine.

    Args:
      embeddings: [n, D] float32, unit norm.
      pictures: [n] int, equal for captions of one picture.
      asked: positions of the captions whose nearest is wanted.
      progress: called with (captions compared, n).
    """
    queries = embeddings[asked].T
    blocks = (embeddings[low : low + _BLOCK] @ queries for low in range(0, len(embeddings), _BLOCK))
    return _best(blocks, pictures, asked, progress)


def word_weights(captions: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the unit rows of a sparse matrix, a row per caption; weights as in `by_words`.

    Returns:
      starts [n + 1] int64, where each row begins; words, their numbers, and weights float32.
    """
    numbers: dict[str, int] = {}
    starts, words, counts = [0], [], []
    for caption in captions:
        of_caption: dict[int, int] = {}
        for word in re.findall(r"\w+", caption.casefold()):
            number = numbers.setdefault(word, len(numbers))
            of_caption[number] = of_caption.get(number, 0) + 1
        words += of_caption.keys()
        counts += of_caption.values()
        starts.append(len(words))
    starts, words = np.array(starts), np.array(words, np.int64)
    having = np.bincount(words, minlength=len(numbers))
    # Plus one: a word that all captions have still counts a little.
    rarity = np.log((1 + len(captions)) / (1 + having)) + 1
    weights = (1 + np.log(np.array(counts, np.float64))) * rarity[words]
    rows = np.repeat(np.arange(len(captions)), np.diff(starts))
    norms = np.sqrt(np.bincount(rows, weights**2, minlength=len(captions)))
    return starts, words, (weights / norms[rows]).astype(np.float32)


def difference(a: str, b: str) -> str:
    """Returns what is in one caption only: "[only in a] {only in b}" for each place."""
    left, right = a.split(), b.split()
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    places = []
    for what, *span in matcher.get_opcodes():
        if what != "equal":
            old, new = " ".join(left[slice(*span[:2])]), " ".join(right[slice(*span[2:])])
            places.append(" ".join(filter(None, (old and f"[{old}]", new and f"{{{new}}}"))))
    return " ... ".join(places)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _best(
    blocks: Iterator[np.ndarray],
    pictures: np.ndarray,
    asked: np.ndarray,
    progress: Progress | None,
) -> Nearest:
    """Returns the best of blocks of scores, [rows, q] each, that follow each other."""
    best = np.full(len(asked), -np.inf, np.float32)
    found = np.full(len(asked), -1)
    done = 0
    for scores in blocks:
        mine = pictures[done : done + len(scores), None] == pictures[asked]
        scores = np.where(mine, -np.inf, scores)
        rows = scores.argmax(axis=0)
        values = scores[rows, np.arange(len(asked))]
        # A later caption has to be better, so that the first of equals is found.
        better = values > best
        best[better], found[better] = values[better], rows[better] + done
        done += len(scores)
        if progress:
            progress(done, len(pictures))
    return Nearest(asked, found, best)
