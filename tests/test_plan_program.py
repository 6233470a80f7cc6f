"""What is read from the text of a compiled program; libtpu's on short texts in its style."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tools import plan_program

# Twelve turns of a loop whose number only its condition tells; a gather in three stages; a
# reduce-scatter in the compiler's own form; layouts with brackets; a product batched 4 x 2.
TPU_TEXT = """HloModule jit_step, is_scheduled=true

%fused.1 (param_0: bf16[1,64,16]) -> bf16[1,64,256] {
  %param_0 = bf16[1,64,16]{2,1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.1 = bf16[1,64,256]{2,1,0:T(8,128)(2,1)} all-gather(%param_0), channel_id=1, \
frontend_attributes={chain_id="7"}
}

%fused.2 (param_0.2: bf16[1,64,16]) -> bf16[1,64,256] {
  %param_0.2 = bf16[1,64,16]{2,1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.2 = bf16[1,64,256]{2,1,0:T(8,128)(2,1)S(1)} all-gather(%param_0.2), \
channel_id=1, frontend_attributes={chain_id="7"}
}

%all-reduce-scatter.3 (input.1: f32[64,32]) -> f32[4,32] {
  %input.1 = f32[64,32]{1,0:T(8,128)} parameter(0)
  %all-reduce.1 = f32[64,32]{1,0:T(8,128)} all-reduce(%input.1), channel_id=1, to_apply=%add
  %constant.9 = s32[] constant(0)
  ROOT %dynamic-slice.1 = f32[4,32]{1,0:T(8,128)} dynamic-slice(%all-reduce.1, %constant.9, \
%constant.9), dynamic_slice_sizes={4,32}
}

%products (q: bf16[4,2,8,64], k: bf16[4,2,10,64]) -> f32[4,2,8,10] {
  %q = bf16[4,2,8,64]{3,2,1,0:T(8,128)(2,1)} parameter(0)
  %k = bf16[4,2,10,64]{3,2,1,0:T(8,128)(2,1)} parameter(1)
  ROOT %convolution.1 = f32[4,2,8,10]{2,3,1,0:T(8,128)} convolution(%q, %k), \
window={size=4x2 stride=3x1 lhs_dilate=4x2}, dim_labels=01bf_01oi->01bf, metadata={op_name="a"}
}

%body (param.1: (s32[], bf16[1,64,16])) -> (s32[], bf16[1,64,16]) {
  %param.1 = (s32[]{:T(128)}, bf16[1,64,16]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %gte.0 = s32[]{:T(128)} get-tuple-element(%param.1), index=0
  %gte.1 = bf16[1,64,16]{2,1,0:T(8,128)(2,1)} get-tuple-element(%param.1), index=1
  %start = bf16[1,64,256]{2,1,0:T(8,128)(2,1)} fusion(%gte.1), kind=kCustom, calls=%fused.1
  %done = bf16[1,64,256]{2,1,0:T(8,128)(2,1)S(1)} fusion(%gte.1), kind=kCustom, calls=%fused.2
  %grad = f32[64,32]{1,0:T(8,128)} custom-call(%done), custom_call_target="Made"
  %scattered = f32[4,32]{1,0:T(8,128)} fusion(%grad), kind=kCustom, calls=%all-reduce-scatter.3
  ROOT %out = (s32[]{:T(128)}, bf16[1,64,16]{2,1,0:T(8,128)(2,1)}) tuple(%gte.0, %gte.1)
}

%condition (param.2: (s32[], bf16[1,64,16])) -> pred[] {
  %constant.12 = s32[]{:T(128)} constant(12)
  %param.2 = (s32[]{:T(128)}, bf16[1,64,16]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %gte.2 = s32[]{:T(128)} get-tuple-element(%param.2), index=0
  ROOT %lt.1 = pred[]{:T(512)} compare(%gte.2, %constant.12), direction=LT
}

ENTRY %main (a: bf16[1,64,16], q.1: bf16[4,2,8,64], k.1: bf16[4,2,10,64]) -> bf16[1,64,16] {
  %a = bf16[1,64,16]{2,1,0:T(8,128)(2,1)} parameter(0)
  %q.1 = bf16[4,2,8,64]{3,2,1,0:T(8,128)(2,1)} parameter(1)
  %k.1 = bf16[4,2,10,64]{3,2,1,0:T(8,128)(2,1)} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  %scores = f32[4,2,8,10]{2,3,1,0:T(8,128)} fusion(%q.1, %k.1), kind=kOutput, calls=%products
  %in = (s32[]{:T(128)}, bf16[1,64,16]{2,1,0:T(8,128)(2,1)}) tuple(%zero, %a)
  %while.1 = (s32[]{:T(128)}, /*index=1*/bf16[1,64,16]{2,1,0:T(8,128)(2,1)}) while(%in), \
condition=%condition, body=%body, metadata={op_name="jit(step)/while"}
  %summed = (f32[8]{0:T(1024)S(1)}, f32[]{:T(128)}) all-reduce(%x, %y), channel_id=1, to_apply=%add
  ROOT %result = bf16[1,64,16]{2,1,0:T(8,128)(2,1)} get-tuple-element(%while.1), index=1
}
"""


def test_a_tpu_program_counts_loops_stages_and_batched_products():
    program = plan_program.read(TPU_TEXT)
    assert program.collectives == {
        "all-gather": (12, 12 * 64 * 256 * 2),
        "all-reduce": (1, 8 * 4 + 4),
        "reduce-scatter": (12, 12 * 4 * 32 * 4),
    }
    assert program.flops == 2 * (4 * 2) * 8 * 10 * 64


def test_a_loop_that_does_not_tell_its_turns_is_an_error():
    text = TPU_TEXT.replace("s32[]{:T(128)} constant(12)", "s32[]{:T(128)} copy(%param.2)")
    with pytest.raises(ValueError, match=r"does not tell how often its loop while\.1 turns"):
        plan_program.read(text)


def test_a_known_number_of_turns_goes_before_the_condition():
    known = 'backend_config={"known_trip_count":{"n":"5"}}'
    text = TPU_TEXT.replace('metadata={op_name="jit(step)/while"}', known)
    assert plan_program.read(text).collectives["all-gather"].count == 5


def test_an_asynchronous_gather_counts_what_comes_in():
    text = """
ENTRY %main (a: f32[2,4]) -> f32[16,4] {
  %a = f32[2,4]{1,0} parameter(0)
  %start = (f32[2,4]{1,0}, f32[16,4]{1,0}) all-gather-start(%a), channel_id=1, dimensions={0}
  ROOT %done = f32[16,4]{1,0} all-gather-done(%start)
}
"""
    assert plan_program.read(text).collectives == {"all-gather": (1, 16 * 4 * 4)}


def test_of_an_array_that_a_loop_updates_only_the_part_counts():
    text = """
%body (p: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %p = (s32[], f32[1000]{0}) parameter(0)
  %at = s32[] get-tuple-element(%p), index=0
  %all = f32[1000]{0} get-tuple-element(%p), index=1
  %part = f32[5]{0} dynamic-slice(%all, %at), dynamic_slice_sizes={5}
  %new = f32[1000]{0} dynamic-update-slice(%all, %part, %at)
  ROOT %out = (s32[], f32[1000]{0}) tuple(%at, %new)
}

%condition (q: (s32[], f32[1000])) -> pred[] {
  %q = (s32[], f32[1000]{0}) parameter(0)
  %n = s32[] constant(3)
  %i = s32[] get-tuple-element(%q), index=0
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (in: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %in = (s32[], f32[1000]{0}) parameter(0)
  ROOT %while = (s32[], f32[1000]{0}) while(%in), condition=%condition, body=%body
}
"""
    # All of it is in the loop; were the whole array moved too, the factor would stay 3.
    assert plan_program.read(text).loops == 3
    outside = "  %big = f32[25]{0} negate(%small)\n  %small = f32[25]{0} copy(%big)\n"
    text = text.replace("parameter(0)\n  ROOT %while", f"parameter(0)\n{outside}  ROOT %while")
    turn = 2 * 5 * 4 + 2 * 5 * 4 + (4 + 4 + 1)
    assert plan_program.read(text).loops == (400 + 3 * turn) / (400 + turn)


def test_products_with_padding_do_not_count():
    pixels, kernel = jnp.ones((2, 5, 5, 3)), jnp.ones((3, 3, 3, 7))
    compiled = jax.jit(_same).lower(pixels, kernel).compile()
    # Along an axis of 5 a window of 3 meets 13 elements; 2 of its 15 places lie outside.
    expected = 2 * 2 * 13 * 13 * 3 * 7
    assert plan_program.read(compiled.as_text()).flops == expected


def _same(pixels, kernel):
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(pixels, kernel, (1, 1), "SAME", dimension_numbers=names)


def _layers(scanned):
    def run(kernels, x):
        if scanned:
            x, _ = jax.lax.scan(lambda x, kernel: (jnp.tanh(x @ kernel), None), x, kernels)
        else:
            for kernel in kernels:
                x = jnp.tanh(x @ kernel)
        return jnp.sum(x**2)

    mesh = Mesh(jax.devices()[:8], ("data",), axis_types=(AxisType.Auto,))
    kernels = jax.ShapeDtypeStruct(
        (6, 64, 64), jnp.float32, sharding=NamedSharding(mesh, P(None, "data"))
    )
    x = jax.ShapeDtypeStruct((256, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return jax.jit(jax.grad(run)).lower(kernels, x).compile()


def test_a_scan_costs_what_its_layers_cost_written_out():
    scanned, written = _layers(True), _layers(False)
    made, plain = (plan_program.read(x.as_text()) for x in (scanned, written))
    rows = 256 // 8
    # Forward, and backward by kernels, in all layers; backward by inputs in all but the first,
    # which only a program that is written out can leave out.
    assert made.flops == 3 * 6 * 2 * rows * 64 * 64
    assert plain.flops == (3 * 6 - 1) * 2 * rows * 64 * 64
    assert plain.loops == 1
    once, moved = (x.cost_analysis()["bytes accessed"] for x in (scanned, written))
    # XLA counts one layer of six. A scan does move more: it keeps and fetches what it needs later.
    assert once < 0.6 * moved
    assert moved < once * made.loops < 2 * moved
    gathers = made.collectives["all-gather"]
    assert gathers.count == 12
    assert gathers.bytes == 12 * 64 * 64 * 4
