"""The files beside the weights: transformers opens the folder, and gets our ids and our pixels."""

import json
import logging
import random

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images, tokenizer
from hnclip_jax.models import dual_encoder, presets, transformer
from hnclip_jax.parallel import sharding
from hnclip_jax.weights import huggingface, huggingface_files, rules

NUMBERS = {
    "vision_width": 48,
    "vision_layers": 2,
    "vision_heads": 3,
    "vision_mlp_width": 100,
    "patch_size": 8,
    "text_width": 16,
    "text_layers": 1,
    "text_heads": 2,
    "text_mlp_width": 64,
    "embed_dim": 24,
    "image_size": 40,
    "context_length": 248,
    "vocab_size": 49408,
    "activation": "gelu",
    "layer_norm_eps": 1e-6,
    "pixel_mean": (0.1, 0.2, 0.3),
    "pixel_std": (0.4, 0.5, 0.6),
}
BEGIN, END = 49406, 49407


def _write(folder, numbers, dtype="float32", vocabulary=None):
    folder.mkdir(exist_ok=True)
    files = huggingface.sidecars(numbers, dtype, vocabulary)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def _random_tensors(numbers):
    rng = np.random.default_rng(4)
    model = dual_encoder.create(presets.ModelConfig(**numbers), scan_layers=False)
    params = transformer.unstack_blocks(model.abstract_params())
    arrays = {
        sharding.path_of(path): rng.normal(size=leaf.shape).astype(np.float32)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }
    encoded = rules.encode(arrays, huggingface.RULES)
    return {name: np.array(tensor, order="C") for name, tensor in encoded.items()}


@pytest.fixture(scope="module")
def vocabulary():
    """The tokenizer's vocabulary."""
    return tokenizer.vocabulary()


@pytest.fixture(scope="module")
def tensors():
    """Weights in Hugging Face's names, each value another one."""
    return _random_tensors(NUMBERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary, tensors):
    """All files of a model."""
    folder = _write(tmp_path_factory.mktemp("all") / "model", NUMBERS, vocabulary=vocabulary)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def theirs(folder):
    """The tokenizer, as transformers reads it from the folder."""
    return transformers.CLIPTokenizer.from_pretrained(folder)


