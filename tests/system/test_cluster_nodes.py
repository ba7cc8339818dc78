"""Two nodes of one domain, with names of their own, as real processes over a real engine."""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack

import trio

from msg_node.settings.load import load_settings
from tests.support.runtime_rig import SM, Json, Runtime, a_message, code_and_reason
from tests.system.one_node import Process
from tests.system.pair import AGENT, Pair
from tests.system.wandering import answer_all
from trapezoid.check_cluster import cluster_members

PATIENCE_SECONDS = 60
MESSAGES = 100
LEASE_SECONDS = 5
MODULE = "0" * 64
REGISTRY = "domain://registry.alpha.example"


async def next_of(runtime: Runtime, type_: str) -> Json:
    while (message := await runtime.next()).get("type") != type_:
        pass
    return message


async def until_reached(asker: Runtime, target: str) -> None:
    """Wait until nodes that have just started know each other."""
    with trio.fail_after(PATIENCE_SECONDS):
        while (await asker.ask("ping", target))["body"]["code"] == 503:  # noqa: ASYNC110  another process decides
            await trio.sleep(0.1)


async def in_both_directions(ana: Runtime, bo: Runtime, to_ana: str, to_bo: str) -> None:
    for asker, answerer, source, target in ((ana, bo, to_ana, to_bo), (bo, ana, to_bo, to_ana)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_all, answerer)
            await until_reached(asker, target)
            await asker.say(*(a_message("read", source, target, {"n": one}, id_=f"m{one}") for one in range(MESSAGES)))
            replies = [await next_of(asker, "response") for _ in range(MESSAGES)]
            assert [(one["id"], one["body"]["value"]) for one in replies] == [(f"m{n}", n) for n in range(MESSAGES)]
            nursery.cancel_scope.cancel()


