"""The page from its sections: head, contents, landmarks, and a policy that forbids the network."""

import base64
import dataclasses
import hashlib
import importlib.resources
from collections.abc import Sequence

from hnclip_jax.analysis.report import markup

GENERATOR = "hnclip report"
"""Stands in every page, and tells it from others."""


@dataclasses.dataclass(frozen=True)
class Section:
    """identifier: the end of its address; title: its heading; body: markup, headings from h3."""

    identifier: str
    title: str
    body: markup.Html


def page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Returns the whole page as text.

    Args:
      title: the page's name and its only h1.
      summary: a sentence below it.
      sections: in their order; each becomes an entry of the contents.
    """
    style, script = _read("style.css"), _read("script.js")
    head = markup.tag(
        "head",
        markup.tag("meta", charset="utf-8"),
        markup.tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        markup.tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        markup.tag("meta", name="generator", content=GENERATOR),
        markup.tag("meta", name="color-scheme", content="light dark"),
        markup.tag("meta", name="referrer", content="no-referrer"),
        markup.tag("title", title),
        # Neither holds anything that is escaped in HTML, as a test makes sure.
        markup.tag("style", style),
    )
    body = markup.tag(
        "body",
        markup.tag("a", "Skip to the content", href="#content", class_="skip"),
        markup.tag("header", markup.tag("h1", title), markup.tag("p", summary)),
        _contents(sections),
        markup.tag("main", *map(_section, sections), id="content", tabindex="-1"),
        markup.tag("footer", markup.tag("p", "Written by hnclip report.")),
        markup.tag("p", id="said", class_="hidden", role="status"),
        markup.tag("script", script),
    )
    return f"<!doctype html>\n{markup.tag('html', head, body, lang='en')}\n"


def _contents(sections: Sequence[Section]) -> markup.Html:
    entries = (
        markup.tag("li", markup.tag("a", one.title, href=f"#{one.identifier}")) for one in sections
    )
    return markup.tag("nav", markup.tag("ul", *entries), aria_label="Contents")


def _section(one: Section) -> markup.Html:
    heading = f"{one.identifier}-heading"
    return markup.tag(
        "section",
        markup.tag("h2", one.title, id=heading),
        one.body,
        id=one.identifier,
        aria_labelledby=heading,
    )


def _policy(style: str, script: str) -> str:
    """Returns what the page may do: show its own pictures, style and script, and nothing else."""
    return (
        "default-src 'none'; img-src 'self' file:; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    """Returns the hash by which a policy names inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> markup.Html:
    file = importlib.resources.files("hnclip_jax.analysis.report") / name
    return markup.Html(file.read_text("utf-8"))
