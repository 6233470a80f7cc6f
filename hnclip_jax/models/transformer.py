"""MLP, attention layer, block, the stack of blocks: scanned or written out, with or without remat.

T stands for the positions of a tower here: S in the text tower, patches plus class token in the
vision tower.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from hnclip_jax import types
from hnclip_jax.models import attention, placement, presets, product

Constrain = Callable[[types.Array], types.Array]
Pool = Callable[[types.Array], types.Array]
"""States of a tower's last block, [B, T, W] float32 -> [B, K, W], row by row."""

_REMAT_POLICIES = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": None,
}


def identity(x: types.Array) -> types.Array:
    """Returns `x`: the constraint of a run without a mesh."""
    return x


@dataclasses.dataclass(frozen=True)
class Compute:
    """How a tower is computed; parameters are float32 whatever it says.

    dtype: type of matrix products and activations; layer norms and softmax are float32 in both.
    scan_layers: one traced block for all layers, its parameters stacked under `blocks`; False
      gives `blocks_00`, `blocks_01`, ...
    remat: what the backward pass recomputes: "none", "dots" (all but products with weights) or
      "full" (whole blocks).
    constrain: called on the [B, T, W] input of every block; on a mesh it pins activations to the
      batch axes, which the compiler would split by width once the weights are split.
    look_up: of the token table; on a mesh its gradient arrives split as the table is.
    """

    dtype: str = "float32"
    scan_layers: bool = True
    remat: str = "none"
    constrain: Constrain = identity
    look_up: placement.LookUp = placement.look_up

    def __post_init__(self) -> None:
        for name, valid in (
            ("dtype", ("float32", "bfloat16")),
            ("remat", ("none", "dots", "full")),
        ):
            if getattr(self, name) not in valid:
                raise types.unknown_name(name, getattr(self, name), valid)

    @property
    def precision(self) -> str | None:
        """Precision of matrix products.

        TPUs and GPUs round float32 factors by default, which would spoil the parity of converted
        weights: whoever asks for float32 gets float32. bfloat16 factors have nothing to round.
        """
        return "highest" if self.dtype == "float32" else None


def dense(features: int, std: float, compute: Compute, name: str) -> nn.Dense:
    """Returns a dense layer with normal(std) kernel and zero bias, computing as `compute` says."""
    return nn.Dense(
        features,
        dtype=jnp.dtype(compute.dtype),
        precision=compute.precision,
        dot_general=product.dot_general,
        kernel_init=nn.initializers.normal(std),
        name=name,
    )


def layer_norm(eps: float, name: str) -> nn.LayerNorm:
    """Returns a layer norm that gives float32 whatever comes in; the caller casts."""
    # Fast variance (mean of squares less squared mean) cancels where a row is far from zero.
    return nn.LayerNorm(epsilon=eps, dtype=jnp.float32, use_fast_variance=False, name=name)


def project(x: types.Array, kernel: types.Array, compute: Compute) -> types.Array:
    """Returns x @ kernel in float32: factors in the compute type, sums not rounded to it."""
    dtype = jnp.dtype(compute.dtype)
    return jnp.matmul(
        x.astype(dtype),
        kernel.astype(dtype),
        precision=compute.precision,
        preferred_element_type=jnp.float32,
    )


def activate(name: str, x: types.Array) -> types.Array:
    """Returns x * sigmoid(1.702 x) for "quick_gelu", the exact (erf) GELU for "gelu"."""
    return (
        x * jax.nn.sigmoid(1.702 * x) if name == "quick_gelu" else jax.nn.gelu(x, approximate=False)
    )


class Attention(nn.Module):
    """Multi-head self-attention with separate query, key, value and out kernels, each [W, W]."""

    tower: presets.Tower
    compute: Compute
    causal: bool

    @nn.compact
    def __call__(self, x: types.Array) -> types.Array:
        width, compute = self.tower.width, self.compute
        query, key, value = (
            dense(width, width**-0.5, compute, name)(x).reshape(*x.shape[:2], self.tower.heads, -1)
            for name in ("query", "key", "value")
        )
        x = attention.attention(
            query, key, value, causal=self.causal, precision=compute.precision
        ).reshape(x.shape)
        return dense(width, _residual_std(self.tower), compute, "out")(x)


