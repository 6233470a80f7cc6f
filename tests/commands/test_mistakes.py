"""Every mistake is exit code 2 and one line that says what to do, and costs nothing computed."""

import json
import os
import re

import jax
import numpy as np
import pytest

from hnclip_jax import pretrained, types
from hnclip_jax.models import dual_encoder

STEPS = 6


def change(path, index, **values):
    """Changes a row of a list."""
    rows = json.loads(path.read_text())
    rows[index].update(values)
    path.write_text(json.dumps(rows))


def checkpoints(workdir):
    """Returns the steps whose checkpoints are complete."""
    return sorted(int(p.parent.name) for p in workdir.glob("checkpoints/*/commit_success.txt"))


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--config.data.train="], ["data.train is empty"]),
        (["--config.train.global_batch_size=12"], ["8 devices", "nearest sizes: 8 or 16"]),
        (["--config.train.global_batch_size=1"], ["at least 2"]),
        (["--config.optim.learning_rat=1"], ["learning_rat"]),
        (["--config.optim.lr=fast"], ["lr", "fast"]),
        (["--config.model.preset=smal"], ["did you mean 'small'?"]),
        (["--config.parallel.platform=tpu"], ["'tpu'", "'cpu'"]),
        (["--config.optim.warmup_steps=6"], ["warmup_steps (6)", "6 steps of the run"]),
        (["--config.train.steps=0"], ["train.steps or train.epochs"]),
        (["--config.optim.freeze_first_positions=77"], ["model has 77 text positions"]),
        (["--config.eval.data=gone.json"], ["cannot read list", "gone.json"]),
        (["--config.data.vocabulary=gone.txt"], ["vocabulary", "gone.txt"]),
        (["--config.model.init=weights", "--config.model.weights=gone"], ["no weights at gone"]),
        (["--wrkdir=x"], ["wrkdir"]),
        (["more"], ["does not understand 'more'"]),
    ],
    ids=lambda value: value[0] if value[0].startswith("--") else None,
)
def test_a_wrong_word(quick, train, words, parts):
    message = train(*words).one_line()
    assert all(part in message for part in parts), message
    assert not quick.rows


def test_a_best_metric_that_does_not_exist_is_found_before_the_run(train, drawn):
    words = [f"--config.eval.data={drawn[1]}", "--config.train.best_metric=eval/t2i_r@2"]
    message = train(*words).one_line()
    assert "unknown train.best_metric 'eval/t2i_r@2'; did you mean 'eval/t2i_r@" in message


def test_what_is_missing_on_the_command_line(hnclip, write_config, tmp_path):
    path = write_config(tmp_path / "run_config.py", {})
    assert "needs --config and --workdir" in hnclip("train", f"--config={path}").one_line()
    assert "needs --config and --workdir" in hnclip("train", f"--workdir={tmp_path}/x").one_line()
    gone = hnclip("train", f"--config={tmp_path}/gone.py", f"--workdir={tmp_path}/x")
    assert gone.one_line() == f"hnclip train: there is no config file {tmp_path}/gone.py"
    assert "did you mean 'train'?" in hnclip("trian").one_line("trian")
    assert hnclip().code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config.optim.lrr=1"], "unknown setting --config.optim.lrr; did you mean 'lr'?"),
        (["--config.optm.lr=1"], "unknown setting --config.optm.lr; did you mean 'optim'?"),
        (["--config.zzz=1"], "unknown setting --config.zzz; see hnclip_jax/groups for all"),
        (["--config.train.steps=1.5"], "--config.train.steps=1.5: invalid literal"),
    ],
)
def test_a_setting_that_does_not_exist_or_does_not_fit(train, words, message):
    assert message in train(*words).one_line()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("def (", "line 1: SyntaxError"),
        ("def get_config():\n    return nothing\n", "line 2: NameError: name 'nothing'"),
        ("def get_config():\n    raise ValueError('no such list')\n", "no such list"),
    ],
    ids=["syntax", "name", "value"],
)
def test_a_config_file_with_a_mistake_names_the_line(hnclip, tmp_path, program, message):
    path = tmp_path / "broken_config.py"
    path.write_text(program)
    assert (
        message in hnclip("train", f"--config={path}", f"--workdir={tmp_path / 'run'}").one_line()
    )


def test_an_unknown_key_in_the_config_file_is_found(hnclip, write_config, tmp_path):
    path = write_config(tmp_path / "run_config.py", {})
    path.write_text(path.read_text().replace("    return c", "    c.optim.lrr = 1.0\n    return c"))
    message = hnclip("train", f"--config={path}", f"--workdir={tmp_path}/run").one_line()
    assert "unknown config key in 'optim': 'lrr'; did you mean 'lr'?" in message


def test_a_list_that_is_not_there(train, own_set):
    message = train(f"--config.data.train={own_set.parent / 'trian.json'}").one_line()
    assert "did you mean 'train.json'?" in message


@pytest.mark.parametrize(
    ("content", "part"), [("", "is empty"), ("[]", "holds no rows")], ids=["nothing", "no rows"]
)
def test_an_empty_list(train, own_set, content, part):
    own_set.write_text(content)
    message = train().one_line()
    assert part in message
    assert str(own_set) in message


