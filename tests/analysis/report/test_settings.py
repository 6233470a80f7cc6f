"""Settings: those in which runs differ, and all of them."""

import dataclasses

from hnclip_jax import config
from hnclip_jax.analysis import history
from hnclip_jax.analysis.report import settings
from tests.analysis.report import reading


def _run(name, **values):
    made = config.Config()
    for key, value in values.items():
        group, field = key.split("__")
        changed = dataclasses.replace(getattr(made, group), **{field: value})
        made = dataclasses.replace(made, **{group: changed})
    return history.History(name, made, ())


def _tables(*runs):
    tree = reading.read(settings.render(runs))
    return tree, [table.rows() for table in tree.all("table")]


def test_only_what_differs_and_then_all():
    runs = [
        _run("a", loss__gamma=0.0, train__seed=1, data__train="x.json"),
        _run("b", loss__gamma=0.5, train__seed=1, data__train=""),
        _run("<c>", loss__gamma=0.5, train__seed=1, data__train="x.json", eval__ks=(1, 3)),
    ]
    tree, (differing, everything) = _tables(*runs)
    assert differing == [
        ["Setting", "a", "b", "<c>"],
        ["data.train", "x.json", "(empty)", "x.json"],
        ["loss.gamma", "0.0", "0.5", "0.5"],
        ["eval.ks", "1,5,10", "1,5,10", "1,3"],
    ]
    fields = sum(len(dataclasses.fields(group)) for group in vars(config.Config()).values())
    assert len(everything) == 1 + fields
    assert everything[0] == ["Setting", "default", "a", "b", "<c>"]
    rows = {row[0]: row[1:] for row in everything}
    assert rows["train.seed"] == ["42", "1", "1", "1"]
    assert rows["loss.gamma_by_epoch"] == ["(none)"] * 4
    assert tree.one("details").one("summary").text == f"All {fields} settings"
    assert [caption.text for caption in tree.all("caption")] == [
        "Settings that differ",
        "All settings",
    ]


def test_one_run_is_held_against_the_defaults():
    tree, (differing, _) = _tables(_run("a", loss__gamma=0.25))
    assert differing == [["Setting", "default", "a"], ["loss.gamma", "0.5", "0.25"]]
    assert tree.all("caption")[0].text == "Settings other than the defaults"


def test_no_difference_is_said():
    for runs in ([_run("a"), _run("b")], [_run("a")]):
        tree, tables = _tables(*runs)
        assert len(tables) == 1
        said = tree.one("p").text
        assert said in ("The runs do not differ in any setting.", "All settings are the defaults.")


def test_values_of_other_types_differ():
    runs = [_run("a", train__steps=1), _run("b", train__steps=True)]
    assert _tables(*runs)[1][0][1] == ["train.steps", "1", "True"]
