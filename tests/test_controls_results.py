"""The numbers of the controls, their tables and their picture, against a count by hand."""

import math

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.training import folder
from tests import fake_runs
from tests.controls_cases import jobs, trained
from tools import controls_plot, controls_results, controls_table


def ended(**by_variant):
    """Variant -> [(t2i, i2t) of each seed from 7 on; None = is missing]."""
    return {
        name: {
            7 + place: controls_results.Ended(
                {"t2i": pair[0], "i2t": pair[1], "mean": sum(pair) / 2},
                dict.fromkeys(controls_results.ENDS, math.nan),
            )
            for place, pair in enumerate(pairs)
            if pair
        }
        for name, pairs in by_variant.items()
    }


THREE = ended(
    gamma_0=[(10.0, 20.0), (12.0, 20.0), (11.0, 21.0)],
    hn=[(15.0, 24.0), (18.0, 23.0), (16.0, 26.0)],
    constant=[(9.0, 30.0), None, (14.0, 20.0)],
    frozen=[None, (12.5, 20.5), None],
)


def by_hand(values):
    """Mean and half of the interval of up to three differences."""
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, {2: 12.7062, 3: 4.30265}[len(values)] * spread / math.sqrt(len(values))


def test_students_t():
    known = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645, 5: 2.57058, 6: 2.44691, 9: 2.26216}
    known |= {10: 2.22814, 29: 2.04523, 30: 2.04227, 100: 1.98397}
    for freedom, expected in known.items():
        assert controls_results.t_quantile(freedom) == pytest.approx(expected, abs=2e-5)


def test_what_runs_came_to(tmp_path):
    made = jobs(tmp_path, ("gamma_0", "hn"), 2)
    ends = [{"train/g_mean": 0.1 * n, "train/scale": "inf" if n == 1 else n} for n in range(1, 8)]
    for number, job in enumerate(made):
        trained(job, (10.0 + number, 20.0 + 3 * number), ends)
    found = controls_results.read(made)
    assert list(found) == ["gamma_0", "hn"]
    assert {name: list(runs) for name, runs in found.items()} == {"gamma_0": [7, 8], "hn": [7, 8]}
    assert found["gamma_0"][8].recall == {"t2i": 12.0, "i2t": 26.0, "mean": 19.0}
    assert found["hn"][7].ends["train/g_mean"] == pytest.approx((0.3 + 0.4 + 0.5 + 0.6 + 0.7) / 5)
    assert found["hn"][7].ends["train/scale"] == 5.0
    assert math.isnan(found["hn"][7].ends["train/g_hardest"])


def test_the_last_evaluation_counts(tmp_path):
    job = jobs(tmp_path, seeds=1)[0]
    trained(job, (9.0, 9.0), step=5)
    trained(job, (30.0, 20.0))
    assert controls_results.read([job])["gamma_0"][7].recall["t2i"] == 30.0


def test_runs_that_were_measured_otherwise_are_not_compared(tmp_path):
    made = jobs(tmp_path, seeds=1)
    for job in made:
        trained(job)
    where = folder.RunFolder(made[1].path).eval_file(10)
    fake_runs.result(where, step=10, list_sha256="b" * 64)
    with pytest.raises(types.UserError, match="gamma_0, seed 7 and hn, seed 7 were not measured"):
        controls_results.read(made)


@pytest.mark.parametrize("metric", ["t2i", "i2t", "mean"])
def test_differences_are_paired(metric):
    for name, reference in (("hn", "gamma_0"), ("constant", "gamma_0"), ("constant", "hn")):
        found = controls_results.difference(THREE, name, reference, metric)
        values = [
            THREE[name][seed].recall[metric] - THREE[reference][seed].recall[metric]
            for seed in (7, 8, 9)
            if seed in THREE[name] and seed in THREE[reference]
        ]
        mean, half = by_hand(values)
        assert list(found.each.values()) == values
        np.testing.assert_allclose(found[1:], [mean, mean - half, mean + half], rtol=1e-5)
        assert found.excludes_zero == (abs(mean) > half)


def test_one_seed_has_no_interval_and_no_seed_no_difference():
    found = controls_results.difference(THREE, "frozen", "gamma_0", "t2i")
    assert (found.each, found.mean) == ({8: 0.5}, 0.5)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert not found.excludes_zero
    assert controls_results.difference(THREE, "frozen", "constant", "t2i") is None
    assert controls_results.difference(THREE, "frozen", "grouped", "t2i") is None


def test_equal_differences_leave_no_doubt():
    made = ended(gamma_0=[(1.0, 1.0), (2.0, 2.0)], hn=[(3.0, 0.0), (4.0, 1.0)])
    above = controls_results.difference(made, "hn", "gamma_0", "t2i")
    below = controls_results.difference(made, "hn", "gamma_0", "i2t")
    assert (above.low, above.high, below.low, below.high) == (2, 2, -1, -1)
    assert above.excludes_zero
    assert below.excludes_zero
    same = controls_results.difference(made, "hn", "hn", "t2i")
    assert not same.excludes_zero


