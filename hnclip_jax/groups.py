"""Settings: one frozen dataclass per group, every field with its default, meaning and limits.

`config` checks values against the limits given here, and against each other.
"""

import dataclasses
import math
from typing import Any


def _field(default: Any, doc: str, *, choices: tuple = (), minimum: float = -math.inf) -> Any:
    return dataclasses.field(
        default=default, metadata={"doc": doc, "choices": choices, "minimum": minimum}
    )


@dataclasses.dataclass(frozen=True)
class DataGroup:
    """The training list and how it is read."""

    train: str = _field(
        "", "list file or folder, packed folder, 'tfds:NAME/SPLIT', or 'scenes', the built-in set"
    )
    image_root: str = _field(
        "", "folder of the pictures, where the list's own paths do not lead to them"
    )
    split: str = _field("", "rows of which split, where the list has several")
    missing: str = _field("error", "what a missing picture does", choices=("error", "skip"))
    empty_caption: str = _field(
        "error", "what an empty caption does", choices=("error", "skip", "keep")
    )
    exif_orientation: str = _field(
        "ignore",
        "pictures with an EXIF orientation: as stored, which is how the reference code takes them, "
        "or turned upright",
        choices=("ignore", "apply"),
    )
    max_pixels: int = _field(0, "pictures with more pixels are refused; 0 = 178,956,970", minimum=0)
    transparency: str = _field(
        "white", "colour that transparent pixels are laid on, a name or '#rrggbb'"
    )
    workers: int = _field(0, "processes that decode pictures; 0 = this one", minimum=0)
    vocabulary: str = _field("", "byte-pair vocabulary file; empty = the installed package's")
    scenes_dir: str = _field("data/scenes", "where 'scenes' are drawn on first use")
    scenes_seed: int = _field(0, "seed of the drawn set", minimum=0)
    scenes_train: int = _field(20_000, "training pairs of the drawn set", minimum=4)
    scenes_test_families: int = _field(300, "families of four in the drawn test gallery", minimum=1)
    scenes_family_share: float = _field(0.4, "share of drawn training pairs in families", minimum=0)


@dataclasses.dataclass(frozen=True)
class ModelGroup:
    """Which model, from which weights, computed how."""

    preset: str = _field(
        "", "a name of hn.list_presets(): the architecture of init 'random'; what weights must be"
    )
    init: str = _field("weights", "what a run starts from", choices=("weights", "random"))
    weights: str = _field(
        "", "run folder, weights folder, or file in any layout that `hnclip inspect` knows"
    )
    stretch: int = _field(
        0,
        "248 stretches the 77 text positions of the weights by Long-CLIP's rule; 0 = never",
        choices=(0, 248),
    )
    activation: str = _field(
        "",
        "of weights whose file does not say; empty = as the file says",
        choices=("", "quick_gelu", "gelu"),
    )
    image_size: int = _field(
        0,
        "pixels; 0 = as in the weights or the preset; positions of weights are resized",
        minimum=0,
    )
    context_length: int = _field(
        0, "tokens per caption; 0 = as in the weights or the preset", minimum=0
    )
    dtype: str = _field("float32", "compute type of the towers", choices=("float32", "bfloat16"))
    scan_layers: bool = _field(True, "one compiled block for all layers of a tower")
    remat: str = _field(
        "none", "what is recomputed in the backward pass", choices=("none", "dots", "full")
    )


@dataclasses.dataclass(frozen=True)
class MethodGroup:
    """The fine-tuning method: a row of losses/objective.py."""

    name: str = _field("clip", "a row of losses.objective.METHODS")


@dataclasses.dataclass(frozen=True)
class LossGroup:
    """The contrastive loss and its boost."""

    kind: str = _field(
        "hn_clip",
        "which margin the negatives get",
        choices=("info_nce", "hn_clip", "constant", "centred", "row_shuffled", "frozen"),
    )
    gamma: float = _field(0.5, "strength of the margin, in cosine units")
    gamma_start_step: int = _field(0, "steps before it with gamma 0", minimum=0)
    gamma_ramp_steps: int = _field(0, "steps over which gamma then rises linearly", minimum=0)
    constant_margin: float = _field(
        -1.0, "margin of kind 'constant' in cosine units; negative = gamma * mean of G, per batch"
    )
    token_weight: float = _field(0.0, "lambda of the word-patch term; 0 = off", minimum=0)
    guard_same_pair: bool = _field(
        True, "equal pictures or equal captions are no negatives of each other"
    )
    block_rows: int = _field(0, "rows of the logits held at once; 0 = all", minimum=0)


