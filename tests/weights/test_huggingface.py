"""Hugging Face's layout against models and configs that transformers itself writes."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.clip import image_processing_pil_clip

from hnclip_jax import types
from hnclip_jax.models import dual_encoder, presets, transformer
from hnclip_jax.parallel import sharding
from hnclip_jax.weights import huggingface, rules

NUMBERS = {
    "text_width": 24,
    "text_layers": 3,
    "text_heads": 3,
    "text_mlp_width": 40,
    "context_length": 20,
    "vocab_size": 50,
    "vision_width": 16,
    "vision_layers": 2,
    "vision_heads": 2,
    "vision_mlp_width": 28,
    "image_size": 12,
    "patch_size": 4,
    "embed_dim": 10,
    "activation": "gelu",
    "layer_norm_eps": 1e-6,
}
SHARED = {"hidden_act": "gelu", "layer_norm_eps": 1e-6}
TEXT = {
    **SHARED,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
    "vocab_size": 50,
    "bos_token_id": 48,
    "eos_token_id": 49,
}
VISION = {
    **SHARED,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 28,
    "image_size": 12,
    "patch_size": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of transformers, every value of it another one, as `save_pretrained` leaves it."""
    torch.manual_seed(5)
    model = transformers.CLIPModel(
        transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=10)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    folder = tmp_path_factory.mktemp("huggingface")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tensors(folder):
    """Its tensors by name."""
    return safetensors.numpy.load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def decoded(tensors):
    """Its tensors as our parameters."""
    return rules.decode(tensors, huggingface.RULES, huggingface.IGNORED, "x")


def test_every_parameter_is_there_in_its_shape(decoded):
    model = dual_encoder.create(presets.ModelConfig(**NUMBERS), scan_layers=False)
    wanted = {
        sharding.path_of(path): leaf.shape
        for path, leaf in jax.tree_util.tree_leaves_with_path(
            transformer.unstack_blocks(model.abstract_params())
        )
    }
    assert {path: array.shape for path, array in decoded.arrays.items()} == wanted


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("text/blocks_02/attn/query/kernel", "text_model.encoder.layers.2.self_attn.q_proj.weight"),
        ("text/blocks_00/attn/key/kernel", "text_model.encoder.layers.0.self_attn.k_proj.weight"),
        (
            "image/blocks_01/attn/value/kernel",
            "vision_model.encoder.layers.1.self_attn.v_proj.weight",
        ),
        (
            "image/blocks_00/attn/out/kernel",
            "vision_model.encoder.layers.0.self_attn.out_proj.weight",
        ),
        ("text/blocks_01/mlp/fc_in/kernel", "text_model.encoder.layers.1.mlp.fc1.weight"),
        ("image/blocks_01/mlp/fc_out/kernel", "vision_model.encoder.layers.1.mlp.fc2.weight"),
        ("image/proj", "visual_projection.weight"),
        ("text/proj", "text_projection.weight"),
    ],
)
def test_linear_layers_are_transposed(decoded, tensors, ours, theirs):
    np.testing.assert_array_equal(decoded.arrays[ours], tensors[theirs].T)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("text/blocks_02/attn/query/bias", "text_model.encoder.layers.2.self_attn.q_proj.bias"),
        ("text/blocks_00/attn/key/bias", "text_model.encoder.layers.0.self_attn.k_proj.bias"),
        ("image/blocks_01/attn/value/bias", "vision_model.encoder.layers.1.self_attn.v_proj.bias"),
        ("image/blocks_00/attn/out/bias", "vision_model.encoder.layers.0.self_attn.out_proj.bias"),
        ("text/blocks_01/mlp/fc_in/bias", "text_model.encoder.layers.1.mlp.fc1.bias"),
        ("image/blocks_01/mlp/fc_out/bias", "vision_model.encoder.layers.1.mlp.fc2.bias"),
        ("text/blocks_00/ln_1/scale", "text_model.encoder.layers.0.layer_norm1.weight"),
        ("image/blocks_01/ln_2/bias", "vision_model.encoder.layers.1.layer_norm2.bias"),
        ("image/ln_pre/scale", "vision_model.pre_layrnorm.weight"),
        ("image/ln_post/bias", "vision_model.post_layernorm.bias"),
        ("text/ln_final/scale", "text_model.final_layer_norm.weight"),
        ("image/class_embedding", "vision_model.embeddings.class_embedding"),
        ("image/position_embedding", "vision_model.embeddings.position_embedding.weight"),
        ("text/position_embedding", "text_model.embeddings.position_embedding.weight"),
        ("text/token_embedding", "text_model.embeddings.token_embedding.weight"),
        ("logit_scale", "logit_scale"),
    ],
)
def test_the_rest_stays_as_it_is(decoded, tensors, ours, theirs):
    np.testing.assert_array_equal(decoded.arrays[ours], tensors[theirs])


