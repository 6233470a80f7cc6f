"""The closing table of a run: what each phase reached, from metrics.jsonl."""

import json
import pathlib
from typing import Any

_COLUMNS = (
    ("loss", "train/loss", "{:.4f}"),
    ("InfoNCE", "train/info_nce", "{:.4f}"),
    ("solved", "train/solved_plain", "{:.0%}"),
    ("s", "train/scale", "{:.1f}"),
    ("G mean", "train/g_mean", "{:.3f}"),
    ("G hardest", "train/g_hardest", "{:.3f}"),
    ("I2T R@1", "eval/i2t_r@1", "{:.1f}"),
    ("T2I R@1", "eval/t2i_r@1", "{:.1f}"),
)
_LAST = 5
"""A phase's training numbers are means over its last so many log lines: one batch is noisy."""


def read(path: str | pathlib.Path) -> list[dict[str, Any]]:
    """Returns the lines of a metrics.jsonl."""
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def phases(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one dict of numbers per phase; a phase is a stretch of steps with gamma 0 or not.

    Args:
      lines: of a metrics.jsonl, in the order of the steps.
    """
    found: list[dict[str, Any]] = []
    for line in lines:
        if "train/gamma" in line:
            boosted = line["train/gamma"] != 0
            if not found or found[-1]["boosted"] != boosted:
                found.append({"boosted": boosted, "train": [], "eval": {}})
            found[-1]["train"].append(line)
            found[-1]["step"], found[-1]["gamma"] = line["step"], line["train/gamma"]
        elif found and any(key.startswith("eval/") for key in line):
            found[-1]["eval"] = line
    return [_row(phase) for phase in found]


def _row(phase: dict[str, Any]) -> dict[str, Any]:
    last = phase["train"][-_LAST:]
    means = {
        key: sum(float(line[key]) for line in last) / len(last)
        for _, key, _ in _COLUMNS
        if key in last[0]
    }
    return {**phase["eval"], **means, "step": phase["step"], "gamma": phase["gamma"]}


def table(lines: list[dict[str, Any]]) -> str:
    """Returns the closing table as text, one line per phase."""
    rows = phases(lines)
    shown = [column for column in _COLUMNS if any(column[1] in row for row in rows)]
    cells = [["steps", "gamma", *(title for title, _, _ in shown)]]
    for row in rows:
        values = [form.format(row[key]) if key in row else "-" for _, key, form in shown]
        cells.append([f"to {row['step']}", f"{row['gamma']:g}", *values])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )
