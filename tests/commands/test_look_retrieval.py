"""`hnclip look retrieval`: who is chosen, what stands first, and that ranks are those of `eval`."""

import csv
import dataclasses
import json

import numpy as np
import pytest

from hnclip_jax.commands import embedding, sources
from hnclip_jax.data import lists
from hnclip_jax.evaluation import cache, retrieval


@pytest.fixture
def test_list(own_set):
    """A list of its own; one picture has three captions."""
    path = own_set.parent / "test.json"
    rows = json.loads(path.read_text())
    rows[2]["caption"] = [rows[2]["caption"], "another text", "one more"]
    path.write_text(json.dumps(rows))
    return path


def source(path):
    return dataclasses.asdict(sources.Source(str(path)))


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def keep(test_list, tmp_path):
    """Writes a folder of embeddings: (name, noise) -> path.

    The less noise, the more is found. Pictures 6 and 7 are the same vector: their captions tie.
    """
    found = lists.read(test_list)
    owner = lists.views(found.records)[1].positions

    def write(name, noise):
        rng = np.random.default_rng(5)
        image = rng.normal(size=(len(found.records), 8))
        text = image[owner] + noise * rng.normal(size=(len(owner), 8))
        image[7] = image[6]
        protocol = {"list": str(test_list), "list_sha256": found.sha256, "weights": name}
        ids = tuple(record.id for record in found.records)
        groups = ("",) * len(ids)
        embedded = cache.Embedded(unit(image), unit(text), owner, ids, groups, None, protocol)
        cache.write(tmp_path / name, embedded, **source(test_list))
        return tmp_path / name

    return write


@pytest.fixture
def look(hnclip, tmp_path):
    """Runs it on folders of embeddings: (folders, words) -> Ran; the files are in `figures`."""
    return lambda folders, *words: hnclip(
        "look",
        "retrieval",
        f"--embeddings={','.join(map(str, folders))}",
        f"--out={tmp_path / 'figures'}",
        *words,
    )


def read(tmp_path):
    folder = tmp_path / "figures"
    names = {"retrieval.png", "retrieval.json", "retrieval.csv"}
    assert {path.name for path in folder.iterdir()} == names
    with (folder / "retrieval.csv").open(newline="") as file:
        return json.loads((folder / "retrieval.json").read_text()), list(csv.DictReader(file))


def slow(folder, direction):
    """Rank of every query by plain loops, as the rule for ties says, and who is above it."""
    kept = cache.read(folder)[0]
    image, text = kept.image.astype(np.float64), kept.text.astype(np.float64)
    owner = kept.text_to_image
    ranks = []
    for row in range(len(text if direction == "t2i" else image)):
        if direction == "t2i":
            scores = np.float32(image @ text[row])
            right = np.arange(len(image)) == owner[row]
        else:
            scores, right = np.float32(text @ image[row]), owner == row
        best = max(scores[right])
        above, tied = sum(scores[~right] > best), sum(scores[~right] == best)
        ranks.append(1 + above + tied / (1 + sum(scores[right] == best)))
    return np.array(ranks)


def test_ranks_and_counts_are_those_of_recall_and_of_plain_loops(keep, look, tmp_path):
    folders = [keep("plain", 1.6), keep("hn", 0.7)]
    for direction in ("t2i", "i2t"):
        ran = look(folders, f"--direction={direction}", "--by=random", "--shown=3", "--top=3")
        assert ran.code == 0, ran.err
        numbers, table = read(tmp_path)
        ranks = [slow(folder, direction) for folder in folders]
        assert len(numbers["shown"]) == 3
        for one in numbers["shown"]:
            for model, by_loops in zip(one["models"], ranks, strict=True):
                assert model["rank"] == pytest.approx(by_loops[one["row"]])
        # A right one among the first k stands there as its rank says.
        for one in numbers["shown"]:
            for model in one["models"]:
                places = [place for place, item in enumerate(model["top"], 1) if item["right"]]
                if not model["tied"] and model["rank"] <= 3:
                    assert places[0] == model["rank"]
        fields, count = numbers["found"][direction], numbers["found"][direction]["queries"]
        recalls = []
        for folder in folders:
            kept = cache.read(folder)[0]
            metrics = retrieval.retrieval_metrics(kept.image, kept.text, kept.text_to_image)
            recalls.append(metrics[f"{direction}_r@1"])
        sums = [fields["both"] + fields["only A"], fields["both"] + fields["only B"]]
        np.testing.assert_allclose(np.array(sums) * 100 / count, recalls, atol=1e-9)
        assert fields["only B"] > fields["only A"]
        assert len(table) == len(numbers["shown"]) * 2 * 3
    assert "text to image" in ran.out
    assert "only B" in ran.out
    assert "A: " in ran.out


