"""Which switches of the settings weaken something, in words: for the log, the status page, and operators.

Each of them has a row in `docs/security.md`.
"""

from __future__ import annotations

from msg_node.settings.model import Settings


def insecure_switches(settings: Settings) -> tuple[str, ...]:
    """Every weakening that these settings ask for, in words."""
    switches = []
    if settings.listen.insecure_plaintext:
        switches.append("listen.insecure_plaintext: runtimes and links without TLS")
    if settings.site is not None and settings.site.insecure_plaintext:
        switches.append("site.insecure_plaintext: published documents without TLS")
    if settings.sandbox.insecure_no_seccomp:
        switches.append("sandbox.insecure_no_seccomp: workers without system call filter")
    if not settings.allocation.strict_release:
        switches.append("allocation.strict_release: any runtime releases any address")
    if not settings.routing.reporter_only:
        switches.append("routing.reporter_only: any runtime changes any object")
    if settings.compat.return_by_address:
        switches.append("compat.return_by_address: who knows the address of a lost runtime gets what it held")
    if settings.subscriptions.taps:
        switches.append("subscriptions.taps: operators read every message")
    backends = (
        ("registry", settings.registry),
        ("qos", settings.qos),
        ("catalogue.own", settings.catalogue.own),
        ("global_registry", settings.global_registry),
    )
    for table, backend in backends:
        if backend is not None and backend.insecure_plaintext:
            switches.append(f"{table}.insecure_plaintext: no TLS to {backend.url}")
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
        f"peer {peer.domain}: insecure_plaintext: no TLS to this domain"
        for peer in settings.peer
        if peer.insecure_plaintext
    ]
    return tuple(switches)
