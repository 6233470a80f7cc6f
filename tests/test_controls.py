"""The controls: which runs they are, and the command."""

import dataclasses
import json
import signal

import pytest

from hnclip_jax import config, types
from tests.controls_cases import NAMES, base, jobs, trained
from tools import controls, controls_results, controls_runs


def test_variants_differ_in_what_they_say_and_nothing_else(tmp_path):
    made = {job.variant: job.settings for job in jobs(tmp_path, NAMES, 1)}
    assert list(made) == NAMES
    found = {
        name: {key: new for key, (_, new) in config.differences(made["gamma_0"], one).items()}
        for name, one in made.items()
    }
    boost = {"loss.gamma": 0.3}
    fixed = {"optim.logit_scale_init": 20.0, "optim.freeze_logit_scale": True}
    assert found == {
        "gamma_0": {},
        "hn": boost,
        "constant": boost | {"loss.kind": "constant"},
        "wide": boost | {"loss.kind": "constant", "loss.constant_margin": 0.35},
        "centred": boost | {"loss.kind": "centred"},
        "row_centred": boost | {"loss.kind": "row_centred"},
        "row_shuffled": boost | {"loss.kind": "row_shuffled"},
        "frozen": boost | {"loss.kind": "frozen"},
        "fixed_s": fixed,
        "fixed_s_hn": boost | fixed,
        "smoothing": {"loss.label_smoothing": 0.1},
        "grouped": {"data.grouping": "captions"},
        "grouped_hn": boost | {"data.grouping": "captions"},
    }
    plain = made["gamma_0"]
    assert (plain.loss.kind, plain.loss.gamma, plain.data.grouping) == ("hn_clip", 0.0, "none")


def test_gamma_by_epoch_acts_on_boosted_ones_alone(tmp_path):
    made = jobs(tmp_path, seeds=1, loss__gamma_by_epoch=(0.1, 0.2))
    assert [job.settings.loss.gamma_by_epoch for job in made] == [(), (0.1, 0.2)]


def test_all_of_a_seed_share_it(tmp_path):
    made = jobs(tmp_path, NAMES, 3)
    assert [(job.variant, job.seed) for job in made] == [
        (name, seed) for seed in (7, 8, 9) for name in NAMES
    ]
    assert all(job.settings.train.seed == job.seed for job in made)
    assert len({job.path for job in made}) == 3 * len(NAMES)
    assert made[1].path == tmp_path / "hn_seed7"
    assert made[1].name == "hn, seed 7"


def test_a_base_is_what_all_of_its_seed_start_from(tmp_path):
    made = jobs(tmp_path, ("hn", "frozen"), 2, base_steps=4, loss__gamma_start_step=50)
    assert [job.name for job in made] == [
        f"{name}, seed {seed}" for seed in (7, 8) for name in ("base", "hn", "frozen")
    ]
    first, second = made[3:5]
    assert (first.settings.loss.gamma, first.settings.train.steps, first.needs) == (0.0, 4, None)
    assert (first.settings.model.init, first.settings.train.seed) == ("random", 8)
    model = second.settings.model
    assert (model.init, model.weights, model.preset) == ("weights", str(first.path), "")
    assert (second.settings.loss.gamma_start_step, second.settings.train.steps) == (0, 10)
    assert second.needs == first.path
    epochs = jobs(tmp_path, seeds=1, base_steps=4, train__steps=0, train__epochs=2)
    assert [job.settings.train.epochs for job in epochs] == [0, 2, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"names": ("hn", "hn")}, "--variants names hn, hn; to compare needs at least two"),
        ({"names": ("frozen", "grouped")}, "one of them gamma_0 or hn"),
        ({"names": ("hm",)}, "unknown variant 'hm'; did you mean 'hn'"),
        ({"model__init": "weights"}, "set model.weights=PATH"),
        ({"eval__data": ""}, "set eval.data"),
        ({"eval__ks": (5,)}, "have 1 in eval.ks"),
        ({"loss__gamma": 0.0}, "loss.gamma is 0,"),
        ({"loss__gamma_start_step": 10}, "act from step 10 on, but runs have 10 steps"),
        ({"names": ("hn", "grouped"), "data__group_size": 5}, "fit whole into 16"),
        (
            {"names": ("hn", "grouped"), "train__micro_batches": 8},
            "group_size=4 captions do not fit whole into 2",
        ),
    ],
)
def test_mistakes_are_told_before_the_first_run(tmp_path, options, says):
    with pytest.raises(types.UserError) as caught:
        jobs(tmp_path, **options)
    assert says in str(caught.value)


