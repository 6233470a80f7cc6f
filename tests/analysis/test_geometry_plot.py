"""The picture of caption geometry: what is drawn, and what is told beside it."""

import json

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.analysis import (
    boost,
    geometry,
    geometry_batch,
    geometry_plot,
    geometry_series,
    page,
)


def unit(count, seed, shared):
    rows = np.random.default_rng(seed).normal(size=(count, 16)) + shared
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def series(label="list", count=300, seed=0, shared=0.5, batch=6, text=None):
    text = unit(count, seed, shared) if text is None else text
    ids = np.arange(len(text)) // 2
    measured = geometry.measure(text, ids)
    captions = [f"caption {number}" for number in range(len(text))]
    return geometry_series.Series(
        label,
        measured,
        geometry_batch.draw(text, ids, captions, batch, seed=0),
        boost.predict(measured.mean, measured.std, scale=50.0, gamma=0.5),
        {"list": f"{label}.json"},
    )


@pytest.fixture(scope="module")
def two():
    return [series("before", count=700), series("after", count=120, seed=1, shared=2.0)]


@pytest.fixture(scope="module")
def axes(two):
    return geometry_plot.draw(two).axes


def heights(patch):
    """Height of a drawn histogram at the middle of each of the finest bins."""
    values, edges, _ = patch.get_data()
    middles = (geometry.EDGES[:-1] + geometry.EDGES[1:]) / 2
    return values[np.searchsorted(edges, middles) - 1], edges


def test_histograms_hold_all_pairs_and_all_captions(two, axes):
    for part, name in enumerate(("counts", "hardest_counts")):
        assert len(axes[part].patches) == 2
        for patch, one, colour in zip(axes[part].patches, two, page.COLOURS, strict=False):
            drawn, edges = heights(patch)
            assert drawn.sum() * 0.005 / 0.01 == pytest.approx(100)
            step = round((edges[1] - edges[0]) / 0.005)
            counts = getattr(one.geometry, name)
            for low in range(0, geometry.BINS, step):
                share = 100 * counts[low : low + step].sum() / counts.sum()
                expected = share * 0.01 / (0.005 * step)
                np.testing.assert_allclose(drawn[low : low + step], expected, atol=1e-9)
            assert page_colour(patch.get_edgecolor()) == colour
            assert patch.get_linewidth() > 0


def page_colour(rgba):
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgba[:3])


def test_bins_are_as_wide_as_the_number_of_cosines_asks_for(two, axes):
    widths = [heights(axes[part].patches[0])[1] for part in (0, 1)]
    fine, coarse = (edges[1] - edges[0] for edges in widths)
    assert fine < coarse
    for part, counts in ((0, two[0].geometry.counts), (1, two[0].geometry.hardest_counts)):
        filled = np.flatnonzero(counts)
        bins = (filled[-1] - filled[0] + 1) * 0.005 / (widths[part][1] - widths[part][0])
        assert bins <= max(2 * counts.sum() ** (1 / 3), 10)


def test_means_are_dotted(two, axes):
    for part, name in enumerate(("mean", "hardest_mean")):
        lines = axes[part].lines
        assert [line.get_linestyle() for line in lines] == [":", ":"]
        drawn = [line.get_xdata()[0] for line in lines]
        assert drawn == [getattr(one.geometry, name) for one in two]
        assert [line.get_color() for line in lines] == list(page.COLOURS[:2])


def test_all_that_can_be_seen_is_inside(two, axes):
    for part, name in enumerate(("counts", "hardest_counts")):
        low, high = axes[part].get_xlim()
        for one in two:
            counts = getattr(one.geometry, name)
            seen = counts > counts.max() / 1000
            assert low < geometry.EDGES[:-1][seen].min()
            assert geometry.EDGES[1:][seen].max() < high
    assert axes[0].get_xlim() != axes[1].get_xlim()


def test_a_single_cosine_far_away_does_not_set_the_range():
    counts = np.zeros((1, geometry.BINS), int)
    counts[..., 300], counts[..., 10] = 10**6, 1
    low, high = geometry_plot._limits(counts)
    assert (low, high) == pytest.approx((0.49, 0.515))


def test_bars_of_hardness(two, axes):
    bars = axes[2].patches
    assert len(bars) == 2 * 2 * len(geometry.BUCKETS)
    drawn = np.reshape([bar.get_height() for bar in bars], (2, 2, -1))
    for one, (pairs, hardest) in zip(two, drawn, strict=True):
        told = one.geometry.to_json()
        np.testing.assert_allclose(pairs, [100 * x for x in told["share_of_pairs"].values()])
        np.testing.assert_allclose(hardest, [100 * x for x in told["share_of_hardest"].values()])
    places = np.array([bar.get_x() + bar.get_width() / 2 for bar in bars]).reshape(4, -1)
    assert (np.diff(places, axis=0) > 0).all()
    assert (np.abs(places - np.arange(len(geometry.BUCKETS))) < 0.4).all()
    assert [bar.get_alpha() for bar in bars[::8]] == [0.35, 1, 0.35, 1]
    assert [text.get_text() for text in axes[2].get_xticklabels()] == list(geometry.BUCKETS)
    assert axes[2].get_yscale() == "log"


