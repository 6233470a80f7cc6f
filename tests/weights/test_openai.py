"""OpenAI's and Long-CLIP's layouts: embeddings equal to torch's, tensors equal there and back."""

import functools

import jax
import numpy as np
import pytest
import torch

import hnclip_jax as hn
from hnclip_jax import types
from hnclip_jax.models import dual_encoder, presets, transformer
from hnclip_jax.parallel import sharding
from hnclip_jax.weights import openai, rules
from tests.weights import reference

TOLERANCE = 1e-5
"""Of the unit embeddings, in float32; differences seen are below 1e-6."""

LAYOUTS = {
    "openai": (openai.OPENAI, {}),
    "longclip": (openai.LONGCLIP, {"tables": 2}),
    "custom text": (openai.rules_for("text."), {"text_prefix": "text."}),
}
WORDS = ["a", "red", "kite", "over", "the", "old", "stone", "bridge", "and", "two", "small", "dogs"]


@pytest.fixture(scope="module")
def state():
    """state(layout, context, dtype): the layout's rules, sizes, tensors in torch and in numpy."""

    @functools.cache
    def made(layout, context=248, dtype=torch.float32):
        layout_rules, options = LAYOUTS[layout]
        sizes = reference.SMALL._replace(context=context)
        tensors = reference.state_dict(sizes, 5, dtype=dtype, **options)
        return layout_rules, sizes, tensors, {k: v.numpy() for k, v in tensors.items()}

    return made


def decode(arrays, layout_rules):
    return rules.decode(arrays, layout_rules, openai.IGNORED, "the file")


def nested(arrays):
    """Returns the parameters that a model with its layers written out takes."""
    tree = {}
    for path, array in arrays.items():
        if not path.startswith(rules.UNUSED):
            *parents, name = path.split("/")
            node = functools.reduce(lambda node, parent: node.setdefault(parent, {}), parents, tree)
            node[name] = np.asarray(array, np.float32)
    return tree


@functools.cache
def model_of(sizes, activation="quick_gelu"):
    """Returns the model, and its two functions compiled."""
    config = presets.ModelConfig(**sizes.numbers(), activation=activation)
    model = dual_encoder.create(config, scan_layers=False)
    return model, jax.jit(model.encode_image), jax.jit(model.encode_text)


def captions(count):
    rng = np.random.default_rng(count)
    return " ".join(rng.choice(WORDS, count))


def assert_close(got, wanted):
    wanted = wanted.numpy()
    assert got.dtype == wanted.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE)
    # Rows that were all alike would hide a tower that does not look at its input.
    assert np.ptp(wanted, axis=0).max() > 1000 * TOLERANCE


# Names, shapes and values --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("context", [77, 248])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_file_becomes_exactly_our_tree(state, layout, context, dtype):
    layout_rules, sizes, _, arrays = state(layout, context, dtype)
    found = decode(arrays, layout_rules)
    model, *_ = model_of(sizes)
    wanted = jax.eval_shape(transformer.unstack_blocks, model.abstract_params())
    wanted = {
        sharding.path_of(key): leaf.shape
        for key, leaf in jax.tree_util.tree_leaves_with_path(wanted)
    }
    ours = {path: a.shape for path, a in found.arrays.items() if not path.startswith(rules.UNUSED)}
    assert ours == wanted
    assert {array.dtype for array in found.arrays.values()} == {arrays["logit_scale"].dtype}
    assert found.ignored == ()
    used = {name for names in found.origin.values() for name in names}
    assert used == arrays.keys()
    unused = set(found.arrays) - set(ours)
    assert unused == ({"unused/text/position_embedding"} if layout == "longclip" else set())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tensor_comes_back_bit_for_bit(state, layout, dtype):
    layout_rules, _, _, arrays = state(layout, 248, dtype)
    back = rules.encode(decode(arrays, layout_rules).arrays, layout_rules)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        got = np.asarray(back[name])
        assert (got.dtype, got.shape) == (array.dtype, array.shape), name
        assert got.tobytes() == array.tobytes(), name


