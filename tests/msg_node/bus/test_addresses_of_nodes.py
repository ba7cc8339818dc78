"""What stubs are shown of the addresses of a domain of several nodes: those of all, as long as they last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from federation.stubs.address_feed import GATHER_SECONDS
from msg_node.bus import addresses_of_nodes
from msg_node.bus.addresses_of_nodes import AddressesOfNodes
from msg_node.cluster.core.node_contents import SHOWN, Shown, decode_shown
from protofly.errors import Code, PeerError
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import ALLOCATION, RuntimeRig

ABROAD = "vertx.example"
PATIENCE_SECONDS = 60


class Feed:
    """Stands in for a stub at one node that is shown our addresses."""

    def __init__(self, rig: RuntimeRig, domain: str = ABROAD) -> None:
        self._domain = domain
        self._addresses: AddressesOfNodes = node_of(rig).parts.addresses
        self._moved = trio.Event()
        self.stop: Callable[[], None] = self._addresses.follow(domain, self._note)

    def _note(self) -> None:
        self._moved.set()

    def shown(self) -> set[str]:
        return set(self._addresses.now(self._domain))

    async def until_shown(self, *wanted: str) -> None:
        """Wait until those are all that are shown, as a stub hears it: only after a change."""
        with trio.fail_after(PATIENCE_SECONDS):
            while self.shown() != set(wanted):
                await self._moved.wait()
                self._moved = trio.Event()


async def test_a_stub_is_shown_the_addresses_of_runtimes_at_all_nodes(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        rooms = [await ana.allocated(), await bo.allocated()]
        feed = Feed(one)
        await feed.until_shown(*rooms)
        cy = await three.opened("cy")
        rooms.append(await cy.allocated())
        await feed.until_shown(*rooms)
        assert (await bo.ask("delete", ALLOCATION, {"resource": rooms[1]}))["body"]["code"] == 200
        await feed.until_shown(rooms[0], rooms[2])


async def test_what_the_policy_keeps_from_a_domain_does_not_leave_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        room, hidden = await bo.allocated(), await bo.allocated()
        seen = "federation.stubs.address_feed.SeenAddresses._may_see"
        monkeypatch.setattr(seen, lambda _self, address: address != hidden)
        feed = Feed(one)
        await feed.until_shown(room)
        assert not any(hidden in shown for shown in node_of(one).parts.addresses._shown.values())


async def test_nothing_is_said_for_a_domain_whose_stub_has_ended(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        room = await bo.allocated()
        feed, other = Feed(one), Feed(one)
        await feed.until_shown(room)
        feed.stop()
        assert other.shown() == {room}  # another version of the stub still runs
        other.stop()
        assert other.shown() == set()
        with trio.fail_after(PATIENCE_SECONDS):
            while two.state.owners.notified:
                await trio.lowlevel.checkpoint()


async def test_a_node_that_was_cut_off_and_is_met_again_says_all_anew(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        room = await bo.allocated()
        feed = Feed(one)
        await feed.until_shown(room)
        buses = node_of(one).buses
        buses["n1"].cut_off.add("n2")
        buses["n2"].cut_off.add("n1")
        later = await bo.allocated()
        await trio.sleep(2 * GATHER_SECONDS)
        assert feed.shown() == {room}
        for bus in buses.values():
            bus.cut_off.clear()
        assert one.bus.from_nodes is not None
        assert two.bus.from_nodes is not None
        two.bus.from_nodes.met("n1", is_new=False)
        one.bus.from_nodes.met("n2", is_new=False)
        await feed.until_shown(room, later)


async def test_what_a_dead_node_had_is_shown_no_more_and_comes_back_with_its_runtimes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses_of_nodes, "LOOK_SECONDS", 0.01)
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        bo = await two.opened("bo")
        room = await bo.allocated()
        feed = Feed(one)
        await feed.until_shown(room)
        for bus in node_of(one).buses.values():
            bus.cut_off.add("n2")
        for rig in (one, three):
            node_of(rig).dead.add("n2")
        await feed.until_shown()
        back = await (await three.opened("bo")).allocated()
        await feed.until_shown(back)


async def test_a_node_of_the_release_before_is_asked_nothing_that_it_does_not_know(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        room = await ana.allocated()
        await bo.allocated()
        node_of(one).buses["n2"].abilities = ()
        feed = Feed(one)
        await feed.until_shown(room)
        feed.stop()
        assert two.state.owners.notified == []


def test_news_are_read_as_they_were_said_and_what_is_none_is_refused() -> None:
    for shown in (
        Shown("b.example", True, b""),
        Shown("b.example", False, b"+comm://a.example/1\n-comm://a.example/2\n"),
    ):
        assert decode_shown(shown.encode()) == shown
    for broken in (b"", b"=", b"=b.example", b"=\xff\n", b"+b.example\n+\xff"):
        with pytest.raises(PeerError) as refused:
            decode_shown(SHOWN + broken)
        assert refused.value.code is Code.PROTOCOL_ERROR