def test_a_missing_picture_is_named_with_every_place_that_was_tried(train, own_set):
    change(own_set, 7, filename="train/gone.png")
    message = train(f"--config.data.image_root={own_set.parent / 'test'}").one_line()
    assert "1 of 64 pictures are missing (row 7," in message
    for folder in ("train", "../train", "test/train", "test"):
        assert os.path.normpath(own_set.parent / folder / "gone.png") in message
    assert "missing to 'skip'" in message


def test_empty_captions_are_counted_and_skipped_on_demand(quick, train, own_set):
    change(own_set, 3, caption=" ")
    change(own_set, 9, caption=None)
    message = train().one_line()
    assert "2 of 64 rows have a caption that is blank" in message
    assert "row 3, 9" in message
    ran = train("--config.data.empty_caption=skip")
    assert ran.code == 0, ran.err
    assert "62 pairs of 62 pictures; left out 0 missing pictures, 2 empty captions" in ran.err
    assert max(max(batch) for batch in quick.rows) < 62


def test_a_context_longer_than_the_positions(hnclip, train, own_set, small_config, tmp_path):
    model = dual_encoder.create(small_config)
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), model.abstract_params())
    file = pretrained.save(tmp_path / "weights", model, params)
    words = ["--config.model.init=weights", f"--config.model.weights={file}"]
    message = train(*words, "--config.model.context_length=78").one_line()
    assert "78 tokens" in message
    assert "77 positions" in message
    ran = hnclip("eval", f"--weights={file}", f"--data={own_set}", "--context_length=78")
    assert "78 tokens" in ran.one_line("eval")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--config.train.global_batch_size=128"], "fewer than the batch of 128"),
        (["--config.data.vocabulary=gone.txt"], "cannot read vocabulary"),
    ],
    ids=["batch", "vocabulary"],
)
def test_the_corrected_command_may_use_the_folder_of_a_run_that_never_began(
    quick, train, words, part
):
    assert part in train(*words).one_line()
    ran = train()
    assert ran.code == 0, ran.err
    assert len(quick.rows) == STEPS


def test_a_folder_with_another_configuration(quick, train):
    assert train("--stop_after=2").code == 0
    message = train("--config.optim.lr=0.1").one_line()
    assert "optim.lr was 0.001, is 0.1" in message
    assert "--workdir" in message
    assert train("--config.log.every_steps=2").code == 0
    assert len(quick.rows) == STEPS


def test_a_folder_that_is_no_run(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("precious")
    assert "is no run of hnclip" in train().one_line()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("")
    assert "is no run of hnclip" in train(workdir="file").one_line()


def test_a_damaged_config_in_the_folder(quick, train, tmp_path):
    assert train("--stop_after=1").code == 0
    (tmp_path / "run" / "config.json").write_text("{")
    assert "cannot read" in train().one_line()


def test_a_list_that_changed_under_the_run(quick, train, own_set):
    assert train("--stop_after=2").code == 0
    content = own_set.read_text()
    change(own_set, 0, caption="Another caption.")
    message = train().one_line()
    assert "its content changed" in message
    own_set.write_text(content)
    assert train().code == 0
    assert len(quick.rows) == STEPS


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_broken_picture_stops_the_run_where_it_is_met(quick, train, own_set, tmp_path, workers):
    assert train(workdir="straight").code == 0
    straight, quick.rows = quick.rows, []
    picture = own_set.parent / f"train/{straight[3][5]:05d}.png"
    whole = picture.read_bytes()
    picture.write_bytes(whole[:100])
    words = [f"--config.data.workers={workers}"]
    message = train(*words).one_line()
    assert re.search(rf"cannot decode picture {re.escape(str(picture))}: .*truncated", message)
    assert checkpoints(tmp_path / "run") == [3]
    picture.write_bytes(whole)
    ran = train(*words)
    assert ran.code == 0, ran.err
    assert quick.rows == straight


def test_a_broken_picture_in_an_evaluation_costs_neither_the_state_nor_the_result(
    quick, train, drawn, tmp_path
):
    words = [f"--config.eval.data={drawn[1]}", "--config.train.best_metric=eval/t2i_r@1"]
    quick.evaluations = [types.UserError("cannot decode picture x.png")]
    assert train(*words).one_line().endswith("cannot decode picture x.png")
    assert checkpoints(tmp_path / "run") == [STEPS]
    ran = train(*words)
    assert ran.code == 0, ran.err
    assert len(quick.rows) == STEPS
    result = json.loads((tmp_path / "run" / "eval" / "step_00000006.json").read_text())
    assert result["metrics"] == {"t2i_r@1": STEPS}
    assert (tmp_path / "run" / "weights" / "model.safetensors").exists()


def test_a_run_goes_on_with_its_list_packed_but_with_no_other(
    quick, hnclip, train, own_set, tmp_path
):
    assert train("--stop_after=3").code == 0
    other = own_set.with_name("other.json")
    other.write_text(json.dumps(json.loads(own_set.read_text())[1:]))
    message = train(f"--config.data.train={other}").one_line()
    assert f"{other} is not the list that this run began with" in message
    ran = hnclip("data", "pack", own_set, tmp_path / "packed")
    assert ran.code == 0, ran.err
    ran = train(f"--config.data.train={tmp_path / 'packed'}")
    assert ran.code == 0, ran.err
    packed, quick.rows = quick.rows, []
    assert train(workdir="straight").code == 0
    assert packed == quick.rows
