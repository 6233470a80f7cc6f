"""`hnclip look runs`: recall of runs over epochs, or over the share of the data they trained on."""

from collections.abc import Sequence

from absl import flags

from hnclip_jax import types
from hnclip_jax.analysis import recall, recall_plot, recall_tables
from hnclip_jax.commands import look, looking, run_folders
from hnclip_jax.data import benchmarks
from hnclip_jax.evaluation import comparison, published
from hnclip_jax.training import logging

EXAMPLE = "hnclip look runs runs/plain_1=InfoNCE runs/plain_2=InfoNCE runs/hn_1 --metric=r@1"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    look.define_out(values, "runs")
    for name, default, choices, what in (
        ("metric", "r@1", recall.METRICS, "what is drawn, of both directions"),
        (
            "kind",
            "",
            ("", "epochs", "fraction"),
            "over epochs, or over shares of the training data; empty = these where runs differ in "
            "data.fraction",
        ),
        (
            "checkpoint",
            "last",
            ("last", "best"),
            "which evaluation of a run counts over shares of the data; best = of the highest "
            "average on the test set itself",
        ),
    ):
        flags.DEFINE_enum(name, default, choices, what, flag_values=values)
    for name, what in (
        ("reference", "result file of `hnclip eval --out`, drawn dotted; may be repeated"),
        (
            "published",
            "method that papers report on the runs' benchmark, drawn dotted, say 'HN-CLIP', or "
            "'HN-CLIP; 20 % of DOCCI' where there are several rows; may be repeated",
        ),
    ):
        flags.DEFINE_multi_string(name, [], what, flag_values=values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Draws the picture, prints its last numbers, writes both."""
    look.check_out(values)
    named = run_folders.named(arguments, EXAMPLE)
    first = _check_lists(named)
    histories = [one.history for one in named]
    by_fraction = values.kind == "fraction" or (
        not values.kind and len({one.settings.data.fraction for one in histories}) > 1
    )
    if values["checkpoint"].present and not by_fraction:
        raise types.UserError("--checkpoint goes with --kind=fraction: over epochs, all are drawn")
    references = _references(values, first)
    if by_fraction:
        drawn = recall.over_fractions(histories, values.metric, values.checkpoint)
    else:
        drawn = recall.over_epochs(histories, values.metric)
    _warn(named, drawn)
    about = {"checkpoint": values.checkpoint if by_fraction else "all", **_measured_on(first)}
    picture = recall_plot.draw(drawn, references, _title(about))
    numbers = {**about, **recall_tables.to_json(drawn, references)}
    print(recall_tables.summary(drawn, references))
    look.write(values, picture, numbers, recall_tables.table(drawn))


def _check_lists(named: Sequence[run_folders.Named]) -> comparison.Measured | None:
    """Returns the first result of a run, if all were measured alike.

    Raises:
      types.UserError: if two were measured on different lists.
    """
    found = [
        (one.run.path, step, measured)
        for one in named
        for step, measured in one.run.results
        if step is not None
    ]
    for one in named:
        if not any(path == one.run.path for path, _, _ in found):
            logging.say(
                f"{one.run.path} has no result files in eval/, so nothing says which list its "
                "recall is of"
            )
    if not found:
        return None
    path, step, first = found[0]
    told = set()
    for other, at, measured in found[1:]:
        mismatches = comparison.mismatches(first, measured)
        decisive = [str(one) for one in mismatches if one.decisive]
        if decisive:
            raise types.UserError(
                f"{path} (step {step}) and {other} (step {at}) were not measured on the same: "
                f"{'; '.join(decisive)}; draw them apart, or measure them again by `hnclip eval`"
            )
        if mismatches and other not in told:
            told.add(other)
            logging.say(f"{other} differs from {path} in {'; '.join(map(str, mismatches))}")
    return first


def _references(
    values: flags.FlagValues, first: comparison.Measured | None
) -> list[recall.Reference]:
    found = []
    for path, measured in zip(values.reference, comparison.read(values.reference), strict=True):
        decisive = [
            str(one)
            for one in (comparison.mismatches(first, measured) if first else ())
            if one.decisive
        ]
        if decisive:
            raise types.UserError(
                f"{path} was not measured on the same as the runs: {'; '.join(decisive)}; give a "
                "result of their list"
            )
        found.append(recall.reference(measured.label, measured.metrics, values.metric))
    return found + [_published(text, first, values.metric) for text in values.published]


def _published(text: str, first: comparison.Measured | None, metric: str) -> recall.Reference:
    """Returns the row that "METHOD" or "METHOD; WORDS OF ITS DESCRIPTION" names."""
    name = first.benchmark if first else ""
    if name not in benchmarks.REGISTRY:
        raise types.UserError(
            f"--published={text} needs runs that were measured on a benchmark, but theirs is "
            f"{_measured_on(first)['list'] or 'not known'}; leave it out, or give --reference"
        )
    method, *words = (part.strip() for part in text.split(";"))
    rows = [row for row in published.rows(name) if f"t2i_{metric}" in row.metrics]
    if method not in {row.method for row in rows}:
        raise types.unknown_name(
            f"method with {metric} on {name}", method, {row.method for row in rows}
        )
    rows = [row for row in rows if row.method == method and all(w in _about(row) for w in words)]
    if not rows:
        raise types.UserError(f"no row of {method} on {name} has {'; '.join(words)!r} in it")
    if len(rows) > 1:
        others = types.at_most_ten([_about(row) for row in rows[1:]], " | ")
        logging.say(
            f"{method} has {len(rows)} rows on {name}; drawn is {_about(rows[0])}; others, by "
            f"--published='{method}; WORDS': {others}"
        )
    doubt = "?" if {*rows[0].doubtful} & {f"t2i_{metric}", f"i2t_{metric}"} else ""
    return recall.reference(f"{method}{doubt} ({_about(rows[0])})", rows[0].metrics, metric)


def _about(row: published.Row) -> str:
    return f"{row.backbone}; {row.trained_on or 'zero-shot'}; {row.source}"


def _warn(named: Sequence[run_folders.Named], drawn: recall.Drawn) -> None:
    for one in named:
        total = f" of {one.run.total}" if one.run.total else ""
        if not one.run.has_weights or one.run.last_step < one.run.total:
            logging.say(f"{one.run.path} did not come to its end: step {one.run.last_step}{total}")
    for curve in drawn.curves:
        seeds = [(run.fraction, run.history.settings.train.seed) for run in curve.runs]
        if len({*seeds}) < len(seeds):
            logging.say(f"{curve.label}: a seed stands twice, so the spread is too small")


def _measured_on(first: comparison.Measured | None) -> dict[str, object]:
    held = first.protocol if first else {}
    return {name: held.get(name) for name in ("benchmark", "list", "list_sha256", "captions")}


def _title(about: dict[str, object]) -> str:
    listed = about["benchmark"] or (about["list"] and looking.short(str(about["list"])))
    parts = [f"measured on {listed}, {about['captions']} captions"] if listed else []
    if about["checkpoint"] == "best":
        parts.append("best evaluation of each run, chosen on this list itself")
    return "; ".join(parts)
