"""`hnclip convert` and the tool of the same use: what is written, what is said, what is refused."""

import pathlib
import runpy
import sys

import jax
import numpy as np
import pytest
import torch

import hnclip_jax as hn
from hnclip_jax.models import dual_encoder, presets
from hnclip_jax.weights import files
from tests.weights import hostile, reference

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def longclip(tmp_path_factory):
    """A small Long-CLIP file under a name that says nothing."""
    path = tmp_path_factory.mktemp("longclip") / "checkpoint"
    torch.save(reference.state_dict(reference.SMALL_LONG, 2, tables=2), path)
    return path


@pytest.fixture(scope="module")
def openai(tmp_path_factory):
    """A small OpenAI CLIP with 77 positions."""
    path = tmp_path_factory.mktemp("openai") / "checkpoint"
    torch.save(reference.state_dict(reference.SMALL, 3), path)
    return path


def said(ran):
    """The account as a dict; several notes are joined."""
    rows = {}
    for line in ran.err.splitlines():
        label, _, value = line.partition("  ")
        rows[label] = f"{rows[label]}; {value.strip()}" if label in rows else value.strip()
    return rows


@pytest.mark.parametrize(
    ("to", "target", "expected"),
    [
        ("hnclip", "out", ["out/model.safetensors"]),
        ("hnclip", "out.safetensors", ["out.safetensors"]),
        ("longclip", "out.pt", ["out.pt"]),
        ("longclip", "out.safetensors", ["out.safetensors"]),
        ("openai", "out.pt", ["out.pt"]),
        ("open_clip", "out", ["out/open_clip_model.safetensors", "out/open_clip_config.json"]),
        ("open_clip", "out/a.bin", ["out/a.bin", "out/open_clip_config.json"]),
        (
            "huggingface",
            "out",
            ["out/model.safetensors", "out/config.json", "out/preprocessor_config.json"],
        ),
    ],
)
def test_every_layout_is_written_where_it_belongs_and_said(
    hnclip, longclip, tmp_path, to, target, expected
):
    ran = hnclip("convert", longclip, tmp_path / target, f"--to={to}")
    assert ran.code == 0, ran.err
    written = ran.out.split()
    assert written[: len(expected)] == [str(tmp_path / file) for file in expected]
    there = {str(path) for path in tmp_path.rglob("*") if path.is_file()}
    assert there == set(written)
    rows = said(ran)
    assert rows["layout"] == "Long-CLIP"
    assert rows["tensors"] == "75 matched, none missing, none left over"
    assert rows["activation"] == "quick_gelu"
    assert rows["positions"] == "248 text, 4 x 4 image (32 pixels)"
    assert len(rows["sha256"]) == 64
    model, params = hn.load(written[0], activation="quick_gelu")
    same_model, same_params = hn.load(longclip)
    assert model.config == same_model.config
    jax.tree.map(np.testing.assert_array_equal, params, same_params)


def test_positions_are_changed_on_request(hnclip, openai, tmp_path):
    words = ("--stretch=248", "--context_length=200", "--image_size=64", "--dtype=float16")
    ran = hnclip("convert", openai, tmp_path / "out", *words)
    assert ran.code == 0, ran.err
    note = said(ran)["note"]
    assert "stretched from 77 to 248 by Long-CLIP's rule" in note
    assert "the first 200 of 248 text positions are used" in note
    assert "resized from 4 x 4 to 8 x 8 patches (32 to 64 pixels)" in note
    assert "activation quick_gelu is assumed" in note
    model, _ = hn.load(tmp_path / "out")
    assert (model.config.context_length, model.config.image_size) == (200, 64)


def test_rows_never_read_are_kept_while_the_positions_stay_as_they_were(hnclip, longclip, tmp_path):
    kept = "unused/text/position_embedding"
    assert hnclip("convert", longclip, tmp_path / "whole").code == 0
    assert kept in files.read(tmp_path / "whole" / "model.safetensors").tree
    assert hnclip("convert", longclip, tmp_path / "cut", "--context_length=200").code == 0
    tree = files.read(tmp_path / "cut" / "model.safetensors").tree
    assert kept not in tree
    assert tree["text/position_embedding"].shape == (200, 64)


