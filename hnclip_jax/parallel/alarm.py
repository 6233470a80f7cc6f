"""A process that cannot go on says so to the others, which would wait for it: all leave at once.

Where processes meet anyway, `agreement.together` does this. Between these points, the word goes
through the coordination service of `jax.distributed`, and a thread of each process listens.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator

import jax
from jax._src import distributed

from hnclip_jax import types

_KEY = "hnclip/cannot_go_on"

_EVERY_S = 1
"""So often the service is asked."""

_GRACE_S = 2
"""A process that hears it may have its own word to say first."""

_SPREAD_S = 4
"""Process 0 is the service: it stays until the others have heard."""


class Lost(types.TryAgain):
    """Another process is gone. JAX would wait for it before it lets the program end."""

    at_once = True


@contextlib.contextmanager
def listening(command: str) -> Iterator[None]:
    """Ends this process, with a line and an exit code, if another one rings during the `with`."""
    client = _client()
    if client is None:
        yield
        return
    over = threading.Event()
    # It must have ended before the interpreter does, which would break into the call.
    thread = threading.Thread(target=_listen, args=(client, command, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def rings() -> Iterator[None]:
    """Tells the other processes of a UserError inside the `with`, which is this one's alone."""
    try:
        yield
    except types.UserError as error:
        if (client := _client()) is not None:
            _ring(client, str(error), error.exit_code)
            error.at_once = True
        raise


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what JAX says of lost processes and of full memory into one line.

    Raises:
      Lost: for any error of the runtime while there are several processes.
      types.UserError: if a device has too little memory.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        said = str(error).splitlines()[0]
        if "RESOURCE_EXHAUSTED" in said:
            raise types.UserError(
                f"a device has too little memory ({said}); set model.remat=full or "
                "train.gradient_cache, lower train.global_batch_size, or raise parallel.fsdp"
            ) from error
        if (gone := lost(error)) is not None:
            raise gone from error
        raise


def lost(error: BaseException) -> Lost | None:
    """Returns what to raise if an error comes from JAX's runtime while there are several processes.

    Args:
      error: it, or one that came up as it was handled.
    """
    runtime = (one for one in types.causes(error) if isinstance(one, jax.errors.JaxRuntimeError))
    cause = next(runtime, None)
    if cause is None or jax.process_count() == 1:
        return None
    return Lost(
        f"process {jax.process_index()} of {jax.process_count()} lost another one, or the way to "
        f"it ({str(cause).splitlines()[0]}); start all of them again: they go on from the last "
        "checkpoint"
    )


def _client() -> object | None:
    # No public function gives the client; it is the one that initialize() made.
    return distributed.global_state.client if jax.process_count() > 1 else None


def _ring(client: object, message: str, exit_code: int) -> None:
    word = {"from": jax.process_index(), "says": message, "code": exit_code}
    # Another one may have rung before; or the service may be what is gone.
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        client.key_value_set(_KEY, json.dumps(word))
    if jax.process_index() == 0:
        time.sleep(_SPREAD_S)


def _listen(client: object, command: str, over: threading.Event) -> None:
    while not over.wait(_EVERY_S):
        try:
            word = json.loads(client.key_value_try_get(_KEY))
        except jax.errors.JaxRuntimeError:
            continue  # Nobody has rung; or the service has ended, which JAX itself will tell.
        if word["from"] != jax.process_index() and not over.wait(_GRACE_S):
            said = f"process {word['from']} cannot go on: {word['says']}"
            print(f"hnclip {command}: {said}", file=sys.stderr, flush=True)
            os._exit(word["code"])
