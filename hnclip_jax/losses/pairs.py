"""This device's pairs against the whole batch, one direction at a time: what baselines stand on.

For comparison, and not tuned for memory: pictures and captions are both gathered, and a device
holds a few [L, B] arrays for each direction, where `contrastive` gathers the captions alone.

Losses that are written on it are float32 scalars, the same on all devices, and share arguments:

    image      [B, D], or [L, D] with `axis_name`; unit norm. Computed in float32.
    text       as `image`; row b belongs to image b.
    scale      scalar s = exp(logit_scale).
    axis_name  mapped axis or axes over which the batch is split; see losses/batch.py.
    same_pair  [B] or [L] integer ids; pairs with equal ids are no negatives of each other.

They raise types.UserError for a global batch of one pair, and for arrays that do not fit together.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.losses import batch
from hnclip_jax.types import Array


class Pairs(NamedTuple):
    """This device's pairs (`_ld`) and those of the whole batch (`_bd`); made by `gathered`.

    index: [L] int32, numbers of this device's pairs in the batch.
    own: [L, B] bool, where a pair meets itself.
    negatives: [L, B] bool, where a pair meets a negative.
    """

    image_ld: Array
    text_ld: Array
    image_bd: Array
    text_bd: Array
    index: Array
    own: Array
    negatives: Array

    @property
    def image_to_text(self) -> Array:
        """Cosines of this device's pictures with all captions, [L, B]: rows of S."""
        return cosines(self.image_ld, self.text_bd)

    @property
    def text_to_image(self) -> Array:
        """Cosines of this device's captions with all pictures, [L, B]: rows of S^T."""
        return cosines(self.text_ld, self.image_bd)

    @property
    def log_count(self) -> Array:
        """Log of the number of each pair's negatives, [L]; 0 if it has none."""
        return jnp.log(jnp.maximum(jnp.sum(self.negatives.astype(jnp.float32), axis=1), 1.0))

    def positive(self, scores: Array) -> Array:
        """Returns each pair's own entry of `scores` [L, B], [L]."""
        return jnp.sum(scores, axis=1, where=self.own)

    def rest(self, logits: Array) -> Array:
        """Returns logsumexp over each pair's negatives, [L]; about -1e30 if it has none."""
        return jax.nn.logsumexp(jnp.where(self.negatives, logits, batch.MASKED), axis=1)

    def mean(self, direction: Callable[[Array], Array], axis_name: batch.AxisName) -> Array:
        """Returns the mean over the global batch and both directions, a scalar.

        Args:
          direction: the cosines of one direction [L, B] -> each pair's loss [L].
          axis_name: see losses/batch.py.
        """
        both = direction(self.image_to_text) + direction(self.text_to_image)
        return batch.total(jnp.sum(both), axis_name) / (2 * self.own.shape[1])


def gathered(
    image: Array, text: Array, axis_name: batch.AxisName, same_pair: Array | None
) -> Pairs:
    """Returns the pairs of this device and of the whole batch; arguments as at the top."""
    shapes = [jnp.shape(x) for x in (image, text, same_pair) if x is not None]
    if shapes[0] != shapes[1] or len(shapes[0]) != 2 or len({shape[0] for shape in shapes}) > 1:
        raise types.UserError(
            f"image, text (and same_pair) have shapes {shapes}, but need one row per pair: [L, D], "
            "[L, D], ([L]); give the embeddings of the same examples"
        )
    image, text = jnp.asarray(image, jnp.float32), jnp.asarray(text, jnp.float32)
    image_bd, text_bd, same_pair_b = batch.gather((image, text, same_pair), axis_name)
    index = batch.row_index(len(image), axis_name)
    own = batch.is_own(index, batch.check_pairs(len(image_bd)))
    negatives = ~own
    if same_pair is not None:
        negatives &= same_pair[:, None] != same_pair_b[None, :]
    return Pairs(image, text, image_bd, text_bd, index, own, negatives)


def cosines(rows: Array, columns: Array) -> Array:
    """Returns [L, B], the products of unit vectors [L, D] and [B, D]."""
    return jnp.matmul(rows, columns.T, precision="highest")
