"""What a pickle of tensors may name, and what each name stands for; every other name is refused."""

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hnclip_jax.weights import stored
from hnclip_jax.weights.containers import faults, opcodes, tensors

_MOST_VALUES = 1_000_000
_MOST_ATTRIBUTES = 50_000
_DEEPEST = 50
_LONGEST_NAME = 500

_MODULE = "__torch__."

RESAVE = (
    "nothing of it was loaded; where it came from, save the tensors alone: "
    "torch.save(model.state_dict(), PATH)"
)
"""What to do about pickles of more than tensors."""

# Named as values (the type of a tensor, what a defaultdict makes), never called.
_VALUES = re.compile(
    r"torch\.(bool|u?int\d+|b?float\d+\w*|complex\d+|Tensor|nn\.parameter\.(Parameter|Buffer))"
    r"|numpy\.ndarray|builtins\.(dict|list|int|float|str|bool|tuple)"
)
_OTHER_TENSORS = re.compile(r"torch\.(_utils\._rebuild_\w+|\w+Storage|serialization\._get_layout)")
_NUMBERS = re.compile("b1|[iu][1248]|f[248]")


class Forbidden(faults.Refused):
    """A name that has nothing to do with tensors: whoever calls it may run anything."""

    def __init__(self, name: str) -> None:
        super().__init__(f"names {faults.shown(name)}, which could run code", RESAVE)
        self.name = name


def allow(name: str, modules: bool = False) -> None:
    """Does nothing for a `module.name` that has a meaning here.

    Args:
      name: from a pickle.
      modules: whether it may be the class of a TorchScript module, or a list of its numbers.

    Raises:
      faults.Refused: if it makes tensors of a kind that is not read.
      Forbidden: if it is any other name.
    """
    if name in _MEANINGS or name in tensors.STORAGES or _VALUES.fullmatch(name):
        return
    if modules and name.startswith((_MODULE, "torch.jit._pickle.")):
        return
    if _OTHER_TENSORS.fullmatch(name):
        raise faults.Refused(f"holds tensors of a kind that is not read ({name})", tensors.READABLE)
    raise Forbidden(name)


