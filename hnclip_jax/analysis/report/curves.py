"""The section of curves: what the runs logged, all of them in one chart for each number."""

from collections.abc import Sequence

from hnclip_jax.analysis import history
from hnclip_jax.analysis.report import charts, markup

CURVES = (
    ("train/loss", "Loss", False),
    ("train/info_nce", "InfoNCE, without margin", False),
    ("train/solved_plain", "Share of pairs that InfoNCE has solved", False),
    ("train/scale", "Inverse temperature s", False),
    ("train/g_mean", "Mean cosine of different captions", False),
    ("train/g_hardest", "Mean cosine with the hardest caption", False),
    ("eval/t2i_r@1", "R@1 text to image, percent", False),
    ("eval/i2t_r@1", "R@1 image to text, percent", False),
    ("gradients/info_nce", "InfoNCE, at measured gradients", True),
    ("gradients/global", "Global term, at measured gradients", True),
    ("gradients/norm_info_nce", "Gradient norm, InfoNCE", True),
    ("gradients/norm_global", "Gradient norm, global term", True),
    ("gradients/max_info_nce", "Largest gradient entry, InfoNCE", True),
    ("gradients/max_global", "Largest gradient entry, global term", True),
    ("gradients/ratio", "Gradient norm, global over InfoNCE", True),
    ("gradients/cosine", "Cosine of both gradients", False),
    ("gradients/solved", "Solved share, at measured gradients", False),
)
"""Key of metrics.jsonl, title, and whether its axis is logarithmic."""


def render(runs: Sequence[history.History]) -> markup.Html:
    """Returns a chart for every key of `CURVES` that a run has logged, all runs in each.

    Args:
      runs: with names that tell them apart.
    """
    made = []
    for key, title, log in CURVES:
        series = [(one.name, *one.series(key)) for one in runs]
        lines = [
            charts.Line(name, steps, values, place)
            for place, (name, steps, values) in enumerate(series)
            if len(steps)
        ]
        if lines:
            made.append(charts.chart(title, "step", lines, log=log))
    if not made:
        return markup.tag("p", "None of the runs has logged anything yet.")
    return markup.tag("div", *made, class_="charts")
