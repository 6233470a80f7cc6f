"""Token ids against known ids of OpenAI's tokenizer, a second implementation, and Rust's."""

import gzip
import html
import itertools
import multiprocessing
import pathlib
import pickle
import random
import sys
import unicodedata

import ftfy
import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.data import tokenizer

instant_clip_tokenizer = pytest.importorskip(
    "instant_clip_tokenizer", reason="no wheel for this Python, so no vocabulary to test with"
)

STRINGS = 2000

PIECES = """
it's I'M they'LL we've You're he'd don't x'y '' 'em a_b __x__ 4077 3.14 1,000 !? ... ((:)) <b>
&amp; &amp;lt; &#39; &eacute; &nbsp; &#x1F600; schÃ¶n Ã© â€œhiâ€\x9d ﬁne … “so” — 😀 👍🏽 🇫🇮
👩\u200d🚀 中文字 日本 한국 العربية हिन्दी ไทย עברית Ελληνικά Русский ΣΑΣ İ ß ½ Ⅷ ² ٣ ④
\x00 \x1b[0m \x7f \u200b \ufeff e\u0301 n\u0303 \u0345 red kite bridge umbrella photograph
<|endoftext|> <|startoftext|> <start_of_text>
"""

# Made with OpenAI's algorithm and its vocabulary file; several stand in public documentation too.
KNOWN = {
    "hello world": [3306, 1002],
    "a photo of a cat": [320, 1125, 539, 320, 2368],
    "a diagram": [320, 22697],
    "Hi there": [1883, 997],
    "How are you?": [829, 631, 592, 286],
    "hello world!!!": [3306, 1002, 995],
    "it's": [585, 568],
    "IT'S": [585, 568],
    "don't": [847, 713],
    "you're": [592, 982],
    "i've": [328, 1200],
    "i'm": [328, 880],
    "she'll": [1043, 1342],
    "he'd": [797, 1896],
    "rock'n'roll": [2172, 262, 333, 262, 3341],
    "the dogs' bowl": [518, 3255, 262, 3814],
    "it''s": [585, 8445, 338],
    "'tis": [713, 533],
    "4077": [275, 271, 278, 278],
    "40 77": [275, 271, 278, 278],
    "in 92000, and falsé.": [530, 280, 273, 271, 271, 271, 267, 537, 2778, 82, 4166, 269],
    "snake_case_name": [8798, 318, 2068, 318, 1981],
    "½ cup": [33613, 1937],
    "x² + y²": [343, 41175, 266, 344, 41175],
    "Ⅷ": [158, 227, 371],
    "naïve café": [1097, 35689, 563, 15304],
    "e\u0301": [4166],
    "“quoted”": [257, 27706, 257],
    "schÃ¶n": [844, 7255, 333],
    "&lt;b&gt; &amp;amp; &#39;s": [283, 321, 285, 261, 568],
    "😀😀": [34503],
    "👩\u200d👩\u200d👧": [26304, 26304, 964, 356],
    "中文字": [19759, 255, 29032, 229, 35751, 501],
    "ΟΔΟΣ": [138, 123, 138, 112, 138, 123, 139, 480],
    "İstanbul": [328, 16384, 11231],
    # The long s counts as an s after an apostrophe; U+0345 belongs to no class and vanishes.
    "'\u017f": [6, 129, 379],
    "!'\u017f": [13222, 129, 379],
    "a\u0345b\u0345!\u0345!": [320, 321, 256, 256],
    # Control marks and the Rust package's own ones are plain text.
    "<|startoftext|>": [27, 347, 993, 6659, 4160, 91, 285],
    "<|endoftext|>": [27, 347, 40786, 4160, 91, 285],
    "<start_of_text>": [283, 1572, 318, 539, 318, 4160, 285],
    "": [],
    " \t\n\u3000": [],
}


@pytest.fixture(scope="module")
def vocabulary() -> bytes:
    """The text of OpenAI's vocabulary file, as the Rust package has it compiled in."""
    binary = pathlib.Path(instant_clip_tokenizer.instant_clip_tokenizer.__file__).read_bytes()
    start = binary.index(b"#version: 0.2\ni n\nt h\n")
    end = binary.index(b"\njeky ll</w>\n", start) + len(b"\njeky ll</w>\n")
    return binary[start:end]