def test_random_tensors_are_all_different(state):
    """Else an exchange of two of them would go unseen."""
    _, _, _, arrays = state("longclip")
    assert len({array.tobytes() for array in arrays.values()}) == len(arrays) == 15 + 12 * 5
    assert (arrays["positional_embedding"] != arrays["positional_embedding_res"]).all()


def test_some_values_are_where_the_model_looks_for_them(state):
    layout_rules, sizes, _, arrays = state("openai")
    found = decode(arrays, layout_rules).arrays
    width = sizes.text_width
    joined = arrays["transformer.resblocks.1.attn.in_proj_weight"]
    for path, wanted in {
        "text/blocks_01/attn/key/kernel": joined[width : 2 * width].T,
        "text/blocks_01/attn/out/kernel": arrays["transformer.resblocks.1.attn.out_proj.weight"].T,
        "image/blocks_02/mlp/fc_in/kernel": arrays[
            "visual.transformer.resblocks.2.mlp.c_fc.weight"
        ].T,
        "image/proj": arrays["visual.proj"],
        "text/proj": arrays["text_projection"],
        "text/token_embedding": arrays["token_embedding.weight"],
        "text/ln_final/scale": arrays["ln_final.weight"],
    }.items():
        np.testing.assert_array_equal(found[path], wanted, err_msg=path)


def test_both_tables_share_the_positions_that_are_read(state):
    layout_rules, _, _, arrays = state("longclip")
    found = decode(arrays, layout_rules)
    first, second = arrays["positional_embedding"], arrays["positional_embedding_res"]
    table = np.asarray(found.arrays["text/position_embedding"])
    np.testing.assert_array_equal(table[:20], first[:20])
    np.testing.assert_array_equal(table[20:], second[20:])
    unused = np.asarray(found.arrays["unused/text/position_embedding"])
    np.testing.assert_array_equal(unused[:20], second[:20])
    np.testing.assert_array_equal(unused[20:], first[20:])
    names = ("positional_embedding", "positional_embedding_res")
    assert found.origin["text/position_embedding"] == names


def test_one_table_is_written_as_two_equal_ones(state):
    layout_rules, _, _, arrays = state("openai")
    back = rules.encode(decode(arrays, layout_rules).arrays, openai.LONGCLIP)
    for name in ("positional_embedding", "positional_embedding_res"):
        np.testing.assert_array_equal(back[name], arrays["positional_embedding"])
    assert back.keys() == arrays.keys() | {"positional_embedding_res"}


def test_two_tables_are_written_as_the_one_that_is_read(state):
    layout_rules, _, _, arrays = state("longclip")
    found = decode(arrays, layout_rules).arrays
    back = rules.encode(found, openai.OPENAI)
    np.testing.assert_array_equal(back["positional_embedding"], found["text/position_embedding"])
    assert back.keys() == arrays.keys() - {"positional_embedding_res"}


def test_long_clip_and_openai_are_not_taken_for_each_other(state):
    with pytest.raises(types.UserError, match=r"1 left over \(positional_embedding_res\)"):
        decode(state("longclip")[3], openai.OPENAI)
    with pytest.raises(types.UserError, match=r"1 missing \(positional_embedding_res\)"):
        decode(state("openai")[3], openai.LONGCLIP)


def test_two_tables_of_two_lengths_are_refused(state):
    arrays = dict(state("longclip")[3])
    arrays["positional_embedding_res"] = arrays["positional_embedding_res"][:77]
    wanted = r"positional_embedding and positional_embedding_res have shapes \(248, 64\) and \(77, "
    with pytest.raises(types.UserError, match=wanted):
        decode(arrays, openai.LONGCLIP)


