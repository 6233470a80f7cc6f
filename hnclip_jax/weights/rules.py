"""Rename and reshape, both ways, by one table; with a strict account of what matched what.

A layout is a tuple of `Rule`s. Each says which tensors of a file hold which parameters of ours
and in which form; `decode` and `encode` read the same table in the two directions, so they cannot
drift apart. Names may hold "{layer}"; such a rule stands for every layer of a tower.

Our parameters are flat here: paths such as ``text/blocks_03/attn/query/kernel``.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from hnclip_jax import types
from hnclip_jax.weights import stored

Arrays: TypeAlias = Mapping[str, stored.Stored | np.ndarray]

UNUSED = "unused/"
"""Prefix of what is no parameter but is kept, so that a file can be given back bit for bit."""


class Form(NamedTuple):
    """How tensors of a file hold arrays of ours.

    decode: their arrays -> ours.
    encode: our arrays -> theirs.
    """

    decode: Callable[..., Sequence[np.ndarray]]
    encode: Callable[..., Sequence[np.ndarray]]


class Rule(NamedTuple):
    """Which tensors of a file hold which parameters.

    Fields of ours that begin with UNUSED may be missing when writing; the first of ours then
    stands for them.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    form: Form


@dataclasses.dataclass(frozen=True)
class Decoded:
    """What `decode` found.

    arrays: our path -> array; not read yet.
    origin: our path -> names of the tensors that hold it.
    ignored: names of known buffers, which hold nothing that was learned.
    """

    arrays: dict[str, stored.Stored]
    origin: dict[str, tuple[str, ...]]
    ignored: tuple[str, ...]


def _transposed(array: np.ndarray) -> np.ndarray:
    _expect(array, 2)
    return array.T


def _expect(array: np.ndarray, *ranks: int) -> None:
    if array.ndim not in ranks:
        raise ValueError(f"has shape {array.shape}, but needs {ranks[0]} dimensions")


def _same(rank: int) -> Form:
    def check(array: np.ndarray) -> list[np.ndarray]:
        _expect(array, rank)
        return [array]

    return Form(check, check)


VECTOR, TABLE = _same(1), _same(2)
MATRIX = Form(lambda array: [_transposed(array)], lambda array: [_transposed(array)])
"""(out, in) in the file, (in, out) here."""


def _decode_scalar(array: np.ndarray) -> list[np.ndarray]:
    if array.shape not in ((), (1,)):
        raise ValueError(f"has shape {array.shape}, but is one number")
    return [array.reshape(())]


SCALAR = Form(_decode_scalar, lambda array: [array])
"""() or (1,) in the file."""


def _decode_patches(array: np.ndarray) -> list[np.ndarray]:
    _expect(array, 4)
    width, channels, height, across = array.shape
    if channels != 3 or height != across:
        raise ValueError(f"has shape {array.shape}, but needs (width, 3, patch, patch)")
    return [array.transpose(2, 3, 1, 0).reshape(-1, width)]


def _encode_patches(array: np.ndarray) -> list[np.ndarray]:
    patch = round((array.shape[0] / 3) ** 0.5)
    return [array.reshape(patch, patch, 3, -1).transpose(3, 2, 0, 1)]


PATCHES = Form(_decode_patches, _encode_patches)
"""(width, channel, row, column) in the file, (row * column * channel, width) here."""


def _thirds(array: np.ndarray) -> list[np.ndarray]:
    _expect(array, 1, 2)
    if array.shape[0] % 3:
        raise ValueError(f"has shape {array.shape}, but holds three of one size")
    return [part.T for part in np.split(array, 3)]


QUERY_KEY_VALUE = Form(_thirds, lambda *parts: [np.concatenate([part.T for part in parts])])
"""Three kernels or biases in one: rows query, key, value in the file."""


def one(theirs: str, ours: str, form: Form) -> Rule:
    """Returns the rule of one tensor that holds one parameter."""
    return Rule((theirs,), (ours,), form)


def norm(theirs: str, ours: str) -> tuple[Rule, ...]:
    """Returns the rules of a layer norm."""
    return (
        one(f"{theirs}.weight", f"{ours}/scale", VECTOR),
        one(f"{theirs}.bias", f"{ours}/bias", VECTOR),
    )


def dense(theirs: str, ours: str) -> tuple[Rule, ...]:
    """Returns the rules of a linear layer with bias."""
    return (
        one(f"{theirs}.weight", f"{ours}/kernel", MATRIX),
        one(f"{theirs}.bias", f"{ours}/bias", VECTOR),
    )


