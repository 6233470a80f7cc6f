"""`hnclip zeroshot`: which class a picture is of, by the names of the classes alone."""

import contextlib
import hashlib
import pathlib

from absl import flags

from hnclip_jax import types
from hnclip_jax.commands import embedding, pictures
from hnclip_jax.data import classes, pipeline, tokenizer
from hnclip_jax.evaluation import embed, protocol, zeroshot
from hnclip_jax.training import logging

EXAMPLE = (
    "hnclip zeroshot --weights=runs/demo --data=imagenet --classes=names.txt --out=result.json"
)


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    del argv
    text = (
        ("weights", None, "run folder, or weights in any layout that `hnclip inspect` knows"),
        (
            "data",
            None,
            "folder with a folder of pictures per class (or with such a val/ or test/), CIFAR's "
            "python files, or tfds:cifar10",
        ),
        ("classes", "", "file of class names: folder's name, tab, words; empty = folder's name"),
        (
            "templates",
            "",
            "file of sentences, one per line, {} for the name; empty = eight of ours",
        ),
        ("out", "", "result file (JSON) to write"),
        ("vocabulary", "", "byte-pair vocabulary file; empty = the installed package's"),
    )
    for name, default, what in text:
        flags.DEFINE_string(name, default, what, flag_values=values)
    embedding.define_compute_flags(values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints top-1 and top-5; writes the result file if asked."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; flags begin with --")
    if not values.weights or not values.data:
        raise types.UserError(f"needs --weights and --data; for example: {EXAMPLE}")
    templates = zeroshot.TEMPLATES
    if values.templates:
        templates = zeroshot.read_templates(values.templates)
    options = pictures.options(values)
    found = classes.read(values.data, values.classes)
    loaded = embedding.load(values)
    size, context = loaded.model.config.image_size, loaded.model.config.context_length
    prompts = zeroshot.prompts(found.names, templates)
    images = pipeline.LoadImage(found.images, size, options)
    tokenize = tokenizer.Tokenizer(values.vocabulary or None)
    texts = pipeline.LoadText(prompts, tokenize, context)
    embedder = embed.Embedder(
        loaded.model, loaded.mesh, batch_size=loaded.batch_size, workers=values.workers
    )
    text, truncated = _embed(embedder, loaded, "text", texts, len(prompts))
    image, _ = _embed(embedder, loaded, "image", images, len(found.images))
    metrics = zeroshot.accuracy(image, zeroshot.ensemble(text, len(found.names)), found.labels)
    print(_table(metrics, found, templates))
    if values.out:
        about = {
            "task": "zero-shot classification",
            "data": found.path,
            "data_sha256": found.sha256,
            "pictures": len(found.images),
            "classes": len(found.names),
            "classes_sha256": hashlib.sha256("\n".join(found.names).encode()).hexdigest(),
            "templates": list(templates),
            "truncated_prompts": truncated,
            "context_length": context,
            **protocol.image_protocol(images, loaded.model),
            "similarity": "cosine, float32, precision highest",
            "ties": protocol.TIES,
            "unit": "percent",
            **loaded.provenance,
            "versions": protocol.versions(),
        }
        protocol.write(pathlib.Path(values.out).expanduser(), protocol.Result(metrics, about))
        logging.say(f"wrote {values.out}")


def _embed(
    embedder: embed.Embedder,
    loaded: embedding.Loaded,
    tower: str,
    load: pipeline.Load,
    count: int,
) -> tuple:
    what = {"text": "sentence", "image": "picture"}[tower]
    with contextlib.closing(logging.Progress(f"embedding {what}s", what)) as progress:
        return embedder(tower, loaded.params, load, count, progress)


def _table(metrics: dict[str, float], found: classes.ClassList, templates: tuple[str, ...]) -> str:
    return (
        f"{len(found.images):,} pictures, {len(found.names):,} classes, "
        f"{len(templates)} sentences each\n"
        f"top-1 {metrics['top1']:.2f}  top-5 {metrics['top5']:.2f}  ties {metrics['ties']}"
    )
