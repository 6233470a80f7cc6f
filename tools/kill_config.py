"""The run that tools/kill_run.py kills: as small as a run can be, with everything that a run does.

It saves every third step, so that most of its time is saves. Two layers would only compile longer.
"""

import ml_collections

from hnclip_jax import config
from hnclip_jax.models import presets

presets.PRESETS["smallest"] = presets.ModelConfig(
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
    # The longest caption has 70 tokens.
    context_length=72,
)


def get_config() -> ml_collections.ConfigDict:
    """Returns the settings of the run."""
    c = config.defaults()
    c.data.train = "scenes"
    c.data.scenes_train = 64
    c.data.scenes_test_families = 4
    c.eval.data = "scenes"
    c.eval.every_steps = 16
    c.eval.batch_size = 8
    c.model.init = "random"
    c.model.preset = "smallest"
    c.model.scan_layers = False
    c.optim.lr = 1e-3
    c.train.steps = 40
    c.train.global_batch_size = 8
    c.train.save_every_steps = 3
    c.log.every_steps = 1
    # A process whose partner was killed before they met waits so long for it.
    c.parallel.start_timeout_s = 60
    return c
