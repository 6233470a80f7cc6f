"""Results side by side: what is called better, what may be chance, what cannot be compared."""

import json
import math

import pytest

from hnclip_jax import types
from hnclip_jax.evaluation import comparison, side_by_side

PROTOCOL = {
    "list": "a.json",
    "list_sha256": "a" * 64,
    "pictures": 1000,
    "captions": 2000,
    "skipped_missing": 0,
    "context_length": 248,
    "image_size": 224,
    "image_transform": "shorter side to 224, Pillow bicubic, centre crop",
    "compute_dtype": "float32",
    "ties": "expected rank among equal scores",
    "truncated_captions": 3,
    "devices": "1 x cpu",
    "versions": {"jax": "1"},
    "weights_sha256": "1" * 64,
}
METRICS = {"t2i_r@1": 80.0, "t2i_r@10": 95.0, "i2t_r@1": 70.0, "ties": 0}


@pytest.fixture
def write(tmp_path):
    """Writes a result file: (name, metrics, protocol fields, intervals) -> path."""

    def written(name, metrics=None, intervals=None, **protocol):
        content = {"metrics": {**METRICS, **(metrics or {})}, "protocol": {**PROTOCOL, **protocol}}
        if intervals:
            content["intervals"] = intervals
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
        return path

    return written


def _verdict(write, value, metric="t2i_r@1", first=None, **other):
    a = write("a.json", **(first or {}))
    b = write("b.json", {metric: value}, **other)
    return comparison.verdict(*comparison.read([a, b]), metric)


# 2,000 queries at 80 % have a standard error of 0.894 points, 1,000 at 70 % of 1.449: 95 % of a
# difference of two lies within 1.96 * sqrt(2) of them, 2.48 (2.44 above, where errors are smaller)
# and 4.02 points.
@pytest.mark.parametrize(
    ("metric", "value", "mark"),
    [
        ("t2i_r@1", 82.3, "~"),
        ("t2i_r@1", 82.6, "+"),
        ("t2i_r@1", 77.6, "~"),
        ("t2i_r@1", 77.3, "-"),
        ("t2i_r@1", 80.0, "~"),
        ("i2t_r@1", 73.8, "~"),
        ("i2t_r@1", 74.2, "+"),
        ("i2t_r@1", 65.7, "-"),
        ("ties", 400, ""),
    ],
)
def test_a_difference_below_the_binomial_interval_may_be_chance(metric, value, mark, write):
    assert _verdict(write, value, metric) == mark


def test_the_binomial_interval_is_that_of_the_number_of_queries(write):
    (found,) = comparison.read([write("a.json")])
    for metric, share, count in (("t2i_r@1", 0.8, 2000), ("i2t_r@1", 0.7, 1000)):
        low, high = (end / 100 for end in comparison.interval(found, metric))
        # At either end, what was found is 1.96 standard errors of that end away.
        for end, away in ((low, share - low), (high, high - share)):
            assert away == pytest.approx(1.96 * math.sqrt(end * (1 - end) / count))
    assert comparison.interval(found, "ties") is None


def test_an_interval_stays_within_0_and_100(write):
    (found,) = comparison.read([write("a.json", {"t2i_r@1": 100.0, "t2i_r@5": 0.0})])
    part = 100 * 1.96**2 / (2000 + 1.96**2)
    assert comparison.interval(found, "t2i_r@1") == pytest.approx((100 - part, 100))
    assert comparison.interval(found, "t2i_r@5") == pytest.approx((0, part), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "pictures", "percent", "error"),
    [
        ("DOCCI", 5100, 88.25, 0.45),
        ("DCI", 1999, 80.69, 0.9),
        ("Long-DCI", 7444, 79.03, 0.5),
        ("Urban-1K", 1000, 91.10, 0.9),
    ],
)
def test_known_errors_of_the_benchmarks(name, pictures, percent, error, write):
    path = write("a.json", {"i2t_r@1": percent}, pictures=pictures)
    low, high = comparison.interval(comparison.read([path])[0], "i2t_r@1")
    assert (high - low) / 2 / 1.96 == pytest.approx(error, abs=0.05), name


def test_a_part_of_the_pictures_that_asks_makes_the_interval_wider(write):
    queries = {"t2i_queries": 250, "i2t_queries": 100}
    assert _verdict(write, 82.6, first=queries, **queries) == "~"
    assert _verdict(write, 88.0, first=queries, **queries) == "+"


