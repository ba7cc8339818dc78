"""Whom connections from one network address are counted for."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.core.address_group import address_group


@pytest.mark.parametrize(
    ("remote", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("2002:c000:201:7:1:2:3:4", "2002:c000:201::/48"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_group_is_the_address_in_ipv4_and_the_network_of_a_subscriber_in_ipv6(remote: str, group: str) -> None:
    assert address_group(remote) == group


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_no_choice_of_the_lower_half_leaves_the_group_of_a_subscriber(prefix: int, first: int, second: int) -> None:
    network = (0x2001_0DB8 << 96) | (prefix & 0xFFFF_FFFF) << 64
    one, other = (str(ipaddress.IPv6Address(network | low)) for low in (first, second))
    assert address_group(one) == address_group(other)


@given(st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_different_ipv4_addresses_are_different_groups(
    first: ipaddress.IPv4Address, second: ipaddress.IPv4Address
) -> None:
    assert (address_group(str(first)) == address_group(str(second))) == (first == second)
    assert address_group(f"::ffff:{first}") == address_group(str(first))