def test_what_is_there_is_replaced_only_on_request(hnclip, longclip, tmp_path):
    for to, target in (("longclip", "out.pt"), ("open_clip", "out"), ("huggingface", "out")):
        words = ("convert", longclip, tmp_path / target, f"--to={to}")
        assert hnclip(*words).code == 0
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        message = hnclip(*words).one_line("convert")
        assert "already there" in message
        assert "choose another place, or say --overwrite" in message
        assert before == {path: path.read_bytes() for path in before}
        assert hnclip(*words, "--overwrite").code == 0
        assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "needs SRC and DST; for example: hnclip convert"),
        (["a", "b", "c"], "needs SRC and DST"),
        (["{gone}", "{out}"], "no weights at"),
        (["{openai}", "{out}.pt", "--to=longclip"], "77 text positions (248; 77 can be stretched"),
        (["{openai}", "{out}", "--to=openai"], "has no ending of one; say"),
        (["{openai}", "{out}.pt", "--to=huggingface"], "is a folder, but"),
        (
            ["{openai}", "{out}", "--activation=gelu", "--to=open_clip", "--preset=ViT-B-32"],
            "is no",
        ),
        (["{openai}", "{out}.pt", "--activation=gelu", "--to=openai"], "activation gelu (they"),
        (["{longclip}", "{out}", "--activation=gelu"], "has activation quick_gelu, but the act"),
        (["{longclip}", "{out}", "--stretch=248"], "has 248 text positions; only 77 can be"),
        (["{longclip}", "{out}", "--context_length=249"], "asks for 249 tokens, but"),
        (["{longclip}", "{out}", "--image_size=33"], "patches are 8 wide"),
        (["{longclip}", "{out}", "--to=hugingface"], "huggingface"),
        (["{longclip}", "{out}", "--stretch=100"], "stretch"),
        (["{longclip}", "{out}", "--dtype=int8"], "dtype"),
        (["{longclip}", "{out}", "--two=hnclip"], "two"),
        (["{longclip}", "{out}", "--to=huggingface", "--vocabulary=gone.txt"], "gone.txt"),
        (["{longclip}", "{longclip}/x"], "cannot write"),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_writes_nothing(hnclip, longclip, openai, tmp_path, words, part):
    names = {"longclip": longclip, "openai": openai, "out": tmp_path / "out", "gone": "gone"}
    message = hnclip("convert", *(word.format(**names) for word in words)).one_line("convert")
    assert part in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", hostile.BROKEN)
@pytest.mark.parametrize("command", ["convert", "inspect"])
def test_broken_and_hostile_files_are_one_line_run_nothing_and_write_nothing(
    hnclip, tmp_path, kind, command
):
    build, part = hostile.BROKEN[kind]
    source = tmp_path / "source"
    source.mkdir()
    build(source / "weights")
    there = sorted(source.iterdir())
    words = (tmp_path / "target",) if command == "convert" else ()
    message = hnclip(command, source / "weights", *words).one_line(command)
    assert part in message
    assert str(source / "weights") in message or str(source) in message
    assert sorted(source.iterdir()) == there
    assert list(tmp_path.iterdir()) == [source]


def _spoiled(change):
    def build(path):
        state = reference.state_dict(reference.SMALL_LONG, 2, tables=2)
        torch.save(change(state) or state, path)

    return build


def _flip(path):
    _spoiled(lambda state: None)(path)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


