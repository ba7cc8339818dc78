"""Workers and nodes die, or stop, amid traffic: nothing is lost, doubled or out of order, all is reported."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import trio

from interop.lab.spool import read_records
from interop.runtime_client import Answer
from interop.talker import Talker
from protofly.errors import TransportError
from protofly.records import StubEvent

from .systems import System, running_system, wait_until

EVENTS = 300
HURT_AFTER = 60
REQUESTS = 60
REQUEST_EVERY = 20


async def speak(talker: Talker, to: str, *, last: int = EVENTS) -> None:
    """Numbered messages; every twentieth is a request, so that less is under way than may wait without a carrier."""
    for number in range(1, last + 1):
        if number % REQUEST_EVERY:
            await talker.post(to, number)
        else:
            answer = await talker.ask(to, number)
            assert answer.is_ok, answer


def killed(system: System) -> list[tuple[str | None, int | None]]:
    """What a.example wrote down of workers that were ended from outside: code, and who had started before."""
    events = read_records(system.a.folder.data / "records", StubEvent)
    pids = [one.pid for one in events if one.event == "started"]
    return [(one.code, pids[0]) for one in events if one.event == "killed"]


async def hurt_worker_amid_traffic(system: System, signal_number: int) -> tuple[int, int]:
    """Both sides speak, the worker of a.example is hurt; returns its process id and that of its successor."""
    anna, bruno = await system.couple()
    carla = await system.talker(system.a, "carla")
    worker = (await system.link(system.a)).worker_pid
    assert worker

    async def hurt() -> None:
        await bruno.hear_numbers(anna.hyperty, HURT_AFTER)
        os.kill(worker, signal_number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hurt)
        nursery.start_soon(speak, anna, bruno.hyperty)
        nursery.start_soon(speak, bruno, anna.hyperty)
        nursery.start_soon(speak, anna, carla.hyperty)
    expected = [0, *range(1, EVENTS + 1)]
    assert await carla.hear_numbers(anna.hyperty, EVENTS) == expected[1:]
    assert await bruno.hear_numbers(anna.hyperty, EVENTS + 1) == expected
    assert await anna.hear_numbers(bruno.hyperty, EVENTS + 1) == expected
    assert (await anna.ask(bruno.hyperty)).is_ok
    link = await system.wait_link(system.a, lambda one: one.state == "live" and one.accepted == one.sent)
    assert (link.lost, link.denied) == (0, 0)
    return worker, link.worker_pid or 0


async def test_a_killed_worker_costs_no_event_no_order_and_no_neighbour(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        old, new = await hurt_worker_amid_traffic(system, signal.SIGKILL)
        assert new != old
        await system.laboratory.stop_nodes()
        assert killed(system) == [("stub-died", old)]


async def test_a_stopped_worker_is_noticed_killed_and_replaced_without_loss(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        old, new = await hurt_worker_amid_traffic(system, signal.SIGSTOP)
        assert new != old
        with suppress(ProcessLookupError):
            os.kill(old, 0)
            raise AssertionError("the stopped worker is still there")
        await system.laboratory.stop_nodes()
        assert killed(system) == [("stub-timeout", old)]


async def ask_many(talker: Talker, to: str, answers: dict[int, Answer]) -> None:
    async def ask(number: int) -> None:
        answers[number] = await talker.ask(to, 1000 + number)

    async with trio.open_nursery() as nursery:
        for number in range(1, REQUESTS + 1):
            nursery.start_soon(ask, number)


async def test_when_b_is_killed_waiting_requests_are_delivered_or_answered_and_the_link_returns(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        answers: dict[int, Answer] = {}
        async with trio.open_nursery() as nursery:
            for number in range(1, HURT_AFTER + 1):
                await anna.post(bruno.hyperty, number)
            await bruno.hear_numbers(anna.hyperty, HURT_AFTER // 2)
            await system.kill(system.b)
            nursery.start_soon(ask_many, anna, bruno.hyperty, answers)
            await system.start(system.b)
            await bruno.open(system.nursery)
        assert sorted(answers) == list(range(1, REQUESTS + 1))
        outcomes = {(one.code, one.reason) for one in answers.values()}
        assert outcomes <= {(200, ""), (503, "not-connected")}  # the latter: B is back before its runtime is
        answer = await anna.ask(bruno.hyperty, 2000)
        assert answer.is_ok, answer
        assert (await bruno.ask(anna.hyperty)).is_ok
        # What B had handed on and not yet acknowledged comes again: first arrivals are in order. Of what came again
        # before the runtime was back, requests were refused and events counted: nobody waits for an answer to them.
        events = [one for one in dict.fromkeys(bruno.numbers_from(anna.hyperty)) if one <= HURT_AFTER]
        assert events == sorted(events)
        unheard = (await system.b.status()).counters.get("unheard", 0)
        assert HURT_AFTER + 1 - len(events) <= unheard
        for node in (system.a, system.b):
            link = await system.wait_link(node, lambda one: one.state == "live" and one.accepted == one.sent)
            assert link.lost == 0


def entry_of(talker: Talker, user: str) -> dict[str, object]:
    return {
        "url": talker.hyperty,
        "user": user,
        "descriptor": f"hyperty-catalogue://catalogue.{talker.domain}/.well-known/hyperty/Chat",
        "runtime": talker.client.runtime,
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        "status": "live",
        "expires": 600,
    }


async def register_until_the_line_breaks(talker: Talker, acknowledged: list[str]) -> None:
    """Register one address after the other; what is granted is noted."""
    with suppress(TransportError):
        for number in range(10_000):
            address = f"comm://{talker.domain}/room-{number}"
            room = {"url": address, "name": f"room-{number}", "schema": "x", "reporter": talker.hyperty}
            body = {"value": entry_of(talker, "user://a.example/anna") | room}
            answer = await talker.client.request(
                "create", f"{talker.client.runtime}/registry", f"domain://registry.{talker.domain}", body
            )
            assert answer.is_ok, answer
            acknowledged.append(address)


async def test_a_killed_node_comes_back_with_sessions_addresses_subscriptions_and_all_acknowledged_entries(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        [room] = await anna.client.at("a.example").allocate("comm", 1)
        await anna.client.at("a.example").subscribe([f"{room}/children/messages"])
        await bruno.client.at("a.example").subscribe([f"{room}/children/messages"])  # only observers write children
        await anna.client.at("a.example").register(entry_of(anna, "user://a.example/anna"))
        acknowledged: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(register_until_the_line_breaks, anna, acknowledged)
            for number in range(1, 101):
                assert (await bruno.ask(anna.hyperty, number)).is_ok

            async def noted() -> int:
                return len(acknowledged)

            await wait_until(noted, lambda count: count > 10)
            await system.kill(system.a)
        token = anna.client.token
        await system.start(system.a)
        await anna.open(system.nursery)
        assert anna.client.token == token
        assert (await bruno.ask(anna.hyperty, 101)).is_ok
        await bruno.client.notify("create", bruno.hyperty, f"{room}/children/messages", {"value": 102})
        assert await anna.hear_numbers(bruno.hyperty, 103) == list(range(103))
        found = await bruno.client.at("a.example").look_up(bruno.hyperty, "user://a.example/anna")
        assert isinstance(found.value, dict)
        assert anna.hyperty in found.value
        for address in acknowledged:
            kept = await bruno.client.request(
                "read", bruno.hyperty, "domain://registry.a.example", {"resource": address}
            )
            assert kept.is_ok, (address, kept)
        assert (await system.wait_link(system.a, lambda one: one.state == "live")).lost == 0
