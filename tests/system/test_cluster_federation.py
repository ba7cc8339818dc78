"""A domain of two nodes and another one of one node: real processes, real engine, real stubs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from interop.domain_files import DomainFolder
from interop.free_ports import free_ports
from interop.laboratory import LaboratoryNode
from interop.runtime_client import Answer
from interop.talker import Talker
from tests.support.postgres import Postgres, engine_settings
from tests.system.systems import System, running_system

PATIENCE_SECONDS = 60
FAILOVER_SECONDS = 8.0
MOST_REPEATED = 100
"""Events, two milliseconds apart: ten times as many as are sent within the 20 ms that `docs/cluster.md` promises."""
QUESTION = -1
"""Number of requests, to know them from events."""


class Cluster:
    """Nodes mn-1 and mn-2 of one domain, beside the other one."""

    def __init__(self, system: System, one: LaboratoryNode, folder: Path, engine: Postgres) -> None:
        self.system = system
        self.one = one
        folder = folder / f"{one.domain}-cluster"
        folder.mkdir()
        self._key = folder / "cluster.key"
        self._key.write_bytes(os.urandom(32))
        self._key.chmod(0o600)
        self._storage = engine_settings(engine)
        self._secret = folder / "engine-password"
        shutil.copyfile(engine.folder / "password", self._secret)
        self._secret.chmod(0o600)
        self._storage = self._storage.replace(str(engine.folder / "password"), str(self._secret))
        self.two = self._second(folder)

    def _second(self, folder: Path) -> LaboratoryNode:
        """Another node with the keys, documents and policies of the first."""
        ours = DomainFolder(path=folder / "second")
        ours.data.mkdir(parents=True, mode=0o700)
        listen, site = free_ports(2)
        ports = type(self.one.ports)(listen=listen, site=site)
        text = self.one.folder.settings.read_text()
        text = text.replace(str(self.one.folder.data), str(ours.data)).replace('"mn-1"', '"mn-2"')
        text = text.replace(f"port = {self.one.ports.listen}", f"port = {listen}")
        text = text.replace(f":{self.one.ports.listen}/link", f":{listen}/link")
        text = text.replace(f"port = {self.one.ports.site}\n", f"port = {site}\n")
        ours.settings.write_text(text)
        authority = self.system.laboratory.authority
        assert authority is not None
        return LaboratoryNode(self.one.domain, ports, ours, authority)

    async def begin(self) -> None:
        await self.one.stop()
        for node, port in zip((self.one, self.two), free_ports(2), strict=True):
            cluster = f'[cluster]\nlisten = "127.0.0.1:{port}"\nkey_file = "{self._key}"\n'
            node.folder.settings.write_text(f"{node.folder.settings.read_text()}\n{self._storage}{cluster}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.system.start, self.one)
            nursery.start_soon(self.system.start, self.two)


@asynccontextmanager
async def running_cluster(folder: Path, engine: Postgres) -> AsyncIterator[Cluster]:
    async with running_system(folder) as system:
        cluster = Cluster(system, system.a, folder, engine)
        try:
            await cluster.begin()
            yield cluster
        except Exception as exc:
            exc.add_note(cluster.two.folder.log.read_text()[-5_000:])
            raise
        finally:
            with trio.CancelScope(shield=True):
                await cluster.two.stop()


async def answered(asker: Talker, target: str) -> float:
    """Ask until there is an answer; returns how long that took, in seconds."""
    began = trio.current_time()
    with trio.fail_after(PATIENCE_SECONDS):
        while not (await asker.ask(target, QUESTION)).is_ok:  # noqa: ASYNC110  other processes decide
            await trio.sleep(0.05)
    return trio.current_time() - began


async def reports(reporter: Talker, thing: str, observers: list[Talker], numbers: range) -> None:
    """Change an object: each observer is notified of each change once, in order, and of nothing else."""
    for number in numbers:
        await reporter.client.notify("update", thing, f"{thing}/changes", {"value": number})
    for one in observers:
        assert await one.hear_numbers(thing, numbers.stop) == list(range(numbers.stop))


@pytest.mark.long
async def test_a_domain_of_two_nodes_has_one_link_to_another_which_outlives_its_node(
    tmp_path: Path, engine: Postgres
) -> None:
    async with running_cluster(tmp_path, engine) as cluster:
        system = cluster.system
        anna, bruno = await system.talker(cluster.one, "anna"), await system.talker(system.b, "bruno")
        amy = await system.talker(cluster.two, "amy")

        # No matter who asks, and who is asked: one link carries it all, and each request has its answer.
        for asker, target in ((amy, bruno.hyperty), (anna, bruno.hyperty)) * 2:
            assert (await asker.ask(target)).is_ok
        for target in (anna.hyperty, amy.hyperty) * 2:
            assert (await bruno.ask(target)).is_ok
        link = await system.link(system.b)
        assert link.state == "live"
        for node in (cluster.one, cluster.two):
            assert "cluster" in await system.whole_status(node)

        # Observers in both domains, at the node that has the link and at the other one.
        [ours], [theirs] = [await one.client.at(one.domain).allocate("comm", 1) for one in (anna, bruno)]
        for observer, thing, domain in (
            (anna, theirs, "b.example"),
            (amy, theirs, "b.example"),
            (bruno, ours, "a.example"),
        ):
            assert (await observer.client.at(domain).subscribe([f"{thing}/changes"])).is_ok
        await reports(anna, ours, [bruno], range(3))
        await reports(bruno, theirs, [anna, amy], range(3))
        await system.wait_link(system.b, lambda link: link.accepted == link.sent)

        # The node that has it is killed while events cross it: the other one takes it over.
        talk, before = Conversation((bruno, anna)), len(events_of(anna, bruno))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.post, bruno, anna)
            await until_heard(anna, bruno, before + 100)
            await system.kill(cluster.two)
            talk.is_over.set()
        assert await answered(anna, bruno.hyperty) < FAILOVER_SECONDS
        assert await answered(bruno, anna.hyperty) < FAILOVER_SECONDS
        count = talk.counts[bruno.hyperty]
        await anna.wait_for(lambda: events_of(anna, bruno)[-1] == count - 1, seconds=10)
        assert repeated(events_of(anna, bruno)[before:], count) <= MOST_REPEATED
        await reports(anna, ours, [bruno], range(3, 6))
        await reports(bruno, theirs, [anna], range(3, 6))


def events_of(listener: Talker, sender: Talker) -> list[int]:
    """The numbers of events that came from a sender, in order of arrival."""
    return [number for number in listener.numbers_from(sender.hyperty) if number != QUESTION]


def repeated(numbers: list[int], count: int) -> int:
    """How many of so many events came twice: none was lost, and what came again came once more, all of it in order."""
    again = next((at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1), len(numbers))
    first = numbers[again] if again < len(numbers) else again
    assert numbers == [*range(again), *range(first, count)]
    assert first <= again
    return again - first


@dataclass
class Conversation:
    """Two runtimes that send each other numbered events and requests, until `is_over`."""

    pair: tuple[Talker, Talker]
    is_over: trio.Event = field(default_factory=trio.Event)
    counts: dict[str, int] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for sender, target in self._directions():
                nursery.start_soon(self.post, sender, target)
                nursery.start_soon(self._ask, sender, target)

    async def post(self, sender: Talker, target: Talker) -> None:
        """One sends the other an event every two milliseconds."""
        number = 0
        while not self.is_over.is_set():
            await sender.post(target.hyperty, number)
            number += 1
            await trio.sleep(0.002)
        self.counts[sender.hyperty] = number

    async def _ask(self, sender: Talker, target: Talker) -> None:
        while not self.is_over.is_set():
            self.answers.append(await sender.ask(target.hyperty, QUESTION))

    async def goes_on(self) -> None:
        """Wait for a hundred events more in each direction."""
        for sender, target in self._directions():
            await until_heard(target, sender, len(events_of(target, sender)) + 100)

    async def check(self) -> None:
        """Each request was answered, and each event arrived once and in order."""
        assert [one for one in self.answers if not one.is_ok] == []
        for sender, target in self._directions():
            count = self.counts[sender.hyperty]
            with contextlib.suppress(trio.TooSlowError):
                await until_heard(target, sender, count)
            assert events_of(target, sender) == list(range(count))

    def _directions(self) -> tuple[tuple[Talker, Talker], tuple[Talker, Talker]]:
        first, second = self.pair
        return (first, second), (second, first)


async def until_heard(listener: Talker, sender: Talker, count: int) -> None:
    await listener.wait_for(lambda: len(events_of(listener, sender)) >= count, seconds=10)


@pytest.mark.long
async def test_a_link_goes_with_its_numbers_to_another_node_when_its_node_stops(
    tmp_path: Path, engine: Postgres
) -> None:
    async with running_cluster(tmp_path, engine) as cluster:
        system = cluster.system
        anna, bruno = await system.talker(cluster.one, "anna"), await system.talker(system.b, "bruno")
        amy = await system.talker(cluster.two, "amy")
        await answered(amy, bruno.hyperty)  # node two has the link
        await answered(anna, bruno.hyperty)
        assert (await system.link(cluster.two)).state == "live"
        talk = Conversation((anna, bruno))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.run)
            await talk.goes_on()
            await cluster.two.stop()
            await talk.goes_on()
            talk.is_over.set()
        await talk.check()


async def ask_at_once(*pairs: tuple[Talker, Talker]) -> None:
    """Have each first one ask the second one, until all have an answer."""
    async with trio.open_nursery() as nursery:
        for asker, target in pairs:
            nursery.start_soon(answered, asker, target.hyperty)


@pytest.mark.long
async def test_two_domains_of_two_nodes_that_call_each_other_at_once_have_one_link_each(
    tmp_path: Path, engine: Postgres
) -> None:
    async with running_cluster(tmp_path, engine) as ours:
        system = ours.system
        theirs = Cluster(system, system.b, tmp_path, engine)
        try:
            await theirs.begin()
            anna, amy = await system.talker(ours.one, "anna"), await system.talker(ours.two, "amy")
            bruno, bob = await system.talker(system.b, "bruno"), await system.talker(theirs.two, "bob")
            await ask_at_once((anna, bruno), (amy, bob), (bruno, amy), (bob, anna))
            for asker, target in ((anna, bruno), (anna, bob), (amy, bruno), (amy, bob)):
                assert (await asker.ask(target.hyperty, QUESTION)).is_ok
                assert (await target.ask(asker.hyperty, QUESTION)).is_ok
            for cluster, other in ((ours, "b.example"), (theirs, "a.example")):
                said = [await node.status() for node in (cluster.one, cluster.two)]
                links = [link for one in said if (link := one.link_to(other)) is not None]
                assert [one.state for one in links] == ["live"]
                assert len({one.cluster.domains[other] for one in said if one.cluster is not None}) == 1
        finally:
            with trio.CancelScope(shield=True):
                await theirs.two.stop()
