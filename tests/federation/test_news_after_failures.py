"""A running stub whose lines fail: newer documents are asked for, within bounds, and a moved endpoint is followed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from federation.discovery.document_news import DocumentNews
from federation.discovery.domain_documents import DomainDocuments
from federation.stubs.instance_watch import InstanceWatch
from protofly.documents import ABI_MAJOR, ABI_NAME, Abi, StubReference
from protofly.errors import Code, TransportError
from tests.support.sides import Bus, Clock, Pair

HOUR_SECONDS = 3_600.0
OLD, NEW = "wss://old.b.example/link", "wss://new.b.example/link"


def an_endpoint(url: str) -> SimpleNamespace:
    return SimpleNamespace(name="mn", url=url, spki=())


class Documents:
    """What b.example publishes, and how often it was asked."""

    def __init__(self) -> None:
        self.url = OLD
        self.stubs: dict[str, StubReference] = {}
        self.asked: list[float] = []
        self.began_seconds = trio.current_time()
        self.is_site_down = False
        self.askable_in_seconds = 0.0

    def seconds_until_refresh(self, _domain: str) -> float:
        known_since = self.asked[-1] if self.asked else self.began_seconds
        return max(0.0, known_since + HOUR_SECONDS - trio.current_time())

    def seconds_until_askable(self, _domain: str) -> float:
        return self.askable_in_seconds

    def believed(self, _domain: str) -> Any:
        """Nothing that is at hand."""

    async def wait_renewed(self, _domain: str, _version: bytes) -> None:
        await trio.sleep_forever()

    def is_forgotten(self, _domain: str) -> bool:
        return False

    async def trust_of(self, _domain: str, *, is_refresh: bool) -> Any:
        await trio.lowlevel.checkpoint()
        assert is_refresh
        self.asked.append(trio.current_time())
        if self.is_site_down:
            raise TransportError(Code.CONNECT_FAILED, "nobody there")
        live = SimpleNamespace(domain="b.example", stubs=self.stubs, endpoints=[an_endpoint(self.url)])
        return SimpleNamespace(live=live, live_envelope=b"")


class Running:
    """The watch over one running stub, in the time of the test."""

    def __init__(self) -> None:
        self.documents = Documents()
        self.pair = Pair(a=Bus("a.example", clock=Clock(monotonic=trio.current_time)))
        link, documents = self.pair.to_b, cast("DomainDocuments", self.documents)
        self.news = DocumentNews(link.domain, documents, link.now)
        self.instance_watch = InstanceWatch(link, documents, self.news, is_chosen=False)
        permissions = SimpleNamespace(connect=["mn"])
        self.stub: Any = SimpleNamespace(
            endpoints={"mn": an_endpoint(OLD)},
            manifest=SimpleNamespace(permissions=permissions),
            manifest_sha256="",
        )
        self.replaced_at: float | None = None

    @property
    def is_replaced(self) -> bool:
        return self.replaced_at is not None

    async def watch(self) -> None:
        refusal = await self.instance_watch.wait_outdated(self.stub, _takes_over)
        assert refusal is None
        self.replaced_at = trio.current_time()

    async def fails_for(self, seconds: float, *, every: float = 5.0) -> None:
        ends = trio.current_time() + seconds
        while trio.current_time() < ends and self.replaced_at is None:
            self.news.line_failed()
            await trio.sleep(every)


async def _takes_over() -> bool:
    await trio.lowlevel.checkpoint()
    return True


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.setattr("federation.stubs.instance_watch.judge_running", lambda *_args, **_named: None)
    return Running()


async def test_a_failed_line_finds_a_moved_endpoint_at_once(
    running: Running, autojump_clock: trio.testing.MockClock
) -> None:
    running.documents.url = NEW
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.watch)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await running.fails_for(60.0)
        assert running.replaced_at is not None
        assert running.replaced_at - began < 1.0
        assert len(running.documents.asked) == 1


async def test_documents_of_a_moment_ago_are_asked_for_when_they_may_be(
    running: Running, autojump_clock: trio.testing.MockClock
) -> None:
    running.documents.url, running.documents.askable_in_seconds = NEW, 40.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.watch)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await running.fails_for(90.0)
        assert running.replaced_at is not None
        assert 40.0 <= running.replaced_at - began < 46.0


@pytest.mark.parametrize("is_site_down", [True, False])
async def test_a_domain_that_is_away_is_not_hammered(
    running: Running, autojump_clock: trio.testing.MockClock, is_site_down: bool
) -> None:
    running.documents.is_site_down = is_site_down
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.watch)
        await trio.testing.wait_all_tasks_blocked()
        await running.fails_for(HOUR_SECONDS)
        assert not running.is_replaced
        assert 5 <= len(running.documents.asked) <= 11
        running.documents.url, running.documents.is_site_down = NEW, False
        await running.fails_for(700.0)
        assert running.replaced_at is not None
        nursery.cancel_scope.cancel()


async def test_an_endpoint_that_moves_while_its_line_holds_disturbs_nobody(
    running: Running, autojump_clock: trio.testing.MockClock
) -> None:
    running.documents.url = NEW
    carrier = running.pair.carrier()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.watch)
        carrier.open()
        await trio.sleep(2 * HOUR_SECONDS + 1)
        assert (len(running.documents.asked), running.replaced_at) == (2, None)
        carrier.cut()
        await running.fails_for(60.0)
        assert running.replaced_at is not None
        nursery.cancel_scope.cancel()


def a_stub(manifest_sha256: str, *, version: str = str(ABI_MAJOR)) -> StubReference:
    abi = Abi(name=ABI_NAME, version=version)
    return StubReference(name="b", serial=1, version="1", manifest_sha256=manifest_sha256, abi=abi)


@pytest.mark.parametrize(
    ("stubs", "is_replaced"),
    [
        ({"default": a_stub("new"), "old": a_stub("running")}, True),
        ({"default": a_stub("new"), "default-old": a_stub("running")}, False),
        ({"default": a_stub("new", version="99")}, False),
    ],
)
async def test_a_stub_is_replaced_when_it_would_not_be_tried_any_more(
    running: Running, autojump_clock: trio.testing.MockClock, stubs: dict[str, StubReference], is_replaced: bool
) -> None:
    running.stub.manifest_sha256, running.documents.stubs = "running", stubs
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.watch)
        await trio.sleep(2 * HOUR_SECONDS)
        assert running.is_replaced is is_replaced
        nursery.cancel_scope.cancel()
