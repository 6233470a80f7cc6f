"""pretrained and the public names: what is saved comes back, exactly."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import hnclip_jax as hn
from hnclip_jax import config, pretrained, types
from hnclip_jax.models import dual_encoder
from hnclip_jax.weights import files


@pytest.fixture(scope="module")
def model(small_config):
    return dual_encoder.create(small_config)


@pytest.fixture(scope="module")
def params(model):
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype("f4"), model.abstract_params()
    )


def _equal(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.parametrize("scan", [True, False], ids=["scan", "unrolled"])
def test_parameters_come_back_bit_for_bit_in_either_form(
    tmp_path, model, params, small_config, scan
):
    file = hn.save(tmp_path, model, params, note={"step": 7})
    assert file == tmp_path / "model.safetensors"
    loaded, found = hn.load(tmp_path, config.ModelGroup(scan_layers=scan))
    assert loaded.config == small_config
    other = dual_encoder.create(small_config, scan_layers=scan)
    hn.save(tmp_path / "again.safetensors", other, found, note={"step": 7})
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()
    if scan:
        _equal(found, params)


def test_the_file_names_one_block_per_layer_whatever_the_run_used(tmp_path, model, params):
    arrays, note = files.read(hn.save(tmp_path, model, params))
    assert "image/blocks_01/attn/query/kernel" in arrays
    assert not [name for name in arrays if "/blocks/" in name]
    assert arrays["logit_scale"].shape == ()
    assert note["model"]["embed_dim"] == 8


def test_a_run_a_folder_and_a_file_lead_to_the_same_weights(tmp_path, model, params):
    file = hn.save(tmp_path / "run" / "weights", model, params)
    for path in (tmp_path / "run", tmp_path / "run" / "weights", file):
        assert pretrained.find(path) == file
    with pytest.raises(types.UserError, match="tried"):
        pretrained.find(tmp_path / "nothing")


def test_a_shorter_context_uses_the_first_positions_and_a_longer_one_names_both(
    tmp_path, model, params
):
    hn.save(tmp_path, model, params)
    short, found = hn.load(tmp_path, config.ModelGroup(context_length=9))
    assert short.config.context_length == 9
    _equal(found["text"]["position_embedding"], params["text"]["position_embedding"][:9])
    ids = hn.tokenize(["a red kite"], context_length=9)
    np.testing.assert_allclose(
        short.encode_text(found, ids), model.encode_text(params, ids), rtol=1e-6, atol=1e-6
    )
    with pytest.raises(types.UserError, match=r"asks for 99 tokens.*has 77 positions"):
        hn.load(tmp_path, config.ModelGroup(context_length=99))


def test_another_image_size_is_refused(tmp_path, model, params):
    hn.save(tmp_path, model, params)
    with pytest.raises(types.UserError, match="trained at 24"):
        hn.load(tmp_path, config.ModelGroup(image_size=48))


def test_a_file_that_lacks_or_exceeds_its_description_names_the_arrays(tmp_path, model, params):
    arrays, note = files.read(hn.save(tmp_path, model, params))
    arrays["image/surplus"] = arrays.pop("image/proj")
    files.write(tmp_path / "model.safetensors", arrays, note)
    with pytest.raises(types.UserError, match="image/proj, image/surplus"):
        hn.load(tmp_path)


def test_a_foreign_file_is_refused_by_what_it_holds(tmp_path):
    files.write(tmp_path / "w.safetensors", {"visual.proj": np.zeros((2, 2), "f4")}, {})
    with pytest.raises(types.UserError, match=r"not written by hnclip_jax.*'visual.proj'"):
        hn.load(tmp_path / "w.safetensors")


def test_public_names():
    assert "LongCLIP-L" in hn.list_presets()
    assert hn.create_model("tiny", context_length=50).config.context_length == 50
    assert hn.tokenize(["a red kite"]).shape == (1, 248)
    assert set(hn.__all__) <= set(dir(hn))
    for name in hn.__all__:
        assert getattr(hn, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        hn.nothing_here  # noqa: B018
    with pytest.raises(types.UserError, match="did you mean 'LongCLIP-L'"):
        hn.create_model("LongCLIP-l")


def test_importing_the_package_imports_no_jax():
    code = "import sys, hnclip_jax; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
