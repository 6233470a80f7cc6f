"""Settings of the model and of where it starts."""

import dataclasses

from hnclip_jax.groups.setting import setting


@dataclasses.dataclass(frozen=True)
class ModelGroup:
    """Which model, from which weights, computed how."""

    preset: str = setting(
        "", "a name of hn.list_presets(): the architecture of init 'random'; what weights must be"
    )
    init: str = setting("weights", "what a run starts from", choices=("weights", "random"))
    weights: str = setting(
        "", "run folder, weights folder, or file in any layout that `hnclip inspect` knows"
    )
    adapter: str = setting(
        "", "LoRA or DoRA to put on the weights: a file of ours, or a folder that peft wrote"
    )
    stretch: int = setting(
        0,
        "248 stretches the 77 text positions of the weights by Long-CLIP's rule; 0 = never",
        choices=(0, 248),
    )
    activation: str = setting(
        "",
        "of weights whose file does not say; empty = as the file says",
        choices=("", "quick_gelu", "gelu"),
    )
    image_size: int = setting(
        0,
        "pixels; 0 = as in the weights or the preset; positions of weights are resized",
        minimum=0,
    )
    context_length: int = setting(
        0, "tokens per caption; 0 = as in the weights or the preset", minimum=0
    )
    dtype: str = setting("float32", "compute type of the towers", choices=("float32", "bfloat16"))
    scan_layers: bool = setting(True, "one compiled block for all layers of a tower")
    remat: str = setting(
        "none", "what is recomputed in the backward pass", choices=("none", "dots", "full")
    )
