"""`trapezoid check`: everything that would keep a node from starting or from being understood, without starting it."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msg_node import config_meaning
from msg_node.config import ListenSettings, Settings, SiteSettings
from msg_node.config_interworking import build_interworking, token_readers
from msg_node.config_push import PushSettings
from msg_node.config_registries import BackendSettings, backend_context
from msg_node.config_sessions import build_credentials
from msg_node.connectors.web_push import PushKey
from msg_node.key_files import load_online_keys
from msg_node.people import keys_in_file
from msg_node.publisher import make_publisher
from protofly.errors import HostError, SettingsError
from sandbox.engine_version import engine_version
from trapezoid.publishing import is_signed_for, newest_root

EXPIRY_WARNING_SECONDS = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and what came out of it."""

    part: str
    is_good: bool
    text: str


def check_node(settings: Settings) -> list[Finding]:
    """Run all checks; a failing one does not stop the others."""
    return [_run(part, check) for part, check in _checks(settings)]


def _checks(settings: Settings) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "settings", lambda: f"{settings.node_id}, {_counted(len(settings.peer), 'peer')} named"
    yield "node.data_dir", lambda: _check_folder(settings.node.data_dir)
    yield "records.spool_dir", lambda: _check_folder(settings.spool_dir)
    yield "listen", lambda: _check_door(settings.listen)
    site = settings.site
    if site is not None:
        yield "site", lambda: _check_door(site)
        yield "site.status_token_sha256", lambda: config_meaning.status_access(site)
    if settings.publish is not None:
        yield "publish", lambda: _check_publication(settings)
    yield "discovery.ca_file", lambda: _check_authorities(settings.discovery.ca_file)
    yield "sessions", lambda: _check_sessions(settings)
    if settings.identity.provider or settings.global_registry is not None:
        yield "people", lambda: _check_people(settings)
    elsewhere = {"registry": settings.registry, "qos": settings.qos, "catalogue.own": settings.catalogue.own}
    for table, backend in elsewhere.items():
        if backend is not None:
            yield table, partial(_check_backend, table, backend)
    push = settings.push
    if push is not None:
        yield "push", lambda: _check_push(push)
    if settings.interworking:
        yield "interworking", lambda: _check_interworking(settings)
    yield "policy", lambda: _check_policies(settings)
    yield "sandbox", lambda: _check_sandbox(settings)


def _run(part: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(part, is_good=True, text=check())
    except HostError as exc:
        return Finding(part, is_good=False, text=exc.detail or exc.code.word)
    except OSError as exc:
        return Finding(part, is_good=False, text=f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc))


