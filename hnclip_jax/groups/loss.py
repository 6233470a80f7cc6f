"""Settings of the contrastive loss, its boost and the token term."""

import dataclasses

from hnclip_jax.groups.setting import setting


@dataclasses.dataclass(frozen=True)
class LossGroup:
    """The contrastive loss, its boost, and the token term."""

    kind: str = setting(
        "hn_clip",
        "the global loss: a row of losses.kinds.KINDS",
        choices=(
            "info_nce",
            "hn_clip",
            "frozen",
            "constant",
            "centred",
            "row_centred",
            "row_shuffled",
            "siglip",
            "siglip_hn",
            "arcface",
            "hn_nce",
            "hcl",
            "vse",
            "cyclip",
            "soft_targets",
            "negclip",
        ),
    )
    gamma: float = setting(
        0.5, "strength of the margin, in cosine units; kinds with a boost use it"
    )
    gamma_start_step: int = setting(0, "steps before it with gamma 0", minimum=0)
    gamma_ramp_steps: int = setting(0, "steps over which gamma then rises linearly", minimum=0)
    gamma_by_epoch: tuple = setting(
        (), "gamma of each epoch instead of `gamma`; the last one holds on; () = off"
    )
    constant_margin: float = setting(
        -1.0, "margin of kind 'constant' in cosine units; negative = gamma * mean of G, per batch"
    )
    label_smoothing: float = setting(
        0.0, "share of the target that goes to all columns alike (Long-CLIP: 0.1)", minimum=0
    )
    guard_same_pair: bool = setting(
        True, "equal pictures or equal captions are no negatives of each other"
    )
    block_rows: int = setting(0, "rows of the logits held at once; 0 = all", minimum=0)

    token_weight: float = setting(0.0, "lambda of the word-patch term; 0 = off", minimum=0)
    token_scale: str = setting(
        "shared",
        "its temperature: s of the global term, a fixed number, or one that is learned",
        choices=("shared", "fixed", "learned"),
    )
    token_scale_value: float = setting(
        100.0, "the fixed number, or what learning begins with", minimum=0
    )
    token_detach_scale: bool = setting(False, "no gradient from the term to its temperature")
    token_include_global: bool = setting(
        False, "class token and end token count as a patch and a word"
    )
    token_symmetric: bool = setting(
        False, "both directions use the mean of the two scores, instead of one each"
    )
    token_boost: str = setting(
        "none",
        "margin inside the term: none (the paper), G of the captions, or G from their words",
        choices=("none", "global", "token"),
    )
    token_gamma: float = setting(
        -1.0,
        "strength of that margin; negative = gamma, scaled by the spread of the scores, per batch",
    )

    arcface_margin: float = setting(0.1, "kind 'arcface': angle added to the positives, radians")
    hn_nce_alpha: float = setting(1.0, "kind 'hn_nce': weight of the positive below", minimum=0)
    hn_nce_beta: float = setting(0.25, "kind 'hn_nce': sharpness of the weights", minimum=0)
    hn_nce_detach: bool = setting(False, "kind 'hn_nce': no gradient through the weights")
    hcl_beta: float = setting(1.0, "kind 'hcl': sharpness of the weights", minimum=0)
    hcl_prior: float = setting(0.0, "kind 'hcl': share of negatives that are none", minimum=0)
    vse_margin: float = setting(0.2, "kind 'vse': margin of the hinge, cosine units", minimum=0)
    cyclip_cross: float = setting(0.25, "kind 'cyclip': weight of S against S^T", minimum=0)
    cyclip_within: float = setting(0.25, "kind 'cyclip': weight of v v^T against t t^T", minimum=0)
    soft_share: float = setting(
        0.2, "kind 'soft_targets': share of the target that goes by likeness", minimum=0
    )
    soft_temperature: float = setting(
        0.05, "kind 'soft_targets': temperature of the likeness of captions", minimum=0
    )
    siglip_bias: float = setting(-10.0, "kinds 'siglip': what the learned bias begins with")
