"""The dual encoder: images and ids -> unit embeddings, from a plain nested dict of parameters."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from hnclip_jax import types, vectors
from hnclip_jax.models import placement, presets, text, transformer, vision

INITIAL_LOGIT_SCALE = math.log(1 / 0.07)


def create(
    model: presets.ModelConfig,
    *,
    dtype: str = "float32",
    scan_layers: bool = True,
    remat: str = "none",
) -> "DualEncoder":
    """Returns the dual encoder of this architecture; it holds no parameters.

    Args:
      model: the architecture, from `presets`.
      dtype: compute type of the towers, "float32" or "bfloat16"; parameters and embeddings are
        float32 in both.
      scan_layers: one compiled block per tower, parameters stacked; False writes the blocks out.
      remat: what the backward pass recomputes: "none", "dots" or "full".

    Raises:
      types.UserError: for an unknown dtype or remat.
    """
    return DualEncoder(model, transformer.Compute(dtype, scan_layers, remat))


@dataclasses.dataclass(frozen=True)
class DualEncoder:
    """Two towers and a temperature. Nothing is jitted here, and parameters are arguments.

    Parameters are {"image": {...}, "text": {...}, "logit_scale": scalar}; a tower that is not
    called may be missing. `config` has the architecture, `compute` how it is computed.
    """

    config: presets.ModelConfig
    compute: transformer.Compute

    def init(self, key: types.Array) -> types.Params:
        """Returns random float32 parameters, the same values with `scan_layers` on and off."""
        compute = dataclasses.replace(self.compute, scan_layers=True)
        image_key, text_key = jax.random.split(key)
        size = self.config.image_size
        images = jnp.zeros((1, size, size, 3), jnp.float32)
        ids = jnp.zeros((1, self.config.context_length), jnp.int32)
        params = {
            "image": vision.Vision(self.config, compute).init(image_key, images)["params"],
            "text": text.Text(self.config, compute).init(text_key, ids)["params"],
            "logit_scale": jnp.asarray(INITIAL_LOGIT_SCALE, jnp.float32),
        }
        return params if self.compute.scan_layers else transformer.unstack_blocks(params)

    def abstract_params(self) -> types.Params:
        """Returns the tree of `init` with a ShapeDtypeStruct for every array; allocates nothing."""
        return jax.eval_shape(lambda: self.init(jax.random.key(0)))

    def embed(
        self,
        params: types.Params,
        images: types.Array | None = None,
        ids: types.Array | None = None,
        *,
        tokens: bool = False,
        pool_patches: transformer.Pool | None = None,
        pool_words: transformer.Pool | None = None,
        words_normed: bool = False,
        constrain: transformer.Constrain = transformer.identity,
    ) -> types.Embeddings:
        """Returns the embeddings of what is given, fields of the rest None.

        Args:
          params: the tree of `init`, or the used tower's part of it.
          images: [B, ..., height, width, 3], uint8 (normalised here) or floating (already
            normalised). Axes between rows and pixels come back: image is [B, ..., D] then.
          ids: [B, S] integers: begin token, words, end token, anything; S up to the context length.
          tokens: also return patches, words and word_mask.
          pool_patches: also return regions: it takes the last block's states of the patches,
            [B, N, W], and what it returns, [B, K, W], is normed and projected as a picture is.
          pool_words: also return spans: likewise, of the states of all positions, [B, S, W].
          words_normed: give it states that have passed the final norm already.
          constrain: called on the [B, T, W] input of every block; on a mesh, a sharding constraint.

        Raises:
          types.UserError: for a wrong rank, size, type or length; for ids that are not traced also
            for a wrong range, or a missing begin or end token.
        """
        compute = dataclasses.replace(self.compute, constrain=constrain)
        fields = {}
        if images is not None:
            fields |= self._embed_images(compute, params, images, tokens, pool_patches)
        if images is not None and ids is not None:
            # The vision tower keeps and computes more: it runs back when the text tower is done.
            fields["image"], text_params = placement.after(fields["image"], params["text"])
            params = {**params, "text": text_params}
        if ids is not None:
            fields |= self._embed_ids(compute, params, ids, tokens, pool_words, words_normed)
        return types.Embeddings(**fields)

    def _embed_images(
        self,
        compute: transformer.Compute,
        params: types.Params,
        images: types.Array,
        tokens: bool,
        pool: transformer.Pool | None,
    ) -> dict[str, types.Array]:
        axes = images.shape[:-3]
        images = images.reshape(-1, *images.shape[-3:]) if len(axes) > 1 else images
        vision.check_images(images, self.config.image_size)
        pixels = vision.normalise(images, self.config.pixel_mean, self.config.pixel_std)
        tower = vision.Vision(self.config, compute)
        image, patches, regions = tower.apply(
            {"params": params["image"]}, pixels, tokens=tokens, pool=pool
        )
        image = vectors.unit(image)
        fields = {"image": image.reshape(*axes, -1) if len(axes) > 1 else image}
        if tokens:
            fields["patches"] = patches
        if pool:
            fields["regions"] = vectors.unit(regions)
        return fields

    def _embed_ids(
        self,
        compute: transformer.Compute,
        params: types.Params,
        ids: types.Array,
        tokens: bool,
        pool: transformer.Pool | None,
        normed: bool,
    ) -> dict[str, types.Array]:
        text.check_ids(ids, self.config)
        tower = text.Text(self.config, compute)
        caption, words, spans = tower.apply(
            {"params": params["text"]}, ids, tokens=tokens, pool=pool, normed=normed
        )
        fields = {"text": vectors.unit(caption)}
        if tokens:
            fields.update(words=words, word_mask=text.word_mask(ids))
        if pool:
            fields["spans"] = vectors.unit(spans)
        return fields

    def encode_image(self, params: types.Params, images: types.Array) -> types.Array:
        """Returns [B, D] float32 unit vectors; see `embed`."""
        return self.embed(params, images=images).image

    def encode_text(self, params: types.Params, ids: types.Array) -> types.Array:
        """Returns [B, D] float32 unit vectors; see `embed`."""
        return self.embed(params, ids=ids).text

    def scale(self, params: types.Params) -> types.Array:
        """Returns s = exp(logit_scale), a float32 scalar: the inverse temperature."""
        return jnp.exp(params["logit_scale"])
