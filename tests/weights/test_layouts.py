"""A file's layout is found from what it holds, whatever it is called and wrapped in."""

import json
import warnings

import numpy as np
import pytest
import torch

import hnclip_jax as hn
from hnclip_jax import types
from hnclip_jax.weights import files, layouts
from tests.weights import reference

OPEN_CLIP_CONFIG = {
    "model_cfg": {
        "embed_dim": 48,
        "quick_gelu": False,
        "vision_cfg": {"image_size": 32, "layers": 3, "width": 128, "patch_size": 8},
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 64,
            "heads": 1,
            "layers": 2,
        },
    },
    "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
}


@pytest.fixture(scope="module")
def state():
    """The tensors of a small OpenAI CLIP."""
    return reference.state_dict(reference.SMALL, 1)


@pytest.fixture
def save(tmp_path):
    """Saves by torch under a name that says nothing: tree -> path."""

    def save(tree, name="weights"):
        torch.save(tree, tmp_path / name)
        return tmp_path / name

    return save


def test_loading_warns_of_what_it_had_to_assume(state, save):
    path = save(state)
    with pytest.warns(UserWarning, match=r"weights: activation quick_gelu is assumed, as OpenAI's"):
        model, _ = hn.load(path)
    assert model.config.activation == "quick_gelu"
    assert hn.load(path, activation="gelu")[0].config.activation == "gelu"


def test_openai(state, save):
    found = layouts.read(save(state))
    assert (found.layout, found.title) == ("openai", "OpenAI CLIP")
    assert found.matched == len(state)
    assert found.ignored == ()
    assert found.numbers == {
        key: value
        for key, value in reference.SMALL.numbers().items()
        if key not in ("vision_heads", "text_heads")
    }
    np.testing.assert_array_equal(found.arrays["text/proj"], state["text_projection"])


def test_openai_with_the_sizes_that_its_archives_carry_has_a_known_activation(state, save):
    sizes = {"input_resolution": torch.tensor(32), "context_length": 77, "vocab_size": 49408}
    found = layouts.read(save({**state, **sizes}))
    assert found.numbers["activation"] == "quick_gelu"
    assert set(found.ignored) == set(sizes)


def test_a_torchscript_archive(state, tmp_path):
    reference.save_torchscript(tmp_path / "archive", state, reference.SMALL)
    found = layouts.read(tmp_path / "archive")
    assert (found.layout, found.contents.container) == ("openai", "TorchScript")
    assert found.numbers["activation"] == "quick_gelu"
    assert found.matched == len(state)
    np.testing.assert_array_equal(found.arrays["image/proj"], state["visual.proj"])


def test_numbers_that_scripted_modules_note_are_no_tensors(state, tmp_path):
    module = reference.Module(state, reference.SMALL)
    for name, part in module.named_modules():
        if name.endswith(".attn"):
            part.num_heads = 2
    # Only its attributes are saved: scripting needs a forward that can be compiled.
    module.__class__ = type("Plain", (torch.nn.Module,), {"forward": _forward})
    del module._run
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(module).save(str(tmp_path / "archive"))
    assert any("num_heads" in name for name in files.read(tmp_path / "archive").tree)
    found = layouts.read(tmp_path / "archive")
    assert found.matched == len(state)
    assert sorted(found.ignored) == ["context_length", "input_resolution", "vocab_size"]


def _forward(self, x: torch.Tensor) -> torch.Tensor:
    return x


def test_a_config_beside_a_file_of_openai_is_not_its_own(state, save, tmp_path):
    (tmp_path / "open_clip_config.json").write_text(json.dumps(OPEN_CLIP_CONFIG))
    reference.save_torchscript(tmp_path / "archive", state, reference.SMALL)
    for path in (tmp_path / "archive", save({**state, "input_resolution": torch.tensor(32)})):
        found = layouts.read(path)
        assert (found.layout, found.numbers["activation"]) == ("openai", "quick_gelu")


def test_longclip_and_finelip(save):
    state = reference.state_dict(reference.SMALL_LONG, 2, tables=2)
    extra = reference.finelip_extra(48)
    for more, notes in (({}, 0), (extra, 1)):
        found = layouts.read(save({**state, **more}))
        assert (found.layout, found.numbers["activation"]) == ("longclip", "quick_gelu")
        assert found.numbers["context_length"] == 248
        assert found.matched == len(state)
        assert set(found.ignored) == set(more)
        assert [note for note in found.notes if "FineLIP" in note] == list(found.notes)[:notes]


def test_open_clip_by_its_config_and_by_its_text_tower(state, save, tmp_path):
    (tmp_path / "open_clip_config.json").write_text(json.dumps(OPEN_CLIP_CONFIG))
    found = layouts.read(save(state))
    assert found.layout == "open_clip"
    assert found.numbers["activation"] == "gelu"
    assert (found.numbers["vision_heads"], found.numbers["text_heads"]) == (2, 1)
    assert tuple(found.numbers["pixel_mean"]) == (0.5, 0.5, 0.5)
    custom = layouts.read(
        save(reference.state_dict(reference.SMALL, 1, text_prefix="text."), "custom")
    )
    assert custom.layout == "open_clip"
    assert custom.numbers == found.numbers
    assert custom.origin["text/proj"] == ("text.text_projection",)
    for path, array in found.arrays.items():
        np.testing.assert_array_equal(custom.arrays[path], array)


