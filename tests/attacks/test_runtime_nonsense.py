"""Well-formed nonsense: whatever runtimes and links say in whatever order, the node finds no defect in itself."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protofly import codec
from protofly.errors import PeerError
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    FOREIGN,
    FOREIGN_SM,
    NODE,
    SESSION,
    SM,
    Json,
    RuntimeRig,
    a_message,
    runtime_address,
    runtime_rig,
)

EVE, BO = runtime_address("eve"), runtime_address("bo")
ROOM = f"comm://{DOMAIN}/room"
FAR = f"comm://{FOREIGN}/room"
_ADDRESSES = st.sampled_from([
    EVE, BO, f"{EVE}/sm", f"{BO}/status", ROOM, f"{ROOM}/changes", f"{ROOM}/children/a", f"{ROOM}/subscription",
    FAR, f"{FAR}/changes", FOREIGN_SM, SM, ALLOCATION, f"domain://registry.{DOMAIN}", f"domain://msg-node.{FOREIGN}/x",
    SESSION, NODE, f"{NODE}/sm", "mn:/validator", "global://registry/", "plain", "two words", "x://", "://", "a:/b",
    "comm://[::1]/x", "comm://ALPHA.example./room", f"runtime://{DOMAIN}/eve/token", "\ud7ff", "comm://é/x", "/", "*",
])  # fmt: skip
_TYPES = st.sampled_from([
    "open", "re-open", "close", "ping", "pong", "create", "read", "update", "delete", "subscribe", "unsubscribe",
    "response", "event", "execute", "EVENT", "x", "",
])  # fmt: skip
_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8) | _ADDRESSES
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
_BODIES = st.none() | _VALUES | st.dictionaries(
    st.sampled_from([
        "value", "resource", "resources", "subscribe", "childrenResources", "source", "scheme", "code", "via", "auth",
        "sessionToken", "receipt", "ttl", "trace", "credentials", "criteria", "attribute", "policy",
    ]),
    _VALUES,
    max_size=4,
)  # fmt: skip
_MESSAGES = st.fixed_dictionaries(
    {"type": _TYPES, "from": _ADDRESSES, "to": _ADDRESSES | st.lists(_ADDRESSES, max_size=3)},
    optional={"id": st.integers(-5, 5) | st.text(max_size=3) | _VALUES, "body": _BODIES},
)


def as_text(message: Json) -> bytes:
    return json.dumps(message, allow_nan=True).encode()


def hear_from_link(rig: RuntimeRig, message: Json) -> None:
    """A message of another domain; the link refuses what is no message."""
    with suppress(PeerError):
        decoded = codec.decode(as_text(message))
        assert len(rig.bus.from_links.take(FOREIGN, decoded)) == len(decoded)


async def speak(from_runtime: list[Json], from_link: list[Json]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with runtime_rig(Path(folder)) as rig:
            bo, eve = await rig.opened("bo"), await rig.opened("eve")
            await eve.say_raw(*map(as_text, from_runtime))
            for message in from_link:
                hear_from_link(rig, message)
            pong = await bo.ask("ping", SESSION)
            assert pong["type"] == "pong"
            assert (await bo.ask("create", ALLOCATION, {"scheme": "comm"}))["body"]["code"] == 200
            assert rig.listener is not None
            assert rig.listener.counters["internal errors"] == 0
            await rig.until("frames in", 2)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(from_runtime=st.lists(_MESSAGES, max_size=20), from_link=st.lists(_MESSAGES, max_size=10))
def test_any_sequence_of_messages_leaves_a_node_that_works(from_runtime: list[Json], from_link: list[Json]) -> None:
    trio.run(speak, from_runtime, from_link)


def test_every_kind_of_nonsense_at_once_leaves_a_node_that_works() -> None:
    kinds = ["open", "re-open", "ping", "create", "read", "update", "delete", "subscribe", "unsubscribe", "response"]
    bodies: list[object] = [
        {},
        {"resource": ROOM, "childrenResources": [{"a": 1}]},
        {"value": {"number": -1}},
        {"value": []},
    ]
    messages = [
        {**a_message(kind, sender, to), "id": 1, "body": body}
        for kind in kinds
        for sender in (EVE, BO, ROOM, "plain")
        for to in (SESSION, SM, ALLOCATION, FOREIGN_SM, f"domain://registry.{DOMAIN}", ROOM, FAR)
        for body in bodies
    ]
    trio.run(speak, messages, messages)
