"""The text tower: token embedding, positions, causal blocks, end-of-text pooling, projection."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from hnclip_jax import types
from hnclip_jax.models import presets, transformer


def check_ids(ids: types.Array, config: presets.ModelConfig) -> None:
    """Raises a UserError unless `ids` is an integer [B, S] with S within the position table.

    Ids that are there to be read (not traced) are also checked for range, begin and end token.
    """
    if ids.ndim != 2:
        raise types.UserError(
            f"ids have shape {tuple(ids.shape)}, but the model needs [batch, length]; "
            "drop the extra axis, or add the batch axis"
        )
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise types.UserError(f"ids are {ids.dtype}, but must be integers; tokenize the captions")
    if ids.shape[1] > config.context_length:
        raise types.UserError(
            f"ids are {ids.shape[1]} tokens long, but the model has {config.context_length} "
            f"positions; tokenize with context_length={config.context_length}, or stretch the model"
        )
    if isinstance(ids, jax.core.Tracer) or not getattr(ids, "is_fully_addressable", True):
        return
    ids = jax.device_get(ids)
    framed = (ids[:, 0] == config.begin_id) & (ids == config.end_id).any(axis=1)
    in_range = ((ids >= 0) & (ids < config.vocab_size)).all(axis=1)
    if not (framed & in_range).all():
        row = int((framed & in_range).argmin())
        raise types.UserError(
            f"row {row} of ids is not a caption: it needs begin token {config.begin_id} first, end "
            f"token {config.end_id} after the words, and no id outside 0..{config.end_id}; "
            "use the tokenizer"
        )


def end_positions(ids: types.Array) -> types.Array:
    """Returns [B] int32, the first end token's position in ids [B, S]: it is the largest id."""
    return jnp.argmax(ids, axis=-1).astype(jnp.int32)


def word_mask(ids: types.Array) -> types.Array:
    """Returns [B, S] bool: True on words, False on begin token, end token and what follows."""
    positions = jnp.arange(ids.shape[1])[None]
    return (positions > 0) & (positions < end_positions(ids)[:, None])


class Text(nn.Module):
    """Token ids -> features, not yet of unit norm."""

    config: presets.ModelConfig
    compute: transformer.Compute

    @nn.compact
    def __call__(
        self,
        ids: types.Array,
        *,
        tokens: bool = False,
        pool: transformer.Pool | None = None,
        normed: bool = False,
    ) -> tuple[types.Array, types.Array | None, types.Array | None]:
        """Returns ([B, D], [B, S, D] or None, [B, K, D] or None) in float32.

        End token; all positions when `tokens`; what `pool` makes of their states.

        Args:
          ids: [B, S] integers; S up to the context length. The first S position rows are used.
          tokens: also project every position, with the end token's norm and projection.
          pool: also project what it makes of all positions' states, in the same way.
          normed: give it states that have passed the final norm already.
        """
        config, width = self.config, self.config.text_width
        dtype = jnp.dtype(self.compute.dtype)
        normal = nn.initializers.normal
        table = self.param("token_embedding", normal(0.02), (config.vocab_size, width))
        positions = self.param("position_embedding", normal(0.01), (config.context_length, width))
        x = self.compute.look_up(table, ids).astype(dtype)
        x = x + positions[: ids.shape[1]].astype(dtype)[None]
        # No padding mask: what follows the end token cannot reach it backwards.
        x = transformer.run_blocks(x, config.text, self.compute, causal=True)
        ln_final = transformer.layer_norm(config.layer_norm_eps, "ln_final")
        kernel = self.param("proj", normal(width**-0.5), (width, config.embed_dim))
        end = jnp.take_along_axis(x, end_positions(ids)[:, None, None], axis=1)[:, 0]
        text = transformer.project(ln_final(end), kernel, self.compute)
        words = transformer.project(ln_final(x), kernel, self.compute) if tokens else None
        if pool is None:
            return text, words, None
        pooled = pool(ln_final(x) if normed else x.astype(jnp.float32))
        return text, words, transformer.project(ln_final(pooled), kernel, self.compute)