BUFFERS = {
    "input_resolution": np.array(224),
    "context_length": np.array(77),
    "vocab_size": np.array(49408),
    "attn_mask": np.zeros((77, 77), np.float32),
    "text.attn_mask": np.zeros((77, 77), np.float32),
    "mask1": np.ones((248, 1)),
    "mask2": np.ones((248, 1)),
}


def test_known_buffers_and_finelips_module_are_left_out(state):
    layout_rules, sizes, _, arrays = state("longclip")
    extra = {name: x.numpy() for name, x in reference.finelip_extra(sizes.embed).items()}
    assert len(extra) == 14
    found = decode(BUFFERS | extra | arrays, layout_rules)
    assert sorted(found.ignored) == sorted(BUFFERS | extra)
    plain = decode(arrays, layout_rules)
    assert found.arrays.keys() == plain.arrays.keys()
    assert found.origin == plain.origin


@pytest.mark.parametrize(
    "name", ["visual.attn_pool.query", "mask3", "my_cross_net.scale", "cross_net", "text.mask1"]
)
def test_nothing_else_is_left_out(state, name):
    layout_rules, _, _, arrays = state("openai")
    with pytest.raises(types.UserError, match=rf"1 left over \({name}\)"):
        decode(arrays | {name: np.ones(1, np.float32)}, layout_rules)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_tensor_may_be_missing(state, layout):
    layout_rules, _, _, arrays = state(layout)
    for name in arrays:
        less = {other: array for other, array in arrays.items() if other != name}
        with pytest.raises(types.UserError) as caught:
            decode(less, layout_rules)
        assert f"; 1 missing ({name})" in str(caught.value)


def test_true_sizes_have_the_published_numbers_of_parameters():
    """By shapes alone: each tensor is one repeated zero."""
    for sizes, count, tensors in (
        (reference.B16, 149_835_265, 303),
        (reference.L14, 427_938_305, 447),
    ):
        model, *_ = model_of(sizes)
        tree = jax.eval_shape(transformer.unstack_blocks, model.abstract_params())
        arrays = {
            sharding.path_of(key): np.broadcast_to(np.float32(0), leaf.shape)
            for key, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }
        theirs = rules.encode(arrays, openai.LONGCLIP)
        assert len(theirs) == tensors
        assert sum(array.nbytes for array in theirs.values()) == 4 * count
        assert theirs["visual.conv1.weight"].shape == (
            sizes.vision_width,
            3,
            sizes.patch,
            sizes.patch,
        )


# Embeddings ----------------------------------------------------------------------------------

COUNTS = (0, 1, 2, 20, 75, 76, 77, 246, 300)


def test_captions_fill_the_positions_as_meant():
    ids = hn.tokenize([captions(count) for count in COUNTS], context_length=248)
    assert ids.argmax(axis=1).tolist() == [1, 2, 3, 21, 76, 77, 78, 247, 247]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_text_embeddings_equal_the_reference(state, layout, activation, dtype):
    layout_rules, sizes, tensors, arrays = state(layout, 248, dtype)
    params = nested(decode(arrays, layout_rules).arrays)
    ids = hn.tokenize([captions(count) for count in COUNTS], context_length=248)
    _, _, encode_text = model_of(sizes, activation)
    wanted = reference.embed_text(tensors, sizes, ids, activation)
    assert_close(encode_text(params, ids), wanted)


def test_a_short_context_equals_the_reference(state):
    layout_rules, sizes, tensors, arrays = state("openai", 77)
    params = nested(decode(arrays, layout_rules).arrays)
    ids = hn.tokenize([captions(count) for count in COUNTS], context_length=77)
    _, _, encode_text = model_of(sizes)
    wanted = reference.embed_text(tensors, sizes, ids, "quick_gelu")
    assert_close(encode_text(params, ids), wanted)


