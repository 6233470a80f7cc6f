"""The benchmarks: all contenders do the same work, and the parts of a step make up the whole."""

import json

import pytest

from hnclip_jax import types
from hnclip_jax.models import presets
from tools import bench_loop, bench_peaks, bench_torch, bench_torch_steps


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Ours and transformers' step on one set of weights, one timed step each."""
    values = bench_torch._flags()
    values(["bench_torch", "--preset=tiny", "--batch=8", "--nocompile"])
    folder = tmp_path_factory.mktemp("bench")
    steps = bench_torch.contenders(values, ["transformers"], folder)
    return bench_torch.measure(steps, rounds=1, warm_up=1)


def test_transformers_does_the_same_work(rows):
    assert list(rows) == ["hnclip", "transformers, eager"]
    ours, theirs = (row.first for row in rows.values())
    assert theirs.loss == pytest.approx(ours.loss, rel=1e-5)
    assert theirs.grad_norm == pytest.approx(ours.grad_norm, rel=1e-4)
    bench_torch.check_same_work(rows, 1e-4)


def test_other_work_is_refused(rows):
    first = rows["transformers, eager"].first
    for wrong in (first._replace(loss=first.loss * 1.01), first._replace(grad_norm=0.0)):
        other = {**rows, "other": bench_torch.Row(wrong, [wrong])}
        with pytest.raises(types.UserError, match="other does other work than ours"):
            bench_torch.check_same_work(other, 1e-4)


def test_parts_of_a_torch_step_add_up(rows):
    row = rows["transformers, eager"]
    assert len(row.timed) == 1
    assert len(row.parts) == 3
    assert min(row.parts) > 0
    assert sum(row.parts) == pytest.approx(row.median)


def test_contenders_take_turns():
    order = []

    def step(name):
        return lambda: order.append(name) or bench_torch_steps.Told(1.0, 1.0, len(order))

    rows = bench_torch.measure({name: step(name) for name in "abc"}, rounds=2, warm_up=1)
    assert "".join(order) == "abcbcacab"
    assert [told.seconds for told in rows["a"].timed] == [6, 8]
    assert rows["a"].first.seconds == 1


def test_a_library_that_is_missing_is_named():
    bench_torch_steps.check_installed(("transformers",))
    with pytest.raises(types.UserError, match="no_such_library is not installed: pip install"):
        bench_torch_steps.check_installed(("no_such_library",))


def _line(step, **values):
    return json.dumps({"step": step, **values})


def test_loop_times_come_from_the_log():
    text = "\n".join(
        [
            _line(5, **{"time/step_s": 9.0, "data/wait_s": 9.0}),
            _line(10, **{"time/step_s": 2.0, "data/wait_s": 0.1, "time/log_s": 0.2}),
            _line(10, **{"eval/t2i_r@1": 3.0}),
            _line(12, **{"gradients/ratio": 1.0}),
            _line(
                15,
                **{"time/step_s": 4.0, "data/wait_s": 0.3, "time/save_s": 1.0},
                **{"time/gradients_s": 0.8},
            ),
        ]
    )
    times = bench_loop.read(text, log_every=5)
    assert times.step == pytest.approx(3.0)
    assert times.parts == pytest.approx(
        {"input": 0.2, "log": 0.1, "checkpoint": 0.5, "gradients": 0.4}
    )
    assert times.compute == pytest.approx(1.8)
    cells = bench_loop.table({"list": times}, 6).splitlines()[1].split()
    assert cells[:4] == ["list", "2", "3000.0", "1800.0"]
    assert cells[4:10] == ["200.00", "6.67", "100.00", "3.33", "500.00", "16.67"]
    assert cells[10:] == ["400.00", "13.33"]


def test_a_log_of_one_line_is_refused():
    with pytest.raises(types.UserError, match="take more steps"):
        bench_loop.read(_line(5, **{"time/step_s": 1.0}), log_every=5)


def test_flops_by_hand():
    model = presets.ModelConfig(
        vision_width=2,
        vision_layers=1,
        vision_heads=1,
        vision_mlp_width=8,
        patch_size=2,
        text_width=2,
        text_layers=0,
        text_heads=1,
        text_mlp_width=8,
        embed_dim=5,
        image_size=4,
        context_length=3,
        vocab_size=9,
    )
    # 4 patches of 12 values; 5 positions; kernels: 4 of 2 x 2, 2 of 2 x 8; 2 products 5 x 5 x 2.
    forward = 2 * 4 * 12 * 2 + 5 * 2 * (4 * 4 + 2 * 16) + 2 * 2 * 25 * 2 + 2 * 5 * (2 + 2)
    assert bench_peaks.step_flops(model, 7) == 3 * 7 * forward


@pytest.mark.parametrize(
    ("kind", "tera"),
    [("TPU v5 lite", 197), ("TPU v5", 459), ("NVIDIA H100 80GB HBM3", 989), ("cpu", None)],
)
def test_peaks_by_name(kind, tera):
    assert bench_peaks.peak(kind) == (tera and tera * 1e12)
