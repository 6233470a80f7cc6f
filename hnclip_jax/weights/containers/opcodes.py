"""A pickle's program, run on inert values: nothing that it names is looked up, let alone called.

Python's own unpickler is not used, not even with its doors locked. It hashes whatever a file calls
a key, and a nested tuple of a few bytes makes that take for ever or overflow the C stack; and one
instruction of five bytes makes it reserve a table of gigabytes. Here a call in the pickle becomes a
`Record` of its name and arguments, and `meanings` decides afterwards what that stands for.
"""

import dataclasses
import pickletools
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from hnclip_jax.weights.containers import faults

MOST_INSTRUCTIONS = 2_000_000
"""A training checkpoint of the largest CLIP has a tenth of that."""

MOST_BYTES = 64 << 20
"""Of the pickle itself; tensors lie outside of it."""

_MOST_ARGUMENTS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """A global that the pickle names, as `module.name`; never more than that."""

    name: str


@dataclasses.dataclass(slots=True, eq=False)
class Record:
    """A call that the pickle asks for, put down instead of done.

    name: what it would call.
    args: with which arguments.
    items: what it then sets, if the result is a mapping.
    state: what it then gives to `__setstate__`.
    """

    name: str
    args: tuple[Any, ...] = ()
    items: dict[Any, Any] = dataclasses.field(default_factory=dict)
    state: Any = None


class Bounded:
    """A file of which a pickle may use MOST_BYTES, and no more."""

    def __init__(self, file: BinaryIO) -> None:
        """Starts where the file stands."""
        self._file = file
        self._left = MOST_BYTES

    def read(self, count: int) -> bytes:
        """Returns so many bytes, or fewer at the end of the file."""
        return self._counted(self._file.read(min(count, self._left + 1)))

    def readline(self) -> bytes:
        """Returns the bytes up to a newline, and it."""
        return self._counted(self._file.readline(self._left + 1))

    def tell(self) -> int:
        """Returns the place in the file."""
        return self._file.tell()

    def ahead(self) -> bytes:
        """Returns some of what follows, for a look at what is not read."""
        return self._file.read(1 << 20)

    def _counted(self, part: bytes) -> bytes:
        self._left -= len(part)
        if self._left < 0:
            raise faults.Refused(
                f"has more than {MOST_BYTES >> 20} MB of pickle beside its tensors"
            )
        return part


def run(file: Any, allow: Callable[[str], None], persistent: Callable[[Any], Any]) -> Any:
    """Returns what the pickle that starts here leaves; the file then stands behind it.

    Args:
      file: with `read`, `readline` and `tell`.
      allow: raises for a `module.name` that may not be named.
      persistent: what stands for the persistent id that it is given.

    Returns:
      Numbers, strings, bytes, None, lists, dicts and tuples (sets are lists), and between them
      `Name`s, `Record`s and what `persistent` returned. Not bounded in depth: values may hold
      themselves, or one another so often that nobody could write them out.

    Raises:
      faults.Refused: if an instruction or a name is none that tensors need, or there are too many.
      ValueError, LookupError, TypeError: if it is damaged.
    """
    machine = _Machine(allow, persistent)
    for count, (operation, argument, _) in enumerate(pickletools.genops(file)):
        name = operation.name
        if count >= MOST_INSTRUCTIONS:
            raise faults.Refused(f"has a pickle of more than {MOST_INSTRUCTIONS} instructions")
        if name in _LITERALS:
            machine.stack.append(argument)
        elif name in _CONSTANTS:
            machine.stack.append(_CONSTANTS[name]())
        elif name in _GATHERINGS:
            items = machine.gather()
            machine.stack.append(_GATHERINGS[name](items))
        elif name in _ACTIONS:
            _ACTIONS[name](machine, argument)
        elif name == "STOP":
            return machine.stack.pop()
        else:
            raise faults.Refused(f"has the instruction {name} in its pickle")
    raise ValueError("the pickle has no end")


