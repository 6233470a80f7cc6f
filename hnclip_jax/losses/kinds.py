"""The table of global losses, `loss.kind`: what compares pictures with captions, and its boost."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from hnclip_jax import groups, types
from hnclip_jax.losses import baselines, contrastive, hard_negatives, margins, terms
from hnclip_jax.types import Array


class At(NamedTuple):
    """A point of the schedule.

    loss: the settings.
    gamma: float32 scalar.
    ramp: float32 scalar, the share of the whole boost.
    key: jax.random key of the step, or None.
    """

    loss: groups.LossGroup
    gamma: Array
    ramp: Array
    key: Array | None


class Kind(NamedTuple):
    """A global loss.

    compute: Inputs -> float32 scalar.
    margin: At -> the boost; None = it has none, and gamma does not matter.
    plain: the kind that it is without its boost.
    frozen: whether G comes from the starting text encoder.
    softmax: whether it is InfoNCE with that margin, so that the two can be compared.
    init, views, inputs: as in `terms.Term`.
    """

    compute: Callable[[terms.Inputs], Array]
    margin: Callable[[At], margins.Margin] | None = None
    plain: str = ""
    frozen: bool = False
    softmax: bool = False
    init: terms.Init | None = None
    views: Mapping[str, terms.View] = {}
    inputs: tuple[str, ...] = ()


def _shared(inputs: terms.Inputs) -> dict[str, Any]:
    """Returns what every global loss is given."""
    return {
        "image": inputs.pair.image,
        "text": inputs.pair.text,
        "scale": inputs.scale,
        "axis_name": inputs.axis_name,
        "same_pair": inputs.same_pair,
    }


def _softmax(inputs: terms.Inputs, margin: margins.Margin | None = None) -> Array:
    return contrastive.shifted_info_nce(
        **_shared(inputs),
        margin=inputs.margin if margin is None else margin,
        block_rows=inputs.block_rows,
        geometry=inputs.geometry,
        smoothing=inputs.settings.loss.label_smoothing,
    )


def _arcface(inputs: terms.Inputs) -> Array:
    angle = inputs.settings.loss.arcface_margin
    return _softmax(inputs, functools.partial(margins.arcface, margin=angle))


def _siglip(inputs: terms.Inputs) -> Array:
    bias = inputs.parameters["bias"]
    return baselines.siglip(**_shared(inputs), bias=bias, margin=inputs.margin)


def _hn_nce(inputs: terms.Inputs) -> Array:
    loss = inputs.settings.loss
    return hard_negatives.hn_nce(
        **_shared(inputs),
        alpha=loss.hn_nce_alpha,
        beta=loss.hn_nce_beta,
        detach=loss.hn_nce_detach,
    )


def _hcl(inputs: terms.Inputs) -> Array:
    loss = inputs.settings.loss
    return hard_negatives.hcl(**_shared(inputs), beta=loss.hcl_beta, prior=loss.hcl_prior)


def _vse(inputs: terms.Inputs) -> Array:
    return hard_negatives.vse(**_shared(inputs), margin=inputs.settings.loss.vse_margin)


def _cyclip(inputs: terms.Inputs) -> Array:
    loss = inputs.settings.loss
    return baselines.cyclip(**_shared(inputs), cross=loss.cyclip_cross, within=loss.cyclip_within)


def _soft_targets(inputs: terms.Inputs) -> Array:
    loss = inputs.settings.loss
    return baselines.soft_targets(
        **_shared(inputs), share=loss.soft_share, temperature=loss.soft_temperature
    )


def _negclip(inputs: terms.Inputs) -> Array:
    return hard_negatives.negclip(
        **_shared(inputs),
        negative_text=inputs.views["negatives"].text,
        has_negative=inputs.arrays["has_negative"],
    )


def _bias(key: Array, sizes: terms.Sizes, settings: terms.Settings) -> dict[str, Array]:
    del key, sizes
    return {"bias": jnp.float32(settings.loss.siglip_bias)}


def _by_gamma(margin: Callable) -> Callable[[At], margins.Margin]:
    return lambda at: functools.partial(margin, gamma=at.gamma)


def _constant(at: At) -> margins.Margin:
    if at.loss.constant_margin < 0:
        return functools.partial(margins.constant, gamma=at.gamma)
    return functools.partial(margins.constant, margin=at.loss.constant_margin * at.ramp)


def _row_shuffled(at: At) -> margins.Margin:
    if at.key is None:
        raise types.UserError("loss.kind 'row_shuffled' permutes G at random; give it a key")
    return functools.partial(margins.row_shuffled, gamma=at.gamma, key=at.key)


def _boosted(margin: Callable[[At], margins.Margin], frozen: bool = False) -> Kind:
    return Kind(_softmax, margin, "info_nce", frozen, softmax=True)


KINDS: dict[str, Kind] = {
    "info_nce": Kind(_softmax, softmax=True),
    "hn_clip": _boosted(_by_gamma(margins.hn)),
    "frozen": _boosted(_by_gamma(margins.hn), frozen=True),
    "constant": _boosted(_constant),
    "centred": _boosted(_by_gamma(margins.centred)),
    "row_centred": _boosted(_by_gamma(margins.row_centred)),
    "row_shuffled": _boosted(_row_shuffled),
    "siglip": Kind(_siglip, init=_bias),
    "siglip_hn": Kind(_siglip, _by_gamma(margins.hn), "siglip", init=_bias),
    "arcface": Kind(_arcface),
    "hn_nce": Kind(_hn_nce),
    "hcl": Kind(_hcl),
    "vse": Kind(_vse),
    "cyclip": Kind(_cyclip),
    "soft_targets": Kind(_soft_targets),
    "negclip": Kind(
        _negclip,
        views={"negatives": terms.View(text="negative_tokens")},
        inputs=("negatives",),
    ),
}


def kind_of(loss: groups.LossGroup) -> Kind:
    """Returns the row of `loss.kind`; without its boost where gamma is 0 for good."""
    kind = KINDS[loss.kind]
    given = loss.kind == "constant" and loss.constant_margin >= 0
    if kind.plain and not given and not any(loss.gamma_by_epoch or (loss.gamma,)):
        return KINDS[kind.plain]
    return kind


def term(loss: groups.LossGroup) -> terms.Term:
    """Returns the term that every method begins with: this is where the boost enters."""
    kind = kind_of(loss)
    return terms.Term(
        "global",
        kind.compute,
        lambda settings: settings.method.global_weight,
        views=tuple(kind.views),
        inputs=kind.inputs,
        init=kind.init,
    )


def margin_at(
    loss: groups.LossGroup, step: Array | int, key: Array | None = None, steps_per_epoch: int = 0
) -> margins.Margin:
    """Returns the margin that `loss` asks for at a step; `margins.none` if it has none.

    The schedule of gamma also scales a given loss.constant_margin, so that a control and the method
    it is compared with start alike.
    """
    kind = kind_of(loss)
    if kind.margin is None:
        return margins.none
    gamma = gamma_at(loss, step, steps_per_epoch)
    return kind.margin(At(loss, gamma, ramp_at(loss, step), key))


def gamma_at(loss: groups.LossGroup, step: Array | int, steps_per_epoch: int = 0) -> Array:
    """Returns gamma at a step, a float32 scalar: 0, then a linear ramp, then loss.gamma.

    With loss.gamma_by_epoch its entry of the epoch takes the place of loss.gamma.

    Raises:
      types.UserError: if it goes by epochs and steps_per_epoch is 0.
    """
    gamma = loss.gamma
    if loss.gamma_by_epoch:
        if not steps_per_epoch:
            raise types.UserError("loss.gamma_by_epoch needs the number of steps per epoch")
        epoch = jnp.asarray(step, jnp.int32) // steps_per_epoch
        table = jnp.asarray(loss.gamma_by_epoch, jnp.float32)
        gamma = table[jnp.minimum(epoch, len(loss.gamma_by_epoch) - 1)]
    return gamma * ramp_at(loss, step)


def ramp_at(loss: groups.LossGroup, step: Array | int) -> Array:
    """Returns the share of gamma at a step, float32 in [0, 1]."""
    since = jnp.asarray(step, jnp.float32) - loss.gamma_start_step
    if loss.gamma_ramp_steps:
        return jnp.clip(since / loss.gamma_ramp_steps, 0.0, 1.0)
    return (since >= 0).astype(jnp.float32)
