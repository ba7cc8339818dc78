"""Which loads the peers carry beside the whole trapezoid. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.plan import TRAPEZOID, Traffic, shapes

BRIDGE_QOS_0: Final = "Mosquitto QoS 0"
BRIDGE_QOS_1: Final = "Mosquitto QoS 1"
NATS: Final = "NATS leaf"
EJABBERD: Final = "ejabberd"
WS_RELAYS: Final = "ws relays"
FLOOR: Final = "adapter relays"
PEERS: Final = (BRIDGE_QOS_0, BRIDGE_QOS_1, NATS, EJABBERD, WS_RELAYS, FLOOR)

LACKS: Final[dict[str, str]] = {
    BRIDGE_QOS_0: "a bridge; nothing is acknowledged, no policy between brokers, no records",
    BRIDGE_QOS_1: "a bridge; acknowledged to the sender and over the bridge; no policy between brokers, no records",
    NATS: "nothing is acknowledged, no policy per message, no records",
    EJABBERD: "server to server; nothing is acknowledged; it parses XML and judges stanzas; no sandbox, no records",
    WS_RELAYS: "two in series, in Node.js; routes by `to`; nothing else",
    FLOOR: "two in series, on our own WebSocket adapter; routes by `to`; nothing else",
}
"""What each leaves out of what the trapezoid does for the same message."""


def peer_shapes(*, quick: bool) -> tuple[Traffic, ...]:
    """Floods of 200 B and 1 kB, 500/s, and many connections: each with the trapezoid first."""
    plain = {shape.name: shape for shape in reversed(shapes(quick=quick)) if not shape.tls}
    everyone = (TRAPEZOID, *PEERS)
    flood, paced, many = (
        replace(plain[name], variants=everyone, bars=(), relay_count=0) for name in ("flood", "500/s", "many")
    )
    larger = replace(flood, body_bytes=1000, rounds=2 if quick else 3)
    return flood, larger, paced, many
