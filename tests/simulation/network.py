"""The network of a simulation: addresses, lines between hosts, and what goes wrong on them.

A connection is a pair of local sockets, because the node works on descriptors (`wire/byte_channel.py`). Within one host
the two ends are joined directly. Between hosts the bytes go over a `Line`, which takes its time, cuts chunks where the
seed says, and can be hurt.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import trio

from tests.simulation.virtual_process import Host, current_host

Address = tuple[str, int]
_Plain = socket.socket
_CHUNK_BYTES: Final = 65_536
_LATENCY_SECONDS: Final = 0.005
_PIECES_SHARE: Final = 0.1
"""How often a chunk arrives in two pieces."""


@dataclass(eq=False)
class Line:
    """All connections between two hosts."""

    random: random.Random
    delay_seconds: float = 0.0
    bytes_per_second: int = 0
    is_cut: bool = False
    is_silent: bool = False
    connections: list[_Connection] = field(default_factory=list)
    _changed: trio.Event = field(default_factory=trio.Event)

    def drop(self) -> None:
        """End all connections; new ones pass."""
        for connection in list(self.connections):
            connection.abort()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self.is_cut = True
        self.drop()

    async def reorder(self, seconds: float) -> None:
        """Hold back what connections carry, end them for the side that opened them, and then deliver the rest."""
        old = list(self.connections)
        for connection in old:
            connection.late_seconds = seconds
        await trio.sleep(seconds / 2)
        for connection in old:
            connection.end_near()
        await trio.sleep(seconds / 2)

    def heal(self) -> None:
        """Whole again; what was held up goes on."""
        self.is_cut = self.is_silent = False
        self.delay_seconds, self.bytes_per_second = 0.0, 0
        self._changed.set()
        self._changed = trio.Event()

    async def heard(self) -> None:
        """Wait until the line is not silent."""
        while self.is_silent:
            await self._changed.wait()

    async def travel(self, size: int) -> None:
        """The way of so many bytes."""
        await self.heard()
        await trio.sleep(_LATENCY_SECONDS * (0.5 + self.random.random()))
        extra_seconds = self.delay_seconds + (size / self.bytes_per_second if self.bytes_per_second else 0.0)
        if extra_seconds:
            with trio.move_on_after(extra_seconds):
                await self._changed.wait()
        await self.heard()


@dataclass(eq=False)
class _Connection:
    """The two ends of a connection that are the network's, and the line that they are on."""

    line: Line
    near: socket.socket
    far: socket.socket
    late_seconds: float = 0.0
    has_near: bool = True

    def end_near(self) -> None:
        """End it for the side that opened it; what is on its way to the other one still arrives."""
        if self in self.line.connections:
            self.has_near = False
            trio.lowlevel.notify_closing(self.near)
            self.near.close()

    def abort(self) -> None:
        """End it at once, for both sides."""
        if self in self.line.connections:
            self.line.connections.remove(self)
            for end in (self.near, self.far) if self.has_near else (self.far,):
                trio.lowlevel.notify_closing(end)
                end.close()

    async def carry(self, source: socket.socket, target: socket.socket) -> None:
        """Carry bytes in one direction until its source ends."""
        try:
            while True:
                await trio.lowlevel.wait_readable(source)
                data = source.recv(_CHUNK_BYTES)
                await self.line.travel(len(data))
                await trio.sleep(self.late_seconds)
                if target is self.near and not self.has_near:
                    return
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                cut = int(len(data) * self.line.random.random()) if self.line.random.random() < _PIECES_SHARE else 0
                if cut:
                    await _send(target, data[:cut])
                    await self.line.travel(0)
                await _send(target, data[cut:])
        except (OSError, ValueError, trio.ClosedResourceError):  # ValueError: its own end was closed
            self.abort()


