"""The page: landmarks, headings, and a policy that lets nothing but its own parts in."""

import base64
import hashlib
import re

import pytest

from hnclip_jax.analysis.report import document, markup
from tests.analysis.report import reading

HOSTILE = """</title><script>alert('1')</script>"""


@pytest.fixture(scope="module")
def page():
    sections = [
        document.Section("one", "First", markup.tag("p", "x")),
        document.Section("two", HOSTILE, markup.tag("h3", "y")),
    ]
    return document.page(HOSTILE, "About & on", sections)


@pytest.fixture(scope="module")
def tree(page):
    assert page.startswith("<!doctype html>\n<html ")
    return reading.read(page.removeprefix("<!doctype html>"))


def test_landmarks_and_headings(tree):
    for name in ("header", "nav", "main", "footer", "h1", "title"):
        tree.one(name)
    assert tree.one("html").attributes["lang"] == "en"
    assert tree.one("h1").text == tree.one("title").text == HOSTILE
    assert tree.one("nav").attributes["aria-label"]
    links = [(a.text, a.attributes["href"]) for a in tree.one("nav").all("a")]
    assert links == [("First", "#one"), (HOSTILE, "#two")]
    for section in tree.one("main").all("section"):
        heading = tree.one("h2", id=section.attributes["aria-labelledby"])
        assert heading in section.children
    assert [node.attributes["id"] for node in tree.all("section")] == ["one", "two"]


def test_the_first_link_skips_to_the_content(tree):
    first = tree.one("body").all("a")[0]
    assert first.attributes["href"] == "#" + tree.one("main").attributes["id"]
    assert tree.one("main").attributes["tabindex"] == "-1"


def test_nothing_but_its_own_style_and_script_is_allowed(tree):
    policy = tree.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "'self' file:"
    assert {rules["base-uri"], rules["form-action"]} == {"'none'"}
    assert rules.keys() == {
        "default-src", "img-src", "style-src", "script-src", "base-uri", "form-action",
    }  # fmt: skip
    for name in ("style", "script"):
        digest = hashlib.sha256(tree.one(name).text.encode()).digest()
        assert rules[f"{name}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"


def test_the_policy_comes_before_what_it_rules(page):
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script>")
    # A browser looks for the encoding among the first bytes.
    assert page.index('charset="utf-8"') < 1000


def test_style_and_script_need_no_escaping(page):
    for name in ("style", "script"):
        inside = re.search(f"<{name}>(.*?)</{name}>", page, re.DOTALL)[1]
        assert "</" not in inside
        assert "<!--" not in inside
        assert "\r" not in inside
    assert page.count("<script") == 1
    assert "http://" not in page
    assert "https://" not in page
    assert " style=" not in page


def test_it_says_who_made_it(tree):
    names = {
        meta.attributes.get("name"): meta.attributes.get("content") for meta in tree.all("meta")
    }
    assert names["generator"] == document.GENERATOR
    assert names["viewport"] == "width=device-width, initial-scale=1"
    assert names["color-scheme"] == "light dark"
