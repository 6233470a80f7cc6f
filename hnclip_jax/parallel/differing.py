"""What processes differ in, in words: item by item, and who has which value."""

from collections.abc import Iterable, Mapping


def lines(facts: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Returns a line for every item whose value is not the same on all processes.

    Args:
      facts: number of a process -> {item: value}; an item that a process lacks is one more value.
    """
    names = dict.fromkeys(name for of in facts.values() for name in of)
    found = []
    for name in names:
        having: dict[str | None, list[int]] = {}
        for index in sorted(facts):
            having.setdefault(facts[index].get(name), []).append(index)
        if len(having) > 1:
            values = [
                f"{'not there' if value is None else repr(value)} on {processes(who)}"
                for value, who in having.items()
            ]
            found.append(f"{name} is {', '.join(values[:4])}" + (", ..." if values[4:] else ""))
    return found


def processes(who: Iterable[int]) -> str:
    """Returns the numbers of processes in words: process 3, processes 0-2 and so on."""
    who = sorted(who)
    return f"process{'es' if len(who) > 1 else ''} {numbers(who)}"


def numbers(who: Iterable[int]) -> str:
    """Returns numbers with runs of them drawn together: 0-2, 5."""
    runs: list[list[int]] = []
    for number in sorted(who):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