class MLP(nn.Module):
    """Two dense layers with the activation between them."""

    tower: presets.Tower
    compute: Compute

    @nn.compact
    def __call__(self, x: types.Array) -> types.Array:
        tower, compute = self.tower, self.compute
        x = dense(tower.mlp_width, (2 * tower.width) ** -0.5, compute, "fc_in")(x)
        x = activate(tower.activation, x)
        return dense(tower.width, _residual_std(tower), compute, "fc_out")(x)


class Block(nn.Module):
    """Pre-norm residual block: x + attn(ln_1 x), then x + mlp(ln_2 x)."""

    tower: presets.Tower
    compute: Compute
    causal: bool

    @nn.compact
    def __call__(self, x: types.Array) -> types.Array:
        x = self.compute.constrain(x)
        eps = self.tower.layer_norm_eps
        attn = Attention(self.tower, self.compute, self.causal, name="attn")
        mlp = MLP(self.tower, self.compute, name="mlp")
        x = x + attn(layer_norm(eps, "ln_1")(x).astype(x.dtype))
        return x + mlp(layer_norm(eps, "ln_2")(x).astype(x.dtype))


def run_blocks(
    x: types.Array, tower: presets.Tower, compute: Compute, *, causal: bool
) -> types.Array:
    """Returns `x` after all blocks of a tower; their parameters join those of the calling module.

    Args:
      x: [B, T, W] in the compute type.
      tower: `config.vision` or `config.text`.
      compute: how; see there.
      causal: whether position t sees only the positions up to t.

    Returns:
      [B, T, W], same type.
    """
    block = functools.partial(Block, tower, compute, causal)
    run = _run_block
    if compute.remat != "none":
        # A scan's backward pass is a loop of its own, so no barrier has to keep the two apart.
        policy = _REMAT_POLICIES[compute.remat]
        run = nn.remat(run, policy=policy, prevent_cse=not compute.scan_layers)
    if not compute.scan_layers:
        for i in range(tower.layers):
            x = run(block(name=_block_name(i)), x)
        return x
    scanned = nn.scan(
        lambda module, x, _: (run(module, x), None),
        variable_axes={"params": 0},
        split_rngs={"params": True},
        length=tower.layers,
    )
    return scanned(block(name="blocks"), x, None)[0]


def _run_block(block: Block, x: types.Array) -> types.Array:
    return block(x)


def _residual_std(tower: presets.Tower) -> float:
    # Two branches per layer add to the residual stream; its variance must not grow with depth.
    return tower.width**-0.5 * (2 * tower.layers) ** -0.5


def stack_blocks(params: types.Params) -> types.Params:
    """Returns `params` with `blocks_00`, `blocks_01`, ... joined to `blocks`, layers leading.

    Args:
      params: nested dict, a tower's or a whole model's. numpy leaves stay numpy: nothing moves to
        a device.
    """
    if not isinstance(params, Mapping):
        return params
    names = sorted((k for k in params if re.fullmatch(r"blocks_\d+", k)), key=lambda k: int(k[7:]))
    stacked = {k: stack_blocks(v) for k, v in params.items() if k not in names}
    if names:
        stacked["blocks"] = jax.tree.map(_stack, *(params[name] for name in names))
    return stacked


def unstack_blocks(params: types.Params) -> types.Params:
    """Returns `params` with `blocks` split into `blocks_00`, ...: the inverse of `stack_blocks`."""
    if not isinstance(params, Mapping):
        return params
    split = {k: unstack_blocks(v) for k, v in params.items() if k != "blocks"}
    if "blocks" in params:
        for i in range(len(jax.tree.leaves(params["blocks"])[0])):
            split[_block_name(i)] = jax.tree.map(lambda leaf, i=i: leaf[i], params["blocks"])
    return split


def _block_name(index: int) -> str:
    return f"blocks_{index:02d}"


def _stack(*leaves: types.Array) -> types.Array:
    on_host = all(isinstance(leaf, np.ndarray) for leaf in leaves)
    return np.stack(leaves) if on_host else jnp.stack(leaves)
