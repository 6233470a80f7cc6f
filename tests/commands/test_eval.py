"""`hnclip eval`: lists, packed folders and benchmarks by name; and mistakes."""

import dataclasses
import json
from unittest import mock

import jax
import pytest

from hnclip_jax import pretrained
from hnclip_jax.data import benchmarks, lists, pack
from hnclip_jax.models import dual_encoder


@pytest.fixture(scope="module")
def weights(small_config, tmp_path_factory):
    model = dual_encoder.create(small_config)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(1)))
    return pretrained.save(tmp_path_factory.mktemp("w") / "w", model, params)


def evaluate(hnclip, weights, tmp_path, *words):
    """The result file and what the command printed."""
    out = tmp_path / "result.json"
    ran = hnclip("eval", f"--weights={weights}", f"--out={out}", *words)
    assert ran.code == 0, ran.err
    return json.loads(out.read_text()), ran


def test_a_list_gives_recall_at_five_depths_and_precision(hnclip, weights, drawn, tmp_path):
    found, ran = evaluate(hnclip, weights, tmp_path, f"--data={drawn[1]}")
    names = [*(f"r@{k}" for k in (1, 5, 10, 25, 50)), "map@10", "median_rank"]
    assert [*found["metrics"]] == [*(f"{d}_{n}" for d in ("t2i", "i2t") for n in names), "ties"]
    assert "intervals" not in found
    assert found["protocol"]["benchmark"] is None
    assert found["protocol"]["relevance"] == "pair"
    assert ran.out.splitlines()[1].split() == (
        ["direction", "R@1", "R@5", "R@10", "R@25", "R@50", "mAP@10", "median"]
    )


def test_intervals_are_shown_and_written_and_a_seed_gives_the_same(
    hnclip, weights, drawn, tmp_path
):
    words = [f"--data={drawn[1]}", "--bootstrap=40", "--ks=1"]
    found, ran = evaluate(hnclip, weights, tmp_path, *words, "--bootstrap_seed=1")
    again, _ = evaluate(hnclip, weights, tmp_path, *words, "--bootstrap_seed=1")
    other, _ = evaluate(hnclip, weights, tmp_path, *words, "--bootstrap_seed=2")
    assert again == found
    assert other["intervals"] != found["intervals"]
    assert other["metrics"] == found["metrics"]
    low, high = found["intervals"]["t2i_r@1"]
    assert f"{found['metrics']['t2i_r@1']:.2f} ±{(high - low) / 2:.2f}" in ran.out
    assert found["protocol"]["interval"].endswith("40 samples, seed 1")


def test_devices_and_batches_change_no_result(hnclip, weights, drawn):
    words = ["eval", f"--weights={weights}", f"--data={drawn[1]}"]
    one, many = hnclip(*words, "--batch_size=5", devices=1), hnclip(*words, "--batch_size=16")
    assert (one.code, many.code) == (0, 0), one.err + many.err
    assert one.out == many.out


def test_a_packed_list_gives_the_same(hnclip, weights, drawn, tmp_path):
    pack.write(lists.read(drawn[1]), tmp_path / "packed")
    one, _ = evaluate(hnclip, weights, tmp_path, f"--data={drawn[1]}")
    two, _ = evaluate(hnclip, weights, tmp_path, f"--data={tmp_path / 'packed'}")
    assert two["metrics"] == one["metrics"]
    assert two["protocol"]["list_sha256"] == one["protocol"]["list_sha256"]
    assert two["protocol"]["content_sha256"] == one["protocol"]["content_sha256"]


@pytest.fixture
def small_benchmark(drawn):
    """The drawn test set as a benchmark of which half of the pictures ask."""
    real = lists.read(drawn[1])
    asking = tuple(range(0, len(real.records), 2))
    given = []

    def load(name, source, **options):
        given.append((name, source, options))
        found = lists.read(source, missing=options["missing"])
        queries = tuple(range(0, len(found.records), 2))
        found = dataclasses.replace(found, queries=queries)
        return found, None if benchmarks.misfit(name, found) else name

    size = (len(real.records),)
    entry = dataclasses.replace(
        benchmarks.REGISTRY["urban1k"], pictures=size, captions=size, queries=len(asking)
    )
    with (
        mock.patch.dict(benchmarks.REGISTRY, {"urban1k": entry}),
        mock.patch.object(benchmarks, "load", load),
    ):
        yield given


def test_a_benchmark_by_name(hnclip, weights, drawn, tmp_path, small_benchmark):
    words = ["--data=urban1k", f"--root={drawn[1]}", "--image_root=x"]
    found, ran = evaluate(hnclip, weights, tmp_path, *words)
    assert found["protocol"]["benchmark"] == "urban1k"
    assert ran.out.startswith("urban1k: 16 captions, 16 pictures; of these ask 8 captions, 8 pic")
    assert (found["protocol"]["t2i_queries"], found["protocol"]["t2i_gallery"]) == (8, 16)
    name, source, options = small_benchmark[0]
    assert (name, source) == ("urban1k", str(drawn[1]))
    assert options["image_root"].endswith("/x")


def test_a_part_of_a_benchmark_keeps_its_result_and_loses_its_name(
    hnclip, weights, own_set, tmp_path, small_benchmark
):
    path = own_set.parent / "test.json"
    rows = json.loads(path.read_text())
    (path.parent / rows[3]["filename"]).unlink()
    words = ["--data=urban1k", f"--root={path}", "--missing=skip"]
    found, ran = evaluate(hnclip, weights, tmp_path, *words)
    assert found["protocol"]["benchmark"] is None
    assert found["metrics"]["t2i_r@50"] == 100
    assert "not called urban1k: 15 pictures instead of 16" in ran.err
    assert "urban1k" not in ran.out


def test_a_benchmark_of_another_size_loses_its_name(
    hnclip, weights, own_set, tmp_path, small_benchmark
):
    path = own_set.parent / "test.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:12]))
    found, ran = evaluate(hnclip, weights, tmp_path, "--data=urban1k", f"--root={path}")
    assert found["protocol"]["benchmark"] is None
    assert "not called urban1k: 12 pictures instead of 16" in ran.err


MISTAKES = {
    "nothing": ([], "needs --weights and --data, or --embeddings; for example"),
    "no data": (["--weights=x"], "needs --weights and --data, or --embeddings"),
    "a word": (["word"], "does not understand 'word'"),
    "ks": (["--weights=x", "--data=y", "--ks=1,b"], "--ks=1,b are no whole numbers"),
    "k of 0": (["--weights=x", "--data=y", "--ks=0"], "ks is (0,)"),
    "no embeddings": (["--embeddings=gone"], "no embeddings in gone"),
    "both": (["--embeddings=gone", "--dtype=bfloat16"], "--dtype does not go with --embeddings"),
    "a colour": (["--weights=x", "--data=y", "--transparency=z"], "'z' is no colour"),
}


@pytest.mark.parametrize(("words", "part"), list(MISTAKES.values()), ids=list(MISTAKES))
def test_a_mistake_is_one_line(hnclip, words, part):
    assert part in hnclip("eval", *words).one_line("eval")


def test_data_that_is_not_there(hnclip, weights):
    ran = hnclip("eval", f"--weights={weights}", "--data=urban1k")
    assert "benchmark urban1k needs its folder" in ran.one_line("eval")
    ran = hnclip("eval", f"--weights={weights}", "--data=urban1", "--root=gone")
    assert "did you mean 'urban1k'?" in ran.one_line("eval")
    ran = hnclip("eval", f"--weights={weights}", "--data=gone.json")
    assert "cannot read list" in ran.one_line("eval")
