"""Long-CLIP's second term: short captions against pictures reduced to their main components."""

import functools

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.losses import batch, contrastive, margins, terms
from hnclip_jax.types import Array

SHORT = "short"


def principal_components(
    image: Array,
    keep: int,
    *,
    axis_name: batch.AxisName = None,
    scope: str = "global",
    gradient: str = "full",
) -> Array:
    """Returns the pictures reduced to their first `keep` principal components, [L, D] float32.

    v_c = (v - mean) W W^T + mean, W the first `keep` eigenvectors of the pictures' covariance. It
    is not normalised again. What is decomposed is the smaller of [B, B] and [D, D].

    With "full" the gradient is that of v_c. Only eigenvalues on both sides of the cut count, as
    1 / (kept - dropped); where the two are the same within rounding, which is kept is a matter of
    chance, and that part is left out. Pictures of rank `keep` or less are returned as they are,
    with the gradient of that: always so if B is at most `keep` + 1. With "stop_basis" W is a
    constant, less those columns whose eigenvalue is 0 within rounding.

    Args:
      image: [B, D], or [L, D] with `axis_name`; unit norm. Computed in float32.
      keep: components that are kept, at least 1.
      axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.
      scope: whose components: "global", of the whole batch, or "device", of these L rows. They
        differ with `axis_name` only.
      gradient: "full" or "stop_basis".

    Raises:
      types.UserError: for an unknown scope or gradient.

    References:
      Long-CLIP, arXiv 2403.15378 (primary component matching).
    """
    _check_name("scope", scope, ("global", "device"))
    _check_name("gradient", gradient, ("full", "stop_basis"))
    axis_name = axis_name if scope == "global" else None
    rows = jnp.asarray(image, jnp.float32)
    pairs, width = batch.total(len(rows), axis_name), rows.shape[1]
    # Centred pictures have a rank of at most B - 1.
    if keep >= (min(pairs - 1, width) if gradient == "full" else width):
        return rows
    mean = batch.total(jnp.sum(rows, axis=0), axis_name)[None, :] / pairs
    reduce = _reduced if gradient == "full" else _on_given_components
    return reduce(rows - mean, keep, pairs, axis_name) + mean


def short_term(inputs: terms.Inputs) -> Array:
    """Returns InfoNCE of the reduced pictures and the short captions, a float32 scalar.

    Of margins it knows none; temperature, label smoothing and guard are those of the global term.

    The guard knows pictures and full captions. Two pictures may have the same short caption and
    stay negatives of each other here, as in the released code. That is harmless: the two rows and
    columns add up to one target, half on each, and the gradient is 0 when the two score alike.

    References:
      Long-CLIP, arXiv 2403.15378.
    """
    method = inputs.settings.method
    picture = principal_components(
        inputs.pair.image,
        method.pcm_dim,
        axis_name=inputs.axis_name,
        scope=method.pcm_scope,
        gradient=method.pcm_grad,
    )
    return contrastive.shifted_info_nce(
        picture,
        inputs.views[SHORT].text,
        inputs.scale,
        margins.none,
        axis_name=inputs.axis_name,
        block_rows=inputs.block_rows,
        same_pair=inputs.same_pair,
        smoothing=inputs.settings.loss.label_smoothing,
    )


def _check_name(kind: str, name: str, valid: tuple[str, ...]) -> None:
    if name not in valid:
        raise types.unknown_name(f"{kind} of the principal components", name, valid)


def _reduced(rows: Array, keep: int, pairs: int, axis_name: batch.AxisName) -> Array:
    """Returns `rows` [L, D], centred, on the batch's components; the gradient is whole."""
    if pairs > rows.shape[1]:
        return _matmul(rows, _projector(_covariance(rows, axis_name), keep, pairs))
    rows_bd = batch.gather(rows, axis_name)
    mixed = _projector(_matmul(rows_bd, rows_bd.T), keep, pairs)
    return _matmul(mixed[batch.row_index(len(rows), axis_name)], rows_bd)


def _on_given_components(rows: Array, keep: int, pairs: int, axis_name: batch.AxisName) -> Array:
    """Returns `rows` [L, D], centred, on the batch's components, those taken as constants."""
    given = jax.lax.stop_gradient(rows)
    gram = pairs <= rows.shape[1]
    if gram:
        given = batch.gather(given, axis_name)
    matrix = _matmul(given, given.T) if gram else _covariance(given, axis_name)
    values, vectors = jnp.linalg.eigh(matrix)
    exists = values > _rounding(values, pairs)
    if gram:
        vectors = _matmul(given.T, vectors) * jax.lax.rsqrt(jnp.where(exists, values, 1.0))[None, :]
    components = jnp.where(exists[None, :], vectors, 0.0)[:, -keep:]
    return _matmul(_matmul(rows, components), components.T)


def _covariance(rows: Array, axis_name: batch.AxisName) -> Array:
    """Returns [D, D], times B, of the centred pictures of all devices."""
    return batch.total(_matmul(rows.T, rows), axis_name)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _projector(matrix: Array, keep: int, pairs: int) -> Array:
    """Returns the projector on the `keep` largest eigenvectors of `matrix`; 1 if they are all.

    Args:
      matrix: [n, n] float32, symmetric, positive semidefinite, of `pairs` pictures.
      keep: below n.
      pairs: see `_rounding`.
    """
    return _projector_and_rule(matrix, keep, pairs)[0]


@_projector.defjvp
def _projector_jvp(
    keep: int, pairs: int, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    projector, kept, dropped, over_gap = _projector_and_rule(*primals, keep, pairs)
    # The rule of eigh divides by every gap. A projector turns with those across the cut alone.
    across = _matmul(_matmul(kept.T, *tangents), dropped) * over_gap
    half = _matmul(_matmul(kept, across), dropped.T)
    return projector, half + half.T


def _projector_and_rule(matrix: Array, keep: int, pairs: int) -> tuple[Array, Array, Array, Array]:
    """Returns projector [n, n], kept [n, k] and dropped [n, n - k] eigenvectors, 1 / gaps."""
    values, vectors = jnp.linalg.eigh(matrix)
    kept, dropped = vectors[:, -keep:], vectors[:, :-keep]
    rounding = _rounding(values, pairs)
    nothing_dropped = values[-keep - 1] <= rounding
    gap = (values[-keep:, None] - values[None, :-keep]) / rounding
    # 1 / gap beyond rounding, to its fourth power, and going to 0 within.
    over_gap = gap**3 / (gap**4 + 1) / rounding
    projector = _matmul(kept, kept.T)
    one = jnp.eye(len(values), dtype=projector.dtype)
    return (
        jnp.where(nothing_dropped, one, projector),
        kept,
        dropped,
        jnp.where(nothing_dropped, 0.0, over_gap),
    )


def _rounding(values: Array, pairs: int) -> Array:
    """Returns a scalar: eigenvalues (ascending) that differ by much less may be the same.

    A decomposition is wrong by a few eps of the largest one. Besides, there is the rounding of the
    mean: of equal unit vectors, centred, a matrix of about B eps^2 is left and not 0.
    """
    eps = float(jnp.finfo(jnp.float32).eps)
    return 100 * eps * (values[-1] + pairs * eps)


def _matmul(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision="highest")


VIEWS = {SHORT: terms.View(text="short_tokens")}

TERMS = (
    terms.Term(
        "short",
        short_term,
        lambda settings: settings.method.pcm_weight,
        views=(SHORT,),
        inputs=("short",),
    ),
)
