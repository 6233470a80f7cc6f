"""Which runs the controls are: what each variant changes, and the settings of every run."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hnclip_jax import config, types
from hnclip_jax.data import grouping
from hnclip_jax.training import folder


class Variant(NamedTuple):
    """What is compared.

    label: what tables and pictures call it.
    changes: "group.field" -> value, against plain InfoNCE with the rest of the settings.
    boosted: whether loss.gamma of the settings acts; otherwise it is 0.
    """

    label: str
    changes: Mapping[str, Any] = {}
    boosted: bool = True


PLAIN, BOOSTED = "gamma_0", "hn"
"""The two that all others are held against."""

FIXED_SCALE = 20.0
"""s of `fixed_s`. A pair counts as solved (loss below 1e-3) once its cosine leads those of its 63
negatives by 0.11 at s = 100; with a boost of gamma G = 0.5 x 0.85, by 0.53. Without a boost, s = 21
asks for the same lead."""

WIDE_MARGIN = 0.35
"""Of `wide`: gamma = 0.5 times 0.7, which is a usual G of the hardest companion of a caption."""

_SCALE_FIXED = {"optim.logit_scale_init": FIXED_SCALE, "optim.freeze_logit_scale": True}

VARIANTS = {
    PLAIN: Variant("InfoNCE (gamma 0)", boosted=False),
    BOOSTED: Variant("HN-CLIP, gamma G"),
    "constant": Variant("constant, gamma mean G", {"loss.kind": "constant"}),
    "wide": Variant(
        f"constant, {WIDE_MARGIN:g}",
        {"loss.kind": "constant", "loss.constant_margin": WIDE_MARGIN},
    ),
    "centred": Variant("centred, gamma (G - mean)", {"loss.kind": "centred"}),
    "row_centred": Variant("row-centred G", {"loss.kind": "row_centred"}),
    "row_shuffled": Variant("row-shuffled G", {"loss.kind": "row_shuffled"}),
    "frozen": Variant("frozen G", {"loss.kind": "frozen"}),
    "fixed_s": Variant(f"InfoNCE, s fixed at {FIXED_SCALE:g}", _SCALE_FIXED, boosted=False),
    "fixed_s_hn": Variant(f"HN-CLIP, s fixed at {FIXED_SCALE:g}", _SCALE_FIXED),
    "smoothing": Variant(
        "InfoNCE, label smoothing 0.1", {"loss.label_smoothing": 0.1}, boosted=False
    ),
    "grouped": Variant("InfoNCE, grouped batches", {"data.grouping": "captions"}, boosted=False),
    "grouped_hn": Variant("HN-CLIP, grouped batches", {"data.grouping": "captions"}),
}
"""Name -> what it changes. All of one seed see the same data in the same order; but for the grouped
ones, whose order is another by design, and the same for both."""

PAIRS = {BOOSTED: PLAIN, "grouped_hn": "grouped", "fixed_s_hn": "fixed_s"}
"""With the boost -> the same without: what it adds where all else is equal."""

_COMMON = {
    "loss.kind": "hn_clip",
    "loss.constant_margin": -1.0,
    "loss.label_smoothing": 0.0,
    "data.grouping": "none",
}
_PLAIN = {"loss.gamma": 0.0, "loss.gamma_by_epoch": ()}
_FROM_BASE = {
    "model.init": "weights",
    "model.preset": "",
    "model.stretch": 0,
    "model.activation": "",
    "model.adapter": "",
    "loss.gamma_start_step": 0,
}


class Job(NamedTuple):
    """A run of the controls.

    variant: its name; "base" for what the others of the seed start from.
    needs: the folder of the run that has to be complete before; None = none.
    """

    variant: str
    seed: int
    settings: config.Config
    path: pathlib.Path
    needs: pathlib.Path | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.variant}, seed {self.seed}"


def jobs(
    base: config.Config, names: Sequence[str], seeds: int, out: pathlib.Path, base_steps: int = 0
) -> list[Job]:
    """Returns all runs, seed after seed, so that what is complete can be compared early.

    Args:
      base: settings that all have in common; its loss.gamma is that of the boosted ones.
      names: of variants.
      seeds: how many; train.seed, train.seed + 1, ... Each is the seed of the order of the data.
      out: folder of the run folders.
      base_steps: steps of plain InfoNCE from whose weights all runs of a seed start; 0 = none, they
        start as `base` says.

    Raises:
      types.UserError: if settings do not fit, or a folder holds a run of other settings.
    """
    _check(base, names, base_steps)
    found = []
    for seed in range(base.train.seed, base.train.seed + seeds):
        shared = changed(base, {"train.seed": seed} | _COMMON)
        began = out / f"base_seed{seed}" if base_steps else None
        if began:
            first = {"train.steps": base_steps, "train.epochs": 0} | _PLAIN
            found.append(Job("base", seed, changed(shared, first), began))
            shared = changed(shared, _FROM_BASE | {"model.weights": str(began.absolute())})
        for name in names:
            path = out / f"{name}_seed{seed}"
            found.append(Job(name, seed, varied(shared, VARIANTS[name]), path, began))
    for job in found:
        folder.RunFolder(job.path).check(job.settings)
    return found


def varied(shared: config.Config, variant: Variant) -> config.Config:
    """Returns the settings of a variant."""
    made = changed(shared, ({} if variant.boosted else _PLAIN) | dict(variant.changes))
    if made.data.grouping != "none":
        grouping.check(
            made.data.group_size, made.train.global_batch_size // made.train.micro_batches
        )
    return made


def changed(settings: config.Config, changes: Mapping[str, Any]) -> config.Config:
    """Returns settings with other values, {"group.field": value}, checked."""
    values = dataclasses.asdict(settings)
    for name, value in changes.items():
        group, field = name.split(".")
        values[group][field] = value
    return config.from_config_dict(values)


def _check(base: config.Config, names: Sequence[str], base_steps: int) -> None:
    for name in names:
        if name not in VARIANTS:
            raise types.unknown_name("variant", name, VARIANTS)
    if len(set(names)) < 2 or not {PLAIN, BOOSTED} & {*names}:
        raise types.UserError(
            f"--variants names {', '.join(names) or 'none'}; to compare needs at least two, one of "
            f"them {PLAIN} or {BOOSTED}"
        )
    config.check_start(base.model)
    if not base.eval.data or 1 not in base.eval.ks:
        raise types.UserError("controls compare R@1: set eval.data, and have 1 in eval.ks")
    if not base.loss.gamma > 0:
        raise types.UserError(
            f"loss.gamma is {base.loss.gamma:g}, but is the strength of the variants that have a "
            "boost; give one above 0, say 0.5"
        )
    starts, steps = base.loss.gamma_start_step, base.train.steps
    if not base_steps and steps and starts >= steps:
        raise types.UserError(
            f"gamma would act from step {starts} on, but runs have {steps} steps; set "
            "loss.gamma_start_step=0, or let --base_steps take its place"
        )
