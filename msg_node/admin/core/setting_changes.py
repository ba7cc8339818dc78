"""What differs between two sets of settings, and what of it a running node can take over.

Settings are compared as plain values, entries of lists that have a `domain` by that: `peer[b.example].default`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

Plain: TypeAlias = object
"""A value as JSON has it."""


class SettingChange(msgspec.Struct, frozen=True):
    """One setting that differs; None stands for one that is not there."""

    name: str
    before: Plain
    after: Plain


_PEER: Final = r"peer\[[^\]]*\]\."
_PEER_FIELDS: Final = "|".join(
    (
        "default|trust|fingerprint|allow_addresses|messages_per_second|bytes_per_second|burst_seconds|rate|p2p|domain",
        "stub|unsigned_stub|sha256|endpoint|insecure_plaintext|send_via|well_known_url|connect",
        "updates|modules|canary_percent|canary_seconds|aliases|record_bytes|quota|class|stay_connected|may_receive",
        r"(?:grant|configuration)(?:\.[\s\S]*)?",
    )
)
_LIMITS: Final = (
    "session_queue_(messages|bytes)|(allocation|subscriptions)_per_session|allocation_per_guest_domain"
    "|waiting_(messages|bytes|seconds)|sessions|links|frame_bytes|max_hops"
)
_RELOADABLE: Final = re.compile(
    "|".join(
        (
            r"policy\.(files|mode|allow|deny|lists_agree|lists_exempt|local_default|keys|two_persons)",
            r"sessions\.(anonymous|anonymous_runtimes|credential|certificate|issuer|guests|presence)",
            r"sessions\.((take_over_)?grace|lease|ping)_seconds",
            r"compat\..*",
            rf"{_PEER}({_PEER_FIELDS})",
            rf"limits\.({_LIMITS})",
            r"middleware\.(order|logging\..*|authentication\..*|rate\..*|schema\..*)",
            r"(registry|qos|global_registry|push)\..*|catalogue\..*|mqtt(\..*)?|connector|interworking",
            r"identity\.(provider|demand|registered_users|passwords(\..*)?|tokens\..*)",
            r"(allocation|routing|delivery|twin)\..*|subscriptions\.(require_consent|expand_schema|catch_up_.*|taps)",
            r"(listen|site|admin)\.(certificate|key)",
            r"(listen|site)\.(trusted_proxies|client_address_from)",
            r"listen\.(client_ca|client_certificate|origins)|https\.(poll_seconds|queue_messages)",
            r"exchange\.(file_bytes|waiting_files|waiting_bytes|hourly_files|partner)",
            r"site\.public_url|admin\.(behind_proxy|requests_per_second)",
            r"publish\.(endpoint|endpoint_url|endpoint_name|endpoint_spki|live_seconds|cache_seconds|mode|contact)",
            r"discovery\..*|sandbox\.(memory_bytes|batch_seconds|cpu_share|cache_bytes)|traces\.(share|per_second)",
            r"records\.(queue_records|segment_bytes|segment_seconds|sync_seconds)",
            r"listen\.(proxy_certificates|unopened_per_second)",
            r"site\.(status_token_sha256|connections|connections_per_address|requests_per_second|reverse_check)",
            r"node\.drain_seconds",
            r"log\.level",
            r"records\.keep_days(\..*)?",
            r"block_list|alarms\.webhook(\..*)?",
        )
    )
)


_DIGEST_SHOWN: Final = 8
_PLACE: Final = re.compile(r"(https?://[^/?#]*/?).*", re.DOTALL)
_REASONS: Final = (
    (r"policy\.documents", "which policies owners named while it was off is not known"),
    (r"node\..*", "stored state and other nodes know it"),
    (r"(listen|site|admin)\.(host|port)", "it is the address that is bound"),
    (r"records\..*", "the segment that is being written has it"),
    (rf"{_PEER}.*", "the link of this domain was made with it"),
    (r"registry", "which registry has the entries of sessions is settled at the start"),
    (r"(qos|global_registry|push)", "services are made, or left out, at the start"),
    (r"(storage|cluster)(\..*)?", "what is stored is there, and other nodes look for it there"),
    (r"(listen|https|site|admin|publish)(\..*)?", "what is served was made with it"),
    (r"sandbox\..*", "stubs that run were started with it"),
    (r".*", "it is read at the start only"),
)


def reason_for_restart(name: str) -> str:
    """Say why a running node cannot take a setting over; precondition: it is none that `is_reloadable`."""
    return next(reason for pattern, reason in _REASONS if re.fullmatch(pattern, name))


def is_reloadable(change: SettingChange) -> bool:
    """True if a running node can take a change over."""
    return _RELOADABLE.fullmatch(change.name) is not None


def differences(before: Plain, after: Plain, defaults: Mapping[str, Plain], name: str = "") -> list[SettingChange]:
    """Compare settings.

    Args:
        before: Those in force, as plain values.
        after: Those to come.
        defaults: What an entry has that says nothing, by the name of its list: `peer`.
        name: Where in the settings they stand.

    Returns:
        What differs, by name and in order.
    """
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[SettingChange] = []
        for key in [*before, *(key for key in after if key not in before)]:
            place = f"{name}.{key}" if name else str(key)
            found += differences(before.get(key), after.get(key), defaults, place)
        return found
    if name in defaults and isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return _entries(name, before, after, defaults)
    return [SettingChange(name, _discreet(name, before), _discreet(name, after))]


def _discreet(name: str, value: Plain) -> Plain:
    """Leave out of a value what records are not to have: of the URL of a webhook the path, which often is a secret."""
    if name == "alarms.webhook" and isinstance(value, dict):
        return {**value, "url": _discreet("alarms.webhook.url", value["url"])}
    if name == "alarms.webhook.url" and isinstance(value, str):
        return _PLACE.sub(r"\1…", value)
    return _without_digests(value)


def _without_digests(value: Plain) -> Plain:
    """Shorten digests of tokens: who reads a change is not to try texts against the whole of one."""
    if isinstance(value, list | tuple):
        return [_without_digests(one) for one in value]
    if isinstance(value, dict) and "token_sha256" in value:
        return {**value, "token_sha256": f"{str(value['token_sha256'])[:_DIGEST_SHOWN]}…"}
    return value


def _entries(
    name: str, before: Iterable[Plain], after: Iterable[Plain], defaults: Mapping[str, Plain]
) -> list[SettingChange]:
    """Compare entries by their domain; one that is new or gone differs from an entry that says nothing."""
    old, new = _by_domain(before), _by_domain(after)
    nothing = defaults[name]
    found: list[SettingChange] = []
    for domain in sorted({*old, *new}):
        found += differences(old.get(domain, nothing), new.get(domain, nothing), {}, f"{name}[{domain}]")
    return found


def _by_domain(entries: Iterable[Plain]) -> dict[str, Plain]:
    return {str(entry["domain"]): entry for entry in entries if isinstance(entry, dict)}
