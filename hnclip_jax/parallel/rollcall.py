"""The roll call: process 0 hears who has come, and tells all of them what is wrong.

JAX's own start ends the program with a stack trace when a process does not come, and does not say
which. So the processes meet here before it, at the same address, by plain sockets: no device is
touched, and each gets one line that it can end with.
"""

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hnclip_jax import types
from hnclip_jax.parallel import differing

_AGAIN_S = 0.2
"""Pause between two attempts to reach process 0."""

_GRACE_S = 15
"""So much longer than its own limit waits a process for the word of process 0."""

_LONGEST = 65536
"""Bytes of a message; what is longer did not come from here."""


class Present(NamedTuple):
    """What a process says of itself.

    index: its number.
    count: of the processes that it expects.
    host: name of its machine.
    facts: what must be the same everywhere, name -> value.
    """

    index: int
    count: int
    host: str
    facts: Mapping[str, str]


def meet(me: Present, coordinator: str, timeout_s: float) -> None:
    """Returns once all processes have come and say the same.

    Args:
      me: of this process.
      coordinator: "host:port" of process 0, which nothing listens to yet.
      timeout_s: process 0 waits so long for the others, and they so long for process 0.

    Raises:
      types.UserError: on every process that came: if some did not, if two have the same number, or
        if they differ in what they expect or in their facts.
    """
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise types.UserError(
            f"the address of process 0 is {coordinator!r}, but must be host:port, for example "
            "10.0.0.1:8482"
        )
    if me.count == 1:
        return
    if me.index == 0:
        _call(me, int(port), timeout_s)
    else:
        _answer(me, host.strip("[]"), int(port), coordinator, timeout_s)


def verdict(present: Sequence[Present], waited_s: float | None = None) -> str:
    """Returns what is wrong with those who have come, in one line; "" if nothing is.

    Args:
      present: in any order, process 0 among them.
      waited_s: the time that is over; None = others may still come.
    """
    first = min(present, key=lambda one: one.index)
    for index in {one.index for one in present}:
        hosts = [one.host for one in present if one.index == index]
        if len(hosts) > 1:
            return (
                f"two processes have the number {index}, on {hosts[0]} and {hosts[1]}; give each "
                f"its own parallel.process_index from 0 to {first.count - 1}"
            )
    for one in present:
        if one.count != first.count:
            return (
                f"process {one.index} ({one.host}) expects {one.count} processes, process 0 "
                f"({first.host}) {first.count}; give all the same parallel.process_count"
            )
    missing = sorted(set(range(first.count)) - {one.index for one in present})
    if missing and waited_s is not None:
        seen = sorted((one.index, one.host) for one in present)
        return (
            f"expected {first.count} processes, saw {len(present)} in {waited_s:.0f} s: "
            + types.at_most_ten([f"{index} on {host}" for index, host in seen])
            + f"; missing: {differing.numbers(missing)}; start the same command on every host, and "
            "see what the missing ones say (parallel.start_timeout_s is how long to wait)"
        )
    if missing:
        return ""
    found = differing.lines({one.index: one.facts for one in present})
    if found:
        return f"{'; '.join(found)}; install the same versions on every host"
    return ""


def _call(me: Present, port: int, timeout_s: float) -> None:
    """Process 0: listens until all are there, and tells them whether to go on."""
    came: dict[socket.socket, Present] = {}
    began = time.monotonic()
    problem = ""
    with contextlib.ExitStack() as stack:
        with contextlib.closing(_listen(port)) as door:
            for sock, one in _arrivals(door, began + timeout_s):
                if one is None:
                    came.pop(sock, None)
                else:
                    came[stack.enter_context(sock)] = one
                    problem = verdict([me, *came.values()])
                if problem or len(came) == me.count - 1:
                    break
            problem = problem or verdict([me, *came.values()], time.monotonic() - began)
        # The door is shut before anyone knocks for JAX.
        for sock in came:
            with contextlib.suppress(OSError):
                sock.sendall(json.dumps({"problem": problem}).encode() + b"\n")
        for sock in came:  # They hang up first, so that the port is free at once.
            with contextlib.suppress(OSError):
                sock.settimeout(2)
                sock.recv(1)
    if problem:
        raise types.UserError(problem)


def _listen(port: int) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
            )
        return socket.create_server(("", port), backlog=1024)
    except OSError as error:
        raise types.UserError(
            f"process 0 cannot listen on port {port}: {error.strerror}; end the run that uses it, "
            "or name another port in parallel.coordinator"
        ) from error


def _arrivals(door: socket.socket, until: float) -> Iterator[tuple[socket.socket, Present | None]]:
    """Yields whoever says who it is, and None for one who has left again, until that time."""
    heard: dict[socket.socket, bytes] = {}
    with selectors.DefaultSelector() as watch:
        watch.register(door, selectors.EVENT_READ)
        try:
            while (left := until - time.monotonic()) > 0:
                for key, _ in watch.select(left):
                    if key.fileobj is door:
                        sock = door.accept()[0]
                        heard[sock] = b""
                        watch.register(sock, selectors.EVENT_READ)
                        continue
                    sock = key.fileobj
                    if piece := _received(sock, heard[sock]):
                        heard[sock] += piece
                        if one := _present(heard[sock]):
                            yield sock, one
                    else:
                        watch.unregister(sock)
                        sock.close()
                        del heard[sock]
                        yield sock, None
        finally:
            for sock, said in heard.items():
                if not _present(said):
                    sock.close()


def _received(sock: socket.socket, before: bytes) -> bytes:
    """Returns what came next; nothing if the other end has left, or talks and talks."""
    with contextlib.suppress(OSError):
        return sock.recv(4096) if len(before) < _LONGEST else b""
    return b""


def _present(heard: bytes) -> Present | None:
    """Returns what a whole line says; None for anything else, which a scanner may have sent."""
    try:
        said = json.loads(heard) if heard.endswith(b"\n") else None
        return Present(int(said["index"]), int(said["count"]), said["host"], said["facts"])
    except (ValueError, TypeError, KeyError):
        return None


def _answer(me: Present, host: str, port: int, coordinator: str, timeout_s: float) -> None:
    """Any other process: says who it is, and waits for the word of process 0."""
    who = f"process {me.index} of {me.count} ({me.host})"
    with _reached(host, port, who, coordinator, timeout_s) as sock:
        sock.settimeout(timeout_s + _GRACE_S)
        said = b""
        try:
            sock.sendall(json.dumps(me._asdict()).encode() + b"\n")
            while not said.endswith(b"\n") and (piece := sock.recv(4096)):
                said += piece
        except OSError:
            said = b""
    word: Mapping[str, Any] | None = json.loads(said) if said.endswith(b"\n") else None
    if word is None:
        raise types.UserError(
            f"{who} reached process 0 at {coordinator}, which then left without a word; see what "
            "process 0 says"
        )
    if word["problem"]:
        raise types.UserError(f"{word['problem']} (said by process 0 to {me.index})")


def _reached(host: str, port: int, who: str, coordinator: str, timeout_s: float) -> socket.socket:
    began = time.monotonic()
    while True:
        try:
            return socket.create_connection((host, port), timeout=min(timeout_s, 10))
        except OSError as error:  # Its host may not be up yet, its name not be known yet.
            if time.monotonic() - began > timeout_s:
                raise types.UserError(
                    f"{who} found no process 0 at {coordinator} in {timeout_s:.0f} s "
                    f"({error.strerror or error}); start process 0 there, and let this host reach "
                    "that port"
                ) from error
        time.sleep(_AGAIN_S)
