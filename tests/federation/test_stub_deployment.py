"""One deployment: an instance that fails before it was live makes another stub of its domain the next to be tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from federation.chosen_stubs import InstanceTerms
from federation.core.interworking import Interworking
from federation.core.peer_terms import PeerTerms
from federation.core.stub_grant import WHOLE_GRANT
from federation.document_news import DocumentNews
from federation.stub_deployment import StubDeployment, StubSources
from federation.stub_host import StubHost
from federation.stub_life import StubLife
from federation.stub_provider import Package
from protofly.documents import Permissions
from protofly.errors import Code, StubFaultError
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestEvent
from tests.federation.test_stub_grant import verified_stub
from tests.support.scripted_stub import ScriptedProcess, act
from tests.support.sides import Bus, Pair, chat

TRAP = StubFaultError(Code.STUB_TRAPPED, "unreachable", domain="b.example", fault="unreachable")


class OnePackage:
    """Has one package; `failed` are the stubs whose start failed."""

    def __init__(self, stub: VerifiedStub) -> None:
        self.stub = stub
        self.failed: list[VerifiedStub] = []

    async def package(self, *_: object, **__: object) -> Package:
        await trio.lowlevel.checkpoint()
        return Package(self.stub, b"", InstanceTerms(configuration={}, grant=WHOLE_GRANT, budget=Budget()))

    def start_failed(self, stub: VerifiedStub) -> None:
        self.failed.append(stub)


def traps_at(op: Event) -> ScriptedProcess:
    """A stub that is live at once, and traps at its first event of a kind."""

    def script(event: GuestEvent) -> Any:
        if event.op == op:
            return TRAP
        return [act(Action.STATUS, 0, "live")] if event.op == Event.START else ()

    return ScriptedProcess(script)


@pytest.mark.parametrize(("op", "is_noted"), [(Event.START, True), (Event.MESSAGE, False)])
async def test_only_a_stub_that_was_never_live_has_failed_its_start(op: Event, is_noted: bool) -> None:
    stub = verified_stub(permissions=Permissions(connect=["mn"]))
    provider, pair = OnePackage(stub), Pair(a=Bus("a.example"))
    link, terms = pair.to_b, PeerTerms(chosen=frozenset({"b.example"}))
    sandbox = SimpleNamespace(start_worker=_worker(traps_at(op)))
    identity = SimpleNamespace(domain="a.example", node="runtime://a.example/mn-1")
    recorders = SimpleNamespace(follow=lambda *_: None)
    parts: list[Any] = [sandbox, None, identity, Interworking(), terms, recorders]
    host = StubHost(*parts)
    sources = StubSources(cast("Any", None), cast("Any", provider), host, pair.a.gate, cast("Any", ()))
    news = DocumentNews(link.domain, cast("Any", None), link.now)
    deployment = StubDeployment(link, StubLife(link), news, sources)
    link.send(chat(1))
    with trio.fail_after(10), pytest.raises(StubFaultError, check=lambda fault: fault.code is Code.STUB_TRAPPED):
        await deployment.run()
    assert provider.failed == ([stub] if is_noted else [])


def _worker(process: ScriptedProcess) -> Any:
    async def start_worker(*_: object) -> ScriptedProcess:
        await trio.lowlevel.checkpoint()
        return process

    return start_worker
