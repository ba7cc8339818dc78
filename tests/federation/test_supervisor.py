"""When the stub of a domain is tried again, and what its senders hear while it is not."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from federation.core.interworking import Interworking
from federation.core.peer_terms import PeerTerms
from federation.discovery.document_news import DocumentNews
from federation.discovery.domain_documents import DomainDocuments
from federation.links.link_context import Refusal
from federation.stubs import instance_watch
from federation.stubs.instance_run import StubSources
from federation.stubs.instance_watch import InstanceWatch
from federation.stubs.supervisor import StubSupervisor
from protofly.errors import Code, PeerError, StubFaultError, TransportError
from protofly.limits import CIRCUIT_OPEN_SECONDS, CRASHES_BEFORE_CIRCUIT, RECONNECT_ASKED_SECONDS, RESTART_MAX_SECONDS
from protofly.message import Message
from protofly.stub import VerifiedStub
from tests.support.sides import Bus, Clock, Pair, body_of, chat, request


class CrashingStub:
    """A provider whose stub dies whenever it is deployed; counts how often it was."""

    def __init__(self) -> None:
        self.deployments = 0

    async def package(self, domain: str, *_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        self.deployments += 1
        raise StubFaultError(Code.STUB_TRAPPED, "unreachable", domain=domain, fault="unreachable")


class UnreachableDomain:
    """A provider whose domain cannot be reached, for another reason at each attempt."""

    def __init__(self, *codes: Code) -> None:
        self.codes = list(codes)

    async def package(self, *_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        raise TransportError(code, "nobody is there", phase="connect")


class Rig:
    """The link of a.example to b.example with its supervisor, in the time of the test."""

    def __init__(self) -> None:
        bus = Bus("a.example", clock=Clock(monotonic=trio.current_time))
        self.pair, self.provider = Pair(a=bus), CrashingStub()
        host = SimpleNamespace(interworking=Interworking(), terms=PeerTerms())
        self.why_forbidden: str | None = None
        self.sources = SimpleNamespace(
            provider=self.provider,
            documents=None,
            host=host,
            gate=bus.gate,
            addresses=(),
            forbidden=lambda _domain: self.why_forbidden,
        )
        self.supervisor = StubSupervisor(self.pair.to_b, cast("StubSources", self.sources))

    async def comes_and_goes(self, message: Message) -> None:
        """The other node carries the link for a moment, and does not get to the message."""
        carrier = self.pair.carrier(channel="peer")
        carrier.is_blocked = True
        carrier.open()
        await trio.testing.wait_all_tasks_blocked()
        self.pair.to_b.send(message)
        carrier.cut()


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_a_stub_that_crashed_is_left_alone_although_the_other_node_came_and_went(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.supervisor.run)
        rig.pair.to_b.send(chat(1))
        await trio.sleep(0.5)
        assert rig.provider.deployments == 1
        await rig.comes_and_goes(chat(2))
        await trio.sleep(0.1)
        assert (rig.provider.deployments, rig.pair.a.answers) == (1, [])
        await trio.sleep(1.0)
        assert rig.provider.deployments == 2
        nursery.cancel_scope.cancel()


async def test_an_open_circuit_stays_open_although_the_other_node_came_and_went(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    link = rig.pair.to_b
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.supervisor.run)
        link.send(request(1))
        await trio.sleep(RESTART_MAX_SECONDS)
        assert (rig.provider.deployments, rig.pair.a.answer_codes) == (CRASHES_BEFORE_CIRCUIT, [Code.CIRCUIT_OPEN])
        await rig.comes_and_goes(request(2))
        await trio.sleep(1.0)
        assert rig.pair.a.answer_codes == [Code.CIRCUIT_OPEN] * 2
        assert (rig.provider.deployments, link.state) == (CRASHES_BEFORE_CIRCUIT, "quarantined")
        refusal = link.send(request(3))
        assert refusal is not None
        assert refusal.code is Code.CIRCUIT_OPEN
        await trio.sleep(CIRCUIT_OPEN_SECONDS)
        link.send(request(4))
        await trio.sleep(1.0)
        assert rig.provider.deployments == CRASHES_BEFORE_CIRCUIT + 1
        nursery.cancel_scope.cancel()


async def test_a_forbidden_stub_is_not_deployed_and_senders_get_its_code(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    rig.why_forbidden = "it floods us"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.supervisor.run)
        rig.pair.to_b.send(request(1))
        await trio.sleep(0.5)
        assert (rig.provider.deployments, rig.pair.a.answer_codes) == (0, [Code.STUB_FORBIDDEN])
        assert "it floods us" in str(body_of(rig.pair.a.answers[0])["description"])
        trouble = rig.pair.to_b.events.trouble
        assert trouble.startswith("our side does not run the stub of b.example: stub-forbidden")
        assert "stub allow" in trouble
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("ttl_seconds", [None, 1, 10])
@pytest.mark.parametrize(
    "codes",
    [
        (Code.CONNECT_FAILED,),
        (Code.DNS_FAILED,),
        (Code.FETCH_TIMEOUT,),
        (Code.CONNECT_FAILED, Code.DISCOVERY_BACKOFF),
        (Code.FETCH_TIMEOUT, Code.CONNECT_FAILED, Code.DISCOVERY_BACKOFF),
    ],
)
async def test_senders_to_a_domain_that_cannot_be_reached_get_one_code(
    rig: Rig, autojump_clock: trio.testing.MockClock, codes: tuple[Code, ...], ttl_seconds: float | None
) -> None:
    link = rig.pair.to_b
    more: dict[str, Any] = {} if ttl_seconds is None else {"ttl": ttl_seconds}
    rig.sources.provider = UnreachableDomain(*codes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.supervisor.run)
        for number in range(1, 4):
            assert link.send(request(number, **more)) is None
            for _ in range(80):
                await trio.sleep(0.25)
                link.tick(trio.current_time())
        assert rig.pair.a.answer_codes == [Code.DEPLOY_TIMEOUT] * 3
        assert all("nobody is there" in str(body_of(one)["description"]) for one in rig.pair.a.answers)
        nursery.cancel_scope.cancel()


class DomainInAnOutage:
    """A provider whose domain cannot be reached; notes when it was tried."""

    def __init__(self) -> None:
        self.tried_at: list[float] = []

    async def package(self, *_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        self.tried_at.append(trio.current_time())
        raise TransportError(Code.CONNECT_FAILED, "nobody is there", phase="connect")


@pytest.mark.parametrize(("was_up", "most_seconds"), [(True, 1.1 * RECONNECT_ASKED_SECONDS), (False, 66.0)])
async def test_after_a_long_outage_a_message_waits_ten_seconds_for_a_link_that_was_up_before(
    rig: Rig, autojump_clock: trio.testing.MockClock, was_up: bool, most_seconds: float
) -> None:
    link, domain = rig.pair.to_b, DomainInAnOutage()
    rig.sources.provider = domain
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.supervisor.run)
        if was_up:
            await rig.comes_and_goes(request(1))
        for number in range(2, 600):
            link.send(request(number))
            await trio.sleep(1)
            link.tick(trio.current_time())
        pauses = [later - earlier for earlier, later in pairwise(domain.tried_at)]
        assert max(pauses) <= most_seconds
        assert min(pauses[5:]) >= 0.9 * RECONNECT_ASKED_SECONDS, "however many messages ask"
        nursery.cancel_scope.cancel()


class NamelessDomain:
    """A provider whose domain has no address."""

    async def package(self, domain: str, *_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        raise PeerError(Code.NO_SUCH_DOMAIN, "address: no address", domain=domain)


async def test_who_comes_while_a_domain_is_given_up_hears_the_same_reason_as_those_who_waited(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    link = rig.pair.to_b
    rig.sources.provider = NamelessDomain()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.supervisor.run)
        assert link.send(request(1)) is None
        await trio.sleep(0.1)
        (answer,) = rig.pair.a.answers
        assert str(body_of(answer)["description"]).endswith(": address: no address")
        assert link.send(request(2)) == Refusal(Code.NO_SUCH_DOMAIN, detail="address: no address")
        assert (link.stub.state, link.state) == ("deployment-failed", "failed")
        assert link.events.is_on_the_way
        assert link.events.trouble.endswith("check the name, and ask for their records")
        nursery.cancel_scope.cancel()


class TakenBack:
    """A provider whose documents are good for a day, until the operator takes back the trust in the domain."""

    def __init__(self, at_seconds: float) -> None:
        self.at_seconds = at_seconds
        self.asked = 0

    def seconds_until_refresh(self, _domain: str) -> float:
        return 86_400.0

    def seconds_until_askable(self, _domain: str) -> float:
        return 0.0

    def is_forgotten(self, _domain: str) -> bool:
        return trio.current_time() >= self.at_seconds

    def believed(self, _domain: str) -> Any:
        """Nothing that is at hand."""

    async def wait_renewed(self, _domain: str, _version: bytes) -> None:
        await trio.sleep_forever()

    async def trust_of(self, domain: str, *, is_refresh: bool) -> Any:
        assert is_refresh
        await trio.lowlevel.checkpoint()
        self.asked += 1
        raise PeerError(Code.FINGERPRINT_MISMATCH, "another key set", domain=domain)


class RenewedByAVisitor(TakenBack):
    """The same, and a visitor's token makes somebody else fetch the documents at that time."""

    async def wait_renewed(self, _domain: str, _version: bytes) -> None:
        await trio.sleep_until(self.at_seconds)


