"""Reads the text of a compiled program: matrix FLOPs, collectives, and how loops multiply them.

XLA's own cost analysis counts the body of a loop once, however often it runs, so a scan over 24
layers looks like one layer. Here every instruction counts as often as the loops around it turn.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
"""Kinds of instructions by which devices exchange data."""

_SIZES = {"pred": 1, "c64": 8, "c128": 16, "token": 0, "opaque": 0}
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call",
    "conditional", "after-all", "partition-id", "replica-id", "opt-barrier", "custom-call",
}  # fmt: skip
_LINE = re.compile(r"\s*(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)")
_HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")


class Traffic(NamedTuple):
    """Collectives of one kind: how many run in a step, bytes that one device gets from them."""

    count: int
    bytes: int


class Program(NamedTuple):
    """What one device does in a step.

    flops: of matrix products and convolutions; a multiplication and an addition are two.
    loops: bytes read and written by instructions, loops multiplied out, over the same with every
      loop counted once: the factor for XLA's count of bytes, which has them once.
    collectives: kind -> its traffic. A reduce-scatter that the compiler writes as an all-reduce
      fused with a slice counts as reduce-scatter.
    """

    flops: int
    loops: float
    collectives: dict[str, Traffic]


class _Instruction(NamedTuple):
    name: str
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    opcode: str
    operands: tuple[str, ...]
    rest: str
    is_root: bool

    @property
    def bytes(self) -> int:
        return sum(_size(kind) * math.prod(dims) for kind, dims in self.arrays)

    @property
    def dims(self) -> tuple[int, ...]:
        return self.arrays[0][1]


_Body = dict[str, _Instruction]


def read(text: str) -> Program:
    """Returns what the program does whose HLO text is `text`: `compiled.as_text()`.

    Raises:
      ValueError: for a loop whose number of turns the text does not tell.
    """
    bodies, entry = _bodies(text)
    turns: Counter[str] = Counter()
    once: Counter[str] = Counter()
    _walk(bodies, entry, 1, turns)
    _walk(bodies, entry, 1, once, loops=False)
    flops = sum(turns[name] * _flops(body) for name, body in bodies.items())
    inside = {target for body in bodies.values() for target in _fused(body)}
    moved = {name: _bytes(bodies, body) for name, body in bodies.items() if name not in inside}
    single = sum(once[name] * count for name, count in moved.items())
    loops = sum(turns[name] * count for name, count in moved.items()) / max(single, 1)
    return Program(flops, loops, _collectives(bodies, turns))


def _bodies(text: str) -> tuple[dict[str, _Body], str]:
    bodies: dict[str, _Body] = {}
    entry, body = "", None
    for line in text.splitlines():
        if body is None:
            if head := _HEAD.match(line):
                body = bodies[head[2]] = {}
                entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            body = None
        elif made := _instruction(line):
            body[made.name] = made
    return bodies, entry


def _instruction(line: str) -> _Instruction | None:
    # Layouts hold brackets of their own; nothing here depends on them.
    found = _LINE.match(re.sub(r"(?<=\])\{[^{}]*\}", "", line))
    if not found:
        return None
    root, name, shape, opcode, rest = found.groups()
    # Of a constant, a parameter or an iota the bracket holds no operands.
    operands = re.findall(r"%([\w.\-]+)", rest.split(")", 1)[0])
    arrays = tuple(
        (kind, tuple(int(n) for n in dims.split(",") if n)) for kind, dims in _ARRAY.findall(shape)
    )
    return _Instruction(name, arrays, opcode, tuple(operands), rest, bool(root))


def _size(kind: str) -> float:
    bits = re.search(r"\d+", kind)
    return _SIZES.get(kind, int(bits[0]) / 8 if bits else 4)


def _walk(
    bodies: dict[str, _Body], name: str, times: int, counts: Counter[str], loops: bool = True
) -> None:
    """Adds to `counts` how often every computation runs that `name`, run `times`, leads to."""
    counts[name] += times
    for instruction in bodies[name].values():
        turns = _turns(bodies, instruction) if loops and instruction.opcode == "while" else 1
        for target in _called(instruction):
            if target in bodies:
                _walk(bodies, target, times * turns, counts, loops)


def _called(instruction: _Instruction) -> list[str]:
    found = re.findall(r"\b(?:calls|body|condition)=%?([\w.\-]+)", instruction.rest)
    if instruction.opcode == "call":
        found += re.findall(r"\bto_apply=%?([\w.\-]+)", instruction.rest)
    if branches := re.search(r"branch_computations=\{([^}]*)\}", instruction.rest):
        found += re.findall(r"%?([\w.\-]+)", branches[1])
    return found + re.findall(r"\b(?:true|false)_computation=%?([\w.\-]+)", instruction.rest)


def _turns(bodies: dict[str, _Body], loop: _Instruction) -> int:
    if known := re.search(r'known_trip_count"?[:=]\{"?n"?:"?(\d+)', loop.rest):
        return int(known[1])
    # The TPU compiler leaves the number out. A scan's condition is: counter < number, from 0.
    condition = re.search(r"condition=%?([\w.\-]+)", loop.rest)[1]
    numbers = {
        int(found[1])
        for instruction in bodies[condition].values()
        if instruction.opcode == "constant" and instruction.arrays[0][0] in ("s32", "s64", "u32")
        if (found := re.match(r"(\d+)\)", instruction.rest))
    }
    if len(numbers) != 1:
        raise ValueError(f"the compiled program does not tell how often its loop {loop.name} turns")
    return numbers.pop()


def _fused(body: _Body) -> Iterator[str]:
    for instruction in body.values():
        if instruction.opcode == "fusion":
            yield from _called(instruction)


def _flops(body: _Body) -> int:
    total = 0
    for made in body.values():
        if made.opcode == "dot":
            axes = _numbers(made.rest, r"lhs_contracting_dims=\{([\d,]*)\}")
            left = body[made.operands[0]].dims
            total += 2 * math.prod(made.dims) * math.prod(left[axis] for axis in axes)
        elif made.opcode == "convolution":
            total += _convolution(made, body[made.operands[0]].dims, body[made.operands[1]].dims)
    return total


def _convolution(made: _Instruction, left: tuple[int, ...], kernel: tuple[int, ...]) -> int:
    """Returns the FLOPs of a convolution, products with padding left out.

    The TPU compiler writes all matrix products as convolutions, batched ones with the batch as a
    dilated window in which only one position per output counts.
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", made.rest)
    of_left, of_kernel, of_out = (
        dict(zip(text, range(9), strict=False)) for text in labels.groups()
    )
    groups = [int((re.search(rf"{name}_group_count=(\d+)", made.rest) or (0, 1))[1])
              for name in ("feature", "batch")]  # fmt: skip
    total = 2 * left[of_left["b"]] * left[of_left["f"]] * kernel[of_kernel["o"]]
    total //= groups[0] * groups[1]
    window = re.search(r"window=\{([^}]*)\}", made.rest)
    options = dict(word.split("=") for word in window[1].split()) if window else {}
    for number, label in enumerate(sorted(set(of_out) - set("bf"))):
        one = {key: value.split("x")[number] for key, value in options.items()}
        total *= _pairs(
            one, left[of_left[label]], kernel[of_kernel[label]], made.dims[of_out[label]]
        )
    return total


