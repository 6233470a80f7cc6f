"""Line charts as inline SVG, in words for those who do not see them, and as a table of numbers."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from hnclip_jax.analysis.report import markup, scales, tables

STYLES = 7
"""Colours of lines, in style.css. Each also has its dashes and markers, so that lines can be told
apart without it."""

_WIDTH, _HEIGHT = 360, 224
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 340, 10, 188
_DASHES = (None, "6 3", "2 2", "8 3 2 3")
_MARKERS = (
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "M-3-3h6v6h-6z",
    "M0-4l4 7h-8z",
    "M0-4l4 4-4 4-4-4z",
)
_MARKED = 30
"""A line of so many points has a marker on each."""
_DRAWN = 400
_LISTED = 100


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a chart.

    label: its name.
    x: [n], ascending.
    y: [n]; nan and inf are gaps, and so is 0 and less on a logarithmic axis.
    style: which colour, dashes and marker; equal numbers mean the same run in all charts.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    style: int = 0


def chart(
    title: str, x_title: str, lines: Sequence[Line], *, log: bool = False, last: bool = True
) -> markup.Html:
    """Returns a figure: the picture, a legend, and the numbers to unfold.

    Args:
      title: what the values are, with their unit.
      x_title: what goes to the right.
      lines: at least one; long ones are drawn thinner, but for their lowest and highest points.
      log: whether the values are on a logarithmic axis.
      last: whether the legend tells the last value of each.
    """
    left_out = sum(int((~_drawable(line.y, log)).sum()) for line in lines)
    said = []
    if left_out:
        what = "Not finite or not above 0" if log else "Not finite"
        every = sum(len(line.y) for line in lines)
        said.append(f"{what}, so not drawn: {left_out:,} of {every:,} values.")
    return markup.tag(
        "figure",
        markup.tag("figcaption", markup.tag("h3", title), *(markup.tag("p", s) for s in said)),
        _picture(title, x_title, lines, log),
        markup.tag("ul", *(_entry(line, last) for line in lines), class_="legend"),
        _numbers(title, x_title, lines),
        class_="chart",
    )


def describe(line: Line) -> str:
    """Returns a line in words: where it begins and ends, its lowest and its highest point."""
    kept = np.isfinite(line.y)
    x, y = line.x[kept], line.y[kept]
    if not len(y):
        return f"{line.label}: no values"
    if len(y) == 1:
        return f"{line.label}: {scales.text(y[0])} at {scales.text(x[0])}"
    low, high = int(y.argmin()), int(y.argmax())
    return (
        f"{line.label}: {len(y):,} points from {scales.text(x[0])} to {scales.text(x[-1])}, "
        f"first {scales.text(y[0])}, last {scales.text(y[-1])}, "
        f"lowest {scales.text(y[low])} at {scales.text(x[low])}, "
        f"highest {scales.text(y[high])} at {scales.text(x[high])}"
    )


def thin(x: np.ndarray, y: np.ndarray, most: int = _DRAWN) -> tuple[np.ndarray, np.ndarray]:
    """Returns at most about `most` of the points, with the lowest and highest of every stretch."""
    if len(x) <= most:
        return x, y
    edges = np.linspace(0, len(x), most // 2 + 1).astype(int)
    kept = {0, len(x) - 1}
    for low, high in itertools.pairwise(edges):
        kept |= {low + int(y[low:high].argmin()), low + int(y[low:high].argmax())}
    places = sorted(kept)
    return x[places], y[places]


def _drawable(y: np.ndarray, log: bool) -> np.ndarray:
    return np.isfinite(y) & (y > 0) if log else np.isfinite(y)


def _picture(title: str, x_title: str, lines: Sequence[Line], log: bool) -> markup.Html:
    drawable = [_drawable(line.y, log) for line in lines]
    shown = [line.y[kept] for line, kept in zip(lines, drawable, strict=True)]
    across = [line.x[kept] for line, kept in zip(lines, drawable, strict=True)]
    vertical = scales.fit(np.concatenate(shown), _BOTTOM, _TOP, log)
    horizontal = scales.fit(np.concatenate(across), _LEFT, _RIGHT)
    words = "; ".join(map(describe, lines))
    return markup.tag(
        "svg",
        *_axes(horizontal, vertical, x_title),
        *(
            mark
            for line, kept in zip(lines, drawable, strict=True)
            for mark in _marks(line, kept, horizontal, vertical)
        ),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{title} over {x_title}. {words}.",
    )


def _axes(horizontal: scales.Scale, vertical: scales.Scale, x_title: str) -> Iterator[markup.Html]:
    for value in scales.ticks(vertical):
        y = float(vertical(value))
        yield markup.tag("path", d=f"M{_LEFT} {y:.1f}H{_RIGHT}", class_="grid")
        where = {"x": _LEFT - 5, "y": f"{y + 4:.1f}", "text_anchor": "end"}
        yield markup.tag("text", scales.text(value), **where)
    for value in scales.ticks(horizontal):
        x = float(horizontal(value))
        yield markup.tag("path", d=f"M{x:.1f} {_BOTTOM}v4", class_="axis")
        where = {"x": f"{x:.1f}", "y": _BOTTOM + 16, "text_anchor": "middle"}
        yield markup.tag("text", scales.text(value), **where)
    yield markup.tag("path", d=f"M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}", class_="axis")
    middle = (_LEFT + _RIGHT) // 2
    yield markup.tag("text", x_title, x=middle, y=_HEIGHT - 4, text_anchor="middle")


def _marks(
    line: Line, kept: np.ndarray, horizontal: scales.Scale, vertical: scales.Scale
) -> Iterator[markup.Html]:
    """Yields a path for every stretch without a gap, and markers where points are few or alone."""
    stretches = np.split(np.arange(len(kept)), np.flatnonzero(np.diff(kept)) + 1)
    for inside in stretches:
        if not len(inside) or not kept[inside[0]]:
            continue
        x, y = thin(line.x[inside], line.y[inside])
        places = list(zip(horizontal(x), vertical(y), strict=True))
        path = "L".join(f"{across:.1f} {up:.1f}" for across, up in places)
        dashes = _DASHES[line.style % len(_DASHES)]
        kind = f"line colour-{line.style % STYLES}"
        yield markup.tag("path", d=f"M{path}", class_=kind, stroke_dasharray=dashes)
        if kept.sum() <= _MARKED or len(places) == 1:
            yield from (_marker(line.style, across, up) for across, up in places)


def _marker(style: int, x: float, y: float) -> markup.Html:
    return markup.tag(
        "path",
        d=_MARKERS[style % len(_MARKERS)],
        class_=f"marker colour-{style % STYLES}",
        transform=f"translate({x:.1f} {y:.1f})",
    )


def _entry(line: Line, last: bool) -> markup.Html:
    dashes = _DASHES[line.style % len(_DASHES)]
    stroke = f"line colour-{line.style % STYLES}"
    sample = markup.tag(
        "svg",
        markup.tag("path", d="M1 6H27", class_=stroke, stroke_dasharray=dashes),
        _marker(line.style, 14, 6),
        viewBox="0 0 28 12",
        class_="sample",
        aria_hidden="true",
    )
    finite = line.y[np.isfinite(line.y)]
    told = scales.text(finite[-1]) if len(finite) else "no values"
    value = [" ", markup.tag("b", told)] if last or not len(finite) else []
    return markup.tag("li", sample, " ", line.label, *value)


def _numbers(title: str, x_title: str, lines: Sequence[Line]) -> markup.Html:
    """Returns the table of the values; of long lines, every so many-th place to the right."""
    places = np.unique(np.concatenate([line.x for line in lines]))
    every = -(-len(places) // _LISTED) if len(places) else 1
    # The last one is always there, since it is what most look for.
    kept = places[(len(places) - 1) % every :: every]
    by_place = [dict(zip(line.x.tolist(), line.y.tolist(), strict=True)) for line in lines]
    rows = [
        tables.Row(
            (
                tables.Cell(scales.text(place), place),
                *(_value(found.get(place)) for found in by_place),
            )
        )
        for place in kept.tolist()
    ]
    caption = title if every == 1 else f"{title}, one in {every} of {len(places):,} {x_title}s"
    columns = [tables.Column(x_title, True), *(tables.Column(line.label, True) for line in lines)]
    return markup.tag(
        "details",
        markup.tag("summary", "Numbers", markup.hidden(f" of {title}")),
        tables.table(caption, columns, rows, sortable=False),
    )


def _value(value: float | None) -> tables.Cell:
    if value is None or not np.isfinite(value):
        return tables.number(value)
    return tables.Cell(f"{value:.5g}", value)
