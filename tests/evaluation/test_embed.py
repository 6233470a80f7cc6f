"""Embedding a data set: in order, each row once, whatever the batch, the mesh and the workers."""

import json

import jax
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.data import pipeline, tokenizer
from hnclip_jax.evaluation import embed
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding

TOLERANCE = 1e-6  # float32 in batches of other sizes, unit vectors
CONTEXT = 50  # Some of the drawn captions are longer.
COUNT = 13  # No batch size below divides it.
LAYOUTS = {"1 device": (1, 1), "8 devices": (8, 1), "2 x 4 devices": (2, 4)}


@pytest.fixture(scope="module")
def model(small_config):
    return dual_encoder.create(small_config)


@pytest.fixture(scope="module")
def params(model):
    return jax.device_get(jax.jit(model.init)(jax.random.key(1)))


@pytest.fixture(scope="module")
def loads(drawn):
    """What loads pictures and captions of the drawn test set; and how many captions are cut."""
    rows = json.loads(drawn[1].read_text())[:COUNT]
    captions = [row["caption"] for row in rows]
    cut = sum(len(tokenizer.default().encode(caption)) > CONTEXT - 2 for caption in captions)
    assert 0 < cut < COUNT
    return {
        "image": pipeline.LoadImage([str(drawn[1].parent / row["filename"]) for row in rows], 24),
        "text": pipeline.LoadText(captions, tokenizer.default(), CONTEXT),
    }, cut


@pytest.fixture(scope="module")
def one_by_one(model, params, loads):
    """The embeddings by the model alone, row after row."""
    image, text = jax.jit(model.encode_image), jax.jit(model.encode_text)
    rows = range(COUNT)
    return {
        "image": np.concatenate([image(params, loads[0]["image"](r)["image"][None]) for r in rows]),
        "text": np.concatenate([text(params, loads[0]["text"](r)["tokens"][None]) for r in rows]),
    }


def _embedder(model, params, layout, batch_size, workers=0):
    data, fsdp = LAYOUTS[layout]
    mesh = mesh_lib.create(groups.ParallelGroup(data=data, fsdp=fsdp), jax.devices()[: data * fsdp])
    placed = jax.device_put(params, sharding.state_shardings(mesh, params))
    return embed.Embedder(model, mesh, batch_size=batch_size, workers=workers), placed


@pytest.mark.parametrize("tower", ["image", "text"])
@pytest.mark.parametrize(
    ("layout", "batch_size"),
    [("1 device", 5), ("8 devices", 8), ("8 devices", 16), ("2 x 4 devices", 8)],
)
def test_rows_come_out_in_order_as_one_by_one(
    model, params, loads, one_by_one, tower, layout, batch_size
):
    embedder, placed = _embedder(model, params, layout, batch_size)
    found, truncated = embedder(tower, placed, loads[0][tower], COUNT)
    assert found.shape == (COUNT, model.config.embed_dim)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, one_by_one[tower], atol=TOLERANCE)
    assert truncated == (loads[1] if tower == "text" else 0)


def test_rows_that_come_in_another_order_are_put_in_theirs(
    model, params, loads, one_by_one, monkeypatch
):
    # So they come where several processes read: each reads every so many-th row.
    once = pipeline.once

    def in_turn(*args, **kwargs):
        for batch in once(*args, **kwargs):
            yield {name: np.concatenate([rows[::2], rows[1::2]]) for name, rows in batch.items()}

    monkeypatch.setattr(pipeline, "once", in_turn)
    embedder, placed = _embedder(model, params, "8 devices", 8)
    found, _ = embedder("text", placed, loads[0]["text"], COUNT)
    np.testing.assert_allclose(found, one_by_one["text"], atol=TOLERANCE)


@pytest.mark.slow
def test_workers_change_no_bit(model, params, loads, parsed_flags):
    embedder, placed = _embedder(model, params, "8 devices", 8)
    helped, _ = _embedder(model, params, "8 devices", 8, workers=1)
    expected, found = (e("text", placed, loads[0]["text"], COUNT) for e in (embedder, helped))
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1] == expected[1]


def test_progress_counts_rows_and_no_padding(model, params, loads):
    embedder, placed = _embedder(model, params, "8 devices", 8)
    seen = []
    embedder("text", placed, loads[0]["text"], COUNT, lambda done, rows: seen.append((done, rows)))
    assert seen == [(8, COUNT), (COUNT, COUNT)]


def test_values_that_are_not_finite_are_a_named_error(model, params, loads):
    proj = params["image"]["proj"].copy()
    proj[0, 0] = np.nan
    embedder, placed = _embedder(
        model, {**params, "image": {**params["image"], "proj": proj}}, "8 devices", 8
    )
    with pytest.raises(types.UserError) as caught:
        embedder("image", placed, loads[0]["image"], COUNT)
    assert "13 of 13 image embeddings are not finite, the first in row 0" in str(caught.value)
    embedder("text", placed, loads[0]["text"], COUNT)


def test_a_batch_that_the_devices_do_not_divide(model, params):
    with pytest.raises(types.UserError, match="batch of 12 pairs cannot be split evenly over 8"):
        _embedder(model, params, "8 devices", 12)
