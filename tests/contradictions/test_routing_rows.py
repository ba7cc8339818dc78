"""Message specification, section 21: routing and what the node adds, takes off or leaves. One test per row."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.links.link_context import Refusal
from msg_node.kernel.rules import Rules
from protofly.errors import Code
from protofly.message import Message
from tests.support.runtime_rig import (
    DOMAIN,
    SM,
    Json,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)
from tests.support.sides import Pair, decoded, inbound

FORWARDED: Json = {"type": "create", "from": "comm://alpha.example/r/subscription", "to": "hyperty://beta.example/h"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def passed(rig: RuntimeRig, body: Json) -> Json:
    """What a body has become when it arrives at another runtime."""
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("event", ana.address, bo.address, body))
    await ana.heard()
    (message,) = await bo.heard()
    arrived: Json = message["body"]
    return arrived


async def test_row_39_a_denied_request_is_answered_403_and_all_else_is_dropped(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    rig.judge_local = lambda message, _roles: Refusal(Code.POLICY) if message.to == bo.address else None
    assert code_and_reason(await ana.ask("create", bo.address)) == (403, "policy")
    await ana.say(a_message("event", ana.address, bo.address, id_=1))
    await ana.say(a_message("response", ana.address, bo.address, {"code": 200}, id_=1))
    assert (await ana.heard(), await bo.heard()) == ([], [])


async def test_row_40_a_request_without_a_way_is_answered_404_or_503(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    assert code_and_reason(await ana.ask("read", f"comm://{DOMAIN}/nothing")) == (404, "no-route")
    await bo.wire.cut()
    await rig.until("sessions lost")
    assert code_and_reason(await ana.ask("read", bo.address)) == (503, "not-connected")
    await ana.say(a_message("event", ana.address, f"comm://{DOMAIN}/nothing", id_=1))
    assert await ana.heard() == []


@pytest.mark.parametrize("via", ["runtime://gamma.example/mn", ["runtime://gamma.example/mn"]])
async def test_row_45_via_is_a_list_or_a_text_and_comes_off_for_runtimes(rig: RuntimeRig, via: object) -> None:
    assert await passed(rig, {"value": 1, "via": via}) == {"value": 1}


@pytest.mark.parametrize("via", ["runtime://gamma.example/mn", ["runtime://gamma.example/mn"]])
def test_row_45_and_is_a_list_for_other_domains(via: object) -> None:
    pair = Pair()
    carrier = pair.carrier()
    carrier.open()
    body = {"via": via}
    message = {"id": 1, "type": "read", "from": "hyperty://a.example/ana", "to": "hyperty://b.example/bo", "body": body}
    assert pair.to_b.send(decoded(json.dumps(message).encode())) is None
    pair.to_b.flush()
    sent = json.loads(carrier.on_the_way[0].wire)["body"]["via"]
    assert sent[0] == "runtime://gamma.example/mn"
    assert sent[1:] == ["runtime://a.example/mn-1", pair.to_b.stub.url]


@pytest.mark.parametrize("claim", [True, "true"])
async def test_row_46_a_claim_to_be_verified_is_carried_here_and_stays_at_the_border(
    rig: RuntimeRig, claim: object
) -> None:
    assert await passed(rig, {"assertedIdentity": claim}) == {"assertedIdentity": claim}
    pair = Pair()
    message = a_message(
        "event", "hyperty://a.example/ana", "hyperty://b.example/bo", {"assertedIdentity": claim, "v": 1}
    )
    pair.to_a.inbound(inbound(json.dumps(message).encode()), "5" * 32)
    assert [json.loads(one.body) for one in pair.b.delivered] == [{"v": 1}]


@pytest.mark.parametrize("verdict", [True, False, "true"])
async def test_row_47_a_verdict_of_the_sender_is_taken_off(rig: RuntimeRig, verdict: object) -> None:
    assert await passed(rig, {"auth": verdict, "value": 1}) == {"value": 1}


@pytest.mark.parametrize("body", [{"message": FORWARDED}, FORWARDED])
async def test_row_57_both_forms_of_a_forwarded_message_pass_unopened(rig: RuntimeRig, body: Json) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    message = a_message("forward", ana.address, bo.address, body)
    await ana.say(message)
    await ana.heard()
    assert await bo.heard() == [message]


@pytest.mark.parametrize("params", [["a", 1], {"name": "a"}])
async def test_row_58_params_are_a_list_or_an_object(rig: RuntimeRig, params: object) -> None:
    body = {"method": "refresh", "params": params}
    assert await passed(rig, body) == body


async def test_row_60_a_sender_hears_no_echo(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    address = f"comm://{DOMAIN}/room/children/m"
    for runtime in (ana, bo):
        await runtime.subscribed(address)
    await ana.say(a_message("create", ana.address, address))
    assert (await ana.heard(), len(await bo.heard())) == ([], 1)


async def test_row_60_a_switch_restores_the_echo_of_old_nodes(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, rules=Rules(echoes=True)) as rig:
        ana = await rig.opened("ana")
        await ana.subscribed(f"comm://{DOMAIN}/room/children/m")
        await ana.say(a_message("create", ana.address, f"comm://{DOMAIN}/room/children/m"))
        assert len(await ana.heard()) == 1


async def test_row_61_a_request_goes_to_the_owner_alone_and_an_event_to_all(rig: RuntimeRig) -> None:
    ana, bo, cy = [await rig.opened(name) for name in ("ana", "bo", "cy")]
    room = await ana.allocated()
    member = f"{room}/m"  # the oldest spelling of a child, which observers may listen to
    await ana.subscribed(member)
    await bo.subscribed(member)
    await cy.subscribed(f"{room}/changes")
    await cy.say(a_message("read", cy.address, room, id_=1), a_message("event", cy.address, member, id_=2))
    await cy.heard()
    assert [one["id"] for one in await ana.heard()] == [1, 2]
    assert [one["id"] for one in await bo.heard()] == [2]


async def test_row_62_what_is_relayed_is_not_reshaped(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    raw = (
        f'{{"zz":1, "id" : 1,"type":"response","from":"{ana.address}","to":"{bo.address}",'
        '"body":{"b":1e400,"a":123456789012345678901234567890,"code":"2XX","Code":"error", "desc":"é\\/"}}'
    )
    await ana.say_raw(raw.encode())
    await ana.heard()
    data = await bo.wire.read()
    assert [bytes(one).decode() for one in bo.websocket.receive(data)] == [raw]


@pytest.mark.parametrize("scheme", ["hyperty", "wallet"])
async def test_row_69_a_transfer_goes_where_its_address_says(rig: RuntimeRig, scheme: str) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    wallet = await bo.allocated(scheme)
    transfer = a_message("create", ana.address, wallet, {"resource": "wallet", "value": {"amount": 1}}, id_=1)
    await ana.say(transfer)
    await ana.heard()
    assert await bo.heard() == [transfer]


async def test_row_77_a_response_in_the_name_of_changes_passes_if_it_comes(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await ana.allocated()
    await bo.subscribed(f"{room}/changes")
    await ana.say(a_message("update", room, f"{room}/changes", {"value": 1}, id_=4))
    assert await ana.heard() == []
    (event,) = await bo.heard()
    reply = a_message("response", f"{room}/changes", room, {"code": 200}, id_=event["id"])
    await bo.say(reply)
    assert await ana.next() == reply


async def test_row_52_policies_see_messages_for_the_node_s_own_services(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")

    def deny(message: Message, _roles: frozenset[str]) -> Refusal | None:
        return Refusal(Code.POLICY) if message.to == SM else None

    rig.judge_local = deny
    assert code_and_reason(await ana.subscribed(f"{runtime_address('ana')}/x")) == (403, "policy")
    assert rig.state.listeners.targets(f"{runtime_address('ana')}/x") == ()