def test_a_folder_of_other_settings_is_not_gone_on_with(tmp_path):
    trained(jobs(tmp_path)[1])
    jobs(tmp_path, log__every_steps=3)
    with pytest.raises(types.UserError, match=r"optim\.lr was 0.001, is 0.5"):
        jobs(tmp_path, optim__lr=0.5)


# The command.


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Runs the tool with a stand-in for training: (words, recall by run) -> what was started."""
    path = tmp_path / "own_config.py"
    values = dataclasses.asdict(base())
    path.write_text(
        "import ml_collections\n"
        f"def get_config():\n    return ml_collections.ConfigDict({values!r})\n"
    )

    def run(*words, recall=lambda job: (50.0, 40.0), out="out"):
        started = []

        def start(job):
            started.append(job.name)
            if pair := recall(job):
                trained(job, pair)
            return "" if pair else "exit code 2: no"

        monkeypatch.setattr(controls_runs, "train", start)
        before = signal.getsignal(signal.SIGTERM)
        try:
            controls.main(["controls", f"--config={path}", f"--out={tmp_path / out}", *words])
        finally:
            signal.signal(signal.SIGTERM, before)
        return started

    return run


def test_all_is_written(call, tmp_path, capsys):
    started = call(
        "--variants=gamma_0,hn",
        "--seeds=2",
        "--base_steps=3",
        "--config.train.steps=4",
        recall=lambda job: (10.0 + (job.variant == "hn"), 20.0 + job.seed),
    )
    assert started == [
        f"{name}, seed {seed}" for seed in (7, 8) for name in ("base", "gamma_0", "hn")
    ]
    said = capsys.readouterr().out
    assert (tmp_path / "out" / "controls.md").read_text() == said
    assert "| start of all | 2 | 10.0 (10.0 to 10.0) |" in said
    numbers = json.loads((tmp_path / "out" / "controls.json").read_text())
    assert numbers["runs"]["hn"]["8"] == {
        "t2i": 11.0, "i2t": 28.0, "mean": 19.5, **dict.fromkeys(controls_results.ENDS)
    }  # fmt: skip
    assert [row["variant"] for row in numbers["rows"][::3]] == ["base", "gamma_0", "hn"]
    head = (tmp_path / "out" / "controls.csv").read_text().splitlines()[0]
    assert head.startswith("variant,metric,seeds,mean,lowest,highest,less_")
    assert 0 < (tmp_path / "out" / "controls.png").stat().st_size < 200_000
    settings = json.loads((tmp_path / "out" / "hn_seed8" / "config.json").read_text())
    assert settings["train"]["steps"] == 4


def test_what_is_there_is_not_done_again(call, capsys):
    words = ("--variants=gamma_0,hn", "--seeds=1")
    assert len(call(*words)) == 2
    first = capsys.readouterr().out
    assert call(*words) == []
    assert capsys.readouterr().out == first
    assert call("--variants=gamma_0,hn,grouped", "--seeds=1") == ["grouped, seed 7"]


def test_failed_runs_are_told_at_the_end(call, tmp_path, capsys):
    words = ("--variants=gamma_0,hn", "--seeds=2")
    with pytest.raises(types.UserError) as caught:
        call(*words, recall=lambda job: None if job.name == "hn, seed 7" else (50.0, 40.0))
    assert str(caught.value).startswith(
        "1 of 4 runs are not complete: hn, seed 7 (exit code 2: no); the same command"
    )
    assert "| HN-CLIP, gamma G | 1 | 50.0" in capsys.readouterr().out
    assert (tmp_path / "out" / "controls.csv").exists()
    assert call(*words) == ["hn, seed 7"]
    with pytest.raises(types.UserError, match="2 of 2 runs are not complete"):
        call("--variants=gamma_0,hn", "--seeds=1", recall=lambda job: None, out="none")
    assert not (tmp_path / "none" / "controls.md").exists()


def test_who_stops_it_is_told_how_to_go_on(call):
    def stopped(job):
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(types.UserError, match="stopped; the same command goes on"):
        call(recall=stopped)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seeds=0"], "--seeds"),
        (["more"], "does not understand 'more'"),
        (["--variants=hm"], "did you mean 'hn'"),
    ],
)
def test_mistakes_on_the_command_line(call, words, says):
    with pytest.raises(types.UserError) as caught:
        call(*words)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_is_needed(tmp_path):
    with pytest.raises(types.UserError, match="needs --config"):
        controls.main(["controls"])
    with pytest.raises(types.UserError, match="there is no config file"):
        controls.main(["controls", f"--config={tmp_path}/none.py"])
