"""The time of day of one node of two is set, by more than the grace of its sessions, while runtimes of both contend.

Real processes over a real engine. Claims and messages are judged by the checker in `interop/lab/core/operations.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
import trio

from interop.lab.core.operations import unexplained
from interop.lab.shifted_clock import set_clock
from tests.support.contenders import THINGS, Contender, History
from tests.support.postgres import PASSWORD, Postgres
from tests.support.runtime_rig import SM, Json, Runtime, a_message
from tests.system.one_node import Process
from tests.system.pair import Pair

STEP_SECONDS = 7_200.0
"""Twice the grace that sessions of these nodes have."""
COURSE = (STEP_SECONDS, -STEP_SECONDS, 0.0)
"""How far the clock is ahead, one setting after the other."""
RUN_SECONDS = 280.0
PATIENCE_SECONDS = 60.0
BEATS = 3
"""Renewals of a lease, one a second: what is looked at each second has been looked at twice meanwhile."""
NAMES = ("ana", "bo", "eve")


@dataclass
class Cluster:
    """Two nodes; the clock of the first one is set."""

    engine: Postgres
    database: str
    one: Process
    two: Process

    def names(self) -> dict[str, tuple[int, int, bool]]:
        """Epoch, number of renewals, and whether it is held, of each name."""
        rows = self.engine.rows("SELECT name, epoch, beat, is_held FROM trapezoid_node", self.database)
        return {name: (epoch, beat, is_held) for name, epoch, beat, is_held in rows}

    async def go_on(self) -> None:
        """Wait until both have renewed their leases some times more."""
        least = {name: beat + BEATS for name, (_, beat, _) in self.names().items()}
        with trio.fail_after(PATIENCE_SECONDS):
            while any(self.names()[name][1] < beat for name, beat in least.items()):  # noqa: ASYNC110
                await trio.sleep(0.1)


@dataclass
class Left:
    """What is left behind before the clock is set: a session whose runtime is away, and actions for an agent."""

    thing: str
    parked: list[str]
    away: Runtime
    address: str


async def leave(cluster: Cluster, senders: list[Runtime], name: str) -> Left:
    """Park an action at each node, and have a runtime of the first node go away."""
    thing = f"thing://alpha.example/{name}"
    parked = []
    for sender in senders:
        answer = await sender.ask("execute", f"{thing}/bell/actions/ring", {"class": "action", "method": "ring"})
        assert (answer["body"]["code"], answer["body"]["status"]) == (202, "pending")
        parked.append(answer["body"]["requestId"])
    before = (await cluster.one.status())["sessions"]
    away = await cluster.one.opened(name)
    address = await away.allocated()
    await away.wire.cut()
    with trio.fail_after(PATIENCE_SECONDS):
        while (await cluster.one.status())["sessions"] > before:  # noqa: ASYNC110  until its node has noticed
            await trio.sleep(0.02)
    return Left(thing, parked, away, address)


async def take_up(cluster: Cluster, left: Left, sender: Runtime) -> None:
    """Nothing of what was left is lost: the runtime has its session and address, the agent its actions, once."""
    back = await brought_back(cluster.one, left.away)
    await sender.say(a_message("message", sender.address, left.address, {"to": left.address}))
    with trio.fail_after(PATIENCE_SECONDS):
        while (await back.next()).get("body") != {"to": left.address}:
            pass
        await back.say(a_message("subscribe", back.address, SM, {"resources": [left.thing]}, id_="subscribe"))
        rung: list[str] = []
        while len(rung) < len(left.parked):
            rung += await ring_of(back, await back.next())
    assert sorted(rung) == sorted(left.parked)
    rung = [id_ for message in await back.heard() for id_ in await ring_of(back, message)]
    assert rung == []


async def brought_back(node: Process, away: Runtime) -> Runtime:
    """Bring a session back; a node whose engine is slow for a moment, on a busy machine, may ask for another try."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            back, code = await node.returned(away)
            if code == 200:
                return back
            assert code == 503
            await trio.sleep(0.1)


async def ring_of(agent: Runtime, message: Json) -> list[str]:
    """Answer an action; its request id."""
    if message["type"] != "execute":
        return []
    await agent.say(a_message("response", message["to"], message["from"], {"code": 200}, id_=message["id"]))
    return [message["body"]["requestId"]]


async def until_served(history: History) -> None:
    """Wait until each runtime has had each address from now on."""
    since, wanted = len(history.operations), set(product(NAMES, THINGS))
    while wanted:
        await history.wait(1)
        granted = [step for step in history.operations[since:] if (step.kind, step.result) == ("claim", "ok")]
        wanted -= {(step.runtime, step.object) for step in granted}


async def never_lost(lost: Runtime) -> Runtime:
    """No connection ends because a clock is set."""
    raise AssertionError(f"{lost.address} has lost its connection")


async def until_all_was_seen(history: History) -> None:
    """Go on until each runtime has had what it claimed and been refused it, has let it go, and has heard others.

    On a busy machine they may follow each other so that nobody is refused for a while: then there is nothing to judge.
    """
    wanted = {
        (name, *seen)
        for name, seen in product(NAMES, (("claim", "ok"), ("claim", "refused"), ("release", "ok"), ("hear", "ok")))
    }
    while wanted.difference(history.counts()):
        await history.wait(1)


def judge(history: History) -> None:
    contradictions = unexplained(history.operations)
    if contradictions:
        pytest.fail("\n".join(str(step) for step in contradictions[0]), pytrace=False)


@pytest.mark.long
async def test_a_clock_that_is_set_by_hours_under_traffic_loses_no_session_address_action_or_lease(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    database, clock, history = engine.new_database(), tmp_path / "clock", History()
    pair = Pair(tmp_path, engine, database)
    set_clock(clock, 0.0)
    contenders = [Contender(name, history) for name in NAMES]
    async with (
        pair.node("n1", seconds=RUN_SECONDS, clock=clock) as one,
        pair.node("n2", seconds=RUN_SECONDS) as two,
        trio.open_nursery() as nursery,
    ):
        cluster = Cluster(engine, database, one, two)
        for contender, process in zip(contenders, (one, two, one), strict=True):
            await contender.open(process)
        senders = [await process.opened(f"sender-{number}") for number, process in enumerate((one, two))]
        for contender in contenders:
            nursery.start_soon(contender.listen, never_lost)
            nursery.start_soon(contender.contend, [other for other in contenders if other is not contender])
        await until_served(history)
        for number, ahead_seconds in enumerate(COURSE):
            left = await leave(cluster, senders, f"away-{number}")
            set_clock(clock, ahead_seconds)
            await cluster.go_on()
            await until_served(history)
            await take_up(cluster, left, senders[1])
        await until_all_was_seen(history)
        assert {name: (epoch, is_held) for name, (epoch, _, is_held) in cluster.names().items()} == {
            "n1": (1, True),
            "n2": (1, True),
        }
        nursery.cancel_scope.cancel()
    judge(history)
