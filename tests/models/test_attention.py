"""Attention against a loop, its gradient against another implementation, and who computes it."""

import functools
import math
import types as std_types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax.models import attention

FLOAT32_TOLERANCE = 2e-6  # a few roundings of values near 1
BFLOAT16_TOLERANCE = 2e-2  # weights and result are rounded to 8 bits

# These programs run once: all the time goes into compiling them.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def _heads(seed, shape=(2, 7, 3, 8)):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for _ in range(3)]


def _slow_attention(query, key, value, causal):
    query, key, value = (x.astype(np.float64) for x in (query, key, value))
    out = np.zeros_like(value)
    batch, length, heads, width = query.shape
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                stop = t + 1 if causal else length
                logits = key[b, :stop, h] @ query[b, t, h] / math.sqrt(width)
                weights = np.exp(logits - logits.max())
                out[b, t, h] = weights @ value[b, :stop, h] / weights.sum()
    return out


@pytest.mark.parametrize("causal", [False, True], ids=["open", "causal"])
@pytest.mark.parametrize(
    "attend",
    [
        lambda *qkv, causal: attention.plain_attention(*qkv, causal=causal, precision="highest"),
        lambda *qkv, causal: attention.fused_attention(*qkv, causal=causal, implementation="xla"),
        lambda *qkv, causal: attention.attention(*qkv, causal=causal, precision="highest"),
    ],
    ids=["plain", "fused", "chosen"],
)
def test_attention_equals_a_loop(attend, causal):
    qkv = _heads(0)
    result = attend(*qkv, causal=causal)
    np.testing.assert_allclose(
        result, _slow_attention(*qkv, causal), rtol=0, atol=FLOAT32_TOLERANCE
    )


@pytest.mark.parametrize("causal", [False, True], ids=["open", "causal"])
def test_attention_in_bfloat16(causal):
    qkv = [jnp.asarray(x, jnp.bfloat16) for x in _heads(1)]
    plain = attention.plain_attention(*qkv, causal=causal, precision=None)
    fused = attention.fused_attention(*qkv, causal=causal, implementation="xla")
    assert plain.dtype == fused.dtype == jnp.bfloat16
    slow = _slow_attention(*(np.asarray(x, np.float32) for x in qkv), causal)
    np.testing.assert_allclose(plain.astype(np.float32), slow, rtol=0, atol=BFLOAT16_TOLERANCE)
    np.testing.assert_allclose(fused.astype(np.float32), slow, rtol=0, atol=BFLOAT16_TOLERANCE)


@pytest.mark.parametrize(("causal", "width"), [(False, 6), (True, 4)], ids=["open", "causal"])
def test_gradient_equals_that_of_another_implementation(causal, width):
    qkv = _heads(2, (2, 7, 3, width))
    towards = _heads(3, (2, 7, 3, width))[0]

    def plain(*qkv):
        out = attention.plain_attention(*qkv, causal=causal, precision="highest")
        return jnp.sum(out * towards)

    def other(*qkv):
        out = attention.fused_attention(*qkv, causal=causal, implementation="xla")
        return jnp.sum(out * towards)

    found = jit(jax.grad(plain, argnums=(0, 1, 2)))(*qkv)
    wanted = jit(jax.grad(other, argnums=(0, 1, 2)))(*qkv)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=5 * FLOAT32_TOLERANCE)


def test_gradient_in_bfloat16():
    qkv = [jnp.asarray(x, jnp.bfloat16) for x in _heads(4)]

    def loss(*qkv):
        out = attention.plain_attention(*qkv, causal=True, precision="highest")
        return jnp.sum(jnp.square(out.astype(jnp.float32)))

    grad = jit(jax.grad(loss, argnums=(0, 1, 2)))
    found = grad(*qkv)
    wanted = grad(*(x.astype(jnp.float32) for x in qkv))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == jnp.bfloat16
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        np.testing.assert_allclose(a, b, rtol=0, atol=BFLOAT16_TOLERANCE * np.abs(b).max())


def _backend(monkeypatch, platform_version, capability):
    device = std_types.SimpleNamespace(compute_capability=capability)
    backend = std_types.SimpleNamespace(
        platform_version=platform_version, local_devices=lambda: [device]
    )
    monkeypatch.setattr(jax.extend.backend, "get_backend", lambda: backend)


CUDA = "PJRT C API\ncuda 12090"


@pytest.mark.parametrize(
    ("version", "capability", "dtype", "length", "head_width", "kernel"),
    [
        (CUDA, "9.0", "bfloat16", 248, 64, True),
        (CUDA, "10.3", "bfloat16", 50, 104, True),
        (CUDA, "9.0", "float32", 248, 64, False),
        (CUDA, "7.0", "bfloat16", 248, 64, False),
        (CUDA, "9.0", "bfloat16", 257, 64, False),
        (CUDA, "9.0", "bfloat16", 248, 20, False),
        (CUDA, "9.0", "bfloat16", 248, 136, False),
        ("PJRT C API\nrocm 60000", "gfx90a", "bfloat16", 248, 64, False),
        ("PJRT C API\nTFRT TPU v5", "", "bfloat16", 248, 64, False),
    ],
    ids=["hopper", "blackwell", "float32", "volta", "odd", "head-20", "head-136", "rocm", "tpu"],
)
def test_cudnn_is_called_where_it_has_a_kernel(
    monkeypatch, version, capability, dtype, length, head_width, kernel
):
    _backend(monkeypatch, version, capability)
    calls = []

    def record(query, key, value, **options):
        calls.append(options)
        return value

    monkeypatch.setattr(jax.nn, "dot_product_attention", record)
    qkv = jnp.ones((3, 1, length, 2, head_width), dtype)
    attention.attention(*qkv, causal=True, precision=None)
    assert calls == ([{"is_causal": True, "implementation": "cudnn"}] if kernel else [])
