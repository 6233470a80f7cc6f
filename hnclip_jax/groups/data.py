"""Settings of what is read: the training list, and the list that recall is measured on."""

import dataclasses

from hnclip_jax.groups.setting import setting


@dataclasses.dataclass(frozen=True)
class DataGroup:
    """The training list and how it is read."""

    train: str = setting(
        "", "list file or folder, packed folder, 'tfds:NAME/SPLIT', or 'scenes', the built-in set"
    )
    image_root: str = setting(
        "", "folder of the pictures, where the list's own paths do not lead to them"
    )
    split: str = setting("", "rows of which split, where the list has several")
    missing: str = setting("error", "what a missing picture does", choices=("error", "skip"))
    empty_caption: str = setting(
        "error", "what an empty caption does", choices=("error", "skip", "keep")
    )
    fraction: float = setting(
        1.0, "share of the training pictures that is used; smaller shares lie within larger ones"
    )
    fraction_seed: int = setting(0, "which pictures these are", minimum=0)
    grouping: str = setting(
        "none",
        "how batches are made: of pairs in random order, or of groups whose captions are "
        "near-duplicates by their words, so that a batch has hard negatives",
        choices=("none", "captions"),
    )
    group_size: int = setting(
        4, "captions of such a group; a batch must be a multiple of it", minimum=1
    )
    exif_orientation: str = setting(
        "ignore",
        "pictures with an EXIF orientation: as stored, which is how the reference code takes them, "
        "or turned upright",
        choices=("ignore", "apply"),
    )
    max_pixels: int = setting(
        0, "pictures with more pixels are refused; 0 = 178,956,970", minimum=0
    )
    transparency: str = setting(
        "white", "colour that transparent pixels are laid on, a name or '#rrggbb'"
    )
    workers: int = setting(0, "processes that decode pictures; 0 = this one", minimum=0)
    vocabulary: str = setting("", "byte-pair vocabulary file; empty = the installed package's")
    scenes_dir: str = setting("data/scenes", "where 'scenes' are drawn on first use")
    scenes_seed: int = setting(0, "seed of the drawn set", minimum=0)
    scenes_train: int = setting(20_000, "training pairs of the drawn set", minimum=4)
    scenes_test_families: int = setting(
        300, "families of four in the drawn test gallery", minimum=1
    )
    scenes_family_share: float = setting(
        0.4, "share of drawn training pairs in families", minimum=0
    )


@dataclasses.dataclass(frozen=True)
class EvalGroup:
    """The list that recall is measured on, when, and what else is measured."""

    data: str = setting(
        "", "as data.train, or with eval.root a benchmark such as docci_goal; empty = no evaluation"
    )
    root: str = setting("", "the benchmark's own folder, or a published list of it")
    split: str = setting("", "rows of which split, where the list has several")
    image_root: str = setting("", "folder of the pictures")
    every_steps: int = setting(0, "steps between evaluations; 0 = by epochs", minimum=0)
    every_epochs: int = setting(0, "epochs between evaluations; 0 = only at the end", minimum=0)
    batch_size: int = setting(128, "pairs embedded at once, over all devices", minimum=1)
    block_rows: int = setting(1024, "captions whose similarities are held at once", minimum=1)
    ks: tuple = setting((1, 5, 10), "the K of recall@K")
    map_k: int = setting(
        0, "also mean average precision among the first so many; 0 = no", minimum=0
    )
    relevance: str = setting(
        "pair",
        "what that takes for right: a caption's own picture, or all of its group (parent picture)",
        choices=("pair", "group"),
    )
    bootstrap: int = setting(
        0, "samples of the bootstrap that intervals are from; 0 = none", minimum=0
    )
    bootstrap_seed: int = setting(0, "seed of these samples", minimum=0)
