"""Run folders against the cells of the paper: which cell a run is, and how far it is from it."""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

from configs import longclip_l
from hnclip_jax import config, types
from hnclip_jax.commands import run_folders
from hnclip_jax.data import benchmarks
from hnclip_jax.evaluation import comparison
from tools import paper_cells

_ANY = (
    "data.", "eval.", "log.", "parallel.", "loss.block_rows", "model.remat", "model.scan_layers",
    "model.weights", "train.keep_checkpoints", "train.save_every_steps", "train.seed",
)  # fmt: skip
"""Settings, or beginnings of them, that may be anything."""

_OPEN = (
    "loss.guard_same_pair", "loss.token_detach", "loss.token_include", "loss.token_scale",
    "loss.token_symmetric", "method.adapter_alpha", "method.adapter_t", "method.finelip_ramp",
    "method.finelip_tokens", "method.global_weight", "method.goal_mode", "method.structxlip_mode",
    "model.dtype", "optim.b1", "optim.b2", "optim.eps", "optim.freeze_logit_scale",
    "optim.logit_scale", "optim.max_", "optim.warmup_steps", "optim.weight_decay",
    "train.best_metric", "train.micro_batches",
)  # fmt: skip
"""Settings that the paper leaves open: runs that differ in them are told apart, not refused."""

_PROTOCOL = {
    "context_length": 248, "image_size": 224, "exif_orientation": "ignore", "score": "cosine",
}  # fmt: skip
"""How the paper measures; what a result file does not say is so."""

_TRAINED_BY = {
    "docci": ("docci",),
    "dci": ("dci", "densely_captioned"),
    "urban1k": ("vg", "visual_genome", "visualgenome", "paragraph"),
}
"""Set -> what the path of its training list contains; "dci" is found in no "docci"."""


class Found(NamedTuple):
    """A run's result for a cell; differs: in what the paper leaves open."""

    cell: paper_cells.Cell
    run: run_folders.Run
    step: int | None
    measured: comparison.Measured
    differs: str


def collect(
    runs: Iterable[run_folders.Run], checkpoint: str = "last"
) -> tuple[list[Found], list[str]]:
    """Returns the results that belong to cells, and a sentence about each that does not.

    Args:
      runs: from `run_folders.read`.
      checkpoint: "last", or "best" for the evaluation of the highest mean R@1.
    """
    found: list[Found] = []
    remarks: list[str] = []
    for run in runs:
        try:
            cells, differs = _cells(run)
            for name, (step, measured) in _chosen(run, checkpoint, remarks).items():
                cell = next((cell for cell in cells if cell.benchmark == name), None)
                if cell:
                    found.append(Found(cell, run, step, measured, differs))
                else:
                    remarks.append(f"{run.path}: no cell of such a run is measured on {name}")
        except types.UserError as error:
            remarks.append(f"{run.path}: {error}")
    return found, remarks


def rows(found: Iterable[Found]) -> list[dict[str, Any]]:
    """Returns a JSON object per cell (and per variant of what is open): mean over runs, spread."""
    groups: dict[tuple[str, str], list[Found]] = {}
    for one in found:
        groups.setdefault((one.cell.id, one.differs), []).append(one)
    order = [cell.id for cell in paper_cells.cells()]
    return [
        {
            "id": name,
            "tables": list(group[0].cell.tables),
            "benchmark": group[0].cell.benchmark,
            "differs": differs,
            "seeds": [one.run.settings.train.seed for one in group],
            "runs": [str(one.run.path) for one in group],
            "steps": [one.step for one in group],
            "metrics": {
                metric: _numbers(group, metric)
                for metric in paper_cells.METRICS
                if all(metric in one.measured.metrics for one in group)
            },
        }
        for (name, differs), group in sorted(
            groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
        )
    ]


def _numbers(group: list[Found], metric: str) -> dict[str, Any]:
    values = [one.measured.metrics[metric] for one in group]
    mean, cell = statistics.fmean(values), group[0].cell
    numbers: dict[str, Any] = {"mean": mean, "low": min(values), "high": max(values)}
    if len(values) > 1:
        numbers["deviation"] = statistics.stdev(values)
    if cell.published(metric) != paper_cells.NOT_READ:
        first = group[0].measured
        published = dataclasses.replace(first, metrics=dict(cell.row.metrics), intervals={})
        ours = dataclasses.replace(first, metrics={metric: mean}, intervals={})
        numbers["published"] = cell.row.metrics[metric]
        numbers["doubtful"] = metric in cell.row.doubtful
        numbers["difference"] = mean - cell.row.metrics[metric]
        numbers["verdict"] = comparison.verdict(published, ours, metric)
    return numbers