def test_the_tables():
    lines = controls_table.markdown(THREE).splitlines()
    assert lines[0] == (
        "|  | seeds | T2I R@1 | I2T R@1 | mean R@1 | G mean | G hardest | solved | s |"
    )
    assert lines[2] == (
        "| InfoNCE (gamma 0) | 3 | 11.0 (10.0 to 12.0) | 20.3 (20.0 to 21.0) | "
        "15.7 (15.0 to 16.0) | - | - | - | - |"
    )
    mean, half = by_hand([5.0, 6.0, 5.0])
    cell = f"**{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]**"
    # 4, 3, 5 and 4.5, 4.5, 5.
    assert f"| HN-CLIP, gamma G | 3 | {cell} | **+4.0 [+1.5, +6.5]** | **+4.7" in "\n".join(lines)
    assert "| less InfoNCE (gamma 0) | seeds | T2I R@1 | I2T R@1 | mean R@1 |" in lines
    assert "| frozen G | 1 | +0.5 | +0.5 | +0.5 |" in lines
    assert "| constant, gamma mean G | 2 | +1.0 [-24.4, +26.4] |" in "\n".join(lines)
    assert "R@1 above that of InfoNCE (gamma 0): HN-CLIP, gamma G (T2I, I2T, mean)." in lines
    assert "R@1 below that of InfoNCE (gamma 0): none." in lines
    assert sum(line.startswith("| less ") for line in lines) == 2
    start = lines.index("| less HN-CLIP, gamma G | seeds | T2I R@1 | I2T R@1 | mean R@1 |")
    assert lines[start + 2].startswith("| InfoNCE (gamma 0) | 3 | **-5.3")
    assert "R@1 above that of HN-CLIP, gamma G: none." in lines
    assert "R@1 below that of HN-CLIP, gamma G: InfoNCE (gamma 0) (T2I, I2T, mean)." in lines


def test_what_the_boost_adds_where_all_else_is_equal():
    made = {
        **THREE,
        **ended(
            grouped=[(20.0, 21.0), (22.0, 23.0), None],
            grouped_hn=[(21.5, 22.0), (24.5, 24.0), (1.0, 1.0)],
            fixed_s_hn=[(1.0, 1.0)],
        ),
    }
    lines = controls_table.markdown(made).splitlines()
    start = lines.index("| the boost, all else equal | seeds | T2I R@1 | I2T R@1 | mean R@1 |")
    assert lines[start + 2].startswith("| HN-CLIP, gamma G less InfoNCE (gamma 0) | 3 | **+5.3 [")
    mean, half = by_hand([1.5, 2.5])
    assert lines[start + 3].startswith(
        "| HN-CLIP, grouped batches less InfoNCE, grouped batches | 2 | "
        f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}] | **+1.0 [+1.0, +1.0]** | "
    )
    assert lines[start + 4] == ""
    assert "all else equal" not in controls_table.markdown(THREE)


def test_the_ends_are_means_over_seeds():
    made = ended(gamma_0=[(1.0, 1.0), (2.0, 2.0)])
    for seed, run in made["gamma_0"].items():
        run.ends.update(
            {"train/g_mean": 0.1 * seed, "train/solved_plain": 0.5, "train/scale": 10.0 * seed}
        )
    assert "| 0.750 | - | 50% | 75.0 |" in controls_table.markdown(made)


def test_the_rows_of_numbers():
    rows = controls_table.rows(THREE)
    assert [(row["variant"], row["metric"]) for row in rows[:4]] == [
        ("gamma_0", "t2i"),
        ("gamma_0", "i2t"),
        ("gamma_0", "mean"),
        ("hn", "t2i"),
    ]
    mean, half = by_hand([5.0, 6.0, 5.0])
    assert rows[3] == {
        "variant": "hn",
        "metric": "t2i",
        "seeds": 3,
        "mean": pytest.approx(49 / 3),
        "lowest": 15.0,
        "highest": 18.0,
        "less_gamma_0": pytest.approx(mean),
        "less_gamma_0_low": pytest.approx(mean - half, rel=1e-5),
        "less_gamma_0_high": pytest.approx(mean + half, rel=1e-5),
        "less_gamma_0_seeds": 3,
    }
    assert "less_gamma_0" not in rows[0]
    assert rows[0]["less_hn"] == pytest.approx(-mean)


def test_the_picture():
    drawn = controls_plot.draw(THREE)
    panels = np.array(drawn.axes).reshape(2, 3)
    for row, reference in zip(panels, ("gamma_0", "hn"), strict=True):
        others = [name for name in THREE if name != reference]
        shown = [label.get_text() for label in row[0].get_yticklabels()]
        assert shown == [controls_results.label(name) for name in others]
        for axis, metric in zip(row, controls_results.METRICS, strict=True):
            assert axis.get_xlabel().endswith(f"less {controls_results.label(reference)}")
            lines = {(line.get_marker(), int(line.get_ydata()[0])): line for line in axis.lines[1:]}
            for place, name in enumerate(others):
                found = controls_results.difference(THREE, name, reference, metric)
                assert lines["|", place].get_xdata() == pytest.approx([*found.each.values()])
                point, bar = lines["o", place], lines["None", place]
                assert point.get_xdata() == [found.mean]
                assert (point.get_markerfacecolor() != "white") == found.excludes_zero
                np.testing.assert_array_equal(bar.get_xdata(), [found.low, found.high])
    assert panels[0, 0].yaxis_inverted()


def test_the_picture_of_too_little():
    made = ended(gamma_0=[(1.0, 2.0), None], hn=[None, (3.0, 4.0)], base=[(0.0, 0.0), None])
    axes = controls_plot.draw(made).axes
    assert len(axes) == 6
    assert all(len(axis.lines) == 1 and len(axis.get_yticks()) == 1 for axis in axes)
    assert len(controls_plot.draw(ended(hn=[(1.0, 2.0)], frozen=[(1.0, 2.0)])).axes) == 3


def test_what_all_start_from_is_held_against_nothing():
    made = ended(base=[(1.0, 1.0)], gamma_0=[(2.0, 2.0)], frozen=[(3.0, 3.0)])
    text = controls_table.markdown(made)
    assert text.count("start of all") == 1
    assert "less_gamma_0" not in controls_table.rows(made)[0]
    assert controls_results.references(made) == ["gamma_0"]
    assert controls_results.references(ended(base=[(1.0, 1.0)], hn=[(2.0, 2.0)])) == []
