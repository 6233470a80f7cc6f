"""The config of one run of the controls: what lies in its folder already.

hnclip train --config=tools/controls_config.py:RUN/config.json --workdir=RUN
"""

import json
import pathlib

import ml_collections


def get_config(path: str) -> ml_collections.ConfigDict:
    """Returns the settings in a config.json."""
    return ml_collections.ConfigDict(json.loads(pathlib.Path(path).read_text("utf-8")))
