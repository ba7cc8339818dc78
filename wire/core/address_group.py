"""Whom connections and requests from one network address are counted for.

One person with an IPv6 connection has at least a /64: 2^64 addresses, a new one for each connection if need be. So
whatever is counted or bounded for an address is counted for its group: the address itself in IPv4, its /64 in IPv6.
An IPv4 address in the form that a dual-stack socket shows (`::ffff:192.0.2.1`) is that IPv4 address, and 6to4 derives a
whole /48 from one IPv4 address.

Source: RFC 6177; RFC 3056; RFC 4291, section 2.5.5.2.
"""

from __future__ import annotations

import ipaddress

_SUBSCRIBER_SHIFT = 64
_SIX_TO_FOUR_SHIFT = 80


def address_group(remote: str) -> str:
    """The group of an address: equal for addresses that one subscriber has at will.

    Args:
        remote: An address as the socket names it, with or without a zone. What is no address is a group of its own.
    """
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    shift = _SUBSCRIBER_SHIFT if address.sixtofour is None else _SIX_TO_FOUR_SHIFT
    network = ipaddress.IPv6Address(int(address) >> shift << shift)
    return f"{network}/{128 - shift}"