async def _send(target: socket.socket, data: bytes) -> None:
    while data:
        try:
            data = data[target.send(data) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(target)


class Network(trio.abc.SocketFactory, trio.abc.HostnameResolver):
    """Who listens where, and the lines. Use: `await nursery.start(network.run)`."""

    def __init__(self, random: random.Random) -> None:
        self.listeners: dict[Address, StreamSocket] = {}
        self.datagrams: dict[Address, DatagramSocket] = {}
        self._random = random
        self._lines: dict[frozenset[str], Line] = {}
        self._ends: dict[str, list[tuple[int, int]]] = {}
        """Descriptor and inode of what each host has open within itself."""
        self._ports = iter(range(20_000, 60_000))
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry bytes until cancelled."""
        trio.socket.set_custom_socket_factory(self)
        trio.socket.set_custom_hostname_resolver(self)
        setattr(trio.socket, "from_stdlib_socket", self._adopted)  # noqa: B010 - it takes the place of trio's
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def line(self, one: str, other: str) -> Line:
        """The line between two hosts."""
        key = frozenset({one, other})
        if key not in self._lines:
            self._lines[key] = Line(random.Random(self._random.random()))
        return self._lines[key]

    def unplug(self, host: Host) -> None:
        """End everything that a host has open, at once and in the middle of anything."""
        for names, line in self._lines.items():
            if host.name in names:
                line.drop()
        for descriptor, inode in self._ends.pop(host.name, ()):
            try:
                is_same = os.fstat(descriptor).st_ino == inode
            except OSError:
                continue
            if is_same:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(descriptor)) as end:
                    end.shutdown(socket.SHUT_RDWR)
        for address in [address for address, one in self.listeners.items() if one.host is host]:
            del self.listeners[address]

    def free_port(self) -> int:
        """A port that nobody has."""
        return next(self._ports)

    async def connect(self, source: Host | None, address: Address) -> socket.socket:
        """Connect a host to an address; OSError as the system's."""
        listener = self.listeners.get(address)
        if listener is None or listener.host is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        ours, theirs = _pair()
        name = source.name if source is not None else listener.host.name
        if name == listener.host.name:
            self._ends.setdefault(name, []).append((theirs.fileno(), os.fstat(theirs.fileno()).st_ino))
        else:
            ours, theirs = await self._join(self.line(name, listener.host.name), ours, theirs, address)
        listener.arrived((theirs, ("127.0.0.1", self.free_port())))
        return ours

    async def _join(
        self, line: Line, ours: socket.socket, near: socket.socket, address: Address
    ) -> tuple[socket.socket, socket.socket]:
        far, theirs = _pair()
        try:
            await line.travel(0)
        except BaseException:
            for end in (ours, near, far, theirs):
                end.close()
            raise
        if line.is_cut or address not in self.listeners:
            for end in (ours, near, far, theirs):
                end.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        connection = _Connection(line, near, far)
        line.connections.append(connection)
        assert self._nursery is not None
        self._nursery.start_soon(self._carry, connection)
        return ours, theirs

    async def _carry(self, connection: _Connection) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.carry, connection.near, connection.far)
            nursery.start_soon(connection.carry, connection.far, connection.near)
        connection.abort()

    # What trio asks.

    def socket(self, family: int = socket.AF_INET, type: int = socket.SOCK_STREAM, proto: int = 0) -> Any:
        """See `trio.abc.SocketFactory`."""
        if family == socket.AF_UNIX:
            return trio._socket.from_stdlib_socket(socket.socket(family, type, proto))
        kind = DatagramSocket if type == socket.SOCK_DGRAM else StreamSocket
        return kind(self, socket.SocketKind(type))

    async def getaddrinfo(self, _host: Any, port: Any, *_: Any) -> Any:
        """See `trio.abc.HostnameResolver`: names are those of this machine only."""
        await trio.lowlevel.checkpoint()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        """See `trio.abc.HostnameResolver`."""
        raise NotImplementedError

    def _adopted(self, plain: _Plain) -> Any:
        """A socket of the system that was bound becomes one of the network; local ones stay what they are."""
        if plain.family == socket.AF_UNIX:
            return trio._socket.from_stdlib_socket(plain)
        adopted = StreamSocket(self, socket.SOCK_STREAM)
        adopted.address = plain.getsockname()[:2]
        adopted.on_close = plain.close
        return adopted


def _pair() -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    one.setblocking(False)
    other.setblocking(False)
    return one, other


class SimulatedSocket(trio.socket.SocketType):
    """A socket of a simulated host: what it says about itself, and what has arrived for it."""

    def __init__(self, network: Network, kind: socket.SocketKind) -> None:
        super().__init__()
        self.host = current_host.get()
        self.address: Address = ("127.0.0.1", 0)
        self._network = network
        self._kind = kind
        self._peer: Address = ("", 0)
        self._arrived: deque[Any] = deque()
        self._has_arrived = trio.Event()

    @property
    def family(self) -> socket.AddressFamily:
        """See `trio.socket.SocketType`."""
        return socket.AF_INET

    @property
    def type(self) -> socket.SocketKind:
        """See `trio.socket.SocketType`."""
        return self._kind

    @property
    def proto(self) -> int:
        """See `trio.socket.SocketType`."""
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def getsockname(self) -> Any:
        """See `trio.socket.SocketType`."""
        return self.address

    def getpeername(self) -> Any:
        """See `trio.socket.SocketType`."""
        return self._peer

    def getsockopt(self, _level: int, option: int, _size: int | None = None) -> Any:
        """See `trio.socket.SocketType`."""
        return int(option == socket.SO_ACCEPTCONN and self._network.listeners.get(self.address) is self)

    def setsockopt(self, *_: Any) -> None:
        """Nothing that could be set matters here."""

    def arrived(self, what: Any) -> None:
        """Take a connection or a datagram."""
        self._arrived.append(what)
        self._has_arrived.set()

    async def _next(self) -> Any:
        while not self._arrived:
            self._has_arrived = trio.Event()
            await self._has_arrived.wait()
        return self._arrived.popleft()


