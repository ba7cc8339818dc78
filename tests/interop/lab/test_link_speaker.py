"""The bare link speaker keeps what it was given until it is acknowledged, whichever of its lines are up."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_bytes

import trio
import trustme

from federation.core.link_frames import FrameKind, decode_messages
from interop.foreign.link_speaker import LinkSpeaker
from interop.foreign.simulator import LocalRuntime
from interop.lab.link_peer import LinkLine, LinkPeer
from protofly.signatures import SigningKey

ANNA = "hyperty://a.example/anna"
LIMIT_SECONDS = 20.0


def peer_of(domain: str) -> LinkPeer:
    return LinkPeer(domain, SigningKey.from_seed("node-1", token_bytes(32)))


def nowhere(domain: str) -> tuple[str, int]:
    raise OSError(f"there is no way to {domain}")


@asynccontextmanager
async def speaking() -> AsyncIterator[tuple[LinkSpeaker, ssl.SSLContext]]:
    """A speaker that reaches nobody, and the context for those that visit it."""
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("mn.l.example").configure_cert(server)
    authority.configure_trust(client)
    speaker = LinkSpeaker(peer_of("l.example"), (server, client), nowhere)
    with trio.fail_after(LIMIT_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(speaker.run)
            yield speaker, client
            nursery.cancel_scope.cancel()


async def heard(line: LinkLine) -> list[int]:
    """The values in the next frame of messages."""
    frame = await line.receive_kind(FrameKind.MESSAGES)
    return [json.loads(raw)["body"]["value"] for raw in decode_messages(frame.payload)]


async def test_when_the_newest_line_ends_the_one_before_it_carries_what_was_not_acknowledged() -> None:
    async with speaking() as (speaker, context):
        visitor, luis = peer_of("a.example"), LocalRuntime(speaker, "luis")
        older = await visitor.visit("l.example", speaker.port, context)
        newer = await visitor.visit("l.example", speaker.port, context)
        luis.say("create", luis.url, ANNA, {"value": 1})
        assert await heard(newer) == [1]
        await trio.aclose_forcefully(newer.stream)
        assert await heard(older) == [1]
        luis.say("create", luis.url, ANNA, {"value": 2})
        assert await heard(older) == [2]
        await trio.aclose_forcefully(older.stream)
