"""Presets: published parameter counts, look-up, overrides from a config group."""

import dataclasses
import json
import math

import jax
import pytest

from hnclip_jax import groups, types
from hnclip_jax.models import dual_encoder, presets

# Totals as published by OpenAI and in the LAION checkpoints; Long-CLIP's are those of its file less
# the second position table. Millions per tower: the table of model profiles in open_clip, which
# counts the temperature to neither.
PUBLISHED = {
    "ViT-B/32": (151_277_313, 87.85, 63.43),
    "ViT-B/16": (149_620_737, 86.19, 63.43),
    "ViT-L/14": (427_616_513, 303.97, 123.65),
    "ViT-L/14@336": (427_944_193, 304.29, 123.65),
    "ViT-H/14": (986_109_441, 632.08, 354.03),
    "ViT-g/14": (1_366_678_273, 1012.65, 354.03),
    "ViT-bigG/14": (2_539_567_105, 1844.91, 694.66),
    "LongCLIP-B": (149_835_265 - 248 * 512, 86.19, 63.43 + 171 * 512 / 1e6),
    "LongCLIP-L": (427_938_305 - 248 * 768, 303.97, 123.65 + 171 * 768 / 1e6),
}


def _count(tree):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_is_the_published_one(name):
    total, vision_millions, text_millions = PUBLISHED[name]
    params = dual_encoder.create(presets.get(name)).abstract_params()
    assert _count(params) == total
    assert _count(params["image"]) / 1e6 == pytest.approx(vision_millions, abs=0.0051)
    assert _count(params["text"]) / 1e6 == pytest.approx(text_millions, abs=0.0051)


def test_tiny_is_small_beside_its_token_table():
    params = dual_encoder.create(presets.get("tiny")).abstract_params()
    assert _count(params["text"]["token_embedding"]) == 49408 * 96
    assert _count(params) - 49408 * 96 == 607_681


@pytest.mark.parametrize(
    ("name", "head_widths"),
    [
        ("tiny", (32, 32)),
        ("ViT-B/16", (64, 64)),
        ("ViT-L/14", (64, 64)),
        ("ViT-H/14", (80, 64)),
        ("ViT-g/14", (88, 64)),
        ("ViT-bigG/14", (104, 64)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_head_widths_which_no_count_can_tell(name, head_widths):
    model = presets.get(name)
    assert (model.vision.width / model.vision.heads, model.text.width / model.text.heads) == (
        head_widths
    )


def test_activation_follows_the_source_of_the_weights():
    quick = {
        name for name in presets.list_presets() if presets.get(name).activation == "quick_gelu"
    }
    laion = {"ViT-H/14", "ViT-g/14", "ViT-bigG/14"}
    assert quick == set(presets.list_presets()) - laion


def test_long_clip_differs_from_clip_in_its_positions_only():
    for long, short in (("LongCLIP-B", "ViT-B/16"), ("LongCLIP-L", "ViT-L/14")):
        shorter = dataclasses.replace(presets.get(long), context_length=77)
        assert presets.get(long).context_length == 248
        assert shorter == presets.get(short)


def test_list_presets_names_the_table():
    assert presets.list_presets() == ["tiny", *PUBLISHED]


def test_unknown_preset_names_the_nearest():
    with pytest.raises(
        types.UserError, match=r"unknown preset 'ViT-B-32'; did you mean 'ViT-B/32'"
    ):
        presets.get("ViT-B-32")


def test_from_group_keeps_the_preset_where_zero():
    group = groups.ModelGroup(preset="ViT-B/16")
    assert presets.from_group(group) == presets.get("ViT-B/16")


def test_from_group_overrides_image_size_and_context():
    group = groups.ModelGroup(preset="ViT-B/16", image_size=384, context_length=248)
    model = presets.from_group(group)
    assert (model.image_size, model.context_length, model.patch_count) == (384, 248, 24 * 24)
    assert dataclasses.replace(model, image_size=224, context_length=77) == presets.get("ViT-B/16")


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"image_size": 100}, "image_size is 100, but patches are 32 pixels wide"),
        ({"context_length": 2}, "context_length is 2, .* give at least 3"),
        ({"preset": "ViT-B/33"}, "did you mean 'ViT-B/32'"),
    ],
    ids=["image_size", "context_length", "preset"],
)
def test_from_group_refuses(group, message):
    with pytest.raises(types.UserError, match=message):
        presets.from_group(groups.ModelGroup(**{"preset": "ViT-B/32", **group}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "quickgelu"}, "did you mean 'quick_gelu'"),
        ({"text_heads": 7}, "text_width is 512, which 7 heads do not divide"),
        ({"pixel_mean": (0.5, 0.5)}, r"pixel_mean is \(0.5, 0.5\), but must be three"),
        ({"pixel_mean": 0.5}, "pixel_mean is .*three finite numbers"),
        ({"pixel_mean": None}, "pixel_mean is .*three finite numbers"),
        ({"pixel_mean": "0.5"}, "pixel_mean is .*three finite numbers"),
        ({"pixel_mean": [0.5, "0.5", 0.5]}, "pixel_mean is .*three finite numbers"),
        ({"pixel_mean": [0.5, True, 0.5]}, "pixel_mean is .*three finite numbers"),
        ({"pixel_mean": (0.5, float("nan"), 0.5)}, "pixel_mean is .*three finite numbers"),
        ({"pixel_std": (0.5, 0.5, float("inf"))}, "pixel_std is .*three finite numbers"),
        ({"pixel_std": (0.5, 0.5, 10**400)}, "pixel_std is .*three finite numbers"),
        ({"pixel_std": [0.5, 0, 0.5]}, r"pixel_std is \(0.5, 0, 0.5\).*above 0"),
        ({"pixel_std": (-0.5, 0.5, 0.5)}, "pixel_std is .*above 0"),
    ],
    ids=str,
)
def test_model_config_refuses(change, message):
    with pytest.raises(types.UserError, match=message):
        dataclasses.replace(presets.get("ViT-B/32"), **change)


def test_a_model_config_comes_back_from_json_equal_and_usable_as_a_key():
    model = dataclasses.replace(presets.get("tiny"), pixel_mean=(0, 0.5, 1), pixel_std=(0.5,) * 3)
    back = presets.ModelConfig(**json.loads(json.dumps(dataclasses.asdict(model))))
    assert back == model
    assert {model: "found"}[back] == "found"
    assert back.pixel_mean == (0.0, 0.5, 1.0)
    assert all(type(x) is float for x in (*back.pixel_mean, *back.pixel_std))


def test_every_preset_and_a_config_of_before_takes_pixels_as_clip_does():
    for name in presets.list_presets():
        found = presets.get(name)
        assert found.pixel_mean == (0.48145466, 0.4578275, 0.40821073), name
        assert found.pixel_std == (0.26862954, 0.26130258, 0.27577711), name
    note = dataclasses.asdict(presets.get("tiny"))
    del note["pixel_mean"], note["pixel_std"]
    assert presets.ModelConfig(**note) == presets.get("tiny")
