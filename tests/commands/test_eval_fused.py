"""`hnclip eval --fused`: a run of FineLIP by its fused score; and mistakes."""

import hashlib
import json
import shutil

import jax
import numpy as np
import pytest

from hnclip_jax import added, groups, pretrained
from hnclip_jax.losses import finelip, terms
from hnclip_jax.models import dual_encoder


def parameters(width):
    settings = terms.Settings(groups.LossGroup(), groups.MethodGroup(finelip_tokens=2))
    made = finelip.init(jax.random.key(5), terms.Sizes(width, 9), settings)
    rng = np.random.default_rng(0)
    return {"triplet": jax.tree.map(lambda x: x + 0.5 * rng.standard_normal(x.shape), made)}


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory):
    """The folder of a run of FineLIP."""
    folder = tmp_path_factory.mktemp("run")
    model = dual_encoder.create(small_config)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(1)))
    pretrained.save(folder / "weights", model, params)
    added.save_method(folder / "weights", "finelip", parameters(8), {"step": 3})
    return folder


@pytest.fixture
def own_run(run, tmp_path):
    """A copy of it that a test may spoil."""
    shutil.copytree(run, tmp_path / "own")
    return tmp_path / "own"


def evaluate(hnclip, run, tmp_path, *words, devices=8):
    """The result file and what the command printed."""
    out = tmp_path / "result.json"
    words = [f"--weights={run}", f"--out={out}", "--ks=1,5", *words]
    ran = hnclip("eval", *words, devices=devices)
    assert ran.code == 0, ran.err
    return json.loads(out.read_text()), ran


@pytest.fixture
def several(drawn, tmp_path):
    """The drawn test list, with a second caption of every third picture."""
    rows = json.loads(drawn[1].read_text())
    for number, row in enumerate(rows):
        row["filename"] = str(drawn[1].parent / row["filename"])
        row["caption"] = [row["caption"], f"caption {number}"][: 2 - (number % 3 > 0)]
    path = tmp_path / "several.json"
    path.write_text(json.dumps(rows))
    return path


def test_the_result_says_how_scores_came_about(hnclip, run, several, tmp_path):
    words = [f"--data={several}", "--bootstrap=20"]
    plain, _ = evaluate(hnclip, run, tmp_path, *words)
    found, ran = evaluate(hnclip, run, tmp_path, *words, "--fused")
    file = run / "weights" / "method.safetensors"
    more = {
        "score": "0.8 cosine + 0.2 late interaction",
        "similarity": "0.8 cosine + 0.2 late interaction, float32, precision highest",
        "weights_method": "finelip",
        "weights_method_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    assert found["protocol"] == {**plain["protocol"], **more}
    assert "score" not in plain["protocol"]
    assert [*found["metrics"]] == [*plain["metrics"]]
    assert [*found["intervals"]] == [*plain["intervals"]]
    assert found["metrics"] != plain["metrics"]
    assert found["protocol"]["captions"] == 22
    assert "\nscore: 0.8 cosine + 0.2 late interaction\n" in ran.out
    assert "ranking: 22 of 22 captions" in ran.err


def test_a_weight_of_0_gives_the_numbers_of_the_plain_evaluation(hnclip, run, several, tmp_path):
    plain, _ = evaluate(hnclip, run, tmp_path, f"--data={several}")
    found, _ = evaluate(hnclip, run, tmp_path, f"--data={several}", "--fused", "--fused_weight=0")
    assert found["metrics"] == plain["metrics"]
    assert found["diagnostics"] == plain["diagnostics"]
    assert found["protocol"]["score"] == "1 cosine + 0 late interaction"


def test_devices_batches_and_what_names_the_run_change_no_result(hnclip, run, drawn, tmp_path):
    words = [f"--data={drawn[1]}", "--fused", "--fused_weight=0.5"]
    one, _ = evaluate(hnclip, run, tmp_path, *words, "--batch_size=5", devices=1)
    assert "0.5 cosine + 0.5 late interaction" in one["protocol"]["score"]
    for path in (run / "weights", run / "weights" / "model.safetensors"):
        other, _ = evaluate(hnclip, path, tmp_path, *words, "--batch_size=16")
        assert other["metrics"] == one["metrics"]


MISTAKES = {
    "embeddings": (["--embeddings=x", "--fused"], "--fused needs tokens, which are no part of"),
    "weight alone": (["--weights=x", "--data=y", "--fused_weight=0.3"], "add --fused"),
    "weight": (
        ["--weights=x", "--data=y", "--fused", "--fused_weight=1.5"],
        "fused_weight is 1.5, but the share of the late interaction is from 0",
    ),
    "nan": (["--weights=x", "--data=y", "--fused", "--fused_weight=nan"], "fused_weight is nan"),
}


@pytest.mark.parametrize(("words", "part"), list(MISTAKES.values()), ids=list(MISTAKES))
def test_a_mistake_is_one_line(hnclip, words, part):
    assert part in hnclip("eval", *words).one_line("eval")


def test_weights_without_a_method(hnclip, own_run, drawn):
    (own_run / "weights" / "method.safetensors").unlink()
    ran = hnclip("eval", f"--weights={own_run}", f"--data={drawn[1]}", "--fused")
    assert "needs what a run with method.name=finelip adds to the model" in ran.one_line("eval")
    assert "there is no" in ran.one_line("eval")


SPOILT = {
    "another method": ("own", {"own": {"x": np.ones(2)}}, "what method 'own' added (own), but"),
    "another width": ("finelip", parameters(16), "does not fit the model, whose embeddings have"),
    "no triplet": ("finelip", {"token": {"x": np.ones(2)}}, "need the 'triplet' of a run with"),
}


@pytest.mark.parametrize(("method", "made", "part"), list(SPOILT.values()), ids=list(SPOILT))
def test_parameters_that_do_not_fit_are_one_line(hnclip, own_run, drawn, method, made, part):
    added.save_method(own_run / "weights", method, made, {})
    ran = hnclip("eval", f"--weights={own_run}", f"--data={drawn[1]}", "--fused")
    assert part in ran.one_line("eval")
    assert "method.safetensors" in ran.one_line("eval")


def test_values_that_are_not_finite(hnclip, own_run, drawn):
    made = jax.tree.map(np.array, parameters(8))
    made["triplet"]["image"]["fc_out"]["bias"][0] = np.nan
    added.save_method(own_run / "weights", "finelip", made, {})
    ran = hnclip("eval", f"--weights={own_run}", f"--data={drawn[1]}", "--fused")
    assert "image embeddings are not finite" in ran.one_line("eval")
