"""Fused scores: a float64 reference of tokens, scores and ranks, and the rules of ranking."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import groups, types
from hnclip_jax.data import images, lists, tokenizer
from hnclip_jax.evaluation import fused, protocol, retrieval, ties
from hnclip_jax.losses import finelip, terms
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from tests.evaluation import fused_reference as reference

TOLERANCE = 1e-5  # float32 towers and scores against float64
TOKENS = 3
WEIGHT = 0.3


def assert_ranks(found, scores, owner):
    is_right = owner[:, None] == np.arange(scores.shape[1])
    for name, one, right in (("t2i", scores, is_right), ("i2t", scores.T, is_right.T)):
        np.testing.assert_array_equal(found.ranks[name], reference.ranks(one, right), err_msg=name)


def all_scores(image, text, late, block_rows=1024):
    """[T, M], every block of the device's."""
    order = np.arange(len(image)), np.arange(len(text))
    found = late.scorer(image, text, order, block_rows)
    rows, columns = (x.ravel() for x in np.indices((len(text), len(image))))
    return found.of_pairs(rows, columns).reshape(len(text), len(image))


@pytest.mark.parametrize(("pictures", "texts"), [(20, 20), (150, 290)], ids=["one", "several"])
def test_scores_and_ranks_of_random_tokens(pictures, texts):
    image, text, owner, late = reference.random_list(pictures, texts)
    expected = reference.scores(image, text, late)
    np.testing.assert_allclose(all_scores(image, text, late), expected, atol=TOLERANCE)
    found = retrieval.measure(image, text, owner, scorer=late.scorer)
    assert_ranks(found, expected, owner)
    plain = retrieval.measure(image, text, owner)
    assert (plain.ranks["t2i"].greater != found.ranks["t2i"].greater).any()


def test_groups_stand_elsewhere_and_keep_their_scores():
    image, text, owner, late = reference.random_list(150, 290)
    group = np.random.default_rng(2).integers(0, 40, 150)
    found = retrieval.measure(
        image, text, owner, groups=[f"g{x}" for x in group], relevance="group", map_k=5,
        scorer=late.scorer,
    )  # fmt: skip
    scores = reference.scores(image, text, late)
    assert_ranks(found, scores, owner)
    is_right = group[owner][:, None] == group
    for name, one, right in (("t2i", scores, is_right), ("i2t", scores.T, is_right.T)):
        first = np.take_along_axis(right, np.argsort(-one, axis=1), axis=1)[:, :5]
        so_far = np.cumsum(first, axis=1) / np.arange(1, 6)
        expected = np.sum(so_far * first, axis=1) / right.sum(axis=1)
        np.testing.assert_allclose(found.precisions[name], expected)


def test_a_pair_by_hand():
    # Cosine 0.6. The words 45 and 180 degrees away from the picture's one token: leaky cosines
    # sqrt(1/2) and -0.1, so that R = (sqrt(1/2) - 0.1) / 2 + sqrt(1/2).
    image, text = np.array([[1.0, 0.0]]), np.array([[0.6, 0.8]])
    words = np.array([[[math.sqrt(0.5), math.sqrt(0.5)], [-1.0, 0.0]]])
    late = fused.Late(image[:, None].astype(np.float32), words.astype(np.float32))
    expected = 0.8 * 0.6 + 0.2 * ((math.sqrt(0.5) - 0.1) / 2 + math.sqrt(0.5))
    assert all_scores(image, text, late)[0, 0] == pytest.approx(expected, abs=1e-6)
    assert str(late) == "0.8 cosine + 0.2 late interaction"


