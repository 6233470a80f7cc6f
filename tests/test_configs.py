"""Every file in configs/ gives a configuration that passes its checks and says how to run it."""

import ast
import importlib.util
import math
import pathlib

import pytest

from hnclip_jax import config, types
from hnclip_jax.data import benchmarks
from hnclip_jax.losses import objective
from hnclip_jax.models import presets

FILES = sorted((pathlib.Path(__file__).parent.parent / "configs").glob("*.py"))


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAPER = _load(FILES[0].parent / "longclip_l.py")
HOSTS = _load(FILES[0].parent / "hosts.py")


def _paper(arg):
    return config.from_config_dict(PAPER.get_config(arg))


def _host(arg):
    return config.from_config_dict(HOSTS.get_config(arg))


def _builds(made):
    """Checks that the objective can be built, and returns the names of its terms."""
    built = objective.build(made.loss, made.method, steps_per_epoch=10)
    presets.from_group(made.model)
    return {term.name for term, _ in built.terms}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_config_is_valid_and_its_header_has_the_command(path):
    settings = config.from_config_dict(_load(path).get_config())
    assert settings.train.steps or settings.train.epochs
    if settings.model.preset:
        presets.from_group(settings.model)
    header = ast.get_docstring(ast.parse(path.read_text()))
    assert f"hnclip train --config=configs/{path.name}" in header


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_the_demonstration_starts_from_nothing(path):
    made = config.from_config_dict(_load(path).get_config())
    if path.stem == "demo":
        config.check_start(made.model)
    else:
        assert made.model.init == "weights"
        header = ast.get_docstring(ast.parse(path.read_text()))
        assert "--config.model.weights=PATH" in header


def test_the_demonstration_boosts_in_its_second_phase():
    made = config.from_config_dict(_load(FILES[0].parent / "demo.py").get_config())
    assert 0 < made.loss.gamma_start_step < made.train.steps
    assert made.eval.every_steps % made.log.every_steps == 0
    # The end of the first phase is measured and saved.
    assert made.loss.gamma_start_step % made.eval.every_steps == 0
    assert made.loss.gamma_start_step % made.train.save_every_steps == 0


@pytest.mark.parametrize("name", PAPER.SETS)
def test_the_paper_s_recipe(name):
    made = _paper(name)
    assert (made.loss.kind, made.loss.gamma, made.loss.token_weight) == ("hn_clip", 0.5, 1.0)
    assert (made.optim.lr, made.optim.schedule, made.train.epochs) == (2e-6, "cosine", 10)
    assert (made.train.global_batch_size, made.train.micro_batches) == (128, 8)
    assert (made.train.seed, presets.from_group(made.model).context_length) == (42, 248)
    assert (made.data.fraction, made.optim.warmup_steps) == (1.0, 0)


# Rates of arXiv 2608.18521, appendix D; decay and limit of s as released.
@pytest.mark.parametrize(
    ("method", "row", "lr", "method_lr", "decay", "largest_s"),
    [
        ("clip", "clip", 2e-6, 0.0, 0.01, 100.0),
        ("longclip", "clip", 2e-6, 0.0, 0.01, 100.0),
        ("finelip", "finelip", 1e-6, 2e-4, 0.01, 100.0),
        ("goal", "goal", 5e-6, 0.0, 0.05, 100.0),
        ("structxlip", "structxlip", 5e-6, 0.0, 0.05, math.exp(3.5)),
        ("lora", "clip", 5e-5, 0.0, 0.0, 100.0),
        ("dora", "clip", 5e-5, 0.0, 0.0, 100.0),
    ],
)
def test_methods_have_the_rates_of_the_paper(method, row, lr, method_lr, decay, largest_s):
    for boost in ("off", "on"):
        made = _paper(f"dci,method={method},hn={boost}")
        optim = made.optim
        assert (made.method.name, optim.lr, optim.method_lr) == (row, lr, method_lr)
        assert (optim.weight_decay, optim.max_logit_scale) == (decay, largest_s)
        assert (made.train.global_batch_size, made.train.epochs) == (128, 10)
        adapter = method if method in ("lora", "dora") else ""
        assert (made.method.adapter, made.method.adapter_rank) == (adapter, 16)
        assert optim.freeze_logit_scale == bool(adapter)
        terms = _builds(made)
        # FineLIP's released code has no global term; the boost brings one.
        assert ("global" in terms) == (method != "finelip" or boost == "on")
        assert ("token" in terms) == (method == "clip" and boost == "on")
        assert len(terms) > 1 or made.method.name in ("clip", "finelip")