LATE = {
    "a changed bit": (_flip, "checksum of record"),
    "a value that is not finite": (
        _spoiled(lambda s: s["ln_final.bias"].__setitem__(2, float("nan"))),
        "text/ln_final/bias has values that are not finite",
    ),
    "a value beyond the type": (
        _spoiled(lambda s: s["ln_final.bias"].__setitem__(2, 1e5)),
        "text/ln_final/bias has values from",
    ),
    "a missing tensor": (_spoiled(lambda s: s.pop("ln_final.bias") is None), "1 missing (ln_final"),
    "a layer too few": (
        _spoiled(lambda s: {k: v for k, v in s.items() if "resblocks.0." not in k}),
        "24 missing (transformer.resblocks.0.attn",
    ),
    "a tensor too many": (
        _spoiled(lambda s: {**s, "visual.head": torch.zeros(2)}),
        "1 left over (visual.head)",
    ),
    "a wrong shape": (
        _spoiled(lambda s: {**s, "text_projection": torch.zeros(64, 40)}),
        "text_projection is (64, 40), not (64, 48)",
    ),
    "a wrong rank": (
        _spoiled(lambda s: {**s, "visual.conv1.weight": torch.zeros(128, 192)}),
        "visual.conv1.weight has shape (128, 192), but needs 4 dimensions",
    ),
    "a temperature of two": (
        _spoiled(lambda s: {**s, "logit_scale": torch.zeros(2)}),
        "logit_scale has shape (2,), but is one number",
    ),
    "whole numbers": (
        _spoiled(lambda s: {**s, "text_projection": torch.zeros(64, 48, dtype=torch.int32)}),
        "text_projection holds int32",
    ),
    "a ResNet": (
        _spoiled(lambda s: {**s, "visual.layer1.0.conv1.weight": torch.zeros(2)}),
        "is a ResNet CLIP",
    ),
    "a SigLIP": (_spoiled(lambda s: {**s, "logit_bias": torch.zeros(())}), "is a SigLIP model"),
    "half a model": (
        _spoiled(lambda s: {k: v for k, v in s.items() if k.startswith("visual.")}),
        "has no text tower",
    ),
}


@pytest.mark.parametrize("to", ["hnclip", "longclip", "huggingface", "open_clip"])
@pytest.mark.parametrize("kind", LATE)
def test_what_is_wrong_inside_is_one_line_and_leaves_nothing(hnclip, tmp_path, kind, to):
    build, part = LATE[kind]
    source = tmp_path / "source"
    build(source)
    target = tmp_path / ("target.pt" if to == "longclip" else "target")
    ran = hnclip("convert", source, target, f"--to={to}", "--dtype=float16")
    message = ran.one_line("convert")
    assert part in message
    assert list(tmp_path.iterdir()) == [source]


def test_torch_is_needed_to_write_its_files_only(hnclip, longclip, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert hnclip("convert", longclip, tmp_path / "own").code == 0
    assert hnclip("convert", tmp_path / "own", tmp_path / "hf", "--to=huggingface").code == 0
    message = hnclip("convert", longclip, tmp_path / "a.pt", "--to=longclip").one_line("convert")
    assert "pip install 'hnclip_jax[torch]'" in message
    assert not (tmp_path / "a.pt").exists()


def test_a_model_that_a_layout_cannot_say_is_refused_by_what_it_has(hnclip, tmp_path):
    config = presets.ModelConfig(
        **{
            **reference.SMALL_LONG.numbers(),
            "vision_heads": 4,
            "text_heads": 2,
            "text_mlp_width": 100,
            "activation": "gelu",
            "layer_norm_eps": 1e-6,
            "pixel_mean": (0.5, 0.5, 0.5),
        }
    )
    model = dual_encoder.create(config)
    params = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), model.abstract_params())
    own = hn.save(tmp_path / "own", model, params)
    message = hnclip("convert", own, tmp_path / "a.pt", "--to=longclip").one_line("convert")
    for part in ("activation gelu", "4 vision heads", "2 text heads", "text MLP", "mean", "1e-06"):
        assert part in message
    for layout in ("huggingface", "open_clip"):
        ran = hnclip("convert", own, tmp_path / layout, f"--to={layout}")
        assert ran.code == 0, ran.err
        assert hn.load(tmp_path / layout)[0].config == config


def test_the_tool_is_the_command(longclip, tmp_path, monkeypatch, capsys):
    tool = HERE.parent.parent / "tools" / "convert_longclip.py"
    monkeypatch.setattr(sys, "argv", [str(tool), str(longclip), str(tmp_path / "out")])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(tool), run_name="__main__")
    assert left.value.code == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "out" / "model.safetensors")]
