"""What a train step costs on a pod, without the pod: memory, FLOPs, collectives, largest batch.

    python tools/plan.py --config=configs/longclip_l.py:docci,hn,tokens=off --topology=v5e:16x16 \
        --per_chip=32 --remat=full --config.train.micro_batches=1 --config.parallel.fsdp=16

The real step is compiled ahead of time by the TPU's own compiler (pip install 'hnclip_jax[plan]'),
or for so many CPU devices (cpu:8). docs/planning.md says what each line means. --rules compiles
nothing and prints how every parameter lies on the mesh.
"""

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from absl import flags
from ml_collections import config_flags

# As a file, Python would look for modules beside it only.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from hnclip_jax import config, types
from tools import plan_chips, plan_largest, plan_rules, plan_step, program

_REMAT = ("none", "dots", "full")


class Plan(NamedTuple):
    """One column: a topology with one choice of remat.

    figures: with the config's boost.
    plain: the same with gamma 0; None = not asked for, or there is no boost.
    largest: pairs per chip of the largest batch that fits; None = not asked for.
    """

    case: plan_step.Case
    figures: plan_step.Figures
    plain: plan_step.Figures | None
    largest: int | None


def main(argv: Sequence[str]) -> None:
    """Runs one command line.

    Raises:
      types.UserError: for a mistake in it.
    """
    values = _flags(argv)
    if {"--help", "-h"} & set(argv):
        print(f"{__doc__}\n{values.get_help()}")
        return
    _parse(values, argv)
    # Whatever accelerator this machine has stays untouched, and does not change what is traced.
    jax.config.update("jax_platforms", "cpu")
    settings = _settings(values)
    targets = plan_chips.find(values.topology, int(values.memory_gb * 1e9))
    if values.rules:
        _print_rules(settings, targets)
        return
    planner = plan_step.Planner(settings, lambda text: print(text, file=sys.stderr, flush=True))
    rows = []
    for target in targets:
        per_chip = values.per_chip or _per_chip(settings, target)
        cases = [
            plan_step.Case(target, per_chip, remat)
            for remat in values.remat or [settings.model.remat]
        ]
        plans = [_plan(planner, case, settings, values) for case in cases]
        print(f"\n{_title(settings, cases[0])}\n\n{table(plans)}", flush=True)
        rows += [as_json(plan) for plan in plans]
    if values.out:
        program.write(pathlib.Path(values.out), json.dumps(rows, indent=2))


