"""FineLIP's fused score: the cosine of whole pictures and captions, and how their tokens interact.

A picture and a caption are K + 1 tokens each here, which lie on the host: 4 (K + 1) D bytes a row,
1.2 GB for 5,000 pictures and 5,000 captions of 40 tokens of width 768. Of these, 256 captions and
128 pictures are on the device at a time, where no array is larger than [8, 128, K + 1, K + 1]. The
rest is as for cosines: see `counting`.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hnclip_jax import groups, types
from hnclip_jax.evaluation import counting
from hnclip_jax.losses import finelip, terms
from hnclip_jax.models import presets
from hnclip_jax.parallel import sharding

METHOD = "finelip"
WEIGHT = 0.2
"""Share of the late interaction, as released."""

_TERM = finelip.TERMS[0].name
_CAPTIONS = 256
# Divides the tiles of cosines. Small, because blocks with right pairs are scored twice.
_PICTURES = 128


class Row(NamedTuple):
    """What is kept of pictures or captions.

    whole: [B, D] float32, unit norm.
    tokens: [B, K + 1, D] float32, unit norm.
    """

    whole: types.Array
    tokens: types.Array


def head(params: types.Params, embeddings: types.Embeddings) -> Row:
    """Returns what is kept of one tower's rows; an `embed.Head`.

    Args:
      params: the model's, with {"method": parameters as `check` returns them}.
      embeddings: of pictures or of captions, with tokens.
    """
    parameters = params["method"][_TERM]
    if embeddings.text is None:
        return Row(embeddings.image, finelip.image_tokens_of(parameters, embeddings))
    return Row(embeddings.text, finelip.text_tokens_of(parameters, embeddings))


def check(
    source: Any, method: str, parameters: types.Params, config: presets.ModelConfig
) -> types.Params:
    """Returns the parameters that the tokens are made with, {"triplet": {...}}.

    Args:
      source: where they are from, for messages.
      method: the name of their method.
      parameters: what it added to a model, {term: ...}.
      config: the model.

    Raises:
      types.UserError: if they are of another method, or of another model.
    """
    if method != METHOD or _TERM not in parameters:
        raise types.UserError(
            f"{source} holds what method {method!r} added ({types.at_most_ten(parameters)}), but "
            f"fused scores need the {_TERM!r} of a run with method.name={METHOD}"
        )
    found = _shapes(parameters[_TERM])
    # Any K fits the model, but both modalities must have it.
    tokens = (*found.get("image/fc_out/bias", ()), 1)[0]
    sizes = terms.Sizes(config.embed_dim, config.patch_count)
    settings = terms.Settings(groups.LossGroup(), groups.MethodGroup(finelip_tokens=tokens))
    needed = _shapes(jax.eval_shape(lambda: finelip.init(jax.random.key(0), sizes, settings)))
    wrong = [
        f"{path} is {found.get(path, 'missing')}, not {needed.get(path, 'known')}"
        for path in sorted(found.keys() | needed.keys())
        if found.get(path) != needed.get(path)
    ]
    if wrong:
        raise types.UserError(
            f"{source} does not fit the model, whose embeddings have width {config.embed_dim}: "
            f"{types.at_most_ten(wrong, '; ')}; take both from one run"
        )
    return {_TERM: parameters[_TERM]}


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {sharding.path_of(path): tuple(leaf.shape) for path, leaf in leaves}


def check_weight(weight: float) -> float:
    """Returns `weight`; raises types.UserError unless it is a share from 0 to 1."""
    if not 0 <= weight <= 1:
        raise types.UserError(
            f"fused_weight is {weight:g}, but the share of the late interaction is from 0 (none) "
            "to 1 (nothing else)"
        )
    return weight


@dataclasses.dataclass(frozen=True)
class Late:
    """The tokens of a list, and what they count.

    image: [M, a, D] float32, unit norm.
    text: [T, b, D] float32, unit norm.
    weight: share of the late interaction; the cosine has the rest.
    """

    image: np.ndarray
    text: np.ndarray
    weight: float = WEIGHT

    def __str__(self) -> str:
        """Returns the formula, for protocols."""
        return f"{1 - self.weight:g} cosine + {self.weight:g} late interaction"

    def scorer(
        self,
        image: np.ndarray,
        text: np.ndarray,
        order: tuple[np.ndarray, np.ndarray],
        block_rows: int,
    ) -> counting.Scores:
        """Returns the fused scores; a `retrieval.Scorer`."""
        cosines = counting.Products(image, text, order, min(block_rows, _CAPTIONS))
        return Scores(self, cosines, order)


class Scores(counting.Scores):
    """(1 - weight) S + weight R of pictures and captions, a block at a time."""

    def __init__(
        self, late: Late, cosines: counting.Products, order: tuple[np.ndarray, np.ndarray]
    ) -> None:
        """Takes tokens and cosines of the same pictures and captions.

        Raises:
          types.UserError: for tokens of another number of pictures or captions, or a weight that is
            no share.
        """
        rows = len(late.image), len(late.text)
        if rows != (cosines.pictures, cosines.texts):
            raise types.UserError(
                f"tokens of {rows[0]} pictures and {rows[1]} captions, but embeddings of "
                f"{cosines.pictures} and {cosines.texts}; both must be of one list"
            )
        super().__init__(cosines.pictures, cosines.texts, cosines.rows, _PICTURES)
        self._late, self._cosines, self._order = late, cosines, order
        self._weight = jnp.float32(check_weight(late.weight))

    def block(self, first: int, last: int) -> Row:
        """Returns the captions, [rows, D] and [rows, b, D]."""
        tokens = self._late.text[self._order[1][first:last]]
        whole = self._cosines.block(first, last)
        return Row(whole, jnp.asarray(counting.padded(tokens, self.rows)))

    def tile(self, first: int, last: int) -> tuple[Row, int]:
        """Returns the pictures, [columns, a, D], and the tile of cosines with them in it: where."""
        tokens = self._late.image[self._order[0][first:last]]
        place = first % self._cosines.columns
        whole = self._cosines.tile(first - place, last)
        return Row(whole, jnp.asarray(counting.padded(tokens, self.columns))), place

    def scores(self, block: Row, tile: tuple[Row, int]) -> jax.Array:
        """Returns the fused scores."""
        pictures, place = tile
        # At the very shape that ranking by cosine uses, so that a weight of 0 gives its very bits.
        cosines = self._cosines.scores(block.whole, pictures.whole)
        return _fused(cosines, place, pictures.tokens, block.tokens, self._weight)


@jax.jit
def _fused(
    cosines: jax.Array,
    place: jax.Array,
    image_tokens: jax.Array,
    text_tokens: jax.Array,
    weight: jax.Array,
) -> jax.Array:
    there = jax.lax.dynamic_slice_in_dim(cosines, place, len(image_tokens), axis=1)
    return finelip.fused(there, finelip.scores(image_tokens, text_tokens).T, weight)