def test_a_patch_is_flattened_by_row_column_and_colour(decoded, tensors):
    kernel = np.asarray(decoded.arrays["image/patch_embed/kernel"])
    theirs = tensors["vision_model.embeddings.patch_embedding.weight"]
    for row, column, colour in ((0, 0, 0), (0, 0, 2), (0, 3, 1), (2, 0, 0), (3, 1, 2)):
        np.testing.assert_array_equal(
            kernel[(row * 4 + column) * 3 + colour], theirs[:, colour, row, column]
        )


def test_a_round_trip_gives_every_tensor_back(decoded, tensors):
    back = rules.encode(decoded.arrays, huggingface.RULES)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert back[name].shape == tensor.shape
        assert np.asarray(back[name]).tobytes() == tensor.tobytes(), name


def test_position_ids_of_older_versions_are_known(tensors):
    buffers = {
        f"{tower}_model.embeddings.position_ids": np.arange(20)[None]
        for tower in ("text", "vision")
    }
    found = rules.decode({**tensors, **buffers}, huggingface.RULES, huggingface.IGNORED, "x")
    assert set(found.ignored) == set(buffers)


@pytest.mark.parametrize(
    "name",
    [
        "text_model.embeddings.position_ids_2",
        "text_model.position_ids",
        "logit_bias",
        "vision_model.head.probe",
        "text_model.encoder.layers.0.layer_norm3.weight",
    ],
)
def test_another_tensor_is_not_passed_over(tensors, name):
    with pytest.raises(types.UserError, match=rf"1 left over \({name}\)"):
        rules.decode({**tensors, name: np.zeros(3)}, huggingface.RULES, huggingface.IGNORED, "x")


def _read(folder, name="config.json"):
    return json.loads((folder / name).read_text())


def test_the_config_that_transformers_writes_tells_the_numbers(folder):
    assert huggingface.describe(_read(folder), None, "config.json") == (NUMBERS, [])


def _as_transformers_reads(config):
    """The numbers of a config by transformers' own reading of it."""
    read = transformers.CLIPConfig.from_dict(config)
    text, vision = read.text_config, read.vision_config
    return {
        "text_width": text.hidden_size,
        "text_layers": text.num_hidden_layers,
        "text_heads": text.num_attention_heads,
        "text_mlp_width": text.intermediate_size,
        "context_length": text.max_position_embeddings,
        "vocab_size": text.vocab_size,
        "vision_width": vision.hidden_size,
        "vision_layers": vision.num_hidden_layers,
        "vision_heads": vision.num_attention_heads,
        "vision_mlp_width": vision.intermediate_size,
        "image_size": vision.image_size,
        "patch_size": vision.patch_size,
        "embed_dim": read.projection_dim,
        "activation": text.hidden_act,
        "layer_norm_eps": text.layer_norm_eps,
    }


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"text_config": None, "vision_config": None, "projection_dim": 640},
        {"text_config": {"hidden_size": 768, "num_attention_heads": 12}},
        {"vision_config": {"hidden_size": 1536, "patch_size": 14, "num_hidden_layers": 24}},
        {"text_config": TEXT, "vision_config": VISION, "projection_dim": 10},
        {"text_config_dict": TEXT, "vision_config_dict": VISION},
        {"text_config": TEXT, "text_config_dict": None, "vision_config": VISION},
        {
            "text_config": {**TEXT, "max_position_embeddings": 248},
            "text_config_dict": {key: TEXT[key] for key in (*SHARED, "hidden_size", "vocab_size")},
            "vision_config": VISION,
        },
    ],
    ids=[
        "nothing",
        "null",
        "part of text",
        "part of vision",
        "all",
        "old keys",
        "one old key null",
        "old key overrules",
    ],
)
def test_missing_keys_have_the_values_of_transformers(config):
    config = {"model_type": "clip", **config}
    # transformers changes the dict that it reads.
    numbers, _ = huggingface.describe(json.loads(json.dumps(config)), None, "x")
    assert numbers == _as_transformers_reads(config)