def test_with_two_models_those_that_b_rescues_are_shown(keep, look, tmp_path):
    folders = [keep("plain", 1.6), keep("hn", 0.7)]
    assert look(folders, "--shown=2", "--k=2", "--top=1").code == 0
    numbers, _ = read(tmp_path)
    a, b = (slow(folder, "t2i") for folder in folders)
    gains = sorted(
        (row for row in range(len(a)) if a[row] > 2 >= b[row] and a[row] % 1 == 0),
        key=lambda row: (b[row] - a[row], row),
    )
    whole = [row for row in gains if b[row] % 1 == 0]
    assert numbers["by"] == "rescued"
    assert [one["row"] for one in numbers["shown"]] == whole[:2]
    assert [model["model"].split(":")[0] for model in numbers["shown"][0]["models"]] == ["A", "B"]


def test_if_none_is_of_the_kind_the_line_says_how_many_are_of_which(keep, look, tmp_path):
    folder = keep("plain", 0.7)
    ran = look([folder, folder], "--by=lost")
    line = ran.one_line("look")
    assert "there is no query that A finds and B fails: of" in line
    assert "text to image" in ran.out
    assert not (tmp_path / "figures").exists()


def test_with_one_model_the_worst_are_shown(keep, look, tmp_path):
    folder = keep("plain", 1.6)
    ran = look([folder], "--direction=i2t", "--shown=3", "--top=2")
    assert ran.code == 0, ran.err
    numbers, table = read(tmp_path)
    ranks = slow(folder, "i2t")
    assert [one["models"][0]["rank"] for one in numbers["shown"]] == sorted(ranks)[::-1][:3]
    assert len(table) == 6
    assert "not found" in ran.out


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_the_hardest_have_the_nearest_companions(keep, look, tmp_path, direction):
    folder = keep("plain", 0.7)
    assert (
        look([folder], "--by=hardest", f"--direction={direction}", "--shown=3", "--top=1").code == 0
    )
    numbers, _ = read(tmp_path)
    kept = cache.read(folder)[0]
    cosines = kept.text.astype(np.float64) @ kept.text.T.astype(np.float64)
    owner = kept.text_to_image
    cosines[owner[:, None] == owner] = -np.inf
    nearest = cosines.max(axis=1)
    if direction == "i2t":
        nearest = np.array([nearest[owner == row].max() for row in range(len(kept.image))])
    # Two captions that are each other's nearest are equally hard: the first comes first.
    order = np.argsort(-np.float32(nearest), kind="stable")
    assert [one["row"] for one in numbers["shown"]] == order[:3].tolist()


def test_pictures_are_chosen_by_id_among_those_that_ask(keep, look, test_list, tmp_path):
    ids = [record.id for record in lists.read(test_list).records]
    folder = keep("plain", 0.7)
    assert look([folder], f"--ids={ids[3]},{ids[2]}", "--top=1").code == 0
    assert [one["row"] for one in read(tmp_path)[0]["shown"]] == [5, 2]
    assert look([folder], f"--ids={ids[3]},{ids[2]}", "--direction=i2t", "--top=1").code == 0
    assert [one["row"] for one in read(tmp_path)[0]["shown"]] == [3, 2]


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_only_pictures_that_ask_are_queries(keep, look, tmp_path, monkeypatch, direction):
    plain = sources.read

    def some_ask(*args, **options):
        found = plain(*args, **options)
        return found._replace(pictures=dataclasses.replace(found.pictures, queries=(5, 2, 6)))

    monkeypatch.setattr(sources, "read", some_ask)
    folder = keep("plain", 1.6)
    assert look([folder], f"--direction={direction}", "--shown=20", "--top=1").code == 0
    numbers, _ = read(tmp_path)
    # Picture 2 has rows 2 to 4, and those behind it are two rows further.
    rows = {"t2i": {2, 3, 4, 7, 8}, "i2t": {2, 5, 6}}[direction]
    assert {one["row"] for one in numbers["shown"]} == rows
    assert numbers["found"][direction]["queries"] == len(rows)
    ranks = slow(folder, direction)
    for one in numbers["shown"]:
        (model,) = one["models"]
        assert model["rank"] == pytest.approx(ranks[one["row"]])
        # Picture 7 is another one of the same vector, and caption 8 that of picture 6.
        assert model["tied"] == (direction == "t2i" and one["row"] == 8)


