"""What a resolver remembers, by values."""

from __future__ import annotations

import pytest

from catalogue_client.core.location import Location
from federation.core.discovery_cache import Blocked, DiscoveryCache, Known
from federation.core.discovery_errors import DiscoveryStep, Failure, failure_of
from federation.core.resolution import Resolved
from protofly.errors import Code, PeerError
from protofly.limits import RECENTLY_VALID_RETRY_SECONDS, RECENTLY_VALID_SECONDS


def test_a_place_is_known_until_its_life_is_over() -> None:
    cache, place = DiscoveryCache(), Location.of("b.example")
    cache.store("b.example", Resolved((place,), 100), now=0.0)
    assert cache.find("b.example", now=79.9) == Known(place, is_refresh_due=False)
    assert cache.find("b.example", now=80.0) == Known(place, is_refresh_due=True)
    assert cache.find("b.example", now=99.9) == Known(place, is_refresh_due=True)
    assert cache.find("b.example", now=100.0) is None


@pytest.mark.parametrize("code", [Code.DNS_FAILED, Code.NO_SUCH_DOMAIN])
def test_an_error_of_discovery_stands_for_the_failure_that_it_was_made_of(code: Code) -> None:
    failure = Failure("b.example", DiscoveryStep.CONNECT, code, "no answer", life_seconds=7.0)
    assert failure_of(failure.error(), domain="c.example") is failure
    other = failure_of(PeerError(code, ""), domain="c.example")
    assert (other.domain, other.code, other.detail) == ("c.example", code, code.word)


def test_a_domain_that_was_never_accepted_was_not_recently_valid() -> None:
    cache = DiscoveryCache()
    assert not cache.was_recently_valid("b.example", now=10.0)
    cache.store("b.example", Resolved((Location.of("b.example"),), 100), now=5.0)
    assert not cache.was_recently_valid("b.example", now=10.0)


NEAR, FAR = Location.of("b.example"), Location.of("mn.b.example")


def resolved(domain: str = "b.example", *, life: float = 100) -> Resolved:
    return Resolved((Location.of(domain),), life)


def failure(code: Code = Code.CONNECT_FAILED, domain: str = "b.example", *, life: float | None = None) -> Failure:
    return Failure(domain, DiscoveryStep.CONNECT, code, "no answer", life_seconds=life)


def test_documents_were_recently_accepted_for_two_hours() -> None:
    cache = DiscoveryCache()
    cache.store("b.example", resolved(), now=0.0)
    cache.succeeded("b.example", now=5.0)
    assert cache.was_recently_valid("b.example", now=5.0 + RECENTLY_VALID_SECONDS - 1)
    assert not cache.was_recently_valid("b.example", now=5.0 + RECENTLY_VALID_SECONDS)
    cache.store("b.example", resolved("mn.b.example"), now=6.0)  # a move changes nothing about it
    assert (cache.find("b.example", now=6.0), len(cache)) == (Known(FAR, is_refresh_due=False), 1)
    assert cache.was_recently_valid("b.example", now=7.0)
    assert not cache.was_recently_valid("c.example", now=5.0)


def test_a_stale_place_is_believed_for_two_minutes_more_and_never_shorter_than_before() -> None:
    cache = DiscoveryCache()
    assert cache.stale("b.example", now=0.0) is None
    cache.store("b.example", resolved(life=1000), now=0.0)
    assert cache.stale("b.example", now=10.0) == NEAR
    assert cache.find("b.example", now=999.0) == Known(NEAR, is_refresh_due=True)
    assert cache.stale("b.example", now=1000.0) == NEAR
    assert cache.find("b.example", now=999.0 + RECENTLY_VALID_RETRY_SECONDS) == Known(NEAR, is_refresh_due=True)
    assert cache.find("b.example", now=1000.0 + RECENTLY_VALID_RETRY_SECONDS) is None


def test_of_places_that_nobody_proved_the_one_looked_for_least_recently_is_forgotten() -> None:
    cache = DiscoveryCache(max_domains=1, max_negative_domains=2)
    for domain in ("b.example", "c.example"):
        cache.store(domain, resolved(domain), now=0.0)
    cache.find("b.example", now=1.0)
    cache.store("d.example", resolved("d.example"), now=2.0)
    assert [cache.find(f"{name}.example", now=3.0) is None for name in "bcd"] == [False, True, False]
    assert len(cache) == 2
    cache.succeeded("b.example", now=4.0)  # proved ones have a table of their own
    cache.store("e.example", resolved("e.example"), now=5.0)
    assert [cache.find(f"{name}.example", now=6.0) is None for name in "bde"] == [False, False, False]
    cache.succeeded("e.example", now=7.0)
    assert [cache.find(f"{name}.example", now=8.0) is None for name in "bde"] == [True, False, False]


