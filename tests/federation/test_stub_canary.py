"""A newer version carries a share first: it takes over after its time, and if it fails nothing is lost or repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from federation.core.carrier import Accepted
from federation.core.link_machine import queues_of
from federation.core.stub_release import ReleaseAction, ReleaseEvent
from federation.links.link_moves import taken_out
from federation.stubs.instance_run import CanaryTerms
from federation.stubs.stub_canary import BEGIN_SECONDS, END_SECONDS, SILENT_SECONDS, TURN_SECONDS
from protofly.codec import build
from protofly.message import Message
from protofly.records import MessageRecord
from sandbox.core.exchange import Action, Event, GuestAction
from tests.federation.test_stub_succession import TRAP, Guest, Rig
from tests.support.scripted_stub import act

SECONDS = 100.0
SHARE = 50
PAIRS = 40
MESSAGE = msgspec.json.Decoder()


def chat_of(pair: int, number: int) -> Message:
    """Message number so and so of one pair of addresses."""
    to = f"hyperty://b.example/{pair}"
    return build(id=number, type="create", from_="hyperty://a.example/ana", to=to, body={"value": number})


class Documents:
    """Those of b: due when the test says so."""

    def __init__(self) -> None:
        self.seconds, self.is_taken_back = 1e6, False
        self.live = b"1"

    def seconds_until_refresh(self, _domain: str) -> float:
        return self.seconds

    def is_forgotten(self, _domain: str) -> bool:
        return self.is_taken_back

    def believed(self, _domain: str) -> Any:
        return SimpleNamespace(live_envelope=self.live)


class CanaryRig(Rig):
    """The link of a.example, where newer versions carry half of the pairs first."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.documents, self.canary_guest, self.nursery = Documents(), Guest(), nursery
        sources = self.succession._sources
        terms = CanaryTerms(SHARE, SECONDS)
        sources = replace(sources, documents=self.documents, canary=lambda _domain: terms)  # type: ignore[arg-type]
        self.succession._sources = self.succession.canary._sources = sources
        self.guests.insert(1, self.canary_guest)

    async def send_round(self, number: int) -> None:
        for pair in range(PAIRS):
            self.link.send(chat_of(pair, number))
        self.link.flush()
        await trio.testing.wait_all_tasks_blocked()

    def heard(self, guest: Guest) -> dict[str, list[int]]:
        """What a guest was handed, by pair, as the far end hears it: what comes again with its number counts once."""
        by_pair: dict[str, dict[int, int]] = {}
        for event in guest.process.events(Event.MESSAGE):
            one = MESSAGE.decode(event.payload)
            by_pair.setdefault(one["to"], {})[event.arg] = one["body"]["value"]
        return {pair: list(numbers.values()) for pair, numbers in by_pair.items()}

    def all_heard(self, *guests: Guest) -> dict[str, list[int]]:
        together: dict[str, list[int]] = {}
        for guest in guests:
            for pair, numbers in self.heard(guest).items():
                together.setdefault(pair, []).extend(numbers)
        return together


@pytest.fixture
async def rig() -> AsyncIterator[CanaryRig]:
    async with trio.open_nursery() as nursery:
        yield CanaryRig(nursery)
        nursery.cancel_scope.cancel()