def _pairs(window: dict[str, str], length: int, size: int, out: int) -> int:
    """Returns how many (output, window position) of one axis meet an element of the input."""
    stride, spread = int(window.get("stride", 1)), int(window.get("rhs_dilate", 1))
    dilate, low = int(window.get("lhs_dilate", 1)), int(window.get("pad", "0_0").split("_")[0])
    found = 0
    for at in range(out):
        for k in range(size):
            place = at * stride + k * spread - low
            found += place % dilate == 0 and 0 <= place // dilate < length
    return found


def _numbers(text: str, pattern: str) -> list[int]:
    found = re.search(pattern, text)
    return [int(n) for n in found[1].split(",") if n] if found else []


def _collectives(bodies: dict[str, _Body], turns: Counter[str]) -> dict[str, Traffic]:
    count, size = Counter(), Counter()
    chains = set()
    for name, body in bodies.items():
        sliced = name.startswith("all-reduce-scatter")
        for made in body.values():
            kind = made.opcode.removesuffix("-start")
            # An exchange that runs beside others stands in the text at each of its stages.
            chain = re.search(r'chain_id="(\d+)"', made.rest)
            if kind not in COLLECTIVES or not turns[name] or (chain and chain[1] in chains):
                continue
            chains |= {chain[1]} if chain else set()
            result = made.bytes
            if made.opcode.endswith("-start"):  # Its tuple holds what goes in as well.
                result -= sum(body[operand].bytes for operand in made.operands)
            if sliced:
                kind, result = "reduce-scatter", sum(x.bytes for x in body.values() if x.is_root)
            count[kind] += turns[name]
            size[kind] += turns[name] * int(result)
    return {kind: Traffic(count[kind], size[kind]) for kind in COLLECTIVES if count[kind]}


def _bytes(bodies: dict[str, _Body], body: _Body) -> float:
    """Returns bytes that the instructions of a computation read and write, called ones left out."""
    total = 0.0
    for made in body.values():
        if made.opcode in _FREE or made.opcode.endswith("-done"):
            continue
        inputs = [body[operand].bytes for operand in made.operands if operand in body]
        if made.opcode == "fusion":
            total += _fusion(bodies[_called(made)[0]], inputs, made.bytes)
        elif made.opcode in ("dynamic-slice", "slice", "gather"):
            total += 2 * made.bytes
        elif made.opcode == "dynamic-update-slice":
            total += 2 * inputs[1]
        else:
            total += made.bytes + sum(inputs)
    return total


def _fusion(body: _Body, inputs: list[float], output: float) -> float:
    """Returns the bytes of a fusion: of an array that it slices or updates, just that part."""
    total = output
    for made in body.values():
        if made.opcode != "parameter":
            continue
        users = [other for other in body.values() if made.name in other.operands]
        number = int(made.rest.split(")")[0])
        cut = [user for user in users if user.operands[0] == made.name]
        if len(cut) == len(users) and all(user.opcode == "dynamic-slice" for user in cut):
            total += sum(user.bytes for user in cut)
        elif len(cut) == len(users) and all(u.opcode == "dynamic-update-slice" for u in cut):
            # In place: the rest of the array is neither read nor written.
            total += sum(body[user.operands[1]].bytes - user.bytes for user in cut)
        else:
            total += inputs[number]
    return total
