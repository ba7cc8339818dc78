"""Ranges of legacy addresses: what they cover, and how they lie to each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.address import canonical_key, parse
from protofly.errors import Code, PeerError
from protofly.legacy_range import LegacyRange, covers_any, host_of, natural_range, parse_range


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("sip://legacy.example", "sip://bo@legacy.example"),
        ("sip://legacy.example", "SIP://Bo@LEGACY.example."),
        ("sip://legacy.example", "sip:bo@legacy.example"),
        ("sip://legacy.example", "sip://legacy.example/bo"),
        ("sip://legacy.example", "sip://legacy.example"),
        ("sip://legacy.example", "sip://bo@legacy.example/changes"),
        ("sip://legacy.example", "sip:bo@legacy.example/status"),
        ("slack://team-1", "slack://team-1/bo@beta.example"),
        ("tel:+4930*", "tel:+49301234"),
        ("tel:+4930*", "tel:+4930/status"),
        ("tel:*", "tel:110"),
    ],
)
def test_address_of_a_range_is_covered_in_both_its_forms(written: str, address: str) -> None:
    one = parse_range(written)
    assert str(one) == written
    assert one.covers(parse(address))
    assert one.covers(parse(canonical_key(address)))


@pytest.mark.parametrize(
    ("inner", "outer", "is_within"),
    [
        ("sip://a.example", "sip://a.example", True),
        ("sip://a.example", "sip://b.example", False),
        ("sip://a.example", "sips://a.example", False),
        ("tel:+4930*", "tel:+49*", True),
        ("tel:+49*", "tel:+4930*", False),
        ("tel:+49*", "tel:*", True),
        ("tel:*", "tel:+49*", False),
        ("sip://a.example", "sip:*", False),
        ("sip:*", "sip://a.example", False),
    ],
)
def test_a_range_lies_within_another_of_its_scheme_and_kind(inner: str, outer: str, is_within: bool) -> None:
    assert parse_range(inner).is_within(parse_range(outer)) is is_within


def test_the_longest_host_and_prefix_are_ranges_and_longer_ones_are_not() -> None:
    scheme, host = "s" * 64, "h" * 253
    assert parse_range(f"{scheme}://{host[:252]}").host == host[:252]
    assert len(f"{scheme}://{host}") == 320
    assert parse_range(f"{scheme}://{host}").host == host
    for wrong in (f"{scheme}s://{host[:10]}", f"{scheme}://{host}h", f"tel:{'1' * 65}*", f"{scheme}://{host}\n"):
        with pytest.raises(PeerError) as caught:
            parse_range(wrong)
        assert caught.value.code is Code.BAD_BODY
    assert parse_range(f"tel:{'1' * 64}*").prefix == "1" * 64


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("sip://legacy.example", "sip://bo@x.legacy.example"),
        ("sip://legacy.example", "sip://bo@legacy.example.evil"),
        ("sip://legacy.example", "sip://bo@legacy.example:5060"),
        ("sip://legacy.example", "sips://bo@legacy.example"),
        ("sip://legacy.example", "sip://legacy.example@evil.example"),
        ("sip://legacy.example", "sip://eve@evil.example@legacy.example"),
        ("sip://legacy.example", "sip:eve@evil.example@legacy.example"),
        ("sip://legacy.example", "sip:eve/bo@legacy.example"),
        ("sip://legacy.example", "sip:@legacy.example"),
        ("sip://legacy.example", "sip:bo@LEGACY.example"),
        ("sip://legacy.example", "hyperty://legacy.example/bo"),
        ("tel:+4930*", "tel:+4931"),
        ("tel:+4930*", "tel://+4930"),
        ("tel:+4930*", "tel:+4930@legacy.example"),
        ("tel:*", "tel:a@b@c"),
        ("tel:*", "tel:"),
        ("sip:*", "sip://bo@legacy.example"),
    ],
)
def test_look_alike_is_not_covered(written: str, address: str) -> None:
    assert not parse_range(written).covers(parse(address))
    assert not covers_any([parse_range(written)], address)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sip",
        "sip:",
        "sip://",
        "sip:bo",
        "sip://*",
        "sip://bo@legacy.example",
        "sip://legacy.example/",
        "sip://Legacy.example",
        "SIP://legacy.example",
        "sip://legacy.example:5060",
        "sip://.example",
        "tel:+49**",
        "tel://+49*",
        "tel:+4\n*",
        "tel:" + "1" * 65 + "*",
        "sip://legacy.example\n",
        "user://legacy.example",
        "user-guid:*",
        "hyperty://legacy.example",
        "runtime://legacy.example",
        "hyperty-runtime://legacy.example",
        "domain://legacy.example",
        "domain-idp://legacy.example",
        "global://registry",
        "mn:*",
        "acct://legacy.example",
        "thing://legacy.example",
        "hyperty-catalogue://legacy.example",
    ],
)
def test_what_is_no_range_or_no_legacys_is_refused(text: str) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        parse_range(text)


def test_domain_of_a_stub_names_its_natural_range() -> None:
    assert str(natural_range("sip.legacy.example")) == "sip://legacy.example"
    with pytest.raises(PeerError):
        natural_range("hyperty.legacy.example")


@pytest.mark.parametrize(
    ("address", "host"),
    [("sip://bo@legacy.example/x", "legacy.example"), ("sip:bo@legacy.example", "legacy.example"), ("tel:+49", "")],
)
def test_host_of_an_address_is_found_in_every_form(address: str, host: str) -> None:
    assert host_of(address) == host


schemes = st.sampled_from(["sip", "tel", "slack"])
hosts = st.builds(LegacyRange, schemes, st.sampled_from(["a.example", "b.example", "x.a.example"]), st.just(""))
prefixes = st.builds(LegacyRange, schemes, st.just(""), st.text("+49", max_size=4))
ranges = hosts | prefixes
addresses = st.one_of(
    st.builds("{}://{}@{}".format, schemes, st.text("ab@", max_size=3), st.sampled_from(["a.example", "b.example"])),
    st.builds("{}:{}".format, schemes, st.text("+49@a./", max_size=8)),
)


@given(one=ranges)
def test_what_is_written_is_read_again(one: LegacyRange) -> None:
    assert parse_range(str(one)) == one


@given(inner=ranges, outer=ranges, text=addresses)
def test_inner_range_covers_nothing_beyond_the_outer_one(inner: LegacyRange, outer: LegacyRange, text: str) -> None:
    try:
        address = parse(text)
    except PeerError:
        return
    if inner.covers(address) and outer.covers(address):
        assert inner.overlaps(outer)
    if inner.is_within(outer) and inner.covers(address):
        assert outer.covers(address)


@given(one=ranges, text=addresses)
def test_canonical_key_is_covered_as_its_address_is(one: LegacyRange, text: str) -> None:
    try:
        key = canonical_key(text)
    except PeerError:
        return
    assert one.covers(parse(key)) == one.covers(parse(text))


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("tel:+49*", "tel:+4930*", True),
        ("tel:+49*", "tel:+49*", True),
        ("tel:+49*", "tel:+33*", False),
        ("tel:+49*", "fax:+49*", False),
        ("sip://a.example", "sip://a.example", True),
        ("sip://a.example", "sip://b.example", False),
        ("sip:*", "sip://a.example", False),
    ],
)
def test_ranges_overlap_when_one_lies_within_the_other(one: str, other: str, overlap: bool) -> None:
    assert parse_range(one).overlaps(parse_range(other)) is overlap
    assert parse_range(other).overlaps(parse_range(one)) is overlap


def test_an_address_of_any_of_some_ranges_is_covered_and_of_none_of_them_not() -> None:
    ranges = [parse_range("tel:+49*"), parse_range("sip://legacy.example")]
    assert covers_any(ranges, "tel:+4930")
    assert covers_any(ranges, "sip://bo@legacy.example")
    assert not covers_any(ranges, "tel:+33")
    assert not covers_any([], "tel:+4930")
