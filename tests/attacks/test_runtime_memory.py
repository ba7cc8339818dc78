"""What a crowd of idle runtimes costs a real node process."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from protofly.limits import HALF_OPEN_PER_ADDRESS
from tests.support.runtime_rig import SESSION, a_message, runtime_address

RUNTIMES = 1000
WARM_UP = 50
MOST_KIB_EACH = 18.0
LONG_ADDRESSES = 2_500
MOST_MIB_FOR_ADDRESSES = 15.0
_UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def masked(text: bytes) -> bytes:
    """One text frame under a mask of zeros, below 64 KiB."""
    return b"\x81\xfe" + len(text).to_bytes(2, "big") + bytes(4) + text


GROUP = HALF_OPEN_PER_ADDRESS // 2
"""So many connect before the first of them opens its session."""


def rss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def received(sock: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        part = sock.recv(4096)
        assert part, data
        data += part
    return data


def open_sessions(port: int, numbers: range, stack: ExitStack) -> list[socket.socket]:
    """Connect and open one session per number, in groups: replies are awaited together, as the disk commits them."""
    sockets: list[socket.socket] = []
    for first in numbers[::GROUP]:
        sockets += _open_group(port, range(first, min(first + GROUP, numbers.stop)), stack)
    return sockets


def _open_group(port: int, numbers: range, stack: ExitStack) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    for _ in numbers:
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        sock.sendall(_UPGRADE)
        assert b" 101 " in received(sock, b"\r\n\r\n")
        sockets.append(sock)
    for number, sock in zip(numbers, sockets, strict=True):
        message = a_message("open", runtime_address(f"idle-{number}"), SESSION, id_=1)
        sock.sendall(masked(json.dumps(message).encode()))
    for sock in sockets:
        assert b'"code":200' in received(sock, b"runtimeToken")
    return sockets


@pytest.fixture
def _enough_descriptors() -> Iterator[None]:
    """Many systems begin with 1,024; the node inherits what this process has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * RUNTIMES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this system allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def running_node(folder: Path) -> Iterator[tuple[int, int]]:
    """A node in a process of its own: its process and its port."""
    config = folder / "node.toml"
    config.write_text(
        '[node]\ndomain = "alpha.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
    )
    command = [sys.executable, "-m", "trapezoid", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            ready = json.loads(child.stdout.readline().partition(" ")[2])
            port = urlsplit(ready["listen"]).port
            assert port is not None
            yield ready["pid"], port
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=30)


def check_alive(sock: socket.socket) -> None:
    """What was sent before is done, too."""
    sock.sendall(masked(json.dumps(a_message("ping", "x", SESSION, id_=2)).encode()))
    assert b'"pong"' in received(sock, b"pong")


@pytest.mark.long
@pytest.mark.usefixtures("_enough_descriptors")
def test_a_thousand_idle_runtimes_cost_at_most_18_kib_each(tmp_path: Path) -> None:
    with running_node(tmp_path) as (pid, port), ExitStack() as stack:
        open_sessions(port, range(WARM_UP), stack)
        before = rss_kib(pid)
        sockets = open_sessions(port, range(WARM_UP, WARM_UP + RUNTIMES), stack)
        each = (rss_kib(pid) - before) / RUNTIMES
        check_alive(sockets[-1])
    assert each <= MOST_KIB_EACH, f"{each:.1f} KiB for each idle runtime"


@pytest.mark.long
def test_ever_new_long_addresses_fill_no_memory(tmp_path: Path) -> None:
    with running_node(tmp_path) as (pid, port), ExitStack() as stack:
        (sock,) = open_sessions(port, range(1), stack)
        rest = "\U0001f600" * 2000  # four bytes each in memory
        for first in range(0, LONG_ADDRESSES, 100):
            numbers = range(first, first + 100)
            events = [
                f'{{"type":"event","from":"comm:/{one}{rest}","to":"comm://alpha.example/{one}{rest}"}}'
                for one in numbers
            ]
            sock.sendall(b"".join([masked(event.encode()) for event in events]))
            if first == 0:
                check_alive(sock)
                before = rss_kib(pid)
        check_alive(sock)
        growth = (rss_kib(pid) - before) / 1024
    assert growth <= MOST_MIB_FOR_ADDRESSES, f"{growth:.0f} MiB more after {LONG_ADDRESSES} addresses"
