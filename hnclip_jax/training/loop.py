"""THE loop: iterate, log, evaluate, save, stop."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.parallel import alarm
from hnclip_jax.training import checkpoint as checkpoint_lib
from hnclip_jax.training import finite, gradients, stopping
from hnclip_jax.training import logging as logging_lib
from hnclip_jax.training import profile as profile_lib
from hnclip_jax.training import state as state_lib
from hnclip_jax.training import step as step_lib
from hnclip_jax.training.clock import Clock


@dataclasses.dataclass(frozen=True)
class Plan:
    """When things happen, in steps; 0 = only at the end.

    stop_after: leave after this step, everything saved, to go on another time; 0 = run to the end.
    skip_limit: steps that may be left out because they are not finite.
    gradients_every: steps between comparisons of gradients; 0 = none.
    """

    total_steps: int
    pairs_per_step: int
    log_every: int
    eval_every: int
    save_every: int
    best_metric: str = ""
    stop_after: int = 0
    skip_limit: int = 0
    gradients_every: int = 0

    @property
    def last_step(self) -> int:
        """The step after which the loop leaves."""
        return min(self.stop_after or self.total_steps, self.total_steps)

    def logs(self, step: int) -> bool:
        """Returns whether numbers are written after `step` steps."""
        return step % self.log_every == 0 or step == self.total_steps

    def compares(self, step: int) -> bool:
        """Returns whether gradients are compared at `step`, before it changes the parameters."""
        return self.gradients_every > 0 and step % self.gradients_every == 0

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
    compare: (state, batch) -> {"gradients/...": number}; see training/gradients.py.
    evaluate: state -> {"eval/...": number}, or None.
    save_weights: (state, note) -> None; writes the run's weights folder.
    name_of: number of a pair in the list -> what to call it in a message.
    meta: JSON values that go into every checkpoint.
    """

    step: step_lib.Step
    batches: Callable[[int], Iterator[types.Batch]]
    measure: Callable[[step_lib.StepOutput, int], dict[str, Any]]
    compare: gradients.Compare
    evaluate: Callable[[state_lib.TrainState], dict[str, float]] | None
    save_weights: Callable[[state_lib.TrainState, dict[str, Any]], None]
    name_of: Callable[[int], str]
    checkpoints: checkpoint_lib.Checkpoints
    log: logging_lib.Run
    profile: profile_lib.Profile
    meta: dict[str, Any]


@dataclasses.dataclass
class Progress:
    """How far a run has come.

    state: after the last step; its step is the position in the data.
    best: the best value of plan.best_metric so far; None = there is none.
    skipped: steps that were left out.
    owed: the state has yet to be evaluated.
    """

    state: state_lib.TrainState
    best: float | None = None
    skipped: int = 0
    owed: bool = False


def train(rooms: Rooms, plan: Plan, run: Progress) -> state_lib.TrainState:
    """Returns the state after `plan.last_step` steps, everything saved.

    Order within a step: compute, log, evaluate, save, and only then the next batch, so that what is
    saved belongs to the step whose number it carries. Who is asked to stop saves at once; the
    evaluation that was due is owed by whoever goes on.

    Args:
      rooms: what to call.
      plan: when to call it.
      run: where to begin; it is kept up to date.

    Raises:
      stopping.Interrupted: after Ctrl-C; the state is saved first. Several processes agree on it
        at the next step that is logged.
      stopping.Preempted: after SIGTERM; the state is saved first.
      types.UserError: for a broken picture and the like; the state is saved first. Not with several
        processes: the others would not come to save their part, and are told to leave instead.
    """
    begun = int(run.state.step)
    clock = Clock(begun, plan.pairs_per_step)
    watch = finite.Watch(plan.skip_limit, rooms.name_of, run.skipped)
    with stopping.asked() as asked, contextlib.closing(rooms.batches(begun)) as batches:
        if run.owed:
            with alarm.rings():
                _evaluate(rooms, plan, run, begun, clock)
        for step in range(begun + 1, plan.last_step + 1):
            with _saved_if_mistaken(rooms, run), clock.spent("data/wait_s"):
                batch = next(batches)
            compared = _compare(rooms, run, batch, clock) if plan.compares(step) else {}
            with rooms.profile.step(step):
                run.state, output = rooms.step(run.state, batch)
            watch.saw(step, output)
            rooms.profile.after(step, output.grad_norm)
            if step == begun + 1:
                clock.restart(jax.block_until_ready(run.state).step)
            rooms.log.advance(step)
            leave = asked.error(step, plan.logs(step)) if step < plan.last_step else None
            evaluates = rooms.evaluate and plan.evaluates(step) and not leave
            if plan.logs(step) or compared:
                _log(rooms, plan, step, output, batch, compared, clock)
            if plan.logs(step) or evaluates or plan.saves(step) or leave:
                _check_finite(rooms, watch, run)
            if evaluates:
                with _saved_if_mistaken(rooms, run):
                    _evaluate(rooms, plan, run, step, clock)
            if plan.saves(step) or leave:
                with clock.spent("time/save_s"):
                    _save(rooms, run)
            else:
                rooms.checkpoints.check()
            if leave:
                raise leave(
                    f"stopped after step {step} of {plan.total_steps}, which is saved; the same "
                    "command goes on from there"
                )
        if not plan.best_metric and plan.last_step == plan.total_steps:
            with alarm.rings():
                rooms.save_weights(run.state, {"step": plan.total_steps})
    return run.state