async def came_back(lost: Runtime, process: Process) -> Runtime:
    """Bring a session back, as soon as its node is known to be dead or has answered."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            runtime, code = await process.returned(lost)
            if code == 200:
                return runtime
            assert code == 503
            await trio.sleep(0.1)


async def until_restricted(pair: Pair, name: str, subjects: list[str]) -> None:
    """Wait until exactly these are forbidden at a node."""
    with trio.fail_after(PATIENCE_SECONDS):
        while [one["subject"] for one in (await pair.asked(name, "restrictions"))["rows"]] != subjects:  # noqa: ASYNC110
            await trio.sleep(0.05)


async def registry_has_what_is_at(bo: Runtime, *, asked_at: Runtime) -> None:
    hyperty = await bo.allocated("hyperty")
    entry = {"user": "user://alpha.example/bo", "url": hyperty, "descriptor": "x", "expires": 3600}
    entry |= {"dataSchemes": ["comm"], "resources": ["chat"], "runtime": bo.address}
    assert (await bo.ask("create", REGISTRY, {"value": entry}))["body"]["code"] == 200
    assert set((await asked_at.ask("read", REGISTRY, {"resource": entry["user"]}))["body"]["value"]) == {hyperty}


async def has_parked(agent: Runtime, request_id: str) -> None:
    """Claim the address for which a node that is dead has parked an action: it comes."""
    with trio.fail_after(LEASE_SECONDS + PATIENCE_SECONDS):
        await agent.say(a_message("subscribe", agent.address, SM, {"resources": [AGENT]}, id_=6))
        assert (await next_of(agent, "execute"))["body"]["requestId"] == request_id


async def restrictions_count_everywhere(pair: Pair, two: Process) -> None:
    spam = await two.opened("spam")
    await pair.asked("n1", "kick", runtime=spam.address, ban="1h", reason="spam")
    assert await spam.close_code() == 4403
    assert code_and_reason(await (await two.runtime()).open("spam")) == (403, "runtime-barred")
    await pair.asked("n2", "peer block", domain="rogue.example")
    await until_restricted(pair, "n1", ["rogue.example", spam.address])
    await pair.asked("n2", "stub forbid", module=MODULE, reason="an advisory")
    await until_restricted(pair, "n1", ["rogue.example", spam.address, MODULE])
    await pair.asked("n1", "stub allow", module=MODULE)
    await pair.asked("n1", "unban", runtime=spam.address)
    await until_restricted(pair, "n2", ["rogue.example"])


async def figures_are_shown_everywhere(pair: Pair) -> None:
    """Each node shows what the other one has, and the list has it from the engine."""
    shown = [f'trapezoid_cluster_live_sessions{{node="{name}"}} 1' for name in ("n1", "n2")]
    with trio.fail_after(PATIENCE_SECONDS):
        for name in ("n1", "n2"):
            while not set(shown) <= set((await pair.asked(name, "metrics"))["text"].splitlines()):  # noqa: ASYNC110
                await trio.sleep(0.1)
    metrics = (await pair.asked("n1", "metrics"))["text"]
    assert 'trapezoid_cluster_connected{node="n2"} 1\n' in metrics
    rows = await trio.to_thread.run_sync(cluster_members, load_settings(pair.config_of("n1")))
    assert {row["node"]: (row["state"], row["live_sessions"]) for row in rows} == {
        "n1": ("running", 1),
        "n2": ("running", 1),
    }


async def test_two_nodes_are_one_domain_and_outlive_each_other(pair: Pair) -> None:
    """One laboratory for all of it: to start a node costs more than what it does here."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(pair.node("n1"))
        two = await stack.enter_async_context(pair.node("n2"))
        ana, bo = await one.opened("ana"), await two.opened("bo")
        to_ana, to_bo, thing = await ana.allocated(), await bo.allocated(), await bo.allocated("comm")
        await in_both_directions(ana, bo, to_ana, to_bo)

        # An object that is observed at another node.
        assert (await ana.subscribed(f"{thing}/changes"))["body"]["code"] == 200
        await ana.say(a_message("message", to_ana, to_bo, {"n": 1}))  # behind what n1 says to n2 about it
        await next_of(bo, "message")
        await bo.say(*(a_message("update", thing, f"{thing}/changes", {"value": one}) for one in range(MESSAGES)))
        assert [(await next_of(ana, "update"))["body"]["value"] for _ in range(MESSAGES)] == list(range(MESSAGES))

        await registry_has_what_is_at(bo, asked_at=ana)

        # The same runtime is not live twice.
        twice = await one.runtime()
        assert code_and_reason(await twice.open("bo")) == (409, "address-taken")

        await restrictions_count_everywhere(pair, two)
        await figures_are_shown_everywhere(pair)

        # A node dies: a stable answer at once, and its sessions go on at the other one, and what it has parked.
        parked = await bo.ask("execute", f"{AGENT}/lamp-1/actions/switch", {"class": "action", "method": "x"})
        assert (parked["body"]["code"], parked["body"]["status"]) == (202, "pending")
        two.kill()
        with trio.fail_after(PATIENCE_SECONDS):
            assert code_and_reason(await ana.ask("read", to_bo, from_=to_ana)) == (503, "not-connected")
        await has_parked(ana, parked["body"]["requestId"])
        bo = await came_back(bo, one)
        await in_both_directions(ana, bo, to_ana, to_bo)
        await bo.say(a_message("update", thing, f"{thing}/changes", {"value": "moved"}))
        assert (await next_of(ana, "update"))["body"]["value"] == "moved"

        # It starts again, and has lost what the other one has now.
        two = await stack.enter_async_context(pair.node("n2"))
        await until_restricted(pair, "n2", ["rogue.example"])
        eve = await two.opened("eve")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_all, bo)
            await until_reached(eve, to_bo)
            nursery.cancel_scope.cancel()
        stale = await two.runtime()
        assert code_and_reason(await stale.open("bo")) == (409, "address-taken")

        # A runtime that comes back at another node takes its live session along.
        moved = await came_back(bo, two)
        assert await bo.close_code() == 4001
        await in_both_directions(ana, moved, to_ana, to_bo)

        # A node that leaves in order names the other one, and is not waited for.
        two.child.send_signal(signal.SIGTERM)
        notice = (await next_of(moved, "update"))["body"]
        assert (notice["value"], notice["resource"]) == ("draining", f"ws://127.0.0.1:{pair.listening['n1']}/ws")
        with trio.fail_after(PATIENCE_SECONDS):
            await two.child.wait()
        await in_both_directions(ana, await came_back(moved, one), to_ana, to_bo)
