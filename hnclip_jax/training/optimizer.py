"""AdamW: the schedule, and by parameter path what trains, what decays and at which rate."""

import re
from typing import Any

import jax
import optax

from hnclip_jax import config, types
from hnclip_jax.parallel import sharding

DECAY: tuple[tuple[str, bool], ...] = (
    (r"kernel$", True),
    (r"(token_embedding|position_embedding)$", True),
    (r"(^|/)proj$", True),
    (r"(bias|scale|class_embedding|logit_scale)$", False),
)
"""(regular expression of the path, decays); the first match wins and every path must match one."""


def schedule(optim: config.OptimGroup, total_steps: int) -> optax.Schedule:
    """Returns the learning rate by step: linear warm-up, then half a cosine or a constant.

    Step k of the warm-up has rate lr (k + 1) / warmup_steps, so no step has rate zero.

    Raises:
      types.UserError: if the warm-up is longer than the run.
    """
    warmup = optim.warmup_steps
    if warmup >= total_steps:
        raise types.UserError(
            f"optim.warmup_steps ({warmup}) is not below the {total_steps} steps of the run; "
            "lower it or train longer"
        )
    if optim.schedule == "constant":
        after = optax.constant_schedule(optim.lr)
    else:
        after = optax.cosine_decay_schedule(
            optim.lr, total_steps - warmup, alpha=optim.end_lr_fraction
        )
    if not warmup:
        return after
    rise = optax.linear_schedule(optim.lr / warmup, optim.lr, max(warmup - 1, 1))
    return optax.join_schedules([rise, after], [warmup])


def decays(path: str) -> bool:
    """Returns whether weight decay acts on the parameter at `path`.

    Raises:
      ValueError: if no line of DECAY matches; a new parameter needs one.
    """
    for pattern, decay in DECAY:
        if re.search(pattern, path):
            return decay
    raise ValueError(f"no rule of training.optimizer.DECAY matches {path!r}")


def trained(optim: config.OptimGroup, params: Any) -> Any:
    """Returns a tree of bools: which parameters move.

    Raises:
      types.UserError: if a pattern of `optim.freeze` matches nothing, or everything is frozen.
    """
    patterns = [*optim.freeze, *([r"^logit_scale$"] if optim.freeze_logit_scale else [])]
    paths = [sharding.path_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for pattern in patterns:
        if not any(re.search(pattern, path) for path in paths):
            raise types.UserError(
                f"optim.freeze pattern {pattern!r} matches no parameter; paths look like "
                f"{paths[0]!r} and {paths[-1]!r}"
            )
    tree = jax.tree_util.tree_map_with_path(
        lambda path, _: not any(re.search(pattern, sharding.path_of(path)) for pattern in patterns),
        params,
    )
    if not any(jax.tree.leaves(tree)):
        raise types.UserError(f"optim.freeze {optim.freeze} leaves no parameter to train")
    return tree


def build(optim: config.OptimGroup, params: Any, total_steps: int) -> optax.GradientTransformation:
    """Returns AdamW over the trained parameters of the tree `params` (arrays or shapes).

    The update is ``-factor * rate(step) * (adam(clip(g)) + decay * p)``; decay is
    `optim.weight_decay` where DECAY says so, else 0; factor is `optim.logit_scale_rate` for
    logit_scale, else 1. The norm for clipping is taken over the trained parameters. Frozen
    parameters have no optimiser state.
    """
    rate = schedule(optim, total_steps)

    def adam(decay: float, factor: float = 1.0) -> optax.GradientTransformation:
        return optax.chain(
            optax.scale_by_adam(optim.b1, optim.b2, optim.eps),
            optax.add_decayed_weights(decay),
            optax.scale_by_learning_rate(lambda step: factor * rate(step)),
        )

    update = optax.partition(
        {
            "decayed": adam(optim.weight_decay),
            "plain": adam(0.0),
            "logit_scale": adam(0.0, optim.logit_scale_rate),
            "frozen": optax.set_to_zero(),
        },
        labels(optim, params),
    )
    if not optim.max_grad_norm:
        return update
    clip = optax.masked(optax.clip_by_global_norm(optim.max_grad_norm), trained(optim, params))
    return optax.chain(clip, update)


def labels(optim: config.OptimGroup, params: Any) -> Any:
    """Returns a tree that says of every parameter: frozen, decayed, plain or logit_scale."""

    def label(key_path: tuple, moves: bool) -> str:
        path = sharding.path_of(key_path)
        if not moves:
            return "frozen"
        if path == "logit_scale":
            return path
        return "decayed" if decays(path) else "plain"

    return jax.tree_util.tree_map_with_path(label, trained(optim, params))


def describe(optim: config.OptimGroup, params: Any) -> str:
    """Returns one line: how many parameters train, how many of them decay."""
    counts = dict.fromkeys(("frozen", "decayed", "plain", "logit_scale"), 0)
    for leaf, label in zip(
        jax.tree.leaves(params), jax.tree.leaves(labels(optim, params)), strict=True
    ):
        counts[label] += leaf.size
    total = sum(counts.values())
    return (
        f"{total:,} parameters, {total - counts['frozen']:,} train, "
        f"{counts['decayed']:,} of these with weight decay {optim.weight_decay:g}"
    )
