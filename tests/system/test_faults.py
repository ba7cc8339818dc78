"""Workers and nodes die, or stop, in the middle of traffic: nothing is lost, doubled or out of order, all is told."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import trio

from interop.runtime_client import Answer
from protofly.errors import TransportError

from .systems import System, running_system
from .talker import Talker

EVENTS = 300
HURT_AFTER = 60
REQUESTS = 60


async def speak(talker: Talker, to: str, *, first: int = 1, last: int = EVENTS) -> None:
    for number in range(first, last + 1):
        await talker.tell(to, number)


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


async def test_a_stopped_worker_is_noticed_killed_and_replaced_without_loss(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        old, new = await hurt_worker_amid_traffic(system, signal.SIGSTOP)
        assert new != old
        with suppress(ProcessLookupError):
            os.kill(old, 0)
            raise AssertionError("the stopped worker is still there")


async def ask_many(talker: Talker, to: str, answers: dict[int, Answer]) -> None:
    async def ask(number: int) -> None:
        answers[number] = await talker.ask(to, number)

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
            nursery.start_soon(speak, anna, bruno.hyperty)
            await bruno.hear_numbers(anna.hyperty, HURT_AFTER)
            await system.kill(system.b)
            nursery.start_soon(ask_many, anna, bruno.hyperty, answers)
            await system.start(system.b)
            await bruno.open(system.nursery)
        assert sorted(answers) == list(range(1, REQUESTS + 1))
        assert {(one.code, one.reason) for one in answers.values()} <= {(200, ""), (503, "not-connected"), (404, "no-route")}
        answer = await anna.ask(bruno.hyperty, 1000)
        assert answer.is_ok, answer
        assert (await bruno.ask(anna.hyperty)).is_ok
        numbers = bruno.numbers_from(anna.hyperty)
        assert len(set(numbers)) == len(numbers)
        for node in (system.a, system.b):
            link = await system.wait_link(node, lambda one: one.state == "live" and one.accepted == one.sent)
            assert link.lost == 0


async def test_a_killed_node_comes_back_with_sessions_addresses_subscriptions_and_all_acknowledged_entries(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        [room] = await anna.client.allocate("a.example", "comm", 1)
        await anna.client.subscribe("a.example", [f"{room}/children/messages"])
        acknowledged: list[str] = []

        async def register(number: int) -> None:
    async with running_system(tmp_path) as system:
            url = f"hyperty://a.example/extra-{number}"
            entry = {"url": anna.hyperty, "user": f"user://a.example/extra-{number}", "descriptor": "x", "status": "live"}
            entry |= {"runtime": anna.client.runtime, "resources": ["chat"], "dataSchemes": ["comm"], "expires": 600}
            with suppress(TransportError):
                answer = await anna.client.register("a.example", {**entry, "url": url})
                if answer.is_ok:
                    acknowledged.append(str(entry["user"]))

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(register, number)
            await anna.client.register(
                "a.example",
                {
                    "url": anna.hyperty,
                    "user": "user://a.example/anna",
                    "descriptor": "hyperty-catalogue://catalogue.a.example/.well-known/hyperty/Chat",
                    "runtime": anna.client.runtime,
                    "resources": ["chat"],
                    "dataSchemes": ["comm"],
                    "status": "live",
                    "expires": 600,
                },
            )
            await system.kill(system.a)
        token = anna.client.token
        await system.start(system.a)
        await anna.open(system.nursery)
        assert anna.client.token == token
        answer = await bruno.ask(anna.hyperty, 7)
        assert answer.is_ok, answer
        await bruno.client.notify("create", bruno.hyperty, f"{room}/children/messages", {"value": 8})
        assert (await anna.hear_numbers(bruno.hyperty, 3))[-2:] == [7, 8]
        for user in ["user://a.example/anna", *acknowledged]:
            found = await bruno.client.look_up(bruno.hyperty, "a.example", user)
            assert isinstance(found.value, dict), user
            assert found.value, user
        assert (await system.wait_link(system.a, lambda one: one.state == "live")).lost == 0
