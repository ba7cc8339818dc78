"""Which addresses and ports strangers may make us connect to."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly.errors import Code, PeerError, SettingsError
from wire.core.network import judge_address, judge_port, parse_address, parse_networks, same_address

PUBLIC = ["8.8.8.8", "1.1.1.1", "198.17.255.255", "172.32.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1"]


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_hosts_on_the_internet_are_accepted(address: str) -> None:
    judge_address(address)


@pytest.mark.parametrize("inner", ["8.8.8.8", "1.1.1.1"])
def test_public_address_behind_a_translation_prefix_is_accepted(inner: str) -> None:
    judge_address(f"::ffff:{inner}")
    judge_address(f"64:ff9b::{inner}")


@pytest.mark.parametrize(
    "text",
    ["", "b.example", "0x7f.1", "127.1", "2130706433", "0177.0.0.1", "fe80::1%eth0", "[::1]", "1.2.3.4:80", "٣.1.1.1"],
)
def test_what_is_not_an_address_in_its_usual_spelling_is_refused(text: str) -> None:
    assert parse_address(text) is None
    with pytest.raises(PeerError, check=lambda error: error.code is Code.ADDRESS_REFUSED):
        judge_address(text)


def test_opened_range_accepts_its_addresses_and_no_others() -> None:
    allowed = parse_networks(["127.0.0.0/8", "fd12::/16"])
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "fd12::1"):
        judge_address(address, allowed=allowed)
    for address in ("10.0.0.1", "fd13::1", "::1"):
        with pytest.raises(PeerError):
            judge_address(address, allowed=allowed)


@pytest.mark.parametrize("tunnel", ["2002:7f00:1::", "64:ff9b:1::7f00:1", "::127.0.0.1"])
def test_opening_a_tunnel_prefix_does_not_open_what_is_inside(tunnel: str) -> None:
    with pytest.raises(PeerError):
        judge_address(tunnel, allowed=parse_networks(["2002::/16", "64:ff9b:1::/48", "::/96"]))


@given(st.ip_addresses(v=4))
def test_an_address_inside_a_tunnel_is_judged_wherever_it_stands_in_it(inner: ipaddress.IPv4Address) -> None:
    """The local NAT64 prefix holds it in two ways (RFC 6052: /96 and, around the octet 8, /48), 6to4 behind 2002."""
    number = int(inner)
    public = int(ipaddress.IPv4Address("8.8.8.8"))
    local = int(ipaddress.IPv6Address("64:ff9b:1::"))
    spread = (number >> 16) << 64 | (number & 0xFFFF) << 40
    tunnels = {
        ipaddress.IPv6Address(local | spread | public): "64:ff9b:1::/48",
        ipaddress.IPv6Address(0x2002 << 112 | number << 80 | 1): "2002::/16",
    }
    is_refused = refusal_of(str(inner))
    for address, prefix in tunnels.items():
        refusal = refusal_of(str(address), prefix)
        assert bool(refusal) is bool(is_refused)
        assert not refusal or f" {inner}:" in refusal or "metadata" in refusal
    low = ipaddress.IPv6Address(local | public >> 16 << 64 | (public & 0xFFFF) << 40 | number)
    assert bool(refusal_of(str(low), "64:ff9b:1::/48")) is bool(is_refused)


def refusal_of(address: str, *allowed: str) -> str:
    try:
        judge_address(address, allowed=parse_networks(allowed))
    except PeerError as error:
        return error.detail
    return ""


def test_both_ends_of_a_teredo_tunnel_are_judged() -> None:
    for server, client in (("127.0.0.1", "8.8.8.8"), ("8.8.8.8", "127.0.0.1")):
        hidden = int(ipaddress.IPv4Address(client)) ^ 0xFFFF_FFFF
        number = 0x20010000 << 96 | int(ipaddress.IPv4Address(server)) << 64 | hidden
        assert "127.0.0.1" in refusal_of(str(ipaddress.IPv6Address(number)), "2001::/32", "2001::/23")
    assert refusal_of("2001:0:808:808::f7f7:f7f7", "2001::/32", "2001::/23") == ""


@pytest.mark.parametrize("address", ["::", "::1", "::2", "::0.0.1.0", "::127.0.0.1"])
def test_addresses_with_nothing_before_the_last_32_bits_are_refused(address: str) -> None:
    assert refusal_of(address)
    opened = refusal_of(address, "::/96", "::/128", "::1/128")
    assert bool(opened) is (address not in ("::", "::1"))


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "2002:a9fe:a9fe::1",
        "64:ff9b:1::a9fe:a9fe",
    ],
)
def test_metadata_addresses_stay_closed_when_everything_is_opened(address: str) -> None:
    with pytest.raises(PeerError, match="metadata"):
        judge_address(address, allowed=parse_networks(["0.0.0.0/0", "::/0"]))


@settings(deadline=None)
@given(st.ip_addresses(v=6))
def test_only_global_unicast_and_translated_addresses_can_be_accepted(address: ipaddress.IPv6Address) -> None:
    carriers = ("::ffff:0:0/96", "64:ff9b::/96", "2000::/3")
    if not any(address in ipaddress.IPv6Network(carrier) for carrier in carriers):
        with pytest.raises(PeerError):
            judge_address(str(address))


@settings(deadline=None)
@given(st.ip_addresses(v=4))
def test_our_table_is_at_least_as_strict_as_the_standard_library(address: ipaddress.IPv4Address) -> None:
    if not address.is_global:
        with pytest.raises(PeerError):
            judge_address(str(address))


@settings(deadline=None)
@given(st.text(max_size=64))
def test_any_text_is_an_address_or_a_peer_error(text: str) -> None:
    try:
        judge_address(text)
    except PeerError:
        return
    assert parse_address(text) is not None


@pytest.mark.parametrize("port", [443, 1024, 8443, 8448, 40_000, 65_535])
def test_ports_for_https_are_accepted(port: int) -> None:
    judge_port(port)


@pytest.mark.parametrize("port", [-1, 0, 22, 25, 53, 80, 1023, 2375, 3306, 6379, 9200, 11_211, 27_017, 65_536])
def test_ports_of_other_services_are_refused(port: int) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.PORT_REFUSED):
        judge_port(port)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "everything", "10.0.0.0/33", ""])
def test_setting_that_is_no_range_is_an_error_of_the_operator(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_networks([text])


def test_same_address_sees_through_mapping_only() -> None:
    assert same_address("::ffff:192.0.2.1", "192.0.2.1")
    assert same_address("2001:db8::1", "2001:db8:0::1")
    assert not same_address("192.0.2.1", "192.0.2.2")
    assert not same_address("b.example", "b.example")
