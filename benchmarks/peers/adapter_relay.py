"""The floor: one relay of two in series, on our own WebSocket adapter. It routes by `to`, batch by batch, and no more.

Run as `python -m benchmarks.peers.adapter_relay [NEXT_HOP]`; it prints `ready {"port": …}` when it listens. Clients
connect to `/ws?address=…`. With a next hop every message goes there; without, to the client that has its address.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec
import trio

from wire.core.websocket import ClientWebSocket, ServerWebSocket, WebSocket

_READ_BYTES: Final = 1 << 18


class _Header(msgspec.Struct):
    to: str


_decode = msgspec.json.Decoder(_Header).decode


class _Connection:
    def __init__(self, stream: trio.SocketStream, websocket: WebSocket) -> None:
        self.stream = stream
        self.websocket = websocket
        self._writing = trio.Lock()

    async def flush(self) -> None:
        async with self._writing:
            if data := self.websocket.data_to_send():
                await self.stream.send_all(data)


class AdapterRelay:
    """Routes by `to`."""

    def __init__(self) -> None:
        self._clients: dict[str, _Connection] = {}
        self._next: _Connection | None = None

    async def link(self, url: str) -> None:
        """Connect to the next relay."""
        parts = urlsplit(url)
        stream = await trio.open_tcp_stream(parts.hostname or "", parts.port or 0)
        websocket = ClientWebSocket(url, is_binary=False)
        self._next = _Connection(stream, websocket)
        await self._next.flush()
        while not websocket.is_open:
            websocket.receive(bytes(await stream.receive_some(_READ_BYTES)))

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection until it ends."""
        connection = _Connection(stream, ServerWebSocket())
        address = ""
        try:
            async with stream:
                address = await self._accept(connection)
                while data := await stream.receive_some(_READ_BYTES):
                    await self._route(connection.websocket.receive(bytes(data)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._clients.pop(address, None)

    async def _accept(self, connection: _Connection) -> str:
        """Accept the request for a WebSocket; returns the address that it names, from then on the client's."""
        websocket = connection.websocket
        assert isinstance(websocket, ServerWebSocket)
        while websocket.request_path is None:
            data = await connection.stream.receive_some(_READ_BYTES)
            if not data:
                raise trio.ClosedResourceError
            websocket.receive(bytes(data))
        websocket.accept()
        await connection.flush()
        address = parse_qs(urlsplit(websocket.request_path).query).get("address", [""])[0]
        self._clients[address] = connection
        return address

    async def _route(self, texts: list[bytes]) -> None:
        batches: defaultdict[_Connection, list[bytes]] = defaultdict(list)
        for text in texts:
            target = self._clients.get(_decode(text).to) if self._next is None else self._next
            if target is not None:
                batches[target].append(text)
        for target, batch in batches.items():
            target.websocket.send(batch)
            await target.flush()


async def _main(next_hop: str) -> None:
    relay = AdapterRelay()
    if next_hop:
        await relay.link(next_hop)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    sys.stdout.write(f'ready {{"port": {listeners[0].socket.getsockname()[1]}}}\n')
    sys.stdout.flush()
    await trio.serve_listeners(relay.serve, listeners)


if __name__ == "__main__":
    trio.run(_main, sys.argv[1] if len(sys.argv) > 1 else "")
