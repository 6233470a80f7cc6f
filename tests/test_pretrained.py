"""Weights and models: what is saved is what is loaded, and what does not fit is one line."""

import functools
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import hnclip_jax as hn
from hnclip_jax import groups, pretrained, types
from hnclip_jax.models import dual_encoder, presets, transformer
from hnclip_jax.weights import files

SCANNED, WRITTEN_OUT = groups.ModelGroup(), groups.ModelGroup(scan_layers=False)


@pytest.fixture(scope="module")
def params(small_config):
    """Parameters of the small model, no two equal, layers stacked."""
    rng = np.random.default_rng(0)
    shapes = dual_encoder.create(small_config).abstract_params()
    return jax.tree.map(lambda leaf: np.asarray(rng.normal(size=leaf.shape), np.float32), shapes)


@pytest.fixture
def file(small_config, params, tmp_path):
    """The saved file of them."""
    return hn.save(
        tmp_path / "weights", dual_encoder.create(small_config), params, note={"step": 3}
    )


def assert_equal(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(one, np.ndarray)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("group", [SCANNED, WRITTEN_OUT], ids=["scanned", "written out"])
def test_a_round_trip_is_exact(file, small_config, params, group):
    model, found = hn.load(file, group)
    assert model.config == small_config
    assert model.compute.scan_layers == group.scan_layers
    assert_equal(found, params if group.scan_layers else transformer.unstack_blocks(params))


def test_the_file_does_not_depend_on_how_layers_are_computed(file, small_config, params, tmp_path):
    written_out = dual_encoder.create(small_config, scan_layers=False)
    other = hn.save(
        tmp_path / "other.safetensors",
        written_out,
        transformer.unstack_blocks(params),
        note={"step": 3},
    )
    assert other.read_bytes() == file.read_bytes()
    contents = files.read(file)
    assert contents.tree["logit_scale"].shape == ()
    assert contents.tree["image/blocks_01/attn/query/kernel"].shape == (16, 16)
    assert contents.note["step"] == 3


def test_every_way_to_the_file_leads_there(file, params, tmp_path):
    for path in (file, str(file), file.parent, tmp_path):  # tmp_path is the run folder.
        assert pretrained.read(path, SCANNED).weights.path == file
    assert_equal(hn.load(tmp_path)[1], params)
    with pytest.raises(types.UserError, match=r"no weights at .*gone: there is no such file"):
        hn.load(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(types.UserError, match=r"no weights at .*empty; tried .*empty/weights/mod"):
        hn.load(tmp_path / "empty")


def test_arrays_on_devices_are_fetched(small_config, params, tmp_path):
    moved = jax.device_put(params)
    path = hn.save(tmp_path / "a.safetensors", dual_encoder.create(small_config), moved)
    assert_equal(hn.load(path)[1], params)


def test_a_shorter_context_takes_the_first_positions(file, params):
    model, found = hn.load(file, groups.ModelGroup(context_length=20))
    assert model.config.context_length == 20
    text = {**params["text"], "position_embedding": params["text"]["position_embedding"][:20]}
    assert_equal(found, {**params, "text": text})
    ids = hn.tokenize(["a red kite"], context_length=20)
    np.testing.assert_allclose(
        model.encode_text(found, ids),
        hn.load(file)[0].encode_text(params, ids),
        rtol=1e-6,
        atol=1e-6,
    )


def test_a_longer_context_names_both_lengths(file):
    with pytest.raises(types.UserError, match=r"asks for 78 tokens, but .* has 77 positions"):
        hn.load(file, groups.ModelGroup(context_length=78))


def test_another_image_size_resizes_the_grid_and_leaves_the_class_row(file, params):
    same, found = hn.load(file, image_size=24)
    assert_equal(found, params)
    model, found = hn.load(file, image_size=48)
    assert (same.config.image_size, model.config.image_size) == (24, 48)
    old = params["image"]["position_embedding"]
    new = found["image"]["position_embedding"]
    assert new.shape == (37, 16)
    np.testing.assert_array_equal(new[0], old[0])
    assert model.encode_image(found, np.zeros((1, 48, 48, 3), np.uint8)).shape == (1, 8)
    with pytest.raises(types.UserError, match="asks for 50 pixels, but patches are 8 wide"):
        hn.load(file, image_size=50)


def test_positions_are_stretched_on_request_and_only_from_77(file, params):
    model, found = hn.load(file, stretch=248)
    assert model.config.context_length == 248
    old, new = params["text"]["position_embedding"], found["text"]["position_embedding"]
    assert new.shape == (248, 16)
    np.testing.assert_array_equal(new[:21], old[:21])
    again = hn.save(file.parent / "long.safetensors", model, found)
    with pytest.raises(types.UserError, match="has 248 text positions; only 77 can be stretched"):
        hn.load(again, stretch=248)
    with pytest.raises(types.UserError, match="only to 248; leave stretch=100 out"):
        hn.load(file, stretch=100)
    shorter, _ = hn.load(file, stretch=248, context_length=120)
    assert shorter.config.context_length == 120


def _changed(file, change, note=None):
    contents = files.read(file)
    arrays = {name: np.asarray(array) for name, array in contents.tree.items()}
    files.write(file, change(arrays), {**contents.note, **(note or {})})


def _without(name, arrays):
    del arrays[name]
    return arrays


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (functools.partial(_without, "logit_scale"), "logit_scale"),
        (
            functools.partial(_without, "text/blocks_01/attn/out/bias"),
            "text/blocks_01/attn/out/bias",
        ),
        (lambda arrays: {**arrays, "extra": np.zeros(1, np.float32)}, "extra"),
        (
            lambda arrays: {**arrays, "text/blocks_02/ln_1/scale": np.zeros(16, np.float32)},
            "text/blocks_02/ln_1/scale",
        ),
        (
            lambda arrays: {**arrays, "image/blocks_00/attn/out/bias": np.zeros(9, np.float32)},
            "image/blocks_00/attn/out/bias",
        ),
        (lambda arrays: {**arrays, "logit_scale": np.zeros(1, np.float32)}, "logit_scale"),
    ],
    ids=["missing", "missing in a layer", "extra", "extra layer", "shape in a layer", "scalar"],
)
@pytest.mark.parametrize("group", [SCANNED, WRITTEN_OUT], ids=["scanned", "written out"])
def test_a_file_that_contradicts_itself_is_refused_by_path(file, change, path, group):
    _changed(file, change)
    with pytest.raises(types.UserError, match="does not fit its own description") as caught:
        hn.load(file, group)
    assert re.search(rf": {re.escape(path)} is ", str(caught.value))


