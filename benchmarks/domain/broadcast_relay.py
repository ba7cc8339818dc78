"""A plain broadcast relay on trio-websocket: every message goes to every other client, one await per delivery.

No addresses, policy, answers or bounds. `python -m benchmarks.domain.broadcast_relay` prints `ready {"port": …}` when
it listens.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Final

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

_QUEUE_MESSAGES: Final = 64  # the better of the measured settings: performance study, section 2
_READ_BYTES: Final = 65_536


class BroadcastRelay:
    """Relay that sends each message of a client to all other clients."""

    def __init__(self) -> None:
        self._clients: set[WebSocketConnection] = set()

    async def run(self) -> None:
        """Serve until cancelled."""
        serve = partial(
            serve_websocket,
            self._serve_client,
            "127.0.0.1",
            0,
            None,
            message_queue_size=_QUEUE_MESSAGES,
            receive_buffer_size=_READ_BYTES,
        )
        async with trio.open_nursery() as nursery:
            server = await nursery.start(serve)
            sys.stdout.write(f"ready {json.dumps({'port': server.port})}\n")
            sys.stdout.flush()

    async def _serve_client(self, request: WebSocketRequest) -> None:
        sender = await request.accept()
        self._clients.add(sender)
        try:
            while True:
                message = await sender.get_message()
                for client in [client for client in self._clients if client is not sender]:
                    await self._send(client, message)
        except ConnectionClosed:
            self._clients.discard(sender)

    async def _send(self, client: WebSocketConnection, message: str | bytes) -> None:
        try:
            await client.send_message(message)
        except ConnectionClosed:
            self._clients.discard(client)


def main() -> None:
    """Run the relay."""
    try:
        trio.run(BroadcastRelay().run)
    except* KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
