"""Made runs over made pictures: what the report page is measured and tested on, without training.

Nothing was learned: the weights are random, and the numbers of the logs follow smooth curves with
noise. The files are those of real runs.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator

import jax
import numpy as np
from PIL import Image

from hnclip_jax import config, pretrained
from hnclip_jax.models import dual_encoder, presets

SMALL = presets.ModelConfig(
    vision_width=16,
    vision_layers=1,
    vision_heads=2,
    vision_mlp_width=32,
    patch_size=8,
    text_width=16,
    text_layers=1,
    text_heads=2,
    text_mlp_width=32,
    embed_dim=8,
    image_size=24,
    context_length=77,
)
"""A model that embeds in no time."""

_WORDS = (
    "a", "small", "red", "blue", "yellow", "striped", "round", "old", "wooden", "kite", "tree",
    "house", "boat", "bench", "dog", "stands", "hangs", "near", "behind", "under", "left", "of",
    "the", "with", "and", "two",
)  # fmt: skip
_STEPS = 600
_EVERY = 10
_QUERIES = ("t2i", "i2t")


def write(
    folder: pathlib.Path,
    *,
    runs: int = 3,
    pictures: int = 600,
    size: tuple[int, int] = (640, 480),
    benchmark: str | None = None,
    prefix: str = "",
) -> list[pathlib.Path]:
    """Returns the folders of made runs; their test list lies beside them.

    Args:
      folder: there already.
      runs: how many; they differ in gamma and seed.
      pictures: of the test list.
      size: of these pictures, width and height in pixels.
      benchmark: what the result files call the list; None = nothing.
      prefix: what every caption begins with.
    """
    rng = np.random.default_rng(0)
    test = _list(folder, pictures, size, rng, prefix)
    digest = sha256(test)
    made = []
    for number in range(runs):
        path = folder / f"run_{number}"
        _run(path, number, test)
        _metrics(path, number, rng)
        for step in (_STEPS // 2, _STEPS):
            _result(path, number, step, test, digest, pictures, benchmark)
        _weights(path, number, test, digest, pictures)
        made.append(path)
    return made


def caption(rng: np.random.Generator, words: int = 60) -> str:
    """Returns a made caption."""
    return " ".join(rng.choice(_WORDS, words)).capitalize() + "."


def sha256(path: pathlib.Path) -> str:
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _list(
    folder: pathlib.Path,
    count: int,
    size: tuple[int, int],
    rng: np.random.Generator,
    prefix: str,
) -> pathlib.Path:
    (folder / "photos").mkdir()
    rows = []
    for number in range(count):
        name = f"photos/{number:04d}.jpg"
        Image.fromarray(_picture(rng, size)).save(folder / name, quality=90)
        rows.append({"filename": name, "caption": prefix + caption(rng)})
    path = folder / "test.json"
    path.write_text(json.dumps(rows))
    return path


def _picture(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Returns [height, width, 3] uint8: soft fields of colour with the grain of a photograph."""
    width, height = size
    coarse = rng.integers(0, 256, (5, 7, 3), np.uint8)
    soft = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC), np.float32)
    grain = rng.normal(0, 8, (height, width, 1))
    return np.clip(soft + grain, 0, 255).astype(np.uint8)


def _run(path: pathlib.Path, number: int, test: pathlib.Path) -> None:
    settings = config.Config()
    settings = dataclasses.replace(
        settings,
        data=dataclasses.replace(settings.data, train="train.json"),
        model=dataclasses.replace(settings.model, init="random", preset="tiny"),
        loss=dataclasses.replace(settings.loss, gamma=0.25 * number),
        train=dataclasses.replace(settings.train, steps=_STEPS, seed=number, global_batch_size=16),
        eval=dataclasses.replace(settings.eval, data=str(test), every_steps=_STEPS // 2),
        log=dataclasses.replace(settings.log, every_steps=_EVERY),
    )
    path.mkdir()
    (path / "config.json").write_text(config.to_json(settings) + "\n")


def _metrics(path: pathlib.Path, number: int, rng: np.random.Generator) -> None:
    lines = [json.dumps(line) for line in _lines(number, rng)]
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _lines(number: int, rng: np.random.Generator) -> Iterator[dict]:
    for step in range(_EVERY, _STEPS + 1, _EVERY):
        left = float(np.exp(-step / (150 + 40 * number)))
        noise = rng.normal(0, 0.02, 4)
        yield {
            "step": step,
            "train/loss": 0.3 * number + 3 * left + abs(float(noise[0])),
            "train/info_nce": 3 * left + abs(float(noise[1])),
            "train/solved_plain": 1 - left,
            "train/scale": 14 + 60 * (1 - left) - 10 * number,
            "train/g_mean": 0.8 * left + float(noise[2]),
            "train/g_hardest": 0.9 - 0.1 * number * (1 - left) + float(noise[3]) / 4,
            "gradients/norm_info_nce": 2 * left**3 if step % 50 else 0.0,
            "gradients/norm_global": "inf" if step == 20 else left,
        }
        if step % (_STEPS // 2) == 0:
            yield {"step": step, **{f"eval/{name}_r@1": _recall(number, step) for name in _QUERIES}}


def _recall(number: int, step: int) -> float:
    return 40.0 + 3 * number + (8.0 if step == _STEPS else 0.0)


def _result(path, number, step, test, digest, pictures, benchmark) -> None:
    metrics = {
        f"{name}_r@{k}": min(_recall(number, step) + 6 * k, 100.0)
        for name in _QUERIES
        for k in (1, 5, 10)
    }
    protocol = {
        "benchmark": benchmark,
        "list": str(test),
        "list_sha256": digest,
        "pictures": pictures,
        "captions": pictures,
        "devices": "1 x cpu",
        "versions": {"hnclip_jax": "0.1.0"},
        "step": step,
    }
    (path / "eval").mkdir(exist_ok=True)
    content = {"metrics": metrics, "protocol": protocol}
    (path / "eval" / f"step_{step:08d}.json").write_text(json.dumps(content))


def _weights(path, number, test, digest, pictures) -> None:
    model = dual_encoder.create(SMALL)
    rng = np.random.default_rng(number)
    params = jax.tree.map(
        lambda leaf: rng.normal(0, 0.5, leaf.shape).astype(np.float32), model.abstract_params()
    )
    params["logit_scale"] = np.full_like(params["logit_scale"], np.log(20))
    note = {
        "step": _STEPS,
        "list": str(test),
        "list_sha256": digest,
        "pairs": pictures,
        "start": {"weights": "random"},
    }
    pretrained.save(path / "weights", model, params, note=note)
