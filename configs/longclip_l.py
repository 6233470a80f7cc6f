"""The paper's recipe: Long-CLIP-L fine-tuned on dense captions with HN-CLIP.

    hnclip train --config=configs/longclip_l.py:docci --workdir=runs/docci \
        --config.data.train=docci_train.json --config.data.image_root=docci/images \
        --config.eval.data=docci_test.json --config.eval.image_root=docci/images \
        --config.model.weights=PATH

Argument: docci, dci or urban1k (trained on Visual Genome paragraphs). Lists and weights are not
part of this repository. `model.weights` are Long-CLIP-L's; a run without them stops.

Recipe (arXiv 2608.18521, section 3.1 and appendix D): AdamW 2e-6, cosine, 10 epochs, 128 pairs as 8
micro-batches of 16, gamma 0.5, lambda 1, seed 42, pictures at 224, 248 tokens. Weight decay,
warm-up and the treatment of s are not stated there; here: 0.01, none, trained, at most 100.

Published R@1 (text to image | image to text), to compare with; not measured with this code:

    docci     5,100 pairs    start 78.78 | 66.75    InfoNCE 86.45 | 84.10    HN-CLIP 88.25 | 86.24
    dci       1,999 pairs    start 67.83 | 64.13    InfoNCE 79.39 | 78.34    HN-CLIP 80.69 | 78.84
    urban1k   1,000 pairs    start 86.10 | 82.40    InfoNCE 91.70 | 93.20    HN-CLIP 91.10 | 90.30
"""

import ml_collections

from hnclip_jax import config, types

LISTS = {
    "docci": ("docci_train.json", "docci_test.json"),
    "dci": ("dci_train.json", "dci_test.json"),
    "urban1k": ("vg_paragraphs_train.json", "urban1k_test.json"),
}
"""Argument -> names of the training and the test list; set the paths by --config.data.train etc."""


def get_config(arg: str = "docci") -> ml_collections.ConfigDict:
    """Returns the recipe for one of LISTS."""
    if arg not in LISTS:
        raise types.unknown_name("argument of configs/longclip_l.py", arg, LISTS)
    c = config.defaults()
    c.data.train, c.eval.data = LISTS[arg]
    # Where they lie is for the command line to say.
    c.model.weights = ""
    c.model.preset = "LongCLIP-L"
    # Stops a run from weights with fewer positions; OpenAI's ViT-L/14 needs model.stretch=248.
    c.model.context_length = 248
    c.model.dtype = "bfloat16"
    c.loss.gamma = 0.5
    c.loss.token_weight = 1.0
    c.optim.lr = 2e-6
    c.train.epochs = 10
    c.train.global_batch_size = 128
    c.train.micro_batches = 8
    c.train.seed = 42
    c.train.save_every_steps = 500
    c.eval.every_epochs = 1
    return c
