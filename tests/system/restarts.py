"""Nodes of a domain that are restarted or killed one after the other, while runtimes that go from node to node talk.

    python -m tests.system.restarts --kills 50 --rate 2000

kills a node at so many random moments under so many messages a second, on a real engine; exit status 0 when nothing
acknowledged was lost, nothing came twice or out of order, and each address is still its owner's. Besides, a runtime at
each node contends for addresses with the others, which the checker in `interop/lab/core/operations.py` judges, and
actions go to agents that wander with their nodes, of which each that was acknowledged has to end once.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import trio

from tests.delivery.killed_node import Ledger
from tests.support.contenders import History
from tests.support.postgres import PASSWORD, Postgres, running_postgres
from tests.support.runtime_rig import ALLOCATION, Json, a_message
from tests.system.contention import ContradictionError, contention, until_claimed
from tests.system.errands import Errands
from tests.system.wandering import PATIENCE_SECONDS, Domain, Nodes, Wanderer, until_reached

NAMES = ("n1", "n2", "n3")
SILENCE_SECONDS = 2.0
CHECKED_AT_ONCE = 200
"""Fewer than a runtime may leave unread."""
CHECK_SECONDS = 15.0
FLOOD_SECONDS = 0.02
"""Between two bursts of a flood."""


class Pairing:
    """Requests of one runtime to another one, ten at a time, and what both saw of them."""

    def __init__(self, asker: Wanderer, answerer: Wanderer) -> None:
        self._asker = asker
        self._answerer = answerer
        self.acknowledged: list[int] = []
        self.seen: list[int] = []
        self.events: list[int] = []
        self.allocated: list[str] = []
        self.is_over = False
        self._unanswered: set[str] = set()

    async def answer(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            message = await self._answerer.next()
            if message["type"] == "read":
                number = message["body"]["n"]
                self.seen.append(number)
                reply = a_message("response", message["to"], message["from"], {"code": 200}, id_=message["id"])
                await self._answerer.say(reply)
            elif message["type"] == "message":
                self.events.append(message["body"]["event"])

    async def flood(self, rate: float) -> None:
        """Send so many events a second, which nobody acknowledges; fewer when nodes take no more."""
        sent, began = 0, trio.current_time()
        while True:
            wanted = int((trio.current_time() - began) * rate)
            asker, to = self._asker, self._answerer.address
            await asker.say(*(a_message("message", asker.address, to, {"event": n}) for n in range(sent, wanted)))
            sent = wanted
            await trio.sleep(FLOOD_SECONDS)

    def faults(self) -> list[str]:
        """What must not be, in words."""
        found = {
            "requests out of order, or twice": self.seen != sorted(set(self.seen)),
            "events out of order, or twice": self.events != sorted(set(self.events)),
            "requests that were answered and not seen": not set(self.acknowledged) <= set(self.seen),
        }
        return [text for text, is_so in found.items() if is_so]

    async def ask(self) -> None:
        numbers = count()
        while not self.is_over:
            await self._burst([next(numbers) for _ in range(10)])

    async def _burst(self, numbers: list[int]) -> None:
        asker, to = self._asker, self._answerer.address
        reads = [a_message("read", asker.address, to, {"n": n}, id_=f"r{n}") for n in numbers]
        wanted = {"scheme": "comm", "value": {"number": 1}}
        await asker.say(*reads, a_message("create", asker.address, ALLOCATION, wanted, id_=f"a{numbers[0]}"))
        waiting = {f"a{numbers[0]}", *(f"r{n}" for n in numbers)}
        self._unanswered |= waiting
        while waiting:
            message: Json = {"type": "silence"}
            with trio.move_on_after(SILENCE_SECONDS):
                message = await asker.next()
            if message["type"] in ("moved", "silence"):
                return  # one of the two may have moved; if not, answers come late, and count then
            if message.get("id") not in self._unanswered:
                continue
            waiting.discard(message["id"])
            self._unanswered.discard(message["id"])
            if message["body"]["code"] == 200 and message["id"].startswith("a"):
                self.allocated += message["body"]["value"]["allocated"]
            elif message["body"]["code"] == 200:
                self.acknowledged.append(int(message["id"][1:]))


@dataclass(frozen=True)
class Talk:
    """Three nodes, and three pairs of runtimes at them that talk."""

    nodes: Nodes
    people: list[Wanderer]
    pairings: list[Pairing]

    async def go_on(self, answers: int = 50) -> None:
        """Wait until each pair has so many answers more."""
        for one in self.pairings:
            most = len(one.acknowledged) + answers
            with trio.fail_after(PATIENCE_SECONDS):
                while len(one.acknowledged) < most:  # noqa: ASYNC110  other processes decide
                    await trio.sleep(0.02)

    async def check_owned(self) -> None:
        """Each address that was allocated still belongs to who got it, wherever that is now.

        All people listen meanwhile, and answer pings: who is silent loses its connection.
        """
        heard: dict[str, set[str]] = {one.address: set() for one in self.people}
        async with trio.open_nursery() as nursery:
            for one in self.people:
                nursery.start_soon(self._listen, one, heard[one.address])
            for index, pairing in enumerate(self.pairings):
                sender, addresses = self.people[3 + index], pairing.allocated
                assert addresses
                for first in range(0, len(addresses), CHECKED_AT_ONCE):
                    some = addresses[first : first + CHECKED_AT_ONCE]
                    await sender.say(*(a_message("message", sender.address, to, {"check": to}) for to in some))
                    await self._until_heard(heard[self.people[index].address], set(some))
                lost = set(addresses) - heard[self.people[index].address]
                assert not lost, f"{len(lost)} of {len(addresses)} addresses are lost: {sorted(lost)[:5]}"
            nursery.cancel_scope.cancel()

    async def _listen(self, one: Wanderer, heard: set[str]) -> None:
        while True:
            address = ((await one.next()).get("body") or {}).get("check")
            if isinstance(address, str):
                heard.add(address)

    async def _until_heard(self, heard: set[str], addresses: set[str]) -> None:
        with trio.move_on_after(CHECK_SECONDS):
            while not addresses <= heard:  # noqa: ASYNC110  other processes decide
                await trio.sleep(0.02)


@asynccontextmanager
async def talk(folder: Path, engine: Postgres) -> AsyncIterator[Talk]:
    """Run three nodes, and have runtimes at them that know each other."""
    async with talk_in(Domain(folder, engine, NAMES)) as all_of_them:
        yield all_of_them


@asynccontextmanager
async def talk_in(domain: Domain) -> AsyncIterator[Talk]:
    """As `talk`, in a domain of three nodes."""
    async with trio.open_nursery() as nursery:
        nodes = Nodes(domain, nursery)
        async with trio.open_nursery() as starts:
            for name in NAMES:
                starts.start_soon(nodes.start, name)
        people = [
            Wanderer(nodes, await nodes.running[name].opened(f"{name}-{number}"))
            for number in range(2)
            for name in NAMES
        ]
        for asker, target in ((0, 1), (1, 2), (2, 0)):
            await until_reached(people[asker].runtime, people[target].runtime)
        yield Talk(nodes, people, [Pairing(people[index], people[3 + (index + 1) % 3]) for index in range(3)])
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def under_traffic(all_of_them: Talk, rate: float) -> AsyncIterator[None]:
    """Have the pairs talk, with so many events a second besides; the last ones come before it is left."""
    async with trio.open_nursery() as nursery:
        for one in all_of_them.pairings:
            await nursery.start(one.answer)
            nursery.start_soon(one.ask)
            nursery.start_soon(one.flood, rate / len(all_of_them.pairings))
        await all_of_them.go_on()
        yield
        await all_of_them.go_on()
        nursery.cancel_scope.cancel()


async def roll(all_of_them: Talk, rate: float) -> None:
    """Restart each node while the pairs talk; each restart begins once all of them get on."""
    async with under_traffic(all_of_them, rate):
        for name in NAMES:
            await all_of_them.nodes.stop(name)
            await all_of_them.nodes.start(name)
            await all_of_them.go_on()


@asynccontextmanager
async def errands_of(nodes: Nodes) -> AsyncIterator[list[Errands]]:
    """Actions from a runtime at each node for an agent at the next one, until it is left; by then all have ended."""
    people = [
        [Wanderer(nodes, await nodes.running[name].opened(f"{role}-{name}")) for name in NAMES]
        for role in ("sender", "agent")
    ]
    all_of_them = [Errands(people[0][index], people[1][(index + 1) % len(NAMES)]) for index in range(len(NAMES))]
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as senders:
            for one in all_of_them:
                await one.begin()
                nursery.start_soon(one.serve)
                nursery.start_soon(one.hear)
                senders.start_soon(one.send)
            yield all_of_them
            senders.cancel_scope.cancel()
        for one in all_of_them:
            await one.settle()
        nursery.cancel_scope.cancel()


async def kill_often(all_of_them: Talk, history: History, kills: int, seed: int) -> None:
    """Kill nodes at random moments; half of them start again at once, the others after their lease."""
    draw = random.Random(seed)
    for _ in range(kills):
        name = draw.choice(NAMES)
        await trio.sleep(draw.uniform(0.0, 0.5))
        killed_at = trio.current_time()
        await all_of_them.nodes.kill(name)
        if draw.random() < 0.5:
            await all_of_them.go_on()  # at the other nodes
        await all_of_them.nodes.start(name)
        history.note_return(killed_at)
        await all_of_them.go_on()
        await until_claimed(history)
        history.renew()


def summary_of(ledgers: list[Ledger]) -> str:
    """What became of actions."""
    acknowledged = sum(len(one.acknowledged) for one in ledgers)
    ended = sum(len(one.words) for one in ledgers)
    again = sum(len(lives) > 1 for one in ledgers for lives in one.handed.values())
    sent = sum(one.sent for one in ledgers)
    return f"{sent:,} actions sent, {acknowledged:,} answered 202, {ended:,} ended, {again:,} handed over again"


def claims_of(history: History) -> str:
    """What became of claims."""
    found = Counter(step.result for step in history.operations if step.kind == "claim")
    steps = f"{len(history.operations):,} steps that some order explains"
    return f"{found['ok']:,} claims granted, {found['refused']:,} refused, {found['']} unknown; {steps}"


async def run_kills(folder: Path, engine: Postgres, rate: float, kills: int, seed: int) -> list[str]:
    """Returns what must not be, in words, and prints what was done."""
    async with talk(folder, engine) as all_of_them:
        began = trio.current_time()
        try:
            async with (
                contention(all_of_them.nodes) as history,
                errands_of(all_of_them.nodes) as errands,
                under_traffic(all_of_them, rate),
            ):
                await kill_often(all_of_them, history, kills, seed)
        except ContradictionError as exc:
            return [str(exc)]
        seconds = trio.current_time() - began
        await all_of_them.check_owned()
    pairings, ledgers = all_of_them.pairings, [one.ledger for one in errands]
    answered, events = sum(len(one.acknowledged) for one in pairings), sum(len(one.events) for one in pairings)
    moves = sum(one.moves for one in all_of_them.people)
    sys.stdout.write(
        f"{kills} kills in {seconds:.0f} s: {answered:,} requests answered, {events:,} events,"
        f" {sum(len(one.allocated) for one in pairings):,} addresses, {moves} sessions came back\n"
        f"{summary_of(ledgers)}\n{claims_of(history)}\n"
    )
    faults = [one.faults() for one in pairings] + [one.faults() for one in ledgers]
    return [text for some in faults for text in some]


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Kill nodes of one domain under traffic.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rate", type=float, default=2_000, help="events a second, besides requests")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    os.environ["PGPASSWORD"] = PASSWORD
    with tempfile.TemporaryDirectory() as folder, running_postgres() as engine:
        faults = trio.run(run_kills, Path(folder), engine, chosen.rate, chosen.kills, chosen.seed)
    for fault in faults:
        sys.stdout.write(f"FAULT: {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
