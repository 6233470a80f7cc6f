"""Fine-tune on a list of your own.

    hnclip train --config=configs/list.py --workdir=runs/mine \
        --config.data.train=train.json --config.eval.data=test.json --config.model.weights=PATH

Copy this file and change it, or set single values on the command line. Every field that matters for
a list of one's own stands below; all others, and what they mean, stand in hnclip_jax/groups/.
"""

import ml_collections

from hnclip_jax import config


def get_config() -> ml_collections.ConfigDict:
    """Returns settings for fine-tuning on a list of dense captions."""
    c = config.defaults()

    # The training list: a JSON array or JSON lines, one object per picture:
    #     {"filename": "photos/0001.jpg", "caption": "A red kite hangs in a bare tree. ..."}
    # A list of strings as caption makes one pair of each. Paths are relative to the list's folder.
    # docs/lists.md names all other formats; a folder from `hnclip data pack` is read fastest.
    c.data.train = "train.json"
    # Where the pictures are, if the list's own paths do not lead there; looked up by path, then by
    # name.
    c.data.image_root = ""
    # "error" stops before training and names the rows; "skip" leaves them out and says how many.
    c.data.missing = "error"
    c.data.empty_caption = "error"
    # Processes that decode pictures. 0 decodes in this one; batches are the same for any number.
    c.data.workers = 0

    # Recall is measured on this list; its pictures must not occur in the training list, which
    # `hnclip data leak` tells. With eval.root it may be a benchmark: `hnclip data benchmarks`.
    c.eval.data = "test.json"
    c.eval.image_root = ""
    c.eval.every_epochs = 1

    # What to start from: a run, or weights of Long-CLIP, OpenAI, Hugging Face or open_clip, as
    # `hnclip inspect` knows them. A run without it stops.
    c.model.weights = ""
    # "random" starts from nothing instead, with the architecture of the preset, say "ViT-B/16".
    # Weights say themselves what they are; a preset then is only checked.
    c.model.init = "weights"
    c.model.preset = ""
    # 248 stretches weights with 77 text positions, as Long-CLIP does; 0 = never.
    c.model.stretch = 0
    # Tokens per caption; 0 = all positions there are. Longer captions are cut and counted.
    c.model.context_length = 0
    # bfloat16 is what TPUs and current GPUs are fast in. Parameters and losses stay float32.
    c.model.dtype = "bfloat16"
    # Recompute instead of keeping activations: "none", "dots", "full". Less memory, more time.
    c.model.remat = "none"

    # The boost: gamma G is added to the cosines of the negatives. 0 is plain InfoNCE.
    c.loss.kind = "hn_clip"
    c.loss.gamma = 0.5
    # Weight of the word-patch term (lambda of the paper is 1; 0 leaves it out).
    c.loss.token_weight = 0.0

    c.optim.lr = 2e-6
    c.optim.schedule = "cosine"
    c.optim.warmup_steps = 0
    c.optim.weight_decay = 0.01
    c.optim.max_grad_norm = 0.0

    c.train.epochs = 10
    # Over all devices, so it must be divisible by their number. More pairs, more negatives.
    c.train.global_batch_size = 128
    # Above 1, the step is split into this many batches that each have their own negatives.
    c.train.micro_batches = 1
    c.train.seed = 42
    c.train.save_every_steps = 200
    # "eval/t2i_r@1" keeps the weights of the best evaluation instead of the last.
    c.train.best_metric = ""

    # How many devices share one copy of the parameters. 1 = every device has a copy.
    c.parallel.fsdp = 1
    c.log.every_steps = 50
    return c
