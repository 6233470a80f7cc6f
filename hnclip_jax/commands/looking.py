"""What figures about embeddings are drawn from: lists by weights, or folders of `hnclip embed`."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from absl import flags

from hnclip_jax import types
from hnclip_jax.analysis import queries
from hnclip_jax.commands import embedding, pictures, sources
from hnclip_jax.data import lists, tokenizer
from hnclip_jax.evaluation import cache, retrieval, ties
from hnclip_jax.training import logging


@dataclasses.dataclass(frozen=True)
class Looked:
    """A list by some weights.

    weights, data: short names of both, for legends.
    records: of the list; the pictures and captions themselves.
    image: [M, D] float32, unit norm; None where only captions were asked for.
    text: [T, D] float32, likewise, in the order of the list's captions.
    text_to_image: [T] int, the record of each caption.
    pair_ids: [T] int32, equal for captions of one picture or of one text: no negatives.
    scale: s = exp(logit_scale) of the weights; None where it is not known.
    provenance: JSON values that say what the weights and the list are.
    """

    weights: str
    data: str
    records: lists.PictureList
    image: np.ndarray | None
    text: np.ndarray
    text_to_image: np.ndarray
    pair_ids: np.ndarray
    scale: float | None
    provenance: dict

    @property
    def captions(self) -> lists.PairView:
        """The texts, in the order of `text`."""
        return lists.views(self.records.records)[1]


def define_flags(values: flags.FlagValues, *, weights: bool = True) -> None:
    """Adds what names weights and lists; `weights` only if they are no words of their own."""
    if weights:
        flags.DEFINE_list(
            "weights",
            [],
            "run folders, or weights in any layout that `hnclip inspect` knows, with commas "
            "between",
            flag_values=values,
        )
    flags.DEFINE_list(
        "data", [], "lists of pictures and captions, with commas between", flag_values=values
    )
    flags.DEFINE_list(
        "embeddings",
        [],
        "folders that `hnclip embed` wrote, instead of weights and data",
        flag_values=values,
    )
    sources.define_flags(values, data=False)
    embedding.define_vocabulary(values)
    embedding.define_compute_flags(values)


def look(
    values: flags.FlagValues,
    weights: Sequence[str],
    example: str,
    *,
    captions_only: bool = False,
    check: Callable[[lists.PictureList], None] = lambda found: None,
) -> list[Looked]:
    """Returns every list by every weights, with progress bars; or the folders of --embeddings.

    Args:
      values: with the flags of `define_flags`.
      weights: those of the flag, or the words that name them.
      example: of the command, for the message when a flag is missing.
      captions_only: pictures are not embedded.
      check: called with each list before weights are loaded, to raise what is wrong with it.

    Raises:
      types.UserError: if neither or both are given, or something cannot be read.
    """
    if bool(values.embeddings) == bool(weights or values.data):
        raise types.UserError(f"needs weights and --data, or --embeddings; for example: {example}")
    if values.embeddings:
        return [_kept(folder) for folder in values.embeddings]
    if not (weights and values.data):
        raise types.UserError(f"needs both, weights and --data; for example: {example}")
    found = [(name, embedding.find(values, name)) for name in weights]
    # Lists may be mistaken, and weights take longest; but packed lists ask for a size.
    size, options = found[0][1].config.image_size, pictures.options(values)
    read = [
        (data, sources.read(sources.from_flags(values, data), image_size=size, options=options))
        for data in values.data
    ]
    for _, of_list in read:
        check(of_list.pictures)
    looked = []
    for name, imported in found:
        loaded = embedding.load(values, imported)
        looked += [_embedded(values, loaded, one, name, data, captions_only) for data, one in read]
    return looked


def ranked(
    name: str,
    image: np.ndarray,
    text: np.ndarray,
    text_to_image: np.ndarray,
    asking: Sequence[int] | None,
    k: int,
) -> dict[str, queries.Ranked]:
    """Returns direction -> the ranks of all queries, those of `hnclip eval`, with a progress bar.

    Args:
      name: of the weights, for the bar.
      image, text, text_to_image: as in `Looked`.
      asking: records that ask, and whose captions do; None = all.
      k: what is found is among the first so many.
    """
    with contextlib.closing(logging.Progress(f"ranking by {name}", "caption")) as progress:
        measured = retrieval.measure(image, text, text_to_image, queries=asking, progress=progress)
    return {
        direction: queries.Ranked(ties.places(found), found.equal, ties.hits(found, k))
        for direction, found in measured.ranks.items()
    }


def _embedded(
    values: flags.FlagValues,
    loaded: embedding.Loaded,
    found: sources.Found,
    weights: str,
    data: str,
    captions_only: bool,
) -> Looked:
    records = found.pictures
    with contextlib.closing(logging.Progress(f"embedding {short(data)}", "row")) as progress:
        if captions_only:
            captions = lists.views(records.records)[1]
            tokenize = tokenizer.Tokenizer(values.vocabulary or None)
            image, text = None, embedding.texts(values, loaded, captions, tokenize, progress)
        else:
            done = embedding.evaluator(values, loaded, found).embed(loaded.params, progress)
            image, text = done.image, done.text
    return _looked(
        short(weights),
        short(data),
        records,
        image,
        text,
        embedding.scale(loaded),
        {**loaded.provenance, "list": str(records.path), "list_sha256": records.sha256},
    )


def _kept(folder: str) -> Looked:
    """Returns the embeddings of a folder, if its list is still the same."""
    embedded, source = cache.read(pathlib.Path(folder).expanduser())
    source = sources.Source(**{name: source.get(name, "") for name in sources.NAMES})
    records = sources.read(source).pictures
    if records.sha256 != embedded.protocol["list_sha256"]:
        raise types.UserError(
            f"{embedded.protocol['list']} changed since it was embedded in {folder}; embed it again"
        )
    held = embedded.protocol
    kept = {name: held[name] for name in held if name.startswith(("weights", "list"))}
    return _looked(
        short(folder),
        short(str(records.path)),
        records,
        embedded.image,
        embedded.text,
        held.get("scale"),
        kept,
    )


def _looked(
    weights: str,
    data: str,
    records: lists.PictureList,
    image: np.ndarray | None,
    text: np.ndarray,
    scale: float | None,
    provenance: dict,
) -> Looked:
    captions = lists.views(records.records)[1]
    pairs = lists.pair_ids(records.records)
    return Looked(weights, data, records, image, text, captions.positions, pairs, scale, provenance)


def short(path: str) -> str:
    """Returns the last two parts of a path, without the ending of a list: "scenes/test"."""
    plain = pathlib.PurePath(os.path.abspath(os.path.expanduser(path)))
    parts = plain.with_suffix("") if plain.suffix in (".json", ".jsonl", ".csv", ".tsv") else plain
    return "/".join(parts.parts[-2:])
