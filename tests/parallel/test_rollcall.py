"""The roll call, played by threads: who is missing, who is there twice, who is another version."""

import concurrent.futures
import re
import socket
import time

import pytest

from hnclip_jax import types
from hnclip_jax.parallel import rollcall

FACTS = {"jax": "1", "Python": "3"}


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _present(index, count=3, **facts):
    return rollcall.Present(index, count, f"host{index}", FACTS | facts)


def _meet(address, *present, timeout_s=10):
    """What each hears: "" or the message of the error."""

    def one(me):
        try:
            rollcall.meet(me, address, timeout_s)
        except types.UserError as error:
            return str(error)
        return ""

    with concurrent.futures.ThreadPoolExecutor(len(present)) as pool:
        return list(pool.map(one, present))


def _free_again(address):
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        return True


def test_all_come_in_any_order_and_the_port_is_free_again(address):
    for _ in range(2):
        assert _meet(address, _present(2), _present(0), _present(1)) == ["", "", ""]
        assert _free_again(address)


def test_one_process_waits_for_nobody(address):
    host, port = address.split(":")
    with socket.create_server((host, int(port))):  # Nor does it need the port.
        assert _meet(address, _present(0, count=1)) == [""]


def test_everyone_hears_who_is_missing(address):
    heard = _meet(address, _present(0, 4), _present(1, 4), _present(3, 4), timeout_s=1)
    for message in heard:
        assert "expected 4 processes, saw 3 in 1 s: 0 on host0, 1 on host1, 3 on host3" in message
        assert "missing: 2;" in message
        assert "\n" not in message
    assert _free_again(address)


def test_nobody_waits_longer_than_told(address):
    began = time.monotonic()
    _meet(address, _present(0, 2), timeout_s=0.5)
    (message,) = _meet(address, _present(1, 2), timeout_s=0.5)
    assert time.monotonic() - began < 5
    assert "process 1 of 2 (host1) found no process 0 at 127.0.0.1:" in message


@pytest.mark.parametrize(
    ("present", "message"),
    [
        (
            [_present(0), _present(1), _present(1)._replace(host="other")],
            r"two processes have the number 1, on (host1 and other|other and host1)",
        ),
        (
            [_present(0), _present(1, count=4)],
            r"process 1 \(host1\) expects 4 processes, process 0 \(host0\) 3",
        ),
        (
            [_present(0), _present(1), _present(2, jax="2")],
            "jax is '1' on processes 0-1, '2' on process 2; install the same versions",
        ),
        (
            [_present(0), _present(1), rollcall.Present(2, 3, "host2", {"Python": "3"})],
            "jax is '1' on processes 0-1, not there on process 2",
        ),
    ],
    ids=["twice", "count", "version", "lacking"],
)
def test_everyone_hears_what_differs(address, present, message):
    heard = _meet(address, *present)
    assert all(re.search(message, one) for one in heard), heard


def test_one_who_leaves_may_come_again(address):
    host, port = address.split(":")

    def knock():
        for _ in range(100):
            try:
                return socket.create_connection((host, int(port)))
            except OSError:
                time.sleep(0.02)
        raise AssertionError("nobody listens")

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        first = pool.submit(_meet, address, _present(0))
        for said in (
            b"GET / HTTP/1.1\r\n\r\n",
            b'{"index": 1, "count": 3, "host": "gone", "facts": {"jax": "1", "Python": "3"}}\n',
            b'{"index": "x"}\n',
            b"",
        ):
            with knock() as sock:
                sock.sendall(said)
                time.sleep(0.05)
        assert _meet(address, _present(1), _present(2)) == ["", ""]
        assert first.result() == [""]


def test_a_port_that_is_taken(address):
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        (message,) = _meet(address, _present(0))
    assert f"cannot listen on port {port}" in message


@pytest.mark.parametrize("address", ["localhost", "host:", ":80", "host:http", "host:70000"])
def test_an_address_that_is_none(address):
    with pytest.raises(types.UserError, match="must be host:port"):
        rollcall.meet(_present(0), address, 1)


def test_process_0_that_ends_without_a_word(address):
    host, port = address.split(":")
    with (
        socket.create_server((host, int(port))) as door,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        heard = pool.submit(_meet, address, _present(1))
        door.accept()[0].close()
        assert "then left without a word" in heard.result()[0]
