"""Segments as GOAL's lists have them: a sentence, the part of the picture it tells of, a score.

    "segment": [{"filename": "parts/7_1.png", "caption": "It hangs in a tree",
                 "similarity_score": 24.7,
                 "bbox_coordinates": {"x1": 10, "y1": 22, "x2": 310, "y2": 260,
                                      "width": 300, "height": 238}}]

Boxes are in pixels of the picture.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hnclip_jax.data import offsets, regions, survey, tokenizer

KEY = "segment"
NEEDED = (
    'needed are a list of {"caption": a text, "similarity_score": a number, "bbox_coordinates": '
    '{"x1", "y1", "x2", "y2"}}'
)

_BOX = "bbox_coordinates"


class Segment(NamedTuple):
    """A part of a picture, and the sentence of its caption that tells of it.

    caption: the sentence, without its full stop.
    score: how well they fit; only the order counts.
    filename: of the part as a picture; "" = none.
    box: where it is in the picture; None = not known.
    frame: width and height that stand beside the box, (0, 0) if none do. GOAL's are those of the
      box, though its code takes them for the picture's.
    """

    caption: str
    score: float
    filename: str = ""
    box: regions.Box | None = None
    frame: tuple[float, float] = (0.0, 0.0)


def parse(values: Any) -> list[Segment]:
    """Returns the segments that stand in a list under KEY.

    Args:
      values: JSON; None counts as an empty list.

    Raises:
      ValueError: says what is wrong with the first that is none. A box that is absent or has no
        area is no error: `box` is None then.
    """
    if not isinstance(values, list | None):
        raise ValueError(f"it is {_short(values)} and no list")
    return [_segment(value) for value in values or ()]


def best(segments: Sequence[Segment]) -> Segment | None:
    """Returns the segment with the highest score, the first of equals; None if there are none."""
    return max(segments, key=lambda segment: segment.score, default=None)


def word_mask(
    tokenize: tokenizer.Tokenizer, caption: str, sentence: str, context_length: int
) -> np.ndarray:
    """Returns [S] bool: the tokens of a caption that are a sentence of it.

    All False if the sentence is not in the caption, or stands behind the context.
    """
    mask = np.zeros(context_length, bool)
    span = find(caption, sentence)
    if span is not None:
        start, stop = offsets.token_spans(tokenize, caption, [span], context_length)[0]
        mask[start:stop] = True
    return mask


def word_mask_as_released(
    tokenize: tokenizer.Tokenizer, caption: str, sentence: str, context_length: int
) -> np.ndarray:
    """Returns [S] bool: the tokens that GOAL's released code takes for a sentence.

    It begins one token too late, because it counts the end token of the text before; takes the last
    tokens for a sentence behind the context, and the first ones for one that begins at its end.
    All False where that code would stop, for a sentence that is not in the caption.

    References:
      PerceptualAI-Lab/GOAL, goal_loss_finetuning.py.
    """
    mask = np.zeros(context_length, bool)
    caption, sentence = (" ".join(text.split()) for text in (caption, sentence))
    parts = [part.strip() for part in caption.split(".") if part.strip()]
    if sentence in parts:
        before = "".join(f"{part}. " for part in parts[: parts.index(sentence)])
    elif sentence in caption:
        before = caption[: caption.find(sentence)]
    else:
        return mask
    length, start = len(tokenize.encode(sentence)), len(tokenize.encode(before)) + 2
    last = context_length - 1
    if start > last:
        start, stop = max(1, last - length), last
    elif start == last:
        start, stop = 1, 1 + length
    else:
        stop = min(start + length, last)
    mask[start:stop] = True
    return mask


def find(caption: str, sentence: str) -> tuple[int, int] | None:
    """Returns where a sentence first stands in a caption, (start, stop) in characters; None: not.

    Blanks and line ends count alike, and parts of words do not count.
    """
    words = sentence.split()
    if not words:
        return None
    pattern = r"\s+".join(map(re.escape, words))
    before = r"(?<!\w)" if re.match(r"\w", words[0]) else ""
    behind = r"(?!\w)" if re.search(r"\w\Z", words[-1]) else ""
    found = re.search(f"{before}{pattern}{behind}", caption)
    return found and found.span()


def _segment(value: Any) -> Segment:
    if not isinstance(value, dict):
        raise ValueError(f"a segment is {_short(value)} and no object")
    caption, score = survey.clean([value.get("caption")])[0], value.get("similarity_score")
    if not caption:
        raise ValueError(f"its caption is {_short(value.get('caption'))}")
    if not _is_number(score):
        raise ValueError(f"its similarity_score is {_short(score)}")
    filename, box = value.get("filename"), value.get(_BOX)
    if not isinstance(filename, str | None):
        raise ValueError(f"its filename is {_short(filename)}")
    if not isinstance(box, dict | None):
        raise ValueError(f"its {_BOX} are {_short(box)}")
    edges = [(box or {}).get(name) for name in ("x1", "y1", "x2", "y2")]
    frame = [(box or {}).get(name, 0) for name in ("width", "height")]
    if box and not all(map(_is_number, (*edges, *frame))):
        raise ValueError(f"its {_BOX} are {_short(box)}")
    usable = bool(box) and edges[0] < edges[2] and edges[1] < edges[3]
    return Segment(
        caption,
        score,
        filename or "",
        regions.Box(*edges) if usable else None,
        (frame[0], frame[1]),
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
