"""What papers report on the benchmarks of the registry: rows of numbers, each with its source."""

import dataclasses
import functools
import importlib.resources
import json
from typing import Any

from hnclip_jax.data import benchmarks

FILE = "published.json"
"""Tables as the papers print them, except that text to image always stands first:

    papers    key -> title and identifier
    methods   name -> what keeps its numbers from being those of a plain dual encoder
    tables    paper, table, backbone; ranks (the K of every list of numbers); decimals printed;
              trained_on (benchmark -> training set, "" = zero-shot); notes (benchmark -> caution);
              rows (method; benchmark -> [text to image, image to text]; zero_shot; note, for all
              its benchmarks; notes; doubtful, benchmark -> names of metrics)

A row that one paper quotes from another stands once, with the paper that measured it.
"""

_LEAK = "leaky: the list holds the training pairs"
_OVERLAP = "training pictures may overlap with the benchmark's"


@dataclasses.dataclass(frozen=True)
class Row:
    """One method on one benchmark.

    benchmark: name in the registry.
    method: as its paper calls it.
    backbone: size of the towers, and the weights it began with where known.
    trained_on: "" = zero-shot, that is not tuned on the benchmark's training set.
    source: paper and table.
    metrics: {"t2i_r@1": percent, ...}, text to image first.
    decimals: how many the paper prints.
    doubtful: names of metrics that do not fit the benchmark, or may be of another protocol.
    leaky: the gallery holds the training pairs.
    notes: what to know before comparing.
    """

    benchmark: str
    method: str
    backbone: str
    trained_on: str
    source: str
    metrics: dict[str, float]
    decimals: int
    doubtful: tuple[str, ...]
    leaky: bool
    notes: tuple[str, ...]


def rows(benchmark: str) -> tuple[Row, ...]:
    """Returns the published rows of a benchmark, in the order of the papers; () if there are none.

    Raises:
      types.UserError: if the registry does not know the benchmark.
    """
    name = benchmarks.canonical(benchmark)
    return tuple(row for row in all_rows() if row.benchmark == name)


@functools.cache
def all_rows() -> tuple[Row, ...]:
    """Returns every published row."""
    text = (importlib.resources.files("hnclip_jax.evaluation") / FILE).read_text("utf-8")
    content = json.loads(text)
    return tuple(
        _row(content, table, row, benchmark)
        for table in content["tables"]
        for row in table["rows"]
        for benchmark in table["trained_on"]
        if benchmark in row
    )


def _row(
    content: dict[str, Any], table: dict[str, Any], row: dict[str, Any], benchmark: str
) -> Row:
    trained_on = "" if row.get("zero_shot") else table["trained_on"][benchmark]
    method = row["method"]
    leaky = benchmark == "long_dci_hn" and trained_on.endswith("DCI")
    cautions = (
        _LEAK if leaky else "",
        _OVERLAP if benchmark == "urban1k" and trained_on == "VG paragraphs" else "",
        content["methods"].get(method, ""),
        table.get("notes", {}).get(benchmark, ""),
        row.get("notes", {}).get(benchmark, ""),
        row.get("note", ""),
    )
    return Row(
        benchmark=benchmark,
        method=method,
        backbone=table["backbone"],
        trained_on=trained_on,
        source=f"{content['papers'][table['paper']]}, {table['table']}",
        metrics={
            f"{direction}_r@{k}": value
            for direction, values in zip(("t2i", "i2t"), row[benchmark], strict=True)
            for k, value in zip(table["ranks"], values, strict=False)
        },
        decimals=table["decimals"],
        doubtful=tuple(row.get("doubtful", {}).get(benchmark, ())),
        leaky=leaky,
        notes=tuple(filter(None, cautions)),
    )
