"""Messages in the name of somebody else: from a peer that proved itself, over either kind of line, and from within."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from federation.core.link_frames import FrameKind, encode_messages
from interop.lab.link_peer import message
from interop.lab.spool import hashed_by, read_records
from protofly.records import LinkEvent, MessageRecord

from .foreign import ForeignDomain
from .frontier import Frontier, running_frontier
from .systems import wait_until

STOLEN = ["hyperty://a.example/anna", "hyperty://c.example/h-1", "hyperty://sub.liar.foreign.example/h-1"]


def lies(foreign: ForeignDomain, frontier: Frontier) -> list[bytes]:
    """One honest message, then three in other names, then one more honest one."""
    mine, anna = f"hyperty://{foreign.domain}/h-1", frontier.anna.hyperty
    return [
        message(mine, anna, value=1),
        *[message(name, anna, id_=number, value=100 + number) for number, name in enumerate(STOLEN)],
        message(mine, anna, value=2),
    ]


async def check_aftermath(frontier: Frontier, foreign: ForeignDomain) -> None:
    """Only honest messages arrived, the lies are written down, neighbours were not touched."""
    assert [one.body["value"] for one in frontier.anna.heard if one.body.get("value") not in (1, 2)] == []
    await frontier.assert_unharmed()
    assert await frontier.node.stop() == 0
    spoofed = [one for one in read_records(frontier.spool, LinkEvent) if one.event == "spoofed"]
    stolen = [hashed_by(frontier.spool.parent)(name) for name in STOLEN]
    assert [(one.domain, one.code, one.src_key) for one in spoofed] == [
        (foreign.domain, "spoofed-source", name) for name in stolen
    ]
    written = [one for one in read_records(frontier.spool, MessageRecord) if one.role == "in"]
    assert {one.outcome for one in written if one.src_key in stolen} <= {"rejected"}


async def test_three_lies_over_our_own_stub_are_dropped_recorded_and_end_the_line(tmp_path: Path) -> None:
    async with running_frontier(tmp_path, "liar") as frontier:
        foreign = await frontier.add("liar")
        assert (await frontier.ask(foreign)).is_ok
        await foreign.peer.lines[0].send(*encode_messages(list(enumerate(lies(foreign, frontier), 2))))
        with trio.fail_after(5):
            await foreign.peer.has_ended.wait()
        link = await wait_until(lambda: frontier.link(foreign), lambda one: one.spoofed == 3)
        assert link.state != "live"
        await check_aftermath(frontier, foreign)


async def test_three_lies_over_a_line_that_the_peer_opened_are_dropped_recorded_and_end_the_line(
    tmp_path: Path,
) -> None:
    async with running_frontier(tmp_path, "liar") as frontier:
        foreign = await frontier.add("liar")
        line = await foreign.peer.visit(
            frontier.node.domain, frontier.node.ports.listen, frontier.authority.client_context()
        )
        async with line.stream:
            await line.send(*encode_messages(list(enumerate(lies(foreign, frontier), 1))))
            with trio.fail_after(5):
                assert await line.close_reason() == "spoofed-source"
        assert (await frontier.link(foreign)).spoofed == 3
        await check_aftermath(frontier, foreign)


async def test_two_lies_are_dropped_and_the_line_goes_on(tmp_path: Path) -> None:
    async with running_frontier(tmp_path, "liar") as frontier:
        foreign = await frontier.add("liar")
        line = await foreign.peer.visit(
            frontier.node.domain, frontier.node.ports.listen, frontier.authority.client_context()
        )
        async with line.stream:
            forged = lies(foreign, frontier)
            await line.send(*encode_messages(list(enumerate([forged[1], forged[2], forged[4]], 1))))
            assert await frontier.anna.hear_numbers(f"hyperty://{foreign.domain}/h-1", 1) == [2]
            assert (await line.receive_kind(FrameKind.ACK)).arg == 3
        assert (await frontier.link(foreign)).spoofed == 2
        assert len(frontier.anna.heard) == 1
        await frontier.assert_unharmed()


@pytest.mark.parametrize("name", ["hyperty://good.foreign.example/h-1", "hyperty://c.example/h-1"])
async def test_a_local_runtime_may_not_speak_as_another_domain(tmp_path: Path, name: str) -> None:
    async with running_frontier(tmp_path) as frontier:
        heard = len(frontier.good.peer.heard)
        answer = await frontier.anna.client.request("create", name, f"hyperty://{frontier.good.domain}/h-2", {})
        assert (answer.code, answer.reason) == (403, "spoofed-source")
        await frontier.assert_unharmed()
        assert len(frontier.good.peer.heard) == heard + 1
