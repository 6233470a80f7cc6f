"""Pictures and tokens per second, beside what one would run otherwise, as two tables.

    python -m tools.bench_data --pictures=512

Pictures: JPEGs like photographs, drawn into a temporary folder, to 224 x 224 uint8 batches. The
torch DataLoader runs the reference transform with Pillow: shorter side by bicubic, centre crop.
Processes are started before the clock. Tokens: made-up captions of about 120 words, whose words
are as unequally frequent as real ones. What is measured takes turns, and the best of all rounds
counts, because others may use the machine, too. Needs torch and transformers.
"""

import dataclasses
import itertools
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import transformers
from absl import app, flags
from PIL import Image

from hnclip_jax.data import lists, pack, pipeline, tokenizer
from hnclip_jax.models import presets
from hnclip_jax.weights import huggingface_files

_PICTURES = flags.DEFINE_integer("pictures", 512, "JPEGs to draw", lower_bound=32)
_CAPTIONS = flags.DEFINE_integer("captions", 2000, "captions to make up", lower_bound=1)
_WIDTH = flags.DEFINE_integer("width", 640, "pixels", lower_bound=16)
_HEIGHT = flags.DEFINE_integer("height", 480, "pixels", lower_bound=16)
_SIZE = flags.DEFINE_integer("size", 224, "pixels of the batches", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 32, "pictures", lower_bound=1)
_WORKERS = flags.DEFINE_list("workers", ["1", "2"], "numbers of processes")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "of which the best counts", lower_bound=1)
_SECONDS = flags.DEFINE_float("seconds", 2.0, "of each measurement, at least", lower_bound=0.1)

_CONTEXT = 248


