"""Profiles of some steps: which, where they lie, and that the steps are named in them."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from hnclip_jax import types
from hnclip_jax.training import profile


@pytest.mark.parametrize(("text", "steps"), [("", []), ("10:13", [10, 11, 12, 13]), ("1:1", [1])])
def test_which_steps(text, steps):
    assert list(profile.parse(text)) == steps


@pytest.mark.parametrize("text", ["10", "a:b", "3:2", "0:2", "1:2:3", "-1:2", "1: 2"])
def test_what_is_no_range_is_one_line(text):
    with pytest.raises(types.UserError, match="must be two steps, say '10:13'"):
        profile.parse(text)


def test_the_steps_are_in_the_profile_and_no_others(tmp_path):
    double = jax.jit(lambda x: 2 * x)
    recorded = profile.Profile(range(3, 5), tmp_path / "profile")
    for number in range(1, 7):
        with recorded.step(number):
            out = double(jnp.ones(3))
        recorded.after(number, out)
        assert (tmp_path / "profile").exists() == (number >= 4)
    recorded.close()
    (trace,) = tmp_path.glob("profile/plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    steps = {event["args"]["step_num"] for event in events if "step_num" in event.get("args", {})}
    assert steps == {"3", "4"}


def test_a_run_that_ends_within_them_writes_what_it_has(tmp_path):
    recorded = profile.Profile(range(1, 9), tmp_path)
    with recorded.step(1):
        pass
    recorded.close()
    recorded.close()
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))
