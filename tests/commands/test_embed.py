"""`hnclip embed`, and `hnclip eval` on what it wrote: the same result, or a reason why not."""

import json
import shutil

import numpy as np
import pytest

from hnclip_jax.data import images, lists, tokenizer


@pytest.fixture
def test_list(own_set):
    """A list of its own that a test may change; one picture has two captions."""
    path = own_set.parent / "test.json"
    rows = json.loads(path.read_text())
    rows[2]["caption"] = [rows[2]["caption"], "another text"]
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture
def embedded(hnclip, weights, test_list, tmp_path):
    ran = hnclip(
        "embed", f"--weights={weights[2]}", f"--data={test_list}", f"--out={tmp_path / 'e'}"
    )
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [str(tmp_path / "e")]
    return tmp_path / "e"


def test_the_arrays_are_the_model_s(embedded, weights, test_list):
    model, params, _ = weights
    records = lists.read(test_list).records
    pixels = np.stack([images.load_image(record.image, 24) for record in records])
    positions, captions = zip(*lists.pairs(records), strict=True)
    ids = tokenizer.default()(captions, 77).ids
    image, text = np.load(embedded / "image.npy"), np.load(embedded / "text.npy")
    np.testing.assert_allclose(image, model.encode_image(params, pixels), atol=1e-6)
    np.testing.assert_allclose(text, model.encode_text(params, ids), atol=1e-6)
    about = json.loads((embedded / "embeddings.json").read_text())
    assert about["text_to_image"] == list(positions)
    assert about["ids"] == [record.id for record in records]
    assert (about["queries"], {*about["groups"]}) == (None, {""})


def test_eval_gives_the_same_bit_for_bit(hnclip, embedded, weights, test_list, tmp_path):
    same = ["--bootstrap=50", "--bootstrap_seed=3", "--ks=1,7", "--map_k=4"]
    direct, kept = tmp_path / "direct.json", tmp_path / "kept.json"
    one = hnclip("eval", f"--weights={weights[2]}", f"--data={test_list}", f"--out={direct}", *same)
    two = hnclip("eval", f"--embeddings={embedded}", f"--out={kept}", *same)
    assert (one.code, two.code) == (0, 0), one.err + two.err
    assert one.out == two.out
    assert direct.read_bytes() == kept.read_bytes()


def test_a_list_that_changed_since_is_noticed(hnclip, embedded, test_list):
    content = test_list.read_text()
    test_list.write_text(content.replace("another text", "one more text"))
    ran = hnclip("eval", f"--embeddings={embedded}")
    assert f"{test_list} changed since it was embedded in {embedded}" in ran.one_line("eval")
    test_list.write_text(content)
    assert hnclip("eval", f"--embeddings={embedded}").code == 0


def test_where_pictures_or_list_are_gone_the_embeddings_do(hnclip, embedded, test_list):
    expected = hnclip("eval", f"--embeddings={embedded}").out
    shutil.rmtree(test_list.parent)
    ran = hnclip("eval", f"--embeddings={embedded}")
    assert ran.code == 0, ran.err
    assert "cannot compare the list with the one that was embedded" in ran.err
    assert ran.out == expected


def test_the_folder_holds_from_another_working_directory(
    hnclip, weights, test_list, tmp_path, monkeypatch
):
    monkeypatch.chdir(test_list.parent)
    words = [f"--weights={weights[2]}", "--data=test.json", "--out=e"]
    assert hnclip("embed", *words).code == 0
    monkeypatch.chdir(tmp_path)
    ran = hnclip("eval", f"--embeddings={test_list.parent / 'e'}")
    assert ran.code == 0, ran.err
    assert "cannot compare" not in ran.err


def test_an_older_folder_goes_only_if_told_so(hnclip, embedded, weights, test_list):
    words = [f"--weights={weights[2]}", f"--data={test_list}", f"--out={embedded}"]
    ran = hnclip("embed", *words)
    assert "already there" in ran.one_line("embed")
    assert "SHA-256" not in ran.err  # Said before anything was read.
    assert hnclip("embed", *words, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--weights=w", "--data=d"], "needs --weights, --data and --out; for example"),
        (["word"], "does not understand 'word'"),
    ],
    ids=["no out", "a word"],
)
def test_a_mistake_is_one_line(hnclip, words, part):
    assert part in hnclip("embed", *words).one_line("embed")
