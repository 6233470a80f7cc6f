"""Whose names a file uses: finds the layout from the content, and reads it into our own paths."""

import dataclasses
import functools
import json
import math
import pathlib
import re
from typing import Any

from hnclip_jax import types
from hnclip_jax.models import presets
from hnclip_jax.weights import (
    families,
    files,
    huggingface,
    open_clip,
    openai,
    rules,
    stored,
    wrappers,
)
from hnclip_jax.weights.containers import pickles

OWN_VERSION = 1
"""Number of this package's own layout; raised when older versions could not read it."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """One way to name the tensors of a CLIP.

    title: its name in sentences.
    table: which tensors hold which parameters; empty for our own, where names are paths.
    ignored: regular expression of names that hold nothing learned.
    """

    title: str
    table: tuple[rules.Rule, ...] = ()
    ignored: str = ""


LAYOUTS = {
    "hnclip": Layout("hnclip_jax"),
    "longclip": Layout("Long-CLIP", openai.LONGCLIP, openai.IGNORED),
    "huggingface": Layout("Hugging Face CLIPModel", huggingface.RULES, huggingface.IGNORED),
    "open_clip": Layout("open_clip", open_clip.RULES, open_clip.IGNORED),
    "openai": Layout("OpenAI CLIP", openai.OPENAI, openai.IGNORED),
}
"""Name -> layout, as commands and `hn.save` call them."""

_CUSTOM_TEXT = Layout(
    "open_clip with its own text tower", open_clip.CUSTOM_TEXT_RULES, open_clip.IGNORED
)


@dataclasses.dataclass(frozen=True)
class Weights:
    """A file of weights, opened: our parameters by path, and what is known about them.

    path: the file that was meant; `contents.paths` are all that were read.
    layout: key of LAYOUTS.
    title: the layout's name in sentences.
    arrays: path -> array, still in the file; also what rules.UNUSED keeps.
    origin: path -> the names it has in the file.
    ignored: names of known buffers.
    numbers: fields of models.presets.ModelConfig, those that the file or its config tells.
    notes: what else was seen, a sentence each.
    """

    path: pathlib.Path
    contents: files.Contents
    layout: str
    title: str
    arrays: dict[str, stored.Stored]
    origin: dict[str, tuple[str, ...]]
    ignored: tuple[str, ...]
    numbers: dict[str, Any]
    notes: tuple[str, ...]

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of the file, or of the shards one after the other."""
        return files.sha256(self.contents.paths)

    @property
    def matched(self) -> int:
        """Tensors of the file that hold parameters."""
        return len({name for names in self.origin.values() for name in names})


def read(path: str | pathlib.Path) -> Weights:
    """Returns what lies at `path`: a file, a folder of any program, or a run folder.

    Nothing but names, shapes and types is read yet. Beside the file, `config.json` and
    `preprocessor_config.json` (Hugging Face) or `open_clip_config.json` are looked at.

    Raises:
      types.UserError: if there are no weights, they are of another family, or tensors do not match.
    """
    file = files.find(path)
    contents = files.read(file)
    if "model" in contents.note:
        return _own(file, contents)
    found, notes = wrappers.remove(contents.tree, file)
    families.refuse(found, file)
    is_archive = contents.container == pickles.TORCHSCRIPT or "input_resolution" in found
    name, layout, beside = _recognise(found, file, is_archive)
    decoded = rules.decode(
        {key: value for key, value in found.items() if isinstance(value, stored.Stored)},
        layout.table,
        layout.ignored,
        str(file),
    )
    plain = [key for key, value in found.items() if not isinstance(value, stored.Stored)]
    surplus = [key for key in plain if not re.fullmatch(layout.ignored, key)]
    if contents.container == pickles.TORCHSCRIPT:
        # Scripted modules note their numbers of heads and the like; a state dict has none of them.
        plain, surplus = [key for key in plain if key not in surplus], []
    if surplus:
        raise types.UserError(
            f"{file} holds what are no tensors between its tensors: {types.at_most_ten(surplus)}"
        )
    sizes = measure(decoded.arrays, str(file))
    said, more = _described(name, beside, file)
    numbers, differing = _agreeing(sizes, said, file)
    if name == "longclip" or is_archive:
        # Only these two never came with another activation.
        numbers["activation"] = "quick_gelu"
    if any(key.startswith("cross_net.") for key in decoded.ignored):
        more.append("FineLIP's aggregation module (cross_net.*) is left out")
    return Weights(
        file,
        contents,
        name,
        layout.title,
        decoded.arrays,
        decoded.origin,
        (*decoded.ignored, *plain),
        numbers,
        (*notes, *more, *differing),
    )


