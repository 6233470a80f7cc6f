"""`hnclip look geometry`: how alike captions are, and what the boost would be there."""

import contextlib

from absl import flags

from hnclip_jax import types
from hnclip_jax.analysis import (
    boost,
    geometry,
    geometry_batch,
    geometry_plot,
    geometry_series,
)
from hnclip_jax.commands import look, looking
from hnclip_jax.training import logging

EXAMPLE = (
    "hnclip look geometry --weights=longclip-L.pt,runs/demo --data=data/scenes/train.json "
    "--out=figures"
)


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    looking.define_flags(values)
    flags.DEFINE_float("gamma", 0.5, "strength of the boost that is looked at", flag_values=values)
    flags.DEFINE_float(
        "scale",
        None,
        "inverse temperature s = exp(logit_scale); that of the weights, if it is not given",
        lower_bound=0.0,
        flag_values=values,
    )
    numbers = (
        ("batch", 16, "captions in the batch whose matrix is drawn", 2),
        ("batch_pairs", 128, "pairs in the batches in which solved rows are counted", 2),
        ("seed", 0, "of the choice of these batches", 0),
    )
    for name, default, what, least in numbers:
        flags.DEFINE_integer(name, default, what, lower_bound=least, flag_values=values)
    flags.DEFINE_boolean(
        "captions_only",
        False,
        "embed no pictures, which takes longest; solved rows are not counted then",
        flag_values=values,
    )
    look.define_out(values, "geometry")


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints what the captions are like and what the boost would be; writes picture and numbers."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; flags begin with --")
    look.check_out(values)
    geometry_plot.check(len(values.embeddings) or len(values.weights) * len(values.data))
    looked = looking.look(values, values.weights, EXAMPLE, captions_only=values.captions_only)
    scales = [_scale(values, one) for one in looked]
    labels = geometry_series.labels([(one.weights, one.data) for one in looked])
    series = []
    for label, one, scale in zip(labels, looked, scales, strict=True):
        series.append(_series(values, label, one, scale))
        print(f"{'' if len(series) == 1 else chr(10)}{series[-1].text()}")
    settings = {name: getattr(values, name) for name in ("seed", "batch", "batch_pairs")}
    drawn = geometry_plot.draw(series)
    numbers = geometry_series.numbers(series, settings)
    look.write(values, drawn, numbers, geometry_series.table(series))


def _scale(values: flags.FlagValues, one: looking.Looked) -> float:
    scale = one.scale if values.scale is None else values.scale
    if scale is None:
        raise types.UserError(
            f"the embeddings in {one.weights} do not say s = exp(logit_scale) of their weights; "
            "give it by --scale, for example --scale=100"
        )
    return scale


def _series(
    values: flags.FlagValues, label: str, one: looking.Looked, scale: float
) -> geometry_series.Series:
    with contextlib.closing(logging.Progress(f"comparing captions, {label}", "pair")) as progress:
        measured = geometry.measure(one.text, one.pair_ids, progress)
    solved = None
    if one.image is not None and not values.captions_only:
        solved = boost.count_solved(
            one.image,
            one.text,
            one.text_to_image,
            one.pair_ids,
            scale=scale,
            gamma=values.gamma,
            size=values.batch_pairs,
            seed=values.seed,
        )
    return geometry_series.Series(
        label,
        measured,
        geometry_batch.draw(one.text, one.pair_ids, one.captions, values.batch, values.seed),
        boost.predict(measured.mean, measured.std, scale=scale, gamma=values.gamma, solved=solved),
        one.provenance,
    )
