"""Neighbouring families are refused by name, half models too, and no CLIP is."""

import pathlib

import pytest

from hnclip_jax import types
from hnclip_jax.weights import families

SOURCE = pathlib.Path("some/file.pt")
CLIP = ["visual.conv1.weight", "visual.proj", "token_embedding.weight", "text_projection"]
HUGGING_FACE = [
    "vision_model.encoder.layers.0.mlp.fc1.weight",
    "text_model.encoder.layers.0.mlp.fc1.weight",
    "visual_projection.weight",
]


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ([*CLIP, "visual.layer1.0.conv1.weight"], "is a ResNet CLIP"),
        ([*CLIP, "visual.attnpool.q_proj.weight"], "is a ResNet CLIP"),
        ([*HUGGING_FACE, "logit_bias"], "is a SigLIP model"),
        ([*HUGGING_FACE, "vision_model.head.attention.in_proj_weight"], "is a SigLIP model"),
        ([*CLIP, "visual.trunk.blocks.0.attn.qkv.weight"], "has a picture tower of timm"),
        ([*CLIP, "visual.blocks.0.attn.q_proj.weight"], "is an EVA-CLIP"),
        ([*CLIP, "text_decoder.resblocks.0.ln_1.weight"], "is a CoCa model"),
        (["image_encoder.model.stem.0.weight", "text_encoder.x"], "is a MobileCLIP"),
        ([*CLIP, "text.transformer.embeddings.word_embeddings.weight"], "has a text tower of Hug"),
        (["visual.conv1.weight", "bert.encoder.layer.0.output.dense.bias"], "has a BERT as text"),
        (["visual_encoder.x", "text_encoder.encoder.layer.0.x"], "is a BLIP model"),
        ([*CLIP, "visual.transformer.resblocks.0.ls_1.gamma"], "with layer scale"),
        (["model.diffusion_model.input_blocks.0.0.weight"], "is a Stable Diffusion model"),
        (["cls_token", "patch_embed.proj.weight", "blocks.0.norm1.weight"], "is a single transf"),
        (["conv1.weight", "layer1.0.conv1.weight"], "is a ResNet;"),
        ([*HUGGING_FACE, "text_model.encoder.layers.0.self_attn.q_proj.lora_A.weight"], "LoRA"),
        (HUGGING_FACE[1:2], "has no picture tower"),
        (HUGGING_FACE[:1], "has no text tower"),
        (CLIP[:2], "has no text tower"),
        (CLIP[2:], "has no picture tower"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-1],
)
def test_a_neighbour_is_refused_by_name(names, what):
    with pytest.raises(types.UserError) as caught:
        families.refuse(names, SOURCE)
    message = str(caught.value)
    assert message.startswith(f"{SOURCE} ")
    assert what in message
    assert "this package reads CLIP with two ViT towers" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "names",
    [
        CLIP,
        HUGGING_FACE,
        [*CLIP, "positional_embedding_res", "cross_net.cap.weight"],
        ["visual.conv1.weight", "text.token_embedding.weight"],
        ["unknown.weight"],
    ],
    ids=["openai", "huggingface", "finelip", "custom text", "nothing known"],
)
def test_others_pass(names):
    families.refuse(names, SOURCE)
