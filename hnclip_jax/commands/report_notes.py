"""What `hnclip report` says below results: intervals, differences, protocols, published rows."""

from collections.abc import Iterator, Sequence

from hnclip_jax.commands import report_chosen
from hnclip_jax.evaluation import comparison, published


def notes(chosen: Sequence[report_chosen.Chosen], quoted: Sequence[published.Row]) -> Iterator[str]:
    """Yields what to know before comparing, in sentences.

    Args:
      chosen: the evaluations on one list.
      quoted: published rows beside them.
    """
    own = list(dict.fromkeys(one.name for one in chosen if one.measured.intervals))
    told = f"from the bootstrap of the result file for {', '.join(own)}, else " if own else ""
    yield f"Intervals are of 95 %, {told}binomial, from the number of queries."
    if len({one.name for one in chosen}) > 1:
        yield (
            f"Differences are to {chosen[0].name}. Better and worse are beyond the 95 % interval "
            "of a difference of two independent numbers; what lies within it may be chance."
        )
    rules = list(dict.fromkeys(one.rule for one in chosen if one.kind == "best"))
    if rules:
        yield (
            f"The best evaluation is chosen by {' or '.join(rules)} on this very list, so it looks "
            "better than it is."
        )
    yield from _mismatches(chosen)
    yield from _cautions(quoted)


def sources(quoted: Sequence[published.Row]) -> list[str]:
    """Returns the papers and tables of published rows, each once; rows name them by number."""
    return list(dict.fromkeys(row.source for row in quoted))


def _mismatches(chosen: Sequence[report_chosen.Chosen]) -> Iterator[str]:
    for one in chosen:
        first = report_chosen.reference(chosen, one)
        found = comparison.mismatches(first, one.measured)
        decisive = [str(mismatch) for mismatch in found if mismatch.decisive]
        other = [str(mismatch) for mismatch in found if not mismatch.decisive]
        if decisive and one.measured is not first:
            yield f"{one.name}, {one.what}, cannot be compared: {'; '.join(decisive)}."
        if other:
            yield f"{one.name}, {one.what}, differs in {'; '.join(other)}."


def _cautions(quoted: Sequence[published.Row]) -> Iterator[str]:
    """Yields what to know of published rows, each caution once, with the methods it is of."""
    for number, source in enumerate(sources(quoted), 1):
        yield f"[{number}] {source}"
    if any(row.doubtful for row in quoted):
        yield "?: the paper's number does not fit the benchmark, or may be of another one."
    methods: dict[str, dict[str, None]] = {}
    for row in quoted:
        for note in row.notes:
            methods.setdefault(note, {})[row.method] = None
    for note, names in methods.items():
        yield f"{', '.join(names)}: {note}."
