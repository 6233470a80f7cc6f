"""Which kernels get adapters, how these begin, and that stacked and flat trees are the same."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hnclip_jax as hn
from hnclip_jax import adapters, groups, types
from hnclip_jax.models import transformer
from tests import adapter_cases
from tests.adapter_cases import ALPHA, BLOCK, GROUPS, LAYERS, moved, only, some_base


@pytest.fixture(scope="module")
def bases():
    return adapter_cases.bases()


@pytest.fixture(params=["lora", "dora"])
def group(request):
    return GROUPS[request.param]


@pytest.mark.parametrize("stacked", [True, False], ids=["stacked", "single"])
def test_targets(bases, stacked):
    blocks = {
        tower: ["blocks"] if stacked else [f"blocks_{i:02d}" for i in range(count)]
        for tower, count in LAYERS.items()
    }

    def paths(tower, names=BLOCK):
        return [f"{tower}/{block}/{name}/kernel" for block in blocks[tower] for name in names]

    def found(**changes):
        return adapters.targets(groups.MethodGroup(**changes), bases[stacked])

    assert found() == paths("image") + paths("text")
    assert found(adapter_towers="image") == paths("image")
    chosen = found(adapter_targets=("mlp/fc_out", "^text/.*query"))
    assert chosen == paths("image", ["mlp/fc_out"]) + paths("text", ["attn/query", "mlp/fc_out"])
    # No kernel: not of a matrix, or by another name.
    assert not any("ln_" in path or "proj" in path for path in found(adapter_targets=("",)))


def test_layers_can_be_chosen_where_they_are_not_stacked(bases):
    last = groups.MethodGroup(adapter="lora", adapter_targets=("blocks_02/attn",))
    assert len(adapters.targets(last, bases[False])) == 4
    with pytest.raises(types.UserError, match="'blocks_02/attn' matches no kernel"):
        adapters.targets(last, bases[True])


def test_what_init_draws(bases, group):
    adapter = adapters.flatten(adapters.init(jax.random.key(0), group, bases[True]))
    base = bases[False]
    for tower, layers in LAYERS.items():
        for layer in range(layers):
            for name in BLOCK:
                path = f"{tower}/blocks_{layer:02d}/{name}/kernel"
                parts = {part: adapter.pop(f"{path}/{part}") for part in ("a", "b")}
                room, kernel = name.split("/")
                weight = base[tower][f"blocks_{layer:02d}"][room][kernel]["kernel"]
                inputs, outputs = weight.shape
                bound = inputs**-0.5
                assert parts["a"].shape == (inputs, 4)
                assert 0.9 * bound < np.abs(parts["a"]).max() <= bound
                assert abs(parts["a"].std() / bound - 3**-0.5) < 0.06
                assert parts["b"].shape == (4, outputs)
                assert not parts["b"].any()
                if group.adapter == "dora":
                    norms = np.linalg.norm(np.float64(weight), axis=0)
                    np.testing.assert_allclose(adapter.pop(f"{path}/magnitude"), norms, rtol=1e-6)
    assert not adapter


def test_no_two_kernels_begin_alike(bases):
    flat = adapters.flatten(adapters.init(jax.random.key(0), GROUPS["lora"], bases[True]))
    first = [values[0, 0] * len(values) ** 0.5 for path, values in flat.items() if path[-1] == "a"]
    assert len(set(first)) == len(first) == 30
    other = adapters.flatten(adapters.init(jax.random.key(1), GROUPS["lora"], bases[True]))
    assert not any(np.isin(flat[path], other[path]).all() for path in flat if path[-1] == "a")


def test_numbers_do_not_depend_on_stacking_or_on_other_targets(bases, group):
    stacked, single = (adapters.init(jax.random.key(0), group, bases[k]) for k in (True, False))
    flat = adapters.flatten(stacked)
    assert flat.keys() == adapters.flatten(single).keys()
    jax.tree.map(np.testing.assert_array_equal, flat, adapters.flatten(single))
    fewer = dataclasses.replace(group, adapter_targets=("query",), adapter_towers="text")
    for path, values in adapters.flatten(
        adapters.init(jax.random.key(0), fewer, bases[True])
    ).items():
        assert re.fullmatch(r"text/blocks_0[01]/attn/query/kernel/(a|b|magnitude)", path)
        np.testing.assert_array_equal(values, flat[path])


def test_init_of_shapes(bases, group):
    def init(base):
        return adapters.init(jax.random.key(0), group, base)

    abstract = jax.eval_shape(init, hn.create_model("tiny").abstract_params())
    assert abstract == jax.eval_shape(lambda x: x, init(bases[True]))
    assert adapters.count(abstract) == adapters.count(init(bases[True]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adapter_targets": ("query", "c_fc")}, "'c_fc' matches no kernel of a tower in .*image"),
        ({"adapter_targets": ("^text/",), "adapter_towers": "image"}, r"in \('image',\); they are"),
        ({"adapter_targets": ("image/proj$",)}, "matches no kernel"),
        ({"adapter_targets": ("ln_1/scale",)}, "matches no kernel"),
        ({"adapter_targets": ("que(ry",)}, r"'que\(ry' is no regular expression: missing"),
        ({"adapter_targets": ()}, "adapter_targets is empty"),
        ({"adapter": ""}, "method.adapter is empty; say lora or dora"),
    ],
)
def test_mistakes_in_the_config(bases, changes, message):
    group = dataclasses.replace(GROUPS["lora"], **changes)
    with pytest.raises(types.UserError, match=message) as caught:
        adapters.init(jax.random.key(0), group, bases[True])
    assert "\n" not in str(caught.value)


def test_an_adapter_of_another_model_is_refused(bases):
    base, adapter, wrap = some_base(np.random.default_rng(6))
    parts = only(adapter)
    a, b, m = (parts[name] for name in ("a", "b", "magnitude"))
    for wrong, message in (
        ({}, "it is empty"),
        ({"text": adapter["image"]}, "the model has no text/blocks_00/mlp/fc_in/kernel"),
        (wrap({"a": a}), r"kernel is \(5, 3\), its adapter a \(5, 2\)"),
        (wrap({"b": b}), r"its adapter b \(2, 3\)"),
        (wrap({"a": a, "b": b[:1]}), r"its adapter a \(5, 2\), b \(1, 3\)"),
        (wrap({"a": a[:4], "b": b}), r"its adapter a \(4, 2\)"),
        (wrap({"a": a, "b": b, "magnitude": m[:1]}), r"magnitude \(1,\)"),
        (wrap({"a": a, "b": b, "bias": m}), r"bias \(3,\)"),
        (wrap({"a": a[0], "b": b}), r"its adapter a \(2,\)"),
    ):
        with pytest.raises(types.UserError, match=message):
            adapters.apply(base, wrong, ALPHA)
    stacked = adapters.init(jax.random.key(0), GROUPS["lora"], bases[True])
    with pytest.raises(types.UserError, match=r"has no image/blocks/attn.*same model.scan_layers"):
        adapters.apply(bases[False], stacked, ALPHA)


@pytest.mark.parametrize("stacked", [True, False], ids=["stacked", "single"])
def test_flat_arrays(bases, group, stacked):
    adapter = moved(adapters.init(jax.random.key(0), group, bases[stacked]))
    flat = adapters.flatten(jax.tree.map(jnp.asarray, adapter))
    single = transformer.unstack_blocks(adapter)
    for tower, layers in LAYERS.items():
        for layer in range(layers):
            for name in BLOCK:
                room, kernel = name.split("/")
                parts = single[tower][f"blocks_{layer:02d}"][room][kernel]["kernel"]
                for part, values in parts.items():
                    path = f"{tower}/blocks_{layer:02d}/{name}/kernel/{part}"
                    assert isinstance(flat[path], np.ndarray)
                    np.testing.assert_array_equal(flat.pop(path), values)
    assert not flat


def test_how_large_it_is(bases):
    adapter = adapters.init(jax.random.key(0), GROUPS["dora"], bases[True])
    # Per layer four kernels 96 x 96, and two between 96 and 384; with a magnitude per output.
    each = 4 * (4 * 192 + 96) + (4 * 480 + 384) + (4 * 480 + 96)
    assert adapters.count(adapter) == 5 * each
    share = 5 * each / adapters.count(bases[True])
    assert adapters.describe(bases[True], adapter, 6.0) == (
        f"DoRA of rank 4, alpha 6, on 30 kernels: {5 * each:,} parameters, {share:.2%} of the "
        f"base's {adapters.count(bases[True]):,}"
    )
    lora = adapters.init(jax.random.key(0), GROUPS["lora"], bases[False])
    assert adapters.describe(bases[False], lora, 0.5).startswith("LoRA of rank 4, alpha 0.5, on 30")