def test_a_file_of_a_newer_version_is_refused(file):
    _changed(file, dict, {"layout": 2})
    with pytest.raises(types.UserError, match="has layout 2, this version reads 1; update"):
        hn.load(file)


@pytest.mark.parametrize(
    "model", [{}, {"text_width": 16}, [1], "tiny"], ids=["empty", "little", "list", "name"]
)
def test_a_description_that_is_none_is_one_line(file, model):
    _changed(file, dict, {"model": model})
    with pytest.raises(types.UserError, match="does not say what model it is"):
        hn.load(file)


def test_values_that_are_not_finite_are_found(file):
    def spoil(arrays):
        name = "image/blocks_01/mlp/fc_in/bias"
        return {**arrays, name: np.where(np.arange(32) == 3, np.float32(np.nan), arrays[name])}

    _changed(file, spoil)
    for group in (SCANNED, WRITTEN_OUT):
        with pytest.raises(types.UserError, match="image/blocks_01/mlp/fc_in/bias holds values"):
            hn.load(file, group)


def test_a_model_is_created_by_name():
    model = hn.create_model("tiny", context_length=40, dtype="bfloat16", scan_layers=False)
    assert model.config.context_length == 40
    assert model.config.vision_width == presets.get("tiny").vision_width
    assert (model.compute.dtype, model.compute.scan_layers) == ("bfloat16", False)
    with pytest.raises(types.UserError, match="did you mean 'tiny'"):
        hn.create_model("tinny")


def test_the_public_names_are_there():
    assert set(hn.__all__) <= set(dir(hn))
    for name in hn.__all__:
        assert getattr(hn, name) is not None
    assert hn.load is pretrained.load
    assert "tiny" in hn.list_presets()
    assert hn.tokenize(["a red kite"]).shape == (1, 248)
    with pytest.raises(AttributeError, match="has no attribute 'gone'"):
        hn.gone  # noqa: B018


def test_importing_the_package_imports_no_jax_and_no_device():
    code = (
        "import sys, hnclip_jax; "
        "print(sorted({'jax', 'jaxlib', 'numpy', 'flax', 'orbax'} & set(sys.modules))); "
        "hnclip_jax.create_model, hnclip_jax.load, hnclip_jax.losses; "
        "from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["[]", "False"]
