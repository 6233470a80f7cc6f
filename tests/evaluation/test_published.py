"""The published rows: each number can be a count of its benchmark's queries, or is known not to."""

import pytest

from hnclip_jax import types
from hnclip_jax.data import benchmarks
from hnclip_jax.evaluation import published

# Queries of text to image and of image to text, written out rather than taken from the registry.
QUERIES = {
    "docci_goal": (5100, 5100),
    "docci_test": (5000, 5000),
    "dci_goal": (1999, 1999),
    "dci_short_extra": (7805, 7805),
    "long_dci_tulip": (7602, 7602),
    "long_dci_hn": (7444, 7444),
    "urban1k": (1000, 1000),
    "sv1k": (1000, 1000),
    "coco_val2017_5k": (25000, 5000),
    "coco_karpathy_5k": (25010, 5000),
    "flickr30k_karpathy_1k": (5000, 1000),
    "flickr30k_full": (158915, 31783),
}

MISFITS = {
    # Cells of HN-CLIP's headline row that no 7,444 queries can give.
    ("long_dci_hn", "HN-CLIP", "t2i_r@5", 93.76),
    ("long_dci_hn", "HN-CLIP", "t2i_r@10", 96.34),
    ("long_dci_hn", "HN-CLIP", "i2t_r@10", 95.91),
    ("docci_goal", "SmartCLIP", "i2t_r@1", 74.91),
}

ONE_DECIMAL = {
    # Printed to one decimal among numbers with two.
    ("dci_goal", "StructXLIP", "t2i_r@1", 75.90),
    ("dci_goal", "StructXLIP", "t2i_r@5", 90.00),
    ("dci_goal", "StructXLIP", "i2t_r@5", 89.90),
}


def _cells():
    return [
        (row, metric, value)
        for row in published.all_rows()
        if row.decimals == 2
        for metric, value in row.metrics.items()
    ]


def _fits(value, queries):
    """Whether some whole number of hits, as a percentage of the queries, prints as `value`."""
    near = int(value * queries / 100)
    # A half of the last digit may be rounded either way.
    return any(abs(100 * k / queries - value) <= 0.005 + 1e-9 for k in (near - 1, near, near + 1))


def test_every_cell_of_two_decimals_fits_its_number_of_queries_but_the_known_ones():
    found = {
        (row.benchmark, row.method, metric, value)
        for row, metric, value in _cells()
        if not _fits(value, QUERIES[row.benchmark][metric.startswith("i2t")])
    }
    assert found == MISFITS | ONE_DECIMAL
    assert len(_cells()) > 400


def test_cells_that_do_not_fit_are_marked():
    for row, metric, value in _cells():
        if (row.benchmark, row.method, metric, value) in MISFITS:
            assert metric in row.doubtful
    assert all({*row.doubtful} <= {*row.metrics} for row in published.all_rows())


def test_the_rule_finds_numbers_that_are_no_counts():
    # Half of all numbers of two decimals are none of 5,100 queries, four fifths none of 1,999.
    numbers = [n / 100 for n in range(5000, 10000)]
    assert sum(_fits(value, 5100) for value in numbers) == pytest.approx(2550, abs=60)
    assert sum(_fits(value, 1999) for value in numbers) == pytest.approx(1000, abs=30)


def _one(benchmark, method, source, backbone, trained_on):
    (row,) = (
        row
        for row in published.rows(benchmark)
        if (row.method, row.backbone, row.trained_on) == (method, backbone, trained_on)
        and row.source == source
    )
    return row


HN_CLIP = "HN-CLIP, arXiv 2608.18521, Table 1"
LARGE = "Long-CLIP ViT-L/14"


