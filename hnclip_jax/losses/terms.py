"""What a method is made of: terms, the views they look at, the parameters they add."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from hnclip_jax import groups, types
from hnclip_jax.losses import batch, margins
from hnclip_jax.types import Array

PAIR = "pair"
"""The view of every method: the picture and its caption."""

Pool: TypeAlias = Callable[[Array, Mapping[str, Array]], Array]
"""(states [B, T, W] of a tower's last block, the batch's other arrays) -> [B, K, W], row by row."""


class View(NamedTuple):
    """Something of the batch that the towers embed.

    image: batch key of pictures [B, ..., height, width, 3]; "" = none.
    text: batch key of ids [B, ..., S]; "" = none.
    pool_patches: makes `Embeddings.regions` of the patches' states; None = not asked for.
    pool_words: makes `Embeddings.spans` of the words' states.
    words_normed: whether these have passed the final norm before they are pooled, and do again
      after it, as they do in StructXLIP's released code.
    """

    image: str = ""
    text: str = ""
    pool_patches: Pool | None = None
    pool_words: Pool | None = None
    words_normed: bool = False


class Settings(NamedTuple):
    """The two config groups that a method may look at."""

    loss: groups.LossGroup
    method: groups.MethodGroup


class Sizes(NamedTuple):
    """Numbers of the model that added parameters depend on.

    width: of the embeddings, D.
    patches: N, the class token left out.
    """

    width: int
    patches: int


Init: TypeAlias = Callable[[Array, Sizes, Settings], Mapping[str, Any]]
"""(jax.random key, sizes, settings) -> nested dict of float32 parameters."""


class Inputs(NamedTuple):
    """What a term is computed from: rows of this device, or of the whole batch.

    views: name -> embeddings; arrays [L, ..., D] for a view with more axes than one.
    arrays: the batch's other arrays, [L, ...].
    scale: s = exp(logit_scale).
    margin: of the global term at this step.
    gamma: float32 scalar, at this step.
    parameters: those that the term's `init` made; {} if it has none.
    settings: see there.
    block_rows, axis_name, same_pair, geometry: as losses take them.
    """

    views: Mapping[str, types.Embeddings]
    arrays: Mapping[str, Array]
    scale: Array | float
    margin: margins.Margin
    gamma: Array | float
    parameters: Mapping[str, Any]
    settings: Settings
    block_rows: int | None = None
    axis_name: batch.AxisName = None
    same_pair: Array | None = None
    geometry: Array | None = None

    @property
    def pair(self) -> types.Embeddings:
        """The picture and its caption."""
        return self.views[PAIR]


class Term(NamedTuple):
    """A part of a method's loss.

    name: under which it is logged.
    compute: Inputs -> float32 scalar.
    weight: Settings -> number; a term of weight 0 is left out, and so is what only it needs.
    factor: (Settings, epoch as a float32 scalar) -> factor of the weight; None = always 1.
    tokens: whether it needs patches and words of the pair.
    views: names of the views that it looks at beside the pair.
    inputs: names of what must be loaded beside the pair; see data/inputs.py.
    init: makes parameters that the term adds; None = it adds none.
    lr: their peak learning rate; 0 = that of all others. optim.method_lr goes first.
    """

    name: str
    compute: Callable[[Inputs], Array]
    weight: Callable[[Settings], float]
    factor: Callable[[Settings, Array], Array] | None = None
    tokens: bool = False
    views: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    init: Init | None = None
    lr: float = 0.0
