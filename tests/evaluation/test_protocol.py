"""Embedding and measuring a list: order, padding, devices, several captions, and the protocol."""

import json

import jax
import numpy as np
import pytest

from hnclip_jax import config, types
from hnclip_jax.data import images, lists, tokenizer
from hnclip_jax.evaluation import protocol, retrieval
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib


@pytest.fixture(scope="module")
def model(small_config):
    return dual_encoder.create(small_config)


@pytest.fixture(scope="module")
def params(model):
    return jax.device_get(jax.jit(model.init)(jax.random.key(0)))


@pytest.fixture(scope="module")
def pictures(drawn, tmp_path_factory):
    """Seven pictures of one, two or three captions; one caption is far too long."""
    rows = json.loads(drawn[1].read_text())[:7]
    for number, row in enumerate(rows):
        row["filename"] = str(drawn[1].parent / row["filename"])
        row["caption"] = [f"{row['caption']} Again {again}." for again in range(1 + number % 3)]
    rows[4]["caption"][1] = "word " * 200
    path = tmp_path_factory.mktemp("list") / "list.json"
    path.write_text(json.dumps(rows))
    return lists.read(path)


def _evaluator(model, pictures, devices=1, **group):
    return protocol.Evaluator(
        model,
        pictures,
        mesh_lib.create(config.ParallelGroup(), jax.devices()[:devices]),
        config.EvalGroup(**{"batch_size": 8, **group}),
        tokenize=tokenizer.default(),
    )


@pytest.fixture(scope="module")
def result(model, params, pictures):
    told = []
    found = _evaluator(model, pictures)(params, lambda *now: told.append(now))
    assert told == [(7, 20), (15, 20), (20, 20)]
    return found


def test_recall_equals_that_of_embeddings_made_one_by_one(model, params, pictures, result):
    encode_image, encode_text = jax.jit(model.encode_image), jax.jit(model.encode_text)
    image = [
        encode_image(params, images.load_image(r.image, 24)[None])[0] for r in pictures.records
    ]
    pairs = list(lists.pairs(pictures.records))
    ids = [tokenizer.default()(caption, 77).ids for _, caption in pairs]
    text = [encode_text(params, row)[0] for row in ids]
    expected = retrieval.retrieval_metrics(
        np.stack(image), np.stack(text), [position for position, _ in pairs]
    )
    assert result.metrics == expected
    assert len(pairs) == 13


@pytest.mark.parametrize("group", [{"devices": 8}, {"batch_size": 3}], ids=["devices", "batch"])
def test_neither_devices_nor_batches_change_recall(model, params, pictures, result, group):
    assert _evaluator(model, pictures, **group)(params).metrics == result.metrics


def test_the_protocol_says_what_was_measured(pictures, result, tmp_path):
    said = result.protocol
    assert (said["pictures"], said["captions"], said["truncated_captions"]) == (7, 13, 1)
    assert (said["context_length"], said["image_size"]) == (77, 24)
    assert said["list_sha256"] == pictures.sha256
    protocol.write(tmp_path / "deep" / "r.json", result, step=5)
    written = json.loads((tmp_path / "deep" / "r.json").read_text())
    assert written["metrics"] == result.metrics
    assert written["protocol"] == {**said, "step": 5}


def test_the_table_shows_every_number(result):
    text = protocol.table(result)
    assert "13 captions, 7 pictures" in text
    for name, value in result.metrics.items():
        if name != "ties":
            assert f"{value:.2f}" in text


def test_weights_that_are_not_finite_are_a_named_error(model, params, pictures):
    broken = {**params, "image": {**params["image"], "proj": params["image"]["proj"] * np.nan}}
    with pytest.raises(types.UserError, match="7 of 7 image embeddings are not finite"):
        _evaluator(model, pictures)(broken)


def test_a_batch_that_devices_do_not_divide_is_an_error(model, pictures):
    with pytest.raises(types.UserError, match="cannot be split evenly over 8 devices"):
        _evaluator(model, pictures, devices=8, batch_size=12)
