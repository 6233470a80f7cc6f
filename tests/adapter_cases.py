"""Parameters and adapters for their tests, and the papers' formulas written out."""

import math

import jax
import numpy as np

import hnclip_jax as hn
from hnclip_jax import groups
from hnclip_jax.models import transformer

ALPHA = 6.0
GROUPS = {
    name: groups.MethodGroup(adapter=name, adapter_rank=4, adapter_alpha=ALPHA)
    for name in ("lora", "dora")
}
BLOCK = ("attn/key", "attn/out", "attn/query", "attn/value", "mlp/fc_in", "mlp/fc_out")
LAYERS = {"image": 3, "text": 2}
"""Kernels of a block, and blocks of a tower, of the preset "tiny"."""


def bases():
    """Returns parameters of the preset "tiny" as numpy arrays: {stacked: tree}, the same values."""
    rng = np.random.default_rng(3)

    def draw(path, leaf):
        values = rng.normal(size=leaf.shape).astype(np.float32)
        return 1 + 0.1 * values if path[-1].key in ("scale", "logit_scale") else 0.1 * values

    abstract = hn.create_model("tiny").abstract_params()
    stacked = jax.tree_util.tree_map_with_path(draw, abstract)
    return {True: stacked, False: transformer.unstack_blocks(stacked)}


def moved(adapter, seed=0):
    """Returns the adapter with noise on all of it, as if it had been trained; numpy."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: (np.asarray(x) + 0.1 * rng.normal(size=x.shape)).astype(np.float32), adapter
    )


def reference(kernel, parts, alpha):
    """Returns W of one layer in float64, in the papers' orientation: weights are (out, in)."""
    weight, a, b = (np.float64(x).T for x in (kernel, parts["a"], parts["b"]))
    out, inner = weight.shape
    rank = len(a)
    result = np.empty((out, inner))
    for o in range(out):
        for i in range(inner):
            product = sum(b[o, r] * a[r, i] for r in range(rank))
            result[o, i] = weight[o, i] + alpha / rank * product
    if "magnitude" in parts:
        for o in range(out):
            norm = math.sqrt(sum(x * x for x in result[o]))
            result[o] = parts["magnitude"][o] * result[o] / norm
    return result.T


def some_base(rng, layers=None, inner=5, out=3):
    """Returns parameters with one kernel, and an adapter of rank 2 on it, as numpy arrays."""
    lead = () if layers is None else (layers,)
    draw = lambda *shape: rng.normal(size=(*lead, *shape)).astype(np.float32)  # noqa: E731
    blocks = "blocks_00" if layers is None else "blocks"
    wrap = lambda x: {"image": {blocks: {"mlp": {"fc_in": {"kernel": x}}}}}  # noqa: E731
    parts = {"a": draw(inner, 2), "b": draw(2, out), "magnitude": draw(out)}
    return wrap(draw(inner, out)), wrap(parts), wrap


def only(tree):
    """Returns the one kernel of such a tree, or what stands in its place."""
    (blocks,) = tree["image"].values()
    return blocks["mlp"]["fc_in"]["kernel"]
