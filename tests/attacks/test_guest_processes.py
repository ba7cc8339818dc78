"""Threats 45, 48 and 49: workers killed, stopped, taken over; what a worker can see and reach."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest
import trio

from protofly.errors import Code, StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import Event, GuestEvent
from sandbox.core.frames import LENGTH, REPLY, Command, decode_reply, encode_command
from sandbox.host import Sandbox, StubProcess
from sandbox.stub_process import ConfinedProcess
from tests.support import guests
from tests.support.services import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
HELLO = GuestEvent(Event.MESSAGE, 1, b'{"id":"1"}')
CANARY = b"canary-" + b"3f9c41d07a"


async def exchange_forever(stub: StubProcess) -> None:
    while True:
        await stub.exchange([HELLO] * 50)


async def test_killed_worker_is_noticed_at_once_and_its_neighbour_is_not_touched(sandbox: Sandbox) -> None:
    code = await sandbox.compile(guests.echo())
    stub = await sandbox.start_worker("b.example", code, Budget(batch_seconds=3_600.0))  # its deadline says nothing
    neighbour = await sandbox.start_worker("c.example", code, Budget())
    os.kill(stub.pid, signal.SIGKILL)
    with pytest.raises(StubFaultError) as caught:
        await exchange_forever(stub)
    assert caught.value.code is Code.STUB_DIED
    assert caught.value.domain == "b.example"
    assert "SIGKILL" in caught.value.detail
    assert (await neighbour.exchange([HELLO])).fault is None
    again = await sandbox.start_worker("b.example", code, Budget())
    assert (await again.exchange([HELLO])).fault is None


async def test_stopped_worker_misses_its_deadline_and_is_killed(sandbox: Sandbox) -> None:
    code = await sandbox.compile(guests.echo())
    stub = await sandbox.start_worker("b.example", code, Budget(batch_seconds=0.1))
    neighbour = await sandbox.start_worker("c.example", code, Budget())
    os.kill(stub.pid, signal.SIGSTOP)
    with pytest.raises(StubFaultError) as caught:
        await stub.exchange([HELLO])
    assert caught.value.code is Code.STUB_TIMEOUT
    assert caught.value.detail == "no answer within 0.1 s"
    assert (await neighbour.exchange([HELLO])).fault is None
    with trio.fail_after(PATIENCE_SECONDS):
        while exists(stub.pid):
            await trio.lowlevel.checkpoint()


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for x86-64")
async def test_running_worker_is_confined(sandbox: Sandbox) -> None:
    stub = await sandbox.start_worker("b.example", await sandbox.compile(guests.echo()), Budget())
    here = Path(f"/proc/{stub.pid}")
    status = dict(line.split(":\t", 1) for line in (here / "status").read_text().splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status.get("Seccomp_filters", "2") == "2"
    assert {int(entry.name) for entry in (here / "fd").iterdir()} == {0, 1, 2, 3}
    assert {str((here / "fd" / str(number)).readlink()) for number in (0, 1, 2)} == {"/dev/null"}
    limits = {line[:26].strip(): line[26:].split()[0] for line in (here / "limits").read_text().splitlines()[1:]}
    assert limits["Max core file size"] == limits["Max file size"] == "0"
    assert (limits["Max open files"], limits["Max address space"]) == ("16", str(1 << 30))
    assert os.getsid(stub.pid) == stub.pid


async def test_worker_holds_no_secret_of_the_node(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> None:
    monkeypatch.setenv("TRAPEZOID_TEST_KEY", CANARY.decode())
    secret = [bytearray(CANARY) for _ in range(1000)]
    sandbox = Sandbox()
    await nursery.start(sandbox.run)
    stub = await sandbox.start_worker("b.example", await sandbox.compile(guests.echo()), Budget())
    assert (await stub.exchange([HELLO])).fault is None
    for pid in (sandbox.zygote_pid, stub.pid):
        assert not is_in_environment(pid, CANARY)
        try:
            assert not is_in_memory(pid, CANARY)
        except PermissionError:
            pytest.skip("this machine lets nobody read the memory of another process")
    assert is_in_memory(os.getpid(), bytes(secret[0]))


def is_in_environment(pid: int, needle: bytes) -> bool:
    return needle in Path(f"/proc/{pid}/environ").read_bytes()


def writable_spans(pid: int) -> Iterator[tuple[int, int]]:
    """Address and size of the writable memory of a process, in pieces of at most 16 MiB."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, access = line.split()[:2]
        first, last = (int(word, 16) for word in span.split("-"))
        if access.startswith("rw"):
            yield from ((start, min(last - start, 16 << 20)) for start in range(first, last, 16 << 20))