def measure(arrays: rules.Arrays, source: str) -> dict[str, Any]:
    """Returns the sizes that the shapes of our parameters tell; not the number of heads.

    Raises:
      types.UserError: if the image positions are no class token and a square grid.
    """
    patch_rows = arrays["image/patch_embed/kernel"].shape[0]
    patch = math.isqrt(patch_rows // 3)
    positions = arrays["image/position_embedding"].shape[0]
    grid = math.isqrt(max(positions - 1, 0))
    if grid * grid + 1 != positions:
        raise types.UserError(
            f"{source} has {positions} image positions, but needs a class token and a square grid"
        )
    vocabulary, text_width = arrays["text/token_embedding"].shape
    sizes = {
        "patch_size": patch,
        "image_size": grid * patch,
        "vision_width": arrays["image/class_embedding"].shape[0],
        "text_width": text_width,
        "embed_dim": arrays["image/proj"].shape[1],
        "context_length": arrays["text/position_embedding"].shape[0],
        "vocab_size": vocabulary,
    }
    for tower, name in (("image", "vision"), ("text", "text")):
        sizes[f"{name}_layers"] = sum(
            re.fullmatch(rf"{tower}/blocks_\d+/ln_1/scale", path) is not None for path in arrays
        )
        sizes[f"{name}_mlp_width"] = arrays[f"{tower}/blocks_00/mlp/fc_in/kernel"].shape[1]
    return sizes


_NEWER = {"pixel_mean", "pixel_std"}
"""Fields that files of earlier versions lack; their default is what those computed with."""


def _own(file: pathlib.Path, contents: files.Contents) -> Weights:
    note = contents.note
    if note.get("layout") != OWN_VERSION:
        raise types.UserError(
            f"{file} has layout {note.get('layout')}, this version reads {OWN_VERSION}; "
            "update hnclip_jax"
        )
    fields = {field.name for field in dataclasses.fields(presets.ModelConfig)}
    model = note["model"]
    if not isinstance(model, dict) or not fields - _NEWER <= model.keys() <= fields:
        raise types.UserError(
            f"{file} does not say what model it is; its header was changed by another program"
        )
    arrays = contents.tree
    return Weights(
        file,
        contents,
        "hnclip",
        LAYOUTS["hnclip"].title,
        arrays,
        {path: (path,) for path in arrays if not path.startswith(rules.UNUSED)},
        (),
        dict(model),
        (),
    )


def _recognise(
    found: dict[str, Any], file: pathlib.Path, is_archive: bool
) -> tuple[str, Layout, dict[str, Any]]:
    """Returns the layout's key, the layout, and the config that lies beside the file.

    Args:
      found: name -> tensor.
      file: where they are.
      is_archive: whether it is one of OpenAI's own files; a config beside it is another model's.
    """
    if any(name.startswith(("vision_model.", "text_model.")) for name in found):
        config = _beside(file, "config.json")
        beside = {} if config is None else {"config": config}
        return "huggingface", LAYOUTS["huggingface"], beside
    if "positional_embedding_res" in found:
        return "longclip", LAYOUTS["longclip"], {}
    if is_archive:
        return "openai", LAYOUTS["openai"], {}
    config = _beside(file, "open_clip_config.json")
    beside = {} if config is None else {"config": config}
    if "text.token_embedding.weight" in found:
        return "open_clip", _CUSTOM_TEXT, beside
    if "visual.conv1.weight" in found or "token_embedding.weight" in found:
        name = "open_clip" if beside else "openai"
        return name, LAYOUTS[name], beside
    known = ", ".join(layout.title for layout in LAYOUTS.values())
    raise types.UserError(
        f"{file} is of no layout that is known ({known}); its tensors are "
        f"{types.at_most_ten(sorted(found))}"
    )


_PROCESSOR = "processor_config.json"
"""What CLIPProcessor.save_pretrained writes since transformers 5, with the same inside."""


def _described(
    layout: str, beside: dict[str, Any], file: pathlib.Path
) -> tuple[dict[str, Any], list[str]]:
    if not beside:
        return {}, []
    if layout == "open_clip":
        return open_clip.describe(beside["config"], str(file.with_name("open_clip_config.json")))
    preprocessor = _beside(file, "preprocessor_config.json") or _beside(file, _PROCESSOR)
    return huggingface.describe(beside["config"], preprocessor, str(file.with_name("config.json")))


def _agreeing(
    sizes: dict[str, Any], said: dict[str, Any], file: pathlib.Path
) -> tuple[dict[str, Any], list[str]]:
    """Returns sizes and what the config adds to them; they must not contradict each other."""
    notes = []
    differing = [key for key in said.keys() & sizes.keys() if said[key] != sizes[key]]
    if "context_length" in differing:
        # Long tables are often put into a folder whose config stayed as it was.
        differing.remove("context_length")
        notes.append(
            f"the config says {said['context_length']} text positions, "
            f"the table has {sizes['context_length']}, which counts"
        )
    if differing:
        shown = (f"{key} {said[key]}, not {sizes[key]}" for key in sorted(differing))
        raise types.UserError(
            f"the config beside {file} is not its own: it says {'; '.join(shown)} as the tensors do"
        )
    return {**said, **sizes}, notes


def _beside(file: pathlib.Path, name: str) -> dict[str, Any] | None:
    """Returns the JSON object in the file `name` of the same folder; None if there is none."""
    path = file.with_name(name)
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise types.UserError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise types.UserError(f"{path} holds no JSON object")
    return value
