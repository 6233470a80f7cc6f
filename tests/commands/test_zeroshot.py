"""`hnclip zeroshot`: from weights and a tree of pictures to top-1, nothing in between wrong."""

import hashlib
import json

import numpy as np
import pytest
from PIL import Image

from hnclip_jax.data import images, tokenizer
from hnclip_jax.evaluation import zeroshot

COLOURS = ("red", "green", "blue", "white", "black", "pink", "orange")


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """A folder per colour, two pictures each of other shapes."""
    folder = tmp_path_factory.mktemp("colours")
    for number, colour in enumerate(COLOURS):
        (folder / "val" / colour).mkdir(parents=True)
        for size in ((30, 24), (25, 40)):
            picture = Image.new("RGB", size, colour)
            picture.paste("grey", (0, 0, 3 + number, 5))
            picture.save(folder / "val" / colour / f"{size[0]}.png")
    return folder


def expected(weights, colours, templates, names):
    """Top-k by the model alone, sentence by sentence, and numpy."""
    model, params, _ = weights
    files = sorted((colours / "val").glob("*/*.png"))
    pixels = np.stack([images.load_image(file, 24) for file in files])
    labels = [sorted(COLOURS).index(file.parent.name) for file in files]
    image = np.asarray(model.encode_image(params, pixels))
    rows = []
    for name in names:
        ids = tokenizer.default()([t.replace("{}", name) for t in templates], 77).ids
        rows.append(np.asarray(model.encode_text(params, ids)).mean(axis=0))
    text = np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True)
    best = np.argsort(-(image @ text.T), axis=1)
    return {
        f"top{k}": 100
        * np.mean([label in row[:k] for label, row in zip(labels, best, strict=True)])
        for k in (1, 5)
    }


def test_top_1_and_top_5_are_those_of_the_model(hnclip, weights, colours, tmp_path):
    out = tmp_path / "deep" / "result.json"
    ran = hnclip("zeroshot", f"--weights={weights[2]}", f"--data={colours}", f"--out={out}")
    assert ran.code == 0, ran.err
    found = json.loads(out.read_text())
    assert found["metrics"].pop("ties") == 0
    assert found["metrics"] == pytest.approx(
        expected(weights, colours, zeroshot.TEMPLATES, sorted(COLOURS))
    )
    top1, top5 = found["metrics"]["top1"], found["metrics"]["top5"]
    assert ran.out.splitlines() == [
        "14 pictures, 7 classes, 8 sentences each",
        f"top-1 {top1:.2f}  top-5 {top5:.2f}  ties 0",
    ]
    about = found["protocol"]
    assert about["templates"] == list(zeroshot.TEMPLATES)
    assert (about["pictures"], about["classes"], about["truncated_prompts"]) == (14, 7, 0)
    assert about["weights_sha256"] == hashlib.sha256(weights[2].read_bytes()).hexdigest()
    assert about["image_transform"] == "shorter side to 24, Pillow bicubic, centre crop"
    assert about["data"] == str(colours / "val")


def test_templates_and_names_by_file(hnclip, weights, colours, tmp_path):
    templates = ("a scene in {}.", "{} " + "word " * 90)
    names = [f"the colour {colour}" for colour in sorted(COLOURS)]
    (tmp_path / "templates").write_text("\n".join(templates))
    lines = zip(sorted(COLOURS), names, strict=True)
    (tmp_path / "names").write_text("".join(f"{key}\t{name}\n" for key, name in lines))
    out = tmp_path / "result.json"
    ran = hnclip(
        "zeroshot",
        f"--weights={weights[2]}",
        f"--data={colours}",
        f"--templates={tmp_path / 'templates'}",
        f"--classes={tmp_path / 'names'}",
        f"--out={out}",
    )
    assert ran.code == 0, ran.err
    found = json.loads(out.read_text())
    assert found["metrics"].pop("ties") == 0
    stripped = [template.strip() for template in templates]
    assert found["metrics"] == pytest.approx(expected(weights, colours, stripped, names))
    assert found["protocol"]["truncated_prompts"] == 7
    assert "2 sentences each" in ran.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--data=x"], "needs --weights and --data; for example"),
        (["--weights=x", "--data=gone"], "gone is no folder"),
        (["--weights=x", "--data={}", "--templates=gone"], "cannot read gone"),
        (["--weights=gone", "--data={}"], "no weights at gone"),
        (["twice"], "does not understand 'twice'"),
    ],
    ids=["no weights named", "no data", "no templates", "no weights", "a word"],
)
def test_a_mistake_is_one_line(hnclip, colours, words, part):
    ran = hnclip("zeroshot", *(word.format(colours) for word in words))
    assert part in ran.one_line("zeroshot")
