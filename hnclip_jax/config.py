"""Configuration: one frozen dataclass per group, made from a ConfigDict, every value checked here.

A config file returns `defaults()` with some values set. `from_config_dict` is called once, by the
command; below it a function takes the one group that it needs.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import ml_collections

from hnclip_jax import types


def _field(default: Any, doc: str, *, choices: tuple = (), minimum: float = -math.inf) -> Any:
    return dataclasses.field(
        default=default, metadata={"doc": doc, "choices": choices, "minimum": minimum}
    )


@dataclasses.dataclass(frozen=True)
class DataGroup:
    """The training list and how it is read."""

    train: str = _field("", "list file (JSON or JSON lines), or 'scenes' for the built-in set")
    image_root: str = _field(
        "", "folder of the pictures, where the list's own paths do not lead to them"
    )
    missing: str = _field("error", "what a missing picture does", choices=("error", "skip"))
    empty_caption: str = _field(
        "error", "what an empty caption does", choices=("error", "skip", "keep")
    )
    workers: int = _field(0, "processes that decode pictures; 0 = this one", minimum=0)
    vocabulary: str = _field("", "byte-pair vocabulary file; empty = the installed package's")
    scenes_dir: str = _field("data/scenes", "where 'scenes' are drawn on first use")
    scenes_seed: int = _field(0, "seed of the drawn set", minimum=0)
    scenes_train: int = _field(20_000, "training pairs of the drawn set", minimum=4)
    scenes_test_families: int = _field(300, "families of four in the drawn test gallery", minimum=1)
    scenes_family_share: float = _field(0.4, "share of drawn training pairs in families", minimum=0)


@dataclasses.dataclass(frozen=True)
class ModelGroup:
    """Which model, from which weights, computed how."""

    preset: str = _field("tiny", "architecture, a name from hnclip_jax.list_presets()")
    init: str = _field(
        "random", "'random', or a path of weights (run folder, weights folder or file)"
    )
    image_size: int = _field(0, "pixels; 0 = the preset's", minimum=0)
    context_length: int = _field(0, "tokens per caption; 0 = the preset's", minimum=0)
    dtype: str = _field("float32", "compute type of the towers", choices=("float32", "bfloat16"))
    scan_layers: bool = _field(True, "one compiled block for all layers of a tower")
    remat: str = _field(
        "none", "what is recomputed in the backward pass", choices=("none", "dots", "full")
    )


@dataclasses.dataclass(frozen=True)
class MethodGroup:
    """The fine-tuning method: a row of losses/objective.py."""

    name: str = _field("clip", "a row of losses.objective.METHODS")


@dataclasses.dataclass(frozen=True)
class LossGroup:
    """The contrastive loss and its boost."""

    kind: str = _field(
        "hn_clip",
        "which margin the negatives get",
        choices=("info_nce", "hn_clip", "constant", "centred", "row_shuffled", "frozen"),
    )
    gamma: float = _field(0.5, "strength of the margin, in cosine units")
    gamma_start_step: int = _field(0, "steps before it with gamma 0", minimum=0)
    gamma_ramp_steps: int = _field(0, "steps over which gamma then rises linearly", minimum=0)
    constant_margin: float = _field(
        -1.0, "margin of kind 'constant' in cosine units; negative = gamma * mean of G, per batch"
    )
    token_weight: float = _field(0.0, "lambda of the word-patch term; 0 = off", minimum=0)
    guard_same_pair: bool = _field(
        True, "equal pictures or equal captions are no negatives of each other"
    )
    block_rows: int = _field(0, "rows of the logits held at once; 0 = all", minimum=0)


@dataclasses.dataclass(frozen=True)
class OptimGroup:
    """AdamW, its schedule, and which parameters it moves."""

    lr: float = _field(1e-3, "peak learning rate", minimum=0)
    schedule: str = _field("cosine", "shape after warm-up", choices=("cosine", "constant"))
    warmup_steps: int = _field(0, "steps of linear warm-up", minimum=0)
    end_lr_fraction: float = _field(0.0, "cosine ends at this fraction of lr", minimum=0)
    b1: float = _field(0.9, "AdamW beta 1", minimum=0)
    b2: float = _field(0.999, "AdamW beta 2", minimum=0)
    eps: float = _field(1e-8, "AdamW epsilon", minimum=0)
    weight_decay: float = _field(0.01, "decay of kernels and embedding tables", minimum=0)
    max_grad_norm: float = _field(
        0.0, "gradients are scaled down to this norm; 0 = never", minimum=0
    )
    freeze: tuple = _field((), "regular expressions of parameter paths that do not train")
    logit_scale_init: float = _field(
        0.0,
        "s = exp(logit_scale) at the start; 0 = as in the weights (1/0.07 if random)",
        minimum=0,
    )
    logit_scale_rate: float = _field(1.0, "learning-rate factor of logit_scale", minimum=0)
    freeze_logit_scale: bool = _field(False, "keep s fixed")
    max_logit_scale: float = _field(
        100.0, "s is clamped to at most this after each update", minimum=1
    )


@dataclasses.dataclass(frozen=True)
class ParallelGroup:
    """How the batch and the parameters lie on the devices, and how processes find each other."""

    mapper: str = _field("mesh", "how the step is mapped over devices", choices=("mesh", "pmap"))
    data: int = _field(-1, "mesh axis 'data': devices; -1 = all that fsdp leaves", minimum=-1)
    fsdp: int = _field(
        1, "mesh axis 'fsdp': devices over which large parameters are split", minimum=1
    )
    platform: str = _field("", "refuse to run on another one ('tpu', 'gpu', 'cpu'); empty = any")
    process_count: int = _field(1, "processes of this run; above 1 needs a coordinator", minimum=1)
    process_index: int = _field(0, "which of them this is", minimum=0)
    coordinator: str = _field("", "host:port of process 0; 'auto' = from the cluster's environment")
    start_timeout_s: int = _field(300, "seconds to wait for the other processes", minimum=1)


@dataclasses.dataclass(frozen=True)
class TrainGroup:
    """Length, batch and checkpoints of a run."""

    seed: int = _field(42, "seed of weights, shuffles and losses", minimum=0)
    steps: int = _field(0, "optimiser steps; 0 = from epochs", minimum=0)
    epochs: int = _field(0, "passes over the list; 0 = from steps", minimum=0)
    global_batch_size: int = _field(128, "pairs per optimiser step, over all devices", minimum=2)
    micro_batches: int = _field(
        1, "a step is split into this many batches, each with its own negatives", minimum=1
    )
    save_every_steps: int = _field(0, "steps between checkpoints; 0 = only at the end", minimum=0)
    keep_checkpoints: int = _field(2, "how many of the latest are kept", minimum=1)
    best_metric: str = _field(
        "", "weights/ holds the best by this metric, say eval/t2i_r@1; empty = the last"
    )


@dataclasses.dataclass(frozen=True)
class EvalGroup:
    """The list that recall is measured on, and when."""

    data: str = _field("", "list file, or 'scenes'; empty = no evaluation")
    image_root: str = _field("", "folder of the pictures")
    every_steps: int = _field(0, "steps between evaluations; 0 = by epochs", minimum=0)
    every_epochs: int = _field(0, "epochs between evaluations; 0 = only at the end", minimum=0)
    batch_size: int = _field(128, "pairs embedded at once, over all devices", minimum=1)
    block_rows: int = _field(1024, "rows of the similarity matrix held at once", minimum=1)
    ks: tuple = _field((1, 5, 10), "the K of recall@K")


@dataclasses.dataclass(frozen=True)
class LogGroup:
    """What is written while training."""

    every_steps: int = _field(50, "steps between lines of metrics.jsonl", minimum=1)
    tensorboard: bool = _field(False, "also write TensorBoard events (extra 'tensorboard')")


@dataclasses.dataclass(frozen=True)
class Config:
    """All groups of one run."""

    data: DataGroup = DataGroup()
    model: ModelGroup = ModelGroup()
    method: MethodGroup = MethodGroup()
    loss: LossGroup = LossGroup()
    optim: OptimGroup = OptimGroup()
    parallel: ParallelGroup = ParallelGroup()
    train: TrainGroup = TrainGroup()
    eval: EvalGroup = EvalGroup()
    log: LogGroup = LogGroup()


def defaults() -> ml_collections.ConfigDict:
    """Returns a ConfigDict with every group and field at its default."""
    return ml_collections.ConfigDict(dataclasses.asdict(Config()))


def from_config_dict(values: Mapping[str, Any]) -> Config:
    """Returns the checked dataclasses of `values`, a ConfigDict or nested dict.

    Missing fields take their defaults.

    Raises:
      types.UserError: for an unknown group or field (the nearest valid name is given), a value of
        the wrong type or out of range, or values that contradict each other.
    """
    values = values.to_dict() if isinstance(values, ml_collections.ConfigDict) else dict(values)
    groups = {field.name: field.type for field in dataclasses.fields(Config)}
    for name in values:
        if name not in groups:
            raise types.unknown_name("config group", name, groups)
    config = Config(**{name: _group(name, groups[name], values.get(name, {})) for name in groups})
    _check_together(config)
    return config


def to_json(config: Config) -> str:
    """Returns `config` as JSON text; `from_json` gives an equal Config back."""
    return json.dumps(dataclasses.asdict(config), indent=2)


def from_json(text: str) -> Config:
    """Returns the Config that `to_json` wrote."""
    return from_config_dict(json.loads(text))


def differences(a: Config, b: Config) -> dict[str, tuple[Any, Any]]:
    """Returns {"group.field": (value in a, value in b)} for every field that differs."""
    found = {}
    for group in dataclasses.fields(Config):
        left, right = getattr(a, group.name), getattr(b, group.name)
        for field in dataclasses.fields(left):
            pair = getattr(left, field.name), getattr(right, field.name)
            if pair[0] != pair[1]:
                found[f"{group.name}.{field.name}"] = pair
    return found


def _group(name: str, group_type: type, values: Mapping[str, Any]) -> Any:
    fields = {field.name: field for field in dataclasses.fields(group_type)}
    checked = {}
    for key, value in dict(values).items():
        if key not in fields:
            raise types.unknown_name(f"config key in {name!r}:", key, fields)
        checked[key] = _value(f"{name}.{key}", fields[key], value)
    return group_type(**checked)


def _value(path: str, field: dataclasses.Field, value: Any) -> Any:
    wanted = field.type
    if wanted is tuple and isinstance(value, list | tuple):
        value = tuple(value)
    elif wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not wanted:
        raise types.UserError(f"{path} is {value!r}, but needs a value of type {wanted.__name__}")
    rules = field.metadata
    if rules["choices"] and value not in rules["choices"]:
        raise types.unknown_name(f"value of {path}", value, rules["choices"])
    if wanted in (int, float) and not (math.isfinite(value) and value >= rules["minimum"]):
        raise types.UserError(
            f"{path} is {value}, but must be finite and at least {rules['minimum']}"
        )
    return value


def _check_together(config: Config) -> None:
    train, parallel, evaluation = config.train, config.parallel, config.eval
    if train.steps and train.epochs:
        raise types.UserError(
            f"train.steps ({train.steps}) and train.epochs ({train.epochs}) are both set; "
            "set one to 0"
        )
    if train.global_batch_size % train.micro_batches:
        raise types.UserError(
            f"train.global_batch_size ({train.global_batch_size}) is not divisible by "
            f"train.micro_batches ({train.micro_batches})"
        )
    if train.global_batch_size // train.micro_batches < 2:
        raise types.UserError(
            "a contrastive batch of one pair has no negatives and teaches nothing; "
            "raise train.global_batch_size or lower train.micro_batches"
        )
    if parallel.process_index >= parallel.process_count:
        raise types.UserError(
            f"parallel.process_index is {parallel.process_index}, but there are "
            f"{parallel.process_count} processes; count from 0"
        )
    if parallel.process_count > 1 and not parallel.coordinator:
        raise types.UserError(
            "parallel.process_count is above 1, so parallel.coordinator=host:port is needed"
        )
    if evaluation.every_steps and evaluation.every_epochs:
        raise types.UserError("eval.every_steps and eval.every_epochs are both set; set one to 0")
    if not all(type(k) is int and k >= 1 for k in evaluation.ks):
        raise types.UserError(f"eval.ks is {evaluation.ks}; recall@K needs whole numbers from 1")
    if train.best_metric and not evaluation.data:
        raise types.UserError(f"train.best_metric={train.best_metric!r} needs eval.data")
    metrics = [f"eval/{way}_r@{k}" for way in ("t2i", "i2t") for k in evaluation.ks]
    if train.best_metric and train.best_metric not in metrics:
        raise types.unknown_name("train.best_metric", train.best_metric, metrics)
