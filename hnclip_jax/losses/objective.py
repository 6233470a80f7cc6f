"""From config to loss: a method is a row of named terms, the objective their weighted sum."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from hnclip_jax import groups, types
from hnclip_jax.losses import batch, contrastive, diagnostics, margins, tokens
from hnclip_jax.types import Array


class Inputs(NamedTuple):
    """What a term is computed from: the objective's arguments, margin and guard settled."""

    embeddings: types.Embeddings
    scale: Array | float
    margin: margins.Margin
    block_rows: int | None
    axis_name: batch.AxisName
    same_pair: Array | None
    geometry: Array | None


class Term(NamedTuple):
    """A part of a method's loss. A term of weight 0 is left out."""

    name: str
    compute: Callable[[Inputs], Array]
    weight: Callable[[groups.LossGroup], float]
    needs_tokens: bool = False


def _global_term(inputs: Inputs) -> Array:
    return contrastive.shifted_info_nce(
        inputs.embeddings.image,
        inputs.embeddings.text,
        inputs.scale,
        inputs.margin,
        axis_name=inputs.axis_name,
        block_rows=inputs.block_rows,
        same_pair=inputs.same_pair,
        geometry=inputs.geometry,
    )


def _token_term(inputs: Inputs) -> Array:
    return tokens.token_interaction(
        inputs.embeddings.patches,
        inputs.embeddings.words,
        inputs.embeddings.word_mask,
        inputs.scale,
        axis_name=inputs.axis_name,
        same_pair=inputs.same_pair,
    )


_MARGINS: dict[str, Callable] = {
    "hn_clip": margins.hn,
    "constant": margins.constant,
    "centred": margins.centred,
    "row_shuffled": margins.row_shuffled,
    "frozen": margins.hn,
}

METHODS: dict[str, tuple[Term, ...]] = {
    "clip": (
        Term("global", _global_term, lambda loss: 1.0),
        Term("token", _token_term, lambda loss: loss.token_weight, needs_tokens=True),
    ),
}


@dataclasses.dataclass(frozen=True)
class Objective:
    """The loss of a run; made by `build`.

    loss: the config group that it was made from.
    terms: the method's terms that have a weight, with it.
    """

    loss: groups.LossGroup
    terms: tuple[tuple[Term, float], ...]

    @property
    def needs_tokens(self) -> bool:
        """Whether the embeddings must have patches, words and word_mask."""
        return any(term.needs_tokens for term, _ in self.terms)

    @property
    def needs_frozen_text(self) -> bool:
        """Whether `geometry`, text embeddings by the starting encoder, must be given."""
        return _kind(self.loss) == "frozen"

    def __call__(
        self,
        embeddings: types.Embeddings,
        scale: Array | float,
        *,
        step: Array | int,
        key: Array | None = None,
        axis_name: batch.AxisName = None,
        same_pair: Array | None = None,
        geometry: Array | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Returns the total and each term before its weight, float32 scalars.

        Args:
          embeddings: of the whole batch, or of this device's rows with `axis_name`.
          scale: scalar s = exp(logit_scale).
          step: number of the training step; may be traced.
          key: jax.random key of this step, the same on every device; kind 'row_shuffled' needs it.
          axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.
          same_pair: integer ids, one per pair; used when loss.guard_same_pair is set.
          geometry: text embeddings by the frozen starting encoder; used by kind 'frozen'.

        Raises:
          types.UserError: when something is missing that this objective needs.
        """
        if self.needs_tokens and embeddings.patches is None:
            raise types.UserError(
                "this objective has a token term, but the embeddings hold no patches and words; "
                "ask the model for tokens or set loss.token_weight=0"
            )
        inputs = Inputs(
            embeddings=embeddings,
            scale=scale,
            margin=margin_at(self.loss, step, key),
            block_rows=self.loss.block_rows or None,
            axis_name=axis_name,
            same_pair=self._guard(same_pair),
            geometry=self._geometry(geometry),
        )
        values = {term.name: term.compute(inputs) for term, _ in self.terms}
        total = sum(weight * values[term.name] for term, weight in self.terms)
        return total, values

    def measure(
        self,
        embeddings: types.Embeddings,
        scale: Array | float,
        *,
        step: Array | int,
        key: Array | None = None,
        same_pair: Array | None = None,
        geometry: Array | None = None,
    ) -> dict[str, Array]:
        """Returns `diagnostics.measure` of a whole batch, at this objective's margin."""
        return diagnostics.measure(
            embeddings.image,
            embeddings.text,
            scale,
            margin_at(self.loss, step, key),
            same_pair=self._guard(same_pair),
            geometry=self._geometry(geometry),
        )

    def _guard(self, same_pair: Array | None) -> Array | None:
        return same_pair if self.loss.guard_same_pair else None

    def _geometry(self, geometry: Array | None) -> Array | None:
        if not self.needs_frozen_text:
            return None  # given or not, it would cost a gather for nothing
        if geometry is None:
            raise types.UserError(
                "loss.kind 'frozen' takes G from the starting text encoder, but no geometry was "
                "given; pass its embeddings of these captions"
            )
        return geometry


def build(loss: groups.LossGroup, method: groups.MethodGroup) -> Objective:
    """Returns the objective of a run.

    Raises:
      types.UserError: for a method that is not in METHODS.
    """
    if method.name not in METHODS:
        raise types.unknown_name("method", method.name, METHODS)
    weighted = ((term, term.weight(loss)) for term in METHODS[method.name])
    return Objective(loss, tuple((term, weight) for term, weight in weighted if weight != 0))


def gamma_at(loss: groups.LossGroup, step: Array | int) -> Array:
    """Returns gamma at a step, a float32 scalar: 0, then a linear ramp, then loss.gamma."""
    return loss.gamma * _ramp(loss, step)


def margin_at(
    loss: groups.LossGroup, step: Array | int, key: Array | None = None
) -> margins.Margin:
    """Returns the margin that `loss` asks for at a step; `margins.none` if it is 0 at all steps.

    The schedule of gamma also scales a given loss.constant_margin, so that a control and the method
    it is compared with start alike.
    """
    kind = _kind(loss)
    if kind == "info_nce":
        return margins.none
    if kind == "constant" and loss.constant_margin >= 0:
        margin = loss.constant_margin * _ramp(loss, step)
        return functools.partial(margins.constant, margin=margin)
    margin = functools.partial(_MARGINS[kind], gamma=gamma_at(loss, step))
    if kind != "row_shuffled":
        return margin
    if key is None:
        raise types.UserError("loss.kind 'row_shuffled' permutes G at random; give it a key")
    return functools.partial(margin, key=key)


def _kind(loss: groups.LossGroup) -> str:
    """Returns loss.kind, or 'info_nce' where gamma is 0 for good and no G need be computed."""
    gamma_matters = loss.kind != "constant" or loss.constant_margin < 0
    return "info_nce" if loss.gamma == 0 and gamma_matters else loss.kind


def _ramp(loss: groups.LossGroup, step: Array | int) -> Array:
    """Returns the share of gamma at a step, float32 in [0, 1]."""
    since = jnp.asarray(step, jnp.float32) - loss.gamma_start_step
    if loss.gamma_ramp_steps:
        return jnp.clip(since / loss.gamma_ramp_steps, 0.0, 1.0)
    return (since >= 0).astype(jnp.float32)
