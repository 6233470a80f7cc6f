"""`hnclip compare`: the tables, the Markdown file, and mistakes in one line."""

import json

import pytest


@pytest.fixture
def results(tmp_path):
    """Two result files of DOCCI, the second better by more than chance."""
    paths = []
    for name, recall in (("plain", 86.45), ("hn", 88.31)):
        metrics = {"t2i_r@1": recall, "i2t_r@1": recall - 2, "ties": 0}
        protocol = {
            "list": "docci_test.json",
            "list_sha256": "a" * 64,
            "benchmark": "docci_goal",
            "pictures": 5100,
            "captions": 5100,
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"metrics": metrics, "protocol": protocol}))
        paths.append(path)
    return paths


def test_results_side_by_side(results, hnclip):
    ran = hnclip("compare", *results)
    assert ran.code == 0, ran.err
    assert "hn             88.31+" in ran.out
    assert "published" not in ran.out.lower()
    assert ran.err == ""


def test_published_rows_and_a_markdown_file(results, hnclip, tmp_path):
    out = tmp_path / "deep" / "comparison.md"
    ran = hnclip("compare", *results, "--published", f"--out={out}")
    assert ran.code == 0, ran.err
    assert "HN-CLIP (Long-CLIP ViT-L/14; DOCCI) [1]" in ran.out
    assert f"wrote {out}" in ran.err
    text = out.read_text()
    assert "| hn | 88.31+ |" in text
    assert "| HN-CLIP (Long-CLIP ViT-L/14; DOCCI) [1] | 88.25 |" in text


def test_mistakes_are_one_line(results, hnclip, tmp_path):
    assert "needs result files; for example: hnclip compare" in hnclip("compare").one_line(
        "compare"
    )
    (tmp_path / "broken.json").write_text("{")
    line = hnclip("compare", results[0], tmp_path / "broken.json").one_line("compare")
    assert "broken.json is no JSON file" in line
    line = hnclip("compare", results[0], f"--out={results[1]}/x.md").one_line("compare")
    assert "cannot write" in line


def test_the_example_is_understood(results, hnclip):
    ran = hnclip("compare", "--help")
    assert ran.code == 0
    assert "--published" in ran.out
    assert "hnclip compare plain.json hn.json" in ran.out
