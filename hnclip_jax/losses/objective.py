"""From config to loss: the table of methods, and the objective of a run, their weighted terms."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hnclip_jax import groups, types
from hnclip_jax.losses import (
    batch,
    diagnostics,
    finelip,
    goal,
    kinds,
    longclip,
    structxlip,
    tokens,
)
from hnclip_jax.losses import terms as terms_lib
from hnclip_jax.types import Array


class Method(NamedTuple):
    """What a method adds to the global term, which `loss.kind` chooses, and the token term.

    terms: see `terms.Term`; each says which inputs, views and parameters it needs.
    views: name -> what the towers embed beside the pair; "pair" replaces the pair's own view.
    """

    terms: tuple[terms_lib.Term, ...] = ()
    views: Mapping[str, terms_lib.View] = {}


METHODS: dict[str, Method] = {
    "clip": Method(),
    "longclip": Method(longclip.TERMS, longclip.VIEWS),
    "finelip": Method(finelip.TERMS),
    "goal": Method(goal.TERMS, goal.VIEWS),
    "structxlip": Method(structxlip.TERMS, structxlip.VIEWS),
}

_PAIR = {terms_lib.PAIR: terms_lib.View("image", "tokens")}


@dataclasses.dataclass(frozen=True)
class Objective:
    """The loss of a run; made by `build`.

    settings: the config groups that it was made from.
    terms: those that have a weight, with it.
    views: name -> what the towers embed for them.
    steps_per_epoch: for weights and schedules that go by epochs; 0 = not known.
    """

    settings: terms_lib.Settings
    terms: tuple[tuple[terms_lib.Term, float], ...]
    views: dict[str, terms_lib.View]
    steps_per_epoch: int

    @property
    def loss(self) -> groups.LossGroup:
        """The config group `loss`."""
        return self.settings.loss

    @property
    def needs_tokens(self) -> bool:
        """Whether the pair's embeddings must have patches, words and word_mask."""
        return any(term.tokens for term, _ in self.terms)

    @property
    def needs_frozen_text(self) -> bool:
        """Whether `geometry`, text embeddings by the starting encoder, must be given."""
        return kinds.kind_of(self.loss).frozen

    @property
    def compares_with_info_nce(self) -> bool:
        """Whether the global term is InfoNCE but for its margin."""
        has_global = any(term.name == "global" for term, _ in self.terms)
        return has_global and kinds.kind_of(self.loss).softmax and not self.loss.label_smoothing

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of what must be loaded beside the pair; see data/inputs.py."""
        return tuple(dict.fromkeys(name for term, _ in self.terms for name in term.inputs))

    @property
    def rates(self) -> dict[str, float]:
        """Term -> peak learning rate of its own parameters, 0 = that of all others."""
        return {term.name: term.lr for term, _ in self.terms if term.init}

    def gamma_at(self, step: Array | int) -> Array:
        """Returns gamma at a step, a float32 scalar."""
        return kinds.gamma_at(self.loss, step, self.steps_per_epoch)

    def init(self, key: Array, sizes: terms_lib.Sizes) -> dict[str, Any]:
        """Returns {term: parameters that it adds}; {} if none adds any."""
        made = [(number, term) for number, (term, _) in enumerate(self.terms) if term.init]
        return {
            term.name: term.init(jax.random.fold_in(key, number), sizes, self.settings)
            for number, term in made
        }

    def __call__(
        self,
        views: Mapping[str, types.Embeddings],
        scale: Array | float,
        *,
        step: Array | int,
        arrays: Mapping[str, Array] | None = None,
        parameters: Mapping[str, Any] | None = None,
        key: Array | None = None,
        axis_name: batch.AxisName = None,
        geometry: Array | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Returns the total and each term before its weight, float32 scalars.

        Args:
          views: name -> embeddings of the whole batch, or of this device's rows with `axis_name`.
          scale: scalar s = exp(logit_scale).
          step: number of the training step; may be traced.
          arrays: the batch's other arrays; pair_id is used when loss.guard_same_pair is set.
          parameters: from `init`.
          key: jax.random key of this step, the same on every device; kind 'row_shuffled' needs it.
          axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.
          geometry: text embeddings by the frozen starting encoder; used by kind 'frozen'.

        Raises:
          types.UserError: when something is missing that this objective needs.
        """
        arrays, parameters = arrays or {}, parameters or {}
        self._check(views)
        inputs = terms_lib.Inputs(
            views=views,
            arrays=arrays,
            scale=scale,
            margin=kinds.margin_at(self.loss, step, key, self.steps_per_epoch),
            gamma=self.gamma_at(step),
            parameters={},
            settings=self.settings,
            block_rows=self.loss.block_rows or None,
            axis_name=axis_name,
            same_pair=self._guard(arrays.get("pair_id")),
            geometry=self._geometry(geometry),
        )
        values = {
            term.name: term.compute(inputs._replace(parameters=parameters.get(term.name, {})))
            for term, _ in self.terms
        }
        total = sum(
            self._weight(term, weight, step) * values[term.name] for term, weight in self.terms
        )
        return total, values

    def measure(
        self,
        embeddings: types.Embeddings,
        scale: Array | float,
        *,
        step: Array | int,
        key: Array | None = None,
        same_pair: Array | None = None,
        geometry: Array | None = None,
    ) -> dict[str, Array]:
        """Returns `diagnostics.measure` of a whole batch of pairs, at this objective's margin."""
        return diagnostics.measure(
            embeddings.image,
            embeddings.text,
            scale,
            kinds.margin_at(self.loss, step, key, self.steps_per_epoch),
            same_pair=self._guard(same_pair),
            geometry=self._geometry(geometry),
        )

    def _weight(self, term: terms_lib.Term, weight: float, step: Array | int) -> Array | float:
        if term.factor is None:
            return weight
        if not self.steps_per_epoch:
            raise types.UserError(
                f"the weight of term {term.name!r} goes by epochs, but the number of steps per "
                "epoch was not given; pass steps_per_epoch to objective.build"
            )
        epoch = jnp.asarray(step, jnp.float32) / self.steps_per_epoch
        return weight * term.factor(self.settings, epoch)

    def _check(self, views: Mapping[str, types.Embeddings]) -> None:
        missing = [name for name in self.views if name not in views]
        if missing:
            raise types.UserError(
                f"this objective looks at {', '.join(missing)}, but was given embeddings of "
                f"{', '.join(views)} alone; embed all of objective.views"
            )
        if self.needs_tokens and views[terms_lib.PAIR].patches is None:
            raise types.UserError(
                "this objective has a term on tokens, but the embeddings hold no patches and "
                "words; ask the model for tokens"
            )

    def _guard(self, same_pair: Array | None) -> Array | None:
        return same_pair if self.loss.guard_same_pair else None

    def _geometry(self, geometry: Array | None) -> Array | None:
        if not self.needs_frozen_text:
            return None  # given or not, it would cost a gather for nothing
        if geometry is None:
            raise types.UserError(
                "loss.kind 'frozen' takes G from the starting text encoder, but no geometry was "
                "given; pass its embeddings of these captions"
            )
        return geometry


def build(
    loss: groups.LossGroup, method: groups.MethodGroup, steps_per_epoch: int = 0
) -> Objective:
    """Returns the objective of a run.

    Args:
      loss: the global term, its boost, the token term.
      method: the row of METHODS, and what it is told.
      steps_per_epoch: for what goes by epochs; 0 = not known.

    Raises:
      types.UserError: for a method that is not in METHODS, or if no term has a weight.
    """
    if method.name not in METHODS:
        raise types.unknown_name("method", method.name, METHODS)
    row, settings = METHODS[method.name], terms_lib.Settings(loss, method)
    every = (kinds.term(loss), *row.terms, tokens.term(loss))
    weighted = [(term, weight) for term in every if (weight := term.weight(settings))]
    if not weighted:
        raise types.UserError(
            f"method {method.name!r} has no term left: every weight is 0; raise one"
        )
    added = any(term in row.terms for term, _ in weighted)
    known = {**_PAIR, **(row.views if added else {}), **kinds.kind_of(loss).views}
    needed = {terms_lib.PAIR, *(name for term, _ in weighted for name in term.views)}
    views = {name: view for name, view in known.items() if name in needed}
    return Objective(settings, tuple(weighted), views, steps_per_epoch)
