"""Which switches of the settings weaken something, in words: for the log, the status page, and operators.

Each of them has a row in `docs/security.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msg_node.settings.model import Settings
from msg_node.settings.storage import is_beyond_machine


def insecure_switches(settings: Settings) -> tuple[str, ...]:
    """Every weakening that these settings ask for, in words."""
    switches = [text for is_on, text in _plain_switches(settings) if is_on]
    backends = (
        ("registry", settings.registry),
        ("qos", settings.qos),
        ("catalogue.own", settings.catalogue.own),
        ("global_registry", settings.global_registry),
        ("alarms.webhook", settings.alarms.webhook),
    )
    for table, backend in backends:
        if backend is not None and backend.insecure_plaintext:
            switches.append(f"{table}.insecure_plaintext: no TLS to {backend.url}")
    switches += [
        f"block_list {one.author}: insecure_plaintext: no TLS to {one.url}; it is signed nevertheless"
        for one in settings.block_list
        if one.insecure_plaintext
    ]
    if settings.push is not None:
        switches += [
            f"push.service {service.url}: insecure_plaintext: no TLS to this push service"
            for service in settings.push.service
            if service.insecure_plaintext
        ]
    if settings.mqtt is not None and settings.mqtt.insecure_plaintext:
        switches.append("mqtt.insecure_plaintext: no TLS to the broker")
    switches += [
        f"identity.provider {provider.issuer}: insecure_plaintext: its keys are fetched without TLS"
        for provider in settings.identity.provider
        if provider.insecure_plaintext
    ]
    switches += [
        f"connector {one.service}: insecure_plaintext: no TLS to its endpoint"
        for one in settings.connector
        if one.insecure_plaintext
    ]
    switches += [
        f"peer {peer.domain}: insecure_plaintext: no TLS to this domain"
        for peer in settings.peer
        if peer.insecure_plaintext
    ]
    switches += [
        f"peer {peer.domain}: unsigned_stub: code that nobody signed runs in the sandbox, pinned by its digest"
        for peer in settings.peer
        if peer.unsigned_stub
    ]
    return tuple(switches)


def _plain_switches(settings: Settings) -> Iterator[tuple[bool, str]]:
    """Each weakening that is one setting of the whole node: whether it is asked for, and in words."""
    compat, site = settings.compat, settings.site
    yield bool(compat.profile), f"compat.profile = {compat.profile}: behaves as the nodes that existing runtimes know"
    yield settings.listen.insecure_plaintext, "listen.insecure_plaintext: runtimes and links without TLS"
    yield site is not None and site.insecure_plaintext, "site.insecure_plaintext: published documents without TLS"
    admin = settings.admin
    yield admin is not None and admin.insecure_plaintext, "admin.insecure_plaintext: the admin site without TLS"
    yield admin is not None and admin.behind_proxy, "admin.behind_proxy: the admin site serves what proxies pass on"
    yield settings.sandbox.insecure_no_seccomp, "sandbox.insecure_no_seccomp: workers without system call filter"
    yield not settings.allocation.strict_release, "allocation.strict_release: any runtime releases addresses of others"
    yield not settings.routing.reporter_only, "routing.reporter_only: any runtime changes any object"
    yield not settings.records.hash_addresses, "records.hash_addresses: the records name senders and recipients"
    text = "compat.return_by_address: who knows the address of a lost runtime gets what it held"
    yield compat.return_by_address, text
    text = "compat.take_over: who knows the address of a runtime gets its session, while it is live too"
    yield compat.take_over, text
    yield compat.keep_registered, "compat.keep_registered: the registry shows runtimes that have left as live"
    is_open = settings.storage.tls == "off" and is_beyond_machine(settings.storage)
    yield is_open, "storage.tls = off: the state of the node crosses the network without TLS"
    yield settings.subscriptions.taps, "subscriptions.taps: operators read every message"
    yield settings.recording is not None, "recording: operators may record every message, encrypted, for a time"
