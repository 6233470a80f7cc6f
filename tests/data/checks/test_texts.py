"""Tokens of captions, what is equal once cut, and which captions cannot be used."""

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.data import tokenizer
from hnclip_jax.data.checks import captions, statistics, texts

TOKENIZE = tokenizer.default()


def test_tokens_count_begin_and_end():
    counted = texts.count(["a red kite", "", "2024"], TOKENIZE)
    # Every digit is a token of its own.
    assert [caption.tokens for caption in counted] == [5, 2, 6]


def test_equal_once_cut():
    long = [f"{'kite ' * 80}{end}" for end in ("red", "blue")]
    sides = texts.count([*long, "Kite", "kite"], TOKENIZE, (77, 248))
    cut = np.array([caption.cut for caption in sides])
    assert cut[0, 0] == cut[1, 0]
    assert cut[0, 1] != cut[1, 1]
    assert cut[0, 0] != cut[2, 0]
    assert (cut[2] == cut[3]).all()


@pytest.mark.parametrize("length", [74, 75, 76])
def test_the_last_word_that_counts(length):
    # At 77, 75 words stand between begin and end.
    one, other = (texts.count([f"{'a ' * (length - 1)}{w}"], TOKENIZE, (77,))[0] for w in "bc")
    assert (one.cut == other.cut) is (length > 75)
    assert one.tokens == length + 2


def test_repeated_captions_are_encoded_once():
    seen = []
    counted = texts.count(["a", "b b", "a"], TOKENIZE, progress=lambda *at: seen.append(at))
    assert [caption.tokens for caption in counted] == [3, 4, 3]
    assert seen[-1] == (2, 2)


@pytest.mark.parametrize(
    ("caption", "fault"),
    [
        ("a kite", ""),
        (" a ", ""),
        ("", "empty"),
        (" \n\u00a0", "empty"),
        (None, "empty"),
        (3, "no text"),
        (float("nan"), "no text"),
        (["a"], "no text"),
        ("half \ud83d", "broken text"),
        ("whole \U0001f600", ""),
    ],
)
def test_faults(caption, fault):
    assert texts.fault(caption) == fault


def test_figures():
    found = statistics.figures(np.arange(1, 102))
    assert found == (51, 51, 91, 96, 100, 1, 101)


@pytest.mark.parametrize(
    "values",
    [[5], [5, 6], [0, 1000], [77] * 9, [3, 28], [25, 567], range(10, 35), [60, 83], [2, 51, 49]],
)
@pytest.mark.parametrize("bins", [1, 24])
def test_bins_hold_every_value(values, bins):
    values = np.array(values)
    edges = statistics.edges(values, bins)
    assert np.histogram(values, edges)[0].sum() == len(values)
    assert edges[-1] > values.max()
    assert len({*np.diff(edges)}) == 1
    width = str(np.diff(edges)[0]).rstrip("0")
    assert width in ("1", "2", "5")
    # Round edges may need one bin more.
    assert len(edges) - 1 <= bins + 1


def test_bars():
    tokens = np.array([10] * 4 + [12] + [30] * 2)
    lines = statistics.bars(tokens, (12, 28, 248))
    rows = {line.split()[0]: line for line in lines}
    assert rows["10"].split()[3:] == ["4", "#" * 50]
    assert rows["12"].split("  ")[-1] == "<- cut at 12"
    assert rows["12"].count("#") == 13
    assert rows["30"].count("#") == 25
    assert "cut at 28" in rows["28"]
    assert rows["28"].count("#") == 0
    assert not any("248" in line for line in lines)


def test_the_table():
    words = ["a red kite", "1234"]
    lengths = statistics.lengths(words, texts.count(words, TOKENIZE))
    assert lengths.tokens.tolist() == [5, 6]
    assert lengths.words.tolist() == [3, 1]
    assert lengths.above((5, 6)) == {5: 0.5, 6: 0.0}
    text = lengths.text((5, 6))
    assert "2 captions" in text
    assert "above    5   50.0%          1 captions" in text


def test_captions_need_no_pictures(tmp_path):
    path = tmp_path / "list.json"
    path.write_text(
        '[{"filename": "gone.jpg", "caption": [" a ", "", null]},'
        ' {"filename": "b.jpg", "caption": 3}, {"filename": "c.jpg", "caption": "c"},'
        ' {"filename": "d.jpg", "caption": []}]'
    )
    found = captions.read(path)
    assert [(row.index, row.image, row.captions) for row in found.records] == [
        (0, "gone.jpg", ("a",)),
        (2, "c.jpg", ("c",)),
    ]
    assert found.left_out == 4


def test_one_of_several_splits(tmp_path):
    path = tmp_path / "list.jsonl"
    path.write_text(
        '{"image_file": "a.jpg", "description": "a", "split": "train"}\n'
        '{"image_file": "b.jpg", "description": "b", "split": "test"}\n'
    )
    assert [row.captions for row in captions.read(path, split="test").records] == [("b",)]
    with pytest.raises(types.UserError, match="several splits"):
        captions.read(path)


def test_no_captions(tmp_path):
    (tmp_path / "list.json").write_text('[{"filename": "a.jpg", "caption": " "}]')
    with pytest.raises(types.UserError, match="no row has a caption that can be used"):
        captions.read(tmp_path / "list.json")
