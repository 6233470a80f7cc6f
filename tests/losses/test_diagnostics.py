"""The figures of a batch against numpy."""

import functools

import numpy as np
import pytest

from hnclip_jax import losses
from hnclip_jax.losses import margins
from tests.losses import reference

PAIRS, WIDTH = 10, 8


@pytest.mark.parametrize("with_geometry", [False, True], ids=["live", "frozen"])
def test_measure_equals_numpy(with_geometry):
    image, text = reference.batch(0, PAIRS, WIDTH)
    image[:4] = text[:4]  # some pairs are solved, but not all
    same_pair = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 4], np.int32)
    source = reference.unit(5, PAIRS, 4) if with_geometry else text
    scale, gamma = 14.0, 0.5
    got = losses.measure(
        image,
        text,
        scale,
        functools.partial(margins.hn, gamma=gamma),
        same_pair=same_pair,
        geometry=source if with_geometry else None,
    )
    cosines = image.astype(np.float64) @ text.T
    g = reference.geometry(source)
    plain, boosted = (
        reference.pair_losses(scale * z, scale * z, same_pair)[0].mean(axis=1)
        for z in (cosines, cosines + gamma * g)
    )
    others = [[g[i, j] for j in range(PAIRS) if j != i] for i in range(PAIRS)]
    wanted = {
        "info_nce": plain.mean(),
        "g_mean": np.mean(others),
        "g_hardest": np.mean(np.max(others, axis=1)),
        "g_std": np.std(others),
        "solved_plain": np.mean(plain < 1e-3),
        "solved": np.mean(boosted < 1e-3),
        "s_positive": np.mean(np.diag(cosines)),
    }
    assert 1 > wanted["solved_plain"] > wanted["solved"]
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=name)
        assert got[name].dtype == np.float32
