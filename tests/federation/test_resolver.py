"""Look-ups with what is remembered around them: caches, back-off, one flight per domain, explanations."""

import ssl
from collections.abc import Callable

import pytest
import trio
import trio.testing

from catalogue_client.http_fetcher import HttpFetcher
from federation.core.discovery_errors import DiscoveryError, DiscoveryLineError, DiscoveryStep
from federation.core.name_questions import Answer, AnswerStatus, ServiceRecord
from federation.core.resolution import PeerEntry
from federation.discovery.attempt_log import AttemptLog
from federation.discovery.dialler import Dialler
from federation.discovery.logged_fetcher import LoggedFetcher, step_of_url
from federation.discovery.resolver import Resolver
from protofly.errors import Code, HostError, PeerError, TransportError
from tests.support.names import SILENCE, ScriptedNames, name_service, names_with_addresses

SVCB = "SVCB _rethink-mn.b.example"
TXT = "TXT _rethink-mn.b.example"
GOOD_SVCB = Answer(AnswerStatus.FOUND, services=(ServiceRecord(1, "mn.b.example", 8443),), ttl_seconds=300)
HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def has(code: Code) -> Callable[[HostError], bool]:
    return lambda error: error.code is code


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def names() -> ScriptedNames:
    return ScriptedNames({SVCB: GOOD_SVCB})


@pytest.fixture
def resolver(names: ScriptedNames, clock: Clock) -> Resolver:
    return Resolver(names, own_domains=["a.example"], log=AttemptLog(clock), draw=lambda: 0.5)


async def test_location_is_found_once_and_remembered(names: ScriptedNames, resolver: Resolver) -> None:
    first = await resolver.resolve("b.example")
    assert first.connect_to == ("mn.b.example", 8443)
    assert await resolver.resolve("b.example") is first
    assert len(names.asked) == 3
    assert resolver.statistics().lookups == 1


async def test_complete_peer_entry_asks_nobody(names: ScriptedNames, clock: Clock) -> None:
    entry = PeerEntry(domain="b.example", well_known_url="https://b.example:8444/.well-known/rethink-mn")
    resolver = Resolver(names, own_domains=["a.example"], peers={"b.example": entry}, log=AttemptLog(clock))
    assert (await resolver.resolve("b.example")).well_known_url == entry.well_known_url
    assert names.asked == []


async def test_failure_of_a_named_peer_that_worked_lately_costs_two_minutes(names: ScriptedNames, clock: Clock) -> None:
    entry = PeerEntry.of_settings("b.example", connect="10.7.0.1:8444")
    resolver = Resolver(names, own_domains=["a.example"], peers={"b.example": entry}, log=AttemptLog(clock))
    location = await resolver.resolve("b.example")
    resolver.report_success("b.example")
    assert await resolver.resolve("b.example") == location
    assert resolver.report_failure("b.example", PeerError(Code.HTTP_STATUS, "404")) == 120
    assert names.asked == []


async def test_place_is_asked_for_again_when_its_time_is_over(
    names: ScriptedNames, resolver: Resolver, clock: Clock
) -> None:
    await resolver.resolve("b.example")
    clock.now += 299
    await resolver.resolve("b.example")
    assert len(names.asked) == 3
    clock.now += 2
    await resolver.resolve("b.example")
    assert len(names.asked) == 6


async def test_place_in_use_is_refreshed_in_the_background(
    names: ScriptedNames, resolver: Resolver, clock: Clock
) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(resolver.run)
        await resolver.resolve("b.example")
        names.answers[TXT] = Answer(AnswerStatus.FOUND, texts=("v=rmn1; id=2",), ttl_seconds=300)
        clock.now += 250
        for _ in range(5):
            assert (await resolver.resolve("b.example")).change_id == ""  # at once, as it was
        await trio.testing.wait_all_tasks_blocked()
        assert (await resolver.resolve("b.example")).change_id == "2"
        assert resolver.statistics().lookups == 2
        nursery.cancel_scope.cancel()


async def test_leader_cancelled_hands_over_to_one_who_waits(names: ScriptedNames, resolver: Resolver) -> None:
    names.gate = trio.Event()
    leader = trio.CancelScope()

    async def lead() -> None:
        with leader:
            await resolver.resolve("b.example")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lead)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(resolver.resolve, "b.example")
        await trio.testing.wait_all_tasks_blocked()
        leader.cancel()
        await trio.testing.wait_all_tasks_blocked()
        names.gate.set()
    assert resolver.statistics().in_flight == 0
    assert resolver.statistics().lookups == 2
    assert resolver.explain("b.example").state == "known"