class _Machine:
    """Stack and memo of one pickle, and the instructions that need them."""

    def __init__(self, allow: Callable[[str], None], persistent: Callable[[Any], Any]) -> None:
        self.stack: list[Any] = []
        self._outer: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._allow = allow
        self._persistent = persistent

    def mark(self, _: None) -> None:
        self._outer.append(self.stack)
        self.stack = []

    def gather(self) -> list[Any]:
        """Returns what was pushed since the last mark, and takes it off."""
        items = self.stack
        self.stack = self._outer.pop()
        return items

    def put(self, index: int | None) -> None:
        self._memo[len(self._memo) if index is None else index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self._memo[index])

    def find(self, argument: str | None) -> None:
        if argument is None:
            name, module = self.stack.pop(), self.stack.pop()
        else:
            module, name = argument.split(" ", 1)
        # Protocol 2 writes the names of Python 2, and numpy 2 moved its core.
        module = {"__builtin__": "builtins"}.get(module, module)
        whole = f"{module}.{name}".replace("numpy.core.", "numpy._core.")
        self._allow(whole)
        self.stack.append(Name(whole))

    def call(self, _: None) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if type(function) is not Name or type(args) is not tuple:
            raise faults.Refused("calls what is no name in its pickle")
        if len(args) > _MOST_ARGUMENTS:
            raise faults.Refused(f"calls {function.name} with {len(args)} arguments")
        self.stack.append(Record(function.name, args))

    def build(self, _: None) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is not Record:
            raise faults.Refused(f"sets attributes of a {type(target).__name__}")
        target.state = state

    def append(self, _: None) -> None:
        self._extend([self.stack.pop()])

    def appends(self, _: None) -> None:
        self._extend(self.gather())

    def _extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise TypeError("only lists can be added to")
        self.stack[-1].extend(items)

    def set_item(self, _: None) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def set_items(self, _: None) -> None:
        self._update(self.gather())

    def _update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        held = target.items if type(target) is Record else target
        if type(held) is not dict:
            raise TypeError("only dicts have items")
        held.update(_pairs(items))

    def persist(self, _: None) -> None:
        self.stack.append(self._persistent(self.stack.pop()))

    def drop(self, _: None) -> None:
        self.stack.pop()


def _pairs(items: list[Any]) -> Iterable[tuple[Any, Any]]:
    keys, values = items[::2], items[1::2]
    for key in keys:
        # Small integers only: they have hashes of their own, large ones collide at will.
        small = type(key) is int and abs(key) < 1 << 48
        if not (small or key is None or type(key) in (str, bool, Name)):
            raise faults.Refused(f"has a key of type {type(key).__name__} in its pickle")
    return zip(keys, values, strict=True)


_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    )
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list,
}
_GATHERINGS: dict[str, Callable[[list[Any]], Any]] = {
    "TUPLE": tuple,
    "LIST": list,
    "FROZENSET": list,
    "DICT": lambda items: dict(_pairs(items)),
}


def _tuple_of(count: int) -> Callable[[_Machine, None], None]:
    def gather(machine: _Machine, _: None) -> None:
        items = tuple(machine.stack[-count:])
        if len(items) < count:
            raise IndexError("the stack is too short")
        machine.stack[-count:] = [items]

    return gather


_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda *_: None,
    "FRAME": lambda *_: None,
    "MARK": _Machine.mark,
    "POP": _Machine.drop,
    "POP_MARK": lambda machine, _: machine.gather() and None,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    **{f"TUPLE{count}": _tuple_of(count) for count in (1, 2, 3)},
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), _Machine.find),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _Machine.call),
    "BUILD": _Machine.build,
    "APPEND": _Machine.append,
    **dict.fromkeys(("APPENDS", "ADDITEMS"), _Machine.appends),
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "BINPERSID": _Machine.persist,
}