def test_matrices_of_the_batches(two, axes):
    drawn = [one for one in axes if one.images]
    assert len(drawn) == 2
    for axes_, one in zip(drawn, two, strict=True):
        shown = axes_.images[0].get_array()
        assert (np.ma.getmaskarray(shown) == ~one.batch.negatives).all()
        np.testing.assert_allclose(shown.filled(0), one.batch.cosines * one.batch.negatives)
        row, column = one.batch.largest
        middles = {
            (line.get_xdata()[:4].mean(), line.get_ydata()[:4].mean()) for line in axes_.lines
        }
        assert middles == {(column, row), (row, column)}
        assert axes_.get_title() == (
            f"{one.label}\nG of a batch of 6: largest {one.batch.value:.3f}"
        )
    limits = [axes_.images[0].get_clim() for axes_ in drawn]
    every = np.concatenate([one.batch.cosines[one.batch.negatives] for one in two])
    assert limits == [(every.min(), every.max())] * 2


def test_the_legend_names_the_series(two):
    (legend,) = geometry_plot.draw(two).legends
    assert [text.get_text() for text in legend.get_texts()] == ["before", "after"]
    edges = [handle.get_edgecolor() for handle in legend.legend_handles]
    assert [page_colour(edge) for edge in edges] == list(page.COLOURS[:2])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_as_many_panels_as_there_are_series(count):
    drawn = geometry_plot.draw([series(count=20, batch=3)] * count)
    # The bar of colours is the last one.
    assert len(drawn.axes) == 3 + count + 1
    assert sum(bool(axes.images) for axes in drawn.axes[:-1]) == count


def test_too_many_series():
    geometry_plot.check(7)
    with pytest.raises(types.UserError, match="8 lists by weights are too many for one picture"):
        geometry_plot.check(8)


def test_equal_captions_and_a_batch_without_negatives(tmp_path):
    text = np.tile(unit(1, 0, 0), (4, 1))
    one = series(text=text, batch=1)
    paths = page.write(
        tmp_path,
        "equal",
        geometry_plot.draw([one]),
        geometry_series.numbers([one], {}),
        geometry_series.table([one]),
    )
    assert paths[0].stat().st_size > 1000
    axes = geometry_plot.draw([one]).axes
    assert axes[3].get_title() == "G of a batch of 1"
    assert not axes[3].lines


def test_the_picture_is_no_larger_than_it_has_to_be(two, tmp_path):
    drawn = geometry_plot.draw(two)
    path = page.write(tmp_path, "two", drawn, geometry_series.numbers(two, {}), [])[0]
    assert path.stat().st_size < 200_000
    with Image.open(path) as image:
        assert image.size == (1575, 960)


def test_the_table_has_a_row_for_each_bin(two):
    rows = geometry_series.table(two)
    assert len(rows) == 2 * geometry.BINS
    for at, one in enumerate(two):
        mine = rows[at * geometry.BINS : (at + 1) * geometry.BINS]
        assert {row["series"] for row in mine} == {one.label}
        assert [row["pairs"] for row in mine] == one.geometry.counts.tolist()
        assert [row["hardest_companions"] for row in mine] == one.geometry.hardest_counts.tolist()
        assert (mine[0]["from"], mine[0]["to"], mine[-1]["to"]) == (-1, -0.995, 1)


def test_numbers_hold_all_of_it(two):
    found = geometry_series.numbers(two, {"seed": 3})
    assert found["settings"] == {"seed": 3}
    assert len(found["edges"]) == geometry.BINS + 1
    assert found["hardness"] == geometry.HARDNESS
    for told, one in zip(found["series"], two, strict=True):
        assert told["label"] == one.label
        assert told["list"] == f"{one.label}.json"
        assert told["geometry"]["mean"] == one.geometry.mean
        assert told["geometry"]["counts"] == one.geometry.counts.tolist()
        assert told["batch"]["cosines"] == one.batch.cosines.tolist()
        assert told["boost"]["adaptive"] == one.boost.adaptive
        assert told["text"] == one.text()
    json.dumps(page.finite(found), allow_nan=False)


def test_words(two):
    lines = two[0].text().splitlines()
    assert lines[0] == "before"
    for part in (two[0].geometry, two[0].batch, two[0].boost):
        assert part.text() in two[0].text()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([("a", "x")], ["a, x"]),
        ([("a", "x"), ("b", "x")], ["a", "b"]),
        ([("a", "x"), ("a", "y")], ["x", "y"]),
        (
            [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")],
            ["a, x", "a, y", "b, x", "b, y"],
        ),
        ([("a", "x"), ("a", "x")], ["a, x", "a, x (2)"]),
        ([("a", "x"), ("a", "x"), ("b", "x")], ["a", "a (2)", "b"]),
    ],
)
def test_labels(names, expected):
    assert geometry_series.labels(names) == expected