def decode(arrays: Arrays, rules: Iterable[Rule], ignored: str, source: str) -> Decoded:
    """Returns our parameters from the tensors of a file.

    Args:
      arrays: name -> tensor.
      rules: the layout.
      ignored: regular expression of whole names that hold nothing learned.
      source: what to call the file in messages.

    Raises:
      types.UserError: if tensors are missing, are left over, hold no floating numbers, or do not
        have the form of their rule; it lists their names.
    """
    found, origin, missing, wrong = {}, {}, [], []
    matched, left = 0, dict.fromkeys(arrays)
    for rule in _expanded(rules, arrays, lambda rule: rule.theirs):
        absent = [name for name in rule.theirs if name not in arrays]
        unfit = [
            f"{name} holds {arrays[name].dtype}, but weights are floating"
            for name in rule.theirs
            # What is not to be: numpy does not call bfloat16 floating.
            if name in arrays and arrays[name].dtype.kind in "biuc"
        ]
        missing += absent
        wrong += unfit
        for name in rule.theirs:
            left.pop(name, None)
        if absent or unfit:
            continue
        try:
            parts = _lazily(rule.form.decode, [arrays[name] for name in rule.theirs])
        except ValueError as error:
            wrong.append(f"{' and '.join(rule.theirs)} {error}")
            continue
        matched += len(rule.theirs)
        for path, part in zip(rule.ours, parts, strict=True):
            found[path], origin[path] = part, rule.theirs
    buffers = tuple(name for name in left if re.fullmatch(ignored, name))
    extra = sorted(set(left) - set(buffers))
    if missing or extra or wrong:
        _complain(source, f"{matched} tensors", sorted(missing), extra, wrong)
    return Decoded(found, origin, buffers)


def encode(arrays: Arrays, rules: Iterable[Rule]) -> dict[str, stored.Stored]:
    """Returns the tensors of a layout from our parameters, in the order of the layout.

    Args:
      arrays: our path -> array, complete; other paths that begin with UNUSED are left out.
      rules: the layout.

    Raises:
      types.UserError: if parameters are missing or are left over; it lists their paths.
    """
    named, missing = {}, []
    matched, left = 0, {path for path in arrays if not path.startswith(UNUSED)}
    for rule in _expanded(rules, arrays, lambda rule: rule.ours):
        needed = [path for path in rule.ours if not path.startswith(UNUSED)]
        absent = [path for path in needed if path not in arrays]
        missing += absent
        left.difference_update(needed)
        if absent:
            continue
        matched += len(needed)
        parts = [arrays[path if path in arrays else rule.ours[0]] for path in rule.ours]
        tensors = _lazily(rule.form.encode, parts)
        named |= dict(zip(rule.theirs, tensors, strict=True))
    if missing or left:
        _complain("the model", f"{matched} parameters", sorted(missing), sorted(left), [])
    return named


def _expanded(
    rules: Iterable[Rule], arrays: Arrays, side: Callable[[Rule], tuple[str, ...]]
) -> Iterable[Rule]:
    """Yields the rules with "{layer}" filled in, for as many layers as `arrays` shows."""
    counts: dict[str, int] = {}
    for rule in rules:
        stem, layered, _ = side(rule)[0].partition("{layer")
        if layered and stem not in counts:
            numbers = (
                _leading_number(name[len(stem) :]) for name in arrays if name.startswith(stem)
            )
            # A file that lacks a tower altogether misses its first layer.
            counts[stem] = max(numbers, default=0) + 1
        for layer in range(counts[stem] if layered else 1):
            theirs, ours = (
                tuple(name.format(layer=layer) for name in names)
                for names in (rule.theirs, rule.ours)
            )
            yield Rule(theirs, ours, rule.form)


def _leading_number(text: str) -> int:
    digits = re.match(r"[0-9]{1,4}(?=[./])", text)
    return int(digits[0]) if digits else 0


def _lazily(
    form: Callable[..., Sequence[np.ndarray]], inputs: Sequence[stored.Stored | np.ndarray]
) -> list[stored.Stored]:
    """Returns the outputs of `form` without reading its inputs."""
    # Arrays of one repeated zero have every shape and no size: the form tells the outputs' shapes.
    shapes = form(*(np.broadcast_to(np.zeros((), x.dtype), x.shape) for x in inputs))

    def output(index: int) -> Callable[[], np.ndarray]:
        return lambda: form(*(np.asarray(x) for x in inputs))[index]

    return [stored.Stored(x.shape, x.dtype, output(i)) for i, x in enumerate(shapes)]


def _complain(
    source: str, matched: str, missing: list[str], extra: list[str], wrong: list[str]
) -> None:
    parts = [f"{source} does not match its layout: {matched} matched"]
    if missing:
        parts.append(f"{len(missing)} missing ({types.at_most_ten(missing)})")
    if extra:
        parts.append(f"{len(extra)} left over ({types.at_most_ten(extra)})")
    parts += [types.at_most_ten(wrong)] if wrong else []
    raise types.UserError("; ".join(parts))
