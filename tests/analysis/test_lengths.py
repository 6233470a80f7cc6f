"""What the picture of caption lengths is made of, and that it is drawn."""

import sys
import types as module_types
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.analysis import lengths


@pytest.fixture
def page(monkeypatch):
    """A stand-in for matplotlib's Figure that remembers what is asked of it."""
    figure = mock.MagicMock()
    module = module_types.ModuleType("matplotlib")
    module.figure = module_types.ModuleType("matplotlib.figure")
    module.figure.Figure = mock.Mock(return_value=figure)
    monkeypatch.setitem(sys.modules, "matplotlib", module)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", module.figure)
    return figure


def test_all_captions_are_in_the_histogram(page, tmp_path):
    tokens = np.array([10, 80, 80, 300])
    lengths.draw(tokens, tmp_path / "lengths.png", (77, 248), title="list.json")
    axes = page.subplots.return_value
    (drawn,), options = axes.hist.call_args
    assert drawn.tolist() == tokens.tolist()
    assert np.histogram(tokens, options["bins"])[0].sum() == 4
    assert [call.args[0] for call in axes.axvline.call_args_list] == [77, 248]
    assert [call.args[0] for call in axes.annotate.call_args_list] == [
        "77: 75.0% above",
        "248: 25.0% above",
    ]
    assert axes.set.call_args.kwargs["title"] == "list.json"
    page.savefig.assert_called_once_with(tmp_path / "lengths.png", dpi=150)


def test_without_matplotlib_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for call in (lengths.check, lambda: lengths.draw(np.array([1]), tmp_path / "a.png")):
        with pytest.raises(types.UserError, match=r"pip install 'hnclip_jax\[plots\]'"):
            call()


def test_a_picture_is_drawn(tmp_path):
    lengths.draw(np.arange(40, 120), tmp_path / "lengths.png", (77,), title="list.json")
    with Image.open(tmp_path / "lengths.png") as image:
        pixels = np.asarray(image.convert("L"))
    assert min(pixels.shape) > 400
    assert 0.02 < np.mean(pixels < 200) < 0.9
