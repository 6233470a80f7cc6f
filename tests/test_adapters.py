"""LoRA and DoRA against the papers' formulas written out: on host and devices, and in a model."""

import dataclasses
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import hnclip_jax as hn
from hnclip_jax import adapters
from hnclip_jax.models import transformer
from hnclip_jax.parallel import sharding
from tests import adapter_cases
from tests.adapter_cases import ALPHA, GROUPS, moved, only, reference, some_base


@pytest.fixture(scope="module")
def bases():
    return adapter_cases.bases()


@pytest.fixture(params=["lora", "dora"])
def group(request):
    return GROUPS[request.param]


def test_lora_by_hand():
    # W0 + (4 / 2) A B with A = [[1, 0], [2, 1]], B = [[1, 0], [0, 3]].
    wrap = some_base(np.random.default_rng(0))[2]
    base = wrap(jnp.float32([[3, 0], [4, 1]]))
    adapter = wrap({"a": jnp.float32([[1, 0], [2, 1]]), "b": jnp.float32([[1, 0], [0, 3]])})
    effective = only(adapters.apply(base, adapter, 4.0))
    np.testing.assert_array_equal(effective, [[5, 0], [8, 7]])


def test_dora_by_hand():
    # V = W0 + 1 A B = [[3, 0], [4, 2]]; its columns have norms 5 and 2; magnitudes 10 and 1.
    wrap = some_base(np.random.default_rng(0))[2]
    base = wrap(jnp.float32([[3, 0], [4, 1]]))
    parts = {"a": [[0], [1]], "b": [[0, 1]], "magnitude": [10, 1]}
    adapter = wrap({name: jnp.float32(values) for name, values in parts.items()})
    effective = only(adapters.apply(base, adapter, 1.0))
    np.testing.assert_array_equal(effective, [[6, 0], [8, 1]])


@pytest.mark.parametrize("layers", [None, 2], ids=["one layer", "stacked"])
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("where", ["host", "device", "jit"])
def test_the_papers_formulas(kind, layers, where):
    base, adapter, _ = some_base(np.random.default_rng(1), layers)
    if kind == "lora":
        del only(adapter)["magnitude"]
    given = (base, adapter) if where == "host" else jax.tree.map(jnp.asarray, (base, adapter))
    with jax.numpy_dtype_promotion("strict"):
        apply = jax.jit(adapters.apply) if where == "jit" else adapters.apply
        effective = only(apply(*given, ALPHA))
    assert effective.dtype == np.float32
    rows = [()] if layers is None else range(layers)
    for row in rows:
        parts = {name: values[row] for name, values in only(adapter).items()}
        np.testing.assert_allclose(
            effective[row], reference(only(base)[row], parts, ALPHA), rtol=1e-5, atol=1e-6
        )


def test_merging_on_the_host_touches_no_device(bases, group):
    base = jax.device_get(bases[True])
    adapter = moved(adapters.init(jax.random.key(0), group, base))
    on_device = jax.jit(adapters.apply)(base, adapter, ALPHA)
    with mock.patch.object(adapters, "jnp", None), mock.patch.object(jax, "lax", None):
        merged = adapters.apply(base, adapter, ALPHA)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(merged))
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6), merged, on_device
    )


def test_products_have_full_precision(bases):
    adapter = adapters.init(jax.random.key(0), GROUPS["lora"], bases[True])
    program = str(jax.make_jaxpr(adapters.apply)(bases[True], adapter, ALPHA))
    products = re.findall(r"dot_general\[.*?\]\s*\w+ \w+", program, re.DOTALL)
    assert len(products) == 12
    assert all("HIGHEST" in product for product in products)


