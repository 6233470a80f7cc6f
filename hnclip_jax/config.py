"""Configuration: the groups of a run together, made from a ConfigDict, every value checked here.

The settings themselves stand in `groups`. A config file returns `defaults()` with some values set.
`from_config_dict` is called once, by the command; below it a function takes the one group that it
needs.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import ml_collections

from hnclip_jax import groups, types


@dataclasses.dataclass(frozen=True)
class Config:
    """All groups of one run."""

    data: groups.DataGroup = dataclasses.field(default_factory=groups.DataGroup)
    model: groups.ModelGroup = dataclasses.field(default_factory=groups.ModelGroup)
    method: groups.MethodGroup = dataclasses.field(default_factory=groups.MethodGroup)
    loss: groups.LossGroup = dataclasses.field(default_factory=groups.LossGroup)
    optim: groups.OptimGroup = dataclasses.field(default_factory=groups.OptimGroup)
    parallel: groups.ParallelGroup = dataclasses.field(default_factory=groups.ParallelGroup)
    train: groups.TrainGroup = dataclasses.field(default_factory=groups.TrainGroup)
    eval: groups.EvalGroup = dataclasses.field(default_factory=groups.EvalGroup)
    log: groups.LogGroup = dataclasses.field(default_factory=groups.LogGroup)


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
    known = {field.name: field.type for field in dataclasses.fields(Config)}
    for name in values:
        if name not in known:
            raise types.unknown_name("config group", name, known)
    config = Config(**{name: _group(name, known[name], values.get(name, {})) for name in known})
    _check_together(config)
    return config


def check_start(model: groups.ModelGroup) -> None:
    """Checks that the group says what a run starts from; must come before every run's first step.

    `from_config_dict` lets weights that are not named yet pass: a config file may leave them to the
    command line.

    Raises:
      types.UserError: if it names no weights and does not ask for random ones, or asks for random
        ones and says something of weights as well.
    """
    if model.init == "weights" and not model.weights:
        raise types.UserError(
            "a run starts from weights, but none are named; set model.weights=PATH, or "
            "model.init=random to start from nothing"
        )
    _check_model(model)


def to_json(config: Config) -> str:
    """Returns `config` as JSON text; `from_json` gives an equal Config back."""
    return json.dumps(dataclasses.asdict(config), indent=2)


def from_json(text: str) -> Config:
    """Returns the Config that `to_json` wrote.

    Raises:
      ValueError: if it is none; types.UserError is one.
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"it holds a {type(values).__name__} instead of an object")
    return from_config_dict(values)


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
        shown = [str(choice) for choice in rules["choices"] if choice != ""]
        raise types.unknown_name(f"value of {path}", str(value), shown)
    if wanted in (int, float) and not (math.isfinite(value) and value >= rules["minimum"]):
        raise types.UserError(
            f"{path} is {value}, but must be finite and at least {rules['minimum']}"
        )
    return value


def _check_model(model: groups.ModelGroup) -> None:
    if model.init != "random":
        return
    if model.weights:
        raise types.UserError(
            f"model.init is 'random', but model.weights names {model.weights!r}; set "
            "model.init=weights to start from them, or leave model.weights empty"
        )
    for name in ("stretch", "activation", "adapter"):
        if value := getattr(model, name):
            raise types.UserError(
                f"model.{name} is {value!r}, but acts on weights that are loaded, and model.init "
                f"is 'random'; leave it out: the preset {model.preset!r} has its own"
            )


def _check_together(config: Config) -> None:
    _check_model(config.model)
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
    if not all(type(gamma) in (int, float) for gamma in config.loss.gamma_by_epoch):
        raise types.UserError(
            f"loss.gamma_by_epoch is {config.loss.gamma_by_epoch}; it needs a number per epoch"
        )
    if not 0 < config.data.fraction <= 1:
        raise types.UserError(
            f"data.fraction is {config.data.fraction:g}, but must be above 0 and at most 1, the "
            "whole list"
        )
    if config.method.adapter and not config.method.adapter_alpha:
        raise types.UserError("method.adapter_alpha is 0, so nothing would train; say 16")
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
