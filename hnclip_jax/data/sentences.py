"""The sentences of a caption."""

import re

_STOPS = re.compile(
    r"\b(?:[^\W\d_]\.){2,}"  # U.S., p.m.
    r"|\b(?:Mr|Mrs|Ms|Dr|St|vs)\."
    r"|\.+(?=[^\W_])(?![A-Z])"  # 3.5, .com
    r"|(\.+)"
)
_CLOSING = re.compile(r"""\A["'\u201d\u2019)\]]+(?=\s|\Z)""")


def split(caption: str) -> list[str]:
    """Returns the sentences of a caption, as they stand in it, without blanks and stops around.

    GOAL's rule cuts at every full stop. Here a stop is no end if a digit or a lower-case letter
    follows at once (3.5, example.com), behind letters that each have one (U.S., p.m.) and behind
    Mr, Mrs, Ms, Dr, St, vs. What holds no letter and no digit is no sentence.
    """
    ends = [stop.span() for stop in _STOPS.finditer(caption) if stop[1]]
    starts = [0, *(end for _, end in ends)]
    stops = [*(start for start, _ in ends), len(caption)]
    parts = (
        # A quote that closes behind a stop belongs to the sentence before.
        _CLOSING.sub("", caption[start:stop]).strip()
        for start, stop in zip(starts, stops, strict=True)
    )
    return [part for part in parts if re.search(r"[^\W_]", part)]
