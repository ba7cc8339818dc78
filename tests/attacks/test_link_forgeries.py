"""Messages in the name of others, and flags that only a node may set. Trust and hosts, section 7, rows 38 and 39."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protofly.errors import Code
from tests.support.link_endpoint import LinkRig, link_rig, make_world
from tests.support.sides import Bus, Pair, body_of, decoded, inbound, node_of, text

US, THEM = "hyperty://b.example/bo", "hyperty://a.example/ana"
"""Here b.example is attacked by a.example, which has proved itself."""
STREAM = "5" * 32


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LinkRig]:
    world = make_world(tmp_path)
    async with link_rig(world) as running:
        yield running
    world.close()


FORGED = [
    "hyperty://b.example/bo",
    "hyperty://B.EXAMPLE/bo",
    "HYPERTY://b.example/bo",
    "hyperty://b.example./bo",
    "runtime://b.example/mn-1",
    "hyperty-runtime://b.example/mn-1",
    "domain://registry.b.example/",
    "hyperty://c.example/eve",
    "hyperty://sub.a.example/eve",
    "hyperty://evil-a.example/eve",
    "hyperty://a.example.c.example/eve",
    "hyperty://a.example:443/ana",
    "hyperty://eve@a.example/ana",
    "hyperty://b.example@a.example/ana",
    "hyperty://a.example@b.example/ana",
    "hyperty:a.example/ana",
    "//a.example/ana",
    "a.example/ana",
    "ana",
    "mn:/session",
    "user-guid://somebody",
    "global://registry/",
    "hyperty://xn--a.example/ana",
    "hyperty://ａ.example/ana",
    "hyperty://127.0.0.1/ana",
]


@pytest.mark.parametrize("forged", FORGED)
async def test_a_message_in_the_name_of_another_reaches_nobody(rig: LinkRig, forged: str) -> None:
    async with rig.live_client() as client:
        client.send_messages(text(forged, US), text(THEM, US))
        await rig.wait_until(lambda: rig.bus.delivered)
        assert [message.from_ for message in rig.bus.delivered] == [THEM]
        assert rig.link.is_live
    assert (rig.link.counters["received"], rig.bus.answers) == (1, [])


@pytest.mark.parametrize(
    "sender", ["", "a b", "hyperty://a.example/\\u0000", "hyperty://a.example/<x>", "x" * 3_000, "1:2"]
)
async def test_a_sender_that_is_no_address_reaches_nobody(rig: LinkRig, sender: str) -> None:
    async with rig.live_client() as client:
        client.send_messages(text(sender, US), text(THEM, US))
        await rig.wait_until(lambda: rig.bus.delivered)
        assert len(rig.bus.delivered) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id":1,"type":"create","from":["hyperty://a.example/ana"],"to":"hyperty://b.example/bo"}',
        b'{"id":1,"type":"create","from":null,"to":"hyperty://b.example/bo"}',
        b'{"id":1,"type":"create","to":"hyperty://b.example/bo"}',
        b'{"id":1,"type":"create","from":7,"to":"hyperty://b.example/bo"}',
        b'{"id":1,"type":"create","from":{"a":1},"to":"hyperty://b.example/bo"}',
    ],
)
async def test_a_sender_of_another_kind_than_text_reaches_nobody(rig: LinkRig, raw: bytes) -> None:
    async with rig.live_client() as client:
        client.send_messages(raw, text(THEM, US))
        await rig.wait_until(lambda: rig.bus.delivered)
        assert len(rig.bus.delivered) == 1
        assert rig.link.is_live


async def test_the_third_forgery_ends_the_connection_and_honest_messages_stay(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        forged = text(US, US)
        client.send_messages(text(THEM, US), forged, text(THEM, US), forged, forged, text(THEM, US))
        assert await client.code_of_bye() == "spoofed-source"
        await rig.wait_until(lambda: not rig.link.is_live)
    assert len(rig.bus.delivered) == 3
    assert rig.bus.events == ["up", "spoofed", "spoofed", "spoofed", "down"]
    async with rig.live_client() as client:
        assert client.welcome is not None
        assert client.welcome.arg == 6  # they do not come again


@pytest.mark.parametrize("source", [US, "hyperty://c.example/x", "runtime://b.example/mn-1"])
def test_a_source_of_another_domain_is_a_forgery_too(source: str) -> None:
    pair = Pair()
    pair.to_a.inbound(inbound(text(THEM, US, json.dumps({"source": source}))), STREAM)
    assert (pair.b.delivered, pair.to_a.counters["spoofed"]) == ([], 1)


@pytest.mark.parametrize("source", [[US], {"x": US}, 7])
def test_a_source_that_is_no_text_does_not_pass(source: object) -> None:
    pair = Pair()
    pair.to_a.inbound(inbound(text(THEM, US, json.dumps({"source": source}))), STREAM)
    assert [message for message in pair.b.delivered if b"source" in message.body] == []


def test_a_sender_given_twice_does_not_reach_a_receiver_that_believes_the_first() -> None:
    pair = Pair()
    raw = f'{{"id":1,"from":"{US}","type":"create","to":"{US}","from":"{THEM}"}}'.encode()
    pair.to_a.inbound(inbound(raw), STREAM)
    assert [message.raw for message in pair.b.delivered if US.encode() in message.raw.split(b'"type"')[0]] == []


def test_the_name_of_the_node_itself_cannot_be_used() -> None:
    pair = Pair()
    pair.to_a.inbound(inbound(text(node_of("b.example"), US)), STREAM)
    assert (pair.b.delivered, pair.to_a.counters["spoofed"]) == ([], 1)


FLAGS = ["auth", "sessionToken", "assertedIdentity"]


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("value", ["true", '"true"', "1", '{"guid":"user-guid://admin"}', "[]", "null"])
async def test_flags_that_only_a_node_may_set_do_not_cross(rig: LinkRig, flag: str, value: str) -> None:
    async with rig.live_client() as client:
        client.send_messages(text(THEM, US, f'{{"{flag}":{value},"value":1}}'))
        await rig.wait_until(lambda: rig.bus.delivered)
    assert body_of(rig.bus.delivered[0]) == {"value": 1}
    assert flag.encode() not in rig.bus.delivered[0].raw


@pytest.mark.parametrize(
    "body",
    [
        '{"\\u0061uth":true,"value":1}',
        '{"auth":false,"auth":true,"value":1}',
        '{ "auth" : true , "value":1}',
        '{"value":1,"auth":true}',
        '{"auth":true,"value":1,"trace":"mn:00000000000000000000000000000000","via":["runtime://a.example/mn-1"]}',
        '{"value":1,"trace":"mn:00000000000000000000000000000000","via":["x"],"auth":true}',
    ],
)
def test_no_spelling_of_a_flag_crosses(body: str) -> None:
    pair = Pair()
    pair.to_a.inbound(inbound(text(THEM, US, body)), STREAM)
    [message] = pair.b.delivered
    assert body_of(message) == {"value": 1}
    assert b"uth" not in message.raw


@pytest.mark.parametrize("name", ["z", "bodies", "xbody", 'x\\"body', "body "])
def test_no_flag_crosses_behind_another_member_with_the_value_of_the_body(name: str) -> None:
    """Both are the last bytes of the text: what is taken off must be taken off the body."""
    body = '{"auth":true,"sessionToken":"s","assertedIdentity":{"guid":"user-guid://admin"},"value":1}'
    forged = text(THEM, US, body)[:-1] + f',"{name}":{body}}}'.encode()
    pair = Pair()
    pair.to_a.inbound(inbound(forged), STREAM)
    [message] = pair.b.delivered
    assert json.loads(message.raw)["body"] == body_of(message) == {"value": 1}
    assert json.loads(message.raw)[json.loads(f'"{name}"')]["auth"] is True  # it is nobody's, and stays


def test_hops_are_written_into_the_body_and_not_into_another_member_with_its_value() -> None:
    pair = Pair()
    carrier = pair.carrier()
    carrier.open()
    outgoing = text("hyperty://a.example/ana", US, '{"value":1}')[:-1] + b',"z":{"value":1}}'
    pair.to_b.send(decoded(outgoing))
    pair.to_b.flush()
    wire = json.loads(carrier.on_the_way[0].wire)
    assert set(wire["body"]) == {"value", "trace", "via"}
    assert wire["z"] == {"value": 1}


def test_flags_of_our_own_sender_do_not_leave() -> None:
    pair = Pair()
    carrier = pair.carrier()
    carrier.open()
    body = json.dumps({"auth": True, "sessionToken": "s", "assertedIdentity": {"a": 1}, "value": 1})
    pair.to_b.send(decoded(text("hyperty://a.example/ana", US, body)))
    pair.to_b.flush()
    wire = json.loads(carrier.on_the_way[0].wire)["body"]
    assert set(wire) == {"value", "trace", "via"}


@pytest.mark.parametrize(
    ("via", "code"),
    [
        (["runtime://b.example/mn-1"], Code.LOOP),
        (["runtime://a.example/mn-1", "runtime://b.example/mn-1"], Code.LOOP),
        ("runtime://b.example/mn-1", Code.LOOP),
        ([f"runtime://{number}.example/mn" for number in range(9)], Code.HOP_LIMIT),
        ([7], Code.BAD_BODY),
        ({}, Code.BAD_BODY),
    ],
)
def test_forged_hops_are_refused_and_the_link_lives(via: object, code: Code) -> None:
    pair = Pair(b=Bus("b.example"))
    back = pair.back()
    back.open()
    body = json.dumps({"via": via})
    pair.to_a.inbound(inbound(text(THEM, US, body), text(THEM, US)), STREAM)
    assert len(pair.b.delivered) == 1
    pair.to_a.flush()
    [answer] = [decoded(pending.wire) for pending in back.on_the_way]
    assert body_of(answer)["reason"] == code.word
    assert pair.to_a.is_live


def test_via_never_reaches_a_runtime() -> None:
    pair = Pair()
    pair.to_a.inbound(inbound(text(THEM, US, '{"value":1,"via":["runtime://a.example/mn-9","x"]}')), STREAM)
    assert body_of(pair.b.delivered[0]) == {"value": 1}
