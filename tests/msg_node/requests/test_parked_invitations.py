"""Requests to hyperties that are away, parked because a policy has the obligation `park`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.links.decision_records import DecisionRecords
from msg_node.wiring import meaning
from policy.core.gate import Gate
from policy.core.model import KnownRecipient
from policy.core.text import PolicyText, load_policies
from protofly.message import Message
from tests.msg_node.requests.test_actions import answer_to
from tests.msg_node.requests.test_outbox import sent
from tests.support.policies import unrecorded
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

BO = f"hyperty://{DOMAIN}/h-bo"
ROOM = f"comm://{DOMAIN}/room-51"


def invitations(message: Message, _roles: frozenset[str], _domain: str) -> bool:
    return message.type == "create"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        made.parks = invitations
        yield made


def invitation(sender: str, id_: int = 31) -> Json:
    return a_message("create", sender, BO, {"source": sender, "value": {"name": "Room 51"}}, id_=id_)


async def bo_comes(rig: RuntimeRig) -> Runtime:
    bo = await rig.opened("bo")
    await bo.say(a_message("subscribe", bo.address, SM, {"resources": [BO], "source": BO}, id_=1))
    assert (await bo.next())["body"]["code"] == 200
    return bo


async def test_the_inviting_one_hears_that_it_waits_and_later_the_answer_as_an_answer(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(invitation(ana.address))
    waits = await ana.next()
    assert (waits["type"], waits["id"], waits["body"]["code"], waits["body"]["status"]) == (
        "response",
        31,
        100,
        "pending",
    )
    bo = await bo_comes(rig)
    request = await bo.next()
    assert request == invitation(ana.address)
    await bo.say(answer_to(request, {"code": 183}), answer_to(request, {"code": 200}))
    replies = [await ana.next(), await ana.next()]
    assert [(one["type"], one["id"], one["body"]["code"]) for one in replies] == [
        ("response", 31, 183),
        ("response", 31, 200),
    ]
    assert await ana.heard() == []


@pytest.mark.parametrize("has_been_here", [False, True])
async def test_who_wants_to_observe_an_object_is_answered_when_its_reporter_is_there(
    rig: RuntimeRig, has_been_here: bool
) -> None:
    """In place of an offline subscription manager. Source: feature row DS-18."""
    rig.parks = lambda message, _roles, _domain: message.type == "subscribe"
    control = f"{ROOM}/subscription"
    bo = await rig.opened("bo")
    if has_been_here:
        await bo.subscribed(ROOM, control)
    await bo.wire.cut()
    await rig.until("sessions lost")
    ana = await rig.opened("ana")
    wish = a_message("subscribe", ana.address, control, {"source": ana.address, "resource": ROOM}, id_=32)
    await ana.say(wish)
    waits = await ana.next()
    assert (waits["id"], waits["body"]["code"], waits["body"]["status"]) == (32, 100, "pending")
    again = await rig.runtime()
    again.address = bo.session_address
    await again.ask("re-open", "mn:/session")
    again.address = bo.address
    if not has_been_here:
        await again.say(a_message("subscribe", bo.address, SM, {"resources": [ROOM, control]}, id_=1))
        assert (await again.next())["body"]["code"] == 200
    request = await again.next()
    assert request == wish
    await again.say(answer_to(request, {"code": 200, "value": {"data": {"topic": "lunch"}, "version": 4}}))
    answer = await ana.next()
    assert (answer["id"], answer["from"], answer["body"]["code"]) == (32, control, 200)
    assert answer["body"]["value"] == {"data": {"topic": "lunch"}, "version": 4}


async def test_an_answer_for_an_inviting_one_who_left_waits_in_its_inbox(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(invitation(ana.address))
    await ana.next()
    await ana.wire.cut()
    await rig.until("sessions lost")
    bo = await bo_comes(rig)
    await bo.say(answer_to(await bo.next(), {"code": 403}))
    await rig.until("actions failed")
    back = await rig.runtime()
    back.address = ana.session_address
    await back.ask("re-open", "mn:/session")
    event = await back.next()
    assert (event["to"], event["body"]["status"], event["body"]["code"]) == (f"{ana.address}/inbox", "failed", 403)


async def test_an_invitation_that_nobody_came_for_is_answered_as_expired(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(invitation(ana.address))
    await ana.next()
    rig.bus.parked_actions.sweep(time.time() + 1e6)
    assert code_and_reason(await ana.next()) == (410, "expired")


async def test_what_no_policy_parks_is_refused_as_ever(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(a_message("read", ana.address, BO, id_=1))
    assert code_and_reason(await ana.next()) == (404, "no-route")
    rig.parks = lambda *_: False
    await ana.say(invitation(ana.address))
    assert code_and_reason(await ana.next()) == (404, "no-route")


async def test_an_invitation_of_another_domain_waits_and_is_answered_there(rig: RuntimeRig) -> None:
    sender = f"comm://{FOREIGN}/room-9/subscription"
    assert rig.bus.from_links.take(FOREIGN, [parsed(invitation(sender))]) == [None]
    assert [one["body"]["code"] for one in await sent(rig)] == [100]
    bo = await bo_comes(rig)
    await bo.say(answer_to(await bo.next(), {"code": 200}))
    (reply,) = await sent(rig)
    assert (reply["type"], reply["id"], reply["to"], reply["body"]["code"]) == ("response", 31, sender, 200)


POLICY = """
id = "p"
version = "1"
target = { hook = { in = ["local", "in"] } }
[[rules]]
id = "invitations-wait"
effect = "permit"
condition = { actionType = { equals = "create" }, dstScheme = { equals = "hyperty" } }
obligations = { park = true }
"""


@pytest.mark.parametrize(("type_", "is_parked"), [("create", True), ("read", False)])
@pytest.mark.parametrize("domain", ["", FOREIGN])
def test_the_obligation_of_the_rule_that_permits_decides(type_: str, is_parked: bool, domain: str) -> None:
    gate = Gate(load_policies([PolicyText("p", POLICY, "toml")]))
    message = parsed(a_message(type_, f"hyperty://{domain or DOMAIN}/h-ana", BO, id_=1))
    assert meaning.parks(unrecorded(gate), message, frozenset(), domain) is is_parked
    assert not meaning.parks(unrecorded(Gate()), message, frozenset(), domain)


def test_a_rule_may_park_what_is_for_a_recipient_that_is_away_only() -> None:
    text = POLICY.replace('{ equals = "hyperty" } }', '{ equals = "hyperty" }, dstStatus = { equals = "parked" } }')
    gate = Gate(load_policies([PolicyText("p", text, "toml")]))
    message = parsed(a_message("create", f"hyperty://{DOMAIN}/h-ana", BO, id_=1))
    for status in ("live", "parked", "absent"):
        decisions = DecisionRecords(gate, lambda _record: None, recipients=KnownRecipient(status))
        assert meaning.parks(decisions, message, frozenset(), "") is (status == "parked")
