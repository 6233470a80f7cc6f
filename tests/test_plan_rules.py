"""The list of where every parameter lies: nothing is missing, and the sizes are a device's own."""

import math
import re

import jax
import pytest

from hnclip_jax import config
from hnclip_jax.models import presets
from tools import plan_chips, plan_rules


@pytest.fixture(scope="module")
def target():
    """Eight devices."""
    return plan_chips.Target("cpu:8", tuple(jax.devices()[:8]), 0)


def _rules(target, fsdp, values):
    settings = config.defaults()
    settings.parallel.fsdp = fsdp
    settings.update_from_flattened_dict(values)
    return plan_rules.of(config.from_config_dict(settings), target)


def _parts(row):
    found = re.fullmatch(r"axis (\d+) in (\d+)|copied(: no axis divides)?", row.lies)
    return int(found[2] or 1)


def _tower(layers, width, mlp_width):
    """Arrays and numbers of a tower's blocks: norms, four projections, two dense layers."""
    return 16, layers * (
        4 * width + 4 * (width + 1) * width + 2 * width * mlp_width + mlp_width + width
    )


def _size(model):
    """Arrays and numbers of a model, by its architecture."""
    vision, text, dim = model.vision, model.text, model.embed_dim
    image_arrays, image = _tower(vision.layers, vision.width, vision.mlp_width)
    text_arrays, words = _tower(text.layers, text.width, text.mlp_width)
    # Patches, class token, positions, two norms, projection; tokens, positions, a norm, projection.
    patches = 3 * model.patch_size**2
    image += vision.width * (patches + 1 + model.patch_count + 1 + 4 + dim)
    words += text.width * (model.vocab_size + model.context_length + 2 + dim)
    return image_arrays + text_arrays + 8 + 5 + 1, image + words + 1


@pytest.mark.parametrize("preset", presets.list_presets())
def test_every_parameter_of_every_preset_is_listed_with_its_size(preset, target):
    rules = _rules(target, 8, {"model.preset": preset})
    sizes = {row.path: math.prod(row.shape) for row in rules.rows}
    assert (len(sizes), sum(sizes.values())) == _size(presets.get(preset))
    assert len(sizes) == len(rules.rows)
    assert all(row.trains for row in rules.rows)
    assert all(row.bytes * _parts(row) == 4 * sizes[row.path] for row in rules.rows)
    split = sum(sizes[row.path] for row in rules.rows if _parts(row) == 8)
    assert split > 0.97 * sum(sizes.values())
    # Two moments, and a few counters.
    own = sum(row.bytes for row in rules.rows)
    assert 2 * own <= rules.moments < 2 * own + 100


@pytest.mark.parametrize(
    ("values", "added", "frozen", "moments"),
    [
        ({"method.adapter": "lora"}, "adapter/", "base/", 2),
        ({"loss.kind": "frozen"}, None, "reference/", 2),
        (
            {"method.name": "finelip", "optim.freeze": ("^text/",), "optim.mu_dtype": "bfloat16"},
            "method/",
            "text/",
            1.5,
        ),
    ],
    ids=["adapter", "starting tower", "method and frozen tower"],
)
def test_what_is_added_and_what_is_kept_is_listed_too(values, added, frozen, moments, target):
    rules = _rules(target, 4, {"model.preset": "tiny", **values})
    paths = {row.path for row in rules.rows}
    assert len(paths) == len(rules.rows)
    assert {row.path for row in rules.rows if not row.trains} == {
        path for path in paths if path.startswith(frozen)
    }
    more = {path for path in paths if added and path.startswith(added)}
    assert bool(more) == bool(added)
    arrays, _ = _size(presets.get("tiny"))
    # Kept beside the model is its text tower; adapters lie on all of it but the scale.
    assert len(paths - more) == arrays + (21 if frozen == "reference/" else 0)
    own = sum(row.bytes for row in rules.rows if row.trains)
    assert moments * own <= rules.moments < moments * own + 200


def test_the_table_has_a_line_for_every_array_and_sums():
    rows = [
        plan_rules.Row(
            "text/token_embedding", (16, 4), "axis 0 in 8", 32, True, "token_embedding$"
        ),
        plan_rules.Row("base/proj", (), "copied", 2_000_000, False, "(^|/)proj$"),
    ]
    lines = plan_rules.table(plan_rules.Rules(rows, 64_000)).splitlines()
    assert [re.split(r"  +", line.strip()) for line in lines[1:3]] == [
        ["text/token_embedding", "16 x 4", "axis 0 in 8", "0.000", "yes", "token_embedding$"],
        ["base/proj", "scalar", "copied", "2.000", "frozen", "(^|/)proj$"],
    ]
    assert lines[4:] == [
        "that train: 1 arrays, 64 numbers, 0.000 MB per device",
        "frozen: 1 arrays, 1 numbers, 2.000 MB per device",
        "of these copied: 1 arrays, 1 numbers, 2.000 MB per device",
        "optimiser: 0.064 MB per device",
    ]