def test_old_keys_that_say_otherwise_are_noted():
    config = {
        "model_type": "clip",
        "text_config": {"hidden_size": 512, "max_position_embeddings": 248},
        "text_config_dict": {"hidden_size": 768, "num_attention_heads": 12},
        "vision_config": {"patch_size": 16},
        "vision_config_dict": {"patch_size": 16},
    }
    _, notes = huggingface.describe(config, None, "x")
    assert notes == [
        "text_config_dict overrules text_config: "
        "hidden_size 768, not 512; max_position_embeddings 77, not 248"
    ]


@pytest.mark.parametrize(
    ("end_id", "noted"), [(49, False), (None, False), (2, True)], ids=["last", "null", "stale"]
)
def test_the_end_id(folder, end_id, noted):
    config = _read(folder)
    config["text_config"]["eos_token_id"] = end_id
    numbers, notes = huggingface.describe(config, None, "x")
    assert numbers == NUMBERS
    assert ["eos_token_id is 2" in note and "49" in note for note in notes] == [True] * noted
    del config["text_config"]["eos_token_id"]
    assert huggingface.describe(config, None, "x") == (NUMBERS, [])


def test_sizes_may_be_pairs_of_equals(folder):
    config = _read(folder)
    config["vision_config"] |= {"image_size": [12, 12], "patch_size": [4]}
    assert huggingface.describe(config, None, "x") == (NUMBERS, [])


@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        ("text_config", {"hidden_act": "quick_gelu"}, "'quick_gelu' for texts and 'gelu' for pict"),
        ("vision_config", {"layer_norm_eps": 1e-5}, "1e-06 for texts and 1e-05 for pictures"),
        ("both", {"hidden_act": "gelu_new"}, "hidden_act 'gelu_new'; this package computes quick_"),
        ("both", {"hidden_act": "gelu_pytorch_tanh"}, "hidden_act 'gelu_pytorch_tanh'"),
        ("both", {"hidden_act": None}, "hidden_act None"),
        ("both", {"layer_norm_eps": "small"}, "layer_norm_eps is 'small', but must be a number"),
        ("text_config", {"eos_token_id": 7}, "x: text_config: eos_token_id is 7, .* last id .* 49"),
        ("text_config", {"eos_token_id": [49, 2]}, r"eos_token_id is \[49, 2\]"),
        ("text_config", {"hidden_size": 0}, "hidden_size is 0, but must be a whole number from 1"),
        ("text_config", {"num_hidden_layers": 1.5}, "num_hidden_layers is 1.5, but must be"),
        ("vision_config", {"num_attention_heads": True}, "num_attention_heads is True, but must"),
        ("vision_config", {"image_size": [12, 16]}, r"image_size is \[12, 16\].*only squares"),
        ("vision_config", {"patch_size": [4, 2]}, r"patch_size is \[4, 2\].*only squares"),
        ("vision_config", {"patch_size": []}, r"patch_size is \[\].*only squares"),
        ("vision_config", {"num_channels": 1}, "is for pictures of 1 channels"),
        ("top", {"text_config": [1]}, r"text_config is \[1\], but must be a JSON object"),
        ("top", {"projection_dim": None}, "projection_dim is None, but must be a whole number"),
    ],
)
def test_what_is_not_computed_here_is_refused(folder, where, change, message):
    config = _read(folder)
    for key in ("text_config", "vision_config"):
        if where in (key, "both"):
            config[key] |= change
    if where == "top":
        config |= change
    with pytest.raises(types.UserError, match=message) as caught:
        huggingface.describe(config, None, "x")
    assert "\n" not in str(caught.value)


