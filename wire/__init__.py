"""Bytes to and from sockets: TLS, WebSocket frames, HTTP/1.1 exchanges, address ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "ByteChannel",
    "ClientWebSocket",
    "HttpExchange",
    "HttpServing",
    "OutgoingRequest",
    "ServerWebSocket",
    "judge_address",
    "parse_networks",
]

if TYPE_CHECKING:
    from wire.byte_channel import ByteChannel
    from wire.core.http_exchange import HttpExchange, OutgoingRequest
    from wire.core.http_serving import HttpServing
    from wire.core.network import judge_address, parse_networks
    from wire.core.websocket import ClientWebSocket, ServerWebSocket
else:
    __getattr__ = public_names(
        __name__,
        {
            "ByteChannel": "wire.byte_channel",
            "ClientWebSocket": "wire.core.websocket",
            "HttpExchange": "wire.core.http_exchange",
            "HttpServing": "wire.core.http_serving",
            "OutgoingRequest": "wire.core.http_exchange",
            "ServerWebSocket": "wire.core.websocket",
            "judge_address": "wire.core.network",
            "parse_networks": "wire.core.network",
        },
    )
