"""Where a command's list comes from: a file, or 'scenes', drawn on first use."""

import contextlib
import os

import jax

from hnclip_jax import groups
from hnclip_jax.data import lists, scenes
from hnclip_jax.training import logging

SCENES = "scenes"


def read_list(
    name: str, split: str, group: groups.DataGroup, *, image_root: str, image_size: int
) -> lists.PictureList:
    """Returns the checked records of a list.

    Args:
      name: path of a list file, or "scenes".
      split: "train" or "test", for scenes.
      group: policies, and the arguments of scenes.
      image_root: folder of the pictures.
      image_size: pixels that scenes are drawn at.

    Raises:
      types.UserError: if the list or its pictures are not there.
    """
    path = os.path.expanduser(name)
    if name == SCENES:
        train, test = draw_scenes(group, image_size)
        path = train if split == "train" else test
    found = lists.read(
        path,
        image_root=os.path.expanduser(image_root),
        missing=group.missing,
        empty_caption=group.empty_caption,
    )
    logging.say(describe(found))
    return found


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
