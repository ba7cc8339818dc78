"""A request with `ttl` to a live but silent runtime of this node gets its 504; an answer after that is late.

Source: message specification, section 3, rules 3 and 4, and section 20.7.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.links.link_context import Refusal
from protofly.errors import Code
from tests.support.bindings import MakeRuntime
from tests.support.runtime_rig import (
    FOREIGN,
    SESSION,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def rig(tmp_path: Path, clock: Clock) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, returns_by_address=True) as made:
        made.clocks.steady = clock.monotonic
        yield made


def expire(rig: RuntimeRig) -> None:
    """What the sweeper does every second."""
    while rig.bus.refusals.refuse_overdue():
        pass
    rig.bus.send_queues.wake()


async def asked(ana: Runtime, bo: Runtime, body: Json | None = None, *, id_: object = 5) -> Json:
    """Ana asks Bo, who gets it and stays silent."""
    await ana.say(a_message("read", ana.address, bo.address, {"ttl": 2} if body is None else body, id_=id_))
    assert await ana.heard() == []
    (request,) = await bo.heard()
    return request


async def test_silence_of_a_runtime_here_is_answered_504_over_every_binding(
    rig: RuntimeRig, make: MakeRuntime, clock: Clock
) -> None:
    ana, bo = await make("ana"), await rig.opened("bo")
    await ana.say(a_message("read", ana.address, bo.address, {"ttl": 2}, id_=5))
    assert await ana.heard() == []
    clock.now += 1.9
    expire(rig)
    assert await ana.heard() == []
    clock.now += 0.2
    expire(rig)
    (answer,) = await ana.heard()
    assert (answer["id"], answer["from"], code_and_reason(answer)) == (5, bo.address, (504, "timeout"))
    assert len(await bo.heard()) == 1
    expire(rig)
    assert await ana.heard() == []
    assert rig.counters["timeouts"] == 1


async def test_without_a_ttl_the_asker_times_it_itself(rig: RuntimeRig, clock: Clock) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await asked(ana, bo, {})
    clock.now += 1e6
    expire(rig)
    assert await ana.heard() == []


async def test_an_answer_in_time_is_the_only_one(rig: RuntimeRig, clock: Clock) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await asked(ana, bo)
    await bo.say(a_message("response", bo.address, ana.address, {"code": 200}, id_=5))
    await bo.heard()
    clock.now += 1e6
    expire(rig)
    assert [one["body"] for one in await ana.heard()] == [{"code": 200}]


@pytest.mark.parametrize("wants_late", [False, True])
async def test_an_answer_after_the_504_is_late(rig: RuntimeRig, clock: Clock, wants_late: bool) -> None:
    ana, bo = await rig.runtime(), await rig.opened("bo")
    assert code_and_reason(await ana.open("ana", {"late": True} if wants_late else None)) == (200, "")
    await asked(ana, bo)
    clock.now += 2.1
    expire(rig)
    assert [code_and_reason(one) for one in await ana.heard()] == [(504, "timeout")]
    await bo.say(a_message("response", bo.address, ana.address, {"code": 200}, id_=5))
    assert await bo.heard() == []
    assert [one["body"] for one in await ana.heard()] == ([{"code": 200, "late": True}] if wants_late else [])
    assert rig.counters["late replies" if wants_late else "late replies kept back"] == 1


async def test_nobody_else_can_end_a_request_by_answering_in_the_name_of_the_asked(
    rig: RuntimeRig, clock: Clock
) -> None:
    ana, bo, eve = await rig.opened("ana"), await rig.opened("bo"), await rig.opened("eve")
    await asked(ana, bo)
    await eve.say(a_message("response", bo.address, ana.address, {"code": 200}, id_=5))
    await eve.heard()
    rig.bus.from_links.take(FOREIGN, [parsed(a_message("response", f"hyperty://{FOREIGN}/h", ana.address, {}, id_=5))])
    clock.now += 2.1
    expire(rig)
    assert [code_and_reason(one) for one in await ana.heard() if one["from"] == bo.address] == [(504, "timeout")]


async def test_a_request_that_was_refused_or_served_by_the_node_is_not_answered_again(
    rig: RuntimeRig, clock: Clock
) -> None:
    ana = await rig.opened("ana")
    assert code_and_reason(await ana.ask("read", "runtime://alpha.example/nobody", {"ttl": 1}))[0] == 404
    assert code_and_reason(await ana.ask("read", "domain://msg-node.alpha.example", {"ttl": 1}))[0] == 200
    await ana.say(a_message("read", ana.address, f"hyperty://{FOREIGN}/h", {"ttl": 1}, id_=7))  # its link answers
    clock.now += 1e6
    expire(rig)
    assert await ana.heard() == []


async def test_an_answer_that_our_policy_denies_is_none(rig: RuntimeRig, clock: Clock) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await asked(ana, bo)
    rig.judge_local = lambda message, _roles: Refusal(Code.POLICY) if message.type == "response" else None
    await bo.say(a_message("response", bo.address, ana.address, {"code": 200}, id_=5))
    await bo.heard()
    clock.now += 2.1
    expire(rig)
    assert [code_and_reason(one) for one in await ana.heard()] == [(504, "timeout")]


async def test_events_open_nothing(rig: RuntimeRig, clock: Clock) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await ana.allocated()
    await bo.subscribed(f"{room}/changes", f"{room}/children/m")
    await ana.say(
        a_message("update", room, f"{room}/changes", {"ttl": 1, "value": 1}, id_=1),
        a_message("create", room, f"{room}/children/m", {"ttl": 1, "value": 1}, id_=2),
        a_message("event", ana.address, bo.address, {"ttl": 1}, id_=3),
        a_message("read", ana.address, bo.address, {"ttl": 1}),
    )
    await ana.heard()
    assert len(await bo.heard()) == 4
    clock.now += 1e6
    expire(rig)
    assert await ana.heard() == []


async def test_an_asker_that_has_left_costs_nothing_and_its_successor_gets_nothing(
    rig: RuntimeRig, clock: Clock
) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await asked(ana, bo)
    await ana.say(a_message("close", ana.session_address, SESSION, id_=6))
    await ana.close_code()
    again = await rig.opened("ana")
    assert not rig.bus.refusals.requests
    clock.now += 1e6
    expire(rig)
    assert await again.heard() == []


async def test_what_a_slow_runtime_did_not_read_in_time_is_answered_once(rig: RuntimeRig, clock: Clock) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await asked(ana, bo)
    message = parsed(a_message("read", ana.address, bo.address, {"ttl": 2}, id_=5))
    rig.port_of("bo").queue.on_expired(message)
    expire(rig)
    rig.port_of("bo").queue.on_expired(message)
    clock.now += 1e6
    expire(rig)
    assert [code_and_reason(one) for one in await ana.heard()] == [(504, "timeout")]