def test_intervals_of_the_file_come_first(write):
    narrow = {"first": {"intervals": {"t2i_r@1": [79.9, 80.1]}}}
    assert _verdict(write, 80.3, intervals={"t2i_r@1": [80.2, 80.4]}, **narrow) == "+"
    assert _verdict(write, 80.1, intervals={"t2i_r@1": [80.0, 80.2]}, **narrow) == "~"
    # The sides that face each other count: 80 reaches up 3, 83 reaches down 1.
    lopsided = {"first": {"intervals": {"t2i_r@1": [79.0, 83.0]}}}
    assert _verdict(write, 83.0, intervals={"t2i_r@1": [82.0, 99.0]}, **lopsided) == "~"
    assert _verdict(write, 83.2, intervals={"t2i_r@1": [82.2, 99.0]}, **lopsided) == "+"
    assert _verdict(write, 78.5, intervals={"t2i_r@1": [60.0, 78.9]}, **lopsided) == "-"


def test_a_lower_rank_is_better(write):
    spans = {"t2i_median_rank": [2.0, 2.0]}
    first = {"metrics": {"t2i_median_rank": 2.0}, "intervals": spans}
    lower, higher = ({"t2i_median_rank": [v, v]} for v in (1.0, 3.0))
    assert _verdict(write, 1.0, "t2i_median_rank", first, intervals=lower) == "+"
    assert _verdict(write, 3.0, "t2i_median_rank", first, intervals=higher) == "-"
    assert _verdict(write, 3.0, "t2i_median_rank") == ""


def test_the_rule_of_relevance_matters_to_map_alone(write):
    spans = {"t2i_map@10": [70.0, 70.0], "t2i_r@1": [80.0, 80.0]}
    first = {"metrics": {"t2i_map@10": 70.0}, "intervals": spans, "relevance": "pair"}
    other = {"t2i_map@10": [75.0, 75.0], "t2i_r@1": [81.0, 81.0]}
    assert _verdict(write, 75.0, "t2i_map@10", first, intervals=other, relevance="pair") == "+"
    assert _verdict(write, 75.0, "t2i_map@10", first, intervals=other, relevance="group") == ""
    assert _verdict(write, 81.0, "t2i_r@1", first, intervals=other, relevance="group") == "+"


def _classified(path, top1, **protocol):
    about = {"data": "val", "data_sha256": "e" * 64, "pictures": 50000, "templates": ["a {}"] * 80}
    content = {"metrics": {"top1": top1, "ties": 0}, "protocol": {**about, **protocol}}
    path.write_text(json.dumps(content))
    return path


def test_classifications_are_compared_too(tmp_path):
    # 50,000 pictures at 70 %: a standard error of 0.205, 95 % of a difference within 0.57.
    for top1, mark in ((70.5, "~"), (70.7, "+"), (69.3, "-")):
        paths = [_classified(tmp_path / "a.json", 70.0), _classified(tmp_path / "b.json", top1)]
        assert comparison.verdict(*comparison.read(paths), "top1") == mark
    paths[1] = _classified(paths[1], 90.0, templates=["b {}"] * 7)
    text = side_by_side.report(comparison.read(paths))
    assert "b differs from a in templates 80 values and 7 values" in text
    assert "a: val, 50,000 pictures" in text
    paths[1] = _classified(paths[1], 90.0, data_sha256="f" * 64)
    assert comparison.verdict(*comparison.read(paths), "top1") == ""


DECISIVE = {
    "list": {"list_sha256": "b" * 64},
    "benchmark": {"benchmark": "docci_test"},
    "pictures": {"pictures": 999},
    "captions": {"captions": 1999},
    "skipped": {"skipped_missing": 1},
    "tie rule": {"ties": "first wins"},
    "queries": {"i2t_queries": 500},
    "gallery": {"t2i_gallery": 500},
}


@pytest.mark.parametrize("case", DECISIVE)
def test_nothing_is_better_on_another_list_or_by_another_rule(case, write):
    first = {"benchmark": "docci_goal", "i2t_queries": 1000, "t2i_gallery": 1000}
    other = {**first, **DECISIVE[case]}
    assert _verdict(write, 99.0, first=first, **first) == "+"
    assert _verdict(write, 99.0, first=first, **other) == ""
    paths = [write("a.json", **first), write("b.json", {"t2i_r@1": 99.0}, **other)]
    text = side_by_side.report(comparison.read(paths))
    (line,) = (line for line in text.splitlines() if "cannot be compared" in line)
    field = next(iter(DECISIVE[case]))
    values = [{**PROTOCOL, **first}[field], DECISIVE[case][field]]
    assert line.startswith("b cannot be compared with a: ")
    shown = [f"{v[:8]}..." if field == "list_sha256" else repr(v) for v in values]
    assert f"{field} {shown[0]} and {shown[1]}" in line
    assert "99.00 " in text or "99.00\n" in text
    assert "99.00+" not in text