def _flags(argv: Sequence[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    config_flags.DEFINE_config_file(
        "config", None, "config file", flag_values=values, sys_argv=list(argv), lock_config=True
    )
    define = {"flag_values": values}
    flags.DEFINE_list(
        "topology", None, "v5e:16x16, v5p:4x4x4, cpu:8, ...: one or several", **define
    )
    flags.DEFINE_integer(
        "per_chip", 0, "pairs per device and step; 0 = by train.global_batch_size", 0, **define
    )
    flags.DEFINE_list("remat", None, "none, dots, full: one or several; as in the config", **define)
    flags.DEFINE_boolean("largest", True, "look for the largest batch: some compilations", **define)
    flags.DEFINE_boolean("boost", True, "compare with gamma 0: one more compilation", **define)
    flags.DEFINE_boolean("rules", False, "print where every parameter lies, and end", **define)
    flags.DEFINE_float("memory_gb", 0, "GB of a device, instead of the chip's own", 0, **define)
    flags.DEFINE_string("out", None, "JSON file to write", **define)
    return values


def _parse(values: flags.FlagValues, argv: Sequence[str]) -> None:
    try:
        left = values(list(argv))[1:]
    except Exception as error:
        # Config files raise what they like, and absl wraps it in a whole traceback as text.
        raise types.UserError(str(error).strip().splitlines()[-1]) from error
    if left:
        raise types.UserError(f"does not understand {left[0]!r}; flags begin with --")
    if values.config is None or not values.topology:
        raise types.UserError("needs --config and --topology, say --topology=v5e:16x16")
    for remat in values.remat or ():
        if remat not in _REMAT:
            raise types.unknown_name("value of --remat:", remat, _REMAT)


def _settings(values: flags.FlagValues) -> config.Config:
    try:
        settings = config.from_config_dict(values.config)
    except OSError as error:
        path = config_flags.get_config_filename(values["config"])
        raise types.UserError(f"there is no config file {path}") from error
    if not settings.model.preset:
        raise types.UserError(
            "model.preset is empty; name the architecture, weights are not read to plan"
        )
    return settings


def _print_rules(settings: config.Config, targets: Sequence[plan_chips.Target]) -> None:
    for target in targets:
        devices = len(target.devices)
        print(f"\n{target.name}: {devices} devices, fsdp {settings.parallel.fsdp}\n")
        print(plan_rules.table(plan_rules.of(settings, target)), flush=True)


def _per_chip(settings: config.Config, target: plan_chips.Target) -> int:
    pairs, devices = settings.train.global_batch_size, len(target.devices)
    if pairs % devices:
        raise types.UserError(
            f"train.global_batch_size ({pairs}) does not split evenly over the {devices} devices "
            f"of {target.name}; say --per_chip"
        )
    return pairs // devices


def _plan(
    planner: plan_step.Planner, case: plan_step.Case, settings: config.Config, values: Any
) -> Plan:
    figures = planner.figures(case)
    plain = largest = None
    if values.boost and figures.flops and _boosted(settings):
        plain = planner.figures(case._replace(boost=False))
    if values.largest and case.target.memory:
        grain = settings.train.micro_batches * settings.train.gradient_cache

        def need(size: int) -> float | None:
            made = planner.figures(case._replace(per_chip=size))
            return None if made.fault else made.peak

        start = max(case.per_chip // grain, 1) * grain
        largest = plan_largest.largest(need, start, grain, case.target.memory)
    return Plan(case, figures, plain, largest)


def _boosted(settings: config.Config) -> bool:
    return settings.loss.kind != "info_nce" and any(
        settings.loss.gamma_by_epoch or (settings.loss.gamma,)
    )


def _title(settings: config.Config, case: plan_step.Case) -> str:
    devices = case.target.devices
    loss, parallel = settings.loss, settings.parallel
    pairs = case.per_chip * len(devices)
    return (
        f"{case.target.name}: {len(devices)} x {devices[0].device_kind}, "
        f"fsdp {parallel.fsdp}, {case.per_chip} pairs per chip, {pairs:,} in all; "
        f"{settings.model.preset}, {settings.model.dtype}, {loss.kind}, gamma {loss.gamma:g}, "
        f"{settings.train.micro_batches} micro-batches, jax {jax.__version__}"
    )


def table(plans: Sequence[Plan]) -> str:
    """Returns a column for each plan, and below them what cannot run."""
    lines = [("per device, remat", *(plan.case.remat for plan in plans))]
    names = list(dict.fromkeys(name for plan in plans for name in _cells(plan)))
    for name in names:
        lines.append((name, *(_cells(plan).get(name, "-") for plan in plans)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(
            [line[0].ljust(widths[0])]
            + [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
        )
        for line in lines
    ]
    faults = [f"{plan.case.remat}: {plan.figures.fault}" for plan in plans if plan.figures.fault]
    return "\n".join(shown + faults)


def _cells(plan: Plan) -> dict[str, str]:
    """Returns the lines of a plan's column."""
    made, memory = plan.figures, plan.case.target.memory
    cells = {}
    if made.peak:
        for name in (
            "parameters",
            "frozen",
            "optimizer",
            "batch",
            "temporaries",
            "program",
            "peak",
        ):
            cells[f"{name}, GB"] = f"{getattr(made, name) / 1e9:.3f}"
        if memory:
            cells[f"peak, % of {memory / 1e9:.2f} GB"] = f"{100 * made.peak / memory:.1f}"
        cells["TFLOP of matrix products"] = f"{made.flops / 1e12:.4g}"
        cells["read and written, GB"] = f"{made.moved / 1e9:.4g}"
        for kind, traffic in made.collectives.items():
            cells[f"{kind}, count: GB"] = f"{traffic.count}: {traffic.bytes / 1e9:.4g}"
    if plan.plain is not None:
        cells |= _boost(made, plan.plain)
    if plan.largest is not None:
        cells["largest batch per chip"] = f"{plan.largest}" if plan.largest else "none fits"
    if made.seconds:
        cells["compiled in, s"] = f"{made.seconds:.0f}"
    return cells


def _boost(made: plan_step.Figures, plain: plan_step.Figures) -> dict[str, str]:
    if not plain.peak:
        return {"boost": "gamma 0 does not compile"}
    same = made.collectives == plain.collectives
    more = sum(x.count for x in made.collectives.values())
    more -= sum(x.count for x in plain.collectives.values())
    return {
        "boost: FLOPs, %": f"{100 * (made.flops / plain.flops - 1):+.3f}",
        "boost: peak, %": f"{100 * (made.peak / plain.peak - 1):+.3f}",
        "boost: collectives": "the same" if same else f"{more:+d}",
    }


def as_json(plan: Plan) -> dict[str, Any]:
    """Returns a plan as JSON values; sizes are bytes per device."""

    def plainly(figures: plan_step.Figures) -> dict[str, Any]:
        collectives = {kind: x._asdict() for kind, x in figures.collectives.items()}
        return figures._asdict() | {"collectives": collectives}

    case = plan.case
    return {
        "topology": case.target.name,
        "devices": len(case.target.devices),
        "memory": case.target.memory,
        "per_chip": case.per_chip,
        "remat": case.remat,
        "largest_per_chip": plan.largest,
        **plainly(plan.figures),
        "gamma_0": plan.plain and plainly(plan.plain),
    }


if __name__ == "__main__":
    program.run("plan", main)
