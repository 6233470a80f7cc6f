"""What the picture of caption lengths is made of, and that it is drawn."""

import numpy as np
from PIL import Image

from hnclip_jax.analysis import lengths, page


def test_all_captions_are_in_the_histogram(monkeypatch, tmp_path):
    kept = []
    monkeypatch.setattr(page, "save", lambda drawn, path: kept.append(drawn))
    lengths.draw(np.array([10, 80, 80, 300]), tmp_path / "a.png", (77, 248), title="list.json")
    (axes,) = kept[0].axes
    assert sum(bar.get_height() for bar in axes.patches) == 4
    assert [line.get_xdata()[0] for line in axes.lines] == [77, 248]
    assert [text.get_text() for text in axes.texts] == ["77: 75.0% above", "248: 25.0% above"]
    assert axes.get_title() == "list.json"


def test_a_picture_is_drawn(tmp_path):
    lengths.draw(np.arange(40, 120), tmp_path / "lengths.png", (77,), title="list.json")
    with Image.open(tmp_path / "lengths.png") as image:
        pixels = np.asarray(image.convert("L"))
    assert min(pixels.shape) > 400
    assert 0.02 < np.mean(pixels < 200) < 0.9