class RenewedDuringAnUpdate(TakenBack):
    """Somebody else fetches the documents while a newer version takes its time to take over."""

    def __init__(self, at_seconds: float) -> None:
        super().__init__(at_seconds)
        self.live = b"1"

    def believed(self, _domain: str) -> Any:
        return SimpleNamespace(live_envelope=self.live)

    async def wait_renewed(self, _domain: str, version: bytes) -> None:
        if self.live == version:
            await trio.sleep_forever()

    async def trust_of(self, domain: str, *, is_refresh: bool) -> Any:
        if self.live == b"1":
            return SimpleNamespace(live=None, live_envelope=self.live)
        return await super().trust_of(domain, is_refresh=is_refresh)


async def test_a_stub_is_judged_at_once_when_others_have_fetched_its_documents(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    began = trio.current_time()
    documents, link = cast("DomainDocuments", RenewedByAVisitor(began + 570)), rig.pair.to_b
    watch = InstanceWatch(link, documents, DocumentNews(link.domain, documents, link.now), is_chosen=False)
    assert await watch.wait_outdated(cast("VerifiedStub", None)) is not None
    assert trio.current_time() - began == 570


async def test_a_stub_is_judged_at_once_when_others_fetched_its_documents_during_an_update(
    rig: Rig, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    del autojump_clock
    monkeypatch.setattr(instance_watch, "judge_running", lambda *_, **__: None)
    monkeypatch.setattr(instance_watch, "has_moved", lambda *_: False)
    began, link = trio.current_time(), rig.pair.to_b
    renewed = RenewedDuringAnUpdate(began)
    documents = cast("DomainDocuments", renewed)

    async def update() -> bool:
        await trio.sleep(30)
        renewed.live = b"2"
        return False

    link.need.look()
    watch = InstanceWatch(link, documents, DocumentNews(link.domain, documents, link.now), is_chosen=False)
    assert await watch.wait_outdated(cast("VerifiedStub", None), update) is not None
    assert trio.current_time() - began == 30


async def test_a_stub_that_was_revoked_while_it_was_started_is_ended_at_once(
    rig: Rig, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    del autojump_clock
    monkeypatch.setattr(instance_watch, "judge_running", lambda *_, **__: Code.REVOKED)
    began, link = trio.current_time(), rig.pair.to_b
    documents = cast("DomainDocuments", RenewedDuringAnUpdate(began))
    watch = InstanceWatch(link, documents, DocumentNews(link.domain, documents, link.now), is_chosen=False)
    refusal = await watch.wait_outdated(cast("VerifiedStub", None))
    assert refusal is not None
    assert refusal.code is Code.REVOKED
    assert trio.current_time() == began


async def test_a_stub_ends_within_a_minute_after_the_operator_took_back_its_trust(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    began = trio.current_time()
    taken_back, link = TakenBack(began + 600), rig.pair.to_b
    documents = cast("DomainDocuments", taken_back)
    watch = InstanceWatch(link, documents, DocumentNews(link.domain, documents, link.now), is_chosen=False)
    refusal = await watch.wait_outdated(cast("VerifiedStub", None))
    assert refusal is not None
    assert refusal.code is Code.BROKEN_TRUST
    assert 600 <= trio.current_time() - began <= 660
    assert taken_back.asked == 1  # and nobody was asked while the trust stood
