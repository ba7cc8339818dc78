"""The client that a proxy names: PROXY headers of both versions, `X-Forwarded-For` and `Forwarded`."""

from __future__ import annotations

import ipaddress
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly.errors import Code, PeerError
from wire.core.proxied import (
    FIRST_BYTES,
    FIXED_BYTES,
    SIGNATURE,
    V1_BYTES,
    V2_BYTES,
    client_in_header,
    client_of_forwarded,
    client_of_list,
    header_bytes,
)

OURS = [ipaddress.ip_network("10.0.0.0/24"), ipaddress.ip_network("2001:db8:ffff::/48")]


def v2(command: int = 0x21, family: int = 0x11, body: bytes = b"", length: int | None = None) -> bytes:
    return SIGNATURE + bytes((command, family)) + struct.pack("!H", len(body) if length is None else length) + body


def of_ipv4(more: bytes = b"") -> bytes:
    return v2(body=bytes((192, 0, 2, 7, 10, 0, 0, 1)) + struct.pack("!HH", 4000, 8443) + more)


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 4000 8443\r\n", "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 4000 8443\r\n", "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN " + b"x" * (V1_BYTES - 16) + b"\r\n", None),
        (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
        (of_ipv4(), "192.0.2.7"),
        (of_ipv4(b"\x03\x00\x04abcd"), "192.0.2.7"),
        (v2(family=0x21, body=ipaddress.ip_address("2001:db8::7").packed + bytes(20)), "2001:db8::7"),
        (v2(command=0x20), None),
        (v2(command=0x20, family=0x11, body=bytes(12)), None),
    ],
)
def test_a_header_names_the_client_or_nobody(header: bytes, client: str | None) -> None:
    found = client_in_header(header)
    assert (None if found is None else str(found)) == client
    assert header_bytes(header[:FIXED_BYTES]) == (len(header) if header.startswith(SIGNATURE) else None)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 4000\r\n",
        b"PROXY TCP4 192.0.2.777 10.0.0.1 4000 8443\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 4000 8443\r\n",
        b"PROXY TCP6 192.0.2.7 10.0.0.1 4000 8443\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 4000 8443\n",
        b"PROXY  TCP4 192.0.2.7 10.0.0.1 4000 8443\r\n",
        b"PROXY UDP4 192.0.2.7 10.0.0.1 4000 8443\r\n",
        b"PROXY UNKNOWN " + b"x" * (V1_BYTES - 15) + b"\r\n",
        v2(command=0x22),
        v2(command=0x11, body=bytes(12)),
        v2(family=0x12, body=bytes(12)),
        v2(family=0x31, body=bytes(216)),
        v2(body=bytes(11)),
        v2(family=0x21, body=bytes(12)),
    ],
)
def test_a_header_that_is_not_as_the_protocol_has_it_is_refused(header: bytes) -> None:
    with pytest.raises(PeerError) as refused:
        client_in_header(header)
    assert refused.value.code is Code.PROXY_HEADER


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", b"proxy tcp4 1"]
)
def test_what_is_no_header_is_known_by_its_first_bytes(first: bytes) -> None:
    with pytest.raises(PeerError, match="does not begin with a PROXY header"):
        header_bytes(first[:FIRST_BYTES])


def test_a_header_is_bounded_before_it_is_read() -> None:
    assert header_bytes(v2(length=V2_BYTES)) == FIXED_BYTES + V2_BYTES
    with pytest.raises(PeerError, match="has 2065 bytes"):
        header_bytes(v2(length=V2_BYTES + 1))


@pytest.mark.parametrize(
    ("values", "client"),
    [
        (["192.0.2.7"], "192.0.2.7"),
        (["1.1.1.1, 192.0.2.7"], "192.0.2.7"),
        (["1.1.1.1", "192.0.2.7"], "192.0.2.7"),
        (["nonsense, 192.0.2.7, 10.0.0.9"], "192.0.2.7"),
        (["10.0.0.8, 10.0.0.9"], "10.0.0.8"),
        (["::ffff:10.0.0.8, 192.0.2.7:4000, ::ffff:10.0.0.9"], "192.0.2.7"),
        (["[2001:db8::7]:4000"], "2001:db8::7"),
        (["2001:db8::7,2001:db8:ffff::1"], "2001:db8::7"),
        (["1.1.1.1"] * 31 + ["192.0.2.7"], "192.0.2.7"),
    ],
)
def test_the_rightmost_address_that_is_no_proxy_is_the_client(values: list[str], client: str) -> None:
    assert str(client_of_list(values, OURS)) == client


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["192.0.2.7,"],
        ["192.0.2.7 192.0.2.8"],
        ["localhost"],
        ["192.0.2.7\t,x, 10.0.0.9"],
        ["unknown"],
        ["1.1.1.1"] * 33,
    ],
)
def test_a_list_that_does_not_end_in_an_address_is_refused(values: list[str]) -> None:
    with pytest.raises(PeerError):
        client_of_list(values, OURS)


@pytest.mark.parametrize(
    ("values", "client"),
    [
        (["for=192.0.2.7"], "192.0.2.7"),
        (['for="[2001:db8::7]:4000";proto=https;by=10.0.0.1'], "2001:db8::7"),
        (['For=1.1.1.1, for="192.0.2.7";host="a,b;c\\"", for=10.0.0.9'], "192.0.2.7"),
        (["for=_secret", "for=192.0.2.7"], "192.0.2.7"),
        (["for=1.1.1.1;x=a\\,for=192.0.2.7"], "192.0.2.7"),
        (['for="1.1.1.1";x="\\",for=8.8.8.8",for=192.0.2.7'], "192.0.2.7"),
    ],
)
def test_the_field_of_rfc_7239_names_the_client(values: list[str], client: str) -> None:
    assert str(client_of_forwarded(values, OURS)) == client


@pytest.mark.parametrize(
    "value", ["", "by=10.0.0.1", "for=unknown", "for=_secret", "for=1.1.1.1;for=2.2.2.2", 'for="1.1.1.1', "for 1.1.1.1"]
)
def test_a_field_that_names_no_address_is_refused(value: str) -> None:
    with pytest.raises(PeerError):
        client_of_forwarded([value], OURS)


@settings(max_examples=150)
@given(
    st.one_of(st.binary(max_size=300), st.binary(max_size=60).map(lambda rest: SIGNATURE + rest)), st.text(max_size=80)
)
def test_any_bytes_and_any_text_name_a_client_or_are_refused(raw: bytes, text: str) -> None:
    with suppress(PeerError):
        if len(raw) >= FIXED_BYTES and header_bytes(raw[:FIXED_BYTES]) in {len(raw), None}:
            client_in_header(raw)
    for read in (client_of_list, client_of_forwarded):
        with suppress(PeerError):
            read([text], OURS)
