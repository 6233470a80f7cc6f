"""What tests of `hnclip report` share: reading the page, and changing a run before."""

import json

from tests.analysis.report import reading

HOSTILE = """<script>alert('kite')</script> "A" & <b>bold</b> kite"""
"""What every caption of the made runs begins with."""


def page(out):
    """Returns the page of a report."""
    text = (out / "index.html").read_text("utf-8")
    return reading.read(text.removeprefix("<!doctype html>"))


def section(page, name):
    """Returns a section of it."""
    return page.one("section", id=name)


def change(run, **groups):
    """Changes settings of a run; returns its folder."""
    path = run / "config.json"
    settings = json.loads(path.read_text())
    for group, values in groups.items():
        settings[group] |= values
    path.write_text(json.dumps(settings))
    return run