class Values:
    """Turns what a pickle's program left into containers, plain values and `Stored` leaves."""

    def __init__(self, place: tensors.Place) -> None:
        """Starts with nothing counted."""
        self._place = place
        self._values = 0
        self._attributes = 0

    def of(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Returns what a value stands for.

        Args:
          value: what `opcodes.run` returned.
          name: dotted, for messages.
          depth: how many containers it lies in.

        Raises:
          faults.Refused: if a tensor is not inside its storage or of a kind that is not read, or
            values hold themselves or one another far too often.
        """
        self._values += 1
        if self._values > _MOST_VALUES or depth > _DEEPEST:
            raise faults.Refused(
                "has values that hold one another too often or too deep to be read"
            )
        match value:
            case opcodes.Record():
                if value.name not in _MEANINGS:
                    raise faults.Refused(f"calls {value.name}, which makes no tensor")
                return _MEANINGS[value.name](self, value, name, depth + 1)
            case opcodes.Name():
                return value.name
            case tensors.Storage():
                return tensors.whole(value, self._place, faults.shown(name))
            case dict():
                return {
                    key.name if isinstance(key, opcodes.Name) else key: self.of(
                        held, _joined(name, key), depth + 1
                    )
                    for key, held in value.items()
                }
            case list() | tuple():
                items = [self.of(held, _joined(name, i), depth + 1) for i, held in enumerate(value)]
                return items if isinstance(value, list) else tuple(items)
        return value

    def attributes(self, module: Any, prefix: str = "", depth: int = 0) -> dict[str, Any]:
        """Returns the tensors and numbers in a TorchScript module, by dotted names.

        A whole number that is kept as a tensor without axes is plain here, like the others. Left
        out is what modules note about themselves: `training`, and names with an underscore first.

        Raises:
          faults.Refused: as `of`.
        """
        if not _is_module(module) or type(module.state) is not dict:
            raise faults.Refused(f"has something at {prefix or 'its root'} that is no module")
        self._attributes += len(module.state)
        if self._attributes > _MOST_ATTRIBUTES or depth > _DEEPEST or len(prefix) > _LONGEST_NAME:
            raise faults.Refused(
                "has modules that hold one another too often or too deep to be read"
            )
        found: dict[str, Any] = {}
        for key, held in module.state.items():
            if type(key) is not str or "." in key or len(key) > _LONGEST_NAME:
                raise faults.Refused("has attributes without a name of their own")
            name = f"{prefix}{key}"
            if _is_module(held):
                found |= self.attributes(held, f"{name}.", depth + 1)
                continue
            if isinstance(held, opcodes.Record) and held.name.startswith("torch._utils."):
                held = self.of(held, name, depth)
            if isinstance(held, stored.Stored):
                is_number = held.shape == () and held.dtype.kind in "iub"
                found[name] = np.asarray(held).item() if is_number else held
            elif type(held) in (bool, int, float) and key != "training" and key[:1] != "_":
                found[name] = held
        return found

    def _tensor(self, record: opcodes.Record, name: str, _: int, *, version: int) -> stored.Stored:
        return tensors.rebuilt(record.args, version, self._place, faults.shown(name))

    def _typed(self, record: opcodes.Record, name: str, depth: int) -> Any:
        # A tensor that somebody gave attributes: function, class, arguments, those attributes.
        function, _, args, *_ = record.args
        return self.of(opcodes.Record(function.name, args), name, depth)

    def _first(self, record: opcodes.Record, name: str, depth: int) -> Any:
        return self.of(record.args[0], name, depth)

    def _items(self, record: opcodes.Record, name: str, depth: int) -> Any:
        return self.of(record.items, name, depth)

    def _state(self, record: opcodes.Record, name: str, depth: int) -> Any:
        return self.of(record.state or {}, name, depth)

    def _text(self, record: opcodes.Record, *_: Any) -> str:
        if any(type(part) not in (str, int) for part in record.args):
            raise faults.Refused(f"has a {record.name} that is none")
        parts = [str(part)[:_LONGEST_NAME] for part in record.args]
        separator = ":" if record.name == "torch.device" else "/"
        return separator.join(parts).replace("//", "/")

    def _data(self, record: opcodes.Record, *_: Any) -> bytes:
        text, encoding = record.args
        self._values += len(text) // 8
        if encoding != "latin1":
            raise faults.Refused("has bytes in an encoding that Python never writes")
        return text.encode("latin1")

    def _number(self, record: opcodes.Record, name: str, depth: int) -> Any:
        kind, raw = record.args
        return np.frombuffer(self.of(raw, name, depth), _kind(kind)).item()

    def _ndarray(self, record: opcodes.Record, name: str, depth: int) -> stored.Stored:
        _, shape, kind, by_columns, raw = record.state
        values = np.frombuffer(self.of(raw, name, depth), _kind(kind))
        if not tensors.is_shape(shape) or math.prod(shape) != values.size:
            raise faults.Refused(f"has an array {faults.shown(name)} whose shape does not fit")
        values = values.reshape(shape, order="F" if by_columns else "C")
        return stored.Stored(values.shape, values.dtype, lambda: values)


def _kind(record: opcodes.Record) -> np.dtype:
    code, order = record.args[0], record.state[1]
    if type(code) is not str or type(order) is not str or not _NUMBERS.fullmatch(code):
        raise faults.Refused("has numpy values that are no numbers", tensors.READABLE)
    return np.dtype(code).newbyteorder(order)


_MEANINGS: dict[str, Callable[..., Any]] = {
    **{
        f"torch._utils._rebuild_tensor{suffix}": functools.partial(Values._tensor, version=version)
        for suffix, version in (("", 1), ("_v2", 2), ("_v3", 3))
    },
    "torch._tensor._rebuild_from_type_v2": Values._typed,
    **dict.fromkeys(
        (
            "torch._utils._rebuild_parameter",
            "torch._utils._rebuild_parameter_with_state",
            "torch._utils._rebuild_device_tensor_from_cpu_tensor",
            "torch.Size",
            "builtins.set",
            "builtins.frozenset",
            "collections.Counter",
        ),
        Values._first,
    ),
    "collections.OrderedDict": Values._items,
    "collections.defaultdict": Values._items,
    "argparse.Namespace": Values._state,
    "types.SimpleNamespace": Values._state,
    "torch.device": Values._text,
    **dict.fromkeys(
        (
            f"pathlib.{pure}{system}Path"
            for pure in ("", "Pure")
            for system in ("", "Posix", "Windows")
        ),
        Values._text,
    ),
    "_codecs.encode": Values._data,
    "numpy._core.multiarray.scalar": Values._number,
    "numpy._core.multiarray._reconstruct": Values._ndarray,
    "numpy.dtype": lambda _, record, *__: str(_kind(record)),
}


def _is_module(value: Any) -> bool:
    return isinstance(value, opcodes.Record) and value.name.startswith(_MODULE)


def _joined(name: str, key: Any) -> str:
    # Messages show no more; and names as long as the file would be copied for every value.
    return f"{name[-_LONGEST_NAME:]}.{str(key)[:_LONGEST_NAME]}".lstrip(".")
