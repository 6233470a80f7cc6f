"""The paper's runs: Long-CLIP-L fine-tuned by HN-CLIP, and by what it is compared with.

    hnclip train --config=configs/longclip_l.py:docci --workdir=runs/docci \
        --config.model.weights=PATH --config.data.image_root=docci/images \
        --config.eval.image_root=docci/images
    hnclip train --config=configs/longclip_l.py:docci,method=goal,hn --workdir=runs/docci_goal_hn \
        --config.model.weights=PATH --config.data.image_root=docci/images \
        --config.eval.image_root=docci/images

The argument is a set, then words with commas between. `python -m tools.paper list` prints the
command and the published numbers of every cell of the paper's tables; docs/paper.md tells more.

    docci dci long_dci urban1k    what is trained and measured on (long_dci trains on dci's list)
    method=clip          HN-CLIP, the paper's own method; as if left out
    method=longclip      plain fine-tuning, which the paper calls Long-CLIP (no short captions)
    method=finelip goal structxlip lora dora     its other hosts
    hn                   the boost in the global term; on for clip, off for the hosts; hn=off
    tokens               the word-patch term; on for clip with hn, else off; tokens=off
    gamma=0.25           of the boost, 0.5 if left out
    frozen               G from the text encoder as it was at the start
    data=20              percent of the training pairs; smaller shares lie within larger ones
    seed=43              42 if left out
    test=long_dci        measured on another set than the trained one

Lists and weights are not part of this repository. SETS names the lists of each set;
--config.data.train and --config.eval.root say where they are instead. GOAL reads its own list with
segments; StructXLIP a list with edge maps, of one's own making. `model.weights` are Long-CLIP-L's.

As arXiv 2608.18521, section 3.1 and appendix D, states it: AdamW, cosine, 10 epochs, 128 pairs as 8
micro-batches of 16, gamma 0.5, lambda 1, pictures at 224, 248 tokens; rates of 2e-6 (clip,
longclip), 1e-6 and 2e-4 for the module (finelip), 5e-6 (goal, structxlip), 5e-5 (lora, dora, of
rank 16 with the towers frozen). The boost enters a host's global term and nothing else.

Not stated there, and taken so here: no warm-up; batch and epochs of the hosts as of HN-CLIP;
negatives from the micro-batch; weight decay 0.01, of goal and structxlip 0.05 as they were
released, of adapters none; s trained and at most 100, of structxlip exp(3.5) as released, of
adapters kept; adapters of alpha 16 on all kernels of attention and MLP; bfloat16; G without
limits. FineLIP's released code has no global term, so method=finelip has none, and with hn it gets
one. GOAL and StructXLIP mean what their papers say; method.goal_mode and method.structxlip_mode
"as_released" repeat their code.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_collections

from hnclip_jax import config, types


class Set(NamedTuple):
    """What is trained on and what is measured on.

    trained_on: what the paper calls the training set.
    pairs: in the paper's training list.
    lists: training list of most methods, GOAL's with segments, StructXLIP's with edge maps.
    train_images: folder of the training pictures, as the commands of tools/paper.py have it.
    benchmark: of the registry.
    root: its published list or folder.
    test_images: folder of its pictures.
    """

    trained_on: str
    pairs: int
    lists: tuple[str, str, str]
    train_images: str
    benchmark: str
    root: str
    test_images: str


_DCI = Set(
    "DCI",
    5_445,
    ("DCI_train_del_org.json", "DCI_segment_sim_bbox_del_org.json", "dci_structure.json"),
    "densely_captioned_images/photos",
    "dci_goal",
    "DCI_test.json",
    "densely_captioned_images/photos",
)
SETS = {
    "docci": Set(
        "DOCCI",
        9_450,
        ("docci_train_del_org.json", "docci_segment_sim_bbox_del_org.json", "docci_structure.json"),
        "docci/images",
        "docci_goal",
        "docci_test.json",
        "docci/images",
    ),
    "dci": _DCI,
    "long_dci": _DCI._replace(benchmark="long_dci_hn", root="DCI_train_del_org.json,DCI_test.json"),
    "urban1k": Set(
        "VG paragraphs",
        14_579,
        ("vg_paragraphs_train.json", "vg_paragraphs_segments.json", "vg_paragraphs_structure.json"),
        "visual_genome",
        "urban1k",
        "Urban1k",
        "Urban1k/image",
    ),
}
"""First word -> what it means. Names of lists are GOAL's where it has published them."""

