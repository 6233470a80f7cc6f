"""The cells of the paper's tables: what is trained and measured for each, and what is published."""

import dataclasses
import functools
import shlex
from collections.abc import Iterator

from configs import longclip_l
from hnclip_jax import config
from hnclip_jax.evaluation import published

CONFIG = "configs/longclip_l.py"
METRICS = tuple(f"{way}_r@{k}" for way in ("t2i", "i2t") for k in (1, 5, 10))
"""What the paper prints of a cell, text to image first."""

TABLES = {
    "1": "methods fine-tuned from Long-CLIP-L",
    "2": "six hosts, without and with the boost",
    "A4": "as 2, all ranks",
    "3a": "gamma",
    "3b": "the components",
    "3c": "G of the live encoder, or of the frozen one",
    "A7": "trained on one set, measured on another (stands in one of A7 to A10)",
    "A9": "shares of the training data (stands in one of A7 to A10)",
}
"""Table -> what its cells show."""

NOT_READ = "not read"
_SOURCE = "HN-CLIP,"

_HOSTS = {
    "longclip": ("plain InfoNCE", "HN only"),
    "finelip": ("FineLIP", "FineLIP + HN"),
    "goal": ("GOAL", "GOAL + HN"),
    "structxlip": ("StructXLIP", "StructXLIP + HN"),
    "lora": ("LoRA r16", "LoRA r16 + HN"),
    "dora": ("DoRA r16", "DoRA r16 + HN"),
}
"""method= -> what published.json calls its rows without and with the boost."""

_IN_TABLE_1 = ("finelip", "goal", "structxlip")
_WITH_SHARES = {"goal": "GOAL", "": "HN-CLIP"}
_SHARES = (5, 20, 50)
_TRANSFERS = (("dci", "docci"), ("docci", "dci"), ("docci", "long_dci"))
_TRANSFERRED = {**{name: _HOSTS[name][0] for name in _IN_TABLE_1}, "": "HN-CLIP"}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run on one benchmark.

    id: of its own.
    train, test: words of longclip_l.SETS.
    words: of the config's argument, behind the set.
    tables: keys of TABLES.
    row: what is published; None = nothing that was read.
    replica: the same by another seed, where the paper has it.
    """

    id: str
    train: str
    test: str
    words: tuple[str, ...]
    tables: tuple[str, ...]
    row: published.Row | None
    replica: published.Row | None

    @property
    def argument(self) -> str:
        """What stands behind the colon of the config."""
        test = (f"test={self.test}",) * (self.test != self.train)
        return ",".join((self.train, *test, *self.words))

    @property
    def benchmark(self) -> str:
        """The registry's name of what is measured on."""
        return longclip_l.SETS[self.test].benchmark

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the published numbers."""
        return self.row.notes if self.row else ()

    @functools.cached_property
    def settings(self) -> config.Config:
        """The configuration of its run."""
        return config.from_config_dict(longclip_l.get_config(self.argument))

    def place(self) -> str:
        """Returns where the numbers stand, as far as that is known."""
        return f"{_tables(self.tables)} (numbers: {self.row.source if self.row else NOT_READ})"

    def published(self, metric: str) -> str:
        """Returns a number as it is printed, "?" behind it if it cannot be right."""
        if self.row is None or metric not in self.row.metrics:
            return NOT_READ
        mark = "?" if metric in self.row.doubtful else ""
        return f"{self.row.metrics[metric]:.{self.row.decimals}f}{mark}"

    def command(self, weights: str, out: str) -> str:
        """Returns the command line that trains and measures it.

        Args:
          weights: those to start from.
          out: folder of the runs.
        """
        train, test = longclip_l.SETS[self.train], longclip_l.SETS[self.test]
        words = (
            f"--config={CONFIG}:{self.argument}",
            f"--workdir={out}/{self.id}",
            f"--config.model.weights={weights}",
            f"--config.data.image_root={train.train_images}",
            f"--config.eval.image_root={test.test_images}",
        )
        return " ".join(["hnclip train", *map(shlex.quote, words)])


@functools.cache
def cells() -> tuple[Cell, ...]:
    """Returns every cell, in the order of the tables; each configuration and benchmark once."""
    found = (*_own(), *_hosts(), *_transfers(), *_shares())
    return tuple(cell for table in TABLES for cell in found if cell.tables[0] == table)


def of_table(name: str) -> tuple[Cell, ...]:
    """Returns the cells of a key of TABLES, all for ""."""
    return tuple(cell for cell in cells() if not name or name in cell.tables)


def _own() -> Iterator[Cell]:
    """HN-CLIP and its ablations."""
    for name in longclip_l.SETS:
        shared = ("A9",) * (name in ("docci", "dci"))
        yield _cell("hnclip", name, (), "HN-CLIP", ("1", "3a", "3b", "3c", *shared))
        yield _cell("gamma0", name, ("gamma=0",), "token loss only (gamma 0)", ("3a", "3b"))
        for gamma in ("0.25", "0.75", "1.0"):
            yield _cell(
                f"gamma{gamma}", name, (f"gamma={gamma}",), f"HN-CLIP, gamma {gamma}", ("3a",)
            )
        yield _cell("frozen", name, ("frozen",), "HN-CLIP, frozen text similarities", ("3c",))


def _hosts() -> Iterator[Cell]:
    for host, (plain, boosted) in _HOSTS.items():
        ablation = ("3b",) * (host == "longclip")
        for name in longclip_l.SETS:
            headline = ("1",) * (host in _IN_TABLE_1)
            shared = ("A9",) * (host in _WITH_SHARES and name in ("docci", "dci"))
            words = (f"method={host}",)
            yield _cell(host, name, words, plain, (*headline, "2", "A4", *ablation, *shared))
            yield _cell(f"{host}-hn", name, (*words, "hn"), boosted, ("2", "A4", *ablation))


def _transfers() -> Iterator[Cell]:
    for train, test in _TRANSFERS:
        for method, row in _TRANSFERRED.items():
            yield _cell(method or "hnclip", train, _method(method), row, ("A7",), test=test)


def _shares() -> Iterator[Cell]:
    for name in ("docci", "dci"):
        for method, row in _WITH_SHARES.items():
            for share in _SHARES:
                words = (*_method(method), f"data={share}")
                yield _cell(f"{method or 'hnclip'}-data{share}", name, words, row, ("A9",), share)


def _method(name: str) -> tuple[str, ...]:
    return (f"method={name}",) if name else ()


def _cell(
    name: str,
    train: str,
    words: tuple[str, ...],
    method: str,
    tables: tuple[str, ...],
    share: int = 100,
    test: str = "",
) -> Cell:
    test = test or train
    trained_on = longclip_l.SETS[train].trained_on
    trained_on = trained_on if share == 100 else f"{share} % of {trained_on}"
    benchmark = longclip_l.SETS[test].benchmark
    row, replica = (
        _row(benchmark, text, trained_on) for text in (method, f"{method}, second seed")
    )
    where = train if test == train else f"{train}-to-{test}"
    return Cell(f"{where}-{name}", train, test, words, tables, row, replica)


def _row(benchmark: str, method: str, trained_on: str) -> published.Row | None:
    wanted = (method, trained_on)
    for row in published.rows(benchmark):
        if (row.method, row.trained_on) == wanted and row.source.startswith(_SOURCE):
            return row
    return None


def _tables(names: tuple[str, ...]) -> str:
    *most, last = names
    return f"Tables {', '.join(most)} and {last}" if most else f"Table {last}"