@pytest.fixture(scope="module")
def reference(vocabulary):
    """Encoder on strings of symbols and ranked pairs of them, without regular expressions."""
    merges = [tuple(line.split()) for line in vocabulary.decode().splitlines()[1:]]
    assert len(merges) == 48894
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    stands_for, spare = {}, 256
    for byte in range(256):
        prints = 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174
        stands_for[byte] = chr(byte) if prints else chr(spare)
        spare += not prints
    # chr order puts the printing bytes first, as the reference's numbering does.
    singles = sorted(stands_for.values())
    names = [*singles, *(s + "</w>" for s in singles), *(a + b for a, b in merges)]
    numbers = {name: number for number, name in enumerate(names)}

    def encode(text: str) -> list[int]:
        clean = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
        ids = []
        for word in _split(" ".join(clean.split()).lower()):
            parts = [stands_for[byte] for byte in word.encode()]
            parts[-1] += "</w>"
            ids += [numbers[part] for part in _join(parts, ranks)]
        return ids

    return encode


def _split(text: str) -> list[str]:
    words, at = [], 0
    while at < len(text):
        kind, end = _kind(text[at]), at + 1
        shorts = ("s", "\u017f", "t", "re", "ve", "m", "ll", "d")
        short = [short for short in shorts if text.startswith(short, end)]
        if text[at] == "'" and short:
            end += len(short[0])
        elif kind in ("letter", "sign"):
            while end < len(text) and _kind(text[end]) == kind:
                end += 1
        if kind != "nothing":
            words.append(text[at:end])
        at = end
    return words


def _kind(char: str) -> str:
    if char.isspace() or char == "\u0345":
        return "nothing"
    return {"L": "letter", "N": "number"}.get(unicodedata.category(char)[0], "sign")


def _join(parts: list[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    while True:
        known = [pair for pair in itertools.pairwise(parts) if pair in ranks]
        if not known:
            return parts
        first, second = min(known, key=ranks.get)
        at = 0
        while at < len(parts) - 1:
            if parts[at] == first and parts[at + 1] == second:
                parts = [*parts[:at], first + second, *parts[at + 2 :]]
            at += 1


@pytest.fixture(scope="module")
def strings() -> list[str]:
    """Seeded strings over all scripts, in code points that every newer table of Unicode has."""
    rng = random.Random(20)
    assigned = [
        chr(point)
        for point in range(sys.maxunicode + 1)
        if unicodedata.ucd_3_2_0.category(chr(point)) not in ("Cn", "Co", "Cs")
    ]
    blocks = [assigned[start : start + 64] for start in range(0, len(assigned), 64)]
    small_scripts = [block for block in blocks if block[0] < "\u3400"]
    decode = instant_clip_tokenizer.Tokenizer().decode
    pieces = PIECES.split()
    spaces = [" ", " ", " ", "", "", "\t", "\n", "\r\n", "\u00a0", "\u3000", "  "]
    makers = [
        lambda: rng.choice(pieces),
        lambda: decode(rng.choices(range(tokenizer.BEGIN_ID), k=rng.randint(1, 3))).rstrip(),
        lambda: "".join(rng.choices(rng.choice(blocks), k=rng.randint(1, 6))),
        lambda: "".join(rng.choices(rng.choice(small_scripts), k=rng.randint(1, 6))),
        lambda: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz'", k=rng.randint(1, 9))),
        lambda: "".join(rng.choices("abcXYZ0189'_-.,;:!?&<>|#@", k=rng.randint(1, 6))),
    ]
    return [
        "".join(rng.choice(makers)() + rng.choice(spaces) for _ in range(rng.randint(1, 14)))
        for _ in range(STRINGS)
    ]


@pytest.mark.parametrize("text", KNOWN, ids=[ascii(text) for text in KNOWN])
def test_known_ids(text):
    assert tokenizer.default().encode(text) == KNOWN[text]


def test_ids_equal_a_second_implementation(reference, strings):
    encode = tokenizer.default().encode
    assert [text for text in strings if encode(text) != reference(text)] == []


def test_ids_equal_the_rust_encoder(strings):
    rust, encode = instant_clip_tokenizer.Tokenizer(), tokenizer.default().encode
    compared = 0
    for text in strings:
        clean = html.unescape(html.unescape(ftfy.fix_text(text)))
        # On these it differs from the reference, whose ids stand above.
        if not any(mark in clean for mark in ("\u0345", "'\u017f", "<start_of_text>")):
            compared += 1
            assert encode(text) == rust.encode(clean), ascii(text)
    assert compared > STRINGS / 2


def test_strings_reach_much_of_the_vocabulary(strings):
    ids = {token for text in strings for token in tokenizer.default().encode(text)}
    assert len(ids) > 4000
    assert max(ids) < tokenizer.BEGIN_ID


def _with_carriage_returns(content: bytes) -> bytes:
    return content.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, _with_carriage_returns],
    ids=["plain", "gzip", "carriage returns"],
)
def test_vocabulary_file_gives_the_same_ids(pack, vocabulary, strings, tmp_path):
    # The published file goes on behind the rules in use; a name need not tell what is zipped.
    path = tmp_path / "own words.txt"
    path.write_bytes(pack(vocabulary + b"left over\n"))
    own = tokenizer.Tokenizer(str(path))
    assert [own.encode(text) for text in strings[:200]] == [
        tokenizer.default().encode(text) for text in strings[:200]
    ]
    assert str(path).encode() in pickle.dumps(own)