def test_the_model_opens_with_every_tensor_in_its_place(folder, tensors, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        model, info = transformers.CLIPModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert caplog.messages == []
    state = model.state_dict()
    assert state.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(state[name].numpy(), tensor)


def test_transformers_reads_the_numbers_back(folder):
    config = transformers.CLIPConfig.from_pretrained(folder)
    text, vision = config.text_config, config.vision_config
    assert (text.hidden_size, text.num_hidden_layers, text.num_attention_heads) == (16, 1, 2)
    assert (text.intermediate_size, text.max_position_embeddings, text.vocab_size) == (
        64,
        248,
        49408,
    )
    assert (vision.hidden_size, vision.num_hidden_layers, vision.num_attention_heads) == (48, 2, 3)
    assert (vision.intermediate_size, vision.image_size, vision.patch_size) == (100, 40, 8)
    assert (config.projection_dim, text.projection_dim, vision.projection_dim) == (24, 24, 24)
    assert (text.bos_token_id, text.eos_token_id, text.pad_token_id) == (BEGIN, END, END)
    for tower in (text, vision):
        assert tower.hidden_act == "gelu"
        assert tower.layer_norm_eps == 1e-6


@pytest.mark.parametrize("activation", presets.ACTIVATIONS)
def test_we_read_the_numbers_back(tmp_path, activation):
    numbers = {**NUMBERS, "activation": activation, "vocab_size": 50, "layer_norm_eps": 1e-5}
    folder = _write(tmp_path / "model", numbers)
    config, preprocessor = (
        json.loads((folder / name).read_text())
        for name in ("config.json", "preprocessor_config.json")
    )
    assert huggingface.describe(config, preprocessor, "x") == (numbers, [])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_model_has_the_type_that_the_files_name(tmp_path, tensors, dtype):
    numbers = {**NUMBERS, "vocab_size": 50}
    folder = _write(tmp_path / "model", numbers, dtype)
    model = transformers.CLIPModel(transformers.CLIPConfig.from_pretrained(folder))
    weights = tmp_path / "weights"
    model.to(getattr(torch, dtype)).save_pretrained(weights)
    (weights / "model.safetensors").rename(folder / "model.safetensors")
    opened = transformers.CLIPModel.from_pretrained(folder)
    assert opened.dtype == getattr(torch, dtype)
    said = json.loads((folder / "config.json").read_text())
    assert (said["dtype"], said["torch_dtype"]) == (dtype, dtype)


def test_the_tokenizer_opens_by_both_names(folder, theirs):
    for opened in (theirs, transformers.AutoTokenizer.from_pretrained(folder)):
        assert isinstance(opened, transformers.CLIPTokenizer)
        assert len(opened) == 49408
        assert opened.model_max_length == 248
        ids = (opened.bos_token_id, opened.eos_token_id, opened.pad_token_id, opened.unk_token_id)
        assert ids == (BEGIN, END, END, END)


PIECES = """
a photo of A Red KITE over the harbour bridge it's I'M they'LL we've You're he'd don't x'y '' 'em
rock'n'roll a_b __x__ 4077 3.14 1,000 !? ... ((:)) #@ $5 50% café Éclair e\u0301 n\u0303 naïve ß ½ Ⅷ
² ٣ ④ — 😀 👍🏽 🇫🇮 👩\u200d🚀 中文字 日本 한국 العربية हिन्दी ไทย עברית ελληνικά Русский антре
"""


def _strings():
    rng, words = random.Random(7), PIECES.split()
    makers = [
        lambda: rng.choice(words),
        lambda: rng.choice(words) + rng.choice(words),
        lambda: "".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCXYZ'", k=rng.randint(1, 9))),
        lambda: "".join(rng.choices("abXY0189'_-.,;:!?#@", k=rng.randint(1, 6))),
    ]
    spaces = [" ", " ", " ", "  ", "\t", "\n", "\u00a0"]
    return [
        "".join(rng.choice(makers)() + rng.choice(spaces) for _ in range(rng.randint(1, 12)))
        for _ in range(200)
    ]


def test_ids_are_ours(theirs):
    strings = [*PIECES.split(), *_strings(), "", " \n "]
    ours = tokenizer.default()
    ids = theirs(strings, add_special_tokens=False).input_ids
    different = [
        text for text, found in zip(strings, ids, strict=True) if found != ours.encode(text)
    ]
    assert different == []
    assert len({token for row in ids for token in row}) > 300


# transformers mends no text (ftfy, HTML), lower-cases letter by letter and takes marks for marks.
DIFFERENCES = {
    "it\u2019s": ([585, 728, 503, 338], [585, 568]),
    "“so”": ([728, 506, 706, 728, 507], [257, 706, 257]),
    "schÃ¶n": ([844, 127, 352, 126, 370, 333], [844, 7255, 333]),
    "ﬁne": ([171, 105, 223, 1422], [3797]),
    "&amp;": ([261, 6259, 282], [261]),
    "\x7f": ([477], []),
    "\ufeff": ([171, 119, 379], []),
    "ΣΑΣ": ([139, 225, 138, 109, 139, 481], [139, 225, 138, 109, 139, 480]),
    "a\u0345b": ([320, 137, 483, 321], [320, 321]),
    "<|endoftext|>": ([END], [27, 347, 40786, 4160, 91, 285]),
}


@pytest.mark.parametrize("text", DIFFERENCES, ids=ascii)
def test_known_differences(theirs, text):
    found = theirs(text, add_special_tokens=False).input_ids
    assert (found, tokenizer.default().encode(text)) == DIFFERENCES[text]


@pytest.mark.parametrize("words", [0, 1, 245, 246, 247, 400])
def test_texts_are_cut_and_padded_to_the_context(theirs, words):
    text = " ".join(str(number % 10) for number in range(words))
    ours = tokenizer.tokenize(text, 248)[0]
    found = theirs(text, padding="max_length", truncation=True)
    length = min(words, 246) + 2
    assert found.input_ids[:length] == ours[:length].tolist()
    assert found.input_ids[length - 1] == END
    # They pad with the end token, we with zeros; both read the first end token.
    assert found.input_ids[length:] == [END] * (248 - length)
    assert found.attention_mask == [1] * length + [0] * (248 - length)


def _picture(height, width):
    rng = np.random.default_rng(height * width)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))


