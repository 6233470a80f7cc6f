"""Self-attention of given queries, keys and values: by one kernel, or by products of our own."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

from hnclip_jax import types


def attention(
    query: types.Array, key: types.Array, value: types.Array, *, causal: bool, precision: str | None
) -> types.Array:
    """Returns softmax(q k^T / sqrt(P)) v, by cuDNN where it has a kernel, else by two products.

    Args:
      query, key, value: [B, T, H, P], one dtype.
      causal: whether position t sees only the positions up to t.
      precision: of the products; the kernel takes bfloat16 only and has no choice.

    Returns:
      [B, T, H, P], dtype of `value`.
    """
    if _cudnn_fits(query):
        return fused_attention(query, key, value, causal=causal)
    return plain_attention(query, key, value, causal=causal, precision=precision)


def plain_attention(
    query: types.Array, key: types.Array, value: types.Array, *, causal: bool, precision: str | None
) -> types.Array:
    """Returns `attention` as products with heads before positions; softmax in float32.

    Its backward pass is our own, so it has no forward-mode derivative. The one that JAX derives
    goes over the [T, T] arrays several times more: for the scale, the mask, and the quotient and
    the sum of the softmax one by one.
    """
    # The scale costs P entries per position here, T entries on the logits. Of 64 it is exact.
    query = query * jnp.asarray(query.shape[-1] ** -0.5, query.dtype)
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    return _of_heads(query, key, value, causal, precision).swapaxes(1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _of_heads(
    query: types.Array, key: types.Array, value: types.Array, causal: bool, precision: str | None
) -> types.Array:
    """Returns softmax(q k^T) v; all [B, H, T, P]."""
    return _forward(query, key, value, causal, precision)[0]


def _forward(
    query: types.Array, key: types.Array, value: types.Array, causal: bool, precision: str | None
) -> tuple[types.Array, tuple[types.Array, ...]]:
    logits = _product("bhtp,bhup->bhtu", query, key, precision)
    if causal:
        seen = np.tri(query.shape[2], dtype=bool)[None, None]
        logits = jnp.where(seen, logits, -jnp.inf)
    # The [T, T] arrays are what memory goes into: they are kept in the type of the products.
    weights = jax.nn.softmax(logits, axis=-1).astype(value.dtype)
    out = _product("bhtu,bhup->bhtp", weights, value, precision)
    return out.astype(value.dtype), (query, key, value, weights)


def _backward(
    causal: bool, precision: str | None, saved: tuple[types.Array, ...], by_out: types.Array
) -> tuple[types.Array, types.Array, types.Array]:
    del causal  # What is masked has weight 0, and with it no gradient.
    query, key, value, weights = saved
    by_weights = _product("bhtp,bhup->bhtu", by_out, value, precision).astype(value.dtype)
    wide = weights.astype(jnp.float32)
    mean = jnp.sum(by_weights * wide, axis=-1, keepdims=True)
    by_logits = (wide * (by_weights - mean)).astype(query.dtype)
    return (
        _product("bhtu,bhup->bhtp", by_logits, key, precision).astype(query.dtype),
        _product("bhtu,bhtp->bhup", by_logits, query, precision).astype(key.dtype),
        _product("bhtu,bhtp->bhup", weights, by_out, precision).astype(value.dtype),
    )


_of_heads.defvjp(_forward, _backward)


def _product(letters: str, a: types.Array, b: types.Array, precision: str | None) -> types.Array:
    return jnp.einsum(letters, a, b, precision=precision, preferred_element_type=jnp.float32)


def fused_attention(
    query: types.Array,
    key: types.Array,
    value: types.Array,
    *,
    causal: bool,
    implementation: str = "cudnn",
) -> types.Array:
    """Returns `attention` from one kernel that never stores the T x T weights."""
    return jax.nn.dot_product_attention(
        query, key, value, is_causal=causal, implementation=implementation
    )


def _cudnn_fits(query: types.Array) -> bool:
    # Asked while tracing, never at import. jax.lax.platform_dependent does not serve: it traces
    # both branches, and tracing cuDNN's fails on a machine without cuDNN.
    length, width = query.shape[1], query.shape[3]
    # The backward pass refuses odd lengths, which most vision towers have: their class token.
    if query.dtype != jnp.bfloat16 or length % 2 or width % 8 or width > 128:
        return False
    backend = jax.extend.backend.get_backend()
    if "cuda" not in backend.platform_version:
        return False
    return float(backend.local_devices()[0].compute_capability) >= 8.0
