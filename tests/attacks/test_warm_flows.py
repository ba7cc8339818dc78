"""Messages that try to pass as part of a flow that an honest message has opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federation.core.carrier import CarrierProved
from policy.core.gate import PeerRule
from protofly.message import NO_PEEK
from tests.support.flow_rig import ANA, BO, HOPS, FlowRig, event, flow_rig, from_bo

EVE = "hyperty://alpha.example/eve"
HONEST = event(1)


def text(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def warm(rig: FlowRig) -> None:
    rig.say("ana", *[HONEST] * 4)
    assert list(rig.link.queue)[-1].message.peek is NO_PEEK


def still_honest(rig: FlowRig) -> None:
    """The honest sender goes on as before."""
    before = len(rig.queued())
    rig.say("ana", event(77))
    assert [one["n"] for one in rig.queued()[before:]] == [77]


async def test_the_same_bytes_from_another_session_are_a_forgery(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        before = len(rig.queued())
        rig.say("eve", *[HONEST] * 4)
        assert len(rig.queued()) == before
        assert rig.node.counters["refused sources"] == 4
        still_honest(rig)


@pytest.mark.parametrize(
    "forged",
    [
        text(event(2, from_=EVE)),
        text(HONEST)[:-1] + b',"from":"%b"}' % EVE.encode(),
        text(HONEST).replace(b'"body":', b'"from":"%b","body":' % EVE.encode()),
        text(HONEST).replace(b'{"n":1}', b'{"n":1},"from":"%b","x":{"n":1}' % EVE.encode()),
        text(HONEST).replace(b'{"n":1}', b'{"n":1},"fr\\u006fm":"%b","x":{"n":1}' % EVE.encode()),
        text(HONEST).replace(b"/ana", b"/%65ve").replace(b"%65", b"\\u0065"),
    ],
)
async def test_another_sender_behind_the_bytes_of_a_flow_does_not_leave(tmp_path: Path, forged: bytes) -> None:
    async with flow_rig(tmp_path) as rig:
        rig.give("eve", EVE)
        warm(rig)
        before = len(rig.queued())
        rig.write("ana", text(HONEST), forged, text(HONEST))
        assert [one.message.from_ for one in list(rig.link.queue)[before:]] == [ANA, ANA]
        assert rig.node.counters["refused sources"] == 1
        still_honest(rig)


@pytest.mark.parametrize("name", ["auth", "sessionToken", "assertedIdentity", "via"])
async def test_no_spelling_of_a_flag_leaves_in_a_message_of_a_flow(tmp_path: Path, name: str) -> None:
    escaped = f"\\u00{ord(name[0]):02x}{name[1:]}"
    bodies = [f'{{"n":1,"{one}":true}}' for one in (name, escaped)] + [f'{{"{escaped}":true,"n":1,"{name}":null}}']
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        before = len(rig.queued())
        rig.write("ana", *(text(HONEST).replace(b'{"n":1}', body.encode()) for body in bodies))
        for one in list(rig.link.queue)[before:]:
            body = json.loads(one.wire)["body"]
            assert body.get(name) is not True
            assert one.wire.count(b'"trace":"mn:') == 1
        still_honest(rig)


async def test_a_source_of_somebody_else_does_not_leave_in_a_flow(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        rig.give("eve", EVE)
        warm(rig)
        before = len(rig.queued())
        rig.say("ana", event(2, source=EVE), HONEST)
        assert [one["n"] for one in rig.queued()[before:]] == [1]
        still_honest(rig)


async def test_a_flow_of_a_session_that_has_ended_is_of_no_use_to_the_next_one(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        sid = rig.sid("ana")
        rig.node.bus.runtimes.remove([sid])
        rig.give("eve", ANA)
        before = len(rig.queued())
        rig.say("ana", *[HONEST] * 3)
        assert len(rig.queued()) == before
        rig.say("eve", HONEST)
        assert len(rig.queued()) == before + 1


async def test_an_address_that_is_taken_away_between_two_messages_of_one_read_is_lost_at_once(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        rig.node.state.owners.release([rig.sid("ana")], ANA)
        rig.give("eve", ANA)
        before = len(rig.queued())
        rig.say("ana", HONEST, HONEST)
        assert len(rig.queued()) == before
        rig.say("eve", event(5))
        assert rig.queued()[before:] == [{"n": 5}]


async def test_a_block_counts_for_the_next_message_of_a_flow_and_its_end_lets_the_flow_go_on(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        before = len(rig.queued())
        rig.gate.cut_off(["beta.example"])
        rig.say("ana", HONEST, HONEST)
        rig.gate.cut_off([])
        rig.gate.configure({"*": PeerRule(default="deny")}, allow=None, deny=())
        rig.say("ana", HONEST, HONEST)
        rig.gate.configure({"*": PeerRule()}, allow=None, deny=())
        assert len(rig.queued()) == before
        assert rig.node.counters["refused domain-blocked"] == 4
        still_honest(rig)


async def test_a_message_to_another_recipient_does_not_go_to_that_of_the_flow(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        before = len(rig.queued())
        rig.write("ana", text(HONEST).replace(b'{"n":1}', b'{"n":1},"to":"%b-2","x":{"n":1}' % BO.encode()))
        assert [one.message.to for one in list(rig.link.queue)[before:]] == [f"{BO}-2"]
        still_honest(rig)


# From another domain, by its link.

EVA = "hyperty://gamma.example/eva"
BROUGHT = from_bo(1)


def bring_warm(rig: FlowRig) -> None:
    rig.bring(*[BROUGHT] * 4)
    assert rig.link.inward._side_now.flows._table.last is not None


def heard(rig: FlowRig) -> int:
    return len(rig.heard("ana"))


def still_carried(rig: FlowRig) -> None:
    """The honest sender goes on as before."""
    before = heard(rig)
    rig.bring(from_bo(77))
    assert [one["body"]["n"] for one in rig.heard("ana")[before:]] == [77]


@pytest.mark.parametrize(
    "forged",
    [
        from_bo(2, from_=EVA),
        BROUGHT[:-1] + b',"from":"%b"}' % EVA.encode(),
        BROUGHT.replace(b'"body":', b'"from":"%b","body":' % EVA.encode()),
        BROUGHT.replace(b'{"n":1,', b'{"n":1},"from":"%b","x":{"n":1,' % EVA.encode()),
        BROUGHT.replace(b'{"n":1,', b'{"n":1},"fr\\u006fm":"%b","x":{"n":1,' % EVA.encode()),
        BROUGHT.replace(b"/bo", b"/%62o").replace(b"beta", b"g\\u0061mma"),
        from_bo(2, from_=ANA),
    ],
)
async def test_another_sender_behind_the_bytes_of_a_carried_flow_is_a_forgery(tmp_path: Path, forged: bytes) -> None:
    async with flow_rig(tmp_path) as rig:
        bring_warm(rig)
        before = heard(rig)
        rig.bring(BROUGHT, forged, BROUGHT)
        assert [one["from"] for one in rig.heard("ana")[before:]] == [BO, BO]
        assert rig.link.counters.shown()["spoofed"] == 1
        assert [one.outcome_code for one in rig.side.message_records].count("spoofed-source") == 1
        still_carried(rig)


async def test_forgeries_behind_a_carried_flow_end_its_carrier(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        bring_warm(rig)
        assert rig.bring(*[from_bo(2, from_=EVA), BROUGHT] * 3)
        assert heard(rig) == 4 + 3


@pytest.mark.parametrize("name", ["auth", "sessionToken", "assertedIdentity", "via", "trace", "source"])
async def test_no_spelling_of_a_flag_enters_with_a_message_of_a_carried_flow(tmp_path: Path, name: str) -> None:
    escaped = f"\\u00{ord(name[0]):02x}{name[1:]}"
    value = json.dumps(ANA) if name == "source" else "true"
    async with flow_rig(tmp_path) as rig:
        bring_warm(rig)
        before = heard(rig)
        rig.bring(*(BROUGHT.replace(b'{"n":1,', f'{{"n":1,"{one}":{value},'.encode()) for one in (name, escaped)))
        for one in rig.heard("ana")[before:]:
            assert one["body"].get(name) in (None, False)
        still_carried(rig)


async def test_a_loop_behind_a_carried_flow_is_found(tmp_path: Path) -> None:
    own = "runtime://alpha.example/mn-1"
    async with flow_rig(tmp_path) as rig:
        bring_warm(rig)
        before = heard(rig)
        rig.bring(*[from_bo(2, via=[*HOPS, own])] * 3, *[from_bo(2, via=HOPS * 9)] * 3)
        assert heard(rig) == before
        assert {one.outcome_code for one in rig.side.message_records[-6:]} == {"loop", "hop-limit"}
        still_carried(rig)


@pytest.mark.parametrize("id_", [b"g" * 32, b"7" * 31 + b'"', b" " * 32, b"\xc2\xa0" * 16])
async def test_an_id_that_is_none_is_read_the_whole_way(tmp_path: Path, id_: bytes) -> None:
    async with flow_rig(tmp_path) as rig:
        bring_warm(rig)
        rig.bring(BROUGHT.replace(b"0" * 31 + b"1", id_))
        assert [one.msg_id for one in rig.side.message_records].count("0" * 31 + "1") == 4
        still_carried(rig)


async def test_a_carrier_that_has_proved_less_does_not_speak_by_flows_of_another(tmp_path: Path) -> None:
    alias = from_bo(5, from_="hyperty://gamma.example/bo")
    async with flow_rig(tmp_path) as rig:
        [carrier] = rig.link.machine.carriers
        rig.link.handle(CarrierProved(carrier, frozenset({"gamma.example"})))
        rig.bring(*[alias] * 5)
        assert heard(rig) == 5
        carrier.cut()  # type: ignore[attr-defined]
        rig.carry()
        rig.bring(alias, BROUGHT)
        assert [one["from"] for one in rig.heard("ana")[5:]] == [BO]
