"""The demonstration: drawn scenes, first plain InfoNCE, then the HN-CLIP boost, in one run.

hnclip train --config=configs/demo.py --workdir=runs/demo
"""

import ml_collections

from hnclip_jax import config


def get_config() -> ml_collections.ConfigDict:
    """Returns the settings of the demonstration."""
    c = config.defaults()
    c.data.train = "scenes"
    c.eval.data = "scenes"
    c.model.preset = "tiny"
    c.loss.gamma = 0.5
    c.loss.gamma_start_step = 600
    c.optim.lr = 1e-3
    c.optim.warmup_steps = 50
    c.optim.logit_scale_rate = 10.0
    c.optim.max_grad_norm = 1.0
    c.train.steps = 1000
    c.train.global_batch_size = 128
    c.train.save_every_steps = 200
    c.eval.every_steps = 100
    return c
