"""Zero-shot classification: a colour world with known embeddings, and hand-computed ensembles."""

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.evaluation import zeroshot

COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}
WORDS = {"a {}": (0.2, 0, 0), "so {} and dark": (-0.5, -0.5, -0.5)}


def see(colour):
    """What the picture tower of this world returns: the colour."""
    return np.array(colour, float)


def say(prompt):
    """What its text tower returns: the colour that is named, moved by the words around it."""
    name = next(name for name in COLOURS if name in prompt.split())
    return np.array(COLOURS[name]) + WORDS[prompt.replace(name, "{}")]


def test_every_colour_is_recognised():
    prompts = zeroshot.prompts([*COLOURS], [*WORDS])
    assert prompts[:3] == ["a red", "so red and dark", "a green"]
    ensemble = zeroshot.ensemble(np.stack([say(prompt) for prompt in prompts]), 4)
    pictures = np.stack([see(colour) for colour in COLOURS.values()])
    metrics = zeroshot.accuracy(pictures, ensemble, [0, 1, 2, 3])
    assert metrics == {"top1": 100.0, "top5": 100.0, "ties": 0}
    assert zeroshot.accuracy(pictures, ensemble, [1, 1, 2, 0])["top1"] == 50.0


def test_an_ensemble_by_hand():
    # Lengths of single sentences do not count: (3, 0) and (0, 1) are equally much.
    text = [[3, 0], [0, 1], [0, 2], [0, 5]]
    half = np.sqrt(0.5)
    np.testing.assert_allclose(zeroshot.ensemble(text, 2), [[half, half], [0, 1]], atol=1e-7)
    three = np.array([[3.0, 4], [4, 3], [10, 0]])
    mean = np.array([0.6 + 0.8 + 1, 0.8 + 0.6]) / 3
    found = zeroshot.ensemble(three, 1)
    np.testing.assert_allclose(found, [mean / np.hypot(*mean)], atol=1e-7)
    assert found.dtype == np.float32


def test_accuracy_against_sorting():
    rng = np.random.default_rng(0)
    image, text = rng.standard_normal((700, 9)), rng.standard_normal((300, 9))
    labels = np.argmax(image @ text.T + 4 * rng.standard_normal((700, 300)), axis=1)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (image, text)]
    best = np.argsort(-(unit[0] @ unit[1].T), axis=1)
    found = zeroshot.accuracy(image, text, labels)
    for k in (1, 5):
        hits = (best[:, :k] == labels[:, None]).any(axis=1)
        assert found[f"top{k}"] == pytest.approx(100 * hits.mean())
    assert 0 < found["top1"] < found["top5"] < 100


def test_two_classes_of_one_name_share_the_hits():
    text = np.eye(3)[[0, 0, 1]]
    found = zeroshot.accuracy(np.eye(3)[[0, 0, 1]], text, [0, 1, 2])
    assert found["top1"] == pytest.approx(100 * 2 / 3)
    assert found["ties"] == 2
    same = zeroshot.accuracy(np.ones((6, 3)), np.ones((8, 3)), np.arange(6))
    assert (same["top1"], same["top5"]) == pytest.approx((100 / 8, 100 * 5 / 8))


def test_length_of_a_picture_changes_nothing():
    rng = np.random.default_rng(1)
    image, text, labels = rng.standard_normal((50, 4)), np.eye(4), rng.integers(0, 4, 50)
    scaled = image * rng.uniform(0.01, 100, (50, 1))
    assert zeroshot.accuracy(scaled, text, labels) == zeroshot.accuracy(image, text, labels)


ERRORS = {
    "labels": (([[1, 0]], [[1, 0]], [0, 0]), r"labels are \[2\] for 1 pictures and 1 classes"),
    "a label too far": (([[1, 0]], [[1, 0]], [1]), "from 0"),
    "not finite": (([[np.nan, 0]], [[1, 0]], [0]), "1 of 1 image embeddings hold NaN"),
    "class not finite": (([[1, 0]], [[np.inf, 0]], [0]), "1 of 1 class embeddings hold NaN"),
}


@pytest.mark.parametrize(("arguments", "message"), list(ERRORS.values()), ids=list(ERRORS))
def test_what_does_not_fit_is_an_error(arguments, message):
    with pytest.raises(types.UserError, match=message):
        zeroshot.accuracy(*map(np.array, arguments))


def test_our_templates_take_one_name_each():
    assert len({*zeroshot.TEMPLATES}) == 8
    assert all(template.count("{}") == 1 for template in zeroshot.TEMPLATES)


def test_templates_of_a_file(tmp_path):
    path = tmp_path / "templates.txt"
    path.write_text("a {}.\n\n  é {} {{\n", encoding="utf-8")
    assert zeroshot.read_templates(path) == ("a {}.", "é {} {{")
    # Not str.format: other braces, and those of a name, are text.
    assert zeroshot.prompts(["{0}"], ["é {} {{"]) == ["é {0} {{"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a {}\na dog\n{} {}", r"2 of 3 lines do not have one \{\}.*a dog \| \{\} \{\}"),
        ("\n", "is empty"),
        (None, "cannot read"),
    ],
    ids=["no place", "empty", "gone"],
)
def test_templates_that_are_none(tmp_path, content, message):
    if content is not None:
        (tmp_path / "file").write_text(content)
    with pytest.raises(types.UserError, match=message):
        zeroshot.read_templates(tmp_path / "file")