def test_a_short_base_is_widened_first():
    base, adapter, wrap = some_base(np.random.default_rng(2))
    short = jnp.bfloat16(only(base))
    with jax.numpy_dtype_promotion("strict"):
        effective = only(adapters.apply(wrap(short), adapter, ALPHA))
    assert effective.dtype == jnp.float32
    expected = reference(np.float32(short), only(adapter), ALPHA)
    np.testing.assert_allclose(effective, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("where", ["host", "device", "jit", "two jits"])
def test_at_the_start_it_is_the_base(bases, group, where):
    base = jax.device_get(bases[True]) if where == "host" else bases[True]
    init = lambda base: adapters.init(jax.random.key(0), group, base)  # noqa: E731
    adapter = jax.jit(init)(base) if where == "two jits" else init(base)
    if where == "host":
        adapter = jax.device_get(adapter)
    apply = adapters.apply if where in ("host", "device") else jax.jit(adapters.apply)
    effective = apply(base, adapter, ALPHA)
    assert jax.tree.structure(effective) == jax.tree.structure(base)
    # DoRA's norms may be summed in another order by numpy, and by a compiler that fuses them.
    exact = group.adapter == "lora" or where == "device"
    compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
    jax.tree.map(lambda x, y: compare(x, y, **({} if exact else {"rtol": 1e-6})), effective, base)


def test_embeddings_do_not_depend_on_stacking(bases):
    ids = jnp.int32([[49406, 320, 1125, 49407], [49406, 518, 49407, 0]])
    trained = moved(adapters.init(jax.random.key(0), GROUPS["dora"], bases[True]))
    found = {}
    for stacked, base in bases.items():
        encode = jax.jit(hn.create_model("tiny", scan_layers=stacked).encode_text)
        adapter = trained if stacked else transformer.unstack_blocks(trained)
        found[stacked] = encode(adapters.apply(base, adapter, ALPHA), ids)
    np.testing.assert_allclose(found[True], found[False], atol=1e-6)
    assert not np.allclose(found[False], encode(base, ids), atol=0.1)


def test_gradients_reach_the_adapter_alone(bases):
    base, model = bases[True], hn.create_model("tiny")
    images = np.random.default_rng(0).integers(0, 256, (3, 48, 48, 3), np.uint8)
    ids = jnp.int32([[49406, 320, 49407], [49406, 518, 49407], [49406, 9, 49407]])

    @jax.jit
    @jax.value_and_grad
    def loss(trained):
        effective = adapters.apply(trained["base"], trained["adapter"], ALPHA)
        found = model.embed(effective, images, ids)
        return hn.losses.info_nce(found.image, found.text, model.scale(effective))

    lora, dora = (adapters.init(jax.random.key(0), group, base) for group in GROUPS.values())
    start = {"image": lora["image"], "text": dora["text"]}
    for adapter, trains in ((start, {"b", "magnitude"}), (moved(start), {"a", "b", "magnitude"})):
        value, found = loss({"base": base, "adapter": adapter})
        assert np.isfinite(value)
        for tower in ("image", "text"):
            assert not any(np.any(leaf) for leaf in jax.tree.leaves(found["base"][tower]))
        assert found["base"]["logit_scale"] != 0
        assert jax.tree.structure(found["adapter"]) == jax.tree.structure(adapter)
        for path, values in jax.tree_util.tree_leaves_with_path(found["adapter"]):
            assert np.isfinite(values).all()
            # A has no gradient while B is zero.
            assert values.any() == (path[-1].key in trains), path


def test_the_gradient_takes_dora_norms_as_given():
    base, adapter, wrap = some_base(np.random.default_rng(3))
    weights = np.random.default_rng(4).normal(size=only(base).shape).astype(np.float32)

    def loss(parts):
        return jnp.sum(only(adapters.apply(base, wrap(parts), ALPHA)) * weights)

    found = jax.grad(loss)(only(adapter))
    a, b, m = (np.float64(only(adapter)[name]) for name in ("a", "b", "magnitude"))
    c = ALPHA / 2
    value = only(base) + c * a @ b
    norms = np.linalg.norm(value, axis=0)
    back = weights * m / norms
    expected = {"a": c * back @ b.T, "b": c * a.T @ back}
    expected["magnitude"] = np.sum(weights * value / norms, axis=0)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-5)


def test_a_column_of_zeros_stays_and_spoils_nothing():
    base, _, wrap = some_base(np.random.default_rng(5))
    only(base)[:, 1] = 0
    fc_in = dataclasses.replace(GROUPS["dora"], adapter_targets=("fc_in",))
    start = only(adapters.init(jax.random.key(0), fc_in, base))

    def effective(parts):
        return only(adapters.apply(base, wrap(parts), ALPHA))

    value, gradient = jax.value_and_grad(lambda parts: jnp.sum(effective(parts) ** 2))(start)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    np.testing.assert_array_equal(effective(start), only(base))


def test_split_weights_give_the_same(bases, group):
    mesh = jax.make_mesh((4, 2), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)
    base = bases[True]
    adapter = moved(adapters.init(jax.random.key(0), group, base))
    split = jax.device_put(base, sharding.state_shardings(mesh, base))
    assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(split))
    apply = jax.jit(adapters.apply)
    found = apply(split, jax.device_put(adapter, NamedSharding(mesh, P())), ALPHA)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6),
        found,
        apply(base, adapter, ALPHA),
    )
