"""`peer ping` and `peer connect`: a message to the node of another domain and its answer, with a link or without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from federation.core.round_trip import WAIT_SECONDS
from federation.links.link_context import Refusal
from msg_node.admin.administration import Actor
from msg_node.admin.core.operations import AdminRequest
from msg_node.bus.own_requests import ROUND_TRIPS, RoundTrips
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.message import Message
from tests.support.admin_rig import AdminRig, admin_rig, ask_admin
from tests.support.runtime_rig import DOMAIN, FOREIGN, NODE, NearDomains
from tests.support.services import until

OPS = Actor("ops", "socket", "user 0")
ASKS = AdminRequest(operation="peer ping", arguments={"domain": FOREIGN})
CONNECTS = AdminRequest(operation="peer connect", arguments={"domain": FOREIGN})
NODE_OF_THEIRS = f"domain://msg-node.{FOREIGN}"


class Pinged:
    """One `peer ping` under way, and what it sent."""

    def __init__(self, at: AdminRig, asks: AdminRequest = ASKS) -> None:
        self.at = at
        self.asks = asks
        self.results: list[dict[str, Any]] = []
        self.errors: list[PeerError] = []

    async def run(self) -> None:
        try:
            result = await self.at.administration.perform(self.asks, OPS)
            assert isinstance(result, dict)
            self.results.append(result)
        except PeerError as exc:
            self.errors.append(exc)

    def sent(self) -> Message:
        [(domain, message)] = self.at.rig.domains.sent
        self.at.rig.domains.sent.clear()
        assert domain == FOREIGN
        return message

    def answer(self, asked: Message, body: Mapping[str, object], *, from_domain: str = FOREIGN) -> None:
        message = {"id": json.loads(asked.id or b"0"), "type": "response", "from": asked.to, "to": asked.from_}
        (answer,) = codec.decode(json.dumps({**message, "body": body}).encode())
        self.at.rig.bus.from_links.take(from_domain, [answer])


async def begun(at: AdminRig, nursery: trio.Nursery, asks: AdminRequest = ASKS) -> tuple[Pinged, Message]:
    pinged = Pinged(at, asks)
    nursery.start_soon(pinged.run)
    await until(lambda: bool(at.rig.domains.sent))  # a change is recorded first, by a thread
    return pinged, pinged.sent()


async def test_the_answer_of_the_other_node_is_shown_with_its_time(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        async with trio.open_nursery() as nursery:
            pinged, asked = await begun(at, nursery)
            assert (asked.type, asked.from_, asked.to) == ("read", NODE, NODE_OF_THEIRS)
            pinged.answer(asked, {"code": 100})  # it is under way
            await trio.testing.wait_all_tasks_blocked()
            assert pinged.results == []
            pinged.answer(asked, {"code": 200, "value": {"version": "1"}})
        [result] = pinged.results
        assert result.pop("milliseconds") > 0
        assert result == {"domain": FOREIGN, "code": 200, "reason": ""}


async def test_a_refusal_of_theirs_is_a_round_trip_as_well(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        async with trio.open_nursery() as nursery:
            pinged, asked = await begun(at, nursery)
            pinged.answer(asked, {"code": 403, "reason": "policy", "source": f"runtime://{FOREIGN}/mn"})
        assert [(one["code"], one["reason"]) for one in pinged.results] == [(403, "policy")]


async def test_an_answer_of_a_third_domain_or_of_our_own_link_is_none_of_theirs(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        async with trio.open_nursery() as nursery:
            pinged, asked = await begun(at, nursery)
            pinged.answer(asked, {"code": 200}, from_domain="c.example")
            await trio.testing.wait_all_tasks_blocked()
            assert pinged.results == []
            at.rig.bus.refusals.answer(codec.refusal(asked, Code.GATEWAY_TIMEOUT, source=NODE))
        assert pinged.results == []
        [error] = pinged.errors
        assert (error.code.word, "our own node" in error.detail) == ("timeout", True)


async def test_what_our_rules_keep_back_and_a_link_that_is_down_say_so(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        at.rig.domains.refusals[FOREIGN] = Refusal(Code.POLICY, {"rule": "s/no"})
        with pytest.raises(PeerError, match="s/no") as kept:
            await at.administration.perform(ASKS, OPS)
        assert kept.value.code is Code.POLICY
        at.rig.domains.away.add(FOREIGN)
        with pytest.raises(PeerError, match="no link") as down:
            await at.administration.perform(ASKS, OPS)
        assert down.value.code is Code.NOT_CONNECTED


async def test_connecting_sends_the_message_where_no_link_is_up_and_is_recorded(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        at.rig.domains.away.add(FOREIGN)
        async with trio.open_nursery() as nursery:
            pinged, asked = await begun(at, nursery, CONNECTS)
            assert (asked.type, asked.to) == ("read", NODE_OF_THEIRS)
            assert [(one.operation, one.after) for one in at.events] == [("peer connect", '{"link":"connecting"}')]
            pinged.answer(asked, {"code": 200})
        [result] = pinged.results
        assert (result["before"], result["answer"]["code"]) == ({"link": "none"}, 200)


async def test_connecting_to_a_link_that_is_up_asks_over_it(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        async with trio.open_nursery() as nursery:
            pinged, asked = await begun(at, nursery, CONNECTS)
            pinged.answer(asked, {"code": 200})
        assert [one["after"] for one in pinged.results] == [{"link": "live"}]


async def test_a_dry_run_of_connecting_sends_and_records_nothing(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        at.rig.domains.away.add(FOREIGN)
        result = await at.administration.perform(msgspec.structs.replace(CONNECTS, dry_run=True), OPS)
        assert isinstance(result, dict)
        assert (result["after"], "answer" in result) == ({"link": "connecting"}, False)
        assert (at.rig.domains.sent, at.events) == ([], [])


@pytest.mark.parametrize("dry_run", [True, False])
async def test_what_is_blocked_or_ours_is_not_connected_to(tmp_path: Path, dry_run: bool) -> None:
    async with admin_rig(tmp_path) as at:
        at.rig.gate.cut_off([FOREIGN])
        with pytest.raises(PeerError, match="our gate `peer`") as caught:
            await at.administration.perform(msgspec.structs.replace(CONNECTS, dry_run=dry_run), OPS)
        assert caught.value.code is Code.DOMAIN_BLOCKED
        ours = AdminRequest(operation="peer connect", arguments={"domain": DOMAIN}, dry_run=dry_run)
        with pytest.raises(PeerError, match="our own domain"):
            await at.administration.perform(ours, OPS)
        assert at.rig.domains.sent == []
        assert [one.code for one in at.events] == ["domain-blocked", "bad-body"]


async def test_connecting_by_message_of_an_operator_is_answered_when_the_other_node_has(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await ask_admin(ops, "peer connect", arguments={"domain": FOREIGN}))

        async with trio.open_nursery() as nursery:
            pinged = Pinged(at)
            nursery.start_soon(ask)
            await until(lambda: bool(at.rig.domains.sent))
            pinged.answer(pinged.sent(), {"code": 200})
        assert [one["value"]["answer"]["code"] for one in answers] == [200]


async def test_who_never_answers_is_waited_for_no_longer_than_said_and_few_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    codes: list[str] = []
    trips = RoundTrips(NODE, SimpleNamespace(links=NearDomains()))

    async def make() -> None:
        with pytest.raises(PeerError) as caught:
            await trips.make(FOREIGN)
        codes.append(caught.value.code.word)

    began = autojump_clock.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(ROUND_TRIPS + 1):
            nursery.start_soon(make)
    assert sorted(codes) == ["overload", *["timeout"] * ROUND_TRIPS]
    assert autojump_clock.current_time() - began == pytest.approx(WAIT_SECONDS)