def test_a_list_without_a_hash_is_compared_with_nothing(write, tmp_path):
    content = {
        "metrics": METRICS,
        "protocol": {k: v for k, v in PROTOCOL.items() if k != "list_sha256"},
    }
    for name in "bc":
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    first, other, third = comparison.read(
        [write("a.json"), tmp_path / "b.json", tmp_path / "c.json"]
    )
    for pair in ((first, other), (other, first), (other, third)):
        assert comparison.verdict(*pair, "t2i_r@1") == ""
        assert "(not recorded)" in str(comparison.mismatches(*pair)[0])


def test_the_hash_of_the_content_outweighs_that_of_the_file(write):
    same, another = {"content_sha256": "c" * 64}, {"content_sha256": "d" * 64}
    moved = {"list_sha256": "b" * 64}
    assert _verdict(write, 99.0, first=same, **same, **moved) == "+"
    assert _verdict(write, 99.0, first=same, **another) == ""
    # Only one file has it: then the file decides.
    assert _verdict(write, 99.0, first=same) == "+"
    assert _verdict(write, 99.0, first=same, **moved) == ""


def test_two_names_of_one_benchmark_are_one(write):
    first = {"benchmark": "dci_extra_all"}
    assert _verdict(write, 99.0, first=first, benchmark="long_dci_tulip") == "+"
    assert _verdict(write, 99.0, first=first, benchmark=None) == "+"
    assert _verdict(write, 99.0, first=first, benchmark="from_a_later_version") == ""


def test_other_differences_are_named_with_both_values(write):
    paths = [
        write("a.json"),
        write("b.json", context_length=77, image_size=336, compute_dtype="bfloat16"),
    ]
    text = side_by_side.report(comparison.read(paths))
    (line,) = (line for line in text.splitlines() if line.startswith("b differs"))
    assert line == (
        "b differs from a in context_length 248 and 77; image_size 224 and 336; "
        "compute_dtype 'float32' and 'bfloat16'"
    )
    assert "cannot be compared" not in text
    assert comparison.verdict(*comparison.read(paths), "t2i_r@1") == "~"


def test_what_names_the_run_is_no_difference(write):
    paths = [
        write("a.json"),
        write(
            "b.json",
            list="elsewhere/a.json",
            truncated_captions=9,
            devices="8 x TPU v5",
            versions={"jax": "2"},
            weights="w.safetensors",
            weights_sha256="2" * 64,
            step=7,
            interval="bootstrap",
            new_field=1,
        ),
    ]
    assert comparison.mismatches(*comparison.read(paths)) == []
    assert "Protocols" not in side_by_side.report(comparison.read(paths))


def test_the_tables(write):
    paths = [
        write("runs/plain/result.json", {"t2i_median_rank": 1.0, "t2i_map@10": 81.25}),
        write("runs/hn/result.json", {"t2i_r@1": 84.0, "i2t_r@1": 60.0, "ties": 12}),
    ]
    assert side_by_side.report(comparison.read(paths)).splitlines() == [
        "plain/result: a.json, 2,000 captions, 1,000 pictures",
        "hn/result: a.json, 2,000 captions, 1,000 pictures",
        "",
        "text to image    R@1    R@10   median   mAP@10",
        "plain/result   80.00   95.00     1.00    81.25",
        "hn/result      84.00+  95.00~       -        -",
        "",
        "image to text    R@1",
        "plain/result   70.00",
        "hn/result      60.00-",
        "",
        "other         ties",
        "plain/result     0",
        "hn/result       12",
        "",
        "Marks",
        "against plain/result: + better, - worse, ~ within the 95 % interval of the difference, so "
        "it may be chance",
        "intervals: binomial, from the number of queries, for plain/result, hn/result",
    ]


def test_markdown_has_the_same_numbers(write):
    paths = [write("a.json"), write("b.json", {"t2i_r@1": 84.0})]
    text = side_by_side.report(comparison.read(paths), markdown=True)
    assert text.splitlines()[:9] == [
        "- a: a.json, 2,000 captions, 1,000 pictures",
        "- b: a.json, 2,000 captions, 1,000 pictures",
        "",
        "## text to image",
        "",
        "| text to image | R@1 | R@10 |",
        "| --- | ---: | ---: |",
        "| a | 80.00 | 95.00 |",
        "| b | 84.00+ | 95.00~ |",
    ]


