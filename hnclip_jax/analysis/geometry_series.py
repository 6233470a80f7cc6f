"""What is told of the captions of a list by some weights: as words, as JSON, as a table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hnclip_jax.analysis import boost, geometry, geometry_batch


class Series(NamedTuple):
    """What is known of a list by some weights: one colour of the picture.

    label: for the legend.
    geometry: of all its captions.
    batch: of some.
    boost: what it would be.
    provenance: JSON values that say what the weights and the list are.
    """

    label: str
    geometry: geometry.Geometry
    batch: geometry_batch.Batch
    boost: boost.Boost
    provenance: dict[str, Any]

    def text(self) -> str:
        """Returns all of it in words, for a terminal."""
        told = (self.geometry.text(), self.batch.text(), self.boost.text())
        return "\n".join([f"{self.label}", *told])


def labels(names: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a label for each (weights, list): what differs of them, and a number if nothing does.

    Where nothing differs because there is but one, it is both names.
    """
    differ = [len({pair[part] for pair in names}) > 1 for part in (0, 1)]
    if not any(differ):
        differ = [True, True]
    plain = [
        ", ".join(name for name, told in zip(pair, differ, strict=True) if told) for pair in names
    ]
    seen: Counter[str] = Counter()
    found = []
    for label in plain:
        seen[label] += 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found


def numbers(series: Sequence[Series], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all numbers in the picture, and what they were made from, as JSON values."""
    return {
        "settings": settings,
        "edges": geometry.EDGES.tolist(),
        "hardness": geometry.HARDNESS,
        "series": [
            {
                "label": one.label,
                **one.provenance,
                "geometry": one.geometry.to_json(),
                "batch": one.batch.to_json(),
                "boost": one.boost.to_json(),
                "text": one.text(),
            }
            for one in series
        ],
    }


def table(series: Sequence[Series]) -> list[dict[str, Any]]:
    """Returns the histograms, a row for each bin of each series."""
    return [
        {
            "series": one.label,
            "from": round(float(low), 6),
            "to": round(float(high), 6),
            "pairs": int(pairs),
            "hardest_companions": int(hardest),
        }
        for one in series
        for low, high, pairs, hardest in zip(
            geometry.EDGES[:-1],
            geometry.EDGES[1:],
            one.geometry.counts,
            one.geometry.hardest_counts,
            strict=True,
        )
    ]
