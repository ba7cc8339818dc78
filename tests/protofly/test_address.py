"""Addresses: canonical keys, domains, names."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.address import canonical_key, domain_of, is_below, scheme_of, valid_domain
from protofly.errors import Code, PeerError


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("runtime://a.example/rt", "runtime://a.example/rt"),
        ("hyperty-runtime://A.Example/rt/", "runtime://a.example/rt"),
        ("RUNTIME://a.example./rt", "runtime://a.example/rt"),
        ("runtime:/alice", "runtime:/alice"),
        ("ctxt://a.example/x", "ctxt://a.example/x"),
        ("context://a.example/x", "context://a.example/x"),
        ("comm://a.example/Room%20A", "comm://a.example/Room%20A"),
        ("comm://a.example/room/children/", "comm://a.example/room/children/"),
        ("comm://a.example/room/children/x/", "comm://a.example/room/children/x"),
        ("comm://a.example:99/x", "comm://a.example:99/x"),
        ("global://registry/", "global://registry"),
        ("global://registry.", "global://registry"),
        ("global://registry/.", "global://registry"),
        ("global://registry/./", "global://registry"),
        ("comm://a.example/x//", "comm://a.example/x"),
        ("comm://a.example/room/children//", "comm://a.example/room/children/"),
        ("domain://registry.a.example./", "domain://registry.a.example"),
        ("user-guid://AbCdEf", "user-guid://AbCdEf"),
        ("comm://bücher.example/x", "comm://xn--bcher-kva.example/x"),
        ("mn:/session", "mn:/session"),
        ("publisher", "publisher"),
        (" comm://a.example/x ", "comm://a.example/x"),
        ("sip://Bo@Legacy.example", "sip://Bo@legacy.example"),
    ],
)
def test_every_spelling_of_an_address_has_its_key(text: str, key: str) -> None:
    assert canonical_key(text) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a b",
        "comm://a.example/\n",
        "1x://a",
        "://x",
        "comm://a\x00/x",
        "x" * 3000,
        "comm://a.example../x",
        "runtime:////a.example/rt",
        "runtime://.//a.example/rt",
    ],
)
def test_what_nobody_could_mean_is_refused(text: str) -> None:
    with pytest.raises(PeerError) as caught:
        canonical_key(text)
    assert caught.value.code is Code.BAD_HEADER


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("hyperty://a.example/h", "a.example"),
        ("domain://msg-node.a.example/sm", "a.example"),
        ("domain://registry.a.example", "a.example"),
        ("domain://registry.example", "registry.example"),
        ("hyperty://registry.example/x", "registry.example"),
        ("hyperty-catalogue://catalogue.a.example/.well-known/x/y", "a.example"),
        ("user-guid://AbC", ""),
        ("global://registry/", ""),
        ("mn:/session", ""),
        ("publisher", ""),
        ("sip://bo@legacy.example", "legacy.example"),
        ("comm://b.example:443/x", "b.example:443"),
    ],
)
def test_an_address_belongs_to_its_domain(text: str, domain: str) -> None:
    assert domain_of(text) == domain


def test_both_spellings_of_a_runtime_have_one_scheme() -> None:
    assert scheme_of("hyperty-runtime://a.example/x") == scheme_of("runtime://a.example/x") == "runtime"


def test_a_longer_name_is_not_below_a_shorter_one() -> None:
    assert is_below("runtime://a.example/rt-a/sm", "runtime://a.example/rt-a")
    assert not is_below("runtime://a.example/rt-ana", "runtime://a.example/rt-a")


@pytest.mark.parametrize("name", ["b.example", "a.b.c.example", "xn--bcher-kva.example", "b-1.example"])
def test_a_canonical_name_is_a_domain(name: str) -> None:
    assert valid_domain(name) == name


@given(st.text(max_size=80))
def test_any_text_has_a_key_that_is_its_own_key_or_is_refused(text: str) -> None:
    with contextlib.suppress(PeerError):
        key = canonical_key(text)
        assert canonical_key(key) == key
        assert domain_of(key) == domain_of(text)


@given(st.text(max_size=300))
def test_any_name_is_returned_unchanged_or_refused(name: str) -> None:
    with contextlib.suppress(PeerError):
        assert valid_domain(name) == name