KINDS = {
    "siglip": "is of another family, SigLIP;",
    "siglip2": "is of another family, SigLIP 2;",
    "blip": "is of another family, BLIP;",
    "align": "is of another family, ALIGN;",
    "chinese_clip": "is of another family, Chinese-CLIP;",
    "altclip": "is of another family, AltCLIP;",
    "clipseg": "is of another family, CLIPSeg;",
    "groupvit": "is of another family, GroupViT;",
    "owlvit": "is of another family, OWL-ViT;",
    "xclip": "is of another family, X-CLIP;",
    "bert": "is of another family, 'bert';",
    "clip_text_model": "is the text tower of CLIP alone",
    "clip_vision_model": "is the picture tower of CLIP alone",
    "siglip_vision_model": "is the picture tower of SigLIP alone",
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_families_are_refused_by_name(kind):
    with pytest.raises(types.UserError, match=f"x {KINDS[kind]}.* this package reads .*open_clip"):
        huggingface.describe({"model_type": kind}, None, "x")


def test_of_all_zero_shot_models_only_clip_is_taken():
    taken = []
    for kind in modeling_auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES:
        try:
            huggingface.describe({"model_type": kind}, None, "x")
            taken.append(kind)
        except types.UserError:
            pass
    assert taken == ["clip"]


@pytest.mark.parametrize(
    ("architecture", "half"),
    [
        ("CLIPTextModelWithProjection", "text"),
        ("CLIPVisionModelWithProjection", "picture"),
        ("CLIPForImageClassification", "picture"),
    ],
)
def test_half_a_model_is_refused_by_name(architecture, half):
    with pytest.raises(types.UserError, match=f"is a {architecture}, the {half} tower of CLIP"):
        huggingface.describe({"model_type": "clip", "architectures": [architecture]}, None, "x")


def test_a_config_without_a_type():
    for config in ({}, {"architectures": None}, {"architectures": 3}, {"model_type": None}):
        with pytest.raises(types.UserError, match="x has no model_type"):
            huggingface.describe(config, None, "x")
    assert huggingface.describe({"architectures": ["CLIPModel"]}, None, "x")[0]["embed_dim"] == 512


MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
PIXELS = {"pixel_mean": MEAN, "pixel_std": STD}


@pytest.fixture
def processor(tmp_path):
    """preprocessor_config.json as transformers writes it, for pictures of 12 pixels."""
    image_processing_pil_clip.CLIPImageProcessorPil(
        size={"shortest_edge": 12}, crop_size=12, image_mean=list(MEAN), image_std=list(STD)
    ).save_pretrained(tmp_path)
    return _read(tmp_path, "preprocessor_config.json")


def test_the_preprocessor_that_transformers_writes(folder, processor):
    expected = ({**NUMBERS, **PIXELS}, [])
    assert huggingface.describe(_read(folder), processor, "x") == expected
    # As version 5 writes it into processor_config.json.
    nested = {"image_processor": processor, "processor_class": "CLIPProcessor"}
    assert huggingface.describe(_read(folder), nested, "x") == expected


def test_the_preprocessor_of_old_files(folder):
    old = {
        "crop_size": 12,
        "do_center_crop": True,
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor",
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.5, 0.6],
        "resample": 3,
        "size": 12,
    }
    assert huggingface.describe(_read(folder), old, "x") == ({**NUMBERS, **PIXELS}, [])


@pytest.mark.parametrize(
    ("change", "noted"),
    [
        ({"resample": 2}, "says resample 2; this package uses 3"),
        ({"size": {"shortest_edge": 16}}, "says size {'shortest_edge': 16}; this package uses"),
        ({"size": {"height": 12, "width": 12}}, "says size {'height': 12, 'width': 12}; this"),
        ({"crop_size": 10}, "says crop_size {'height': 10, 'width': 10}; this package uses"),
        ({"do_center_crop": False}, "says do_center_crop False; this package uses True"),
        ({"do_resize": False}, "says do_resize False; this package uses True"),
        ({"do_rescale": False}, "says do_rescale False; this package uses True"),
        ({"rescale_factor": 1}, "says rescale_factor 1; this package uses 0.0039"),
    ],
)
def test_other_preprocessing_is_noted(folder, processor, change, noted):
    numbers, notes = huggingface.describe(_read(folder), {**processor, **change}, "x")
    assert numbers == {**NUMBERS, **PIXELS}
    assert len(notes) == 1
    assert noted in notes[0]


def test_missing_sizes_of_pictures_are_those_of_transformers(folder):
    _, notes = huggingface.describe(_read(folder), {}, "x")
    assert [note.split(";")[0] for note in notes] == [
        "preprocessor_config.json says size {'shortest_edge': 224}",
        "preprocessor_config.json says crop_size {'height': 224, 'width': 224}",
    ]


def test_pixel_statistics_that_are_not_stated_are_left_out(folder, processor):
    del processor["image_mean"], processor["image_std"]
    assert huggingface.describe(_read(folder), processor, "x") == (NUMBERS, [])


def test_without_normalisation_pixels_stay_as_they_are(folder, processor):
    numbers, _ = huggingface.describe(_read(folder), {**processor, "do_normalize": False}, "x")
    assert numbers["pixel_mean"] == (0, 0, 0)
    assert numbers["pixel_std"] == (1, 1, 1)


@pytest.mark.parametrize(
    "mean", [0.5, [0.5], [0.1, 0.2, "0.3"], [0.1, 0.2, float("nan")]], ids=repr
)
def test_statistics_that_are_no_three_numbers(folder, processor, mean):
    with pytest.raises(types.UserError, match=r"preprocessor_config.json: image_mean is .*three"):
        huggingface.describe(_read(folder), {**processor, "image_mean": mean}, "x")