async def test_silent_name_servers_give_back_off_that_doubles_and_says_how_long(
    names: ScriptedNames, resolver: Resolver, clock: Clock
) -> None:
    names.answers, names.default = {}, SILENCE
    with pytest.raises(TransportError, check=has(Code.DNS_FAILED)):
        await resolver.resolve("b.example")
    asked = len(names.asked)
    with pytest.raises(DiscoveryLineError, match="next attempt in 5 s", check=has(Code.DISCOVERY_BACKOFF)) as caught:
        await resolver.resolve("b.example")
    assert caught.value.retry_after_seconds == 5
    assert len(names.asked) == asked
    clock.now += 5
    with pytest.raises(DiscoveryLineError, check=has(Code.DNS_FAILED)):
        await resolver.resolve("b.example")
    with pytest.raises(DiscoveryLineError, match="next attempt in 10 s"):
        await resolver.resolve("b.example")


async def test_operator_ends_the_back_off_of_domains_with_and_without_a_known_place(
    names: ScriptedNames, resolver: Resolver
) -> None:
    await resolver.resolve("b.example")
    resolver.report_failure("b.example", PeerError(Code.REVOKED, "its stub"))
    good, names.answers, names.default = names.answers, {}, SILENCE
    with pytest.raises(DiscoveryLineError):
        await resolver.resolve("c.example")
    names.answers = good
    for domain in ("b.example", "c.example"):
        with pytest.raises((DiscoveryError, DiscoveryLineError)):
            await resolver.resolve(domain)
    asked = len(names.asked)
    assert resolver.forget_failures() == 2
    assert (await resolver.resolve("b.example")).connect_host == "mn.b.example"
    assert len(names.asked) == asked
    with pytest.raises(DiscoveryLineError):
        await resolver.resolve("c.example")
    assert len(names.asked) > asked
    assert resolver.forget_failures() == 1
    assert resolver.forget_failures() == 0


async def test_connection_that_failed_goes_to_the_next_target_before_it_backs_off(
    names: ScriptedNames, resolver: Resolver
) -> None:
    records = (ServiceRecord(1, "one.b.example", 8443), ServiceRecord(2, "two.b.example", 8443))
    names.answers[SVCB] = Answer(AnswerStatus.FOUND, services=records, ttl_seconds=300)
    assert (await resolver.resolve("b.example")).connect_host == "one.b.example"
    gone = TransportError(Code.CONNECT_FAILED, "refused", phase="connect")
    assert resolver.report_failure("b.example", gone) == 0
    assert (await resolver.resolve("b.example")).connect_host == "two.b.example"
    assert resolver.report_failure("b.example", gone) == 5
    with pytest.raises(DiscoveryLineError, match="connect-failed", check=has(Code.DISCOVERY_BACKOFF)):
        await resolver.resolve("b.example")


async def test_success_ends_the_count_of_failures(resolver: Resolver, clock: Clock) -> None:
    await resolver.resolve("b.example")
    gone = TransportError(Code.CONNECT_FAILED, "refused", phase="connect")
    assert [resolver.report_failure("b.example", gone) for _ in range(3)] == [5, 10, 20]
    assert resolver.report_success("b.example", max_age_seconds=1000) == pytest.approx(800)
    assert (await resolver.resolve("b.example")).connect_host == "mn.b.example"
    assert resolver.report_failure("b.example", gone) == 5


async def test_back_off_of_an_idle_domain_grows_further(resolver: Resolver) -> None:
    gone = TransportError(Code.CONNECT_FAILED, "refused", phase="connect")
    pauses = [resolver.report_failure("b.example", gone, is_waiting=False) for _ in range(20)]
    assert pauses[8] == 1280
    assert pauses[-1] == 86_400


async def test_error_carries_step_reason_and_everything_that_was_tried(
    names: ScriptedNames, resolver: Resolver
) -> None:
    names.answers[SVCB] = Answer(AnswerStatus.FOUND, services=(ServiceRecord(0, ""),), ttl_seconds=900)
    with pytest.raises(DiscoveryError, check=has(Code.SERVICE_DECLINED)) as caught:
        await resolver.resolve("b.example")
    failure = caught.value.failure
    assert failure.reason == "discovery-failed:svcb"
    assert caught.value.domain == "b.example"
    assert {attempt.subject for attempt in failure.attempts} == {TXT, SVCB, "SRV _rethink-mn._tcp.b.example"}
    explanation = resolver.explain("b.example")
    assert (explanation.state, explanation.reason, explanation.code) == ("negative", failure.reason, "service-declined")
    assert explanation.retry_after_seconds == 900
    assert any("0 .:-" in str(attempt) for attempt in explanation.attempts)


