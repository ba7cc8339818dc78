"""The baseline: one relay of two in series, as plain as trio-websocket allows. No policy, sandbox, records or answers.

Clients connect to `/ws?address=…`. A relay with a `next_hop` hands every message to the next relay's `/link`; one
without delivers it to the client whose address is in the header. Run as `python -m benchmarks.relay SETTINGS` with
settings as JSON; it prints `ready {"port": …}` when it listens.
"""

from __future__ import annotations

import json
import ssl
import sys
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec
import trio
from trio_websocket import (
    ConnectionClosed,
    WebSocketConnection,
    WebSocketRequest,
    open_websocket_url,
    serve_websocket,
)

_QUEUE_MESSAGES: Final = 64  # the better of the measured settings: performance study, section 2
_READ_BYTES: Final = 65_536


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one relay; empty file names mean no TLS, an empty `next_hop` makes it the last relay."""

    next_hop: str = ""
    certificate: str = ""
    key: str = ""
    ca_file: str = ""


class Header(msgspec.Struct):
    """The one member that routing needs."""

    to: str


class Relay:
    """Routes by `to`, one await per message."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._clients: dict[str, WebSocketConnection] = {}
        self._link: WebSocketConnection | None = None
        self._decode = msgspec.json.Decoder(Header).decode

    async def run(self) -> None:
        """Serve until cancelled."""
        settings = self._settings
        if not settings.next_hop:
            await self._serve()
            return
        context = ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else None
        async with open_websocket_url(
            settings.next_hop, context, message_queue_size=_QUEUE_MESSAGES, receive_buffer_size=_READ_BYTES
        ) as link:
            self._link = link
            await self._serve()

    async def _serve(self) -> None:
        context = None
        if self._settings.certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._settings.certificate, self._settings.key)
        serve = partial(
            serve_websocket,
            self._serve_connection,
            "127.0.0.1",
            0,
            context,
            message_queue_size=_QUEUE_MESSAGES,
            receive_buffer_size=_READ_BYTES,
        )
        async with trio.open_nursery() as nursery:
            server = await nursery.start(serve)
            sys.stdout.write(f"ready {json.dumps({'port': server.port})}\n")
            sys.stdout.flush()

    async def _serve_connection(self, request: WebSocketRequest) -> None:
        address = parse_qs(urlsplit(request.path).query).get("address", [""])[0]
        connection = await request.accept()
        if address:
            self._clients[address] = connection
        try:
            while True:
                message = await connection.get_message()
                target = self._link or self._clients.get(self._decode(message).to)
                if target is not None:
                    await target.send_message(message)
        except ConnectionClosed:
            self._clients.pop(address, None)


def main() -> None:
    """Run one relay; its settings are the first argument."""
    settings = msgspec.json.decode(sys.argv[1], type=RelaySettings)
    try:
        trio.run(Relay(settings).run)
    except* KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
