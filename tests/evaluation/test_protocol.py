"""A result: recall of the right pairs, and a protocol whose every field is true."""

import hashlib
import importlib.metadata
import json

import jax
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.data import images, lists, tokenizer
from hnclip_jax.evaluation import protocol, retrieval
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding

PICTURES = 9
KS = (1, 3)


@pytest.fixture(scope="module")
def list_file(drawn, tmp_path_factory):
    """Nine pictures of 13 captions: one text twice, one cut, one empty, and a picture missing."""
    rows = json.loads(drawn[1].read_text())[:PICTURES]
    for row in rows:
        row["filename"] = str(drawn[1].parent / row["filename"])
        row["caption"] = [row["caption"]]
    rows[1]["caption"] += ["a second caption", "a third caption"]
    rows[4]["caption"] += ["a second caption", "red " * 80]
    rows[6]["caption"] += ["  "]
    rows.insert(3, {"filename": "gone.png", "caption": "lost"})
    path = tmp_path_factory.mktemp("protocol") / "list.json"
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture(scope="module")
def pictures(list_file):
    return lists.read(list_file, missing="skip", empty_caption="skip")


@pytest.fixture(scope="module")
def evaluated(small_config, pictures):
    """The model, its parameters, and the result on eight devices."""
    model = dual_encoder.create(small_config)
    mesh = mesh_lib.create(groups.ParallelGroup(fsdp=2))
    params = jax.device_get(jax.jit(model.init)(jax.random.key(2)))
    evaluator = protocol.Evaluator(
        model,
        pictures,
        mesh,
        groups.EvalGroup(batch_size=8, ks=KS, block_rows=128),
        tokenize=tokenizer.default(),
    )
    seen = []
    result = evaluator(
        jax.device_put(params, sharding.state_shardings(mesh, params)),
        lambda done, rows: seen.append((done, rows)),
    )
    assert seen == [(8, 22), (9, 22), (17, 22), (22, 22)]
    return model, params, result


def test_recall_is_that_of_the_right_pairs(evaluated, pictures):
    model, params, result = evaluated
    pixels = np.stack([images.load_image(record.image, 24) for record in pictures.records])
    positions, captions = zip(*lists.pairs(pictures.records), strict=True)
    ids = tokenizer.default()(captions, 77).ids
    expected = retrieval.retrieval_metrics(
        model.encode_image(params, pixels), model.encode_text(params, ids), positions, KS
    )
    assert result.metrics == expected
    assert list(result.metrics) == ["t2i_r@1", "t2i_r@3", "i2t_r@1", "i2t_r@3", "ties"]
    # One text of two pictures, and one picture of several texts, are where pairs get lost.
    assert len(positions) == 13
    assert len({*captions}) == 12


def test_every_field_of_the_protocol_is_true(evaluated, list_file):
    found = dict(evaluated[2].protocol)
    assert found.pop("versions") == {
        name: importlib.metadata.version(name)
        for name in ("hnclip_jax", "jax", "flax", "numpy", "pillow")
    }
    assert found == {
        "list": str(list_file),
        "list_sha256": hashlib.sha256(list_file.read_bytes()).hexdigest(),
        "pictures": PICTURES,
        "captions": 13,
        "skipped_missing": 1,
        "skipped_empty": 1,
        "duplicate_captions": 1,
        "truncated_captions": 1,
        "context_length": 77,
        "image_size": 24,
        "image_transform": "shorter side to 24, Pillow bicubic, centre crop",
        "compute_dtype": "float32",
        "similarity": "cosine, float32, precision highest",
        "ties": "expected rank among equal scores",
        "unit": "percent",
        "devices": "8 x cpu",
    }


def test_the_file_holds_all_of_it(evaluated, tmp_path):
    path = tmp_path / "deep" / "result.json"
    protocol.write(path, evaluated[2], weights="w.safetensors")
    found = json.loads(path.read_text())
    assert found["metrics"] == evaluated[2].metrics
    assert found["protocol"] == {**evaluated[2].protocol, "weights": "w.safetensors"}


def test_a_file_that_cannot_be_written_is_one_line(evaluated, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(types.UserError, match=r"cannot write .*result\.json"):
        protocol.write(tmp_path / "file" / "result.json", evaluated[2])


def test_the_table_shows_both_directions():
    result = protocol.Result(
        {"t2i_r@1": 12.5, "t2i_r@10": 100.0, "i2t_r@1": 6.25, "i2t_r@10": 50.0, "ties": 3},
        {"captions": 1200, "pictures": 400, "truncated_captions": 2, "duplicate_captions": 1},
    )
    assert protocol.table(result).splitlines() == [
        "1,200 captions, 400 pictures",
        "direction            R@1    R@10",
        "text to image      12.50  100.00",
        "image to text       6.25   50.00",
        "ties 3, truncated captions 2, duplicate captions 1",
    ]