def test_published_rows_stand_below_with_their_source_and_their_cautions(write):
    path = write("mine.json", benchmark="long_dci_hn", pictures=7444, captions=7444)
    lines = side_by_side.report(comparison.read([path]), with_published=True).splitlines()
    assert lines[0] == "mine: long_dci_hn, 7,444 captions, 7,444 pictures"
    start = lines.index("published on long_dci_hn:")
    assert set(lines[start - 1]) == {"-"}
    rows = {" ".join(line.split()) for line in lines[start : lines.index("", start)]}
    assert "HN-CLIP (Long-CLIP ViT-L/14; DCI) [1] 79.03 96.34?" in rows
    assert "HN-CLIP (Long-CLIP ViT-L/14; DOCCI) [4] 62.60" in rows
    assert "Long-CLIP (Long-CLIP ViT-L/14; zero-shot) [1] 54.61 78.33" in rows
    sources = lines[lines.index("Published") :]
    assert sources[1] == "[1] HN-CLIP, arXiv 2608.18521, Table 1"
    (leak,) = (line for line in sources if line.startswith("leaky"))
    assert "HN-CLIP [1]" in leak
    assert "Long-CLIP" not in leak
    assert any(line.startswith("?: ") for line in lines)


def test_published_rows_of_two_benchmarks_and_of_none(write):
    a = write("a.json", benchmark="urban1k")
    b = write("b.json", benchmark="long_dci_holdout", list_sha256="b" * 64)
    c = write("c.json", benchmark="from_a_later_version")
    text = side_by_side.report(comparison.read([a, b, c]), with_published=True)
    assert "published on urban1k:" in text
    assert "no rows for long_dci_holdout\nno rows for from_a_later_version" in text
    text = side_by_side.report(
        comparison.read([write("a.json", benchmark=None)]), with_published=True
    )
    assert "none of the files names a benchmark" in text
    assert "published on" not in side_by_side.report(comparison.read([a]))


def test_labels_are_the_shortest_ends_that_differ(write):
    names = ["x/1/eval/9.json", "x/2/eval/9.json", "other.json"]
    found = comparison.read([write(name) for name in names])
    assert [one.label for one in found] == ["1/eval/9", "2/eval/9", found[2].label]
    assert found[2].label.endswith("other")
    assert [one.label for one in comparison.read([write("a.json")] * 2)] == ["a", "a"]


FOREIGN = {
    "empty": ("", "is no JSON file"),
    "broken": ('{"metrics": {"a": 1', "is no JSON file"),
    "two lines": ('{"step": 1}\n{"step": 2}\n', "is no JSON file"),
    "no text": (b"\xff\xfe\x00", "is no JSON file"),
    "deep": ("[" * 100_000, "is no JSON file"),
    "a list": ("[1]", "is a JSON list"),
    "a number": ("3", "is a JSON int"),
    "other keys": ('{"train": 1, "optim": 2}', "keys train, optim"),
    "no keys": ("{}", "keys (none)"),
    "metrics of another kind": ('{"metrics": [1], "protocol": {}}', "keys metrics, protocol"),
    "no metrics": ('{"metrics": {}, "protocol": {}}', "nothing in it"),
    "text": ('{"metrics": {"t2i_r@1": "80"}, "protocol": {}}', "no numbers: t2i_r@1"),
    "not a number": ('{"metrics": {"t2i_r@1": NaN}, "protocol": {}}', "no numbers: t2i_r@1"),
    "interval": (
        '{"metrics": {"a": 1}, "protocol": {}, "intervals": {"a": [2, 1]}}',
        "interval of a",
    ),
    "intervals": ('{"metrics": {"a": 1}, "protocol": {}, "intervals": [1]}', "interval"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign_files_are_one_line(case, tmp_path):
    content, message = FOREIGN[case]
    path = tmp_path / "x.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(types.UserError) as caught:
        comparison.read([path])
    text = str(caught.value)
    assert str(path) in text
    assert message in text
    assert "\n" not in text


def test_files_that_are_not_there_and_folders(tmp_path):
    with pytest.raises(types.UserError, match=r"cannot read .*gone\.json: No such file"):
        comparison.read([tmp_path / "gone.json"])
    with pytest.raises(types.UserError, match=r"is a folder; .* in its eval/"):
        comparison.read([tmp_path])
