"""`hnclip data scenes`: draws the built-in data set."""

import dataclasses

from absl import flags

from hnclip_jax import groups, types
from hnclip_jax.commands import sources

EXAMPLE = "hnclip data scenes --out=data/scenes --train=20000 --test_families=300"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the action's flags to `values`."""
    del argv
    default = groups.DataGroup()
    flags.DEFINE_string("out", default.scenes_dir, "folder to draw into", flag_values=values)
    numbers = (
        ("seed", default.scenes_seed, 0, "another seed draws another set"),
        ("train", default.scenes_train, 4, "training pairs"),
        ("test_families", default.scenes_test_families, 1, "test families of four"),
        ("size", 48, 24, "pixels of a picture's side"),
    )
    for name, value, minimum, what in numbers:
        flags.DEFINE_integer(name, value, what, lower_bound=minimum, flag_values=values)
    flags.DEFINE_float(
        "family_share",
        default.scenes_family_share,
        "share of the training pairs that come in families of four",
        lower_bound=0.0,
        upper_bound=1.0,
        flag_values=values,
    )


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Draws, and prints where the two lists are."""
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; for example: {EXAMPLE}")
    group = dataclasses.replace(
        groups.DataGroup(),
        scenes_dir=values.out,
        scenes_seed=values.seed,
        scenes_train=values.train,
        scenes_test_families=values.test_families,
        scenes_family_share=values.family_share,
    )
    for path in sources.draw_scenes(group, values.size):
        print(path)
