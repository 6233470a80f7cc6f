"""The picture of recall: what stands in it, and where."""

import numpy as np
import pytest

from hnclip_jax.analysis import page, recall, recall_plot
from tests import fake_runs


def run(name, values, *, per_epoch=10, label="", seed=1, **changes):
    found = {10 * (n + 1): (value, value - 8) for n, value in enumerate(values)}
    lines = fake_runs.evaluations(found)
    return fake_runs.history(name, lines, per_epoch, label, train__seed=seed, **changes)


KINDS = [
    run("p1", [40, 50, 55], label="plain"),
    run("p2", [42, 49, 57], label="plain", seed=2),
    run("hn", [50, 60, 65], label="boost", loss__gamma=0.25),
]
REFERENCE = recall.reference("paper", {"t2i_r@1": 80.0, "i2t_r@1": 70.0}, "r@1")


def told(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_three_panels_show_means_seeds_spread_and_references():
    drawn = recall.over_epochs(KINDS, "r@1")
    figure = recall_plot.draw(drawn, [REFERENCE], "on a list")
    assert figure.get_suptitle() == "on a list"
    titles = ["average of both directions", "text to image", "image to text"]
    assert [axes.get_title() for axes in figure.axes] == titles
    assert figure.axes[0].get_ylabel() == "recall@1, percent"
    for panel, axes in zip(recall.PANELS, figure.axes, strict=True):
        mean, first, second, boost, dotted = axes.lines
        plain = drawn.curves[0].panels[panel]
        assert mean.get_xdata().tolist() == [1.0, 2.0, 3.0]
        assert mean.get_ydata().tolist() == plain.mean.tolist()
        assert first.get_ydata().tolist() == drawn.curves[0].runs[0].values[panel].tolist()
        assert second.get_ydata().tolist() == drawn.curves[0].runs[1].values[panel].tolist()
        assert boost.get_ydata().tolist() == drawn.curves[1].panels[panel].mean.tolist()
        assert {*dotted.get_ydata()} == {REFERENCE.values[panel]}
        assert dotted.get_linestyle() == ":"
        (band,) = axes.collections
        points = {tuple(point) for point in band.get_paths()[0].vertices.tolist()}
        for x, low, high in zip((1.0, 2.0, 3.0), plain.low, plain.high, strict=True):
            assert {(x, low), (x, high)} <= points
        assert axes.get_xlabel() == "epoch"
        assert axes.get_ylim() == figure.axes[0].get_ylim()
        assert mean.get_color() == first.get_color() != boost.get_color()
        assert mean.get_marker() != boost.get_marker()


def test_the_legend_tells_how_many_runs_and_lies_outside():
    figure = recall_plot.draw(recall.over_epochs(KINDS, "r@1"), [REFERENCE])
    assert told(figure) == ["plain (n = 2, lowest to highest)", "boost", "paper"]
    handles = figure.legends[0].legend_handles
    lines = figure.axes[0].lines
    assert [one.get_color() for one in handles] == [lines[n].get_color() for n in (0, 3, 4)]


@pytest.mark.parametrize("count", [1, 12, 25])
def test_however_many_kinds_the_legend_covers_nothing(count, tmp_path):
    label = "loss.kind=hn_clip, loss.gamma={}, data.train=lists/of/long/names/train.json"
    runs = [
        run(f"r{n}", [40 + n, 50 + n], label=label.format(n), loss__gamma=float(n))
        for n in range(count)
    ]
    figure = recall_plot.draw(recall.over_epochs(runs, "r@1"))
    page.save(figure, tmp_path / "many.png")
    box = figure.legends[0].get_window_extent()
    assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert figure.axes[0].get_window_extent().height > 250
    if count < 22:
        handles = figure.legends[0].legend_handles
        looks = {(one.get_color(), one.get_marker(), one.get_linestyle()) for one in handles}
        assert len(looks) == count


def test_long_labels_are_broken_into_lines():
    runs = [run("r", [40], label="word " * 80)]
    figure = recall_plot.draw(recall.over_epochs(runs, "r@1"))
    assert all(len(line) <= 140 for line in told(figure)[0].splitlines())
    assert told(figure)[0].count("\n") == 2


def test_shares_of_the_data_stand_on_a_logarithmic_axis():
    shares = (0.05, 0.25, 1.0)
    runs = [run(f"r{n}", [40, 50 + n], data__fraction=share) for n, share in enumerate(shares)]
    runs.append(run("again", [40, 54], seed=2, data__fraction=0.25))
    drawn = recall.over_fractions(runs, "r@1", "last")
    figure = recall_plot.draw(drawn, [REFERENCE])
    figure.draw_without_rendering()
    axes = figure.axes[1]
    assert axes.get_xscale() == "log"
    assert axes.get_xticks().tolist() == list(shares)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5 %", "25 %", "100 %"]
    assert axes.get_xlabel() == "share of the training data"
    low, high = axes.get_xlim()
    assert low < 0.05 < 1.0 < high
    mean, *seeds, dotted = axes.lines
    assert mean.get_xdata().tolist() == list(shares)
    assert mean.get_ydata().tolist() == [50.0, 52.5, 52.0]
    assert [(s.get_xdata().tolist(), s.get_ydata().tolist()) for s in seeds] == [
        ([0.05], [50.0]), ([0.25], [51.0]), ([1.0], [52.0]), ([0.25], [54.0]),
    ]  # fmt: skip
    assert {s.get_marker() for s in seeds} == {"_"}
    assert {*dotted.get_ydata()} == {80.0}
    assert told(figure)[0] == "r0 (n = 1 to 2, lowest to highest)"


def test_one_share_and_one_run_are_drawn(tmp_path):
    drawn = recall.over_fractions([run("r", [40])], "r@1", "last")
    figure = recall_plot.draw(drawn)
    page.save(figure, tmp_path / "one.png")
    assert told(figure) == ["r"]
    assert not figure.axes[0].collections


def test_shares_without_a_second_seed_have_no_spread():
    runs = [run(f"r{n}", [40], data__fraction=share) for n, share in enumerate((0.5, 1.0))]
    figure = recall_plot.draw(recall.over_fractions(runs, "r@1", "last"))
    assert told(figure) == ["r0"]


def test_single_evaluations_of_seeds_are_seen():
    runs = [run("a", [40]), run("b", [44], seed=2)]
    axes = recall_plot.draw(recall.over_epochs(runs, "r@1")).axes[1]
    assert [line.get_marker() for line in axes.lines] == ["o", "_", "_"]


def test_seeds_without_a_common_step_are_drawn_without_a_mean(tmp_path):
    other = fake_runs.history("b", fake_runs.evaluations({7: (1.0, 2.0), 9: (2.0, 3.0)}), 10)
    figure = recall_plot.draw(recall.over_epochs([run("a", [40, 50]), other], "r@1"))
    page.save(figure, tmp_path / "none.png")
    assert told(figure) == ["a (no mean: its 2 runs share no evaluated step)"]
    mean, first, second = figure.axes[0].lines
    assert not len(mean.get_xdata())
    assert first.get_xdata().tolist() == [1.0, 2.0]
    assert np.array(second.get_xdata()) == pytest.approx([0.7, 0.9])


def test_epochs_have_whole_numbers():
    figure = recall_plot.draw(recall.over_epochs([run("a", [40, 50])], "r@1"))
    ticks = figure.axes[0].get_xticks()
    assert np.array_equal(ticks, np.round(ticks))


def test_a_reference_of_one_direction_stands_in_its_panel():
    reference = recall.reference("paper", {"i2t_r@1": 70.0}, "r@1")
    figure = recall_plot.draw(recall.over_epochs([KINDS[2]], "r@1"), [reference])
    assert [len(axes.lines) for axes in figure.axes] == [1, 1, 2]