def _check_folder(folder: Path) -> str:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise SettingsError(f"{there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise SettingsError(f"{there} cannot be written to")
    return f"{folder}{'' if there == folder else ' (will be made)'}"


def _check_door(door: ListenSettings | SiteSettings) -> str:
    text = f"{door.host}:{door.port}"
    _check_bind(door.host, door.port)
    if door.certificate is None or door.key is None:
        return f"{text}, without TLS"
    if door.key.stat().st_mode & 0o077:
        raise SettingsError(f"{door.key} is open to others; run: chmod 600 {door.key}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(door.certificate, door.key)
    except ssl.SSLError as exc:
        raise SettingsError(f"{door.certificate} and {door.key} do not fit: {exc.reason}") from exc
    return f"{text}, {_check_expiry(door.certificate)}"


def _check_interworking(settings: Settings) -> str:
    """Who is admitted, and whether the access tokens can be read."""
    for read in token_readers(settings).values():
        read()
    made = build_interworking(settings)
    granted = ((domain, made.admission(domain)) for domain in made.domains)
    return "; ".join(f"{domain} for {', '.join(map(str, one.ranges))}" for domain, one in granted if one is not None)


def _check_sessions(settings: Settings) -> str:
    """The files that say whose tokens and certificates count."""
    build_credentials(settings)
    config_meaning.server_context(settings)
    sessions = settings.sessions
    ways = [_counted(len(sessions.credential), "token") if sessions.credential else ""]
    ways += [f"issuer {one.issuer}" for one in sessions.issuer]
    ways += ["client certificates" if settings.listen.client_ca is not None else ""]
    ways += ["anonymous" if sessions.anonymous else ""]
    return ", ".join(filter(None, ways)) or "nobody can open a session"


def _check_people(settings: Settings) -> str:
    """The files about people; nobody is asked."""
    told = []
    if settings.global_registry is not None:
        backend_context("global_registry", settings.global_registry)
        told.append(f"GUIDs from {settings.global_registry.url}")
    for provider in settings.identity.provider:
        if provider.jwks is not None:
            keys_in_file(provider)
        told.append(f"provider {provider.issuer}")
    tokens = settings.identity.tokens
    if tokens is not None:
        told.append(f"logins, tokens signed by {load_online_keys(tokens.keys_dir, 'token')[0].key_id}")
    return ", ".join(told)


def _check_push(push: PushSettings) -> str:
    """The key that push services know us by, and the files for them; none is asked."""
    key = PushKey(push.key, push.subject)
    for service in push.service:
        backend_context("push.service", service)
    return f"key {key.public[:16]}…, {', '.join(one.url for one in push.service)}"


def _check_backend(table: str, backend: BackendSettings) -> str:
    """The files for a server that the settings name; it is not asked."""
    backend_context(table, backend)
    if backend.certificate is None or backend.key is None:
        return f"{backend.url}, without a certificate of ours"
    if backend.key.stat().st_mode & 0o077:
        raise SettingsError(f"{backend.key} is open to others; run: chmod 600 {backend.key}")
    return f"{backend.url}, {_check_expiry(backend.certificate)}"


def _check_bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            by_whom = " (by this node, if it runs)" if exc.errno == errno.EADDRINUSE else ""
            raise SettingsError(f"cannot bind {host} port {port}: {exc.strerror}{by_whom}") from exc


def _check_expiry(certificate: Path) -> str:
    from cryptography import x509

    try:
        expires = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except ValueError as exc:
        raise SettingsError(f"{certificate}: {exc}") from exc
    left_seconds = expires.timestamp() - time.time()
    if left_seconds <= 0:
        raise SettingsError(f"{certificate} expired on {expires:%Y-%m-%d}")
    warning = " (soon)" if left_seconds < EXPIRY_WARNING_SECONDS else ""
    return f"certificate until {expires:%Y-%m-%d}{warning}"


def _check_publication(settings: Settings) -> str:
    publisher, node_key = make_publisher(settings)
    publication = publisher.folder.load()
    newest = newest_root(publisher.folder, settings.node.domain)
    if newest is None:
        raise SettingsError(f"{publisher.folder.path}: no root is published here")
    root = newest[1]
    if root.expires.timestamp() <= time.time():
        raise SettingsError(f"the published root expired on {root.expires:%Y-%m-%d}; run `trapezoid publish`")
    strangers = [key_id for key_id in publisher.live_key_ids if key_id not in root.roles.live.keys]
    if strangers:
        raise SettingsError(f"the published root does not name {', '.join(strangers)}; run `trapezoid publish`")
    references = {name: stub.reference for name, stub in publication.stubs.items()}
    for reference in references.values():
        if not is_signed_for(publisher.folder.manifest(reference.name).read_bytes(), root):
            raise SettingsError(
                f"no pkg key that the published root names signed the manifest of {reference.name}; "
                "run `trapezoid publish` with that module"
            )
    stubs = ", ".join(f"{name}: {reference.name} {reference.serial}" for name, reference in references.items())
    return f"root {root.version} until {root.expires:%Y-%m-%d}, {stubs}, node key {node_key.key_id}"


def _check_authorities(ca_file: Path | None) -> str:
    if ca_file is None:
        return "those of the system"
    try:
        ssl.create_default_context(cafile=str(ca_file))
    except ssl.SSLError as exc:
        raise SettingsError(f"{ca_file}: {exc.reason}") from exc
    return str(ca_file)


def _check_policies(settings: Settings) -> str:
    policies = config_meaning.build_gate(settings).policies
    files = len(settings.policy.files)
    return f"{_counted(files, 'file')}, revision {policies.revision}{', their tests passed' if files else ''}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _check_sandbox(settings: Settings) -> str:
    """How guests run, and on which engine: advisories name the version of the library, not of its package."""
    workers = "workers without system call filter" if settings.sandbox.insecure_no_seccomp else "confined workers"
    return f"{workers}, engine {engine_version()}"
