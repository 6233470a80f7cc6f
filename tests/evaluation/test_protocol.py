"""A result: recall of the right pairs, and a protocol whose every field is true."""

import hashlib
import importlib.metadata
import json

import jax
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.data import images, lists, pipeline, tokenizer
from hnclip_jax.evaluation import cache, protocol, retrieval
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
        groups.EvalGroup(batch_size=8, ks=KS, block_rows=128, map_k=2, bootstrap=20),
        tokenize=tokenizer.default(),
        benchmark="urban1k",
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
        model.encode_image(params, pixels), model.encode_text(params, ids), positions, KS, map_k=2
    )
    assert result.metrics == expected
    names = ["r@1", "r@3", "map@2", "median_rank"]
    assert [*result.metrics] == [*(f"{d}_{n}" for d in ("t2i", "i2t") for n in names), "ties"]
    assert {*result.intervals} == {*result.metrics} - {"ties"}
    # One text of two pictures, and one picture of several texts, are where pairs get lost.
    assert len(positions) == 13
    assert len({*captions}) == 12


def test_every_field_of_the_protocol_is_true(evaluated, list_file, pictures):
    found = dict(evaluated[2].protocol)
    assert found.pop("versions") == {
        name: importlib.metadata.version(name)
        for name in ("hnclip_jax", "jax", "flax", "numpy", "pillow")
    }
    content = [[record.captions for record in pictures.records], None]
    assert found == {
        # It was said to be one, but a picture is missing.
        "benchmark": None,
        "content_sha256": hashlib.sha256(json.dumps(content).encode()).hexdigest(),
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
        "exif_orientation": "ignore",
        "transparency": "white",
        "compute_dtype": "float32",
        "t2i_queries": 13,
        "i2t_queries": PICTURES,
        "t2i_gallery": PICTURES,
        "i2t_gallery": 13,
        "relevance": "pair",
        "interval": "95% percentile bootstrap over queries, 20 samples, seed 0",
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
    assert found["intervals"] == evaluated[2].intervals
    assert found["diagnostics"] == evaluated[2].diagnostics
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]


def random_embedded(queries=None, **more):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((40, 6)).astype(np.float32)
    return cache.Embedded(
        image=image,
        text=image + rng.standard_normal((40, 6)).astype(np.float32),
        text_to_image=np.arange(40),
        ids=tuple(map(str, range(40))),
        groups=tuple(str(row // 2) for row in range(40)),
        queries=queries,
        protocol={"pictures": 40, "captions": 40, **more},
    )


def test_what_is_not_measured_is_not_in_the_protocol():
    result = protocol.measure(random_embedded(), groups.EvalGroup())
    assert not {"relevance", "interval"} & {*result.protocol}
    assert not result.intervals


def test_groups_and_queries_reach_the_ranking():
    embedded = random_embedded(queries=(3, 5, 30))
    group = groups.EvalGroup(map_k=10, relevance="group", ks=(1,))
    result = protocol.measure(embedded, group)
    assert result.metrics == retrieval.retrieval_metrics(
        embedded.image,
        embedded.text,
        ks=(1,),
        queries=[3, 5, 30],
        groups=embedded.groups,
        relevance="group",
        map_k=10,
    )
    assert (result.protocol["t2i_queries"], result.protocol["t2i_gallery"]) == (3, 40)
    assert result.protocol["relevance"] == "group"


def test_the_diagnostics_are_the_other_rules_for_ties():
    embedded = random_embedded()
    embedded.image[:2] = embedded.image[0]
    embedded.text[:2] = embedded.text[0] = 9 * embedded.image[0]
    result = protocol.measure(embedded, groups.EvalGroup(ks=(1,)))
    assert result.diagnostics["tied_queries"] == {"t2i": 2, "i2t": 2}
    assert result.metrics["ties"] == 4
    for name in ("t2i_r@1", "i2t_r@1"):
        low, high = (result.diagnostics[rule][name] for rule in ("pessimistic", "optimistic"))
        assert high - low == pytest.approx(100 * 2 / 40)
        assert result.metrics[name] == pytest.approx((low + high) / 2)


def test_packed_pictures_are_said_to_be(small_config):
    class Ready:
        def pixels(self, size):
            return np.zeros((size, size, 3), np.uint8)

    load = pipeline.LoadImage([Ready(), "a.png"], 24, images.Options(exif_orientation="apply"))
    found = protocol.image_protocol(load, dual_encoder.create(small_config))
    assert found["image_transform"].startswith("1 of 2 when packed: shorter side to 24")
    assert found["exif_orientation"] == "apply"


def test_a_file_that_cannot_be_written_is_one_line(evaluated, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(types.UserError, match=r"cannot write .*result\.json"):
        protocol.write(tmp_path / "file" / "result.json", evaluated[2])
