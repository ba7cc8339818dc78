"""The addresses of stubs on our node: what a foreign node may take for the name of one session."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from federation.core.stub_status import StubAddresses
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