def test_a_weight_of_0_gives_the_numbers_of_cosines():
    options = {"map_k": 5, "relevance": "group", "groups": [str(row // 3) for row in range(1100)]}
    image, text, owner, late = reference.random_list(1100, 1300)
    text += 0.5 * np.random.default_rng(1).standard_normal(text.shape).astype(np.float32)
    late = dataclasses.replace(late, weight=0.0)
    plain = retrieval.measure(image, text, owner, **options)
    found = retrieval.measure(image, text, owner, scorer=late.scorer, **options)
    for name in retrieval.DIRECTIONS:
        np.testing.assert_array_equal(found.ranks[name], plain.ranks[name])
        np.testing.assert_array_equal(found.precisions[name], plain.precisions[name])
        assert found.ranks[name].greater.any()


def test_equal_rows_tie_wherever_they_stand_and_no_block_size_matters():
    # Ten kinds, each 40 times a picture and 60 times or more a caption, in any order.
    rng = np.random.default_rng(5)
    image, text, _, late = reference.random_list(10, 10, a=4, b=2, width=33)
    pictures, texts = rng.permutation(400) % 10, rng.permutation(600) % 10
    owner = np.array([rng.choice(np.flatnonzero(pictures == kind)) for kind in texts])
    bare = np.setdiff1d(np.arange(400), owner)
    owner, texts = np.concatenate([owner, bare]), np.concatenate([texts, pictures[bare]])
    late = fused.Late(late.image[pictures], late.text[texts], WEIGHT)
    results = [
        retrieval.measure(
            image[pictures], text[texts], owner, scorer=late.scorer, block_rows=rows
        ).ranks
        for rows in (1, 300, 5000)
    ]
    found, own = results[0], np.bincount(owner)
    np.testing.assert_array_equal(found["t2i"].equal, 39)
    np.testing.assert_array_equal(found["i2t"].right, own)
    np.testing.assert_array_equal(found["i2t"].equal, np.bincount(texts)[pictures] - own)
    assert (found["t2i"].greater % 40 == 0).all()
    assert found["t2i"].greater.any()
    for other in results[1:]:
        for name in retrieval.DIRECTIONS:
            np.testing.assert_array_equal(other[name], found[name])


def test_a_block_of_captions_and_a_tile_of_pictures_are_all_that_is_held(monkeypatch):
    shapes, program = [], fused._fused

    def watched(cosines, place, pictures, captions, weight):
        shapes.append((cosines.shape, pictures.shape, captions.shape))
        return program(cosines, place, pictures, captions, weight)

    monkeypatch.setattr(fused, "_fused", watched)
    image, text, owner, late = reference.random_list(300, 400)
    seen = []
    retrieval.measure(
        image, text, owner, scorer=late.scorer, progress=lambda *done: seen.append(done)
    )
    assert {*shapes} == {((256, 384), (128, 4, 8), (256, 3, 8))}
    assert seen == [(256, 400), (400, 400)]
    # Each block meets each tile once; before that, those that hold right pairs.
    assert 2 * 3 + 2 <= len(shapes) <= 2 * 3 + 4


def test_scores_are_computed_at_full_precision():
    rows = jnp.ones((128, 2, 8)), jnp.ones((256, 2, 8))
    program = str(jax.make_jaxpr(fused._fused)(jnp.ones((256, 128)), 0, *rows, jnp.float32(0.2)))
    assert program.count("dot_general[") == program.count("(Precision.HIGHEST, Precision.HIGHEST)")
    assert program.count("dot_general[") == 1


# A whole evaluation, of a small model.


@pytest.fixture(scope="module")
def pictures(drawn, tmp_path_factory):
    """Twelve pictures of 17 captions, one of them cut; eight pictures ask."""
    rows = json.loads(drawn[1].read_text())[:12]
    for row in rows:
        row["filename"] = str(drawn[1].parent / row["filename"])
        row["caption"] = [row["caption"]]
    rows[1]["caption"] += ["a second caption", "a red disc", "blue"]
    rows[4]["caption"] += ["another caption", "red " * 80]
    path = tmp_path_factory.mktemp("fused") / "list.json"
    path.write_text(json.dumps(rows))
    return dataclasses.replace(lists.read(path), queries=(0, 1, 2, 4, 5, 8, 9, 11))


@pytest.fixture(scope="module")
def model(small_config):
    return dual_encoder.create(small_config)


@pytest.fixture(scope="module")
def params(model):
    """Parameters of model and method, all of them far from where they start."""
    settings = terms.Settings(groups.LossGroup(), groups.MethodGroup(finelip_tokens=TOKENS))
    made = finelip.init(jax.random.key(4), terms.Sizes(8, 9), settings)
    made = {**jax.jit(model.init)(jax.random.key(3)), "method": {"triplet": made}}
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: np.float32(x + 0.3 * rng.standard_normal(x.shape)), made)


def evaluator(model, pictures, devices=8, batch_size=8):
    mesh = mesh_lib.create(groups.ParallelGroup(), jax.devices()[:devices])
    group = groups.EvalGroup(batch_size=batch_size)
    return protocol.Evaluator(model, pictures, mesh, group, tokenize=tokenizer.default()), mesh


@pytest.fixture(scope="module")
def embedded(model, params, pictures):
    run, mesh = evaluator(model, pictures)
    placed = jax.device_put(params, sharding.state_shardings(mesh, params))
    seen = []
    found = run.embed_tokens(placed, WEIGHT, lambda *done: seen.append(done))
    assert seen == [(8, 29), (12, 29), (20, 29), (28, 29), (29, 29)]
    return found


@pytest.fixture(scope="module")
def expected(model, params, pictures):
    """Tokens of all pictures and all captions, each by itself, in float64."""
    parameters = jax.tree.map(lambda x: x.astype(np.float64), params["method"]["triplet"])
    pixels = np.stack([images.load_image(record.image, 24) for record in pictures.records])
    owner, captions = zip(*lists.pairs(pictures.records), strict=True)
    ids = tokenizer.default()(captions, 77).ids
    embed = jax.jit(lambda params, *rows: model.embed(params, *rows, tokens=True))
    image, text = embed(params, pixels), embed(params, None, ids)
    of_pictures = [
        reference.unit(np.array([whole, *reference.gathered(parameters["image"], patches)]))
        for whole, patches in zip(np.asarray(image.image), np.asarray(image.patches), strict=True)
    ]
    of_captions = []
    for row, whole, words in zip(ids, np.asarray(text.text), np.asarray(text.words), strict=True):
        end = row.tolist().index(model.config.end_id)
        of_captions.append(
            reference.unit(np.array([*reference.gathered(parameters["text"], words[:end]), whole]))
        )
    late = fused.Late(np.array(of_pictures), np.array(of_captions), WEIGHT)
    scores = reference.scores(np.asarray(image.image), np.asarray(text.text), late)
    return late, scores, np.array(owner)


def test_tokens_are_those_of_the_reference(embedded, expected):
    late = embedded[1]
    assert late.image.shape == (12, TOKENS + 1, 8)
    assert late.text.dtype == late.image.dtype == np.float32
    np.testing.assert_allclose(late.image, expected[0].image, atol=TOLERANCE)
    np.testing.assert_allclose(late.text, expected[0].text, atol=TOLERANCE)
    found = all_scores(embedded[0].image, embedded[0].text, late)
    np.testing.assert_allclose(found, expected[1], atol=TOLERANCE)


def test_recall_is_that_of_the_reference(embedded, expected, pictures):
    scores, owner = expected[1:]
    result = protocol.measure(embedded[0], groups.EvalGroup(ks=(1, 3)), None, embedded[1])
    is_right = owner[:, None] == np.arange(12)
    asking = np.isin(owner, pictures.queries)
    ranks = {
        "t2i": ties.Ranks(*reference.ranks(scores, is_right)[:, asking]),
        "i2t": ties.Ranks(*reference.ranks(scores.T, is_right.T)[:, list(pictures.queries)]),
    }
    for name, found in ranks.items():
        for k in (1, 3):
            assert result.metrics[f"{name}_r@{k}"] == ties.recall(found, k)
        assert result.metrics[f"{name}_median_rank"] == np.median(ties.places(found))
    assert result.protocol["score"] == "0.7 cosine + 0.3 late interaction"
    assert result.protocol["similarity"].startswith("0.7 cosine + 0.3 late interaction, float32")
    assert (result.protocol["t2i_queries"], result.protocol["i2t_queries"]) == (13, 8)
    assert result.protocol["truncated_captions"] == 1


def test_devices_and_batches_change_no_token(model, params, pictures, embedded):
    run, _ = evaluator(model, pictures, devices=1, batch_size=5)
    other = run.embed_tokens(jax.device_put(params, jax.devices()[0]), WEIGHT)
    for one, two in ((embedded[0], other[0]), (embedded[1], other[1])):
        np.testing.assert_allclose(two.image, one.image, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(two.text, one.text, rtol=1e-5, atol=1e-6)


def test_the_head_makes_the_tokens_that_training_makes(model, params, pictures):
    rng = np.random.default_rng(4)
    rows = {name: rng.standard_normal((4, n, 8)) for name, n in (("patches", 9), ("words", 6))}
    whole = {name: reference.unit(rng.standard_normal((4, 8))) for name in ("image", "text")}
    mask = (np.arange(6) > 0) & (np.arange(6) < rng.integers(2, 6, (4, 1)))
    given = {name: jnp.float32(x) for name, x in (rows | whole).items()} | {"word_mask": mask}
    both = types.Embeddings(**given)
    parts = finelip.image_tokens_of, finelip.text_tokens_of
    expected = [jax.jit(part)(params["method"]["triplet"], both) for part in parts]
    head = jax.jit(lambda found: fused.head(params, found).tokens)
    one = types.Embeddings(image=both.image, patches=both.patches)
    two = types.Embeddings(text=both.text, words=both.words, word_mask=jnp.asarray(mask))
    for found, tokens in zip((one, two), expected, strict=True):
        np.testing.assert_allclose(head(found), tokens, atol=1e-6)


def test_tokens_that_are_not_finite_are_a_named_error(model, params, pictures):
    spoilt = jax.tree.map(np.copy, params)
    spoilt["method"]["triplet"]["text"]["fc_in"]["bias"][0] = np.nan
    run, _ = evaluator(model, pictures, devices=1, batch_size=5)
    with pytest.raises(types.UserError, match="17 of 17 text embeddings are not finite"):
        run.embed_tokens(jax.device_put(spoilt, jax.devices()[0]), WEIGHT)


def test_parameters_are_checked(params, small_config):
    triplet = params["method"]
    assert fused.check("x", "finelip", triplet, small_config) == triplet
    with pytest.raises(types.UserError, match="x holds what method 'own' added"):
        fused.check("x", "own", triplet, small_config)
    with pytest.raises(types.UserError, match="need the 'triplet' of a run"):
        fused.check("x", "finelip", {"token": {}}, small_config)
    wide = dataclasses.replace(small_config, embed_dim=16)
    with pytest.raises(types.UserError, match=r"width 16: .*norm/bias is \(8,\), not \(16,\)"):
        fused.check("x", "finelip", triplet, wide)
    part = {"triplet": {"text": triplet["triplet"]["text"]}}
    with pytest.raises(types.UserError, match="image/scale is missing, not"):
        fused.check("x", "finelip", part, small_config)


def test_tokens_of_another_list_and_a_weight_that_is_no_share():
    image, text, owner, late = reference.random_list(5, 7)
    with pytest.raises(types.UserError, match="tokens of 5 pictures and 7 captions, but embeddin"):
        retrieval.measure(image, text[:5], np.arange(5), scorer=late.scorer)
    for weight in (-0.1, 1.1, math.nan):
        late = dataclasses.replace(late, weight=weight)
        with pytest.raises(types.UserError, match="from 0"):
            retrieval.measure(image, text, owner, scorer=late.scorer)