@dataclasses.dataclass(frozen=True)
class OptimGroup:
    """AdamW, its schedule, and which parameters it moves."""

    lr: float = _field(1e-3, "peak learning rate", minimum=0)
    schedule: str = _field("cosine", "shape after warm-up", choices=("cosine", "constant"))
    warmup_steps: int = _field(0, "steps of linear warm-up", minimum=0)
    end_lr_fraction: float = _field(0.0, "cosine ends at this fraction of lr", minimum=0)
    b1: float = _field(0.9, "AdamW beta 1", minimum=0)
    b2: float = _field(0.999, "AdamW beta 2", minimum=0)
    eps: float = _field(1e-8, "AdamW epsilon", minimum=0)
    weight_decay: float = _field(0.01, "decay of kernels and embedding tables", minimum=0)
    max_grad_norm: float = _field(
        0.0, "gradients are scaled down to this norm; 0 = never", minimum=0
    )
    freeze: tuple = _field((), "regular expressions of parameter paths that do not train")
    freeze_first_positions: int = _field(
        0,
        "first rows of the text positions that do not train (Long-CLIP's recipe: 20); 0 = none",
        minimum=0,
    )
    logit_scale_init: float = _field(
        0.0,
        "s = exp(logit_scale) at the start; 0 = as in the weights (1/0.07 if random)",
        minimum=0,
    )
    logit_scale_rate: float = _field(1.0, "learning-rate factor of logit_scale", minimum=0)
    freeze_logit_scale: bool = _field(False, "keep s fixed")
    max_logit_scale: float = _field(
        100.0, "s is clamped to at most this after each update", minimum=1
    )


@dataclasses.dataclass(frozen=True)
class ParallelGroup:
    """How the batch and the parameters lie on the devices, and how processes find each other."""

    mapper: str = _field("mesh", "how the step is mapped over devices", choices=("mesh", "pmap"))
    data: int = _field(-1, "mesh axis 'data': devices; -1 = all that fsdp leaves", minimum=-1)
    fsdp: int = _field(
        1, "mesh axis 'fsdp': devices over which large parameters are split", minimum=1
    )
    platform: str = _field("", "refuse to run on another one ('tpu', 'gpu', 'cpu'); empty = any")
    process_count: int = _field(1, "processes of this run; above 1 needs a coordinator", minimum=1)
    process_index: int = _field(0, "which of them this is", minimum=0)
    coordinator: str = _field("", "host:port of process 0; 'auto' = from the cluster's environment")
    start_timeout_s: int = _field(300, "seconds to wait for the other processes", minimum=1)


@dataclasses.dataclass(frozen=True)
class TrainGroup:
    """Length, batch and checkpoints of a run."""

    seed: int = _field(42, "seed of weights, shuffles and losses", minimum=0)
    steps: int = _field(0, "optimiser steps; 0 = from epochs", minimum=0)
    epochs: int = _field(0, "passes over the list; 0 = from steps", minimum=0)
    global_batch_size: int = _field(128, "pairs per optimiser step, over all devices", minimum=2)
    micro_batches: int = _field(
        1, "a step is split into this many batches, each with its own negatives", minimum=1
    )
    save_every_steps: int = _field(0, "steps between checkpoints; 0 = only at the end", minimum=0)
    keep_checkpoints: int = _field(2, "how many of the latest are kept", minimum=1)
    best_metric: str = _field(
        "", "weights/ holds the best by this metric, say eval/t2i_r@1; empty = the last"
    )


@dataclasses.dataclass(frozen=True)
class EvalGroup:
    """The list that recall is measured on, when, and what else is measured."""

    data: str = _field(
        "", "as data.train, or with eval.root a benchmark such as docci_goal; empty = no evaluation"
    )
    root: str = _field("", "the benchmark's own folder, or a published list of it")
    split: str = _field("", "rows of which split, where the list has several")
    image_root: str = _field("", "folder of the pictures")
    every_steps: int = _field(0, "steps between evaluations; 0 = by epochs", minimum=0)
    every_epochs: int = _field(0, "epochs between evaluations; 0 = only at the end", minimum=0)
    batch_size: int = _field(128, "pairs embedded at once, over all devices", minimum=1)
    block_rows: int = _field(1024, "captions whose similarities are held at once", minimum=1)
    ks: tuple = _field((1, 5, 10), "the K of recall@K")
    map_k: int = _field(0, "also mean average precision among the first so many; 0 = no", minimum=0)
    relevance: str = _field(
        "pair",
        "what that takes for right: a caption's own picture, or all of its group (parent picture)",
        choices=("pair", "group"),
    )
    bootstrap: int = _field(
        0, "samples of the bootstrap that intervals are from; 0 = none", minimum=0
    )
    bootstrap_seed: int = _field(0, "seed of these samples", minimum=0)


@dataclasses.dataclass(frozen=True)
class LogGroup:
    """What is written while training."""

    every_steps: int = _field(50, "steps between lines of metrics.jsonl", minimum=1)
    tensorboard: bool = _field(False, "also write TensorBoard events (extra 'tensorboard')")