def test_the_lot_is_by_seed(keep, look, tmp_path):
    folder = keep("plain", 0.7)
    for seed in (0, 3):
        assert look([folder], "--by=random", f"--seed={seed}", "--shown=4", "--top=1").code == 0
        numbers, _ = read(tmp_path)
        lot = np.random.default_rng(seed).permutation(numbers["found"]["t2i"]["queries"])
        assert [one["row"] for one in numbers["shown"]] == lot[:4].tolist()


def test_unknown_ids_are_told_before_weights_are_loaded(hnclip, weights, test_list, monkeypatch):
    monkeypatch.setattr(embedding, "load", None)
    ran = hnclip("look", "retrieval", weights[2], f"--data={test_list}", "--ids=nobody")
    assert "nobody" in ran.one_line("look")


def test_two_lists_are_one_line(keep, look, test_list, tmp_path):
    first = keep("plain", 0.7)
    copy = test_list.with_name("other.json")
    copy.write_text(json.dumps(json.loads(test_list.read_text())[:-1]))
    found = lists.read(copy)
    kept = cache.read(first)[0]
    few = len(found.records)
    other = cache.Embedded(
        kept.image[:few],
        kept.text[: found.report.pairs],
        kept.text_to_image[: found.report.pairs],
        kept.ids[:few],
        kept.groups[:few],
        None,
        {**kept.protocol, "list": str(copy), "list_sha256": found.sha256},
    )
    cache.write(tmp_path / "other", other, **source(copy))
    line = look([first, tmp_path / "other"]).one_line("look")
    assert f"the two models are of two lists, {test_list} and {copy}; embed one list" in line


def test_weights_are_words(hnclip, weights, test_list, tmp_path):
    words = [weights[2], weights[2], f"--data={test_list}", f"--out={tmp_path / 'figures'}"]
    ran = hnclip("look", "retrieval", *words, "--by=worst", "--shown=1", "--top=1", "--k=5")
    assert ran.code == 0, ran.err
    numbers, _ = read(tmp_path)
    out = tmp_path / "result.json"
    assert hnclip("eval", f"--weights={weights[2]}", words[2], f"--out={out}").code == 0
    metrics = json.loads(out.read_text())["metrics"]
    for direction, found in numbers["found"].items():
        assert found["both"] / found["queries"] * 100 == pytest.approx(metrics[f"{direction}_r@5"])
        assert found["only A"] == found["only B"] == 0
    assert [one["provenance"]["list"] for one in numbers["models"]] == [str(test_list)] * 2
    assert numbers["models"][0]["weights"] == numbers["models"][1]["weights"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "needs one or two weights and one list in --data"),
        (["a", "b", "c", "--data=x"], "needs one or two weights"),
        (["a", "--data=x,y"], "one list in --data"),
        (["a", "--embeddings=b"], "needs one or two weights"),
        (["a", "--data=x", "--by=rescued"], "'rescued' queries are those of two models"),
        (["a", "--data=x", "--by=random", "--ids=q"], "--ids and --by both say"),
        (["a", "--data=x", "--k=0"], "flag --k=0"),
        (["a", "--data=x", "--name=."], "--name=. is no name"),
        (["a"], "needs both, weights and --data"),
    ],
    ids=lambda value: " ".join(value)[:24] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(hnclip, words, part):
    assert part in hnclip("look", "retrieval", *words).one_line("look")


def test_recall_of_the_room_agrees(keep):
    """The loops of this file against the room that counts ranks, so that either may be wrong."""
    folder = keep("plain", 1.6)
    kept = cache.read(folder)[0]
    measured = retrieval.measure(kept.image, kept.text, kept.text_to_image)
    for direction, found in measured.ranks.items():
        ranks = 1 + found.greater + found.equal / (found.right + 1)
        np.testing.assert_allclose(ranks, slow(folder, direction))
        assert (found.equal > 0).any() or direction == "i2t"
