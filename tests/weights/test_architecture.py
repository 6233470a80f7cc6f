"""Heads and activation: from the file, from what is said, from published sizes; never guessed."""

import dataclasses
import pathlib

import pytest

from hnclip_jax import types
from hnclip_jax.models import presets
from hnclip_jax.weights import architecture, layouts


def weights(numbers, layout="openai"):
    """An opened file of which only sizes and layout are known."""
    title = layouts.LAYOUTS[layout].title
    return layouts.Weights(
        pathlib.Path("file.pt"), None, layout, title, {}, {}, (), dict(numbers), ()
    )


def sizes(preset, *keep):
    """What the tensors of a preset tell, and the fields `keep`."""
    left_open = {"vision_heads", "text_heads", "activation", "layer_norm_eps"} - set(keep)
    return {k: v for k, v in dataclasses.asdict(presets.get(preset)).items() if k not in left_open}


SMALL = {
    **sizes("tiny"),
    "vision_width": 128,
    "text_width": 64,
}


@pytest.mark.parametrize("preset", ["ViT-B/32", "ViT-B/16", "ViT-L/14@336", "LongCLIP-L"])
def test_openai_sizes_tell_the_heads_and_quick_gelu_is_assumed_aloud(preset):
    numbers, assumed = architecture.complete(weights(sizes(preset)))
    assert presets.ModelConfig(**numbers) == presets.get(preset)
    assert "quick_gelu is assumed" in assumed


@pytest.mark.parametrize("preset", ["ViT-H/14", "ViT-g/14", "ViT-bigG/14"])
def test_larger_models_have_their_own_heads_and_must_say_the_activation(preset):
    with pytest.raises(types.UserError, match="does not say whether its activation is quick_gelu"):
        architecture.complete(weights(sizes(preset)))
    numbers, assumed = architecture.complete(weights(sizes(preset)), activation="gelu")
    assert presets.ModelConfig(**numbers) == presets.get(preset)
    assert not assumed
    numbers, _ = architecture.complete(weights(sizes(preset)), preset=preset)
    assert presets.ModelConfig(**numbers) == presets.get(preset)


def test_unpublished_sizes_have_heads_of_64():
    numbers, _ = architecture.complete(weights(SMALL))
    assert (numbers["vision_heads"], numbers["text_heads"]) == (2, 1)
    with pytest.raises(types.UserError, match="how many heads its vision tower of width 96 has"):
        architecture.complete(weights({**SMALL, "vision_width": 96}))


def test_what_the_file_says_stays():
    said = {**SMALL, "vision_heads": 8, "text_heads": 4, "activation": "gelu"}
    numbers, assumed = architecture.complete(weights(said))
    assert numbers == said
    assert not assumed


@pytest.mark.parametrize("layout", ["huggingface", "open_clip"])
def test_other_layouts_without_a_config_must_say_the_activation(layout):
    with pytest.raises(types.UserError, match="put the model's config beside it"):
        architecture.complete(weights(sizes("ViT-B/16"), layout))
    numbers, _ = architecture.complete(weights(sizes("ViT-B/16"), layout), activation="gelu")
    assert numbers["activation"] == "gelu"


@pytest.mark.parametrize(
    ("name", "activation"), [("ViT-B-16", "gelu"), ("ViT-B-16-quickgelu", "quick_gelu")]
)
def test_names_of_open_clip_tell_the_activation(name, activation):
    numbers, assumed = architecture.complete(weights(sizes("ViT-B/16")), preset=name)
    assert numbers["activation"] == activation
    assert not assumed


def test_a_preset_of_other_sizes_is_an_error():
    with pytest.raises(types.UserError, match=r"is no ViT-L/14: it has vision_width 768, not 1024"):
        architecture.complete(weights(sizes("ViT-B/16")), preset="ViT-L/14")
    with pytest.raises(types.UserError, match="did you mean"):
        architecture.complete(weights(sizes("ViT-B/16")), preset="ViT-B/61")


def test_a_contradiction_is_an_error():
    said = sizes("ViT-B/16", "activation")
    with pytest.raises(types.UserError, match="has activation quick_gelu, but the activation ask"):
        architecture.complete(weights(said), activation="gelu")
    with pytest.raises(types.UserError, match="but preset 'ViT-B-16' says gelu"):
        architecture.complete(weights(said), preset="ViT-B-16")
    numbers, _ = architecture.complete(weights(said), preset="ViT-B/16", activation="quick_gelu")
    assert numbers["activation"] == "quick_gelu"