def is_in_memory(pid: int, needle: bytes) -> bool:
    """Look through every readable private page of a process."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        return any(needle in read_at(memory, start, size) for start, size in writable_spans(pid))


def read_at(memory: FileIO, start: int, size: int) -> bytes:
    """Some pages; b"" for one that nobody may read, not even its owner."""
    memory.seek(start)
    try:
        return memory.read(size)
    except OSError:
        return b""


ESCAPE = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from sandbox import confinement
libc = ctypes.CDLL(None, use_errno=True)
PATH = ctypes.create_string_buffer(b"/etc/hostname")
def attempt(number, arguments):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    confinement.set_limits(confinement.WORKER_LIMITS)
    confinement.install_filter(is_unconfined=False)
    confinement.forbid_new_code(is_unconfined=False)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(value) for value in arguments])
    os._exit(1 if result >= 0 else 0)
AT = ctypes.addressof(PATH)
for name, number, *arguments in [
    ("getpid", 39), ("open", 2, AT, 0, 0), ("openat", 257, -100, AT, 0, 0), ("socket", 41, 2, 1, 0),
    ("execve", 59, AT, 0, 0), ("fork", 57), ("clone", 56, 17, 0, 0, 0, 0), ("kill", 62, os.getpid(), 0),
    ("ptrace", 101, 16, os.getpid(), 0, 0), ("process_vm_readv", 310, os.getpid(), 0, 0, 0, 0, 0),
    ("executable page", 9, 0, 4096, 7, 34, -1, 0), ("memfd_create", 319, AT, 0), ("io_uring", 425, 1, AT),
]:
    print(name, attempt(number, arguments), sep="=")
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for x86-64")
def test_native_code_in_a_worker_reaches_nothing() -> None:
    """Simulated escape: the same confinement, then the system calls that an escaped guest would like to make."""
    done = subprocess.run(
        [sys.executable, "-c", ESCAPE, str(ROOT)], capture_output=True, text=True, check=True, timeout=30
    )
    verdicts = dict(line.split("=") for line in done.stdout.split("\n") if line)
    assert verdicts.pop("getpid") == "1"  # the harness itself works: this one is allowed
    assert verdicts.pop("open") == verdicts.pop("openat") == "0"  # refused with EPERM
    assert len(verdicts) == 10
    assert set(verdicts.values()) == {str(-signal.SIGSYS)}


async def exchange_with_liar(lie: bytes) -> None:
    """A worker's socket whose other end has answered this; the process behind it is a sleeper of our own."""
    ours, theirs = socket.socketpair()
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # noqa: ASYNC220
    process = ConfinedProcess(sleeper.pid, os.pidfd_open(sleeper.pid), ours)
    try:
        with theirs:
            theirs.setblocking(False)
            theirs.send(lie)
            decode_reply(await process.ask(encode_command(Command.LOAD), 1000), 0)
    finally:
        process.close()
        sleeper.communicate()


@pytest.mark.parametrize(
    "lie",
    [
        LENGTH.pack(2**32 - 1),
        LENGTH.pack(0),
        REPLY.pack(REPLY.size - 4, 0, 0, 0, 0, 0) + b"more",
        REPLY.pack(REPLY.size - 4, 0, 7, 0, 0, 0),
        bytes(100_000),
    ],
    ids=["4 GiB announced", "nothing announced", "more than announced", "outputs unasked", "zeros"],
)
async def test_worker_that_was_taken_over_cannot_confuse_the_host(lie: bytes) -> None:
    with pytest.raises(StubFaultError) as caught:
        await exchange_with_liar(lie)
    assert caught.value.code is Code.STUB_OUTPUT
    assert caught.value.fault == "worker"
