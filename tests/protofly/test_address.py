"""Addresses: canonical keys, domains, names."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.address import canonical_key, domain_of, is_below, parse, scheme_of, valid_domain
from protofly.errors import Code, PeerError
from protofly.limits import HEADER_CHARS


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
        ("comm://a.example:65535/x", "comm://a.example:65535/x"),
        ("comm://a.example//x", "comm://a.example//x"),
        ("global://registry/", "global://registry"),
        ("global://registry.", "global://registry"),
        ("global://registry/.", "global://registry"),
        ("global://registry/./", "global://registry"),
        ("global://registry/x", "global://registry/x"),
        ("global:/.", "global:/."),
        ("comm://a.example/.", "comm://a.example/."),
        ("comm:", "comm://"),
        ("comm:/", "comm://"),
        ("comm://a.example/x//", "comm://a.example/x"),
        ("comm://a.example/room/children//", "comm://a.example/room/children/"),
        ("domain://registry.a.example./", "domain://registry.a.example"),
        ("user-guid://AbCdEf", "user-guid://AbCdEf"),
        ("comm://bücher.example/x", "comm://xn--bcher-kva.example/x"),
        ("mn:/session", "mn:/session"),
        ("publisher", "publisher"),
        (" comm://a.example/x ", "comm://a.example/x"),
        ("sip://Bo@Legacy.example", "sip://Bo@legacy.example"),
        ("sip://Bo@Legacy.example.:5061", "sip://Bo@legacy.example:5061"),
        ("comm://LocalHost:4567/x", "comm://localhost:4567/x"),
        ("comm://a.example.:99/x", "comm://a.example:99/x"),
        ("comm://Bücher.example:99/x", "comm://xn--bcher-kva.example:99/x"),
        ("comm://bücher.example.:99/x", "comm://xn--bcher-kva.example:99/x"),
        ("comm://[2001:DB8:0:0::1]/x", "comm://[2001:db8::1]/x"),
        ("comm://[::1]:4567/x", "comm://[::1]:4567/x"),
        ("sip://Bo@[2001:DB8::1]:5060", "sip://Bo@[2001:db8::1]:5060"),
        ("runtime://192.0.2.7:4567/rt", "runtime://192.0.2.7:4567/rt"),
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
        "comm://a.example:/x",
        "comm://a.example:0/x",
        "comm://a.example:080/x",
        "comm://a.example:65536/x",
        "comm://a.example:80:80/x",
        "comm://a.example:https/x",
        "comm://a.example:٨٠/x",
        "comm://:80/x",
        "comm://::1/x",
        "comm://[::1/x",
        "comm://[]/x",
        "comm://[::g]/x",
        "comm://[192.0.2.7]/x",
        "comm://[fe80::1%eth0]/x",
        "comm://[::1]80/x",
        "comm://[::1].a.example/x",
        "comm://a.[::1]/x",
        "comm://a]b.example/x",
        "comm://a[b.example/x",
        "comm://bü cher.example/x",
        "comm://-bücher.example/x",
        "comm://\uff41.example/x",
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
        ("domain://registry.a.example:4567", "a.example:4567"),
        ("domain://registry.a.example.:4567/", "a.example:4567"),
        ("domain://msg-node.localhost:4567/sm", "msg-node.localhost:4567"),
        ("comm://localhost/x", "localhost"),
        ("comm://[2001:DB8::1]:443/x", "[2001:db8::1]:443"),
        ("domain://[::1]/sm", "[::1]"),
        ("sip://bo@[::1]:5060", "[::1]:5060"),
        ("comm://bücher.example:443/x", "xn--bcher-kva.example:443"),
    ],
)
def test_an_address_belongs_to_its_domain(text: str, domain: str) -> None:
    assert domain_of(text) == domain


def test_both_spellings_of_a_runtime_have_one_scheme() -> None:
    assert scheme_of("hyperty-runtime://a.example/x") == scheme_of("runtime://a.example/x") == "runtime"


@pytest.mark.parametrize(
    ("key", "is_it"),
    [
        ("runtime://a.example/rt-a", True),
        ("runtime://a.example/rt-a/sm", True),
        ("runtime://a.example/rt-ana", False),
        ("runtime://a.example/rt", False),
        ("runtime://b.example/rt-a/sm", False),
        ("runtime://a.example/rt-ana/rt-a/sm", False),
        ("runtime://b.example/rt-b/sm/x", False),
    ],
)
def test_an_address_is_below_itself_and_below_its_parents_alone(key: str, is_it: bool) -> None:
    assert is_below(key, "runtime://a.example/rt-a") is is_it


@pytest.mark.parametrize("name", ["b.example", "a.b.c.example", "xn--bcher-kva.example", "b-1.example"])
def test_a_canonical_name_is_a_domain(name: str) -> None:
    assert valid_domain(name) == name


_HOSTS = st.sampled_from(
    ["a.example", "A.Example.", "localhost", "[::1]", "[2001:DB8::7]", "bücher.example", "192.0.2.7"]
)


@given(_HOSTS, st.integers(-1, 70_000), st.sampled_from(["", "bo@", "b:o@"]), st.text("ab/:[]@", max_size=6))
def test_host_port_and_user_are_distinguished_whatever_stands_behind_them(
    host: str, port: int, user: str, path: str
) -> None:
    bare = canonical_key(f"comm://{host}/")
    text = f"comm://{user}{host}:{port}/x{path}"
    if not 1 <= port <= 65_535:
        with pytest.raises(PeerError):
            canonical_key(text)
        return
    assert domain_of(text) == f"{bare.removeprefix('comm://')}:{port}"
    assert canonical_key(text).startswith(f"comm://{user}{bare.removeprefix('comm://')}:{port}/x")


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


@pytest.mark.parametrize(
    "name",
    [
        "",
        "localhost",
        "a..example",
        ".a.example",
        "a.example.",
        "-a.example",
        "a-.example",
        "good.-bad.example",
        "a_b.example",
        "A.example",
        "a b.example",
        "a.1",
        "1.2.3.4",
        "a.0x7f",
        "xn--a.example",
        "xn--.example",
        "ä.example",
        "x" * 64 + ".example",
        ".".join(["x" * 61] * 4) + ".example",
        ".".join(["x" * 62] * 4) + ".bc",
    ],
)
def test_what_is_no_canonical_name_is_refused(name: str) -> None:
    with pytest.raises(PeerError) as caught:
        valid_domain(name)
    assert caught.value.code is Code.NAME_INVALID


@pytest.mark.parametrize(
    "name",
    [
        *("a.b", "1.a", "a.b1", "a.xn--p1ai", "xn--bcher-kva.example", "r3---sn.example"),
        *("x" * 63 + ".example", ".".join(["x" * 62] * 4) + ".b"),
    ],
)
def test_short_long_and_encoded_names_are_domains(name: str) -> None:
    assert len(name) <= 253
    assert valid_domain(name) == name


@pytest.mark.parametrize(("text", "added"), [("comm:", 1), ("comm://b\u00fccher.example/", 7)])
def test_an_address_is_refused_whose_key_would_be_longer_than_an_address(text: str, added: int) -> None:
    longest = text.ljust(HEADER_CHARS - added, "x")
    key = canonical_key(longest)
    assert (len(key), canonical_key(key)) == (HEADER_CHARS, key)
    for end in ("x", "x" * added):
        with pytest.raises(PeerError, match=Code.BAD_HEADER.word):
            canonical_key(longest + end)


def test_an_address_has_a_bounded_length() -> None:
    longest = "comm://a.example/".ljust(HEADER_CHARS, "x")
    assert parse(longest).authority == "a.example"
    with pytest.raises(PeerError):
        parse(longest + "x")


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("domain://registry.b.example", "b.example"),
        ("domain://other.b.example", "other.b.example"),
        ("domain://registry.example", "registry.example"),
    ],
)
def test_the_label_of_an_element_is_no_part_of_the_domain(text: str, domain: str) -> None:
    assert domain_of(text) == domain
