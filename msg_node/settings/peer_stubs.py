"""Settings of stubs in `[[peer]]`: which one, where it connects, what it is given, how long it stays.

Source: message specification, section 18.1; foreign nodes, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from federation.core.peer_terms import PeerTerms
from msg_node.settings.interworking import token_readers
from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem
from msg_node.settings.tables.grants import GrantSettings
from msg_node.settings.tables.peers import PeerSettings
from protofly.documents import EndpointUrl
from protofly.limits import STUB_CONFIGURATION_BYTES

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SCRIPT_URL: Final = re.compile(
    r"https://([a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[1-9]\d{1,4})?)/\.well-known/protocolstub/([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})"
)
_IN_PLAINTEXT: Final = ("ws:", "http:")


def peer_terms(settings: Settings) -> PeerTerms:
    """Return the terms of single links in the entries."""
    return PeerTerms(
        chosen=frozenset(peer.domain for peer in settings.peer if peer.stub is not None or peer.unsigned_stub),
        connected=frozenset(peer.domain for peer in settings.peer if peer.stay_connected),
        plain=frozenset(peer.domain for peer in settings.peer if peer.trust_class == "plain"),
        plaintext=frozenset(peer.domain for peer in settings.peer if peer.insecure_plaintext),
        bare=frozenset(peer.domain for peer in settings.peer if not peer.send_via),
        token_readers=token_readers(settings),
    )


def peer_stub_problems(settings: Settings) -> Iterator[Problem]:
    """Check the fields of an entry about its stub against each other."""
    for index, peer in enumerate(settings.peer):
        for name, text in _problems(settings, peer):
            yield ("peer", index, name), text


def _problems(settings: Settings, peer: PeerSettings) -> Iterator[tuple[str, str]]:
    is_wildcard = peer.domain.startswith("*.")
    given: dict[str, object] = {"stub": peer.stub, "unsigned_stub": peer.unsigned_stub}
    given |= {"configuration": peer.configuration, "stay_connected": peer.stay_connected}
    given |= {"class": peer.trust_class == "plain", "send_via": not peer.send_via}
    given |= {"grant": peer.grant != GrantSettings()}
    if is_wildcard:
        yield from ((name, "only for a domain that is named in full") for name, value in given.items() if value)
    if len(msgspec.json.encode(plain_values(peer.configuration))) > STUB_CONFIGURATION_BYTES:
        yield "configuration", f"has more than {STUB_CONFIGURATION_BYTES:,} bytes"
    yield from _script_problems(peer)
    yield from _update_problems(settings, peer)
    if peer.stub is None and not peer.unsigned_stub:
        if peer.endpoint:
            yield "endpoint", "goes with `stub` or `unsigned_stub`"
        return
    if peer.trust_class != "plain":
        yield "class", 'a stub that you choose proves nothing about its domain: `class = "plain"`'
    if peer.well_known_url or peer.fingerprint:
        yield "stub", "wins over what the domain publishes: leave out `well_known_url` and `fingerprint`"
    if any(one.domain == peer.domain for one in settings.interworking):
        yield "stub", "an [[interworking]] entry speaks of the stub that the domain publishes"
    yield from (("endpoint", text) for text in _endpoint_problems(peer))


def _update_problems(settings: Settings, peer: PeerSettings) -> Iterator[tuple[str, str]]:
    if any(not _SHA256.fullmatch(one) for one in peer.modules):
        yield "modules", "64 small hex digits each: `trapezoid node stubs --json` shows what runs"
    if peer.updates == "pinned" and not peer.modules:
        yield "updates", "`pinned` needs `modules`: nothing could run"
    if peer.updates == "auto" and peer.modules:
        yield "modules", 'goes with `updates = "hold"` or `"pinned"`'
    is_chosen = peer.stub is not None or bool(peer.unsigned_stub)
    if peer.canary_percent and (is_chosen or peer.domain in {one.domain for one in settings.interworking}):
        yield "canary_percent", "only for a stub that the domain publishes, and that is no interworking stub"
    if peer.updates != "auto" and is_chosen:
        yield "updates", "a stub that you choose is not updated: leave this out"


def _script_problems(peer: PeerSettings) -> Iterator[tuple[str, str]]:
    if not peer.unsigned_stub:
        if peer.sha256:
            yield "sha256", "goes with `unsigned_stub`"
        return
    if peer.stub is not None:
        yield "unsigned_stub", "another one than `stub`: leave one of them out"
    if script_place(peer.unsigned_stub) is None:
        yield "unsigned_stub", "not https://HOST/.well-known/protocolstub/NAME"
    if not _SHA256.fullmatch(peer.sha256):
        yield "sha256", "64 small hex digits: nobody signs this stub; `trapezoid peer catalogue` shows what it serves"


def script_place(url: str) -> tuple[str, str] | None:
    """Host, with a port unless it is 443, and name of an entry in an original catalogue; None for another URL."""
    found = _SCRIPT_URL.fullmatch(url)
    return None if found is None else (found[1], found[2])


def _endpoint_problems(peer: PeerSettings) -> Iterator[str]:
    try:
        msgspec.convert(peer.endpoint, EndpointUrl)
    except msgspec.ValidationError:
        yield "not a wss://, https:// or tls:// URL in lower case, with the path where the node listens"
        return
    if peer.endpoint.startswith(_IN_PLAINTEXT) and not peer.insecure_plaintext:
        yield "without TLS only with `insecure_plaintext = true` in this entry"


def plain_values(configuration: Mapping[str, object]) -> dict[str, object]:
    """Settings as JSON has them: moments of TOML become texts."""
    made = msgspec.to_builtins(dict(configuration), str_keys=True)
    assert isinstance(made, dict)
    return made