def test_a_target_that_is_not_reached_costs_a_pause_when_no_other_is_left() -> None:
    cache = DiscoveryCache()
    cache.store("b.example", Resolved((NEAR, FAR), 100), now=0.0)
    assert cache.failed(failure(), now=1.0, draw=0.5) == 0.0
    assert cache.find("b.example", now=1.0) == Known(FAR, is_refresh_due=False)
    assert cache.failed(failure(), now=2.0, draw=0.5) == 5.0
    assert cache.find("b.example", now=3.0) == Blocked(failure(), 4.0, is_negative=False)
    assert cache.find("b.example", now=7.0) == Known(NEAR, is_refresh_due=False)
    assert cache.failed(failure(Code.FETCH_TIMEOUT), now=8.0, draw=0.5) == 10.0  # reached: the other would be as slow
    assert cache.stale("b.example", now=8.0) == NEAR


def test_targets_are_tried_in_the_order_in_which_the_domain_names_them() -> None:
    cache, last = DiscoveryCache(), Location.of("last.b.example")
    cache.store("b.example", Resolved((NEAR, FAR, last), 100), now=0.0)
    tried, pauses = [], []
    for now in (1.0, 2.0, 3.0):
        found = cache.find("b.example", now=now)
        assert isinstance(found, Known)
        tried.append(found.location)
        pauses.append(cache.failed(failure(), now=now, draw=0.5))
    assert (tried, pauses) == ([NEAR, FAR, last], [0.0, 0.0, 5.0])


def test_failures_in_a_row_are_counted_until_the_documents_are_accepted_or_the_operator_asks() -> None:
    cache = DiscoveryCache()
    pauses = [cache.failed(failure(Code.DNS_FAILED), now=0.0, draw=0.5) for _ in range(3)]
    assert (pauses, cache.negative_count, len(cache)) == ([5.0, 10.0, 20.0], 1, 0)
    cache.store("b.example", resolved(), now=30.0)
    assert (cache.negative_count, len(cache)) == (0, 1)
    assert cache.failed(failure(Code.FETCH_TIMEOUT), now=30.0, draw=0.5) == 40.0  # the count goes on beside the place
    cache.failed(failure(domain="c.example"), now=30.0, draw=0.5)
    assert cache.forget_failures() == 2
    assert cache.find("b.example", now=31.0) == Known(NEAR, is_refresh_due=False)
    assert (cache.find("c.example", now=31.0), cache.negative_count, cache.forget_failures()) == (None, 0, 0)
    cache.failed(failure(Code.FETCH_TIMEOUT), now=32.0, draw=0.5)
    cache.succeeded("b.example", now=33.0)
    assert cache.find("b.example", now=34.0) == Known(NEAR, is_refresh_due=False)
    assert cache.failed(failure(Code.FETCH_TIMEOUT), now=35.0, draw=0.5) == 5.0
    cache.failed(failure(domain="c.example"), now=35.0, draw=0.5)
    cache.succeeded("c.example", now=36.0)
    assert cache.find("c.example", now=36.0) is None


@pytest.mark.parametrize(("is_waiting", "pause"), [(True, 600.0), (False, 640.0)])
def test_after_many_failures_a_domain_is_left_alone_for_less_time_while_messages_wait_for_it(
    pause: float, *, is_waiting: bool
) -> None:
    cache = DiscoveryCache()
    pauses = [cache.failed(failure(Code.DNS_FAILED), now=0.0, draw=0.5, is_waiting=is_waiting) for _ in range(8)]
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, pause]


def test_a_domain_that_says_no_is_left_alone_as_long_as_its_zone_says_or_two_minutes_if_it_worked_lately() -> None:
    cache, said_no = DiscoveryCache(), failure(Code.SERVICE_DECLINED, life=900.0)
    assert cache.failed(said_no, now=0.0, draw=0.5) == 900.0
    assert cache.find("b.example", now=1.0) == Blocked(said_no, 899.0, is_negative=True)
    assert cache.failed(failure(Code.DNS_FAILED), now=901.0, draw=0.5) == 10.0  # the second failure in a row
    cache.store("b.example", resolved(), now=1000.0)
    cache.succeeded("b.example", now=1000.0)
    assert cache.failed(said_no, now=1001.0, draw=0.5) == RECENTLY_VALID_RETRY_SECONDS


def test_of_too_many_failures_the_oldest_are_forgotten() -> None:
    cache = DiscoveryCache(max_negative_domains=2)
    for name in "bcbd":
        cache.failed(failure(domain=f"{name}.example"), now=0.0, draw=0.5)
    assert cache.negative_count == 2
    assert [cache.find(f"{name}.example", now=1.0) is None for name in "bcd"] == [False, True, False]


@pytest.mark.parametrize(
    ("detail", "is_temporary"),
    [
        *(("500", True), ("503 Service Unavailable", True), ("408 Request Timeout", True), ("425", True)),
        *(("429 Too Many Requests", True), ("404 Not Found", False), ("400", False), ("4290", True), ("", False)),
    ],
)
def test_trouble_of_a_server_passes_and_its_answer_does_not(detail: str, is_temporary: bool) -> None:
    assert Failure("b.example", DiscoveryStep.LIVE_DOCUMENT, Code.HTTP_STATUS, detail).is_temporary is is_temporary
