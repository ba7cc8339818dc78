"""Services that answer later, over real sockets and a real state file; the connector is a function of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from msg_node.bus import inquiries
from msg_node.kernel.service import Answer, ConnectorName, Inquiry, Lane, Service, ServiceRequest, inquire
from msg_node.node_state import NodeState
from protofly import limits
from protofly.errors import Code, HostError, PeerError, TransportError
from tests.support.runtime_rig import (
    FOREIGN,
    SESSION,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
    runtime_rig,
)

ORACLE = "domain://qos.alpha.example"


class OracleQuestion(msgspec.Struct, frozen=True):
    text: str


ORACLE_NAME: ConnectorName[OracleQuestion, str] = ConnectorName("oracle")
Ask = Callable[[OracleQuestion], Awaitable[str]]


class OracleService:
    """Asks what a message says; `method` says what comes of the reply."""

    def __init__(self, seconds: float, state: NodeState) -> None:
        self._seconds = seconds
        self._state = state

    def __call__(self, request: ServiceRequest) -> Inquiry:
        method = str(request.members.get("method", ""))
        if method == "claim":
            self._claim(request, "comm://alpha.example/before")
        return inquire(
            ORACLE_NAME,
            OracleQuestion(str(request.members["value"])),
            partial(self._conclude, method, request),
            failed=self._failed if method == "comforted" else None,
            seconds=self._seconds,
            lane=Lane(
                f"{request.caller.number}" if method.startswith("in order") else "", request.message.type == "read"
            ),
        )

    def _conclude(self, method: str, request: ServiceRequest, reply: str, now: float) -> Answer | Inquiry:
        assert now > 0
        if method == "again":
            return inquire(ORACLE_NAME, OracleQuestion(reply), partial(self._conclude, "", request))
        if method == "in order, twice":
            lane = Lane(f"{request.caller.number}")
            return inquire(ORACLE_NAME, OracleQuestion(reply), partial(self._conclude, "", request), lane=lane)
        if method == "for ever":
            return inquire(ORACLE_NAME, OracleQuestion(reply), partial(self._conclude, method, request))
        if method == "refuse":
            raise PeerError(Code.NOT_OWNER, reply)
        if method == "break":
            raise RuntimeError(reply)
        if method == "claim":
            self._claim(request, "comm://alpha.example/after")
        return Answer(value=reply)

    def _claim(self, request: ServiceRequest, address: str) -> None:
        self._state.owners.claim(request.caller.number, address)

    def _failed(self, error: HostError, _now: float) -> Answer:
        return Answer(value=f"nothing but {error.code.word}")


@asynccontextmanager
async def oracle_rig(folder: Path, ask: Ask | None, *, seconds: float = 5.0) -> AsyncIterator[RuntimeRig]:
    def services(state: NodeState) -> Mapping[str, Service]:
        return {ORACLE: OracleService(seconds, state)}

    async with runtime_rig(folder, services_at=services) as rig:
        if ask is not None:
            rig.bus.inquiries.connect(ORACLE_NAME, ask)
        yield rig


async def echoed(question: OracleQuestion) -> str:
    await trio.lowlevel.checkpoint()
    return question.text + "!"


class Gatekeeper:
    """Holds every question until `open`."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = trio.Event()

    async def __call__(self, question: OracleQuestion) -> str:
        self.asked += 1
        await self.open.wait()
        return question.text

    async def until_asked(self, number: int) -> None:
        with trio.fail_after(10):
            while self.asked < number:
                await trio.lowlevel.checkpoint()


def question(asker: Runtime, text: str, id_: object) -> Json:
    return a_message("read", asker.address, ORACLE, {"value": text}, id_=id_)


def under_way(rig: RuntimeRig) -> int:
    return rig.bus.inquiries.statistics().get("oracle under way", 0)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("", (200, "")),
        ("again", (200, "")),
        ("for ever", (500, "internal")),
        ("refuse", (403, "not-owner")),
    ],
)
async def test_the_conclusion_of_a_reply_is_the_answer(tmp_path: Path, method: str, expected: tuple[int, str]) -> None:
    async with oracle_rig(tmp_path, echoed) as rig:
        ana = await rig.opened("ana")
        reply = await ana.ask("read", ORACLE, {"value": "x", "method": method})
        assert code_and_reason(reply) == expected
        assert (reply["from"], reply["to"]) == (ORACLE, ana.address)
        if expected[0] == 200:
            assert reply["body"]["value"] == ("x!!" if method == "again" else "x!")
        assert under_way(rig) == 0


async def test_a_session_goes_on_while_a_connector_takes_its_time(tmp_path: Path) -> None:
    keeper = Gatekeeper()
    async with oracle_rig(tmp_path, keeper) as rig:
        ana, bo = await rig.opened("ana"), await rig.opened("bo")
        await ana.say(question(ana, "late", 1), a_message("event", ana.address, bo.address, {"value": 2}))
        assert await ana.heard() == []
        assert len(await bo.heard()) == 1
        await keeper.until_asked(1)
        keeper.open.set()
        assert (await ana.next())["body"]["value"] == "late"


