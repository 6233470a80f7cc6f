"""Neighbours of CLIP that this package does not compute: refused by name, by their tensors."""

import pathlib
import re
from collections.abc import Iterable

from hnclip_jax import types

SUPPORTED = (
    "this package reads CLIP with two ViT towers: Long-CLIP, OpenAI, Hugging Face CLIPModel, "
    "open_clip and its own files"
)

FAMILIES = (
    (r".*\blora_.*", "holds adapters (LoRA); merge them first"),
    (r"visual\.(layer1|attnpool)\..*", "is a ResNet CLIP"),
    (r"logit_bias|(vision_model|visual)\.head\..*", "is a SigLIP model"),
    (r"visual\.trunk\..*", "has a picture tower of timm"),
    (r"visual\.blocks\..*", "is an EVA-CLIP"),
    (r"text_decoder\..*|visual\.attn_pool\..*", "is a CoCa model"),
    (r"image_encoder\.model\..*", "is a MobileCLIP"),
    (r"text\.transformer\.(embeddings|encoder)\..*", "has a text tower of Hugging Face (BERT ...)"),
    (r"(text_model|bert)\.encoder\.layer\..*", "has a BERT as text tower (Chinese-CLIP, AltCLIP)"),
    (r"(Qformer|qformer|text_encoder\.encoder|visual_encoder)\..*", "is a BLIP model"),
    (r".*resblocks\.\d+\.ls_[12]\.gamma", "is an open_clip model with layer scale"),
    (r"(model\.diffusion_model|cond_stage_model|conditioner)\..*", "is a Stable Diffusion model"),
    (r"(blocks|encoder\.layer)\.0\..*", "is a single transformer (DINO, MAE, BERT ...)"),
    (r"layer1\.0\.conv1\.weight", "is a ResNet"),
)
"""(regular expression of a whole name, what a file with such a tensor is)."""

_TOWERS = (
    (r"(visual|vision_model)\..*", "has no picture tower; CLIP's text tower alone is not enough"),
    (
        r"(text\.)?(token_embedding|transformer)\..*|text_model\..*",
        "has no text tower; CLIP's picture tower alone is not enough",
    ),
)


def refuse(names: Iterable[str], source: pathlib.Path) -> None:
    """Raises types.UserError if `names` are tensors of another family, or of half a CLIP."""
    names = list(names)

    def some(pattern: str) -> bool:
        return any(re.fullmatch(pattern, name) for name in names)

    for pattern, what in FAMILIES:
        if some(pattern):
            raise types.UserError(f"{source} {what}; {SUPPORTED}")
    present = [some(pattern) for pattern, _ in _TOWERS]
    if any(present) and not all(present):
        raise types.UserError(f"{source} {_TOWERS[present.index(False)][1]}; {SUPPORTED}")
