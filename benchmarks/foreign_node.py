"""A stand-in for a Vert.x node, as lean as the frames allow: the far end of `vertx_peer` in a benchmark.

Connections at `/ws`, `open` with a token, allocation, subscription; any other message goes on as it came to the
connection that has its `to`. It acknowledges nothing, and does not answer for unknown recipients. What a batch of one
read leads to leaves in one write per connection. Run as `python -m benchmarks.foreign_node DOMAIN`; it prints
`ready {"port": …}` when it listens. Source: reference nodes, section 5.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import Final

import msgspec
import trio

from wire.core.websocket import ServerWebSocket

_READ_BYTES: Final = 1 << 18


class _Body(msgspec.Struct):
    resources: list[str] = []
    scheme: str = "hyperty"


class _Message(msgspec.Struct):
    to: str
    type: str = ""
    from_: str = msgspec.field(default="", name="from")
    id: msgspec.Raw = msgspec.Raw(b"0")
    body: msgspec.Raw = msgspec.Raw(b"{}")


_decode = msgspec.json.Decoder(_Message).decode
_decode_body = msgspec.json.Decoder(_Body).decode


class Connection:
    """One WebSocket and what waits to be written to it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.websocket = ServerWebSocket()
        self._writing = trio.Lock()

    async def flush(self) -> None:
        """Write what waits, in order."""
        async with self._writing:
            if data := self.websocket.data_to_send():
                await self.stream.send_all(data)


class ForeignNode:
    """Routes by `to`."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._places: dict[str, Connection] = {}
        self._numbers = count(1)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection until it ends."""
        connection = Connection(stream)
        try:
            async with stream:
                while data := await stream.receive_some(_READ_BYTES):
                    await self._receive(connection, bytes(data))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._places = {place: one for place, one in self._places.items() if one is not connection}

    async def _receive(self, connection: Connection, data: bytes) -> None:
        websocket = connection.websocket
        texts = websocket.receive(data)
        if websocket.request_path is not None and not websocket.is_open:
            websocket.accept()
        changed = {connection}
        for text in texts:
            changed.add(self._route(connection, text))
        for one in changed:
            await one.flush()

    def _route(self, connection: Connection, text: bytes) -> Connection:
        """Queue a message, or the answer to it, and return the connection that it is for."""
        message = _decode(text)
        target = self._places.get(message.to)
        if target is not None:
            target.websocket.send([text])
            return target
        if message.type != "response":
            body = self._serve_message(connection, message)
            if body is not None:
                connection.websocket.send([self._answer(message, body)])
        return connection

    def _serve_message(self, connection: Connection, message: _Message) -> dict[str, object] | None:
        """Body of the answer to a message to the node itself; None for all others."""
        if message.to == "mn:/session":
            token = f"t-{next(self._numbers)}"
            self._places[f"{message.from_}/{token}"] = self._places[f"{message.from_}/sm"] = connection
            return {"code": 200, "runtimeToken": token}
        if message.to.endswith("/address-allocation"):
            address = f"{_decode_body(message.body).scheme}://{self._domain}/{next(self._numbers)}"
            self._places[address] = connection
            return {"code": 200, "value": {"allocated": [address]}}
        if message.to.endswith("/sm"):
            self._places.update(dict.fromkeys(_decode_body(message.body).resources, connection))
            return {"code": 200}
        return None

    @staticmethod
    def _answer(message: _Message, body: dict[str, object]) -> bytes:
        header = {"id": message.id, "type": "response", "from": message.to, "to": message.from_}
        return msgspec.json.encode({**header, "body": body})


async def _main(domain: str) -> None:
    node = ForeignNode(domain)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    sys.stdout.write(f'ready {{"port": {port}}}\n')
    sys.stdout.flush()
    await trio.serve_listeners(node.serve, listeners)


if __name__ == "__main__":
    trio.run(_main, sys.argv[1])
