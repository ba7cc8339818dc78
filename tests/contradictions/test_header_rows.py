"""Message specification, section 21: headers, codes, descriptions. One test per row, through a node over a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.links.link_context import Refusal
from protofly.errors import Code
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    FOREIGN,
    FOREIGN_SM,
    SM,
    Json,
    RuntimeRig,
    a_message,
    parsed,
    runtime_rig,
)
from tests.support.sides import Pair

ROOM = f"comm://{FOREIGN}/room"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def test_row_1_types_in_any_case_are_served_and_leave_in_lower_case(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    reply = await ana.ask("SUBSCRIBE", SM, {"resources": [f"{ROOM}/changes"]})
    assert (reply["type"], reply["body"]["code"]) == ("response", 200)
    await ana.say(a_message("Create", ana.address, bo.address, id_=1), a_message("UPDATE", ana.address, bo.address))
    await ana.heard()
    assert [one["type"] for one in await bo.heard()] == ["create", "update"]


@pytest.mark.parametrize("id_", ["7", '"7"', "0", '"x y"', "9007199254740993", "-1"])
async def test_row_2_ids_are_echoed_as_they_came(rig: RuntimeRig, id_: str) -> None:
    ana = await rig.opened("ana")
    await ana.say_raw(f'{{"id":{id_},"type":"read","from":"{ana.address}","to":"{ALLOCATION}"}}'.encode())
    reply = await ana.next()
    assert (reply["type"], json.dumps(reply["id"])) == ("response", id_)


async def test_row_2_a_message_without_id_gets_none_and_no_reply(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("read", ana.address, ALLOCATION), a_message("create", ana.address, bo.address))
    assert await ana.heard() == []
    assert ["id" in one for one in await bo.heard()] == [False]


async def test_row_2_the_node_itself_never_writes_the_id_0(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    rig.stop()
    notice = await ana.next()
    assert (type(notice["id"]), notice["id"] > 0) == (int, True)


async def test_row_3_a_list_of_recipients_is_split_into_one_text_each(rig: RuntimeRig) -> None:
    ana, bo, cy = [await rig.opened(name) for name in ("ana", "bo", "cy")]
    await ana.say({"id": 5, "type": "create", "from": ana.address, "to": [bo.address, cy.address, bo.address]})
    await ana.heard()
    for runtime in (bo, cy):
        assert [(one["to"], one["id"]) for one in await runtime.heard()] == [(runtime.address, 5)]


async def upstream_says(rig: RuntimeRig, body: Json) -> Json:
    """What a runtime hears when the other domain answers its subscription with `body`."""
    ana = await rig.opened("ana")
    await ana.say(a_message("subscribe", ana.address, FOREIGN_SM, {"resources": [f"{ROOM}/changes"]}, id_=1))
    assert await ana.heard() == []
    (request,) = rig.domains.take()
    answer = a_message("response", request["to"], request["from"], body, id_=request["id"])
    assert rig.bus.from_links.take(FOREIGN, [parsed(answer)]) == [None]
    return await ana.next()


@pytest.mark.parametrize(("code", "expected"), [("200", 200), ("2XX", 200), (200, 200), ("error", 500), ("404", 404)])
async def test_row_4_codes_are_read_in_every_form_and_written_as_numbers(
    rig: RuntimeRig, code: object, expected: int
) -> None:
    reply = await upstream_says(rig, {"code": code})
    assert (type(reply["body"]["code"]), reply["body"]["code"]) == (int, expected)


@pytest.mark.parametrize("member", ["code", "Code", "responseCode", "errorCode"])
async def test_row_5_codes_are_read_under_every_name_and_written_as_code(rig: RuntimeRig, member: str) -> None:
    reply = await upstream_says(rig, {member: 403})
    assert reply["body"]["code"] == 403
    assert not {"Code", "responseCode", "errorCode"} & reply["body"].keys()


async def test_row_6_runtimes_of_dialect_a_get_desc_as_well_and_domains_do_not(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    for reply in (
        await ana.ask("read", ALLOCATION),
        await ana.ask("create", ALLOCATION, {"value": {"number": 0}}),
        await ana.ask("read", f"hyperty://{DOMAIN}/nobody"),
    ):
        assert reply["body"]["desc"] == reply["body"]["description"]
    ask = a_message("read", f"runtime://{FOREIGN}/mn/sm", SM, id_=1)
    rig.bus.from_links.take(FOREIGN, [parsed(ask)])
    await ana.allocated()  # this reply is durable, so the other one is as well
    (reply,) = rig.domains.take()
    assert "description" in reply["body"]
    assert "desc" not in reply["body"]


async def test_row_26_a_reply_comes_from_the_text_that_was_asked(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    for to in (SM, f"DOMAIN://msg-node.{DOMAIN.upper()}./sm/", FOREIGN_SM):
        reply = await ana.ask("unsubscribe", to, {"resources": [f"{ROOM}/changes"]})
        assert (reply["from"], reply["to"], reply["body"]["code"]) == (to, ana.address, 200)


async def test_row_27_of_two_recipients_the_last_counts_and_a_missing_sender_is_notified(rig: RuntimeRig) -> None:
    ana, bo, cy = [await rig.opened(name) for name in ("ana", "bo", "cy")]
    twice = f'{{"id":1,"type":"create","from":"{ana.address}","to":"{bo.address}","to":"{cy.address}"}}'
    await ana.say_raw(twice.encode())
    await ana.heard()
    assert await bo.heard() == []
    (raw,) = cy.websocket.receive(await cy.wire.read())
    assert bytes(raw).count(b'"to"') == 1  # so that one that reads the first agrees with us
    assert rig.counters["repeated members"] == 1
    await ana.say({"id": 2, "type": "create", "to": bo.address})
    notice = await ana.next()
    assert (notice["id"], notice["from"], notice["to"]) == (2, "mn:/validator", ana.address)
    assert (notice["body"]["code"], notice["body"]["reason"], notice["body"]["value"]) == (
        400,
        "bad-header",
        {"member": "from"},
    )


async def test_row_28_replies_of_another_component_pass_as_they_are(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("execute", ana.address, f"{bo.address}/identity-gui", {"method": "x"}, id_=3))
    await ana.heard()
    (asked,) = await bo.heard()
    reply = a_message("response", f"{bo.address}/idm", asked["from"], {"code": 200}, id_=3)
    await bo.say(reply)
    assert await ana.next() == reply


async def test_row_70_a_missing_body_stays_missing(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    event = a_message("event", ana.address, bo.address)
    await ana.say(event, {**event, "body": None})
    await ana.heard()
    assert await bo.heard() == [event, event]
    assert (await ana.ask("create", ALLOCATION))["body"]["code"] == 200


async def test_row_71_a_plain_word_is_a_sender_here_and_crosses_no_border(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("event", "publisher", bo.address))
    await ana.heard()
    assert [one["from"] for one in await bo.heard()] == ["publisher"]
    pair = Pair()
    message = parsed(a_message("create", "publisher", "hyperty://b.example/h"))
    assert pair.to_b.send(message) == Refusal(Code.SPOOFED_SOURCE)
    pair.to_a.inbound([(1, message.raw)], "5" * 32)
    assert pair.b.delivered == []
