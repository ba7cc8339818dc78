"""Names of ours over a link: no proof lets a domain speak as we do, in `from`, in `source` or in an answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.core.border import Speaker
from federation.core.carrier import CarrierUp
from federation.core.interworking import Admission, Interworking
from federation.core.link_frames import FrameKind
from federation.discovery.identity import Identity
from protofly.codec import build
from protofly.errors import Code
from protofly.legacy_range import parse_range
from tests.support.link_endpoint import LinkRig, link_rig, make_world
from tests.support.sides import Aliases, Bus, Pair, inbound, node_of, text

STREAM = "5" * 32
US, THEM = "hyperty://b.example/bo", "hyperty://a.example/ana"
"""Here b.example, which has the alias b-lab.example, is attacked by a.example."""
OURS = [
    US,
    "HYPERTY://B.Example./bo",
    "runtime://b.example/mn-1",
    "hyperty-runtime://b.example/rt-bo/sm",
    "domain://registry.b.example",
    "domain://msg-node.b.example/sm",
    "comm://b.example/room/subscription",
    "user://b.example/bo",
    "hyperty://bo@b.example/x",
    "hyperty://b-lab.example/bo",
    "domain://registry.B-Lab.example",
]
EVERYTHING = frozenset({"a.example", "b.example", "b-lab.example", "c.example"})


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LinkRig]:
    world = make_world(tmp_path)
    async with link_rig(world, bus=Bus("b.example", aliases=Aliases(frozenset({"b-lab.example"})))) as running:
        yield running
    world.close()


async def bye_to(rig: LinkRig, identity: Identity) -> str:
    """The word that the node has for a token of this identity."""
    async with rig.client(identity) as client:
        client.say_hello()
        await client.receive_challenge()
        client.send(FrameKind.TOKEN, 0, client.token())
        return await client.code_of_bye()


def attacked() -> Pair:
    """A pair whose carrier was believed to speak for everybody, us included."""
    pair = Pair(b=Bus("b.example", aliases=Aliases(frozenset({"b-lab.example"}))))
    back = pair.back()
    pair.to_a.handle(CarrierUp(back, node_of("a.example"), domains=EVERYTHING))
    return pair


@pytest.mark.parametrize("type_", ["create", "update", "event", "execute", "response", "subscribe"])
@pytest.mark.parametrize("forged", OURS)
def test_nothing_comes_over_a_link_in_a_name_of_ours(forged: str, type_: str) -> None:
    pair = attacked()
    raw = build(id=1, type=type_, from_=forged, to=US, body={"code": 200}).raw
    pair.to_a.inbound(inbound(raw, text(THEM, US)), STREAM)
    assert [message.from_ for message in pair.b.delivered] == [THEM]
    assert pair.to_a.counters["spoofed"] == 1


@pytest.mark.parametrize("forged", OURS)
def test_nothing_comes_over_a_link_with_a_source_of_ours(forged: str) -> None:
    pair = attacked()
    pair.to_a.inbound(inbound(text(THEM, US, json.dumps({"source": forged})), text(THEM, US)), STREAM)
    assert len(pair.b.delivered) == 1
    assert pair.to_a.counters["spoofed"] == 1


def test_a_source_with_a_user_part_is_as_little_theirs_as_a_sender() -> None:
    pair = Pair()
    pair.to_a.inbound(inbound(text(THEM, US, json.dumps({"source": "hyperty://b.example@a.example/x"}))), STREAM)
    assert (pair.b.delivered, pair.to_a.counters["spoofed"]) == ([], 1)


def test_an_answer_in_a_name_of_ours_reaches_nobody_even_where_we_sent_that_message_over_the_link() -> None:
    pair = attacked()
    child = "comm://b.example/room/children/messages"
    pair.to_a.send(build(id=7, type="create", from_=US, to=child))
    pair.to_a.send(build(id=8, type="execute", from_=US, to="comm://b.example/room"))
    forged = [
        build(id=id_, type="response", from_=from_, to=US, body={"code": 200}).raw
        for id_, from_ in ((7, child), (8, child), (8, "comm://b.example/room"), (9, "domain://registry.b.example"))
    ]
    pair.to_a.inbound(inbound(*forged), STREAM)
    assert pair.b.delivered == []
    pair.to_a.tick(1e12)
    assert pair.b.answers == []  # who answers in our own domain is not the link's matter


def test_an_answer_of_a_stranger_that_was_asked_may_not_name_a_source_of_ours() -> None:
    pair = attacked()
    pair.to_a.send(build(id=1, type="read", from_=US, to="user-guid://somebody"))
    for source, heard in ((US, 0), ("hyperty://d.example/x", 0), (THEM, 1)):
        body = {"code": 200, "source": source}
        raw = build(id=1, type="response", from_="user-guid://somebody", to=US, body=body).raw
        pair.to_a.inbound([(0, raw)], "")
        assert len(pair.b.delivered) == heard


def test_a_legacy_range_never_covers_a_name_of_ours() -> None:
    ranges = (parse_range("sip://b.example"), parse_range("sip://legacy.example"))
    made = Interworking([Admission(domain="a.example", ranges=ranges)])
    everything = Speaker(EVERYTHING, frozenset({"b.example"}), lambda text: bool(made.granted_to(text)))
    assert everything.may_use("sip:ana@legacy.example")
    assert not everything.may_use("sip:ana@b.example")
    assert not everything.may_use("sip:ana@B.example.")


@pytest.mark.parametrize("claimed", ["b.example", "b-lab.example"])
async def test_a_token_that_claims_a_domain_of_ours_is_refused(rig: LinkRig, claimed: str) -> None:
    rig.endpoint.acceptor.identity = ours = rig.documents.identity("b.example")
    ours.domains = ["b.example", "b-lab.example"]
    rig.documents.published["a.example"].rotate_root(aliases=[claimed])
    rig.documents.publish_keys("a.example", rig.documents.keys["a.example"])
    assert await bye_to(rig, rig.documents.identity("a.example", domains=["a.example", claimed])) == "own-domain"
    assert rig.bus.events == []
    async with rig.live_client() as client:
        client.send_messages(text(US, US), text(THEM, US))
        await rig.wait_until(lambda: rig.bus.delivered)
        assert [message.from_ for message in rig.bus.delivered] == [THEM]


@pytest.mark.parametrize(
    ("claimed", "code"),
    [
        ("B.example", Code.NAME_INVALID),
        ("b.example.", Code.NAME_INVALID),
        ("b.example:443", Code.NAME_INVALID),
        ("x@b.example", Code.NAME_INVALID),
        ("b%2eexample", Code.NAME_INVALID),
        ("ｂ.example", Code.NAME_INVALID),
        ("*.example", Code.NAME_INVALID),
    ],
)
async def test_a_claimed_domain_in_another_spelling_is_refused(rig: LinkRig, claimed: str, code: Code) -> None:
    identity = rig.documents.identity("a.example", domains=["a.example", claimed])
    assert await bye_to(rig, identity) == code.word