async def test_what_both_halves_of_a_service_change_is_durable_before_the_answer(tmp_path: Path) -> None:
    async with oracle_rig(tmp_path, echoed) as rig:
        ana = await rig.opened("ana")
        await ana.say(a_message("create", ana.address, ORACLE, {"value": "x", "method": "claim"}, id_=4))
        assert (await ana.next())["body"]["code"] == 200
        rows = rig.store.statistics()
        assert rows.waiting_rows == 0
    async with oracle_rig(tmp_path, echoed) as rig:
        sid = rig.state.sessions.by_runtime(runtime_address("ana"))
        owner = rig.state.owners.owner
        assert owner("comm://alpha.example/before") == owner("comm://alpha.example/after") == sid is not None


class Turnstile:
    """Notes who came, and lets one through at a time."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self._let = trio.Semaphore(0)

    async def __call__(self, question: OracleQuestion) -> str:
        self.came.append(question.text)
        await self._let.acquire()
        return question.text + "'"

    async def let(self) -> None:
        self._let.release()
        await trio.testing.wait_all_tasks_blocked()


async def test_inquiries_of_a_lane_keep_their_order_and_those_that_share_go_together(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with oracle_rig(tmp_path, turnstile) as rig:
        ana, bo = await rig.opened("ana"), await rig.opened("bo")

        def asked(type_: str, text: str, method: str = "in order") -> Json:
            return a_message(type_, ana.address, ORACLE, {"value": text, "method": method}, id_=text)

        await ana.say(
            asked("create", "w1", "in order, twice"),
            asked("update", "w2"),
            asked("read", "r1"),
            asked("read", "r2"),
            asked("update", "w3"),
        )
        await ana.heard()
        await trio.testing.wait_all_tasks_blocked()
        assert turnstile.came == ["w1"]
        await bo.say(a_message("create", bo.address, ORACLE, {"value": "b", "method": "in order"}, id_=1))
        await bo.heard()
        await trio.testing.wait_all_tasks_blocked()
        assert turnstile.came == ["w1", "b"]
        await turnstile.let()
        assert turnstile.came == ["w1", "b", "w1'"]
        for _ in range(2):
            await turnstile.let()
        assert turnstile.came == ["w1", "b", "w1'", "w2"]
        await turnstile.let()
        assert sorted(turnstile.came[4:]) == ["r1", "r2"]
        for _ in range(3):
            await turnstile.let()
        assert turnstile.came[6:] == ["w3"]
        replies = [(await ana.next())["id"] for _ in range(5)]
        assert (replies[:2], sorted(replies[2:4]), replies[4]) == (["w1", "w2"], ["r1", "r2"], "w3")
        assert len(rig.bus.inquiries._lanes) == 0


async def test_who_waits_too_long_for_its_turn_leaves_the_lane_to_the_next(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with oracle_rig(tmp_path, turnstile, seconds=0.05) as rig:
        ana = await rig.opened("ana")
        for id_ in range(3):
            await ana.say(a_message("create", ana.address, ORACLE, {"value": "x", "method": "in order"}, id_=id_))
        assert [code_and_reason(await ana.next()) for _ in range(3)] == [(504, "timeout")] * 3
        assert len(rig.bus.inquiries._lanes) == 0


# What goes wrong.


@pytest.mark.parametrize(
    ("error", "expected", "comforted"),
    [
        (TransportError(Code.CONNECT_FAILED, "nobody"), (504, "connect-failed"), "nothing but connect-failed"),
        (PeerError(Code.BAD_REPLY), (502, "bad-reply"), "nothing but bad-reply"),
        (RuntimeError("a defect"), (500, "internal"), "nothing but internal"),
        (ExceptionGroup("several", [ValueError(), OSError()]), (500, "internal"), "nothing but internal"),
    ],
)
async def test_an_error_of_a_connector_is_the_answer_unless_the_service_makes_another_of_it(
    tmp_path: Path,
    error: Exception,
    expected: tuple[int, str],
    comforted: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: OracleQuestion) -> str:
        await trio.lowlevel.checkpoint()
        raise error

    async with oracle_rig(tmp_path, fail) as rig:
        ana = await rig.opened("ana")
        assert code_and_reason(await ana.ask("read", ORACLE, {"value": "x"})) == expected
        assert ("connector oracle failed" in caplog.text) == (expected[0] == 500)
        assert (await ana.ask("read", ORACLE, {"value": "x", "method": "comforted"}))["body"]["value"] == comforted
        assert under_way(rig) == 0


async def test_a_conclusion_that_breaks_is_answered_and_the_node_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with oracle_rig(tmp_path, echoed) as rig:
        ana = await rig.opened("ana")
        assert code_and_reason(await ana.ask("read", ORACLE, {"value": "x", "method": "break"})) == (500, "internal")
        assert "cannot be used" in caplog.text
        assert (await ana.ask("read", ORACLE, {"value": "x"}))["body"]["value"] == "x!"


async def test_a_connector_that_takes_too_long_is_answered_for(tmp_path: Path) -> None:
    async with oracle_rig(tmp_path, Gatekeeper(), seconds=0.01) as rig:
        ana = await rig.opened("ana")
        assert code_and_reason(await ana.ask("read", ORACLE, {"value": "x"})) == (504, "timeout")
        assert under_way(rig) == 0


async def test_without_a_connector_the_service_is_off(tmp_path: Path) -> None:
    async with oracle_rig(tmp_path, None) as rig:
        ana = await rig.opened("ana")
        assert code_and_reason(await ana.ask("read", ORACLE, {"value": "x"})) == (501, "connector-off")


async def test_an_asker_who_has_gone_gets_nothing_and_the_next_session_nothing_of_it(tmp_path: Path) -> None:
    keeper = Gatekeeper()
    async with oracle_rig(tmp_path, keeper) as rig:
        ana, bo = await rig.opened("ana"), await rig.opened("bo")
        await ana.say(question(ana, "x", 1))
        await keeper.until_asked(1)
        await ana.say(a_message("close", ana.address, SESSION, id_=2))
        assert await ana.close_code() == 1000
        again = await rig.opened("ana")
        keeper.open.set()
        with trio.fail_after(10):
            while under_way(rig):
                await trio.lowlevel.checkpoint()
        assert await again.heard() == []
        assert await bo.heard() == []


async def test_an_asker_who_has_come_back_gets_the_answer_on_the_new_connection(tmp_path: Path) -> None:
    keeper = Gatekeeper()
    async with oracle_rig(tmp_path, keeper) as rig:
        ana = await rig.opened("ana")
        await ana.say(question(ana, "x", 1))
        await keeper.until_asked(1)
        await ana.wire.cut()
        await rig.until("sessions lost")
        back = await rig.runtime()
        back.address = ana.address
        await back.say(a_message("re-open", ana.session_address, SESSION, id_=2))
        assert (await back.next())["body"]["code"] == 200
        keeper.open.set()
        assert (await back.next())["body"]["value"] == "x"


async def test_another_domain_gets_its_answer_over_its_link(tmp_path: Path) -> None:
    async with oracle_rig(tmp_path, echoed) as rig:
        asker = f"runtime://{FOREIGN}/rt"
        assert rig.bus.from_links.take(FOREIGN, [parsed(a_message("read", asker, ORACLE, {"value": "x"}, id_=1))]) == [
            None
        ]
        with trio.fail_after(10):
            while not rig.domains.sent:
                await trio.lowlevel.checkpoint()
        ((domain, _),) = rig.domains.sent
        (reply,) = rig.domains.take()
        assert (domain, reply["to"], reply["body"]["value"]) == (FOREIGN, asker, "x!")


async def test_one_asker_cannot_take_what_others_need_and_too_many_are_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiries, "INQUIRIES_PER_ASKER", 3)
    monkeypatch.setattr(inquiries, "INQUIRIES_PER_CONNECTOR", 5)
    keeper = Gatekeeper()
    async with oracle_rig(tmp_path, keeper) as rig:
        ana, bo = await rig.opened("ana"), await rig.opened("bo")
        await ana.say(*(question(ana, "a", id_) for id_ in range(4)))
        assert code_and_reason(await ana.next()) == (429, "rate")
        await bo.say(*(question(bo, "b", id_) for id_ in range(3)))
        assert code_and_reason(await bo.next()) == (503, "overload")
        assert under_way(rig) == 5
        await keeper.until_asked(5)
        keeper.open.set()
        assert [(await ana.next())["body"]["code"] for _ in range(3)] == [200] * 3
        assert [(await bo.next())["body"]["code"] for _ in range(2)] == [200] * 2
        assert (await ana.ask("read", ORACLE, {"value": "again"}))["body"]["value"] == "again"


async def test_who_waits_when_the_node_stops_is_notified_before_the_connection_ends(tmp_path: Path) -> None:
    keeper = Gatekeeper()
    async with oracle_rig(tmp_path, keeper) as rig:
        ana = await rig.opened("ana")
        await ana.say(question(ana, "x", 1))
        await keeper.until_asked(1)
        rig.stop()
        assert (await ana.next())["body"]["value"] == "draining"
        assert code_and_reason(await ana.next()) == (503, "draining")
        assert await ana.close_code() == 1001
        keeper.open.set()
    assert "oracle answered" not in rig.bus.inquiries.statistics()


def test_an_inquiry_ends_before_requesters_give_up() -> None:
    assert limits.INQUIRY_SECONDS < limits.REQUEST_TTL_SECONDS
