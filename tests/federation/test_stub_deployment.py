"""One deployment: an instance that fails before it was live makes another stub of its domain the next to be tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from federation.core.interworking import Interworking
from federation.core.peer_terms import PeerTerms
from federation.core.stub_grant import WHOLE_GRANT
from federation.core.stub_release import ReleaseAction
from federation.discovery.document_news import DocumentNews
from federation.stubs.chosen_stubs import InstanceTerms
from federation.stubs.instance_run import StubSources
from federation.stubs.line_patience import FIRST_LINE_SECONDS, LOST_LINE_SECONDS, SECOND_LINE_SECONDS
from federation.stubs.stub_deployment import StubDeployment
from federation.stubs.stub_host import StubHost
from federation.stubs.stub_life import StubLife
from federation.stubs.stub_provider import Package
from protofly.documents import Permissions
from protofly.errors import Code, StubFaultError, TransportError
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestEvent
from tests.federation.test_stub_grant import verified_stub
from tests.support.scripted_stub import ScriptedProcess, act
from tests.support.sides import Bus, Pair, chat

TRAP = StubFaultError(Code.STUB_TRAPPED, "unreachable", domain="b.example", fault="unreachable")


class OnePackage:
    """Has one package; `failed` are the stubs whose start failed."""

    def __init__(self, stub: VerifiedStub, *, has_alternatives: bool = False) -> None:
        self.stub = stub
        self.has_alternatives = has_alternatives
        self.failed: list[VerifiedStub] = []
        self.releases = self

    def begin(self, _stub: VerifiedStub, *, is_beside: bool) -> bool:
        return is_beside

    async def happened(self, *_: object) -> ReleaseAction:
        await trio.lowlevel.checkpoint()
        return ReleaseAction.NOTHING

    def seconds_until_proved(self, _stub: VerifiedStub) -> None:
        """None of these is on trial."""

    def check_allowed(self, _stub: VerifiedStub) -> None:
        """Operators have forbidden none of these."""

    async def package(self, *_: object, **__: object) -> Package:
        await trio.lowlevel.checkpoint()
        terms = InstanceTerms(configuration={}, grant=WHOLE_GRANT, budget=Budget())
        return Package(self.stub, b"", terms, has_alternatives=self.has_alternatives)

    def start_failed(self, stub: VerifiedStub) -> None:
        self.failed.append(stub)


def traps_at(op: Event) -> ScriptedProcess:
    """A stub that is live at once, and traps at its first event of a kind."""

    def script(event: GuestEvent) -> Any:
        if event.op == op:
            return TRAP
        return [act(Action.STATUS, 0, "live")] if event.op == Event.START else ()

    return ScriptedProcess(script)


def deployment_of(pair: Pair, provider: OnePackage, process: ScriptedProcess, nursery: trio.Nursery) -> StubDeployment:
    link, terms = pair.to_b, PeerTerms(chosen=frozenset({"b.example"}))
    sandbox = SimpleNamespace(start_worker=_worker(process))
    identity = SimpleNamespace(domain="a.example", node="runtime://a.example/mn-1")
    recorders = SimpleNamespace(follow=lambda *_: None)
    parts: list[Any] = [sandbox, None, identity, Interworking(), terms, recorders]
    host = StubHost(*parts)
    sources = StubSources(cast("Any", None), cast("Any", provider), host, pair.a.gate, cast("Any", ()))
    news = DocumentNews(link.domain, cast("Any", None), link.now)
    return StubDeployment(link, StubLife(link), news, sources, nursery)


@pytest.mark.parametrize(("op", "is_noted"), [(Event.START, True), (Event.MESSAGE, False)])
async def test_only_a_stub_that_was_never_live_has_failed_its_start(op: Event, is_noted: bool) -> None:
    stub = verified_stub(permissions=Permissions(connect=["mn"]))
    provider, pair = OnePackage(stub), Pair(a=Bus("a.example"))
    pair.to_b.send(chat(1))
    async with trio.open_nursery() as nursery:
        deployment = deployment_of(pair, provider, traps_at(op), nursery)
        with trio.fail_after(10), pytest.raises(StubFaultError, check=lambda fault: fault.code is Code.STUB_TRAPPED):
            await deployment.run()
    assert provider.failed == ([stub] if is_noted else [])


class RecalledMeanwhile(OnePackage):
    """The operator has the stub of a link end while its package is still looked for."""

    pair: Pair

    async def package(self, *_: object, **__: object) -> Package:
        found = await super().package()
        self.pair.to_b.need.recall()
        return found


async def test_a_stub_that_was_recalled_while_it_started_ends_and_the_next_one_stays(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    provider, pair = RecalledMeanwhile(verified_stub(permissions=Permissions(connect=["mn"]))), Pair(a=Bus("a.example"))
    provider.pair = pair
    pair.to_b.need.recall()  # of nobody
    pair.to_b.send(chat(1))
    async with trio.open_nursery() as nursery:
        with trio.fail_after(10):
            await deployment_of(pair, provider, reports("live"), nursery).run()
        following = OnePackage(provider.stub)
        with trio.move_on_after(60) as lasts:
            await deployment_of(pair, following, reports("live"), nursery).run()
        assert lasts.cancelled_caught


# A line that does not open, or is lost for long. Nobody reports anything here but the stub and its lines.


def reports(*texts: str) -> ScriptedProcess:
    """A stub that reports these states at its start, and nothing more."""
    return ScriptedProcess(
        lambda event: [act(Action.STATUS, 0, text) for text in texts] if event.op == Event.START else ()
    )


@pytest.mark.parametrize(
    ("states", "line_fails", "seconds"),
    [
        (["in-progress"], False, FIRST_LINE_SECONDS),
        (["disconnected auth-policy"], False, FIRST_LINE_SECONDS),
        (["in-progress"], True, SECOND_LINE_SECONDS),
        (["live", "disconnected"], False, LOST_LINE_SECONDS),
        (["live", "disconnected"], True, LOST_LINE_SECONDS),
    ],
    ids=["silence", "refusal", "closed port", "lost", "lost, closed port"],
)
async def test_instance_without_a_line_gives_way_where_there_is_another_stub(
    autojump_clock: trio.testing.MockClock, states: list[str], line_fails: bool, seconds: float
) -> None:
    stub = verified_stub(permissions=Permissions(connect=["mn"]))
    provider, pair = OnePackage(stub, has_alternatives=True), Pair(a=Bus("a.example"))
    pair.to_b.send(chat(1))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        deployment = deployment_of(pair, provider, reports(*states), nursery)
        if line_fails:
            nursery.start_soon(fail_line, deployment)
        with trio.fail_after(60), pytest.raises(TransportError, check=lambda exc: "another one" in exc.detail):
            await deployment.run()
    assert provider.failed == [stub]
    assert trio.current_time() - began == pytest.approx(seconds, abs=0.2)


async def fail_line(deployment: StubDeployment) -> None:
    await trio.sleep(0.1)
    [run] = deployment.instances.running
    run.line_failed("connect-failed: refused")


@pytest.mark.parametrize(
    ("states", "has_alternatives", "is_needed"),
    [(["in-progress"], False, True), (["live"], True, True), (["in-progress"], True, False)],
    ids=["the only stub", "live", "nobody needs it"],
)
async def test_instance_stays_without_another_stub_with_a_line_and_while_nobody_needs_it(
    autojump_clock: trio.testing.MockClock, states: list[str], has_alternatives: bool, is_needed: bool
) -> None:
    provider = OnePackage(verified_stub(permissions=Permissions(connect=["mn"])), has_alternatives=has_alternatives)
    pair = Pair(a=Bus("a.example"))
    if is_needed:
        pair.to_b.send(chat(1))
    async with trio.open_nursery() as nursery:
        deployment = deployment_of(pair, provider, reports(*states), nursery)
        with trio.move_on_after(3 * LOST_LINE_SECONDS) as patience:
            await deployment.run()
    assert (patience.cancelled_caught, provider.failed) == (True, [])


def _worker(process: ScriptedProcess) -> Any:
    async def start_worker(*_: object) -> ScriptedProcess:
        await trio.lowlevel.checkpoint()
        return process

    return start_worker