def _cells(run: run_folders.Run) -> tuple[list[paper_cells.Cell], str]:
    """Returns the cells that a finished run may be, and in what open settings it differs.

    Raises:
      types.UserError: if it is none.
    """
    if not run.has_weights or run.last_step < run.total:
        of = f" of {run.total}" if run.total else ""
        raise types.UserError(f"is unfinished: step {run.last_step}{of}")
    trained_on = _trained_on(run.settings)
    known = [
        (_differences(cell.settings, run.settings), cell)
        for cell in paper_cells.cells()
        if longclip_l.SETS[cell.train].trained_on == trained_on
    ]
    differences, nearest = min(known, key=lambda pair: len(pair[0]))
    if differences:
        raise types.UserError(f"is no cell; nearest is {nearest.id}, but {_shown(differences)}")
    _check_size(run, nearest)
    mine = _differences(nearest.settings, run.settings, _OPEN)
    return [cell for other, cell in known if not other], _shown(mine)


def _check_size(run: run_folders.Run, cell: paper_cells.Cell) -> None:
    """Raises types.UserError if the training list was not of the paper's size."""
    batch = run.settings.train.global_batch_size
    whole = longclip_l.SETS[cell.train].pairs
    pairs = math.ceil(run.settings.data.fraction * whole - 5e-7)
    if (expected := max(pairs // batch, 1)) != run.per_epoch:
        raise types.UserError(
            f"is {cell.id} by its settings, but trained {run.per_epoch} steps per epoch instead of "
            f"{expected}: its list is not the paper's of {whole:,} pairs"
        )


def _trained_on(settings: config.Config) -> str:
    """Returns the training set, by the last part of the list's path that tells one."""
    for part in reversed(pathlib.PurePath(settings.data.train.lower()).parts):
        for name, words in _TRAINED_BY.items():
            if any(word in part for word in words):
                return longclip_l.SETS[name].trained_on
    for known in longclip_l.SETS.values():
        if known.benchmark == settings.eval.data:
            return known.trained_on
    raise types.UserError(
        f"its training list {settings.data.train!r} and eval.data {settings.eval.data!r} do not "
        "say which set of the paper they are; name the list's file or folder after it"
    )


def _differences(
    wanted: config.Config, given: config.Config, among: tuple[str, ...] = ()
) -> dict[str, tuple[Any, Any]]:
    """Returns the settings that differ: those that a cell hangs on, or those of `among`."""
    found = config.differences(_plain(wanted), _plain(given))
    if among:
        return {name: pair for name, pair in found.items() if name.startswith(among)}
    kept = {name: pair for name, pair in found.items() if not name.startswith((*_ANY, *_OPEN))}
    return kept | {name: pair for name, pair in found.items() if name == "data.fraction"}


def _plain(settings: config.Config) -> config.Config:
    """Returns the same with one spelling of InfoNCE: a boost of 0 is none."""
    loss = settings.loss
    if loss.kind == "info_nce" or (loss.kind in ("hn_clip", "frozen") and loss.gamma == 0):
        loss = dataclasses.replace(loss, kind="info_nce", gamma=0.0)
    return dataclasses.replace(settings, loss=loss)


def _chosen(
    run: run_folders.Run, checkpoint: str, remarks: list[str]
) -> dict[str, tuple[int | None, comparison.Measured]]:
    """Returns benchmark -> the result that counts; says of others why they do not."""
    found: dict[str, list[tuple[int | None, comparison.Measured]]] = {}
    for step, measured in run.results:
        fault = _fault(measured)
        if not fault:
            found.setdefault(measured.benchmark, []).append((step, measured))
        elif f"{run.path}: {fault}" not in remarks:
            remarks.append(f"{run.path}: {fault}")
    chosen = {}
    for name, results in found.items():
        at_end = [one for one in results if one[0] in (None, run.last_step)]
        if checkpoint == "best":
            chosen[name] = max(results, key=lambda one: _recall(one[1]))
        elif at_end:
            chosen[name] = at_end[-1]
        else:
            remarks.append(f"{run.path}: no result on {name} at its end, step {run.last_step}")
    if not run.results:
        remarks.append(f"{run.path}: its eval/ holds no results")
    return chosen


def _fault(measured: comparison.Measured) -> str:
    """Returns why a result may not stand beside the paper's, "" if it may."""
    held, name = measured.protocol, measured.benchmark
    if name not in benchmarks.REGISTRY:
        size = f"{held.get('captions', 'an unknown number of')} captions"
        return f"measured on {held.get('list')}, {size}, which is all of no benchmark"
    wrong = [
        f"{field} {held[field]!r} instead of {wanted!r}"
        for field, wanted in _PROTOCOL.items()
        if held.get(field, wanted) != wanted
    ]
    return f"measured on {name} with {', '.join(wrong)}" if wrong else ""


def _recall(measured: comparison.Measured) -> float:
    return sum(measured.metrics.get(f"{way}_r@1", 0.0) for way in comparison.DIRECTIONS)


def _shown(differences: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(
        f"{name} is {given!r} instead of {wanted!r}"
        for name, (wanted, given) in differences.items()
    )
