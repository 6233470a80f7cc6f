"""Which evaluations of runs `hnclip report` shows: of each run and list the latest and the best."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hnclip_jax.commands import run_folders
from hnclip_jax.evaluation import comparison

_HASHES = ("content_sha256", "list_sha256", "data_sha256")

Series = list[tuple[int | None, comparison.Measured]]
"""Evaluations with their steps; None = not known."""


class Chosen(NamedTuple):
    """An evaluation of a run.

    name: of the run.
    kind: "latest" or "best".
    when: its step, or its file.
    measured: the result file.
    rule: what the best is chosen by.
    """

    name: str
    kind: str
    when: str
    measured: comparison.Measured
    rule: str

    @property
    def what(self) -> str:
        """Returns which evaluation it is."""
        return f"{self.kind}, {self.when}"


def by_list(runs: Sequence[run_folders.Run], names: Sequence[str]) -> list[list[Chosen]]:
    """Returns the evaluations that are shown of each list that something was measured on.

    Args:
      runs: with the result files of their eval/ folders.
      names: of the runs.
    """
    found: dict[str, list[Chosen]] = {}
    for name, run in zip(names, runs, strict=True):
        own: dict[str, Series] = {}
        for step, measured in run.results:
            own.setdefault(_identity(measured), []).append((step, measured))
        for key, series in own.items():
            found.setdefault(key, []).extend(_chosen(name, run, series))
    return list(found.values())


def reference(chosen: Sequence[Chosen], one: Chosen) -> comparison.Measured:
    """Returns what an evaluation is held against: the first run's of that kind, else its latest."""
    of_first = [other for other in chosen if other.name == chosen[0].name]
    same = (other for other in of_first if other.kind == one.kind)
    return next(same, of_first[0]).measured


def _identity(measured: comparison.Measured) -> str:
    """Returns what results on one list have in common."""
    held = measured.protocol
    known = next((held[name] for name in _HASHES if name in held), "")
    return measured.benchmark or str(known or held.get("list") or held.get("data"))


def _chosen(name: str, run: run_folders.Run, series: Series) -> Iterator[Chosen]:
    """Yields the latest evaluation of a run, and the best if that is another one."""
    own = run.settings.train.best_metric.removeprefix("eval/")
    wanted = [own] if own else [f"{direction}_r@1" for direction in comparison.DIRECTIONS]
    rule = own or "the mean of both R@1"

    def height(found: tuple[int | None, comparison.Measured]) -> float:
        return sum(found[1].metrics.get(metric, 0.0) for metric in wanted)

    # A file that names no step was written by hand, after the run.
    latest = max(series, key=lambda found: (found[0] is None, found[0] or 0))
    best = max(series, key=height)
    yield Chosen(name, "latest", _when(latest), latest[1], rule)
    if height(best) > height(latest):
        yield Chosen(name, "best", _when(best), best[1], rule)


def _when(found: tuple[int | None, comparison.Measured]) -> str:
    step, measured = found
    return measured.label if step is None else f"step {step:,}"