def test_rows_are_in_one_order_whatever_order_the_paper_has():
    row = _one("docci_goal", "HN-CLIP", HN_CLIP, LARGE, "DOCCI")
    assert list(row.metrics.items()) == [
        ("t2i_r@1", 88.25),
        ("t2i_r@5", 98.45),
        ("t2i_r@10", 99.43),
        ("i2t_r@1", 86.24),
        ("i2t_r@5", 98.12),
        ("i2t_r@10", 99.22),
    ]
    turned = {
        ("docci_goal", "HyFL-CLIP", "HyFL-CLIP, arXiv 2607.00428, Table 1", "ViT-L/14"): (
            85.39,
            82.12,
        ),
        ("urban1k", "CLIP", "HiMo-CLIP, AAAI 2026, Table 1", "ViT-B/16"): (53.6, 68.1),
        ("dci_short_extra", "LoTLIP", "LoTLIP, arXiv 2410.05249, README", "ViT-B/16"): (
            62.63,
            64.11,
        ),
        ("urban1k", "SmartCLIP", "DeBias-CLIP, arXiv 2602.22419v2, Tables 3 and 4", "ViT-L/14"): (
            90.1,
            93.3,
        ),
        ("coco_val2017_5k", "CLIP", "HiMo-CLIP, AAAI 2026, Table 2", "ViT-L/14"): (35.4, 56.1),
        ("long_dci_tulip", "TULIP", "TULIP, arXiv 2410.10034, its tables", "ViT-L/14"): (
            56.4,
            55.7,
        ),
    }
    for (benchmark, method, source, backbone), values in turned.items():
        row = _one(benchmark, method, source, backbone, "")
        assert row.metrics == dict(zip(("t2i_r@1", "i2t_r@1"), values, strict=True))


def test_plain_clip_finds_pictures_by_long_text_less_well_than_texts_by_picture():
    # A row whose directions were swapped would stand out: all papers agree on Urban-1K and COCO.
    for benchmark in ("urban1k", "coco_val2017_5k", "coco_karpathy_5k", "flickr30k_full"):
        for row in published.rows(benchmark):
            if row.method == "CLIP":
                assert row.metrics["t2i_r@1"] < row.metrics["i2t_r@1"] - 8, row


def test_recall_grows_with_k():
    for row in published.all_rows():
        for direction in ("t2i", "i2t"):
            values = [v for name, v in row.metrics.items() if name.startswith(direction)]
            assert values
            assert values == sorted(values)
            assert all(20 < value < 100 for value in values)


def test_the_honest_baseline_and_the_target_are_there():
    for method, values in {
        "plain InfoNCE": (79.39, 78.34),
        "HN only": (81.04, 78.54),
        "HN-CLIP": (80.69, 78.84),
    }.items():
        (found,) = (
            (row.metrics["t2i_r@1"], row.metrics["i2t_r@1"])
            for row in published.rows("dci_goal")
            if (row.method, row.backbone, row.trained_on) == (method, LARGE, "DCI")
        )
        assert found == values


def test_what_was_tuned_on_what_and_what_leaks():
    assert _one("docci_goal", "Long-CLIP", HN_CLIP, LARGE, "").leaky is False
    assert _one("long_dci_hn", "GOAL", HN_CLIP, LARGE, "DCI").leaky is True
    leaks = {row.trained_on: row.leaky for row in published.rows("long_dci_hn")}
    assert leaks == {"": False, "DCI": True, "DOCCI": False}
    assert not any(row.leaky for row in published.all_rows() if row.benchmark != "long_dci_hn")
    overlaps = {
        row.trained_on: any("overlap" in note for note in row.notes)
        for row in published.rows("urban1k")
    }
    assert overlaps == {"": False, "VG paragraphs": True}


def test_methods_that_are_no_dual_encoders_say_so():
    for method in ("FineLIP", "FLAIR", "SmartCLIP"):
        rows = [row for row in published.all_rows() if row.method == method]
        assert rows
        assert all("no pure dual encoder" in " ".join(row.notes) for row in rows)


def test_no_row_stands_twice():
    rows = published.all_rows()
    assert len({(r.benchmark, r.method, r.backbone, r.trained_on, r.source) for r in rows}) == len(
        rows
    )
    values = [(r.benchmark, r.method, *r.metrics.items()) for r in rows if r.decimals == 2]
    assert len({*values}) == len(values)


def test_every_benchmark_is_known_and_a_second_name_has_the_same_rows():
    assert {row.benchmark for row in published.all_rows()} == QUERIES.keys()
    assert QUERIES.keys() <= benchmarks.REGISTRY.keys()
    assert published.rows("dci_extra_all") == published.rows("long_dci_tulip") != ()
    assert published.rows("long_dci_holdout") == ()
    with pytest.raises(types.UserError, match="did you mean 'docci_goal'"):
        published.rows("docci_gaol")
