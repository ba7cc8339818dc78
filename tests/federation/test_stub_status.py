"""The addresses of stubs on our node: what a foreign node may take for the name of one session."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from federation.core.stub_status import STATES_KEPT, StepTimes, StubAddresses, StubStatus
from protofly.address import canonical_key
from protofly.limits import HEADER_CHARS

NODE = "runtime://a.example/mn-1"
DOMAINS = ("b.example", "b.example.evil", "xn--bcher-kva.example", "b.example:8443", "localhost", "b" * 63 + ".example")
KEYS = st.binary(min_size=1, max_size=64)


@given(KEYS)
def test_a_stub_has_the_same_address_after_a_restart_and_each_domain_its_own(key: bytes) -> None:
    before, after = StubAddresses(NODE, key), StubAddresses(NODE, key)
    assert [before.of(domain) for domain in DOMAINS] == [after.of(domain) for domain in DOMAINS]
    assert len({before.of(domain) for domain in DOMAINS}) == len(DOMAINS)


@given(KEYS, KEYS)
def test_two_nodes_of_one_name_share_no_stub_address(one: bytes, other: bytes) -> None:
    mine = {StubAddresses(NODE, one).of(domain) for domain in DOMAINS}
    theirs = {StubAddresses(NODE, other).of(domain) for domain in DOMAINS}
    assert mine == theirs if one == other else not mine & theirs


@given(KEYS, KEYS)
def test_no_stub_address_begins_with_another(one: bytes, other: bytes) -> None:
    found = {StubAddresses(NODE, key).of(domain) for key in (one, other) for domain in DOMAINS}
    assert not any(a.startswith(b) or b.startswith(a) for a, b in combinations(found, 2))


def test_a_stub_address_is_an_address_below_its_node() -> None:
    address = StubAddresses(NODE, b"k").of("b.example")
    assert canonical_key(address) == address
    assert address.startswith(f"{NODE}/protostub/")
    assert len(address) < HEADER_CHARS


URL = f"{NODE}/protostub/00"


def test_a_line_of_the_inventory_says_what_is_known_and_no_more() -> None:
    status = StubStatus(URL, "b.example")
    assert status.line() == {
        "url": URL,
        "domain": "b.example",
        "package": "",
        "version": "",
        "signature": "unverified",
        "state": "",
        "since": "1970-01-01T00:00:00Z",
    }
    status.verified(module_sha256="ab", version="1.2", ranges="tel:+49*")
    status.became("live", "at last", now=86_400.9)
    assert status.line() == {
        "url": URL,
        "domain": "b.example",
        "package": "sha256-ab",
        "version": "1.2",
        "signature": "valid",
        "state": "live",
        "since": "1970-01-02T00:00:00Z",
        "interworking": "tel:+49*",
        "desc": "at last",
    }
    status.refused()
    assert {**status.line(), "desc": ""} == {
        "url": URL,
        "domain": "b.example",
        "package": "",
        "version": "",
        "signature": "unverified",
        "state": "live",
        "since": "1970-01-02T00:00:00Z",
        "desc": "",
    }


def test_each_change_of_the_state_is_kept_and_reported_and_another_reason_is_none() -> None:
    seen: list[tuple[str, str]] = []
    status = StubStatus(URL, "b.example", on_change=lambda one: seen.append((one.state, one.detail)))
    assert status.since == 0.0
    status.became("deploying", now=1.0)
    status.became("deploying", "slowly", now=2.0)
    status.became("live", now=3.0)
    assert seen == [("deploying", ""), ("live", "")]
    assert list(status.states) == [(1.0, "deploying", ""), (3.0, "live", "")]
    assert (status.detail, status.since) == ("", 3.0)
    status.became("live", "for long", now=4.0)
    assert (status.detail, status.since) == ("for long", 3.0)
    for number in range(STATES_KEPT):
        status.became(f"state {number}", now=5.0 + number)
    assert [state for _, state, _ in status.states] == [f"state {number}" for number in range(10)]


def test_steps_of_a_first_contact_are_kept_in_order_and_in_milliseconds() -> None:
    times = StepTimes()
    times.add("dns", 0.25)
    times.add("tls", 1.5)
    assert (times.steps, times.is_warm) == ([("dns", 250.0), ("tls", 1_500.0)], False)
