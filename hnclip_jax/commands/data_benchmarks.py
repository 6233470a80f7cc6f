"""`hnclip data benchmarks`: the protocols that evaluations know by name."""

from absl import flags

from hnclip_jax import types
from hnclip_jax.data import benchmarks

EXAMPLE = "hnclip data benchmarks"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds nothing."""
    del values, argv


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints a table."""
    del values
    if arguments:
        raise types.UserError(f"does not understand {arguments[0]!r}; for example: {EXAMPLE}")
    print(benchmarks.describe())
