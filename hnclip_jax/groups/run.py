"""Settings of a run: devices, length, checkpoints, logs."""

import dataclasses

from hnclip_jax.groups.setting import setting


@dataclasses.dataclass(frozen=True)
class ParallelGroup:
    """How the batch and the parameters lie on the devices, and how processes find each other."""

    mapper: str = setting("mesh", "how the step is mapped over devices", choices=("mesh", "pmap"))
    data: int = setting(-1, "mesh axis 'data': devices; -1 = all that fsdp leaves", minimum=-1)
    fsdp: int = setting(
        1, "mesh axis 'fsdp': devices over which large parameters are split", minimum=1
    )
    platform: str = setting("", "refuse to run on another one ('tpu', 'gpu', 'cpu'); empty = any")
    process_count: int = setting(1, "processes of this run; above 1 needs a coordinator", minimum=1)
    process_index: int = setting(0, "which of them this is", minimum=0)
    coordinator: str = setting(
        "", "host:port of process 0; 'auto' = from the cluster's environment"
    )
    start_timeout_s: int = setting(300, "seconds to wait for the other processes", minimum=1)
    compilation_cache: str = setting(
        "auto",
        "folder of compiled programs, so that the next start need not compile; 'auto' = "
        "JAX_COMPILATION_CACHE_DIR or the user's cache folder, empty = none",
    )


@dataclasses.dataclass(frozen=True)
class TrainGroup:
    """Length, batch and checkpoints of a run."""

    seed: int = setting(42, "seed of weights, shuffles and losses", minimum=0)
    steps: int = setting(0, "optimiser steps; 0 = from epochs", minimum=0)
    epochs: int = setting(0, "passes over the list; 0 = from steps", minimum=0)
    global_batch_size: int = setting(128, "pairs per optimiser step, over all devices", minimum=2)
    micro_batches: int = setting(
        1, "a step is split into this many batches, each with its own negatives", minimum=1
    )
    gradient_cache: int = setting(
        1,
        "each of these is embedded in so many parts, all of which the loss sees: the gradient of "
        "the whole in the memory of a part, for a second forward pass",
        minimum=1,
    )
    save_every_steps: int = setting(0, "steps between checkpoints; 0 = only at the end", minimum=0)
    keep_checkpoints: int = setting(2, "how many of the latest are kept", minimum=1)
    save_timeout_s: int = setting(
        1800, "seconds that a checkpoint may take to be complete before the run ends", minimum=1
    )
    skip_nonfinite_steps: int = setting(
        0,
        "steps of a run that may be left out because their loss or gradient is not finite; one "
        "more stops it",
        minimum=0,
    )
    best_metric: str = setting(
        "", "weights/ holds the best by this metric, say eval/t2i_r@1; empty = the last"
    )


@dataclasses.dataclass(frozen=True)
class LogGroup:
    """What is written while training."""

    every_steps: int = setting(50, "steps between lines of metrics.jsonl", minimum=1)
    gradients_every: int = setting(
        0,
        "steps between comparisons of InfoNCE's gradient with that of the global term as it "
        "trains, each a further pass forward and back; 0 = none",
        minimum=0,
    )
    profile_steps: str = setting(
        "", "record a profile of these steps, say '10:13', in the run's folder; empty = none"
    )
    tensorboard: bool = setting(False, "also write TensorBoard events (extra 'tensorboard')")