def _save(rooms: Rooms, run: Progress) -> None:
    with alarm.rings():
        rooms.checkpoints.save(run.state, {**rooms.meta, "best": run.best, "skipped": run.skipped})


@contextlib.contextmanager
def _saved_if_mistaken(rooms: Rooms, run: Progress) -> Iterator[None]:
    try:
        with alarm.rings():
            yield
    except types.UserError:
        if jax.process_count() == 1:
            _save(rooms, run)
        raise


def _evaluate(rooms: Rooms, plan: Plan, run: Progress, step: int, clock: Clock) -> None:
    """Measures recall, writes it down, keeps the weights if they are the best."""
    with clock.paused():
        values = rooms.evaluate(run.state)
        rooms.log.scalars(step, values)
        if not plan.best_metric:
            return
        value = values[plan.best_metric]
        if run.best is None or value > run.best:
            rooms.save_weights(run.state, {"step": step, plan.best_metric: value})
            run.best = value


def _compare(
    rooms: Rooms, run: Progress, batch: types.Batch, clock: Clock
) -> dict[str, types.Array]:
    """Returns how the gradients of the losses compare where the next step begins."""
    # What steps before it still have to do is not its time.
    jax.block_until_ready(run.state)
    with clock.spent("time/gradients_s"):
        return jax.block_until_ready(rooms.compare(run.state, batch))


def _log(
    rooms: Rooms,
    plan: Plan,
    step: int,
    output: step_lib.StepOutput,
    batch: types.Batch,
    compared: dict[str, types.Array],
    clock: Clock,
) -> None:
    """Writes the numbers of a step. Waits for them, so that the times beside them are true."""
    jax.block_until_ready(output)
    with clock.spent("time/log_s"):
        values = rooms.measure(output, step - 1)
        if compared:
            compared = {**compared, "gradients/solved": values["train/solved_plain"]}
        values["data/truncated_share"] = jnp.mean(batch["truncated"])
        values = compared | (values if plan.logs(step) else {})
        values = {name: float(value) for name, value in jax.device_get(values).items()}
    # What follows counts into the next line: these rates are part of this one.
    rates = clock.rates(step) if plan.logs(step) else {}
    with alarm.rings(), clock.spent("time/log_s"):
        rooms.log.scalars(step, values | rates)


def _check_finite(rooms: Rooms, watch: finite.Watch, run: Progress) -> None:
    """Raises types.UserError for a state that must not be saved over a good one."""
    try:
        for line in watch.check():
            logging_lib.say(line)
    except types.UserError as error:
        rooms.checkpoints.wait()
        last = rooms.checkpoints.latest_step
        kept = "nothing was saved yet" if last is None else f"saved is the state of step {last}"
        raise types.UserError(
            f"{error}; {kept}: lower optim.lr or set optim.max_grad_norm, or leave out a few such "
            "steps by train.skip_nonfinite_steps=10"
        ) from error
    run.skipped = watch.skipped