async def test_a_newer_version_carries_its_share_and_takes_over_after_its_time(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    await rig.send_round(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(1)
        assert rig.link.stub.update.startswith("canary")
        await rig.send_round(2)
        await trio.sleep(SECONDS / 2)
        await rig.send_round(3)
    old.end()
    await rig.send_round(4)
    share = rig.heard(rig.canary_guest)
    assert 5 < len(share) < PAIRS - 5
    assert set(map(tuple, share.values())) == {(2, 3)}
    assert set(map(tuple, rig.all_heard(rig.old, rig.canary_guest, rig.new).values())) == {(1, 2, 3, 4)}
    assert rig.releases.events == [(ReleaseEvent.LIVE, "")]
    assert rig.link.machine.canary is None
    assert rig.link.stub.update.startswith("took-over")
    streams = {guest.process.events(Event.START)[0].payload for guest in (rig.old, rig.canary_guest)}
    assert len(streams) == 2


async def test_records_say_which_version_carried_a_message(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(1)
        await rig.send_round(1)
        nursery.cancel_scope.cancel()
    versions = [one.stub_ver for one in rig.pair.a.records if isinstance(one, MessageRecord)]
    assert versions.count(f"{2:064}") == len(rig.heard(rig.canary_guest)) > 0


async def test_a_share_waits_for_what_is_under_way_and_overtakes_nothing(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    rig.old.accepts = False
    await rig.send_round(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(1)
        await rig.send_round(2)
        assert rig.heard(rig.canary_guest) == {}
        rig.old.accepts = True
        rig.link.handle(Accepted(PAIRS))
        await trio.sleep(1)
        assert set(map(tuple, rig.heard(rig.canary_guest).values())) == {(2,)}
        nursery.cancel_scope.cancel()


FAILURES = {
    "trap": (TRAP, (ReleaseEvent.FAULT, "stub-trapped"), 1.0),
    "gives up": ([act(Action.STATUS, 0, "failed enough")], (ReleaseEvent.NO_LINE_BUT_OLDER, "connect-failed"), 1.0),
    "silent": ([], (ReleaseEvent.NO_LINE_BUT_OLDER, "connect-failed"), SILENT_SECONDS + 1),
}


@pytest.mark.parametrize("how", FAILURES)
async def test_one_that_fails_is_rolled_back_and_its_share_is_seen_through(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock, how: str
) -> None:
    answer, event, seconds = FAILURES[how]
    rig.releases.action = ReleaseAction.ROLL_BACK
    old = await rig.run_old()
    canary = rig.canary_guest

    def script(one: object) -> object:
        if one.op == Event.START:  # type: ignore[attr-defined]
            return canary.at_start
        return answer if one.op == Event.MESSAGE else ()  # type: ignore[attr-defined]

    canary.process.script = script  # type: ignore[assignment]
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(0.5)
        await rig.send_round(1)
        await rig.send_round(2)
    assert trio.current_time() - began == pytest.approx(seconds, abs=2)
    await rig.send_round(3)
    assert rig.releases.events == [event]
    assert rig.link.machine.canary is None
    second = rig.new  # the worker that was made next: it runs the old version, with the numbers of the share
    assert second.process.events(Event.START)[0].payload == canary.process.events(Event.START)[0].payload
    assert set(map(tuple, rig.all_heard(second, rig.old).values())) == {(1, 2, 3)}
    assert rig.link.stub.update.startswith("rolled-back")


async def test_one_that_refuses_more_than_it_delivers_is_rolled_back(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock
) -> None:
    old, canary = await rig.run_old(), rig.canary_guest

    def script(one: object) -> list[GuestAction]:
        if one.op == Event.START:  # type: ignore[attr-defined]
            return [act(Action.STATUS, 0, "live")]
        return [act(Action.REFUSED, one.arg, b"400 bad-message")] if one.op == Event.MESSAGE else []  # type: ignore[attr-defined]

    canary.process.script = script
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(0.5)
        await rig.send_round(1)
    assert rig.releases.events == [(ReleaseEvent.NO_LINE_BUT_OLDER, "connect-failed")]
    assert "messages refused" in rig.link.stub.update


@pytest.mark.parametrize("reason", ["no line", "never clear"])
async def test_a_share_that_cannot_begin_is_left_out_and_the_usual_proof_of_life_counts(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock, reason: str
) -> None:
    old = await rig.run_old()
    if reason == "no line":
        rig.canary_guest.at_start = []
    else:
        rig.old.accepts = False
        await rig.send_round(1)
    began = trio.current_time()
    assert await rig.succession.replace(old) is not None
    assert trio.current_time() - began >= BEGIN_SECONDS
    assert rig.releases.events == [(ReleaseEvent.LIVE, "")]
    assert rig.canary_guest.taken == []
    assert rig.link.stub.update.startswith("took-over")


async def test_a_far_end_that_takes_one_line_only_gets_one(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(1)
        assert old.hosted is not None
        rig.old.process.script = lambda _event: [act(Action.STATUS, 0, "disconnected replaced")]
        await rig.send_round(1)
    assert (ReleaseEvent.LIVE, "") in rig.releases.events
    assert rig.link.stub.update.startswith("took-over")


@pytest.mark.parametrize("news", ["due", "fetched by others", "forgotten", "asked"])
async def test_a_share_is_broken_off_for_news_and_goes_on_for_the_time_that_is_left(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock, news: str
) -> None:
    old = await rig.run_old()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(TURN_SECONDS + 1)
        await rig.send_round(1)
        if news == "due":
            rig.documents.seconds = 0.0
        elif news == "forgotten":
            rig.documents.is_taken_back = True
        elif news == "fetched by others":
            rig.documents.live = b"2"
        else:
            rig.link.need.look()
    lasted = trio.current_time() - began
    assert lasted == pytest.approx(TURN_SECONDS + 1, abs=2)
    assert rig.releases.events == []
    assert rig.link.machine.canary is None
    rig.documents.seconds, rig.documents.is_taken_back = 1e6, False
    rig.link.need.is_looked_at()
    again = Guest()
    rig.guests.append(again)
    assert await rig.succession.replace(old) is not None
    assert trio.current_time() - began == pytest.approx(SECONDS, abs=3)
    assert rig.releases.events == [(ReleaseEvent.LIVE, "")]


async def test_a_share_whose_deployment_ends_is_seen_through_by_the_next(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    rig.canary_guest.accepts = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(1)
        await rig.send_round(1)
        nursery.cancel_scope.cancel()
    await rig.send_round(2)
    assert sum(queue.waiting + queue.under_way for queue in queues_of(rig.link.machine)) > 0
    for run in list(rig.instances.running):
        if run.package.stub.version == "1.2.0":
            run.stop()
            await run.ended.wait()
    await rig.succession.canary.finish(old.package)
    await trio.testing.wait_all_tasks_blocked()
    assert rig.link.machine.canary is None
    assert set(map(tuple, rig.all_heard(rig.new, rig.old).values())) == {(1, 2)}


async def test_what_nobody_sees_through_follows_in_order_all_the_same(
    rig: CanaryRig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    rig.canary_guest.accepts = False
    rig.new.at_start = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(1)
        await rig.send_round(1)
        rig.canary_guest.process.script = lambda _event: TRAP
        await rig.send_round(2)
    await trio.sleep(END_SECONDS)
    await rig.send_round(3)
    assert rig.link.machine.canary is None
    assert set(map(tuple, rig.heard(rig.old).values())) == {(1, 2, 3)}


async def test_a_link_that_moves_takes_its_share_along(rig: CanaryRig, autojump_clock: trio.testing.MockClock) -> None:
    old = await rig.run_old()
    rig.canary_guest.accepts = rig.old.accepts = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(1)
        await rig.send_round(1)
        moved = taken_out(rig.link)
        assert len(moved.messages) == PAIRS
        assert rig.link.machine.canary is None
        nursery.cancel_scope.cancel()
