"""Which addresses and ports a foreign domain may make us connect to.

A name server of somebody else chooses the addresses that we connect to, so every one is judged, after the layers around
it are taken off (IPv4-mapped, NAT64, 6to4, Teredo). The table is our own, written from the IANA special-purpose address
registries: `ipaddress.is_global` changes its meaning between Python versions. Where a registry says "not applicable" we
refuse, and of IPv6 only what has been opened for global unicast is accepted at all.

Operators may open ranges for a domain that they name (laboratories). Addresses at which clouds serve credentials stay
closed even then.

Source: trust and hosts, section 2.6; RFC 6890, RFC 8190, RFC 6052, RFC 3056, RFC 4380.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Final

from protofly.errors import Code, PeerError, SettingsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

HTTPS_PORT: Final = 443
LOWEST_NAMED_PORT: Final = 1024

_SPECIAL: Final = tuple(
    (ipaddress.ip_network(text), meaning)
    for text, meaning in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private use"),
        ("100.64.0.0/10", "shared address space"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link local"),
        ("172.16.0.0/12", "private use"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112 service"),
        ("192.52.193.0/24", "automatic multicast tunnelling"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private use"),
        ("192.175.48.0/24", "AS112 service"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard only"),
        ("100:0:0:1::/64", "dummy prefix"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("2620:4f:8000::/48", "AS112 service"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "unique local"),
        ("fe80::/10", "link local"),
        ("fec0::/10", "site local"),
        ("ff00::/8", "multicast"),
    )
)
"""Address blocks that nobody on the Internet can be at. The narrower block comes first where two overlap."""

_METADATA: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.169.0/24",  # most clouds; also their name and time services
        "169.254.170.0/24",  # credentials of containers
        "169.254.0.23/32",
        "100.100.100.200/32",
        "168.63.129.16/32",  # a public address by its number, a host agent in fact
        "192.0.0.192/32",
        "fd00:ec2::/32",
        "fd20:ce::254/128",
        "fe80::a9fe:a9fe/128",
    )
)
"""Addresses at which cloud platforms hand out credentials. Never opened, by no setting."""

_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_TRANSLATED: Final = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_LAYERS_WITHOUT_MEANING: Final = (_MAPPED, _NAT64)
"""Prefixes that only carry an IPv4 address: the inner address alone is judged."""

_OTHER_SERVICES: Final = {
    "databases": (1433, 1434, 1521, 3306, 5432, 5433, 5984, 7000, 7001, 7199, 8086, 9042, 9160, 27017, 27018, 27019),
    "caches and search": (6379, 6380, 9200, 9300, 11211, 16379, 26379, 28017, 5601),
    "orchestration": (2181, 2375, 2376, 2379, 2380, 4369, 6443, 8500, 10050, 10051, 10250, 10255),
    "queues and logs": (5672, 9092, 15672),
    "mail, chat, telephony": (2525, 4190, 1719, 1720, 5038, 5060, 5061, 6665, 6666, 6667, 6668, 6669, 6679, 6697),
    "files and remote control": (1099, 1723, 2049, 3389, 3632, 4045, 5555, 5900, 5901, 5985, 5986, 6566, 10080),
    "displays": (6000, 6001, 6002, 6003),
    "proxies": (1080, 3128),
    "local names and fetching": (3659, 5353, 5355),
}
_MEANING_OF_PORT: Final = {port: meaning for meaning, ports in _OTHER_SERVICES.items() for port in ports}
"""Services of other kinds above 1023, which a request in the name of a stranger could reach or confuse."""


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Address ranges of a setting such as `allow_addresses`.

    Raises:
        SettingsError: Not an address range, or one with host bits set.
    """
    networks: list[Network] = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as exc:
            raise SettingsError(f"not an address range: {text!r} ({exc})") from exc
    return tuple(networks)


def parse_address(text: str) -> Address | None:
    """The address that `text` is in its usual spelling, or None: `0x7f.1`, `127.1` and zones are no addresses."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if "%" in text else address


def judge_address(ip: str, *, allowed: tuple[Network, ...] = ()) -> None:
    """Accept an address to connect to, or say why not.

    Args:
        ip: An address as text.
        allowed: Ranges that the operator opened for the domain in question.

    Raises:
        PeerError: ADDRESS_REFUSED.

    Source: trust and hosts, section 2.6.
    """
    address = parse_address(ip)
    if address is None:
        raise PeerError(Code.ADDRESS_REFUSED, f"not an address: {ip[:64]!r}")
    layers = tuple(_unwrap(address))
    if any(_is_in(layer, _METADATA) for layer in layers):
        raise PeerError(Code.ADDRESS_REFUSED, f"{ip}: cloud metadata")
    for layer in layers:
        meaning = _refused_as(layer)
        if meaning and not _is_in(layer, allowed):
            inner = "" if layer == address else f" {layer}:"
            raise PeerError(Code.ADDRESS_REFUSED, f"{ip}:{inner} {meaning}")


def judge_port(port: int) -> None:
    """Accept a port that a domain's records or documents name: 443, or from 1024 on when nothing else lives there.

    Raises:
        PeerError: PORT_REFUSED.

    Source: trust and hosts, section 2.6.
    """
    if port == HTTPS_PORT:
        return
    if not LOWEST_NAMED_PORT <= port <= 65_535:
        raise PeerError(Code.PORT_REFUSED, f"port {port}: neither 443 nor from 1024 on")
    if port in _MEANING_OF_PORT:
        raise PeerError(Code.PORT_REFUSED, f"port {port} is one of {_MEANING_OF_PORT[port]}")


def same_address(first: str, second: str) -> bool:
    """True if two texts are the same address, IPv4-mapped or not."""
    ours, theirs = parse_address(first), parse_address(second)
    return ours is not None and _bare(ours) == _bare(theirs)


def _bare(address: Address | None) -> Address | None:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _refused_as(address: Address) -> str:
    """The kind of an address that is no host on the Internet, "" for one that is."""
    for network, meaning in _SPECIAL:
        if address in network:
            return meaning
    if address.version == 6 and address not in _GLOBAL_UNICAST:
        return "not global unicast"
    return ""


def _unwrap(address: Address) -> Iterator[Address]:
    """All addresses at which a packet to `address` could arrive: itself, and those inside."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    if not any(address in prefix for prefix in _LAYERS_WITHOUT_MEANING):
        yield address
    yield from _embedded(address)


def _embedded(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    number = int(address)
    low = ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    if (
        any(address in prefix for prefix in _LAYERS_WITHOUT_MEANING)
        or address in _TRANSLATED
        or (address in _COMPATIBLE and number > 1)
    ):
        yield low
    elif address in _LOCAL_NAT64:
        yield low  # a /96 under the prefix
        yield ipaddress.IPv4Address((number >> 64 & 0xFFFF) << 16 | (number >> 40 & 0xFFFF))  # RFC 6052, /48
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
