"""`hnclip data <action>`: lists of pictures and captions."""

from hnclip_jax.commands import actions

ACTIONS = {
    "check": "preflight: what in a list would stop or spoil a run; can write a clean list",
    "stats": "how long captions are, and which are nearly the same",
    "leak": "pictures and captions of one list that are in another",
    "pack": "a list as ArrayRecord shards, which are read faster",
    "scenes": "draws the built-in data set",
    "benchmarks": "which benchmarks are known, and what each is loaded from",
}
"""Action -> what it does; see commands/actions.py."""

EXAMPLE = "\n  ".join(
    (
        "hnclip data check train.json --fix_out=clean.json",
        "hnclip data stats train.json --weights=longclip-L.pt",
        "hnclip data leak train.json test.json --fix_out=train_without_test.json",
        "hnclip data pack train.json packed/train",
        "hnclip data scenes --out=data/scenes --train=20000 --test_families=300",
        "hnclip data benchmarks",
        "hnclip data check --help        tells the flags of an action",
    )
)


_ACTIONS = actions.Actions("data", ACTIONS)
define_flags, run = _ACTIONS.define_flags, _ACTIONS.run


def describe(argv: list[str]) -> tuple[str, str]:
    """Returns what the action that is named does, and an example; of all actions if none is."""
    return _ACTIONS.describe(argv, EXAMPLE)