@pytest.mark.parametrize(
    ("wrap", "note"),
    [
        (lambda s: {"state_dict": s, "epoch": 3, "optimizer": {"lr": 0.1}}, "'state_dict'"),
        (lambda s: {"model": s}, "'model'"),
        (lambda s: {"epoch": 1, "model_state_dict": s}, "'model_state_dict'"),
        (lambda s: {"model": {"state_dict": s, "step": 1}}, "'state_dict'"),
        (lambda s: {f"module.{k}": v for k, v in s.items()}, "'module.'"),
        (lambda s: {f"model.{k}": v for k, v in s.items()}, "'model.'"),
        (lambda s: {f"_orig_mod.{k}": v for k, v in s.items()}, "torch.compile"),
        (lambda s: {f"module._orig_mod.model.{k}": v for k, v in s.items()}, "'model.'"),
        (lambda s: {k.replace("visual.", "visual._orig_mod."): v for k, v in s.items()}, "compile"),
        (lambda s: {"state_dict": {f"module.{k}": v for k, v in s.items()}}, "'module.'"),
    ],
    ids=[
        "state_dict",
        "model",
        "model_state_dict",
        "twice",
        "module.",
        "model.",
        "_orig_mod.",
        "three prefixes",
        "inside",
        "both",
    ],
)
def test_wrappers_are_taken_off_and_told(state, save, wrap, note):
    found = layouts.read(save(wrap(state)))
    assert found.matched == len(state)
    assert any(note in text for text in found.notes)


def test_a_prefix_that_only_some_names_have_is_no_wrapper(state, save):
    tree = {(f"module.{k}" if k == "visual.proj" else k): v for k, v in state.items()}
    with pytest.raises(types.UserError) as caught:
        layouts.read(save(tree))
    message = str(caught.value)
    assert f"{len(state) - 1} tensors matched" in message
    assert "1 missing (visual.proj)" in message
    assert "1 left over (module.visual.proj)" in message


def test_names_that_become_one_are_an_error(state, save):
    with pytest.raises(types.UserError, match="has tensors of the same name"):
        layouts.read(save({**state, "visual._orig_mod.proj": state["visual.proj"]}))


def test_names_of_any_kind_stay_in_one_line(state, save):
    for tree in ({**state, "a\nb\x1b[2J": torch.zeros(1)}, {"a\nb\x1b[2J": torch.zeros(1)}):
        with pytest.raises(types.UserError, match=r"a\\nb\\x1b\[2J") as caught:
            layouts.read(save(tree))
        assert "\n" not in str(caught.value)


def test_an_unknown_layout_lists_its_tensors(save):
    tensors = {f"layer.{i:02d}.weight": torch.zeros(2) for i in range(12)}
    with pytest.raises(types.UserError, match=r"of no layout that is known .*layer\.09.* 2 more"):
        layouts.read(save(tensors))


@pytest.mark.parametrize(
    ("tree", "part"),
    [
        ({"epoch": 3, "lr": 0.5}, "'epoch', 'lr'"),
        ({}, "nothing"),
        ({"state_dict": {"epoch": 1}}, "'epoch'"),
    ],
    ids=["numbers", "empty", "wrapped numbers"],
)
def test_what_is_no_dict_of_tensors_is_told(save, tree, part):
    with pytest.raises(types.UserError, match="holds no dict of tensors") as caught:
        layouts.read(save(tree))
    assert part in str(caught.value)


def test_numbers_between_the_tensors_are_left_over(state, save):
    with pytest.raises(types.UserError, match="no tensors between its tensors: temperature"):
        layouts.read(save({**state, "temperature": 0.5}))


def test_a_config_of_another_model_is_an_error(state, save, tmp_path):
    config = json.loads(json.dumps(OPEN_CLIP_CONFIG))
    config["model_cfg"]["vision_cfg"]["layers"] = 12
    config["model_cfg"]["embed_dim"] = 512
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(types.UserError, match="is not its own") as caught:
        layouts.read(save(state))
    assert "embed_dim 512, not 48; vision_layers 12, not 3" in str(caught.value)


def test_a_config_that_missed_the_stretch_is_noted(save, tmp_path):
    (tmp_path / "open_clip_config.json").write_text(json.dumps(OPEN_CLIP_CONFIG))
    found = layouts.read(save(reference.state_dict(reference.SMALL_LONG, 1)))
    assert found.numbers["context_length"] == 248
    assert any("says 77 text positions, the table has 248" in note for note in found.notes)


@pytest.mark.parametrize(
    "text", ["{", "[1]", '"x"', "[" * 10**6], ids=["broken", "list", "string", "deep"]
)
def test_a_config_that_is_no_json_object_is_one_line(state, save, tmp_path, text):
    (tmp_path / "open_clip_config.json").write_text(text)
    with pytest.raises(types.UserError, match=r"open_clip_config\.json"):
        layouts.read(save(state))


def test_image_positions_must_be_a_square_grid(state, save):
    wrong = {**state, "visual.positional_embedding": torch.zeros(16, 128)}
    with pytest.raises(types.UserError, match="has 16 image positions, but needs a class token"):
        layouts.read(save(wrong))


def test_the_hash_is_that_of_all_files_read(state, save):
    path = save(state)
    assert layouts.read(path).sha256 == files.sha256(path)
