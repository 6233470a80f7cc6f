"""What the processes of a run must have in common, compared before the first step.

All functions here are calls that every process makes, in the same order.
"""

import contextlib
import hashlib
import json
import pathlib
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping

import jax
import numpy as np
from jax.experimental import multihost_utils

from hnclip_jax import types
from hnclip_jax.parallel import differing

MAY_DIFFER = (
    "parallel.coordinator",
    "parallel.process_index",
    "parallel.start_timeout_s",
    "parallel.compilation_cache",
    "data.image_root",
    "data.workers",
    "eval.image_root",
)
"""Settings that may have other values on other processes: they change no number."""

_VISIBLE_S = 30
"""So long may a shared file system take to show on one host what another one wrote."""


def check(facts: Mapping[str, str | int | None], advice: str) -> None:
    """Returns if all processes gave the same facts.

    A digest is gathered, and the facts themselves only if it differs.

    Args:
      facts: name of an item -> its value here; `config_facts` has those of the settings.
      advice: what to do about a difference, for the message.

    Raises:
      types.UserError: on every process, if one of them has other facts; it names the items, their
        values and who has them.
    """
    if jax.process_count() == 1:
        return
    _check_devices()
    plain = {name: str(value) for name, value in facts.items()}
    texts = _gather(json.dumps(plain, sort_keys=True))
    if len(set(texts)) > 1:
        found = differing.lines(dict(enumerate(map(json.loads, texts))))
        raise types.UserError(f"{types.at_most_ten(found, '; ')}; {advice}")


def config_facts(config_json: str) -> dict[str, str]:
    """Returns the settings that all processes must share: "config group.field" -> value.

    Args:
      config_json: what `config.to_json` gives.
    """
    return {
        f"config {group}.{field}": value if isinstance(value, str) else json.dumps(value)
        for group, fields in json.loads(config_json).items()
        for field, value in fields.items()
        if f"{group}.{field}" not in MAY_DIFFER
    }


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Makes a UserError of one process inside the `with` one of every process, at its end.

    Without it, the others would wait for the one that has ended. What stands inside must not wait
    for other processes itself.
    """
    if jax.process_count() == 1:
        yield
        return
    try:
        yield
    except types.UserError as error:
        _gather(str(error) or "a mistake")
        raise
    texts = _gather("")
    failed = {index: text for index, text in enumerate(texts) if text}
    if failed:
        first, said = next(iter(failed.items()))
        which = f"; {first} says" if len(failed) > 1 else ""
        raise types.UserError(f"{differing.processes(failed)} cannot go on{which}: {said}")


def check_shared(folder: pathlib.Path) -> None:
    """Returns if all processes see the same folder; it is made, and left as it was otherwise.

    Raises:
      types.UserError: on every process, if process 0 cannot write there, or if one does not see
        what process 0 wrote.
    """
    if jax.process_count() == 1:
        return
    mark, problem = f".shared-{uuid.uuid4().hex}", ""
    if jax.process_index() == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / mark).touch()
        except OSError as error:
            problem = f"process 0 cannot write to {folder}: {error.strerror}"
    told = json.loads(_gather(json.dumps([mark, problem]))[0])
    if told[1]:
        raise types.UserError(f"{told[1]}; choose another folder")
    try:
        seen = _gather("seen" if _comes(folder / told[0]) else "")
    finally:
        if jax.process_index() == 0:
            (folder / mark).unlink(missing_ok=True)
    blind = [index for index, text in enumerate(seen) if not text]
    if blind:
        raise types.UserError(
            f"{differing.processes(blind)} cannot see what process 0 writes to {folder}; "
            "checkpoints are written by all, so give a folder on a file system that all hosts share"
        )


def _comes(path: pathlib.Path) -> bool:
    """Returns whether a file is there, or appears soon."""
    until = time.monotonic() + _VISIBLE_S
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def _check_devices() -> None:
    """Raises types.UserError, the same everywhere, unless all processes have as many devices."""
    counts = Counter(device.process_index for device in jax.devices())
    found = differing.lines(
        {index: {"number of devices": str(counts[index])} for index in range(jax.process_count())}
    )
    if found:
        raise types.UserError(
            f"{found[0]}; a device has not come up, or parts of it are hidden: restart that host, "
            "or see what CUDA_VISIBLE_DEVICES says there"
        )


def _gather(text: str) -> list[str]:
    """Returns the text of every process; the digests are gathered first, and mostly suffice."""
    raw = text.encode()
    digest = np.frombuffer(hashlib.sha256(raw).digest(), np.uint8)
    digests = multihost_utils.process_allgather(digest)
    if (digests == digests[0]).all():
        return [text] * len(digests)
    lengths = multihost_utils.process_allgather(np.asarray([len(raw)], np.int32))[:, 0]
    row = np.zeros(max(lengths), np.uint8)
    row[: len(raw)] = np.frombuffer(raw, np.uint8)
    rows = multihost_utils.process_allgather(row)
    return [bytes(one[:size]).decode() for one, size in zip(rows, lengths, strict=True)]