async def test_errors_of_later_steps_are_explained_too(resolver: Resolver) -> None:
    await resolver.resolve("b.example")
    resolver.report_failure("b.example", PeerError(Code.REDIRECT_REFUSED, "302 to 'http://10.0.0.1/'"))
    explanation = resolver.explain("b.example")
    assert (explanation.reason, explanation.code) == ("discovery-failed:live_document", "redirect-refused")
    assert "302" in explanation.detail
    assert len(explanation.attempts) == 3
    with pytest.raises(DiscoveryError, check=has(Code.REDIRECT_REFUSED)):
        await resolver.resolve("b.example")


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_a_step_and_becomes_an_error_with_that_code(code: Code, resolver: Resolver) -> None:
    resolver.report_failure("b.example", PeerError(code, "why"))
    explanation = resolver.explain("b.example")
    assert explanation.code == code.word
    assert explanation.reason.removeprefix("discovery-failed:") in {step.value for step in DiscoveryStep}


async def test_queries_connections_and_urls_make_one_chain_of_attempts(clock: Clock) -> None:
    names = names_with_addresses(b_example=["127.0.0.1"])
    log = AttemptLog(clock)
    resolver = Resolver(names, own_domains=["a.example"], log=log)
    location = await resolver.resolve("b.example")
    dialler = Dialler(names, log=log, clock=clock)
    fetcher = LoggedFetcher(HttpFetcher(dialler, ssl.create_default_context()), log)
    with pytest.raises(PeerError) as caught:
        await fetcher.fetch(location.well_known_url, domain="b.example", max_bytes=1000, deadline_seconds=5)
    resolver.report_failure("b.example", caught.value)
    explanation = resolver.explain("b.example")
    assert (explanation.reason, explanation.code) == ("discovery-failed:address", "address-refused")
    tried = [(attempt.step, attempt.outcome) for attempt in explanation.attempts]
    assert [step for step, _ in tried].count(DiscoveryStep.ADDRESS) == 3
    assert tried[-1] == (DiscoveryStep.LIVE_DOCUMENT, "address-refused")
    assert explanation.attempts[-1].subject == f"GET {location.well_known_url}"


@pytest.mark.parametrize(
    ("url", "step"),
    [
        ("https://b.example/.well-known/rethink-mn", DiscoveryStep.LIVE_DOCUMENT),
        ("https://b.example:8444/.well-known/rethink-mn?x=1", DiscoveryStep.LIVE_DOCUMENT),
        ("https://b.example/.well-known/rethink-mn/root/3", DiscoveryStep.ROOT),
        ("https://b.example/.well-known/rethink-mn/manifest/default", DiscoveryStep.MANIFEST),
        ("https://cdn.example/link.wasm", DiscoveryStep.MODULE),
        ("https://[", DiscoveryStep.MODULE),
    ],
)
def test_url_shows_the_step(url: str, step: DiscoveryStep) -> None:
    assert step_of_url(url) is step


async def test_unknown_domain_is_explained_as_unknown(resolver: Resolver) -> None:
    assert resolver.explain("c.example").state == "not-asked"
    await resolver.resolve("b.example")
    assert resolver.explain("b.example").state == "known"


async def test_lookup_that_takes_too_long_ends(names: ScriptedNames, autojump_clock: trio.testing.MockClock) -> None:
    names.gate = trio.Event()  # never set
    resolver = Resolver(names, own_domains=["a.example"])
    with pytest.raises(DiscoveryLineError, match="within 12 s", check=has(Code.DNS_FAILED)) as caught:
        await resolver.resolve("b.example")
    assert {attempt.outcome for attempt in caught.value.failure.attempts} == {"cancelled"}


async def test_validated_pin_comes_through_real_name_servers_that_are_believed() -> None:
    pin = "x" * 43
    records = {
        "_rethink-mn.b.example": [f'TXT "v=rmn1; id=7; k={pin}"', "SVCB 1 mn.b.example. port=8443 ipv4hint=10.0.0.1"]
    }
    for believes in (True, False):
        async with name_service(records, is_validating=True, believes_ad=believes) as (_, client):
            location = await Resolver(client, own_domains=["a.example"]).resolve("b.example")
        assert (location.change_id, location.pin_hint, location.pin_is_validated) == ("7", pin, believes)
        assert location.connect_to == ("mn.b.example", 8443)
