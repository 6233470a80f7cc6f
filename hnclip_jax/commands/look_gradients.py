"""`hnclip look gradients`: the gradients of both losses over runs that logged them."""

from absl import flags

from hnclip_jax.analysis import gradients, gradients_plot, gradients_tables
from hnclip_jax.commands import look, run_folders

EXAMPLE = "hnclip look gradients runs/plain=InfoNCE runs/hn=HN-CLIP --window=100"

_GRID = "data.fraction x data.train"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    look.define_out(values, "gradients")
    flags.DEFINE_integer(
        "window",
        0,
        f"steps over which the running median is taken; 0 = {gradients.WINDOW:.0%} of each run",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_bool(
        "grid",
        False,
        f"{_GRID}: a column per share of the training data, a row per list, instead of a column "
        "per run",
        flag_values=values,
    )


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Draws the picture, prints the medians, writes both."""
    look.check_out(values)
    histories = [one.history for one in run_folders.named(arguments, EXAMPLE)]
    layout = gradients.grid(histories) if values.grid else gradients.side_by_side(histories)
    measured = gradients.measure(histories, values.window)
    drawn = gradients_plot.draw(measured, layout)
    numbers = gradients_tables.to_json(measured)
    print(gradients_tables.summary(measured))
    look.write(values, drawn, numbers, gradients_tables.table(measured))
