"""Losses and gradients that are not finite: found, told with step and rows, skipped or the end."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from hnclip_jax import types
from hnclip_jax.training.recipe import StepOutput


class _Told(NamedTuple):
    """What one step told: device arrays, which are looked at later."""

    step: int
    loss: types.Array
    grad_norm: types.Array
    broken: types.Array


class Watch:
    """Remembers what the steps told, and looks at it when the loop waits for the device anyway.

    skipped: steps of this run that were left out so far.
    """

    def __init__(self, limit: int, name_of: Callable[[int], str], skipped: int = 0) -> None:
        """Begins with nothing seen.

        Args:
          limit: steps of a run that may be left out; 0 = the step leaves none out.
          name_of: number of a pair in the list -> what to call it.
          skipped: of a run that goes on.
        """
        self.skipped = skipped
        self._limit, self._name_of = limit, name_of
        self._told: list[_Told] = []

    def saw(self, step: int, output: StepOutput) -> None:
        """Remembers the output of a step."""
        seen = output.seen
        self._told.append(_Told(step, output.terms["loss"], output.grad_norm, seen.broken))

    def check(self) -> list[str]:
        """Looks at the steps since the last call; returns a line about each that was left out.

        Every process must ask after the same steps.

        Raises:
          types.UserError: for a step that is not finite and was not left out, or is one too many.
        """
        told, self._told = self._told, []
        numbers = jax.device_get([(one.loss, one.grad_norm) for one in told])
        lines = []
        for one, (loss, norm) in zip(told, numbers, strict=True):
            if math.isfinite(loss) and math.isfinite(norm):
                continue
            fault = self._fault(one, float(loss), float(norm))
            if self.skipped == self._limit:
                raise types.UserError(fault + self._too_many())
            self.skipped += 1
            lines.append(f"{fault}; left out ({self.skipped} of at most {self._limit})")
        return lines

    def _too_many(self) -> str:
        if not self._limit:
            return ""
        return f"; it is one more than train.skip_nonfinite_steps ({self._limit}) allows"

    def _fault(self, told: _Told, loss: float, norm: float) -> str:
        name, value = ("loss", loss) if not math.isfinite(loss) else ("gradient norm", norm)
        rows = _everywhere(told.broken)
        rows = sorted({int(row) for row in rows.flat if row >= 0})
        if rows:
            which = f"rows {types.at_most_ten([self._name_of(row) for row in rows])} are not finite"
        else:
            which = "the embeddings of all its rows are finite"
        return f"the {name} of step {told.step} is {value} ({which})"


def _everywhere(array: Any) -> np.ndarray:
    """Returns the whole of an array that may lie on devices of other processes."""
    if jax.process_count() == 1:
        return np.asarray(array)
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))
