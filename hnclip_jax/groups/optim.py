"""Settings of the optimiser."""

import dataclasses

from hnclip_jax.groups.setting import setting


@dataclasses.dataclass(frozen=True)
class OptimGroup:
    """AdamW, its schedule, and which parameters it moves."""

    lr: float = setting(1e-3, "peak learning rate", minimum=0)
    schedule: str = setting("cosine", "shape after warm-up", choices=("cosine", "constant"))
    warmup_steps: int = setting(0, "steps of linear warm-up", minimum=0)
    end_lr_fraction: float = setting(0.0, "cosine ends at this fraction of lr", minimum=0)
    b1: float = setting(0.9, "AdamW beta 1", minimum=0)
    b2: float = setting(0.999, "AdamW beta 2", minimum=0)
    eps: float = setting(1e-8, "AdamW epsilon", minimum=0)
    mu_dtype: str = setting(
        "float32",
        "type in which Adam's first moment is kept; bfloat16 saves 2 of 16 bytes per parameter",
        choices=("float32", "bfloat16"),
    )
    weight_decay: float = setting(0.01, "decay of kernels and embedding tables", minimum=0)
    max_grad_norm: float = setting(
        0.0, "gradients are scaled down to this norm; 0 = never", minimum=0
    )
    freeze: tuple = setting((), "regular expressions of parameter paths that do not train")
    freeze_first_positions: int = setting(
        0,
        "first rows of the text positions that do not train (Long-CLIP's recipe: 20); 0 = none",
        minimum=0,
    )
    logit_scale_init: float = setting(
        0.0,
        "s = exp(logit_scale) at the start; 0 = as in the weights (1/0.07 if random)",
        minimum=0,
    )
    method_lr: float = setting(
        0.0,
        "peak rate of the parameters that a method adds; 0 = the method's own (see its row), or lr",
        minimum=0,
    )
    logit_scale_rate: float = setting(1.0, "learning-rate factor of logit_scale", minimum=0)
    freeze_logit_scale: bool = setting(False, "keep s fixed")
    max_logit_scale: float = setting(
        100.0, "s is clamped to at most this after each update", minimum=1
    )
