"""The vocabulary in words: the ids that it gives are those of the tokenizer."""

import pickle

import pytest

from hnclip_jax import types
from hnclip_jax.data import tokenizer


@pytest.fixture(scope="module")
def bundled():
    """The installed package's vocabulary."""
    return tokenizer.vocabulary()


def test_every_id_has_its_own_symbol(bundled):
    assert len(bundled.symbols) == len(set(bundled.symbols)) == 49408
    assert len(bundled.merges) == 48894
    assert bundled.symbols[-2:] == ("<|startoftext|>", "<|endoftext|>")
    assert bundled.symbols[tokenizer.END_ID] == "<|endoftext|>"


# From public vocab.json files of CLIP.
PUBLISHED = {
    "!": 0,
    "~": 93,
    "¡": 94,
    "ÿ": 187,
    "Ā": 188,
    "Ń": 255,
    "!</w>": 256,
    "a</w>": 320,
    "Ń</w>": 511,
    "in": 512,
    "th": 513,
    "hello</w>": 3306,
    "world</w>": 1002,
    "cat</w>": 2368,
    "photo</w>": 1125,
    "diagram</w>": 22697,
    "<|startoftext|>": 49406,
}


@pytest.mark.parametrize("symbol", PUBLISHED)
def test_published_ids(bundled, symbol):
    assert bundled.symbols[PUBLISHED[symbol]] == symbol


def test_each_merge_makes_the_next_symbol(bundled):
    made = [merge.replace(" ", "") for merge in bundled.merges]
    assert made == list(bundled.symbols[512:-2])
    assert bundled.merges[:2] == ("i n", "t h")
    assert bundled.merges[-1] == "jeky ll</w>"


@pytest.mark.parametrize("text", ["a photo of a cat", "naïve café, 3.14!", "中文字 😀"])
def test_symbols_of_encoded_text_spell_it(bundled, text):
    # Bytes that do not print stand as letters from U+0100 on, in the order of the bytes.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in plain]
    letters |= {chr(256 + index): byte for index, byte in enumerate(others)}
    ids = tokenizer.default().encode(text)
    spelled = "".join(bundled.symbols[token] for token in ids).replace("</w>", "")
    assert bytes(letters[letter] for letter in spelled).decode() == text.replace(" ", "")


def test_a_file_gives_the_same_vocabulary(bundled, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\r\n".join(["#version", *bundled.merges, "left over"]), encoding="utf-8")
    assert tokenizer.vocabulary(str(path)) == bundled


def test_it_travels_to_other_processes(bundled):
    assert pickle.loads(pickle.dumps(bundled)) == bundled


def test_a_pair_that_makes_no_new_symbol_is_refused(bundled, tmp_path):
    merges = list(bundled.merges)
    merges[2] = merges[0]
    path = tmp_path / "words.txt"
    path.write_text("\n".join(["#version", *merges, ""]), encoding="utf-8")
    message = r"words.txt, line 4: 'i n' does not join two earlier symbols to a new one"
    with pytest.raises(types.UserError, match=message):
        tokenizer.vocabulary(str(path))
    with pytest.raises(types.UserError, match=message):
        tokenizer.Tokenizer(str(path))
