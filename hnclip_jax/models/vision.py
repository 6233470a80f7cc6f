"""The vision tower: pixels, patches, class token, positions, blocks, projection."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from hnclip_jax import types
from hnclip_jax.models import presets, transformer


def check_images(images: types.Array, image_size: int) -> None:
    """Raises a UserError unless `images` is [B, image_size, image_size, 3], uint8 or floating."""
    if images.ndim != 4 or images.shape[1:] != (image_size, image_size, 3):
        raise types.UserError(
            f"images have shape {tuple(images.shape)}, but the model needs "
            f"[batch, {image_size}, {image_size}, 3], channels last; resize and crop them"
        )
    if images.dtype != jnp.uint8 and not jnp.issubdtype(images.dtype, jnp.floating):
        raise types.UserError(
            f"images are {images.dtype}, but must be uint8 (0 to 255), or floating and already "
            "normalised; convert them"
        )


def normalise(images: types.Array, mean: Sequence[float], std: Sequence[float]) -> types.Array:
    """Returns float32 pixels: uint8 / 255, less the mean, over the deviation; floats as they are.

    Args:
      images: [B, height, width, 3], uint8 or floating.
      mean: three numbers, for red, green and blue from 0 to 1.
      std: three numbers above 0, likewise.
    """
    if images.dtype != jnp.uint8:
        return jnp.asarray(images, jnp.float32)
    mean, std = (np.float32(x).reshape(1, 1, 1, 3) for x in (mean, std))
    return (jnp.asarray(images, jnp.float32) / 255 - mean) / std


def patchify(images: types.Array, patch_size: int) -> types.Array:
    """Returns the patches of `images`, row by row.

    Args:
      images: [B, height, width, 3].
      patch_size: pixels; divides height and width.

    Returns:
      [B, N, patch_size * patch_size * 3]; the values of a patch run over (row, column, channel).
    """
    batch, height, width, channels = images.shape
    rows, columns = height // patch_size, width // patch_size
    grid = images.reshape(batch, rows, patch_size, columns, patch_size, channels)
    return grid.swapaxes(2, 3).reshape(batch, rows * columns, -1)


class Vision(nn.Module):
    """Normalised images -> features, not yet of unit norm."""

    config: presets.ModelConfig
    compute: transformer.Compute

    @nn.compact
    def __call__(
        self, images: types.Array, *, tokens: bool = False, pool: transformer.Pool | None = None
    ) -> tuple[types.Array, types.Array | None, types.Array | None]:
        """Returns ([B, D], [B, N, D] or None, [B, K, D] or None) in float32.

        Class token; patches when `tokens`; what `pool` makes of the patches' states.

        Args:
          images: [B, height, width, 3] float32, normalised.
          tokens: also project every patch, with the class token's norm and projection.
          pool: also project what it makes of the patches' states, in the same way.
        """
        config, width = self.config, self.config.vision_width
        dtype = jnp.dtype(self.compute.dtype)
        normal = nn.initializers.normal(width**-0.5)
        patches = patchify(images, config.patch_size).astype(dtype)
        patches = nn.Dense(
            width,
            use_bias=False,
            dtype=dtype,
            precision=self.compute.precision,
            # Uniform within fan_in^-0.5: what the convolution of the original starts from.
            kernel_init=nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform"),
            name="patch_embed",
        )(patches)
        class_token = self.param("class_embedding", normal, (width,))
        positions = self.param("position_embedding", normal, (config.patch_count + 1, width))
        class_token = jnp.broadcast_to(
            class_token.astype(dtype)[None, None], (len(images), 1, width)
        )
        x = jnp.concatenate([class_token, patches], axis=1) + positions.astype(dtype)[None]
        x = transformer.layer_norm(config.layer_norm_eps, "ln_pre")(x).astype(dtype)
        x = transformer.run_blocks(x, config.vision, self.compute, causal=False)
        ln_post = transformer.layer_norm(config.layer_norm_eps, "ln_post")
        kernel = self.param("proj", normal, (width, config.embed_dim))
        image = transformer.project(ln_post(x[:, 0]), kernel, self.compute)
        patches = transformer.project(ln_post(x[:, 1:]), kernel, self.compute) if tokens else None
        if pool is None:
            return image, patches, None
        pooled = pool(x[:, 1:].astype(jnp.float32))
        return image, patches, transformer.project(ln_post(pooled), kernel, self.compute)
