"""Settings of interworking stubs: `[[interworking]]`.

Source: message specification, section 16; feature rows LI-07 to LI-10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from federation.core.interworking import NOWHERE, Admission, Interworking
from federation.core.service_tokens import origin_of, read_token
from federation.core.stub_status import StubAddresses
from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem
from msg_node.settings.tables.interworking import InterworkingSettings
from msg_node.storage.file_checks import read_private
from protofly.errors import PeerError, SettingsError
from protofly.legacy_range import LegacyRange, covers_any, natural_range, parse_range


def build_interworking(settings: Settings, addresses: StubAddresses = NOWHERE) -> Interworking:
    """The admitted interworking stubs of the node, at those addresses; the settings have been checked."""
    return Interworking(admissions(settings), own_domains=frozenset(settings.own_domains), addresses=addresses)


def admissions(settings: Settings) -> list[Admission]:
    """Return what the settings grant to interworking stubs."""
    return [
        Admission(
            domain=one.domain,
            ranges=_ranges(one),
            allows_http=one.http,
            token_origins=frozenset(map(origin_of, one.token_origins)),
            has_token=one.token_file is not None,
        )
        for one in settings.interworking
    ]


def token_readers(settings: Settings) -> dict[str, Callable[[], str]]:
    """Return readers of the operator's access tokens, by domain. They raise SettingsError."""
    return {
        one.domain: partial(_read_token, one.token_file) for one in settings.interworking if one.token_file is not None
    }


def _read_token(path: Path) -> str:
    try:
        return read_token(read_private(path).decode("ascii"))
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{path}: not an access token: one line of letters, digits and -._~+/=") from exc


def interworking_problems(settings: Settings) -> Iterator[Problem]:
    """Check that each entry has a peer, and ranges that are neither empty, nor ours, nor those of others."""
    peers = {peer.domain for peer in settings.peer}
    pooled = [address for pool in settings.allocation.pool for address in pool.addresses]
    seen: dict[LegacyRange, str] = {}
    domains: set[str] = set()
    for index, one in enumerate(settings.interworking):
        place = ("interworking", index)
        if one.domain in domains:
            yield (*place, "domain"), f"a second entry for {one.domain}"
        domains.add(one.domain)
        if one.domain not in peers:
            yield (*place, "domain"), f"needs a [[peer]] entry that names {one.domain} in full"
        yield from _token_problems(place, one)
        try:
            ranges = _ranges(one)
        except PeerError as exc:
            yield (*place, "ranges"), exc.detail
            continue
        for granted in ranges:
            yield from _range_problems((*place, "ranges"), granted, seen, pooled, settings)
        seen.update(dict.fromkeys(ranges, one.domain))


def _token_problems(place: tuple[str | int, ...], one: InterworkingSettings) -> Iterator[Problem]:
    for text in one.token_origins:
        if not text.isascii() or origin_of(text) != text:
            yield (*place, "token_origins"), f"{text!r} is not `https://host[:port]`, in lower case, without a path"
    if one.token_origins and not one.http:
        yield (*place, "token_origins"), "tokens go over http channels: `http = true`"
    if one.token_file is not None and not one.token_origins:
        yield (*place, "token_file"), "needs `token_origins`: where it may go"


def _range_problems(
    place: tuple[str | int, ...],
    granted: LegacyRange,
    seen: dict[LegacyRange, str],
    pooled: list[str],
    settings: Settings,
) -> Iterator[Problem]:
    if granted.host in settings.own_domains:
        yield place, f"{granted} is of our own domain"
    for other, domain in seen.items():
        if granted.overlaps(other):
            yield place, f"{granted} overlaps {other} of {domain}"
    if any(_is_covered(granted, address) for address in pooled):
        yield place, f"{granted} holds addresses of an allocation pool"


def _is_covered(granted: LegacyRange, address: str) -> bool:
    try:
        return covers_any((granted,), address)
    except PeerError:
        return False  # reported by the checks of pools


def _ranges(one: InterworkingSettings) -> tuple[LegacyRange, ...]:
    return tuple(map(parse_range, one.ranges)) or (natural_range(one.domain),)
