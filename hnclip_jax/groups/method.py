"""Settings of the fine-tuning methods."""

import dataclasses

from hnclip_jax.groups.setting import setting


@dataclasses.dataclass(frozen=True)
class MethodGroup:
    """The fine-tuning method, a row of losses/objective.py, and what each of them can be told."""

    name: str = setting("clip", "a row of losses.objective.METHODS")
    global_weight: float = setting(
        1.0, "weight of the global term, which the boost enters (FineLIP as released: 0)", minimum=0
    )

    pcm_weight: float = setting(1.0, "longclip: weight of the short captions' term", minimum=0)
    pcm_dim: int = setting(32, "longclip: principal components that are kept", minimum=1)
    pcm_scope: str = setting(
        "global",
        "longclip: whose pictures the components are of, all of the batch or the device's own "
        "(as released)",
        choices=("global", "device"),
    )
    pcm_grad: str = setting(
        "full",
        "longclip: gradient flows through the components (as released), or takes them as given",
        choices=("full", "stop_basis"),
    )

    finelip_weight: float = setting(1.0, "finelip: weight of the triplet term", minimum=0)
    finelip_margin: float = setting(0.2, "finelip: margin of the hinge", minimum=0)
    finelip_gamma: float = setting(
        0.0, "finelip: gamma G is added to the hinge's margin with this gamma; 0 = the paper"
    )
    finelip_hardest: bool = setting(False, "finelip: only the hardest negative of a row or column")
    finelip_tokens: int = setting(
        0,
        "finelip: tokens to aggregate to; 0 = a fifth of the patches (as released: 39)",
        minimum=0,
    )
    finelip_ramp_epochs: float = setting(
        1.0, "finelip: epochs over which the triplet term's weight rises from 0", minimum=0
    )

    goal_local_weight: float = setting(0.5, "goal: weight of crop against sentence", minimum=0)
    goal_image_weight: float = setting(1.0, "goal: weight of patches against crop", minimum=0)
    goal_text_weight: float = setting(1.0, "goal: weight of words against sentence", minimum=0)
    goal_mode: str = setting(
        "fixed",
        "goal: patches and words of a segment as they are, or as the released code takes them",
        choices=("fixed", "as_released"),
    )

    structxlip_structure_weight: float = setting(
        0.25, "structxlip: weight of edge map against structure caption", minimum=0
    )
    structxlip_rgb_weight: float = setting(
        0.001, "structxlip: weight of picture against its edge map", minimum=0
    )
    structxlip_local_weight: float = setting(
        0.001, "structxlip: weight of local edge maps against phrases", minimum=0
    )
    structxlip_decay: bool = setting(
        True, "structxlip: these weights fall from epoch 1 to 8, to 0.7, 0.5 and 0.4 of themselves"
    )
    structxlip_top_k: int = setting(2, "structxlip: local edge maps per picture", minimum=1)
    structxlip_filter: tuple = setting(
        ("colours",), "structxlip: words left out: colours, materials, textures, insects"
    )
    structxlip_mode: str = setting(
        "fixed",
        "structxlip: phrases as they should be, or as the released code takes them",
        choices=("fixed", "as_released"),
    )

    adapter: str = setting(
        "", "train low-rank adapters instead of the towers", choices=("", "lora", "dora")
    )
    adapter_rank: int = setting(16, "rank of an adapter", minimum=1)
    adapter_alpha: float = setting(16.0, "its product counts alpha / rank", minimum=0)
    adapter_targets: tuple = setting(
        (r"attn/(query|key|value|out)/kernel$", r"mlp/fc_(in|out)/kernel$"),
        "regular expressions of the kernels that get one",
    )
    adapter_towers: str = setting(
        "both", "which towers get them", choices=("both", "image", "text")
    )
