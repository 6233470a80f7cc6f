"""The dense product and its gradients against numpy, wide and narrow kernels, both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax.models import product


def _arrays(inputs, outputs):
    rng = np.random.default_rng(0)
    shapes = ((3, 5, inputs), (inputs, outputs), (3, 5, outputs))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def _contractions(jaxpr):
    """The first factor's shape of every product, those of inner jaxprs included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.invars[0].aval.shape
        for value in equation.params.values():
            if hasattr(value, "eqns"):
                yield from _contractions(value)
            elif hasattr(value, "jaxpr"):
                yield from _contractions(value.jaxpr)


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 9), (9, 4), (6, 6)])
def test_product_and_gradients(inputs, outputs):
    x, kernel, towards = _arrays(inputs, outputs)
    run = lambda x, kernel: product.dot_general(x, kernel, None, "highest")  # noqa: E731
    out, back = jax.vjp(run, x, kernel)
    by_x, by_kernel = back(jnp.asarray(towards))
    np.testing.assert_allclose(out, x @ kernel, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_x, towards @ kernel.T, rtol=1e-5, atol=1e-5)
    expected = np.einsum("bti,bto->io", x, towards)
    np.testing.assert_allclose(by_kernel, expected, rtol=1e-5, atol=1e-5)
    _, along = jax.jvp(run, (x, kernel), (x, kernel))
    np.testing.assert_allclose(along, 2 * x @ kernel, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 9), (9, 4)], ids=["wide", "narrow"])
def test_the_narrower_factor_comes_first(inputs, outputs):
    x, kernel, towards = _arrays(inputs, outputs)

    def loss(kernel):
        return jnp.sum(product.dot_general(x, kernel, None) * towards)

    *_, by_kernel = _contractions(jax.make_jaxpr(jax.grad(loss))(kernel).jaxpr)
    assert by_kernel == (3, 5, 4)
