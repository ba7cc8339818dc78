"""The network of a simulation: addresses, lines between hosts, and what goes wrong on them.

A connection is two ways through a `tests.simulation.lines.Line`, in memory; nothing of it is a socket of the system.
"""

from __future__ import annotations

import errno
import itertools
import random
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final, Self, TypeVar

import trio

from tests.simulation.lines import End, Line, notify_closing, wait_readable, wait_writable
from tests.simulation.virtual_process import Host, JumpingClock, current_host
from wire import byte_channel

Address = tuple[str, int]
T = TypeVar("T")
_Plain = socket.socket
_detached: Final[dict[int, End]] = {}
_descriptors: Final = itertools.count(1 << 20)
"""Numbers that no descriptor of the process has."""


def let_channels_use_lines() -> None:
    """Have `ByteChannel` take over ends of lines, which have no descriptor, and trio wait for them."""

    def taken(_family: int, _kind: int, _proto: int, *, fileno: int) -> End:
        return _detached.pop(fileno)

    byte_channel.socket = SimpleNamespace(socket=taken)  # type: ignore[assignment, attr-defined]
    for name, ours in (
        ("wait_readable", wait_readable),
        ("wait_writable", wait_writable),
        ("notify_closing", notify_closing),
    ):
        setattr(trio.lowlevel, name, ours)


class Network(trio.abc.SocketFactory, trio.abc.HostnameResolver):
    """Who listens where, and the lines. Use: `await nursery.start(network.run)`."""

    def __init__(self, random: random.Random, clock: JumpingClock) -> None:
        self.listeners: dict[Address, StreamSocket] = {}
        self.datagrams: dict[Address, DatagramSocket] = {}
        self._random = random
        self._clock = clock
        self._lines: dict[frozenset[str], Line] = {}
        self._ports = iter(range(20_000, 60_000))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be the network of this process until cancelled."""
        trio.socket.set_custom_socket_factory(self)
        trio.socket.set_custom_hostname_resolver(self)
        setattr(trio.socket, "from_stdlib_socket", self._adopted)  # noqa: B010 - it takes the place of trio's
        task_status.started()
        await trio.sleep_forever()

    def line(self, one: str, other: str) -> Line:
        """The line between two hosts, or within one."""
        key = frozenset({one, other})
        if key not in self._lines:
            self._lines[key] = Line(random.Random(self._random.random()), self._clock, is_local=one == other)
        return self._lines[key]

    def unplug(self, host: Host) -> None:
        """End everything that a host has open, at once and in the middle of anything."""
        for names, line in self._lines.items():
            if host.name in names:
                line.drop()
        for address in [address for address, one in self.listeners.items() if one.host is host]:
            del self.listeners[address]

    def free_port(self) -> int:
        """A port that nobody has."""
        return next(self._ports)

    async def connect(self, source: Host | None, address: Address) -> End:
        """Connect a host to an address; OSError as the system's."""
        listener = self.listeners.get(address)
        if listener is None or listener.host is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        line = self.line(source.name if source is not None else listener.host.name, listener.host.name)
        if not line.is_local:
            await line.passed()
            if line.is_cut or address not in self.listeners:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        near, far = line.join()
        listener.arrived((far, ("127.0.0.1", self.free_port())))
        return near

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
    """A TCP socket. Once it is connected it has an end of a line."""

    def __init__(self, network: Network, kind: socket.SocketKind) -> None:
        super().__init__(network, kind)
        self.on_close: Callable[[], None] = lambda: None
        self._end: End | None = None

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802 - trio's name
        """See `trio.socket.SocketType`."""
        return self._connected.has_shut

    @property
    def _connected(self) -> End:
        if self._end is None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self._end

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
        end, peer = await self._next()
        accepted = StreamSocket(self._network, self._kind)
        accepted.address, accepted._peer, accepted._end = self.address, peer, end
        return accepted, peer

    async def connect(self, address: Any) -> None:
        """See `trio.socket.SocketType`."""
        await trio.lowlevel.checkpoint()
        self._peer = address[:2]
        self._end = await self._network.connect(self.host, self._peer)

    async def recv(self, size: int, *_: Any) -> bytes:
        """See `trio.socket.SocketType`."""
        return await self._attempt(lambda end: end.recv(size), wait_readable)

    async def send(self, data: Any, *_: Any) -> int:
        """See `trio.socket.SocketType`."""
        return await self._attempt(lambda end: end.send(data), wait_writable)

    async def _attempt(self, operation: Callable[[End], T], wait: Callable[[End], Awaitable[None]]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            done = operation(self._connected)
        except BlockingIOError:
            pass
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return done
        while True:
            await wait(self._connected)
            try:
                return operation(self._connected)
            except BlockingIOError:
                continue

    def shutdown(self, how: int) -> None:
        """See `trio.socket.SocketType`."""
        if how != socket.SHUT_RD:
            self._connected.shut()

    def fileno(self) -> int:
        """No descriptor of the system: -1, as for a socket that is closed."""
        return -1

    def detach(self) -> int:
        """See `trio.socket.SocketType`; only `ByteChannel` knows what to do with the number."""
        number = next(_descriptors)
        _detached[number] = self._connected
        self._end = None
        return number

    def close(self) -> None:
        """See `trio.socket.SocketType`."""
        if self._end is not None:
            notify_closing(self._end)
            self._end.close()
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]
        self.on_close()
