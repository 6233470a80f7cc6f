"""The host methods as their own papers train them, from OpenAI's CLIP.

    hnclip train --config=configs/hosts.py:goal,docci --workdir=runs/goal \
        --config.model.weights=PATH --config.data.image_root=docci/images \
        --config.eval.image_root=docci/images

The argument is longclip, finelip, goal or structxlip; behind it, with commas between, a set and the
towers:

    longclip  finelip      sharegpt4v (without its first 1,000 records, which are sv1k)
    goal  structxlip       docci (if left out) or dci
    ViT-B/16  ViT-L/14     what OpenAI's weights are; ViT-B/16 if left out

The settings are those of the released code: Long-CLIP (arXiv 2403.15378; after the fix of May 2024,
length and batch of its README), FineLIP (2504.01916), GOAL (2503.17782), StructXLIP (2602.20089;
weights of its launch script). So are mistakes of GOAL's and StructXLIP's code that act on these
sizes: method.goal_mode and method.structxlip_mode are "as_released"; "fixed" does what the papers
say. Text positions are stretched from 77 to 248; Long-CLIP and FineLIP keep the first 20 fixed.

What differs from the released code: weight decay spares biases, norms and s; bfloat16 stands for
float16 with a scaler (Long-CLIP); the principal components are of the whole batch unless
method.pcm_scope is "device"; FineLIP's schedule runs once over the training, where its code runs
it four times too fast; boxes that cover no patch are left out. configs/longclip_l.py has the same
methods as HN-CLIP's paper compares them. Nothing was measured with real weights.
"""

import math
from typing import Any

import ml_collections

from hnclip_jax import config, types

TOWERS = ("ViT-B/16", "ViT-L/14")
_SHAREGPT4V = {
    "data.train": "sharegpt4v_train.json",
    "eval.data": "urban1k",
    "eval.root": "Urban1k",
    "optim.freeze_first_positions": 20,
    "optim.lr": 1e-6,
    "optim.logit_scale_init": 100.0,
    "optim.warmup_steps": 200,
    "optim.weight_decay": 0.01,
    "train.epochs": 6,
}
_SEGMENTS = {
    "optim.lr": 5e-6,
    "optim.weight_decay": 0.05,
    "train.epochs": 10,
    "train.global_batch_size": 16,
}
HOSTS: dict[str, dict[str, Any]] = {
    "longclip": {
        **_SHAREGPT4V,
        "method.name": "longclip",
        "loss.label_smoothing": 0.1,
        "train.global_batch_size": 2048,
    },
    "finelip": {
        **_SHAREGPT4V,
        "method.name": "finelip",
        # The released code trains by the triplet term alone.
        "method.global_weight": 0.0,
        "method.finelip_tokens": 39,
        "model.dtype": "float32",
        "optim.method_lr": 2e-4,
        "train.global_batch_size": 512,
        "train.micro_batches": 4,
        "train.seed": 71,
    },
    "goal": {**_SEGMENTS, "method.name": "goal", "method.goal_mode": "as_released"},
    "structxlip": {
        **_SEGMENTS,
        "method.name": "structxlip",
        "method.structxlip_mode": "as_released",
        "optim.max_logit_scale": math.exp(3.5),
    },
}
"""Host -> its settings. Where s has no limit in the released code, 1e6 stands for none."""

SETS: dict[str, dict[str, dict[str, str]]] = {
    "longclip": {"sharegpt4v": {}},
    "finelip": {"sharegpt4v": {}},
    "goal": {
        "docci": {"data.train": "docci_segment_sim_bbox_del_org.json"},
        "dci": {"data.train": "DCI_segment_sim_bbox_del_org.json"},
    },
    "structxlip": {
        "docci": {"data.train": "docci_structure.json"},
        "dci": {"data.train": "dci_structure.json"},
    },
}
"""Host -> set -> its training list; the first one is meant where none is named."""

_TESTS = {
    "docci": {"eval.data": "docci_goal", "eval.root": "docci_test.json"},
    "dci": {"eval.data": "dci_goal", "eval.root": "DCI_test.json"},
}


def get_config(arg: str = "goal") -> ml_collections.ConfigDict:
    """Returns the released recipe of a host.

    Raises:
      types.UserError: for a word that is not known, or stands twice.
    """
    host, *words = arg.split(",")
    if host not in HOSTS:
        raise types.unknown_name("host, as first word of configs/hosts.py:", host, HOSTS)
    chosen = {"sets": next(iter(SETS[host])), "towers": TOWERS[0]}
    given = set()
    for word in words:
        if word not in (*SETS[host], *TOWERS):
            raise types.unknown_name(
                f"set or towers of configs/hosts.py:{host}:", word, (*SETS[host], *TOWERS)
            )
        kind = "towers" if word in TOWERS else "sets"
        if kind in given:
            raise types.UserError(f"configs/hosts.py:{arg}: names {kind} twice; name one")
        given.add(kind)
        chosen[kind] = word

    c = config.defaults()
    # Where they lie is for the command line to say.
    c.model.weights = ""
    c.model.preset = chosen["towers"]
    c.model.stretch = 248
    c.model.dtype = "bfloat16"
    # No boost.
    c.loss.gamma = 0.0
    c.optim.max_logit_scale = 1e6
    c.train.seed = 42
    c.train.save_every_steps = 500
    c.eval.every_epochs = 1
    for settings in (HOSTS[host], SETS[host][chosen["sets"]], _TESTS.get(chosen["sets"], {})):
        c.update_from_flattened_dict(settings)
    return c
