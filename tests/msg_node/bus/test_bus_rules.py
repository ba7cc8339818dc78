"""What the bus asks of messages beyond their sender: source, time, what they carry, and whose object they change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msg_node.kernel.rules import Rules
from msg_node.kernel.service import Event
from protofly import codec
from protofly.errors import Code
from tests.support.runtime_rig import (
    FOREIGN,
    FOREIGN_SM,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
    runtime_rig,
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def from_beta(rig: RuntimeRig, message: Json) -> Code | None:
    """What comes of one message of the link to the other domain."""
    (code,) = rig.bus.from_links.take(FOREIGN, [parsed(message)])
    return code


# The source that a message names.


@pytest.mark.parametrize("source", [runtime_address("bo"), f"hyperty://{FOREIGN}/h"])
async def test_a_message_that_names_somebody_else_as_its_source_is_refused(rig: RuntimeRig, source: str) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    reply = await ana.ask("read", runtime_address("bo"), {"source": source})
    assert code_and_reason(reply) == (403, "spoofed-source")
    assert await bo.heard() == []


async def test_own_addresses_and_free_ones_may_be_named_as_source(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    mine = await ana.allocated("hyperty")
    for source in (mine, ana.address + "/x", "hyperty://alpha.example/unknown", "plain"):
        await ana.say(a_message("event", ana.address, bo.address, {"source": source}))
    await ana.heard()
    assert len(await bo.heard()) == 4


async def test_a_reply_may_name_whom_it_is_about(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(
        a_message("response", ana.address, bo.address, {"code": 200, "source": f"hyperty://{FOREIGN}/h"}, id_=1)
    )
    await ana.heard()
    assert [one["id"] for one in await bo.heard()] == [1]


# Time to live.


@pytest.mark.parametrize("ttl", [0, -1])
async def test_a_request_whose_time_is_over_is_answered_408(rig: RuntimeRig, ttl: float) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    assert code_and_reason(await ana.ask("read", bo.address, {"ttl": ttl})) == (408, "timeout")
    assert await from_beta(rig, a_message("read", f"hyperty://{FOREIGN}/h", bo.address, {"ttl": ttl}, id_=1)) is (
        Code.TIMEOUT
    )
    await ana.say(a_message("event", ana.address, bo.address, {"ttl": ttl}))
    assert await ana.heard() == []
    assert await bo.heard() == []


async def test_who_asked_a_runtime_that_did_not_read_in_time_is_notified(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    message = parsed(a_message("read", ana.address, bo.address, {"ttl": 1}, id_=9))
    rig.port_of("bo").queue.on_expired(message)
    (reply,) = await ana.heard()
    assert (reply["id"], reply["from"], code_and_reason(reply)) == (9, bo.address, (408, "timeout"))
    assert reply["body"]["desc"] == reply["body"]["description"]  # ana speaks dialect A


# Messages inside messages.


def forward(to: str, levels: int, inner: Json) -> Json:
    message = inner
    for _ in range(levels):
        message = {"type": "forward", "from": runtime_address("ana"), "to": to, "body": {"message": message}}
    return {**message, "id": 5}


async def test_a_message_wrapped_three_times_is_too_deep_and_twice_is_not(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    inner = a_message("create", ana.address, bo.address)
    await ana.say(forward(bo.address, 3, inner), forward(bo.address, 2, inner))
    (refused,) = await ana.heard()
    assert code_and_reason(refused) == (400, "too-deep")
    assert len(await bo.heard()) == 1
    deep = {**forward(bo.address, 3, inner), "from": f"hyperty://{FOREIGN}/h"}
    assert await from_beta(rig, deep) is Code.TOO_DEEP


# Whose object it is.


async def subscribed(rig: RuntimeRig, *names: str) -> list[Runtime]:
    return [await rig.opened(name) for name in names]


async def test_only_the_reporter_changes_an_object_and_others_are_notified_when_they_ask(rig: RuntimeRig) -> None:
    ana, bo, eve = await subscribed(rig, "ana", "bo", "eve")
    room = await ana.allocated()
    await bo.subscribed(f"{room}/changes")
    await eve.say(a_message("update", eve.address, f"{room}/changes", {"value": "forged"}))
    await eve.say(a_message("update", room, f"{room}/changes", {"value": "forged"}))
    assert await eve.heard() == []  # an event without id is dropped in silence
    refused = await eve.ask("update", f"{room}/changes", {"value": "forged"})
    assert code_and_reason(refused) == (403, "not-owner")
    forged = a_message("update", f"hyperty://{FOREIGN}/h", f"{room}/changes", {"value": "forged"}, id_=1)
    assert await from_beta(rig, forged) is Code.NOT_OWNER
    await ana.say(a_message("update", room, f"{room}/changes", {"value": "true"}))
    await ana.heard()
    assert [one["body"]["value"] for one in await bo.heard()] == ["true"]


async def test_the_end_of_an_object_ends_the_leases_of_other_domains(rig: RuntimeRig) -> None:
    ana, bo = await subscribed(rig, "ana", "bo")
    room, other = await ana.allocated(), await ana.allocated()
    source = f"runtime://{FOREIGN}/mn"
    resources = [f"{room}/changes", f"{room}/children/m", f"{other}/changes"]
    await from_beta(rig, a_message("subscribe", f"{source}/sm", SM, {"resources": resources, "source": source}, id_=1))
    await bo.subscribed(f"{room}/changes")
    rig.domains.take()
    await ana.say(a_message("delete", f"{room}/subscription", f"{room}/changes", id_=2))
    await ana.heard()
    assert [one["type"] for one in rig.domains.take()] == ["delete"]
    assert [one["type"] for one in await bo.heard()] == ["delete"]
    for base in (room, other):
        await ana.say(a_message("update", base, f"{base}/changes", {"value": base}))
    await ana.heard()
    assert [one["body"]["value"] for one in rig.domains.take()] == [other]
    assert rig.state.owners.owner(room) is not None  # the address stays until it is released


async def test_a_deleted_object_abroad_is_not_asked_for_again(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    room = f"comm://{FOREIGN}/room"
    await ana.say(a_message("subscribe", ana.address, FOREIGN_SM, {"resources": [f"{room}/changes"]}, id_=1))
    assert await ana.heard() == []
    (upstream,) = rig.domains.take()
    await from_beta(rig, a_message("response", upstream["to"], upstream["from"], {"code": 200}, id_=upstream["id"]))
    assert (await ana.next())["body"]["code"] == 200
    await from_beta(rig, a_message("delete", f"{room}/subscription", f"{room}/changes", id_=2))
    assert [one["type"] for one in await ana.heard()] == ["delete"]
    rig.bus.foreign.link_is_live(FOREIGN)
    assert rig.domains.take() == []


async def test_what_the_node_itself_says_to_an_object_abroad_goes_there_and_to_those_of_us_who_listen(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    changes = f"comm://{FOREIGN}/room/changes"
    await ana.say(a_message("subscribe", ana.address, FOREIGN_SM, {"resources": [changes]}, id_=1))
    await ana.heard()
    (upstream,) = rig.domains.take()
    await from_beta(rig, a_message("response", upstream["to"], upstream["from"], {"code": 200}, id_=upstream["id"]))
    await ana.next()
    rig.bus.effects.publish_events([Event(SM, changes, {"value": 1})])
    (heard,) = await ana.heard()
    (sent,) = rig.domains.take()
    assert heard["to"] == sent["to"] == changes


async def test_what_a_link_could_not_do_is_described_for_runtimes_of_dialect_a(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    request = parsed(a_message("read", ana.address, f"hyperty://{FOREIGN}/h", id_=3))
    rig.bus.refusals.answer(codec.refusal(request, Code.DEPLOY_TIMEOUT, source="runtime://alpha.example/mn-1"))
    (reply,) = await ana.heard()
    assert reply["body"]["desc"] == reply["body"]["description"] == "Gateway Timeout"


async def test_an_object_abroad_is_observed_after_its_reporter_s_consent_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    async with runtime_rig(tmp_path, rules=Rules(require_consent=True)) as rig:
        ana, eve = await subscribed(rig, "ana", "eve")
        room = f"comm://{FOREIGN}/room"
        ask = {"resources": [f"{room}/changes"]}
        assert code_and_reason(await ana.ask("subscribe", FOREIGN_SM, ask)) == (403, "policy")
        unasked = a_message("response", f"{room}/subscription", f"{ana.address}/sm", {"code": 200}, id_=1)
        await from_beta(rig, unasked)
        await ana.heard()
        assert code_and_reason(await ana.ask("subscribe", FOREIGN_SM, ask)) == (403, "policy")
        await ana.say(a_message("subscribe", f"{ana.address}/sm", f"{room}/subscription", {"resource": room}, id_=1))
        await ana.heard()
        rig.domains.take()
        await from_beta(rig, unasked)
        await ana.say(a_message("subscribe", ana.address, FOREIGN_SM, ask, id_=2))
        assert [one["type"] for one in await ana.heard()] == ["response"]  # the reporter's; ours waits for the far node
        (upstream,) = rig.domains.take()
        await from_beta(rig, a_message("response", upstream["to"], upstream["from"], {"code": 200}, id_=upstream["id"]))
        assert (await ana.next())["body"]["code"] == 200
        assert code_and_reason(await eve.ask("subscribe", FOREIGN_SM, ask)) == (403, "policy")  # though it is here now


@pytest.mark.parametrize("name", ["p2phandler", "p2prequester"])
async def test_a_p2p_stub_that_names_no_runtime_is_reached_by_the_name_it_announced(rig: RuntimeRig, name: str) -> None:
    ana, bo, eve = await subscribed(rig, "ana", "bo", "eve")
    stub = f"runtime://alpha.example/{name}/6f1"
    announce = {"subscribe": [f"{ana.address}/{name}/6f1"], "source": stub}
    assert (await ana.ask("subscribe", SM, announce, from_=f"{ana.address}/ua"))["body"]["code"] == 200
    assert code_and_reason(await eve.ask("subscribe", SM, announce)) == (403, "spoofed-source")
    for to in (stub, f"{ana.address}/{name}/6f1"):
        await bo.say(a_message("create", bo.address, to, {"value": "offer"}, id_=4))
        await bo.heard()
        assert [one["to"] for one in await ana.heard()] == [to]
    await ana.say(a_message("create", stub, bo.address, {"value": "answer"}))
    await ana.heard()
    assert [one["from"] for one in await bo.heard()] == [stub]
    assert code_and_reason(await eve.ask("create", bo.address, from_=stub)) == (403, "not-owner")
