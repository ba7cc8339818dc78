"""However much one frame, or one answer of a guest, holds: others have their turn while it is taken in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from federation.core.carrier import Accepted, Refused
from federation.core.link_frames import FrameKind, encode_frame
from federation.core.link_machine import LinkAction, LinkEvent, LinkMachine
from federation.links import inbound
from federation.links.inbound import ALONE_MESSAGES, SLICE_BYTES, SLICE_MESSAGES, InboundTurns
from federation.links.link_events import LOG_LINES_PER_MINUTE
from sandbox.core.exchange import Action, Event, GuestAction
from tests.support.hosted import link_module, stub_rig
from tests.support.link_endpoint import Documents, link_rig, make_world
from tests.support.scripted_stub import ScriptedProcess, status
from tests.support.services import PATIENCE_SECONDS
from tests.support.sides import Pair, chat, numbers_of, text

STREAM = "5" * 32


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is over after each slice."""
    monkeypatch.setattr(inbound, "TURN_SECONDS", -1.0)


def from_b(number: int, **body: object) -> bytes:
    return chat(number, from_="b.example", to="a.example", **body).raw


async def most_between_turns(count_now: Callable[[], int], until: int) -> int:
    """What is the most that happens between two turns of somebody else, until so much has: two slices at most, since
    of two tasks either may come first in a round."""
    most = before = count_now()
    with trio.fail_after(PATIENCE_SECONDS):
        while before < until:
            await trio.lowlevel.checkpoint()
            most, before = max(most, count_now() - before), count_now()
    return most


def counting(machine: LinkMachine) -> Callable[[], int]:
    """How many fates of messages of ours were reported to a machine from now on."""
    handle, reported = machine.handle, 0

    def counted(event: LinkEvent, now: float) -> list[LinkAction]:
        nonlocal reported
        reported += isinstance(event, Accepted | Refused)
        return handle(event, now)

    machine.handle = counted  # type: ignore[method-assign]
    return lambda: reported


async def taken(pair: Pair, turns: InboundTurns, messages: list[tuple[int, bytes]]) -> int:
    """Take messages in beside somebody else; what is the most that was taken between two of its turns."""
    turns.begin()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.take, messages, STREAM, pair.to_b)
        return await most_between_turns(lambda: len(pair.a.delivered), len(messages))


@pytest.mark.usefixtures("no_patience")
async def test_of_very_many_messages_a_few_are_taken_at_a_time_and_all_in_order() -> None:
    pair = Pair()
    numbers = list(range(1, 20 * SLICE_MESSAGES + 2))
    most = await taken(pair, InboundTurns(), [(number, from_b(number)) for number in numbers])
    assert most <= 2 * SLICE_MESSAGES
    assert numbers_of(pair.a.delivered) == numbers
    assert pair.to_b.processed(STREAM) == numbers[-1]


SERVICES = ["domain://msg-node.a.example/sm", "DOMAIN://registry.a.example", " mn:/session", "user-guid://x"]


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("to", SERVICES)
async def test_of_requests_to_the_node_itself_one_is_taken_at_a_time(to: str) -> None:
    pair = Pair()
    written = json.dumps(to).replace("m", "\\u006d").encode()
    raw = b'{"id":1,"type":"read","from":"hyperty://b.example/bo","to":%b,"body":{}}' % written
    assert await taken(pair, InboundTurns(), [(number, raw) for number in range(1, 21)]) <= 2
    assert pair.to_b.processed(STREAM) == 20


