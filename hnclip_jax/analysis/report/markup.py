"""Elements of HTML and SVG: whatever is no markup yet is escaped, here and nowhere else."""

import html
from collections.abc import Iterable
from typing import Any

_VOID = ("img", "meta")
"""Elements that have no end."""


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(value: Any) -> Html:
    """Returns a value as markup: as it is if it is some, else its text, escaped.

    Half surrogates, which names of files may hold, become "?": no file in UTF-8
    has them.
    """
    if isinstance(value, Html):
        return value
    plain = str(value).encode("utf-8", "replace").decode("utf-8")
    return Html(html.escape(plain, quote=True))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """Returns an element.

    Args:
      name: of the element.
      *children: markup, or values that are escaped; None = nothing.
      **attributes: `class_` is class, `aria_label` is aria-label; True stands for the name alone,
        None and False for no such attribute.
    """
    shown = "".join(
        f" {_attribute(key)}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(children)}</{name}>")


def join(children: Iterable[Any], separator: str = "") -> Html:
    """Returns children one after the other, those that are no markup escaped; None is left out."""
    return Html(separator.join(escape(child) for child in children if child is not None))


def hidden(text: str) -> Html:
    """Returns text for those who listen to the page."""
    return tag("span", text, class_="hidden")


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
