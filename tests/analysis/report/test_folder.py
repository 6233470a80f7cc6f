"""The folder of a report: whole or not at all, and nobody else's files are lost."""

import os

import pytest

from hnclip_jax import types
from hnclip_jax.analysis.report import document, folder

PAGE = document.page("A report", "", [])


def _write(out, text=PAGE, **options):
    with folder.new(out, **options) as draft:
        (draft / folder.PAGE).write_text(text)
        (draft / folder.PICTURES / "1.png").write_bytes(b"12345")


def _names(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*"))


WHOLE = ["index.html", "pictures", "pictures/1.png"]


def test_it_appears_at_the_end_of_the_block(tmp_path):
    out = tmp_path / "deep" / "report"
    with folder.new(out) as draft:
        (draft / folder.PAGE).write_text(PAGE)
        (draft / folder.PICTURES / "1.png").write_bytes(b"12345")
        assert not out.exists()
    assert _names(tmp_path / "deep") == ["report", *(f"report/{name}" for name in WHOLE)]
    assert folder.size(out) == len(PAGE) + 5
    assert os.stat(out).st_mode & 0o055 == 0o055


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError(5, "gone")])
def test_nothing_is_left_of_one_that_failed(tmp_path, error):
    _write(tmp_path / "report", PAGE.replace("A report", "An older report"))
    with pytest.raises(type(error)), folder.new(tmp_path / "report", overwrite=True):
        raise error
    assert _names(tmp_path / "report") == WHOLE
    assert "An older report" in (tmp_path / "report" / "index.html").read_text()
    assert os.listdir(tmp_path) == ["report"]


def test_a_full_disk_is_one_line():
    with (
        pytest.raises(types.UserError, match=r"cannot write out: No space left on device"),
        folder.told("out"),
    ):
        raise OSError(28, "No space left on device")


def test_what_came_in_between_stays(tmp_path):
    def write():
        with folder.new(tmp_path / "report"):
            (tmp_path / "report").mkdir()
            (tmp_path / "report" / "mine").write_text("")

    with pytest.raises(types.UserError, match="holds no report"):
        write()
    assert os.listdir(tmp_path) == ["report"]
    assert os.listdir(tmp_path / "report") == ["mine"]


def test_an_older_one_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    _write(tmp_path / "report", PAGE.replace("A report", "An older report"))
    rename = os.rename

    def fails(source, target):
        if os.path.basename(source) == "new":
            raise OSError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(types.UserError, match=r"cannot write .*Permission denied"):
        _write(tmp_path / "report", overwrite=True)
    assert "An older report" in (tmp_path / "report" / "index.html").read_text()
    assert os.listdir(tmp_path) == ["report"]


def test_an_older_report_goes_only_if_told(tmp_path):
    out = tmp_path / "report"
    _write(out)
    with pytest.raises(types.UserError, match=r"already there: .*; choose another --out, or say"):
        _write(out)
    (out / "pictures" / "old.png").write_bytes(b"")
    _write(out, PAGE + "<!-- newer -->", overwrite=True)
    assert _names(out) == WHOLE
    assert "newer" in (out / "index.html").read_text()
    assert os.listdir(tmp_path) == ["report"]


@pytest.mark.parametrize("content", ["<html></html>", "", None, b"\xff\xfe\x00"])
def test_what_is_no_report_never_goes(tmp_path, content):
    out = tmp_path / "report"
    out.mkdir()
    if isinstance(content, bytes):
        (out / "index.html").write_bytes(content)
    elif content is not None:
        (out / "index.html").write_text(content)
    before = _names(out)
    for overwrite in (False, True):
        with pytest.raises(types.UserError, match="holds no report; choose another --out"):
            folder.check_target(out, overwrite)
        with pytest.raises(types.UserError, match="holds no report"):
            _write(out, overwrite=overwrite)
    assert _names(out) == before


def test_a_file_in_its_place_stays(tmp_path):
    (tmp_path / "report").write_text("mine")
    with pytest.raises(types.UserError, match="holds no report"):
        _write(tmp_path / "report", overwrite=True)
    assert (tmp_path / "report").read_text() == "mine"


def test_files_beside_a_report_keep_it_there(tmp_path):
    out = tmp_path / "report"
    _write(out)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(types.UserError, match=r"more than a report: notes\.txt; move that away"):
        _write(out, overwrite=True)
    assert (out / "notes.txt").read_text() == "mine"


def test_a_place_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(types.UserError, match="cannot write"):
        _write(tmp_path / "file" / "report")