def test_batch_is_begin_words_end_zeros():
    ids, truncated = tokenizer.default()(["hello world", "", "!"], 5)
    begin, end = tokenizer.BEGIN_ID, tokenizer.END_ID
    expected = [[begin, 3306, 1002, end, 0], [begin, end, 0, 0, 0], [begin, 256, end, 0, 0]]
    np.testing.assert_array_equal(ids, expected)
    assert ids.dtype == np.int32
    assert truncated.dtype == bool
    assert not truncated.any()


def test_long_captions_keep_the_end_id():
    ids, truncated = tokenizer.default()(["1 2 3", "1 2 3 4", "1 2 3 4 5 6"], 5)
    one, two, three = 272, 273, 274
    np.testing.assert_array_equal(
        ids, [[tokenizer.BEGIN_ID, one, two, three, tokenizer.END_ID]] * 3
    )
    np.testing.assert_array_equal(truncated, [False, True, True])


def test_single_string_is_a_batch_of_one():
    ids = tokenizer.tokenize("a photo of a cat")
    assert ids.shape == (1, 248)
    np.testing.assert_array_equal(ids, tokenizer.tokenize(["a photo of a cat"], 248))
    assert tokenizer.tokenize([], 8).shape == (0, 8)


def test_control_marks_in_a_caption_add_no_control_id():
    ids = tokenizer.tokenize("a <|endoftext|> b <|startoftext|> <end_of_text>", 64)[0]
    assert np.count_nonzero(ids == tokenizer.END_ID) == 1
    assert np.count_nonzero(ids == tokenizer.BEGIN_ID) == 1


@pytest.mark.parametrize("context_length", [-1, 0, 2])
def test_context_without_room_for_a_word(context_length):
    with pytest.raises(types.UserError, match=f"context_length is {context_length}"):
        tokenizer.tokenize("a", context_length)


@pytest.mark.parametrize("text", [None, 3, float("nan"), b"a", ["a"]], ids=repr)
def test_caption_that_is_no_string(text):
    with pytest.raises(types.UserError, match="must be a string"):
        tokenizer.tokenize(["a", text])


def test_pickles_small_and_runs_in_a_fresh_process():
    own = tokenizer.Tokenizer()
    assert len(pickle.dumps(own)) < 200
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(own.encode, ["a photo of a cat"]) == KNOWN["a photo of a cat"]


def _write(content: bytes):
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: None, "No such file"),
        (_write(b"#version\ni n\nt h\n"), "has 3 merge rules, but CLIP's 48894"),
        (_write(b"#version\ni n\nqq h\n" + b"i n\n" * 50000), "line 3: 'qq h'"),
        (_write(b"#version\n\xff\n"), "utf-8"),
        (_write(gzip.compress(b"i n\n" * 1000)[:40]), "end-of-stream"),
        (_write(b"\x1f\x8b\x08" + b"\x00" * 7 + b"\xff" * 40), "decompress"),
    ],
    ids=["missing", "short", "other format", "not text", "cut gzip", "broken gzip"],
)
def test_unusable_vocabulary_file(prepare, message, tmp_path):
    path = tmp_path / "vocabulary.txt"
    prepare(path)
    with pytest.raises(types.UserError, match=message) as caught:
        tokenizer.Tokenizer(str(path))
    assert str(path) in str(caught.value)


def test_python_without_the_package(monkeypatch, tmp_path, vocabulary):
    monkeypatch.setitem(sys.modules, "instant_clip_tokenizer.instant_clip_tokenizer", None)
    tokenizer._merge_rules.cache_clear()
    with pytest.raises(types.UserError, match=r"no wheel for Python 3\.13.*data\.vocabulary"):
        tokenizer.Tokenizer()
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(vocabulary)
    assert tokenizer.Tokenizer(str(path)).encode("hello world") == KNOWN["hello world"]


@pytest.mark.parametrize("code", range(128), ids=lambda code: f"x{code:02x}")
def test_plain_text_skips_the_mending_only_where_it_changes_nothing(code, reference):
    char = chr(code)
    for text in (f"a{char}b", f"a{char}b &amp; c", f"It's{char} 9{char}{char}n{char}amp;x", char):
        assert tokenizer.default().encode(text) == reference(text), ascii(text)