def test_the_rows_never_read_change_nothing(state):
    _, sizes, tensors, _ = state("longclip")
    ids = hn.tokenize([captions(count) for count in COUNTS], context_length=248)
    wanted = reference.embed_text(tensors, sizes, ids, "quick_gelu")
    for rows, name, same in (
        (slice(20, None), "positional_embedding", True),
        (slice(20), "positional_embedding_res", True),
        (slice(20), "positional_embedding", False),
        (slice(20, None), "positional_embedding_res", False),
    ):
        changed = {**tensors, name: tensors[name].clone()}
        changed[name][rows] += 1
        got = reference.embed_text(changed, sizes, ids, "quick_gelu")
        assert torch.equal(got, wanted) == same
        params = nested(decode({k: v.numpy() for k, v in changed.items()}, openai.LONGCLIP).arrays)
        _, _, encode_text = model_of(sizes)
        assert_close(encode_text(params, ids), got)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
def test_image_embeddings_equal_the_reference(state, activation, dtype):
    layout_rules, sizes, tensors, arrays = state("openai", 77, dtype)
    params = nested(decode(arrays, layout_rules).arrays)
    rng = np.random.default_rng(0)
    pixels = rng.normal(size=(5, sizes.image, sizes.image, 3)).astype(np.float32)
    pixels *= np.linspace(0, 2, 5, dtype=np.float32).reshape(5, 1, 1, 1)
    _, encode_image, _ = model_of(sizes, activation)
    wanted = reference.embed_image(tensors, sizes, pixels.transpose(0, 3, 1, 2), activation)
    assert_close(encode_image(params, pixels), wanted)


def test_pictures_of_bytes_equal_the_same_numbers_normalised(state):
    layout_rules, sizes, tensors, arrays = state("openai", 77)
    params = nested(decode(arrays, layout_rules).arrays)
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (4, sizes.image, sizes.image, 3)).astype(np.uint8)
    pixels[0], pixels[1], pixels[2] = 0, 255, (255, 0, 128)
    mean = np.array([0.48145466, 0.4578275, 0.40821073])
    std = np.array([0.26862954, 0.26130258, 0.27577711])
    numbers = ((pixels / 255 - mean) / std).astype(np.float32).transpose(0, 3, 1, 2)
    _, encode_image, _ = model_of(sizes)
    wanted = reference.embed_image(tensors, sizes, numbers, "quick_gelu")
    assert_close(encode_image(params, pixels), wanted)


def test_the_reference_distinguishes_what_a_conversion_may_confuse(state):
    """Each of these would be a wrong conversion, and none would stay below the tolerance."""
    _, sizes, tensors, _ = state("longclip")
    ids = hn.tokenize([captions(count) for count in COUNTS], context_length=248)
    wanted = reference.embed_text(tensors, sizes, ids, "quick_gelu")
    width = sizes.text_width

    def changed(**new):
        named = {name.replace("__", "."): value for name, value in new.items()}
        return reference.embed_text({**tensors, **named}, sizes, ids, "quick_gelu")

    block = "transformer__resblocks__0__"
    joined = tensors["transformer.resblocks.0.attn.in_proj_weight"]
    fc = tensors["transformer.resblocks.1.mlp.c_fc.bias"]
    others = {
        "activation": reference.embed_text(tensors, sizes, ids, "gelu"),
        "key, value": changed(
            **{
                f"{block}attn__in_proj_weight": torch.cat(
                    [joined[:width], joined[2 * width :], joined[width : 2 * width]]
                )
            }
        ),
        "out not transposed": changed(
            **{
                f"{block}attn__out_proj__weight": tensors[
                    "transformer.resblocks.0.attn.out_proj.weight"
                ].T
            }
        ),
        "layers": changed(transformer__resblocks__0__mlp__c_fc__bias=fc),
        "second table": changed(positional_embedding=tensors["positional_embedding_res"]),
    }
    for name, other in others.items():
        assert (other - wanted).abs().max() > 20 * TOLERANCE, name
