"""Losses: pure functions of embeddings, float32 inside; they know no model."""

from hnclip_jax.losses.contrastive import hn_clip, info_nce
from hnclip_jax.losses.diagnostics import measure
from hnclip_jax.losses.tokens import late_interaction, token_interaction

__all__ = ["hn_clip", "info_nce", "late_interaction", "measure", "token_interaction"]