@pytest.mark.parametrize("seen", [0, 3, 7])
def test_what_a_turn_leaves_comes_in_the_next_once_and_in_order(seen: int) -> None:
    pair = Pair()
    messages = [(number, from_b(number)) for number in range(1, 41)]
    assert pair.to_b.inbound(messages[:seen], STREAM) == seen
    left, turns = messages, 0
    while left:
        left = left[pair.to_b.inbound(left, STREAM, ends_seconds=0.0) :]
        turns += 1
    assert turns > 2
    assert numbers_of(pair.a.delivered) == list(range(1, 41))
    assert pair.to_b.processed(STREAM) == 40


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize(("chars", "at_once"), [(SLICE_BYTES // 4, 3), (2 * SLICE_BYTES, 1)])
async def test_of_long_messages_fewer_are_taken_at_a_time(chars: int, at_once: int) -> None:
    pair = Pair()
    messages = [(number, from_b(number, text="x" * chars)) for number in range(1, 21)]
    assert await taken(pair, InboundTurns(), messages) <= 2 * at_once
    assert numbers_of(pair.a.delivered) == list(range(1, 21))


async def test_receivers_are_waited_for_within_a_batch_where_that_is_wanted() -> None:
    pair = Pair()
    pair.a.room = trio.Event()
    messages = [(number, from_b(number)) for number in range(1, 3 * SLICE_MESSAGES)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(InboundTurns(waits_for_room=True).take, messages, STREAM, pair.to_b)
        await trio.testing.wait_all_tasks_blocked()
        assert len(pair.a.delivered) == ALONE_MESSAGES
        pair.a.room.set()
    assert numbers_of(pair.a.delivered) == [number for number, _ in messages]


@pytest.mark.usefixtures("no_patience")
async def test_a_node_that_packs_thousands_of_messages_into_one_frame_does_not_stop_ours(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    raws = [chat(number).raw for number in range(1, 5_001)]
    payload = b"".join(len(raw).to_bytes(4, "little") + raw for raw in raws)
    async with link_rig(world) as rig, rig.live_client() as client:
        client.send_raw(encode_frame(FrameKind.MESSAGES, 1, payload))
        assert await most_between_turns(lambda: len(rig.bus.delivered), 5_000) <= 2 * SLICE_MESSAGES
        assert (await client.receive_kind(FrameKind.ACK)).arg == 5_000
        assert numbers_of(rig.bus.delivered) == list(range(1, 5_001))
    world.close()


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("kind", [FrameKind.ACK, FrameKind.REFUSE])
async def test_thousands_of_the_shortest_frames_in_one_read_do_not_stop_ours(tmp_path: Path, kind: FrameKind) -> None:
    world = make_world(tmp_path)
    async with link_rig(world) as rig, rig.live_client() as client:
        count_of = counting(rig.link.machine)
        frames = [encode_frame(kind, 1_000_000) for _ in range(1_000)]
        client.websocket.send(frames)
        client.line.send_nowait(client.websocket.data_to_send())
        assert await most_between_turns(count_of, 1_000) <= 2
        assert rig.link.is_live
    world.close()


@pytest.mark.usefixtures("no_patience")
async def test_a_line_that_breaks_within_a_long_frame_costs_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    raws = [chat(number).raw for number in range(1, 501)]
    payload = b"".join(len(raw).to_bytes(4, "little") + raw for raw in raws)
    async with link_rig(world) as rig:
        rig.bus.room = trio.Event()
        async with rig.live_client() as client:
            client.send_raw(encode_frame(FrameKind.MESSAGES, 1, payload))
            await rig.wait_until(lambda: rig.bus.delivered)
        async with rig.live_client() as client:
            assert client.welcome is not None
            known = client.welcome.arg
            assert 0 < known < 500
            rig.bus.room.set()
            client.send_messages(*raws[known:], first=known + 1)
            assert (await client.receive_kind(FrameKind.ACK)).arg == 500
        await rig.wait_until(lambda: not rig.link.is_live)
        assert numbers_of(rig.bus.delivered) == list(range(1, 501))
    world.close()


@pytest.mark.usefixtures("no_patience")
async def test_a_guest_that_delivers_thousands_at_once_does_not_stop_the_node(tmp_path: Path) -> None:
    world = make_world(tmp_path, code=link_module())
    world.b.publish_stub(serial=2, permissions=world.b.manifest.permissions.__class__(connect=["mn"], auth=False))
    rig = await stub_rig(world, Documents(world))
    flood = [GuestAction(Action.DELIVER, number, from_b(number)) for number in range(1, 5_001)]
    process = ScriptedProcess(lambda event: [status("live"), *flood] if event.op == Event.START else [])
    async with rig.running(process):
        assert await most_between_turns(lambda: len(rig.bus.delivered), 5_000) <= 2 * SLICE_MESSAGES
    assert numbers_of(rig.bus.delivered) == list(range(1, 5_001))
    world.close()


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("op", [Action.REFUSED, Action.ACCEPTED])
async def test_a_guest_that_reports_thousands_of_fates_at_once_does_not_stop_the_node(
    tmp_path: Path, op: Action
) -> None:
    world = make_world(tmp_path, code=link_module())
    world.b.publish_stub(serial=2, permissions=world.b.manifest.permissions.__class__(connect=["mn"], auth=False))
    rig = await stub_rig(world, Documents(world))
    flood = [GuestAction(op, 0, b"503 overload") for _ in range(1_000)]
    process = ScriptedProcess(lambda event: [status("live"), *flood] if event.op == Event.START else [])
    count_of = counting(rig.link.machine)
    async with rig.running(process):
        assert await most_between_turns(count_of, 1_000) <= 2
    world.close()


def test_forgeries_and_broken_messages_without_end_do_not_fill_log_and_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="federation")
    pair = Pair()
    forged = text(from_="hyperty://c.example/eve").replace(b"create", b"response")
    count = 5 * LOG_LINES_PER_MINUTE
    pair.to_b.inbound([(0, forged)] * count, STREAM)
    pair.to_b.inbound([(0, b"{")] * count, STREAM)
    assert (pair.to_b.counters["spoofed"], pair.to_b.counters["broken"]) == (count, count)
    assert pair.a.events == ["spoofed"] * LOG_LINES_PER_MINUTE
    lines = [record.getMessage() for record in caplog.records]
    assert sum("in the name of hyperty://c.example/eve" in line for line in lines) == LOG_LINES_PER_MINUTE
    assert sum("broken message" in line for line in lines) == LOG_LINES_PER_MINUTE
