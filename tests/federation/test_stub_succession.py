"""A newer version beside the one that runs: it takes over whole, or the old one goes on as if nothing had been."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from catalogue_client.core.state import FailedModule
from federation.core.carrier import Accepted
from federation.core.interworking import Interworking
from federation.core.peer_terms import PeerTerms
from federation.core.stub_grant import WHOLE_GRANT
from federation.core.stub_release import ReleaseAction, ReleaseEvent
from federation.stubs.chosen_stubs import InstanceTerms
from federation.stubs.hosted_stub import StateObserver
from federation.stubs.instance_run import InstanceRun, Instances, StubSources
from federation.stubs.stub_host import StubHost
from federation.stubs.stub_life import StubLife
from federation.stubs.stub_provider import Package
from federation.stubs.stub_succession import BESIDE_SECONDS, HANDOVER_SECONDS, StubSuccession
from protofly.documents import Permissions
from protofly.errors import Code, PeerError, StubFaultError
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from tests.federation.test_stub_grant import verified_stub
from tests.support.scripted_stub import ScriptedProcess, act
from tests.support.sides import Bus, Clock, Pair, chat

TRAP = StubFaultError(Code.STUB_TRAPPED, "unreachable", domain="b.example", fault="unreachable")


class Guest:
    """A stub that takes messages, and accepts them when the test says so; `at_start` is what it does first."""

    def __init__(self, at_start: list[GuestAction] | StubFaultError | None = None) -> None:
        self.at_start = [act(Action.STATUS, 0, "live")] if at_start is None else at_start
        self.accepts = True
        self.taken: list[int] = []
        self.process = ScriptedProcess(self._answer)

    def _answer(self, event: GuestEvent) -> Any:
        if event.op == Event.START:
            return self.at_start
        if event.op != Event.MESSAGE:
            return ()
        self.taken.append(event.arg)
        return [act(Action.ACCEPTED, event.arg)] if self.accepts else ()


class Releases:
    """Takes down what happened; nothing is rolled back but what the test says."""

    def __init__(self) -> None:
        self.events: list[tuple[ReleaseEvent, str]] = []
        self.action = ReleaseAction.NOTHING

    def begin(self, _stub: VerifiedStub, *, is_beside: bool) -> bool:
        return is_beside

    async def happened(
        self, _stub: VerifiedStub, event: ReleaseEvent, why: FailedModule | None = None
    ) -> ReleaseAction:
        await trio.lowlevel.checkpoint()
        self.events.append((event, "" if why is None else why.code))
        return self.action


class Silent(StateObserver):
    """Hears of the stub of the link, and does nothing."""

    def reported(self, text: str) -> None:
        """Nothing follows."""

    def line_failed(self, reason: str) -> None:
        """Nothing follows."""


class Rig:
    """The link of a.example with an old version that is live, and a newer one to come."""

    def __init__(self, nursery: trio.Nursery) -> None:
        bus = Bus("a.example", clock=Clock(monotonic=trio.current_time))
        self.pair, self.old, self.new, self.releases = Pair(a=bus), Guest(), Guest(), Releases()
        self.link, self.offered = self.pair.to_b, 2
        self.guests = [self.old, self.new]

        async def start_worker(*_: object) -> ScriptedProcess:
            await trio.lowlevel.checkpoint()
            return self.guests.pop(0).process

        async def package(*_: object, **__: object) -> Package:
            await trio.lowlevel.checkpoint()
            if not self.offered:
                raise PeerError(Code.PERMISSIONS_HELD, "held", domain="b.example")
            return self.package(self.offered)

        sandbox = SimpleNamespace(start_worker=start_worker)
        identity = SimpleNamespace(domain="a.example", node="runtime://a.example/mn-1")
        recorders = SimpleNamespace(follow=lambda *_: None)
        parts: list[Any] = [sandbox, None, identity, Interworking(), PeerTerms(), recorders]
        host = StubHost(*parts)
        provider: Any = SimpleNamespace(releases=self.releases, package=package)
        sources = StubSources(cast("Any", None), provider, host, bus.gate, cast("Any", ()))
        self.life = StubLife(self.link)
        self.instances = Instances(self.link, self.life, sources, nursery, Silent())
        self.succession = StubSuccession(self.link, self.life, sources, self.instances)

    def package(self, serial: int) -> Package:
        permissions = Permissions(connect=["mn"])
        stub = cast("Any", SimpleNamespace(**_members(verified_stub(permissions=permissions)), serial=serial))
        stub.manifest_sha256, stub.module_sha256, stub.version = f"{serial}", f"{serial:064}", f"1.{serial}.0"
        return Package(stub, b"", InstanceTerms(configuration={}, grant=WHOLE_GRANT, budget=Budget()))

    async def run_old(self) -> InstanceRun:
        run = await self.instances.make(self.package(1), SimpleNamespace(add=lambda *_: None))  # type: ignore[arg-type]
        self.instances.start(run)
        self.instances.take_in(run)
        assert await run.wait_live()
        return run

    async def send(self, *numbers: int) -> None:
        for number in numbers:
            self.link.send(chat(number))
        self.link.flush()
        await trio.testing.wait_all_tasks_blocked()


def _members(stub: VerifiedStub) -> dict[str, Any]:
    names = ("domain", "name", "module", "manifest", "manifest_envelope", "level", "expires", "endpoints")
    return {name: getattr(stub, name) for name in names}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with trio.open_nursery() as nursery:
        yield Rig(nursery)
        nursery.cancel_scope.cancel()


async def test_a_newer_version_takes_over_when_it_is_live(rig: Rig, autojump_clock: trio.testing.MockClock) -> None:
    old = await rig.run_old()
    await rig.send(1, 2)
    run = await rig.succession.replace(old)
    assert run is not None
    old.end()
    await rig.send(3, 4)
    assert (rig.old.taken, rig.new.taken) == ([1, 2], [3, 4])
    assert rig.releases.events == [(ReleaseEvent.LIVE, "")]
    assert (rig.link.stub.version, rig.link.stub.update) == ("1.2.0", f"took-over {run.package.stub.name} 1.2.0")


async def test_what_is_under_way_is_waited_for_and_nothing_overtakes_it(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    rig.old.accepts = False
    await rig.send(1, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.succession.replace, old)
        await trio.sleep(1)
        await rig.send(3)
        assert rig.new.taken == []
        assert old.hosted is not None
        rig.link.handle(Accepted(2))
    await rig.send(4)
    assert (rig.old.taken, rig.new.taken) == ([1, 2], [3, 4])


async def test_what_the_old_one_cannot_finish_in_time_goes_again_with_its_numbers(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    rig.old.accepts = False
    await rig.send(1, 2)
    began = trio.current_time()
    assert await rig.succession.replace(old) is not None
    assert trio.current_time() - began == pytest.approx(HANDOVER_SECONDS, abs=1)
    await rig.send(3)
    assert (rig.old.taken, rig.new.taken) == ([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("at_start", "event", "seconds"),
    [
        ([], (ReleaseEvent.NO_LINE_BUT_OLDER, "connect-failed"), BESIDE_SECONDS),
        (TRAP, (ReleaseEvent.FAULT, "stub-trapped"), 0),
        ([act(Action.STATUS, 0, "failed nobody there")], (ReleaseEvent.NO_LINE_BUT_OLDER, "stub-failed"), 0),
    ],
    ids=["silent", "trap", "gives up"],
)
@pytest.mark.parametrize("action", [ReleaseAction.ROLL_BACK, ReleaseAction.NOTHING])
async def test_one_that_gets_nowhere_is_ended_and_the_old_one_goes_on(
    rig: Rig,
    autojump_clock: trio.testing.MockClock,
    at_start: Any,
    event: tuple[ReleaseEvent, str],
    seconds: float,
    action: ReleaseAction,
) -> None:
    old = await rig.run_old()
    rig.new.at_start, rig.releases.action = at_start, action
    began = trio.current_time()
    assert await rig.succession.replace(old) is None
    assert trio.current_time() - began == pytest.approx(seconds, abs=1)
    assert rig.releases.events == [event]
    await rig.send(1)
    assert (rig.old.taken, rig.new.taken) == ([1], [])
    await trio.testing.wait_all_tasks_blocked()
    assert [run.package.stub.version for run in rig.instances.running] == ["1.1.0"]
    word = "rolled-back" if action is ReleaseAction.ROLL_BACK else "turned-down"
    assert rig.link.stub.update.startswith(word)


async def test_nothing_is_held_against_one_without_a_line_while_the_old_one_has_none(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    old = await rig.run_old()
    rig.new.at_start = []
    assert old.hosted is not None
    old.hosted.running.emit(GuestEvent(Event.TIMER, 1, b""))
    rig.old.process.script = lambda _event: [act(Action.STATUS, 0, "disconnected")]
    await trio.testing.wait_all_tasks_blocked()
    assert await rig.succession.replace(old) is None
    assert rig.releases.events == [(ReleaseEvent.NO_LINE, "connect-failed")]


@pytest.mark.parametrize("offered", [0, 1], ids=["held", "the same"])
async def test_without_another_version_nothing_is_started(
    rig: Rig, autojump_clock: trio.testing.MockClock, offered: int
) -> None:
    old = await rig.run_old()
    rig.offered = offered
    assert await rig.succession.replace(old) is None
    assert (rig.releases.events, rig.link.stub.update) == ([], "")
    assert not await rig.succession.is_due(old)
