"""The picture of gradients: what stands in it, and where."""

import numpy as np
import pytest

from hnclip_jax.analysis import gradients, gradients_plot, page
from tests import fake_runs

PLAIN, TRAINED, RATIO, COSINE, SOLVED = gradients.KEYS


def run(name="run", *, per_epoch=40, label="", changes=None, **made):
    return fake_runs.history(name, fake_runs.gradients(**made), per_epoch, label, **(changes or {}))


def drawn(histories, layout=None, window=20):
    measured = gradients.measure(histories, window)
    return gradients_plot.draw(measured, layout or gradients.side_by_side(histories))


def panels(figure, columns=1):
    """Returns the axes by panel and column."""
    return np.array(figure.axes).reshape(-1, columns)


def test_panels_show_points_medians_and_bands():
    history = run("runs", count=30, zeros=(3, 4))
    figure = drawn([history])
    norms, ratio, cosine, solved = panels(figure)[:4, 0]
    (measured,) = gradients.measure([history], 20)
    assert [axes.get_yscale() for axes in (norms, ratio, cosine, solved)] == [
        "log", "log", "linear", "linear",
    ]  # fmt: skip
    for axes, keys in ((norms, (PLAIN, TRAINED)), (ratio, (RATIO,)), (cosine, (COSINE,))):
        for number, key in enumerate(keys):
            points, odd, median = axes.lines[3 * number : 3 * number + 3]
            series = measured.series[key]
            fine = (series.values > 0 if axes is not cosine else True) & np.isfinite(series.values)
            assert points.get_xdata().tolist() == series.steps[fine].tolist()
            assert points.get_ydata().tolist() == series.values[fine].tolist()
            assert odd.get_xdata().tolist() == series.steps[~fine].tolist()
            np.testing.assert_array_equal(median.get_ydata(), series.median)
            assert median.get_color() == points.get_color()
    assert norms.lines[0].get_color() != norms.lines[3].get_color()
    assert len(norms.collections) == 2
    assert norms.get_title() == "runs"
    assert solved.get_xlabel() == "step"


def test_bands_are_drawn_from_quantile_to_quantile():
    history = run(count=32)
    figure = drawn([history])
    (measured,) = gradients.measure([history], 20)
    bands = measured.series[RATIO].bands
    paths = panels(figure)[1, 0].collections[0].get_paths()
    assert len(paths) == len(bands) == 4
    for path, band in zip(paths, bands, strict=True):
        x, y = path.vertices.T
        assert (x.min(), x.max()) == (band.first, band.last)
        assert (y.min(), y.max()) == pytest.approx((band.low, band.high))


def test_zeros_stand_on_the_floor_and_infinity_at_the_ceiling():
    history = run(count=30, zeros=(3, 4))
    figure = drawn([history])
    norms, ratio, cosine, solved = panels(figure)[:4, 0]
    measured = gradients.measure([history], 20)
    floor, _ = gradients.limits(gradients.PANELS[0], measured)
    assert norms.lines[1].get_ydata().tolist() == [floor, floor]
    assert 0 < floor < min(line[PLAIN] for line in history.lines if line[PLAIN])
    assert norms.lines[-1].get_ydata() == [floor, floor]
    assert norms.texts[0].get_text() == "InfoNCE: 2 zero of 30"
    _, ceiling = gradients.limits(gradients.PANELS[1], measured)
    assert ratio.lines[1].get_ydata().tolist() == [ceiling, ceiling]
    assert ceiling > max(float(line[RATIO]) for line in history.lines if line[RATIO] != "inf")
    assert ratio.texts[0].get_text() == "2 infinite of 30"
    assert len(ratio.lines) == 3, "nothing stands on its floor, so it has none"
    assert cosine.lines[1].get_ydata().tolist() == [-1.12, -1.12]
    assert cosine.texts[0].get_text() == "2 undefined of 30"
    assert solved.texts[0].get_text() == ""
    for axes in (norms, ratio, cosine, solved):
        low, high = axes.get_ylim()
        for line in axes.lines:
            values = np.array(line.get_ydata(), float)
            values = values[np.isfinite(values)]
            assert np.all((low < values) & (values < high))


def test_a_run_whose_gradients_are_all_zero_is_drawn(tmp_path):
    history = run(count=6, zeros=range(6))
    for line in history.lines:
        line[TRAINED], line[RATIO] = 0.0, "nan"
    figure = drawn([history])
    norms, ratio, cosine, _ = panels(figure)[:4, 0]
    assert norms.texts[0].get_text() == "InfoNCE: 6 zero of 6; as trained: 6 zero of 6"
    assert ratio.texts[0].get_text() == cosine.texts[0].get_text() == "6 undefined of 6"
    assert np.isnan(cosine.lines[2].get_ydata()).all()
    page.save(figure, tmp_path / "zero.png")


