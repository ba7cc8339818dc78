"""Runtimes of a simulation, which connect by the product's WebSocket instead of one of another make.

What others read into the same frames is for the scenes of the laboratory to find. Here their libraries took more time
than a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from trio_websocket import CloseReason, ConnectionClosed

from interop.lab.clients import NewClient, OnMessage
from interop.runtime_client import CONNECT_SECONDS, RuntimeClient
from protofly.errors import Code, TransportError
from wire.byte_channel import ByteChannel
from wire.core.websocket import ClientWebSocket

_ENDED = CloseReason(1006, "")


class _Connection:
    """What a client uses of a connection, over one `ByteChannel`."""

    def __init__(self, line: ByteChannel, websocket: ClientWebSocket) -> None:
        self._line, self._websocket = line, websocket
        self._arrived: list[bytes] = []

    async def open(self) -> None:
        """Do the handshake. Raises OSError."""
        self._line.send_nowait(self._websocket.data_to_send())
        while self._websocket.is_waiting:
            data = await self._line.receive()
            self._arrived += self._websocket.receive(data)
            if not data:
                break
        if not self._websocket.is_open:
            raise OSError(self._websocket.refusal or "the connection ended")

    async def get_message(self) -> str:
        """The next message. Raises ConnectionClosed."""
        while not self._arrived:
            data = await self._line.receive()
            self._arrived = self._websocket.receive(data)
            self._line.send_nowait(self._websocket.data_to_send())
            if not data or not (self._arrived or self._websocket.is_open):
                raise ConnectionClosed(_ENDED)
        return self._arrived.pop(0).decode()

    async def send_message(self, text: str) -> None:
        """Send a message, and wait while the node does not read. Raises ConnectionClosed."""
        if self._line.is_closed or not self._websocket.is_open:
            await trio.lowlevel.checkpoint()
            raise ConnectionClosed(_ENDED)
        self._websocket.send([text.encode()])
        self._line.send_nowait(self._websocket.data_to_send())
        if self._line.backlog_bytes:
            await self._line.wait_drained()

    async def aclose(self) -> None:
        """Say that this is the end, and end it."""
        self._websocket.close()
        self._line.send_nowait(self._websocket.data_to_send())
        await self._line.aclose()


class _Client(RuntimeClient):
    """A runtime whose connection is a `_Connection`."""

    def __init__(self, url: Callable[[], str], runtime: str, on_message: OnMessage) -> None:
        super().__init__(url=url(), runtime=runtime, ssl_context=None, on_message=on_message)
        self._url_now = url

    async def _dial(self) -> Any:
        self._url = self._url_now()
        return await super()._dial()

    async def _upgrade(self, nursery: trio.Nursery, stream: Any) -> Any:
        line = await ByteChannel.over(stream, drain_nursery=nursery)
        connection = _Connection(line, ClientWebSocket(self._url, is_binary=False))
        try:
            with trio.fail_after(CONNECT_SECONDS):
                await connection.open()
        except (OSError, trio.TooSlowError) as error:
            line.close()
            raise TransportError(Code.CONNECT_FAILED, str(error), phase="connect") from error
        return connection


def simulated_clients(url: Callable[[], str]) -> NewClient:
    """Clients that connect to the node at `url`."""
    return lambda runtime, on_message: _Client(url, runtime, on_message)
