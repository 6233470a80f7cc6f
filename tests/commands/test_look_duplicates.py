"""`hnclip look duplicates`: from weights or embeddings to a picture and its numbers."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from hnclip_jax.commands import sources
from hnclip_jax.data import lists, tokenizer
from hnclip_jax.evaluation import cache


@pytest.fixture
def test_list(own_set):
    """A list of its own; one picture has two captions, and two have the same one."""
    path = own_set.parent / "test.json"
    rows = json.loads(path.read_text())
    rows[2]["caption"] = [rows[2]["caption"], "another text with $x$ \U0001f600"]
    rows[4]["caption"] = rows[5]["caption"]
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture
def embedded(test_list, tmp_path):
    """A folder of embeddings of the list, as `hnclip embed` writes it; text alone matters."""
    found = lists.read(test_list)
    owner = lists.views(found.records)[1].positions
    text = np.random.default_rng(1).normal(size=(len(owner), 6)).astype(np.float32)
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    ids = tuple(record.id for record in found.records)
    protocol = {"list": str(test_list), "list_sha256": found.sha256, "weights": "none"}
    image = np.ones((len(ids), 6), np.float32)
    kept = cache.Embedded(image, text, owner, ids, ("",) * len(ids), None, protocol)
    source = dataclasses.asdict(sources.Source(str(test_list)))
    cache.write(tmp_path / "e", kept, **source)
    return tmp_path / "e"


@pytest.fixture
def look(hnclip, embedded, tmp_path):
    """Runs it on the embeddings: words -> Ran; the files are in `figures`."""
    words = (f"--embeddings={embedded}", f"--out={tmp_path / 'figures'}")
    return lambda *more: hnclip("look", "duplicates", *words, *more)


def read(tmp_path, name="duplicates"):
    folder = tmp_path / "figures"
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{e}" for e in ("png", "json", "csv")
    }
    with (folder / f"{name}.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    return json.loads((folder / f"{name}.json").read_text()), table, folder / f"{name}.png"


def cosines_of(text, path):
    """The list's captions, and cosines of all of them in float64; those of one pair are -inf."""
    records = lists.read(path).records
    text = np.asarray(text, np.float64)
    cosines = text @ text.T
    pairs = lists.pair_ids(records)
    cosines[pairs[:, None] == pairs] = -np.inf
    return [text for _, text in lists.pairs(records)], cosines


def check(shown, count, captions, cosines):
    """Checks that companions are the nearest captions, and of the hardest captions."""
    nearest = [one["companions"][0]["cosine"] for one in shown]
    assert nearest[0] == pytest.approx(cosines.max(), abs=1e-5)
    assert nearest == sorted(nearest, reverse=True)
    for one in shown:
        assert one["caption"] == captions[one["row"]]
        best = np.sort(cosines[one["row"]])[::-1][:count]
        found = [other["cosine"] for other in one["companions"]]
        np.testing.assert_allclose(found, best, atol=1e-5)
        for other in one["companions"]:
            assert other["caption"] == captions[other["row"]]
            assert other["cosine"] == pytest.approx(cosines[one["row"], other["row"]], abs=1e-5)


def test_the_hardest_are_written_and_drawn(look, embedded, test_list, tmp_path):
    ran = look("--shown=3", "--companions=2")
    assert ran.code == 0, ran.err
    numbers, table, picture = read(tmp_path)
    paths = [str(picture.with_suffix(f".{ending}")) for ending in ("png", "json", "csv")]
    assert ran.err.splitlines()[-1] == f"wrote {', '.join(paths)}"
    captions, cosines = cosines_of(np.load(embedded / "text.npy"), test_list)
    assert (numbers["by"], numbers["captions"]) == ("hardest", len(captions))
    assert numbers["data"].endswith("/test")
    assert len(numbers["provenance"]["list_sha256"]) == 64
    assert (len(numbers["shown"]), len(table)) == (3, 6)
    check(numbers["shown"], 2, captions, cosines)
    with Image.open(picture) as image:
        assert image.width > 700


def test_weights_embed_the_captions(hnclip, weights, test_list, tmp_path):
    words = [f"--weights={weights[2]}", f"--data={test_list}", f"--out={tmp_path / 'figures'}"]
    ran = hnclip("look", "duplicates", *words, "--shown=2", "--companions=1")
    assert ran.code == 0, ran.err
    numbers, _, _ = read(tmp_path)
    model, params, _ = weights
    captions = [text for _, text in lists.pairs(lists.read(test_list).records)]
    text = model.encode_text(params, tokenizer.default()(captions, 77).ids)
    check(numbers["shown"], 1, *cosines_of(text, test_list))


def test_pictures_are_chosen_by_id_in_that_order(look, test_list, tmp_path):
    records = lists.read(test_list).records
    ran = look(f"--ids={records[5].id},{records[2].id}", "--name=mine", "--shown=1")
    assert ran.code == 0, ran.err
    numbers, _, _ = read(tmp_path, "mine")
    assert numbers["by"] == "ids"
    # Record 2 has rows 2 and 3; its first caption is meant.
    assert [(one["picture"], one["row"]) for one in numbers["shown"]] == [(5, 6), (2, 2)]
    # Record 4 has the same caption as 5: that is no companion.
    assert 4 not in [other["picture"] for other in numbers["shown"][0]["companions"]]


def test_random_ones_are_drawn_by_the_seed(look, tmp_path):
    lots = []
    for seed in (3, 3, 4):
        ran = look("--by=random", f"--seed={seed}", "--shown=2", "--companions=1")
        assert ran.code == 0, ran.err
        numbers = read(tmp_path)[0]
        assert (numbers["by"], numbers["seed"]) == ("random", seed)
        lots.append([one["row"] for one in numbers["shown"]])
    assert lots[0] == lots[1] != lots[2]


def test_a_broken_picture_is_a_line_and_the_rest_is_drawn(look, test_list, tmp_path):
    records = lists.read(test_list).records
    with open(records[3].image, "wb") as file:
        file.write(b"no picture")
    ran = look(f"--ids={records[3].id}")
    assert ran.code == 0, ran.err
    lines = [line for line in ran.err.splitlines() if "cannot decode" in line]
    assert lines == [
        f"cannot decode picture {records[3].image}: the content is no picture format that Pillow "
        "knows; an empty box stands for it"
    ]
    read(tmp_path)


def test_when_no_pair_is_left_it_says_so(look, tmp_path):
    ran = look("--shown=9", "--companions=9")
    assert ran.code == 0, ran.err
    numbers, _, _ = read(tmp_path)
    assert len(numbers["shown"]) < 9
    assert f"only {len(numbers['shown'])} captions: no pair of captions is shown twice" in ran.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["word"], "does not understand 'word'; for example"),
        (["--ids=nobody"], "no picture of the list has the id 'nobody'"),
        (["--ids=a", "--by=random"], "--ids and --by both say what is shown; leave one out"),
        ([f"--ids={','.join(map(str, range(21)))}"], "names 21 pictures; at most 20"),
        (["--data=a,b"], "--data names several; duplicates are those of one"),
        (["--weights=a,b"], "--weights names several"),
        (["--embeddings=a,b"], "--embeddings names several"),
        (["--weights=a"], "needs weights and --data, or --embeddings"),
        (["--shown=0"], "flag --shown=0"),
        (["--companions=21"], "flag --companions=21"),
        (["--name=a/b"], "--name=a/b is no name of a file"),
    ],
    ids=lambda value: value[0][:12] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(look, words, part, tmp_path):
    assert part in look(*words).one_line("look")
    assert not (tmp_path / "figures").exists()
