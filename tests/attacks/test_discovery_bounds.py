"""Attack rows 13 to 15: floods of names, poisoned negative answers, many first messages at once, lying name servers."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from federation.core.discovery_errors import DiscoveryError, DiscoveryLineError
from federation.core.name_questions import Answer, AnswerStatus, Question, RecordKind, ServiceRecord
from federation.core.resolution import PeerEntry
from federation.discovery.attempt_log import AttemptLog
from federation.discovery.resolver import VISITOR, Resolver
from interop.name_server import Fault
from msg_node.addresses.core.askers import asker_of
from protofly import limits
from protofly.errors import Code, PeerError, TransportError
from tests.support.names import SILENCE, ScriptedNames, name_service
from tests.support.runtime_rig import DOMAIN, runtime_rig
from tests.support.services import PATIENCE_SECONDS

SVCB = "SVCB _rethink-mn.b.example"
GOOD_SVCB = Answer(AnswerStatus.FOUND, services=(ServiceRecord(1, "mn.b.example", 8443),), ttl_seconds=86_400)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


async def quietly(resolve: Callable[..., Awaitable[object]], name: str, **asked: str) -> None:
    """Look a name up that may not exist."""
    with contextlib.suppress(PeerError, TransportError):
        await resolve(name, **asked)


def make_resolver(names: ScriptedNames, clock: Clock) -> Resolver:
    return Resolver(names, own_domains=["a.example"], log=AttemptLog(clock), draw=lambda: 0.5)


async def ask_for_random_names(resolver: Resolver, clock: Clock, *, askers: int) -> int:
    """10 000 names within a minute; how many were refused."""
    refused = 0
    for number in range(10_000):
        clock.now += 60 / 10_000
        try:
            await resolver.resolve(f"d{number}.example", asked_by=f"runtime://a.example/{number % askers}")
        except DiscoveryError as error:
            refused += error.code is Code.RATE
    return refused


async def test_one_user_asking_for_10000_names_gets_few_and_harms_nobody() -> None:
    names, clock = ScriptedNames({SVCB: GOOD_SVCB}), Clock()
    resolver = make_resolver(names, clock)
    good = await resolver.resolve("b.example")
    resolver.report_success("b.example")
    refused = await ask_for_random_names(resolver, clock, askers=1)
    assert 10_000 - refused <= limits.DISCOVERIES_PER_MINUTE_AND_ASKER + 11
    assert len(names.asked) <= 3 * (limits.DISCOVERIES_PER_MINUTE_AND_ASKER + 12)
    assert await resolver.resolve("b.example") is good
    await resolver.resolve("new.example", asked_by="runtime://a.example/somebody-else")


async def test_a_runtime_that_asks_from_10000_addresses_gets_what_one_gets() -> None:
    names, clock = ScriptedNames({SVCB: GOOD_SVCB}), Clock()
    resolver = make_resolver(names, clock)
    resolver.asker_of = lambda address: "session 1" if "/mal" in address else address
    refused = 0
    for number in range(10_000):
        clock.now += 60 / 10_000
        try:
            await resolver.resolve(f"d{number}.example", asked_by=f"hyperty://a.example/mal-{number}")
        except DiscoveryError as error:
            refused += error.code is Code.RATE
    assert 10_000 - refused <= limits.DISCOVERIES_PER_MINUTE_AND_ASKER + 11
    await resolver.resolve("new.example", asked_by="hyperty://a.example/somebody")


async def test_all_addresses_of_a_runtime_are_one_asker(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        mal = await rig.opened("mal")
        hyperty = await mal.allocated("hyperty")
        own = [mal.address, f"{mal.address}/part", hyperty, f"{hyperty}/below"]
        [asker] = {asker_of(rig.state, one) for one in own}
        assert asker.startswith("session ")
        ben = await rig.opened("ben")
        assert asker_of(rig.state, ben.address) not in (asker, "nobody")
        nobodys = [f"hyperty://{DOMAIN}/free-{number}" for number in range(3)]
        assert {asker_of(rig.state, one) for one in (*nobodys, "no address")} == {"nobody"}


async def test_a_visitor_that_claims_10000_names_leaves_look_ups_for_others_and_for_named_peers() -> None:
    names, clock = ScriptedNames({SVCB: GOOD_SVCB}), Clock()
    peers = {"b.example": PeerEntry(domain="b.example")}
    resolver = Resolver(names, own_domains=["a.example"], peers=peers, log=AttemptLog(clock), draw=lambda: 0.5)
    visitor, refused = f"{VISITOR}192.0.2.1", 0
    for number in range(10_000):
        clock.now += 60 / 10_000
        try:
            await resolver.resolve(f"d{number}.example", asked_by=visitor)
        except DiscoveryError as error:
            refused += error.code is Code.RATE
    assert 10_000 - refused <= limits.DISCOVERIES_PER_MINUTE_AND_ASKER + 11
    await resolver.resolve("b.example", asked_by=visitor)
    await resolver.resolve("new.example", asked_by="runtime://a.example/somebody")
    await resolver.resolve("other.example", asked_by=f"{VISITOR}192.0.2.2")


async def test_many_users_asking_for_10000_names_stay_below_the_total_and_keep_good_entries() -> None:
    names, clock = ScriptedNames({SVCB: GOOD_SVCB}), Clock()
    resolver = make_resolver(names, clock)
    good = await resolver.resolve("b.example")
    resolver.report_success("b.example")
    refused = await ask_for_random_names(resolver, clock, askers=10_000)
    assert 10_000 - refused <= limits.DISCOVERIES_PER_MINUTE + 101
    assert await resolver.resolve("b.example") is good


@pytest.mark.parametrize("is_found", [True, False])
async def test_tables_stay_bounded_whatever_is_asked(is_found: bool) -> None:
    names, clock = ScriptedNames(), Clock()
    names.answers[SVCB] = GOOD_SVCB
    resolver = make_resolver(names, clock)
    good = await resolver.resolve("b.example")
    resolver.report_success("b.example")
    if not is_found:
        names.default = SILENCE
    for number in range(3 * limits.DISCOVERY_NEGATIVE_DOMAINS):
        clock.now += 1.0  # slowly enough for every rate
        with contextlib.suppress(DiscoveryLineError):
            await resolver.resolve(f"d{number}.example")
    statistics = resolver.statistics()
    assert statistics.places <= limits.DISCOVERY_NEGATIVE_DOMAINS + 1
    assert statistics.negative <= limits.DISCOVERY_NEGATIVE_DOMAINS
    assert await resolver.resolve("b.example") is good


async def test_one_404_costs_an_hour_and_no_more() -> None:
    names, clock = ScriptedNames({SVCB: GOOD_SVCB}), Clock()
    resolver = make_resolver(names, clock)
    await resolver.resolve("b.example")
    pause = resolver.report_failure("b.example", PeerError(Code.HTTP_STATUS, "404"))
    assert pause == pytest.approx(3600)
    with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.HTTP_STATUS):
        await resolver.resolve("b.example")
    clock.now += pause
    assert (await resolver.resolve("b.example")).connect_host == "mn.b.example"


async def test_404_of_a_domain_that_worked_lately_costs_two_minutes() -> None:
    names, clock = ScriptedNames({SVCB: GOOD_SVCB}), Clock()
    resolver = make_resolver(names, clock)
    await resolver.resolve("b.example")
    resolver.report_success("b.example")
    clock.now += 7000
    assert resolver.report_failure("b.example", PeerError(Code.HTTP_STATUS, "404")) == 120


@pytest.mark.parametrize("status", ["500", "503", "429"])
async def test_server_in_trouble_is_a_back_off_of_seconds_not_a_negative_answer(status: str) -> None:
    resolver = make_resolver(ScriptedNames({SVCB: GOOD_SVCB}), Clock())
    await resolver.resolve("b.example")
    assert resolver.report_failure("b.example", PeerError(Code.HTTP_STATUS, status)) == 5
    with pytest.raises(DiscoveryLineError, match=f"http-status: {status}"):
        await resolver.resolve("b.example")


async def test_silent_name_servers_leave_the_last_known_place(autojump_clock: trio.testing.MockClock) -> None:
    names, clock = ScriptedNames({SVCB: GOOD_SVCB}), Clock()
    resolver = make_resolver(names, clock)
    good = await resolver.resolve("b.example")
    resolver.report_success("b.example")
    names.answers, names.default = {}, SILENCE
    clock.now += 86_401
    assert await resolver.resolve("b.example") is good
    assert resolver.statistics().stale_used == 1
    assert any("last known place" in attempt.subject for attempt in resolver.explain("b.example").attempts)


async def test_domain_that_worked_lately_gets_three_attempts(autojump_clock: trio.testing.MockClock) -> None:
    good = Answer(AnswerStatus.FOUND, services=GOOD_SVCB.services, ttl_seconds=60)
    names, clock = ScriptedNames({SVCB: [good, SILENCE, SILENCE, good]}), Clock()
    names.default = SILENCE
    resolver = make_resolver(names, clock)
    await resolver.resolve("b.example")
    resolver.report_success("b.example")
    clock.now += 400
    began = trio.current_time()
    assert (await resolver.resolve("b.example")).connect_host == "mn.b.example"
    assert trio.current_time() - began == pytest.approx(1.0)
    assert names.asked.count(SVCB) == 4
    assert resolver.statistics().stale_used == 0


async def test_flood_of_first_messages_makes_exactly_one_discovery() -> None:
    names = ScriptedNames({SVCB: GOOD_SVCB})
    names.gate = trio.Event()
    resolver = make_resolver(names, Clock())
    found = []

    async def ask(number: int) -> None:
        found.append(await resolver.resolve("b.example", asked_by=f"runtime://a.example/{number}"))

    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(ask, number)
        await trio.testing.wait_all_tasks_blocked()
        names.gate.set()
    assert len(found) == 1000
    assert len(set(map(id, found))) == 1
    assert len(names.asked) == 3


async def test_flood_for_a_domain_that_fails_gives_everybody_the_reason_and_one_discovery() -> None:
    names = ScriptedNames()
    names.default = SILENCE
    names.gate = trio.Event()
    resolver = make_resolver(names, Clock())
    errors: list[TransportError] = []

    async def ask() -> None:
        with pytest.raises(TransportError) as caught:
            await resolver.resolve("b.example")
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        names.gate.set()
    assert {error.code for error in errors} == {Code.DNS_FAILED}
    assert len(set(map(id, errors))) == 100
    assert len(names.asked) == 3


async def test_lookups_under_way_are_bounded() -> None:
    names = ScriptedNames()
    names.gate = trio.Event()
    resolver = make_resolver(names, Clock())
    async with trio.open_nursery() as nursery:
        for number in range(90):
            nursery.start_soon(resolver.resolve, f"d{number}.example")
        await trio.testing.wait_all_tasks_blocked()
        assert len(names.asked) == 3 * limits.DISCOVERY_IN_FLIGHT
        names.gate.set()
    assert len(names.asked) == 3 * 90


def of_runtime(number: int) -> str:
    return f"runtime://a.example/mal-{number}"


def of_stranger(number: int) -> str:
    return f"{VISITOR}192.0.2.{number}"


@pytest.mark.parametrize(
    ("mal", "honest"), [(of_runtime, of_stranger(99)), (of_stranger, of_runtime(99))], ids=["runtimes", "strangers"]
)
async def test_askers_of_names_that_nobody_answers_delay_no_peer_and_nobody_of_another_kind(
    mal: Callable[[int], str], honest: str
) -> None:
    """A name server may be silent for 12 s: a few askers would have all places, for as long as they like."""
    names, peer = ScriptedNames({SVCB: GOOD_SVCB}), {"b.example": PeerEntry(domain="b.example")}
    names.stalled = trio.Event()
    resolver = Resolver(names, own_domains=["a.example"], peers=peer, log=AttemptLog(Clock()), draw=lambda: 0.5)
    async with trio.open_nursery() as nursery:
        for number in range(60):
            asker, name = mal(number % 20), f"silent-{number}.example"
            nursery.start_soon(partial(quietly, resolver.resolve, name, asked_by=asker))
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(PATIENCE_SECONDS):
            for asker in (mal(0), honest, ""):
                await resolver.resolve("b.example", asked_by=asker)
            await quietly(resolver.resolve, "other.example", asked_by=honest)
        names.stalled.set()
    assert resolver.statistics().in_flight == 0
    assert resolver._places._askers == {}


async def test_one_asker_of_names_that_nobody_answers_leaves_places_to_its_neighbours() -> None:
    names = ScriptedNames({SVCB: GOOD_SVCB})
    names.stalled = trio.Event()
    resolver = make_resolver(names, Clock())
    async with trio.open_nursery() as nursery:
        for number in range(10):  # beyond its own places: the last one is the domain of somebody else
            name = "b.example" if number == 9 else f"silent-{number}.example"
            nursery.start_soon(partial(quietly, resolver.resolve, name, asked_by=of_stranger(1)))
        await trio.testing.wait_all_tasks_blocked()
        assert resolver.statistics().in_flight == limits.DISCOVERY_IN_FLIGHT_PER_ASKER
        with trio.fail_after(PATIENCE_SECONDS):
            await resolver.resolve("b.example", asked_by=of_stranger(2))
        names.stalled.set()


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.WRONG_ID, Fault.WRONG_QUESTION, Fault.GARBAGE, Fault.TRUNCATED])
async def test_answers_that_are_none_end_in_time_as_a_failed_question(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with name_service({"mn.b.example": ["A 127.0.0.1"]}, faults={"mn.b.example": fault}) as (_, client):
        with monkeypatch.context() as short, trio.fail_after(PATIENCE_SECONDS):
            short.setattr(limits, "DNS_QUESTION_SECONDS", 0.1)
            answer = await client.ask(Question("mn.b.example", RecordKind.A))
        assert answer.status is AnswerStatus.FAILED
        assert answer.addresses == ()
        assert (await client.ask(Question("other.b.example", RecordKind.A))).status is AnswerStatus.NO_NAME