def test_the_boost_is_off_for_hosts_until_it_is_asked_for():
    for method in PAPER.METHODS:
        plain, boosted = (
            _paper(f"docci,method={method},hn=off"),
            _paper(f"docci,method={method},hn"),
        )
        assert (plain.loss.gamma, plain.loss.token_weight) == (0.0, 0.0)
        assert (boosted.loss.kind, boosted.loss.gamma) == ("hn_clip", 0.5)
        assert boosted.loss.token_weight == (1.0 if method == "clip" else 0.0)
        assert _paper(f"docci,method={method}") == (boosted if method == "clip" else plain)
    # Plain fine-tuning is what the paper calls Long-CLIP.
    assert _paper("docci,method=longclip") == _paper("docci,hn=off")
    assert _paper("docci,method=longclip,hn") == _paper("docci,tokens=off")


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("gamma=0.25", {"loss.gamma": 0.25}),
        ("gamma=0", {"loss.gamma": 0.0}),
        ("frozen", {"loss.kind": "frozen"}),
        ("tokens=off", {"loss.token_weight": 0.0}),
        ("hn=off,tokens", {"loss.gamma": 0.0}),
        ("data=20", {"data.fraction": 0.2}),
        ("seed=43", {"train.seed": 43}),
        ("method=clip,hn=on,tokens=on,data=100,seed=42,frozen=off", {}),
        ("test=dci", {"eval.data": "dci_goal", "eval.root": "DCI_test.json"}),
    ],
)
def test_a_word_changes_what_it_says_and_nothing_else(words, changed):
    found = config.differences(_paper("docci"), _paper(f"docci,{words}"))
    assert {name: new for name, (_, new) in found.items()} == changed


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("doci", "unknown set.*'doci'; did you mean 'docci'"),
        ("", "unknown set"),
        ("method=goal", "unknown set.*valid: dci, docci, long_dci, urban1k"),
        ("docci,metod=goal", "unknown word.*'metod'; did you mean 'method'"),
        ("docci,", "unknown word.*valid: data, frozen, gamma"),
        ("docci,method=gaol", "did you mean 'goal'"),
        ("docci,method", "valid: clip, dora, finelip"),
        ("docci,test=urban", "did you mean 'urban1k'"),
        ("docci,gamma", "gamma= is not a number from -10 to 10"),
        ("docci,gamma=nan", "gamma=nan is not a number"),
        ("docci,data=0", "data=0 is not a number from 0.1 to 100"),
        ("docci,data=20%", "data=20% is not a number"),
        ("docci,seed=1.5", "seed=1.5 is not a whole number from 0 to 2,147,483,647"),
        ("docci,hn=maybe", "hn=maybe is neither hn, hn=on nor hn=off"),
        ("docci,hn,hn=off", "hn stands twice"),
        ("docci,method=goal,gamma=0.25", "gamma is of the boost, which is off; add hn"),
        ("docci,hn=off,frozen", "frozen is of the boost, which is off; add hn"),
    ],
)
def test_a_mistaken_argument_is_one_line(arg, message):
    with pytest.raises(types.UserError, match=message) as raised:
        PAPER.get_config(arg)
    assert "\n" not in str(raised.value)


def test_lists_are_what_a_method_reads_and_tests_are_benchmarks():
    for name, known in PAPER.SETS.items():
        assert known.benchmark in benchmarks.REGISTRY
        lists = {_paper(f"{name},method={method}").data.train for method in ("clip", "lora")}
        assert lists == {known.lists[0]}
        assert _paper(f"{name},method=goal").data.train == known.lists[1]
        assert _paper(f"{name},method=structxlip").data.train == known.lists[2]
        assert _paper(name).eval.data == known.benchmark
    # Long-DCI is another gallery for what was trained on DCI.
    changed = config.differences(_paper("dci"), _paper("long_dci"))
    assert changed.keys() == {"eval.data", "eval.root"}


@pytest.mark.parametrize("host", HOSTS.HOSTS)
def test_hosts_train_as_they_were_released(host):
    made = _host(host)
    terms = _builds(made)
    assert len(terms) > 1 or host == "finelip"
    assert (made.method.name, made.loss.gamma, made.loss.token_weight) == (host, 0.0, 0.0)
    assert (made.model.preset, made.model.stretch) == ("ViT-B/16", 248)
    numbers = (
        made.optim.lr,
        made.optim.weight_decay,
        made.optim.warmup_steps,
        made.train.global_batch_size,
        made.train.micro_batches,
        made.train.epochs,
        made.optim.freeze_first_positions,
    )
    assert (
        numbers
        == {
            "longclip": (1e-6, 0.01, 200, 2048, 1, 6, 20),
            "finelip": (1e-6, 0.01, 200, 512, 4, 6, 20),
            "goal": (5e-6, 0.05, 0, 16, 1, 10, 0),
            "structxlip": (5e-6, 0.05, 0, 16, 1, 10, 0),
        }[host]
    )


def test_hosts_take_a_set_and_towers():
    small, large = _host("goal"), _host("goal,dci,ViT-L/14")
    assert _host("goal,docci,ViT-B/16") == small
    changed = config.differences(small, large)
    assert changed.keys() == {"data.train", "eval.data", "eval.root", "model.preset"}
    assert _host("longclip").loss.label_smoothing == 0.1
    finelip = _host("finelip,ViT-L/14")
    assert "global" not in _builds(finelip)
    assert (finelip.method.finelip_tokens, finelip.train.seed) == (39, 71)
    assert _host("goal").method.goal_mode == "as_released"
    structxlip = _host("structxlip")
    assert structxlip.method.structxlip_mode == "as_released"
    assert structxlip.optim.max_logit_scale == pytest.approx(33.115, abs=1e-3)
    for arg, message in {
        "gaol": "unknown host.*did you mean 'goal'",
        "goal,doci": "did you mean 'docci'",
        "goal,docci,dci": "names sets twice",
        "longclip,docci": "valid: ViT-B/16, ViT-L/14, sharegpt4v",
    }.items():
        with pytest.raises(types.UserError, match=message):
            _host(arg)