class PillowSet(torch.utils.data.Dataset):
    """What users of torch write: files, and the reference transform."""

    def __init__(self, paths: list[str], size: int) -> None:
        """Remembers both."""
        self._paths, self._size = paths, size

    def __len__(self) -> int:
        """Returns the number of pictures."""
        return len(self._paths)

    def __getitem__(self, row: int) -> torch.Tensor:
        """Returns [size, size, 3] uint8."""
        with Image.open(self._paths[row]) as opened:
            image = opened.convert("RGB")
        scale = self._size / min(image.size)
        width, height = (max(self._size, int(side * scale)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = round((width - self._size) / 2), round((height - self._size) / 2)
        crop = image.crop((left, top, left + self._size, top + self._size))
        return torch.from_numpy(np.array(crop))


class Endless(torch.utils.data.Sampler):
    """Epoch after epoch, so that torch keeps its processes."""

    def __init__(self, count: int) -> None:
        """Remembers how many there are."""
        self._count = count

    def __iter__(self) -> Iterator[int]:
        """Yields numbers, each epoch in another order."""
        while True:
            yield from torch.randperm(self._count).tolist()


def main(argv: list[str]) -> None:
    """Prints the tables."""
    del argv
    with tempfile.TemporaryDirectory(prefix="bench-data-") as folder:
        print(f"{os.cpu_count()} cores\n", flush=True)
        _tell_pictures(pathlib.Path(folder))
        _tell_tokens(folder)


def _tell_pictures(folder: pathlib.Path) -> None:
    paths = list(_draw(folder))
    records = tuple(lists.Record(at, path, ("A picture.",)) for at, path in enumerate(paths))
    report = lists.Report(len(paths), len(paths), 0, 0, 0)
    listed = lists.PictureList(records, report, str(folder), "")
    files = pack.read(pack.write(listed, folder / "files"))
    cropped = pack.read(pack.write(listed, folder / "cropped", size=_SIZE.value))
    ways: dict[str, Callable[[int], Iterator]] = {
        "torch DataLoader, Pillow": lambda workers: _torch(paths, workers),
        "hnclip, list": lambda workers: _ours(listed, workers),
        "hnclip, packed": lambda workers: _ours(files, workers),
        "hnclip, packed ready-cropped": lambda workers: _ours(cropped, workers),
    }
    counts = [int(word) for word in _WORKERS.value]
    best: dict[tuple[str, int], float] = dict.fromkeys(itertools.product(ways, counts), 0.0)
    for _ in range(_ROUNDS.value):
        for way, workers in best:
            best[way, workers] = max(best[way, workers], _pictures_per_s(ways[way](workers)))
    size = np.mean([os.path.getsize(path) for path in paths]) / 1e3
    print(f"{len(paths)} JPEGs of {_WIDTH.value} x {_HEIGHT.value}, {size:.0f} kB, in batches of")
    print(f"{_BATCH.value} x {_SIZE.value} x {_SIZE.value}; pictures per second\n")
    print(f"{'processes':<32}" + "".join(f"{count:>18}" for count in counts))
    for way in ways:
        cells = [
            f"{best[way, count]:>9,.0f} {best[way, count] / best['hnclip, list', count]:>5.1f} x "
            for count in counts
        ]
        print(f"{way:<32}" + "".join(cells))
    print("\n(x the list of hnclip)\n", flush=True)


def _draw(folder: pathlib.Path) -> Iterator[str]:
    """Writes JPEGs with soft shapes and some grain, as photographs have; yields their paths."""
    rng = np.random.default_rng(0)
    for index in range(_PICTURES.value):
        few = rng.integers(0, 256, (_HEIGHT.value // 16, _WIDTH.value // 16, 3), dtype=np.uint8)
        soft = Image.fromarray(few).resize((_WIDTH.value, _HEIGHT.value), Image.Resampling.BICUBIC)
        grain = np.asarray(soft) + rng.normal(0, 6, (_HEIGHT.value, _WIDTH.value, 3))
        path = folder / f"{index:06d}.jpg"
        Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        yield str(path)


def _torch(paths: list[str], workers: int) -> Iterator:
    loader = torch.utils.data.DataLoader(
        PillowSet(paths, _SIZE.value),
        batch_size=_BATCH.value,
        sampler=Endless(len(paths)),
        num_workers=workers,
        drop_last=True,
    )
    yield from loader


def _ours(pictures: lists.PictureList, workers: int) -> Iterator:
    load = pipeline.LoadImage([record.image for record in pictures.records], _SIZE.value)
    return pipeline.training(
        load, len(pictures.records), seed=0, batch_size=_BATCH.value, workers=workers
    )


def _pictures_per_s(batches: Iterator) -> float:
    for _ in range(4):
        next(batches)
    began, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < _SECONDS.value or done < 16:
        next(batches)
        done += 1
    batches.close()
    return done * _BATCH.value / passed


def _tell_tokens(folder: str) -> None:
    vocabulary = tokenizer.vocabulary()
    numbers = dataclasses.asdict(presets.get("LongCLIP-L"))
    for name, content in huggingface_files.sidecars(numbers, "float32", vocabulary).items():
        pathlib.Path(folder, name).write_text(content, encoding="utf-8")
    fast = transformers.CLIPTokenizerFast.from_pretrained(folder)
    captions = _captions(vocabulary, _CAPTIONS.value)
    ours = tokenizer.Tokenizer()
    options = {"padding": "max_length", "truncation": True, "max_length": _CONTEXT}
    ways: dict[str, Callable[[], object]] = {
        "transformers fast, one by one": lambda: [fast(text, **options) for text in captions],
        "transformers fast, all at once": lambda: fast(captions, **options),
        "hnclip, one by one": lambda: [ours(text, _CONTEXT) for text in captions],
        "hnclip, all at once": lambda: ours(captions, _CONTEXT),
        "hnclip, words seen first": lambda: tokenizer.Tokenizer()(captions, _CONTEXT),
    }
    tokens = int(np.count_nonzero(ours(captions, _CONTEXT).ids))
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(_ROUNDS.value):
        for way, run in ways.items():
            began = time.perf_counter()
            run()
            best[way] = min(best[way], time.perf_counter() - began)
    print(f"{len(captions)} captions of {tokens / len(captions):.0f} tokens; tokens per second\n")
    reference = min(seconds for way, seconds in best.items() if way.startswith("transformers"))
    for way, seconds in best.items():
        print(f"{way:<32}{tokens / seconds:>12,.0f} {reference / seconds:>5.1f} x ")
    print("\n(x the faster way of transformers)")


def _captions(vocabulary: tokenizer.Vocabulary, count: int) -> list[str]:
    """Returns texts of words of the vocabulary, in sentences; one in fifty is not plain ASCII."""
    words = [word[:-4] for word in vocabulary.symbols if word.endswith("</w>")]
    words = [word for word in words if word.isascii() and word.isalpha()]
    rng = np.random.default_rng(0)
    rng.shuffle(words)
    # Zipf's law: the word of rank r comes 1 / r times as often as the first.
    shares = 1 / np.arange(1, len(words) + 1)
    texts = []
    for index in range(count):
        drawn = rng.choice(len(words), 120, p=shares / shares.sum())
        marks = rng.choice(["", "", "", "", "", "", "", ",", "."], 120)
        text = " ".join(words[word] + mark for word, mark in zip(drawn, marks, strict=True))
        texts.append(f"{text.capitalize()}." if index % 50 else f"“{text}” — café.")
    return texts


if __name__ == "__main__":
    app.run(main)
