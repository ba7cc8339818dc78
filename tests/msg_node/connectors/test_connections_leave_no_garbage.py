"""A connection that has ended is freed at once: none of its objects waits for the garbage collector.

A node lets the collector look for cycles seldom (`msg_node.process_tuning`). Connections that end in a cycle would pile
up until then, each with some 50 KiB of TLS state that the collector does not see.
"""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from tests.msg_node.test_connect_soak import UPGRADE, masked
from tests.support.runtime_rig import SESSION, RuntimeRig, a_message, runtime_address, runtime_rig

CONNECTIONS = 5


def leave_after_connecting(line: socket.socket, name: str) -> None:
    """Say nothing."""


def say_nonsense(line: socket.socket, name: str) -> None:
    line.sendall(b"nonsense\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        line.recv(1_000)


def ask_for_a_page(line: socket.socket, name: str) -> None:
    line.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
    line.recv(1_000)


def upgrade(line: socket.socket, name: str) -> None:
    line.sendall(UPGRADE)
    assert b" 101 " in line.recv(1_000)


def send_a_broken_frame(line: socket.socket, name: str) -> None:
    upgrade(line, name)
    line.sendall(bytes([0xFF]) * 16)
    line.recv(1_000)


def open_a_session(line: socket.socket, name: str) -> None:
    upgrade(line, name)
    line.sendall(masked(json.dumps(a_message("open", runtime_address(name), SESSION, id_=1)).encode()))
    assert line.recv(4_000)


def say_goodbye(line: socket.socket, name: str) -> None:
    open_a_session(line, name)
    line.sendall(b"\x88\x82\0\0\0\0" + (1000).to_bytes(2, "big"))
    line.recv(1_000)


@contextlib.contextmanager
def garbage_is_kept() -> Iterator[list[object]]:
    """What the collector would have freed, at the end, in place of freeing it; only of what was made meanwhile."""
    garbage: list[object] = []
    gc.disable()
    gc.freeze()  # a process that has run thousands of tests has much to look through
    try:
        yield garbage
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        garbage += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


def connected(port: int, context: ssl.SSLContext | None) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=10)
    return line if context is None else context.wrap_socket(line, server_hostname="localhost")


async def connect_some(
    rig: RuntimeRig, context: ssl.SSLContext | None, visit: Callable[[socket.socket, str], None], name: str
) -> None:
    def visits() -> None:
        for number in range(CONNECTIONS):
            with connected(rig.port, context) as line:
                visit(line, f"{name}-{number}")
                wait_for_the_end(line)

    await trio.to_thread.run_sync(visits)
    await trio.testing.wait_all_tasks_blocked(0.05)  # what serves a connection ends a few steps after its socket


def wait_for_the_end(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_WR)
        while line.recv(4_000):
            pass


@pytest.mark.parametrize("is_tls", [True, False])
@pytest.mark.parametrize(
    "visit",
    [
        leave_after_connecting,
        say_nonsense,
        ask_for_a_page,
        upgrade,
        send_a_broken_frame,
        open_a_session,
        say_goodbye,
    ],
)
async def test_a_connection_that_ended_leaves_nothing_for_the_garbage_collector(
    tmp_path: Path, visit: Callable[[socket.socket, str], None], is_tls: bool
) -> None:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    async with runtime_rig(tmp_path, context=server if is_tls else None) as rig:
        await connect_some(rig, client if is_tls else None, visit, "first")  # what is made only once
        with garbage_is_kept() as garbage:
            await connect_some(rig, client if is_tls else None, visit, "then")
    kinds = Counter(type(one).__name__ for one in garbage)
    assert max(kinds.values(), default=0) < CONNECTIONS, kinds
