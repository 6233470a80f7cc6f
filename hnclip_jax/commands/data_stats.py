"""`hnclip data stats`: how long captions are, and which are nearly the same."""

import contextlib
import os

from absl import flags

from hnclip_jax import types
from hnclip_jax.analysis import lengths as lengths_plot
from hnclip_jax.analysis import page
from hnclip_jax.commands import data_check, embedding, sources
from hnclip_jax.data import lists, tokenizer
from hnclip_jax.data.checks import captions, nearest, statistics, texts
from hnclip_jax.training import logging

EXAMPLE = "hnclip data stats train.json --weights=longclip-L.pt --out=stats"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    text = (
        (
            "weights",
            "",
            "run folder or weights whose text encoder says which captions are near; empty = by "
            "their words (TF-IDF cosine)",
        ),
        ("split", "", "rows of which split, where the list has several"),
        ("out", "", "folder for lengths.png (needs matplotlib) and stats.json"),
        ("vocabulary", "", "byte-pair vocabulary file; empty = the installed package's"),
    )
    for name, default, what in text:
        flags.DEFINE_string(name, default, what, flag_values=values)
    flags.DEFINE_list(
        "contexts", list(map(str, texts.CONTEXTS)), "text lengths, in tokens", flag_values=values
    )
    numbers = (
        ("sample", 1000, "captions whose nearest is looked for, among all; 0 = none"),
        ("shown", 10, "pairs of near captions that are printed"),
        ("seed", 0, "of the sample"),
    )
    for name, default, what in numbers:
        flags.DEFINE_integer(name, default, what, lower_bound=0, flag_values=values)
    embedding.define_compute_flags(values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints figures, histogram and near captions; writes them to a folder if asked."""
    if len(arguments) != 1:
        raise types.UserError(f"needs one LIST; for example: {EXAMPLE}")
    path = os.path.expanduser(arguments[0])
    contexts = data_check.contexts(values.contexts)
    out = os.path.expanduser(values.out)
    if out:
        page.check()
    with sources.list_bar(path) as progress:
        found = captions.read(path, split=values.split, progress=progress)
    if found.left_out:
        logging.say(f"left out {found.left_out:,} captions that are empty or no text")
    flat = [text for _, text in lists.pairs(found.records)]
    tokenize = tokenizer.Tokenizer(os.path.expanduser(values.vocabulary) or None)
    with _bar("counting tokens", "caption") as progress:
        counted = texts.count(flat, tokenize, contexts, progress=progress)
    lengths = statistics.lengths(flat, counted)
    print(lengths.text(contexts))
    near = _nearest(values, found.records, flat, tokenize) if values.sample else None
    if near is not None:
        by = "by the text encoder" if values.weights else "by words"
        print(f"\n{near.text(flat, by, values.shown)}")
    if out:
        _write(out, os.path.basename(path), lengths, contexts, near, flat)


def _nearest(
    values: flags.FlagValues,
    records: list[lists.Record],
    flat: list[str],
    tokenize: tokenizer.Tokenizer,
) -> nearest.Nearest:
    # Captions of one picture, or of one text, are no neighbours: they are the same pair.
    pairs = lists.pair_ids(records)
    asked = nearest.sample(len(flat), values.sample, values.seed)
    if not values.weights:
        with _bar("comparing captions", "caption") as progress:
            return nearest.by_words(flat, pairs, asked, progress)
    loaded = embedding.load(values)
    with _bar("embedding", "caption") as progress:
        text = embedding.texts(values, loaded, flat, tokenize, progress)
    with _bar("comparing captions", "caption") as progress:
        return nearest.by_embeddings(text, pairs, asked, progress)


def _write(
    out: str,
    title: str,
    lengths: statistics.Lengths,
    contexts: tuple[int, ...],
    near: nearest.Nearest | None,
    flat: list[str],
) -> None:
    try:
        os.makedirs(out, exist_ok=True)
        picture = os.path.join(out, "lengths.png")
        lengths_plot.draw(lengths.tokens, picture, contexts, title)
    except OSError as error:
        raise types.UserError(f"cannot write {out}: {error.strerror}") from error
    logging.say(f"wrote {picture}")
    content = {
        "captions": len(flat),
        "tokens": statistics.figures(lengths.tokens)._asdict(),
        "words": statistics.figures(lengths.words)._asdict(),
        "above": lengths.above(contexts),
        "nearest": [] if near is None else near.to_json(flat),
    }
    data_check.write_json(os.path.join(out, "stats.json"), content)


def _bar(what: str, unit: str) -> contextlib.closing[logging.Progress]:
    return contextlib.closing(logging.Progress(what, unit))
