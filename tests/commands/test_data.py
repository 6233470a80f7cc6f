"""`hnclip data`: every action as one types it, what it prints, its exit code."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from hnclip_jax.commands import data
from hnclip_jax.data import lists
from tests.data import drawing


@pytest.fixture
def spoilt(tmp_path):
    """Three rows: one in order, one whose picture is missing, one without a caption."""
    drawing.photo(1).save(tmp_path / "a.png")
    rows = [("a.png", "A red kite."), ("gone.png", "A lost kite."), ("a.png", "")]
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"filename": name, "caption": text} for name, text in rows]))
    return path


def test_check_of_a_list_in_order(hnclip, drawn):
    ran = hnclip("data", "check", drawn[0])
    assert ran.code == 0, ran.err
    assert "64 rows, 64 pictures, 64 captions" in ran.out
    assert "faults\n  none" in ran.out
    assert "reading pictures: 64 of 64 pictures" in ran.err


def test_check_of_a_list_with_faults(hnclip, spoilt):
    ran = hnclip("data", "check", spoilt)
    assert ran.one_line("data") == (
        f"hnclip data: {spoilt} has 1 missing pictures, 1 empty captions; mend them, or write a "
        "list without them by --fix_out=FILE"
    )
    assert ".: 1 of 3, gone.png" in ran.out


def test_check_writes_the_clean_list_and_the_findings(hnclip, spoilt, tmp_path):
    clean, out = tmp_path / "clean.json", tmp_path / "findings.json"
    ran = hnclip("data", "check", spoilt, f"--fix_out={clean}", f"--out={out}")
    assert ran.one_line("data").endswith(f"train on {clean}")
    assert f"wrote {clean}: 1 of 3 rows" in ran.err
    assert [record.captions for record in lists.read(clean).records] == [("A red kite.",)]
    found = json.loads(out.read_text())
    assert found["faults"] == {"missing pictures": 1, "empty captions": 1}
    assert hnclip("data", "check", clean).code == 0


def test_check_of_a_list_that_is_not_utf_8(hnclip, tmp_path):
    (tmp_path / "list.json").write_bytes(b'[{"filename": "a.png", "caption": "caf\xe9"}]')
    ran = hnclip("data", "check", tmp_path / "list.json", f"--fix_out={tmp_path / 'clean.json'}")
    assert "line 1, byte 38 of the file (0xe9)" in ran.out
    assert ran.one_line("data").endswith("save it as UTF-8, then check it again")
    assert not (tmp_path / "clean.json").exists()


def test_check_takes_the_flags_of_pictures(hnclip, spoilt, tmp_path):
    (tmp_path / "set").mkdir()
    moved = spoilt.rename(tmp_path / "set" / "list.json")
    (tmp_path / "root").mkdir()
    (tmp_path / "a.png").rename(tmp_path / "root" / "a.png")
    ran = hnclip("data", "check", moved, f"--image_root={tmp_path / 'root'}", "--max_pixels=10")
    assert "160 x 120 pixels are more than 10" in ran.out or "more than 10 pixels" in ran.out
    assert "1 missing pictures, 1 undecodable pictures" in ran.one_line("data")


def test_check_counts_at_other_lengths(hnclip, drawn):
    out = hnclip("data", "check", drawn[0], "--contexts=300,5").out
    assert out.index("cut at 5 tokens") < out.index("cut at 300 tokens")
    assert "cut at 77" not in out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "; for example: hnclip data check train.json"),
        (["chek"], "unknown action 'chek'; did you mean 'check'?"),
        (["check"], "needs one LIST; for example: hnclip data check"),
        (["stats", "a", "b"], "needs one LIST; for example: hnclip data stats"),
        (["leak", "a.json"], "needs two lists, A and B; for example: hnclip data leak"),
        (["scenes", "more"], "does not understand 'more'"),
        (["check", "gone.json"], "cannot read list"),
        (["stats", "gone.json"], "cannot read list"),
        (["leak", "gone.json", "gone.json"], "cannot read list"),
        (["check", "a.json", "--contexts=77,x"], "contexts are '77,x'"),
        (["check", "a.json", "--contexts=2"], "contexts are '2'"),
        (["check", "a.json", "--transparency=wite"], "'wite' is no colour"),
        (["check", "a.json", "--wrokers=2"], "wrokers"),
        (["check", "a.json", "--workers=-2"], "workers"),
        (["check", "a.json", "--fix_out=/gone/clean.json"], "is no file in a folder"),
        (["leak", "a.json", "b.json", "--fix_out=/gone/clean.json"], "is no file in a folder"),
    ],
)
def test_a_mistake_is_one_line(hnclip, words, part):
    assert part in hnclip("data", *words).one_line("data")


def test_fix_out_never_replaces_a_list_that_is_read(hnclip, spoilt, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(spoilt.read_text())
    for words in (["check", spoilt], ["leak", spoilt, other], ["leak", other, spoilt]):
        before = spoilt.read_text()
        ran = hnclip("data", *words, f"--fix_out={spoilt}")
        assert "give the clean one a new name" in ran.one_line("data")
        assert spoilt.read_text() == before


def test_stats_by_words(hnclip, drawn):
    ran = hnclip("data", "stats", drawn[1], "--shown=2", "--sample=8")
    assert ran.code == 0, ran.err
    assert "16 captions" in ran.out
    assert "above   77" in ran.out
    assert "#####" in ran.out
    assert "nearest other caption by words, of 8 captions" in ran.out
    assert ran.out.count("[") <= ran.out.count("\n")


def test_captions_of_one_picture_or_one_text_are_no_neighbours(hnclip, tmp_path):
    rows = [("a", ["A red kite.", "A red kite!"]), ("b", "A red kite."), ("c", "Two red cups.")]
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"filename": name, "caption": text} for name, text in rows]))
    out = hnclip("data", "stats", path).out
    assert "of 4 captions" in out
    assert out.count("Two red cups.") + out.count("{Two") + out.count("[Two") == 3
    assert " 1.000" not in out


def test_stats_without_neighbours(hnclip, drawn):
    assert "nearest" not in hnclip("data", "stats", drawn[1], "--sample=0").out


def test_stats_by_the_text_encoder(hnclip, drawn, small_config, tmp_path):
    import jax
    import numpy as np

    import hnclip_jax as hn
    from hnclip_jax.models import dual_encoder

    model = dual_encoder.create(small_config)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(0)))
    weights = hn.save(tmp_path / "weights", model, params)
    texts = [record.captions[0] for record in lists.read(drawn[1]).records]
    ran = hnclip("data", "stats", drawn[1], f"--weights={weights}", "--shown=1", devices=1)
    assert ran.code == 0, ran.err
    rows = np.asarray(jax.jit(model.encode_text)(params, hn.tokenize(texts, 77)))
    cosines = rows @ rows.T - 3 * np.equal.outer(texts, texts)
    best = cosines.max()
    assert "nearest other caption by the text encoder, of 16 captions" in ran.out
    assert f"\n  {best:.3f}  " in ran.out


def test_stats_draws_with_matplotlib_only(hnclip, drawn, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = hnclip("data", "stats", drawn[1], f"--out={tmp_path / 'stats'}")
    assert "pip install 'hnclip_jax[plots]'" in ran.one_line("data")
    assert not ran.out
    assert not (tmp_path / "stats").exists()


def test_leak(hnclip, spoilt, tmp_path):
    drawing.photo(2).save(tmp_path / "b.png")
    drawing.photo(1).resize((200, 150)).save(tmp_path / "renamed.jpg", quality=85)
    rows = [("a.png", "A red kite."), ("b.png", "Another.")]
    train = tmp_path / "train.json"
    train.write_text(json.dumps([{"filename": name, "caption": text} for name, text in rows]))
    test = tmp_path / "test.json"
    test.write_text('[{"filename": "renamed.jpg", "caption": "A RED KITE"}]')
    clean, out = tmp_path / "clean.json", tmp_path / "leak.json"
    ran = hnclip("data", "leak", train, test, f"--fix_out={clean}", f"--out={out}")
    assert ran.code == 0, ran.err
    assert "pictures of A that are in B: 1 (50.0% of A; 1 of the 1 of B)" in ran.out
    assert "a.png = renamed.jpg" in ran.out
    assert "'A red kite.' = 'A RED KITE'" in ran.out
    assert f"wrote {clean}: 1 of 2 rows" in ran.err
    assert json.loads(clean.read_text()) == [
        {"filename": "b.png", "caption": "Another.", "id": "b.png"}
    ]
    assert json.loads(out.read_text())["pictures"][0]["kind"] == "alike"


def test_scenes(hnclip, tmp_path):
    words = ("--train=8", "--test_families=1", "--size=24", f"--out={tmp_path / 'scenes'}")
    ran = hnclip("data", "scenes", *words)
    assert ran.code == 0, ran.err
    train, test = ran.out.splitlines()
    assert len(lists.read(train).records) == 8
    assert len(lists.read(test).records) == 4


@pytest.mark.parametrize("action", data.ACTIONS)
def test_help_tells_the_flags_of_an_action(hnclip, action):
    ran = hnclip("data", action, "--help")
    assert ran.code == 0
    what, example = data.describe(["hnclip data", action, "--help"])
    assert what == f"{action}: {data.ACTIONS[action]}"
    assert example.split()[:3] == ["hnclip", "data", action]
    flags = {word.split("=")[0] for word in example.split() if word.startswith("--")}
    assert all(f"  {flag}: " in ran.out for flag in flags)


def test_help_without_an_action_names_them_all(hnclip):
    out = hnclip("data", "--help").out
    assert all(f"hnclip data {action}" in out for action in data.ACTIONS)
    assert data.describe(["hnclip data"])[1] == data.EXAMPLE


def test_ctrl_c_leaves_cleanly(tmp_path):
    rows = [{"filename": f"{number}.png", "caption": f"kite {number}"} for number in range(600)]
    picture = drawing.file(drawing.photo(0, 1200, 900), "PNG")
    (tmp_path / "0.png").write_bytes(picture)
    for row in rows[1:]:
        os.link(tmp_path / "0.png", tmp_path / row["filename"])
    (tmp_path / "list.json").write_text(json.dumps(rows))
    command = [sys.executable, "-m", "hnclip_jax.cli", "data", "check", "list.json", "--workers=2"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as ran:
        children = pathlib.Path(f"/proc/{ran.pid}/task/{ran.pid}/children")
        # Two workers, and what keeps track of them.
        while len(children.read_text().split()) < 3:
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"ended by itself: {ran.wait(0.01)}")
        # A terminal sends it to all.
        os.killpg(ran.pid, signal.SIGINT)
        try:
            # Its end is that of the last process which could write there.
            _, message = ran.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ran.pid, signal.SIGKILL)
    assert ran.returncode == 130
    assert message == "hnclip data: stopped at once; what was saved before is untouched\n"
