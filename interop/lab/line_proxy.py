"""The line between two domains, as the network would be: cut, silent, slow or narrow at will.

A line is the way on which one domain reaches another. It listens on a loopback address of its own, with the ports of
the domain that is reached, and passes bytes on; what is inside is encrypted and stays so. The name server of the
connecting domain answers with that address.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from interop.domain_files import HOST

_READ_BYTES: Final = 65_536
_CHUNKS_ON_THE_WAY: Final = 64
_SLICES_PER_SECOND: Final = 20
_LOST = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@dataclass(eq=False, slots=True)
class _Connection:
    """One connection. Until `lingers_until` it stays open for the far side, although the near one has ended."""

    near: trio.SocketStream
    scope: trio.CancelScope
    late_seconds: float = 0.0
    lingers_until: float = 0.0


class Line:
    """The way from one domain to another. The attributes can be changed at any time.

    Attributes:
        ports: Where it listens: the ports of the domain that is reached.
        delay_seconds: How much later each byte arrives.
        bytes_per_second: How much passes in each direction of each connection, 0 for no limit.
        diverted: Which new connections go elsewhere: to another port, by the one that they are for.
    """

    def __init__(self, address: str, ports: Sequence[int]) -> None:
        self.address = address
        self.delay_seconds = 0.0
        self.bytes_per_second = 0
        self.connections = 0
        self.ports = tuple(ports)
        self._is_cut = False
        self._passing = trio.Event()
        self._passing.set()
        self._open: set[_Connection] = set()
        self.diverted: dict[int, int] = {}
        self._listening: list[trio.CancelScope] = []
        self._is_there = trio.Event()
        self._is_there.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pass connections on until cancelled."""
        async with trio.open_nursery() as nursery:
            for port in self.ports:
                await nursery.start(self._listen, port)
            task_status.started()

    def drop(self) -> None:
        """End all connections; new ones pass."""
        for connection in list(self._open):
            connection.scope.cancel()

    def cut(self) -> None:
        """End all connections, and end new ones at once, until `heal`."""
        self._is_cut = True
        self.drop()

    def silence(self) -> None:
        """Let nothing pass, on old and new connections, without ending them, until `heal`."""
        self._passing = trio.Event()

    def vanish(self) -> None:
        """End all connections, and have nobody listen, until `heal`: new ones are refused by the system."""
        self._is_there = trio.Event()
        for scope in self._listening:
            scope.cancel()
        self._listening.clear()
        self.drop()

    async def reorder(self, seconds: float) -> None:
        """Hold back what all connections carry, end them for the side that opened them, and then deliver the rest.

        What the next connection brings can arrive before what the one before it brings.
        """
        old = list(self._open)
        for connection in old:
            connection.late_seconds = seconds
        await trio.sleep(seconds / 2)
        for connection in old:
            connection.lingers_until = trio.current_time() + seconds
            await trio.aclose_forcefully(connection.near)
        await trio.sleep(seconds / 2)

    def heal(self) -> None:
        """Be a good line again."""
        self._is_there.set()
        self._is_cut = False
        self.delay_seconds = 0.0
        self.bytes_per_second = 0
        self._passing.set()

    async def _listen(self, port: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async def accept(near: trio.SocketStream) -> None:
            self.connections += 1
            async with near:
                if not self._is_cut:
                    with suppress(*_LOST):
                        await self._pass_on(near, port)

        while True:
            listeners = await trio.open_tcp_listeners(port, host=self.address)
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            with trio.CancelScope() as scope:
                self._listening.append(scope)
                await trio.serve_listeners(accept, listeners)
            await self._is_there.wait()

    async def _pass_on(self, near: trio.SocketStream, port: int) -> None:
        target = self.diverted.get(port, port)
        async with await trio.open_tcp_stream(HOST, target) as far, trio.open_nursery() as nursery:
            connection = _Connection(near, nursery.cancel_scope)
            self._open.add(connection)
            try:
                nursery.start_soon(self._copy, near, far, connection)
                await self._copy(far, near, connection)
            finally:
                self._open.discard(connection)

    async def _copy(self, source: trio.SocketStream, target: trio.SocketStream, connection: _Connection) -> None:
        """One direction; when one side has ended or failed, the connection ends."""
        send, receive = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS_ON_THE_WAY)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, source, send, connection)
            with suppress(*_LOST):
                async for due, data in receive:
                    await trio.sleep_until(due)
                    await self._write(target, data)
            await trio.sleep_until(connection.lingers_until)
            connection.scope.cancel()

    async def _read(
        self, source: trio.SocketStream, send: trio.MemorySendChannel[tuple[float, bytes]], connection: _Connection
    ) -> None:
        async with send:
            with suppress(*_LOST):
                while data := bytes(await source.receive_some(_READ_BYTES)):
                    late_seconds = self.delay_seconds + connection.late_seconds
                    await send.send((trio.current_time() + late_seconds, data))

    async def _write(self, target: trio.SocketStream, data: bytes) -> None:
        """Send now, in slices while the line is narrow, and not while it is silent."""
        while data:
            await self._passing.wait()
            limit = self.bytes_per_second
            size = max(1, limit // _SLICES_PER_SECOND) if limit else len(data)
            await target.send_all(data[:size])
            data = data[size:]
            if limit:
                await trio.sleep(1 / _SLICES_PER_SECOND)
