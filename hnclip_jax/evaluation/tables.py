"""A result as text for people: a line per direction, a column per metric."""

from hnclip_jax.evaluation import protocol

_TITLES = {"t2i": "text to image", "i2t": "image to text"}


def table(result: protocol.Result) -> str:
    """Returns recall and what else was measured; with intervals, half their width behind each."""
    keys = [name.removeprefix("t2i_") for name in result.metrics if name.startswith("t2i_")]
    columns = [[_heading(key), *(_value(result, name, key) for name in _TITLES)] for key in keys]
    widths = [max(8, *(len(cell) + 2 for cell in column)) for column in columns]
    rows = zip(("direction", *_TITLES.values()), *columns, strict=True)
    lines = [_about(result)]
    for title, *cells in rows:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append("".join([title.ljust(16), *padded]))
    lines.append(
        f"ties {result.metrics['ties']}, truncated captions "
        f"{result.protocol['truncated_captions']}, duplicate captions "
        f"{result.protocol['duplicate_captions']}"
    )
    if score := result.protocol.get("score"):
        lines.append(f"score: {score}")
    if rule := result.protocol.get("relevance"):
        right = {"pair": "a caption's own picture", "group": "all of a group"}[rule]
        lines.append(f"mAP by relevance '{rule}': right is {right}")
    if interval := result.protocol.get("interval"):
        lines.append(f"±: half of the {interval}")
    return "\n".join(lines)


def _about(result: protocol.Result) -> str:
    pictures, captions = (result.protocol[name] for name in ("pictures", "captions"))
    name = result.protocol.get("benchmark")
    text = f"{name}: " if name else ""
    text += f"{captions:,} captions, {pictures:,} pictures"
    asking = [result.protocol.get(f"{name}_queries") for name in _TITLES]
    if None not in asking and asking != [captions, pictures]:
        text += f"; of these ask {asking[0]:,} captions, {asking[1]:,} pictures"
    return text


def _heading(key: str) -> str:
    return key.replace("r@", "R@").replace("map@", "mAP@").replace("median_rank", "median")


def _value(result: protocol.Result, direction: str, key: str) -> str:
    name = f"{direction}_{key}"
    digits = 1 if key == "median_rank" else 2
    text = f"{result.metrics[name]:.{digits}f}"
    if name in result.intervals:
        low, high = result.intervals[name]
        text += f" ±{(high - low) / 2:.{digits}f}"
    return text