@pytest.fixture(scope="module", params=["CLIPProcessor", "AutoProcessor"])
def processor(request, folder):
    """What makes a model's input, from the folder."""
    return getattr(transformers, request.param).from_pretrained(folder)


@pytest.mark.parametrize(
    ("height", "width"), [(40, 40), (60, 50), (53, 71), (97, 40), (41, 80), (20, 33), (45, 40)]
)
def test_pixels_are_ours(processor, height, width):
    picture = _picture(height, width)
    made = processor(
        text=["a kite"],
        images=[picture],
        padding="max_length",
        truncation=True,
        return_tensors="np",
    )
    pixels = images.resize_and_crop(picture, 40) / 255
    expected = (pixels - np.array([0.1, 0.2, 0.3])) / np.array([0.4, 0.5, 0.6])
    np.testing.assert_allclose(made.pixel_values[0], expected.transpose(2, 0, 1), atol=1e-6)
    assert made.input_ids.shape == (1, 248)


def test_a_known_difference_of_pixels(processor):
    # Three rows too many: transformers cuts one above and two below, CLIP two above and one below.
    picture = _picture(43, 40)
    made = processor(images=[picture], return_tensors="np").pixel_values[0]
    pixels = np.asarray(picture)[1:41] / 255
    expected = (pixels - np.array([0.1, 0.2, 0.3])) / np.array([0.4, 0.5, 0.6])
    np.testing.assert_allclose(made, expected.transpose(2, 0, 1), atol=1e-6)
    np.testing.assert_array_equal(images.resize_and_crop(picture, 40), np.asarray(picture)[2:42])


def test_grey_and_palette_pictures_become_rgb(processor):
    for mode in ("L", "P"):
        picture = _picture(40, 40).convert(mode)
        made = processor(images=[picture], return_tensors="np").pixel_values[0]
        pixels = np.asarray(picture.convert("RGB")) / 255
        expected = (pixels - np.array([0.1, 0.2, 0.3])) / np.array([0.4, 0.5, 0.6])
        np.testing.assert_allclose(made, expected.transpose(2, 0, 1), atol=1e-6)


def test_what_the_processor_makes_is_what_the_model_takes(folder, processor):
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    made = processor(
        text=["a kite", "word " * 300],
        images=[_picture(60, 50)],
        padding="max_length",
        truncation=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        scores = model(**made).logits_per_image
        short = model(**processor(text=["a kite"], images=[_picture(60, 50)], return_tensors="pt"))
    assert scores.shape == (1, 2)
    assert torch.isfinite(scores).all()
    # Padding is not seen.
    torch.testing.assert_close(scores[:, :1], short.logits_per_image, atol=1e-4, rtol=1e-4)


def test_without_a_vocabulary_there_are_no_files_of_a_tokenizer(vocabulary):
    names = huggingface_files.sidecars(NUMBERS, "float32", None).keys()
    assert names == {"config.json", "preprocessor_config.json"}
    more = huggingface_files.sidecars(NUMBERS, "float32", vocabulary).keys() - names
    assert more == {
        "vocab.json",
        "merges.txt",
        "tokenizer_config.json",
        "special_tokens_map.json",
    }


def test_a_vocabulary_of_another_size_is_refused(vocabulary):
    with pytest.raises(types.UserError, match=r"has 49408 symbols, but the model 50; give"):
        huggingface_files.sidecars({**NUMBERS, "vocab_size": 50}, "float32", vocabulary)


def test_merges_begin_with_a_line_that_readers_skip(folder, vocabulary):
    first, *rest = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert first == "#version: 0.2"
    assert tuple(rest) == vocabulary.merges
