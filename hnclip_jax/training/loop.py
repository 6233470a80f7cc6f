"""THE loop: iterate, log, evaluate, save, stop."""

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.training import checkpoint as checkpoint_lib
from hnclip_jax.training import logging as logging_lib
from hnclip_jax.training import state as state_lib
from hnclip_jax.training import step as step_lib


class Interrupted(types.UserError):
    """The run was asked to stop; what it had is saved."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """When things happen, in steps; 0 = only at the end.

    stop_after: leave after this step, everything saved, to go on another time; 0 = run to the end.
    """

    total_steps: int
    pairs_per_step: int
    log_every: int
    eval_every: int
    save_every: int
    best_metric: str = ""
    stop_after: int = 0

    @property
    def last_step(self) -> int:
        """The step after which the loop leaves."""
        return min(self.stop_after or self.total_steps, self.total_steps)

    def logs(self, step: int) -> bool:
        """Returns whether numbers are written after `step` steps."""
        return step % self.log_every == 0 or step == self.total_steps

    def evaluates(self, step: int) -> bool:
        """Returns whether recall is measured after `step` steps."""
        return _due(step, self.eval_every, self.total_steps)

    def saves(self, step: int) -> bool:
        """Returns whether a checkpoint is saved after `step` steps."""
        return _due(step, self.save_every, self.last_step)


def _due(step: int, every: int, total: int) -> bool:
    return step == total or (every > 0 and step % every == 0)


@dataclasses.dataclass(frozen=True)
class Rooms:
    """What the loop orders about.

    step: the compiled train step.
    batches: start step -> endless iterator of global batches.
    measure: (output of a step, its number from 0) -> scalars about it, on logged steps.
    evaluate: state -> {"eval/...": number}, or None.
    save_weights: (state, note) -> None; writes the run's weights folder.
    meta: JSON values that go into every checkpoint.
    """

    step: step_lib.Step
    batches: Callable[[int], Iterator[types.Batch]]
    measure: Callable[[step_lib.StepOutput, int], dict[str, Any]]
    evaluate: Callable[[state_lib.TrainState], dict[str, float]] | None
    save_weights: Callable[[state_lib.TrainState, dict[str, Any]], None]
    checkpoints: checkpoint_lib.Checkpoints
    log: logging_lib.Run
    meta: dict[str, Any]


def train(
    rooms: Rooms,
    plan: Plan,
    state: state_lib.TrainState,
    best: float | None = None,
    owed: bool = False,
) -> state_lib.TrainState:
    """Returns the state after `plan.last_step` steps, everything saved.

    Order within a step: compute, log, evaluate, save, and only then the next batch, so that what is
    saved belongs to the step whose number it carries.

    Args:
      rooms: what to call.
      plan: when to call it.
      state: where to begin; its step is the position in the data.
      best: the best value of plan.best_metric so far, of a run that goes on.
      owed: the state to begin with has yet to be evaluated.

    Raises:
      Interrupted: after Ctrl-C or SIGTERM; the state is saved first. Several processes agree on it
        at the next step that is logged.
      types.UserError: for a broken picture and the like; the state is saved first. Not with several
        processes: the others would not come to save their part.
    """
    begun = int(state.step)
    clock = _Clock(begun, plan.pairs_per_step)
    with _stop_signals() as stop, contextlib.closing(rooms.batches(begun)) as batches:
        if owed:
            best = _evaluate(rooms, plan, state, begun, best, clock)
        for step in range(begun + 1, plan.last_step + 1):
            with _saved_if_mistaken(rooms, state, best), clock.waiting():
                batch = next(batches)
            state, output = rooms.step(state, batch)
            if step == begun + 1:
                clock.restart(jax.block_until_ready(state).step)
            rooms.log.advance(step)
            if plan.logs(step):
                _log(rooms, step, output, batch, clock)
            evaluates = rooms.evaluate and plan.evaluates(step)
            if plan.logs(step) or evaluates or plan.saves(step) or stop.is_set():
                _check_finite(rooms, step, output)
            if evaluates:
                with _saved_if_mistaken(rooms, state, best):
                    best = _evaluate(rooms, plan, state, step, best, clock)
            stopping = _stopping(stop, plan, step)
            if plan.saves(step) or stopping:
                _save(rooms, state, best)
            if stopping and step < plan.last_step:
                raise Interrupted(
                    f"stopped after step {step} of {plan.total_steps}, which is saved; the same "
                    "command goes on from there"
                )
        if not plan.best_metric and plan.last_step == plan.total_steps:
            rooms.save_weights(state, {"step": plan.total_steps})
    return state


def _save(rooms: Rooms, state: state_lib.TrainState, best: float | None) -> None:
    rooms.checkpoints.save(state, {**rooms.meta, "best": best})


@contextlib.contextmanager
def _saved_if_mistaken(
    rooms: Rooms, state: state_lib.TrainState, best: float | None
) -> Iterator[None]:
    try:
        yield
    except types.UserError:
        if jax.process_count() == 1:
            _save(rooms, state, best)
        raise


def _stopping(stop: threading.Event, plan: Plan, step: int) -> bool:
    # Processes must leave after the same step. They wait for each other where they log anyway.
    if jax.process_count() == 1 or plan.logs(step):
        return mesh_lib.any_process(stop.is_set())
    return False


def _evaluate(
    rooms: Rooms,
    plan: Plan,
    state: state_lib.TrainState,
    step: int,
    best: float | None,
    clock: "_Clock",
) -> float | None:
    """Measures recall, writes it down, keeps the weights if they are the best; returns the best."""
    with clock.paused():
        values = rooms.evaluate(state)
        rooms.log.scalars(step, values)
        if not plan.best_metric:
            return best
        value = values[plan.best_metric]
        if best is None or value > best:
            rooms.save_weights(state, {"step": step, plan.best_metric: value})
            return value
        return best


def _log(
    rooms: Rooms, step: int, output: step_lib.StepOutput, batch: types.Batch, clock: "_Clock"
) -> None:
    """Writes the numbers of a step. Waits for them, so that the times beside them are true."""
    values = rooms.measure(output, step - 1)
    values["data/truncated_share"] = jnp.mean(batch["truncated"])
    values = {name: float(value) for name, value in jax.device_get(values).items()}
    rooms.log.scalars(step, values | clock.rates(step))


def _check_finite(rooms: Rooms, step: int, output: step_lib.StepOutput) -> None:
    """Raises types.UserError for a state that must not be saved over a good one."""
    for name, value in (("loss", output.terms["loss"]), ("gradient norm", output.grad_norm)):
        if not math.isfinite(value):
            rooms.checkpoints.wait()
            last = rooms.checkpoints.latest_step
            kept = "nothing was saved yet" if last is None else f"saved is the state of step {last}"
            raise types.UserError(
                f"the {name} of step {step} is {float(value)}; {kept}: lower optim.lr or set "
                "optim.max_grad_norm"
            )


class _Clock:
    """Speed and waiting time since the last log line."""

    def __init__(self, step: int, pairs_per_step: int) -> None:
        self._pairs = pairs_per_step
        self.restart(step)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts what happens inside as waiting for data."""
        began = time.perf_counter()
        yield
        self._waited += time.perf_counter() - began

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves what happens inside out of the step time."""
        began = time.perf_counter()
        yield
        self._out += time.perf_counter() - began

    def restart(self, step: int) -> None:
        """Forgets what was before: the first step is mostly compilation."""
        self._step, self._since, self._waited, self._out = int(step), time.perf_counter(), 0.0, 0.0

    def rates(self, step: int) -> dict[str, float]:
        """Returns the means per step since the last call."""
        steps = step - self._step
        if not steps:
            return {}
        seconds = (time.perf_counter() - self._since - self._out) / steps
        rates = {
            "time/step_s": seconds,
            "time/pairs_per_s": self._pairs / seconds,
            "data/wait_s": self._waited / steps,
        }
        self.restart(step)
        return rates


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C and SIGTERM set; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def ask(number: int, frame: Any) -> None:
        del frame
        event.set()
        signal.signal(number, before[number])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