class DatagramSocket(SimulatedSocket):
    """A UDP socket."""

    async def bind(self, address: Any) -> None:
        """See `trio.socket.SocketType`."""
        self.address = (address[0], address[1] or self._network.free_port())
        self._network.datagrams[self.address] = self
        await trio.lowlevel.checkpoint()

    async def connect(self, address: Any) -> None:
        """See `trio.socket.SocketType`."""
        await trio.lowlevel.checkpoint()
        self._peer = address[:2]

    async def send(self, data: Any, *_: Any) -> int:
        """See `trio.socket.SocketType`."""
        return await self.sendto(data, self._peer)

    async def sendto(self, data: Any, *arguments: Any) -> int:
        """See `trio.socket.SocketType`. A datagram for nobody is lost."""
        if not self.address[1]:
            await self.bind(("127.0.0.1", 0))
        target = self._network.datagrams.get(arguments[-1][:2])
        if target is not None:
            target.arrived((bytes(data), self.address))
        await trio.lowlevel.checkpoint()
        return len(data)

    async def recvfrom(self, *_: Any) -> Any:
        """See `trio.socket.SocketType`."""
        return await self._next()

    def close(self) -> None:
        """See `trio.socket.SocketType`."""
        if self._network.datagrams.get(self.address) is self:
            del self._network.datagrams[self.address]


class StreamSocket(SimulatedSocket):
    """A TCP socket. Once it is connected it has a descriptor, of a local socket."""

    def __init__(self, network: Network, kind: socket.SocketKind) -> None:
        super().__init__(network, kind)
        self.on_close: Callable[[], None] = lambda: None
        self._inner: Any = None

    @property
    def family(self) -> socket.AddressFamily:
        """What its descriptor is, once it has one."""
        return socket.AF_INET if self._inner is None else socket.AF_UNIX

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802 - trio's name
        """See `trio.socket.SocketType`."""
        return bool(self._inner.did_shutdown_SHUT_WR)

    async def bind(self, address: Any) -> None:
        """See `trio.socket.SocketType`."""
        self.address = (address[0], address[1] or self._network.free_port())
        await trio.lowlevel.checkpoint()

    def listen(self, _backlog: int = 0) -> None:
        """See `trio.socket.SocketType`."""
        if self.address in self._network.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self._network.listeners[self.address] = self

    async def accept(self) -> Any:
        """See `trio.socket.SocketType`."""
        inner, peer = await self._next()
        accepted = StreamSocket(self._network, self._kind)
        accepted.address, accepted._peer = self.address, peer
        accepted._inner = trio._socket.from_stdlib_socket(inner)
        return accepted, peer

    async def connect(self, address: Any) -> None:
        """See `trio.socket.SocketType`."""
        await trio.lowlevel.checkpoint()
        self._peer = address[:2]
        self._inner = trio._socket.from_stdlib_socket(await self._network.connect(self.host, self._peer))

    async def recv(self, *arguments: Any) -> Any:
        """See `trio.socket.SocketType`."""
        return await self._inner.recv(*arguments)

    async def send(self, *arguments: Any) -> Any:
        """See `trio.socket.SocketType`."""
        return await self._inner.send(*arguments)

    def shutdown(self, how: int) -> None:
        """See `trio.socket.SocketType`."""
        self._inner.shutdown(how)

    def fileno(self) -> int:
        """See `trio.socket.SocketType`."""
        return -1 if self._inner is None else int(self._inner.fileno())

    def detach(self) -> int:
        """See `trio.socket.SocketType`."""
        return int(self._inner.detach())

    def close(self) -> None:
        """See `trio.socket.SocketType`."""
        if self._inner is not None:
            self._inner.close()
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]
        self.on_close()
