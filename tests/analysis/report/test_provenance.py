"""Provenance: facts in tables, commands that can be copied."""

from hnclip_jax.analysis.report import provenance
from tests.analysis.report import reading


def test_facts_and_commands():
    origin = provenance.Origin(
        "run <a>",
        (("weights, SHA-256", "ab" * 32), ("folder", "/tmp/<x>")),
        (("To train again:", "hnclip train --config='a b.py' && \"x\""),),
    )
    tree = reading.read(provenance.render([origin, provenance.Origin("other", ())]))
    assert [node.text for node in tree.all("h3")] == ["run <a>", "other"]
    first, second = tree.all("table")
    assert first.rows() == [
        ["What", "Value"],
        ["weights, SHA-256", "ab" * 32],
        ["folder", "/tmp/<x>"],
    ]
    assert second.rows() == [["What", "Value"]]
    assert not tree.all("button")
    assert tree.one("pre").text == "hnclip train --config='a b.py' && \"x\""
    assert tree.one("p").text == "To train again:"
    assert first.one("caption").text == "run <a>: where it comes from"
