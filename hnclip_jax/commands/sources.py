"""Where a command's list comes from: a file, a packed folder, a benchmark, TFDS, or 'scenes'."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import NamedTuple

import jax
from absl import flags

from hnclip_jax import groups, types
from hnclip_jax.data import benchmarks, images, lists, pack, scenes
from hnclip_jax.data.packed import tfds_names
from hnclip_jax.training import logging

SCENES = "scenes"


@dataclasses.dataclass(frozen=True)
class Source:
    """Which list is meant, in words that hold from any working directory once `absolute`.

    data: a list file, a folder, a packed folder, "tfds:...", "scenes", or with `root` a benchmark.
    root: the benchmark's own folder, or a published list of it (two with a comma between).
    image_root: folder of the pictures, where the list's own paths do not lead to them.
    split: rows of which split, where the list has several.
    missing, empty_caption: what those do; see lists.read.
    """

    data: str
    root: str = ""
    image_root: str = ""
    split: str = ""
    missing: str = "error"
    empty_caption: str = "error"

    def absolute(self) -> "Source":
        """Returns the same with paths that do not depend on the working directory."""

        def path(text: str) -> str:
            parts = (os.path.abspath(os.path.expanduser(part)) for part in text.split(","))
            return ",".join(parts) if text else ""

        is_path = not self.root and os.path.exists(os.path.expanduser(self.data))
        return dataclasses.replace(
            self,
            data=path(self.data) if is_path else self.data,
            root=path(self.root),
            image_root=path(self.image_root),
        )


NAMES = tuple(field.name for field in dataclasses.fields(Source))
"""The flags that say which list is meant."""


class Found(NamedTuple):
    """A list, and the name of the benchmark that it is: None if it is none, or not all of it."""

    pictures: lists.PictureList
    benchmark: str | None


def define_flags(values: flags.FlagValues, *, data: bool = True) -> None:
    """Adds the fields of `Source` as flags; `data` only if it is no word of its own."""
    if data:
        flags.DEFINE_string(
            "data",
            None,
            "list of pictures and captions, packed folder, tfds:NAME/SPLIT, 'scenes', or with "
            "--root a benchmark such as docci_goal (`hnclip data benchmarks` lists them)",
            flag_values=values,
        )
    text = (
        ("root", "", "the benchmark's own folder as it was downloaded, or a published list of it"),
        ("image_root", "", "folder of the pictures, where the list's paths do not lead to them"),
        ("split", "", "rows of which split, where the list has several"),
    )
    for name, default, what in text:
        flags.DEFINE_string(name, default, what, flag_values=values)
    for name, choices, what in (
        ("missing", ("error", "skip"), "what a missing picture does"),
        ("empty_caption", ("error", "skip", "keep"), "what an empty caption does"),
    ):
        flags.DEFINE_enum(name, "error", choices, what, flag_values=values)


def from_flags(values: flags.FlagValues, data: str = "") -> Source:
    """Returns what the flags of `define_flags` say; `data` is the list where it is no flag."""
    said = {name: getattr(values, name) for name in NAMES if name != "data"}
    return Source(data or values.data, **said).absolute()


def read(
    source: Source,
    *,
    part: str = "test",
    drawn: groups.DataGroup | None = None,
    image_size: int = 48,
    options: images.Options | None = None,
) -> Found:
    """Returns the checked records of a list, and says what they are.

    Args:
      source: which list.
      part: "train" or "test", for 'scenes'.
      drawn: the arguments of 'scenes'; None = the defaults.
      image_size: pixels that scenes are drawn at.
      options: how files become pixels, for packed lists; None = as they say.

    Raises:
      types.UserError: if there is no such list or benchmark, or its pictures are not there.
    """
    name = os.path.expanduser(source.data)
    if source.root:
        found = _benchmark(source)
    elif source.data in benchmarks.REGISTRY and not os.path.exists(name):
        raise types.UserError(
            f"benchmark {source.data} needs its folder or a published list of it: --root=PATH "
            "(eval.root in a config)"
        )
    else:
        if source.data == SCENES:
            drawn_lists = draw_scenes(drawn or groups.DataGroup(), image_size)
            name = os.fspath(drawn_lists[part == "test"])
        found = Found(_list(source, name, options), None)
    logging.say(describe(found.pictures))
    return found


def _benchmark(source: Source) -> Found:
    with contextlib.closing(logging.Progress("reading", "file")) as progress:
        pictures, name = benchmarks.load(
            source.data,
            source.root,
            image_root=source.image_root,
            missing=source.missing,
            empty_caption=source.empty_caption,
            progress=progress,
        )
    if name is None:
        logging.say(benchmarks.misfit(source.data, pictures))
    return Found(pictures, name)


def _list(source: Source, name: str, options: images.Options | None) -> lists.PictureList:
    if os.path.isdir(name) and pack.is_packed(name):
        return pack.read(name, options)
    if tfds_names.is_name(name):
        with contextlib.closing(logging.Progress("reading", "picture")) as progress:
            return tfds_names.read(name, progress)
    with list_bar(name) as progress:
        return lists.read(
            name,
            image_root=os.path.expanduser(source.image_root),
            missing=source.missing,
            empty_caption=source.empty_caption,
            split=source.split,
            progress=progress,
        )


@contextlib.contextmanager
def list_bar(path: str) -> Iterator[logging.Progress | None]:
    """Yields the progress of reading a list file, for those that take a while."""
    if not os.path.isfile(path) or os.path.getsize(path) < 50e6:
        yield None
        return
    with contextlib.closing(logging.Progress("reading the list", "byte")) as progress:
        yield progress


def draw_scenes(group: groups.DataGroup, image_size: int) -> tuple[os.PathLike, os.PathLike]:
    """Returns the training and the test list of the built-in set, which is drawn if need be."""
    with contextlib.closing(logging.Progress("drawing scenes", "picture")) as progress:
        return scenes.write(
            os.path.expanduser(group.scenes_dir),
            seed=group.scenes_seed,
            train=group.scenes_train,
            test_families=group.scenes_test_families,
            family_share=group.scenes_family_share,
            size=image_size,
            progress=progress if jax.process_index() == 0 else None,
        )


def describe(found: lists.PictureList) -> str:
    """Returns one line: what a list holds and what was left out of it."""
    report = found.report
    return (
        f"{found.path}: {report.pairs:,} pairs of {len(found.records):,} pictures; left out "
        f"{report.skipped_missing} missing pictures, {report.skipped_empty} empty captions; "
        f"{report.duplicates} captions occur more than once"
    )
