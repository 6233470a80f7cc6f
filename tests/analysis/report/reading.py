"""A page as a tree, for tests: what is an element, an attribute or text as a browser sees it."""

import dataclasses
import html.parser
from collections.abc import Iterator

VOID = ("img", "meta")


@dataclasses.dataclass
class Node:
    """An element; children are nodes and text."""

    name: str
    attributes: dict[str, str | None]
    children: list = dataclasses.field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside."""
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, name: str = "", **attributes: str) -> list["Node"]:
        """Returns all elements inside, in order, of a name and with these attributes."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [
            node
            for node in self._inside()
            if name in ("", node.name) and wanted.items() <= node.attributes.items()
        ]

    def one(self, name: str = "", **attributes: str) -> "Node":
        """Returns the only one of `all`."""
        (found,) = self.all(name, **attributes)
        return found

    def rows(self) -> list[list[str]]:
        """Returns the text of a table, row by row, its head first."""
        return [[cell.text for cell in row.children] for row in self.all("tr")]

    def _inside(self) -> Iterator["Node"]:
        for child in self.children:
            if isinstance(child, Node):
                yield child
                yield from child._inside()


class _Parser(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open = [Node("", {})]

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag):
        assert self.open.pop().name == tag

    def handle_data(self, data):
        self.open[-1].children.append(data)


def read(text: str) -> Node:
    """Returns the tree of a page or a part of it; every element must be closed."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert len(parser.open) == 1, parser.open[-1].name
    return parser.open[0]
