"""What a resolver remembers, by values."""

from __future__ import annotations

import pytest

from catalogue_client.core.location import Location
from federation.core.discovery_cache import DiscoveryCache, Known
from federation.core.discovery_errors import DiscoveryStep, Failure, failure_of
from federation.core.resolution import Resolved
from protofly.errors import Code, PeerError


def test_a_place_is_known_until_its_life_is_over() -> None:
    cache, place = DiscoveryCache(), Location.of("b.example")
    cache.store("b.example", Resolved((place,), 100), now=0.0)
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