_ADAPTER = {"optim.lr": 5e-5, "optim.weight_decay": 0.0, "optim.freeze_logit_scale": True}
METHODS: dict[str, dict[str, Any]] = {
    "clip": {},
    "longclip": {},
    "finelip": {"method.name": "finelip", "optim.lr": 1e-6, "optim.method_lr": 2e-4},
    "goal": {"method.name": "goal", "optim.lr": 5e-6, "optim.weight_decay": 0.05},
    "structxlip": {
        "method.name": "structxlip",
        "optim.lr": 5e-6,
        "optim.weight_decay": 0.05,
        "optim.max_logit_scale": math.exp(3.5),
    },
    "lora": {"method.adapter": "lora", **_ADAPTER},
    "dora": {"method.adapter": "dora", **_ADAPTER},
}
"""method= -> the settings in which it differs from plain fine-tuning."""

_LIST_OF = {"goal": 1, "structxlip": 2}


def get_config(arg: str = "docci") -> ml_collections.ConfigDict:
    """Returns the settings that the words of `arg` ask for.

    Raises:
      types.UserError: for a word that is not known, has no such value, or contradicts another.
    """
    name, words = _read(arg)
    method = words.get("method", "clip")
    hn = words.get("hn", method == "clip")
    tokens = words.get("tokens", method == "clip" and hn)
    for word in ("gamma", "frozen"):
        if words.get(word) and not hn:
            raise _wrong(f"{word} is of the boost, which is off; add hn", arg)

    c = config.defaults()
    c.data.train = SETS[name].lists[_LIST_OF.get(method, 0)]
    c.data.fraction = words.get("data", 100.0) / 100
    test = SETS[words.get("test", name)]
    c.eval.data, c.eval.root = test.benchmark, test.root
    # Where they lie is for the command line to say.
    c.model.weights = ""
    c.model.preset = "LongCLIP-L"
    # Stops a run from weights with fewer positions; OpenAI's ViT-L/14 needs model.stretch=248.
    c.model.context_length = 248
    c.model.dtype = "bfloat16"
    c.loss.kind = "frozen" if words.get("frozen") else "hn_clip"
    c.loss.gamma = words.get("gamma", 0.5) if hn else 0.0
    c.loss.token_weight = 1.0 if tokens else 0.0
    c.method.adapter_rank, c.method.adapter_alpha = 16, 16.0
    c.method.global_weight = 0.0 if method == "finelip" and not hn else 1.0
    c.optim.lr = 2e-6
    c.update_from_flattened_dict(METHODS[method])
    c.train.epochs = 10
    c.train.global_batch_size = 128
    c.train.micro_batches = 8
    c.train.seed = words.get("seed", 42)
    c.train.save_every_steps = 500
    c.eval.every_epochs = 1
    return c


def _read(arg: str) -> tuple[str, dict[str, Any]]:
    """Returns the set and the value of every word that follows it."""
    name, *rest = arg.split(",")
    if name not in SETS:
        raise types.unknown_name("set, as first word of configs/longclip_l.py:", name, SETS)
    words: dict[str, Any] = {}
    for part in rest:
        word, equals, value = part.partition("=")
        if word not in _WORDS:
            raise types.unknown_name("word of configs/longclip_l.py:", word, _WORDS)
        if word in words:
            raise _wrong(f"{word} stands twice", arg)
        words[word] = _WORDS[word](word, value if equals else None, arg)
    return name, words


def _switch(word: str, value: str | None, arg: str) -> bool:
    if value not in (None, "on", "off"):
        raise _wrong(f"{word}={value} is neither {word}, {word}=on nor {word}=off", arg)
    return value != "off"


def _one_of(valid: dict[str, Any]) -> Callable[[str, str | None, str], str]:
    def read(word: str, value: str | None, arg: str) -> str:
        if value not in valid:
            raise types.unknown_name(f"value of {word}= in {arg!r}:", value or "", valid)
        return value

    return read


def _number(kind: type, low: float, high: float) -> Callable[[str, str | None, str], float]:
    def read(word: str, value: str | None, arg: str) -> float:
        try:
            number = kind(value or "")
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            what = "a whole number" if kind is int else "a number"
            raise _wrong(f"{word}={value or ''} is not {what} from {low:,} to {high:,}", arg)
        return number

    return read


def _wrong(what: str, arg: str) -> types.UserError:
    return types.UserError(f"configs/longclip_l.py:{arg}: {what}")


_WORDS = {
    "method": _one_of(METHODS),
    "hn": _switch,
    "tokens": _switch,
    "gamma": _number(float, -10, 10),
    "frozen": _switch,
    "data": _number(float, 0.1, 100),
    "seed": _number(int, 0, 2**31 - 1),
    "test": _one_of(SETS),
}
