"""`hnclip eval`: recall of given weights on a list, with the protocol it was measured by."""

import contextlib
import pathlib

from absl import flags

from hnclip_jax import groups, types
from hnclip_jax.commands import embedding
from hnclip_jax.evaluation import cache, fused, protocol, retrieval, tables
from hnclip_jax.training import logging

EXAMPLE = "hnclip eval --weights=runs/demo --data=data/scenes/test.json --out=result.json"
_OF_RANKING = ("embeddings", "out", "ks", "map_k", "relevance", "bootstrap", "bootstrap_seed")


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    del argv
    embedding.define_flags(values)
    flags.DEFINE_string(
        "embeddings",
        "",
        "folder that `hnclip embed` wrote, instead of weights and data",
        flag_values=values,
    )
    flags.DEFINE_string("out", "", "result file (JSON) to write", flag_values=values)
    flags.DEFINE_list("ks", ["1", "5", "10", "25", "50"], "the K of recall@K", flag_values=values)
    flags.DEFINE_enum(
        "relevance",
        "pair",
        ("pair", "group"),
        "what mAP takes for right: a caption's own picture, or all of its group (parent picture)",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "fused",
        False,
        "rank by cosine and by FineLIP's tokens together; of runs with method.name=finelip",
        flag_values=values,
    )
    flags.DEFINE_float(
        "fused_weight", fused.WEIGHT, "with --fused: share of the tokens", flag_values=values
    )
    numbers = (
        ("map_k", 10, "mean average precision among the first so many; 0 = no"),
        ("bootstrap", 0, "samples of the bootstrap that intervals are from, say 1000; 0 = none"),
        ("bootstrap_seed", 0, "seed of these samples"),
    )
    for name, default, what in numbers:
        flags.DEFINE_integer(name, default, what, lower_bound=0, flag_values=values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints a table of recall; writes the result file if asked."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; flags begin with --")
    if not values.embeddings and not (values.weights and values.data):
        raise types.UserError(
            f"needs --weights and --data, or --embeddings; for example: {EXAMPLE}"
        )
    group = groups.EvalGroup(
        ks=_numbers(values.ks),
        map_k=values.map_k,
        relevance=values.relevance,
        bootstrap=values.bootstrap,
        bootstrap_seed=values.bootstrap_seed,
    )
    retrieval.check_ks(group.ks)
    embedded, late = _embedded(values)
    with contextlib.closing(logging.Progress("ranking", "caption")) as progress:
        result = protocol.measure(embedded, group, progress, late)
    print(tables.table(result))
    if values.out:
        protocol.write(pathlib.Path(values.out).expanduser(), result)
        logging.say(f"wrote {values.out}")


def _numbers(words: list[str]) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(word) for word in words}))
    except ValueError as error:
        raise types.UserError(f"--ks={','.join(words)} are no whole numbers") from error


def _embedded(values: flags.FlagValues) -> tuple[cache.Embedded, fused.Late | None]:
    """Returns the embeddings, and the tokens if they count."""
    if values["fused_weight"].present and not values.fused:
        raise types.UserError("--fused_weight says how much tokens count; add --fused")
    if not values.fused:
        return (_kept(values) if values.embeddings else embedding.embed(values)), None
    if values.embeddings:
        raise types.UserError(
            "--fused needs tokens, which are no part of --embeddings; give --weights and --data"
        )
    return embedding.embed_tokens(values, fused.check_weight(values.fused_weight))


def _kept(values: flags.FlagValues) -> cache.Embedded:
    """Returns the embeddings of a folder, if its list is still the same."""
    given = [name for name in values if values[name].present and name not in _OF_RANKING]
    if given:
        raise types.UserError(
            f"--{given[0]} does not go with --embeddings, which were made before; leave it out, or "
            "embed again"
        )
    folder = pathlib.Path(values.embeddings).expanduser()
    embedded, source = cache.read(folder)
    if embedding.has_changed(embedded, source):
        raise types.UserError(
            f"{embedded.protocol['list']} changed since it was embedded in {folder}; embed it again"
        )
    logging.say(f"{folder}: embeddings of {embedded.protocol['list']}")
    return embedded
