"""AdamW: the schedule, and by parameter path what trains, what decays and at which rate."""

import collections
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from hnclip_jax import groups, types
from hnclip_jax.parallel import sharding

DECAY: tuple[tuple[str, bool], ...] = (
    # Decay would pull DoRA's magnitudes to 0, and LoRA's product to 0 by way of either factor.
    (r"^adapter/", False),
    (r"^method/.*kernel$", True),
    (r"^method/", False),
    (r"kernel$", True),
    (r"(token_embedding|position_embedding)$", True),
    (r"(^|/)proj$", True),
    (r"(bias|scale|class_embedding|logit_scale)$", False),
)
"""(regular expression of the path, decays); the first match wins and every path must match one."""

POSITIONS = "text/position_embedding"
"""Path of the table whose first rows `optim.freeze_first_positions` holds still."""


def schedule(optim: groups.OptimGroup, total_steps: int) -> optax.Schedule:
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


def trained(optim: groups.OptimGroup, params: Any) -> Any:
    """Returns a tree of bools: which parameters move. A table that moves in part counts as moving.

    Raises:
      types.UserError: if a pattern of `optim.freeze` matches nothing, everything is frozen, or
        `optim.freeze_first_positions` reaches the end of the table.
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
    if held := optim.freeze_first_positions:
        if "text" not in params:
            raise types.UserError(
                f"optim.freeze_first_positions is {held}, but under adapters no position trains; "
                "leave it out"
            )
        rows = params["text"]["position_embedding"].shape[0]
        if held >= rows:
            raise types.UserError(
                f"optim.freeze_first_positions is {held}, but the model has {rows} text positions; "
                f"give fewer, or freeze them all by optim.freeze=('{POSITIONS}',)"
            )
    return tree


def hold_positions(optim: groups.OptimGroup, tree: Any) -> Any:
    """Returns gradients or updates (like the parameters) with none for rows that do not train.

    Those are the first `optim.freeze_first_positions` of the text positions.
    """
    if not optim.freeze_first_positions:
        return tree

    def hold(key_path: tuple, leaf: types.Array) -> types.Array:
        if sharding.path_of(key_path) != POSITIONS:
            return leaf
        # By comparison, not by slices: these would gather a table that is split along its rows.
        moves = jnp.arange(leaf.shape[0])[:, None] >= optim.freeze_first_positions
        # p + -0.0 is p for every p; p + 0.0 would turn a -0.0 into 0.0.
        return jnp.where(moves, leaf, -0.0)

    return jax.tree_util.tree_map_with_path(hold, tree)


def build(
    optim: groups.OptimGroup,
    params: Any,
    total_steps: int,
    rates: Mapping[str, float] | None = None,
) -> optax.GradientTransformation:
    """Returns AdamW over the trained parameters of the tree `params` (arrays or shapes).

    The update is ``-factor * rate(step) * (adam(clip(g)) + decay * p)``; decay is
    `optim.weight_decay` where DECAY says so, else 0; factor is `optim.logit_scale_rate` for
    logit_scale, else 1. The norm for clipping is taken over what trains. Frozen parameters have no
    optimiser state; the first positions, where they are frozen, have one that stays zero.

    Args:
      optim: the settings.
      params: the tree.
      total_steps: length of the schedule.
      rates: peak rate by term of the parameters in ``method/<term>/...``; 0, or none, means
        optim.lr. optim.method_lr goes before them.
    """

    def adamw(decay: float, lr: float, factor: float = 1.0) -> optax.GradientTransformation:
        rate = schedule(dataclasses.replace(optim, lr=lr), total_steps)
        return optax.chain(
            _adam(optim),
            optax.add_decayed_weights(decay),
            optax.scale_by_learning_rate(lambda step: factor * rate(step)),
        )

    groups_of = {
        "decayed": adamw(optim.weight_decay, optim.lr),
        "plain": adamw(0.0, optim.lr),
        "logit_scale": adamw(0.0, optim.lr, optim.logit_scale_rate),
        "frozen": optax.set_to_zero(),
    }
    for term in params.get("method", {}):
        lr = optim.method_lr or (rates or {}).get(term) or optim.lr
        groups_of[f"method/{term}/decayed"] = adamw(optim.weight_decay, lr)
        groups_of[f"method/{term}/plain"] = adamw(0.0, lr)
    update = optax.partition(groups_of, labels(optim, params))
    if optim.max_grad_norm:
        clip = optax.masked(optax.clip_by_global_norm(optim.max_grad_norm), trained(optim, params))
        update = optax.chain(clip, update)

    def update_rest(gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moves, state = update.update(hold_positions(optim, gradient), state, params)
        # Once more: weight decay moves what has no gradient.
        return hold_positions(optim, moves), state

    return optax.GradientTransformation(update.init, update_rest)


def _adam(optim: groups.OptimGroup) -> optax.GradientTransformation:
    """Returns Adam's direction, its first moment kept in `optim.mu_dtype`, float32 inside."""
    inner = optax.scale_by_adam(optim.b1, optim.b2, optim.eps)
    kept = jnp.dtype(optim.mu_dtype)
    if kept == jnp.float32:
        return inner

    # optax's own mu_dtype rounds b1 to that type as well: 0.9 would be 0.898, and 0.999 be 1.
    def init(params: Any) -> optax.ScaleByAdamState:
        state = inner.init(params)
        return state._replace(mu=optax.tree.cast(state.mu, kept))

    def update(gradient: Any, state: optax.ScaleByAdamState, params: Any = None) -> tuple:
        state = state._replace(mu=optax.tree.cast(state.mu, jnp.float32))
        moves, state = inner.update(gradient, state, params)
        return moves, state._replace(mu=optax.tree.cast(state.mu, kept))

    return optax.GradientTransformation(init, update)


def labels(optim: groups.OptimGroup, params: Any) -> Any:
    """Returns a tree that says of every parameter: frozen, decayed, plain or logit_scale.

    What is in ``method/<term>/`` has that name before it, if it is not frozen.
    """

    def label(key_path: tuple, moves: bool) -> str:
        path = sharding.path_of(key_path)
        if not moves:
            return "frozen"
        if path == "logit_scale":
            return path
        label = "decayed" if decays(path) else "plain"
        group, _, rest = path.partition("/")
        return f"method/{rest.partition('/')[0]}/{label}" if group == "method" else label

    return jax.tree_util.tree_map_with_path(label, trained(optim, params))


def describe(optim: groups.OptimGroup, params: Any) -> str:
    """Returns one line: how many parameters train, how many of them decay."""
    counts: dict[str, int] = collections.Counter()
    for (key_path, leaf), label in zip(
        jax.tree_util.tree_leaves_with_path(params),
        jax.tree.leaves(labels(optim, params)),
        strict=True,
    ):
        held = 0
        if sharding.path_of(key_path) == POSITIONS:
            held = optim.freeze_first_positions * leaf.shape[1]
        counts["frozen"] += held
        counts[label.rpartition("/")[2]] += leaf.size - held
    total = sum(counts.values())
    return (
        f"{total:,} parameters, {total - counts['frozen']:,} train, "
        f"{counts['decayed']:,} of these with weight decay {optim.weight_decay:g}"
    )
