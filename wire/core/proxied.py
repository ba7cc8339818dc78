"""The client behind a proxy: the PROXY protocol, versions 1 and 2, and the header fields of HTTP proxies.

What a proxy says counts only if the proxy is one that the operator lists; the caller sees to that. Of a list of
addresses the rightmost one that is no proxy of ours is the client: what stands left of it anybody may have written.

The PROXY protocol is as HAProxy Technologies have published it, versions 1 and 2 of 2020. Source: RFC 7239, sections 4
to 6.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

from protofly.errors import Code, PeerError
from wire.core.network import Address, Network

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
"""The beginning of every header of version 2."""
FIRST_BYTES: Final = len(SIGNATURE)
"""So many bytes say which version it is; no header is shorter."""
FIXED_BYTES: Final = 16
"""What every header of version 2 has before its addresses."""
V1_BYTES: Final = 107
"""The longest line of version 1, with its end."""
V2_BYTES: Final = 2048
"""What a header of version 2 may have behind its fixed part: addresses and extensions."""
_V1_BEGINS: Final = b"PROXY "
_V1: Final = re.compile(rb"PROXY (?:UNKNOWN(?: [^\r\n]*)?|(TCP4|TCP6) (\S+) (\S+) (\d{1,5}) (\d{1,5}))\r\n")
_FAMILIES: Final = {0x11: 4, 0x21: 16}
"""Bytes of an address, by family and transport: TCP over IPv4 and IPv6."""
_LOCAL, _PROXY = 0x20, 0x21
_HOPS: Final = 32
_ELEMENT: Final = re.compile(r'\s*([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^\s;,"]+)\s*')
_NODE: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|(\d+\.\d+\.\d+\.\d+)(?::\d{1,5})?|([0-9A-Fa-f:.]+)")


def header_bytes(first: bytes) -> int | None:
    """Compute the length up to which a PROXY header is to be read, from its first bytes; None for a line of version 1.

    Args:
        first: `FIRST_BYTES` bytes, or `FIXED_BYTES` of a header of version 2, which say its length.

    Raises:
        PeerError: PROXY_HEADER: it is none, or too long.
    """
    if first.startswith(SIGNATURE):
        length = FIXED_BYTES if len(first) < FIXED_BYTES else FIXED_BYTES + int.from_bytes(first[14:FIXED_BYTES], "big")
        if length > FIXED_BYTES + V2_BYTES:
            raise _refused(f"the header has {length} bytes")
        return length
    if first.startswith(_V1_BEGINS):
        return None
    raise _refused("the connection does not begin with a PROXY header")


def client_in_header(header: bytes) -> Address | None:
    """The client that a whole PROXY header names; None: the proxy speaks for itself, or does not know.

    Raises:
        PeerError: PROXY_HEADER.
    """
    return _of_v2(header) if header.startswith(SIGNATURE) else _of_v1(header)


def _of_v1(line: bytes) -> Address | None:
    found = _V1.fullmatch(line) if len(line) <= V1_BYTES else None
    if found is None:
        raise _refused("no line of version 1")
    if found[1] is None:
        return None
    address = _address(found[2].decode("latin-1"))
    if address is None or address.version != (4 if found[1] == b"TCP4" else 6):
        raise _refused("no address of its family")
    return address


def _of_v2(header: bytes) -> Address | None:
    command, family = header[12], header[13]
    if command == _LOCAL:
        return None
    if command != _PROXY:
        raise _refused("neither LOCAL nor PROXY of version 2")
    size = _FAMILIES.get(family)
    if size is None:
        raise _refused("the client has no address of IPv4 or IPv6 over TCP")
    if len(header) < FIXED_BYTES + 2 * size + 4:
        raise _refused("the header is shorter than its addresses")
    return ipaddress.ip_address(header[FIXED_BYTES : FIXED_BYTES + size])


def client_of_list(values: Sequence[str], trusted: Iterable[Network]) -> Address:
    """The client in the field `X-Forwarded-For`, all lines of it in order.

    Raises:
        PeerError: PROXY_HEADER.
    """
    return _rightmost([part.strip() for value in values for part in value.split(",")], trusted)


def client_of_forwarded(values: Sequence[str], trusted: Iterable[Network]) -> Address:
    """The client in the field `Forwarded`, all lines of it in order. Source: RFC 7239, section 4.

    Raises:
        PeerError: PROXY_HEADER.
    """
    nodes = []
    for element in _split(",".join(values), ","):
        named = [_pair(pair) for pair in _split(element, ";")]
        found = [value for name, value in named if name == "for"]
        if len(found) != 1:
            raise _refused("`Forwarded` names not one `for` in each element")
        nodes.append(found[0])
    return _rightmost(nodes, trusted)


def _pair(text: str) -> tuple[str, str]:
    found = _ELEMENT.fullmatch(text)
    if found is None:
        raise _refused("`Forwarded` is not as RFC 7239 has it")
    value = found[2]
    return found[1].lower(), re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _split(text: str, mark: str) -> list[str]:
    """Split at a mark that is in no quoted text."""
    parts, start, is_quoted, is_escaped = [], 0, False, False
    for index, char in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif is_quoted and char == "\\":
            is_escaped = True
        elif char == '"':
            is_quoted = not is_quoted
        elif char == mark and not is_quoted:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _rightmost(nodes: list[str], trusted: Iterable[Network]) -> Address:
    """The rightmost address that is not trusted, the leftmost one if all are."""
    networks = tuple(trusted)
    if len(nodes) > _HOPS:
        raise _refused(f"more than {_HOPS} addresses")
    address = None
    for node in reversed(nodes):
        found = _NODE.fullmatch(node)
        address = None if found is None else _address(found[1] or found[2] or found[3])
        if address is None:
            raise _refused(f"{node[:40]!r} is no address")
        if not is_in(address, networks):
            return address
    if address is None:
        raise _refused("no address")
    return address


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    """True if an address, or the IPv4 address that it stands for, is in one of these ranges."""
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)


def _refused(detail: str) -> PeerError:
    return PeerError(Code.PROXY_HEADER, detail)
