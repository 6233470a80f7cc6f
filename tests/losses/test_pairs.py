"""What the baselines stand on: who is whose negative, on one device and on several; mistakes."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from hnclip_jax import types
from hnclip_jax.losses import pairs
from tests.losses import reference

AXES = ("data", "fsdp")
SAME = np.array([3, 0, 3, 1, 2, 5, 6, 0], np.int32)


def test_negatives_are_all_others_but_those_of_equal_id():
    of = pairs.gathered(*reference.batch(0, 8, 4), None, SAME)
    wanted = SAME[:, None] != SAME[None, :]
    np.testing.assert_array_equal(of.negatives, wanted)
    np.testing.assert_array_equal(of.own, np.eye(8, dtype=bool))
    np.testing.assert_allclose(of.log_count, np.log(wanted.sum(axis=1)), rtol=1e-6)
    free = pairs.gathered(*reference.batch(0, 8, 4), None, None)
    np.testing.assert_array_equal(free.negatives, ~np.eye(8, dtype=bool))


def test_a_device_holds_its_rows_of_the_whole_batch():
    image, text = reference.batch(1, 8, 4)
    whole = pairs.gathered(image, text, None, SAME)

    def rows(image, text, same_pair):
        of = pairs.gathered(image, text, AXES, same_pair)
        return of.image_to_text, of.text_to_image, of.own, of.negatives

    mapped = jax.shard_map(
        rows,
        mesh=jax.make_mesh((4, 2), AXES, axis_types=(AxisType.Auto,) * 2),
        in_specs=P(AXES),
        out_specs=P(AXES),
    )
    got = jax.jit(mapped)(image, text, SAME)
    wanted = (whole.image_to_text, whole.text_to_image, whole.own, whole.negatives)
    for part, right in zip(got, wanted, strict=True):
        np.testing.assert_allclose(part, right, atol=1e-6)
    np.testing.assert_allclose(whole.text_to_image, np.transpose(whole.image_to_text), atol=1e-6)


@pytest.mark.parametrize(
    ("image", "text", "same_pair"),
    [((4, 4), (5, 4), None), ((4, 4), (4, 3), None), ((4,), (4,), None), ((4, 4), (4, 4), (3,))],
    ids=["rows", "widths", "no rows", "ids"],
)
def test_arrays_that_do_not_fit_are_named(image, text, same_pair):
    same_pair = None if same_pair is None else np.zeros(same_pair, np.int32)
    with pytest.raises(types.UserError, match="one row per pair"):
        pairs.gathered(np.ones(image), np.ones(text), None, same_pair)