def test_one_measurement_and_no_epochs_are_drawn(tmp_path):
    history = run(count=1, per_epoch=0)
    figure = drawn([history])
    assert len(figure.axes) == 4
    assert figure.axes[0].collections[0].get_paths() == []
    assert not figure.axes[0].child_axes
    assert "10-90 % of an epoch" not in [text.get_text() for text in figure.legends[0].get_texts()]
    page.save(figure, tmp_path / "one.png")


def test_epochs_stand_above_the_steps_where_they_are_known():
    figure = drawn([run(count=30, per_epoch=40), run("other", count=30, per_epoch=0)])
    (above,), none = figure.axes[0].child_axes, figure.axes[1].child_axes
    figure.draw_without_rendering()
    assert above.get_xlabel() == "epoch"
    assert np.array(above.get_xlim()) * 40 == pytest.approx(figure.axes[0].get_xlim())
    assert not none


def test_several_runs_share_their_axes():
    histories = [run("a", count=20, label="first"), run("b", count=30, seed=1)]
    axes = panels(drawn(histories), 2)
    assert [one.get_title() for one in axes[0]] == ["first", "b"]
    for row in axes:
        assert row[0].get_ylim() == row[1].get_ylim()
    values = [line[PLAIN] for one in histories for line in one.lines]
    low, high = axes[0, 0].get_ylim()
    assert low < min(values)
    assert high > max(values)


def test_the_legend_lies_outside_and_tells_the_windows():
    figure = drawn([run(count=30, zeros=(3,))])
    (legend,) = figure.legends
    told = [text.get_text() for text in legend.get_texts()]
    assert told == [
        "InfoNCE", "as trained", "median over 20 steps", "10-90 % of an epoch",
        "beyond the axis, counted",
    ]  # fmt: skip
    assert legend.legend_handles[0].get_color() == figure.axes[0].lines[0].get_color()
    figure.draw_without_rendering()
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
    both = gradients.measure([run(count=30), run("b", count=300)])
    layout = gradients.side_by_side([one.history for one in both])
    told = [t.get_text() for t in gradients_plot.draw(both, layout).legends[0].get_texts()]
    assert told[2:] == ["median over 15 to 150 steps", "10-90 % of an epoch"]


def on(train, fraction, per_epoch=40, **more):
    changes = {"data__train": train, "data__fraction": fraction}
    return run(f"{train} {fraction}", count=12, per_epoch=per_epoch, changes=changes, **more)


GRID = [
    on("data/dci/train.json", 1.0),
    on("data/docci/train.json", 0.1, seed=1),
    on("data/docci/train.json", 1.0, seed=2),
]


def test_a_grid_has_a_row_per_list_and_a_column_per_share():
    layout = gradients.grid(GRID)
    assert layout == (
        ["dci/train", "docci/train"],
        ["10 % of the data", "100 % of the data"],
        [(0, 1), (1, 0), (1, 1)],
        True,
    )
    figure = drawn(GRID, layout)
    axes = np.array(figure.axes).reshape(2, 4, 2)
    assert [one.get_title() for one in axes[0, 0]] == layout.columns
    assert [one.get_ylabel() for one in axes[:, 0, 0]] == [
        "dci/train\n\ngradient norm", "docci/train\n\ngradient norm",
    ]  # fmt: skip
    for (row, column), history in zip(layout.places, GRID, strict=True):
        points = axes[row, 0, column].lines[0]
        assert points.get_ydata().tolist() == [line[PLAIN] for line in history.lines]
        assert points.get_xdata().tolist() == [line["step"] / 40 for line in history.lines]
    assert [one.texts[0].get_text() for one in axes[0, :, 0]] == ["no run"] * 4
    assert not axes[0, 0, 0].lines
    for panel in range(4):
        assert len({one.get_ylim() for one in axes[:, panel].ravel()}) == 1
    assert len({one.get_xlim() for one in axes.ravel()}) == 1
    assert [one.get_xlabel() for one in axes[-1, -1]] == ["epoch", "epoch"]
    assert not any(one.child_axes for one in axes.ravel())
    x = axes[1, 0, 0].collections[0].get_paths()[1].vertices[:, 0]
    assert (x.min(), x.max()) == (1.0, 2.0)


def test_a_grid_of_runs_whose_epochs_are_not_known_is_over_steps():
    histories = [*GRID[:2], on("data/docci/train.json", 0.5, per_epoch=0)]
    layout = gradients.grid(histories)
    assert not layout.by_epoch
    axes = np.array(drawn(histories, layout).axes).reshape(2, 4, 3)
    assert axes[1, 0, 1].lines[0].get_xdata().tolist() == list(range(5, 65, 5))
    assert axes[-1, -1, 0].get_xlabel() == "step"
