"""The checks of a configuration: `trapezoid check` prints their findings, `trapezoid serve` runs them before it starts.

A finding has a level. `problem`: the node does not start. `failing`: it starts, since its own runtimes can be served,
and `/readyz` answers 503 for the same reason. `warning`: an operator should act.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from msg_node.backends.web_push import PushKey
from msg_node.settings.admin import token_file
from msg_node.settings.interworking import build_interworking, token_readers
from msg_node.settings.model import Settings
from msg_node.settings.mqtt import check_broker_files
from msg_node.settings.profiles import members_set_otherwise
from msg_node.settings.registries import backend_context
from msg_node.settings.sessions import build_credentials
from msg_node.settings.tables.admin import AdminSettings
from msg_node.settings.tables.bindings import MqttSettings
from msg_node.settings.tables.push import PushSettings
from msg_node.settings.tables.registries import BackendSettings
from msg_node.settings.tables.traces import TracesSettings
from msg_node.storage.file_checks import FileError, check_writable_folder, read_file
from msg_node.storage.key_files import load_online_keys
from msg_node.storage.policy_store import PolicyStore
from msg_node.wiring import meaning
from msg_node.wiring.identity import keys_in_file
from msg_node.wiring.traces import span_target
from policy.files import read_policies
from protofly.errors import HostError, SettingsError
from sandbox.engine_version import engine_version
from trapezoid.check_cluster import check_adopted, check_engine
from trapezoid.check_files import (
    check_bind,
    check_certificate,
    check_data_dir,
    check_own_certificate,
    check_recording_key,
    check_spool,
    check_state_keys,
    check_token,
)
from trapezoid.check_publication import check_documents, check_publication
from trapezoid.findings import Finding, Level, remark
from trapezoid.peer_stubs import check_choice, check_connector

logger = logging.getLogger("trapezoid.check")

Check = Callable[[], "str | Finding"]
"""Returns a text if all is well, else a finding. Raises HostError or OSError for a problem."""


def check_node(settings: Settings) -> list[Finding]:
    """Run all checks. A failing one does not stop the others."""
    return [_run(part, check) for part, check in _checks(settings)]


def check_start(settings: Settings) -> None:
    """Run all checks for a node that is about to start, and log the findings that do not prevent that.

    Raises:
        SettingsError: The findings that do, one line each.
    """
    findings = check_node(settings)
    problems = [one.line for one in findings if one.level is Level.PROBLEM]
    if problems:
        raise SettingsError("\n".join(problems))
    for one in findings:
        if not one.is_good:
            logger.error("%s", one.line)
        elif one.level is Level.WARNING:
            logger.warning("%s", one.line)


def _key_checks(settings: Settings) -> Iterator[tuple[str, Check]]:
    """Check the keys that encrypt what the node stores."""
    data_dir, storage, recording = settings.node.data_dir, settings.storage, settings.recording
    if (keys := storage.key_file) is not None and not storage.engine:
        yield "storage", lambda: check_state_keys(keys, data_dir)
    if recording is not None:
        yield "recording", lambda: check_recording_key(recording.key_file, data_dir)


def _checks(settings: Settings) -> Iterator[tuple[str, Check]]:
    listen, site = settings.listen, settings.site
    yield "settings", lambda: f"{settings.node_id}, {_counted(len(settings.peer), 'peer')}"
    yield "node.data_dir", lambda: check_data_dir(settings.node.data_dir)
    if settings.storage.engine:
        yield "storage", lambda: check_engine(settings)
        yield "accounts", lambda: check_adopted(settings)
    yield from _key_checks(settings)
    yield "records.spool_dir", lambda: check_spool(settings.spool_dir)
    yield "listen", lambda: check_bind(settings, listen)
    if listen.certificate is not None:
        yield "listen.certificate", lambda: check_certificate(settings, listen)
    if site is not None:
        yield "site", lambda: check_bind(settings, site)
        if site.certificate is not None:
            yield "site.certificate", lambda: check_certificate(settings, site)
        yield "site.status_token_sha256", lambda: meaning.status_access(site)
    if settings.admin is not None:
        yield from _checks_of_admin(settings, settings.admin)
    if settings.publish is not None:
        yield "publish", lambda: check_publication(settings)
        yield from check_documents(settings)
    yield "discovery.ca_file", lambda: _check_authorities(settings.discovery.ca_file)
    yield from _checks_of_services(settings)
    if settings.compat.profile:
        yield "compat.profile", lambda: _check_profile(settings)
    for peer in settings.peer:
        if peer.stub is not None or peer.unsigned_stub:
            yield f"peer {peer.domain}", partial(check_choice, settings, peer)
    for one in settings.connector:
        yield f"connector {one.service}", partial(check_connector, settings, one.service)
    yield "policy", lambda: _check_policies(settings)
    yield "sandbox", lambda: _check_sandbox(settings)


def _checks_of_admin(settings: Settings, admin: AdminSettings) -> Iterator[tuple[str, Check]]:
    """Checks of the admin site."""
    yield "admin", lambda: check_bind(settings, admin)
    if admin.certificate is not None:
        yield "admin.certificate", lambda: check_certificate(settings, admin)
    yield "admin.token_file", lambda: check_token(token_file(settings))


def _checks_of_services(settings: Settings) -> Iterator[tuple[str, Check]]:
    """Checks of sessions, identity and the external services of the settings."""
    yield "sessions", lambda: _check_sessions(settings)
    if settings.identity.provider or settings.identity.tokens is not None or settings.global_registry is not None:
        yield "identity", lambda: _check_identity(settings)
    elsewhere = {"registry": settings.registry, "qos": settings.qos, "catalogue.own": settings.catalogue.own}
    elsewhere["alarms.webhook"] = settings.alarms.webhook
    elsewhere |= {f"block_list {one.author}": one for one in settings.block_list}
    for table, backend in elsewhere.items():
        if backend is not None:
            yield table, partial(_check_backend, table, backend)
    push, mqtt = settings.push, settings.mqtt
    if push is not None:
        yield "push", lambda: _check_push(push)
    if mqtt is not None:
        yield "mqtt", lambda: _check_broker(mqtt)
    if settings.traces is not None:
        yield "traces", partial(_check_traces, settings.traces)
    if settings.interworking:
        yield "interworking", lambda: _check_interworking(settings)


def _run(part: str, check: Check) -> Finding:
    try:
        found = check()
    except FileError as exc:
        return remark(Level.PROBLEM, exc.word, exc.what, file=exc.file, action=exc.action, part=part)
    except HostError as exc:
        return remark(Level.PROBLEM, exc.code.word, exc.detail or exc.code.word, part=part)
    except OSError as exc:
        return _run(part, partial(_raise, FileError.unreadable(Path(exc.filename or part), exc)))
    return Finding(part, is_good=True, text=found) if isinstance(found, str) else replace(found, part=part)


def _raise(error: FileError) -> str:
    raise error


def _check_interworking(settings: Settings) -> str:
    """Check that access tokens can be read; list the domains that interwork. Raises SettingsError."""
    for read in token_readers(settings).values():
        read()
    made = build_interworking(settings)
    granted = ((domain, made.admission(domain)) for domain in made.domains)
    return "; ".join(f"{domain} for {', '.join(map(str, one.ranges))}" for domain, one in granted if one is not None)


def _check_sessions(settings: Settings) -> str:
    """Check the files that credentials are verified with; list the ways to open a session."""
    build_credentials(settings)
    meaning.server_context(settings)
    sessions = settings.sessions
    ways = [_counted(len(sessions.credential), "token") if sessions.credential else ""]
    ways += [f"issuer {one.issuer}" for one in sessions.issuer]
    ways += ["client certificates" if settings.listen.client_ca is not None else ""]
    ways += ["anonymous" if sessions.anonymous else ""]
    return ", ".join(filter(None, ways)) or "no client can open a session"


def _check_profile(settings: Settings) -> Finding:
    """Name the compatibility profile in force, and which of its members the operator set otherwise."""
    otherwise = members_set_otherwise(settings)
    text = f"{settings.compat.profile}: runtimes are served as by the nodes that they know"
    text += f", except {', '.join(otherwise)}" if otherwise else ""
    return remark(Level.WARNING, "insecure", text, action="docs/dialects.md says what each member weakens")


def _check_identity(settings: Settings) -> str:
    """Check the files of identity providers and logins. Connects to none of them."""
    found = []
    if settings.global_registry is not None:
        backend_context("global_registry", settings.global_registry)
        found.append(f"GUIDs from {settings.global_registry.url}")
    for provider in settings.identity.provider:
        if provider.jwks is not None:
            keys_in_file(provider)
        found.append(f"provider {provider.issuer}")
    tokens = settings.identity.tokens
    if tokens is not None:
        found.append(f"logins, tokens signed by {load_online_keys(tokens.keys_dir, 'token')[0].key_id}")
    return ", ".join(found)


def _check_push(push: PushSettings) -> str:
    """Check the push key and the files of push services. Connects to none of them."""
    key = PushKey(push.key, push.subject)
    for service in push.service:
        backend_context("push.service", service)
    return f"key {key.public[:16]}…, {', '.join(one.url for one in push.service)}"


def _check_backend(table: str, backend: BackendSettings) -> str | Finding:
    """Check the files of an external server. Does not connect to it."""
    if backend.ca_file is not None:
        read_file(backend.ca_file)
    if backend.certificate is None or backend.key is None:
        backend_context(table, backend)
        return f"{backend.url}, without a client certificate"
    found = check_own_certificate(backend.certificate, backend.key)
    backend_context(table, backend)
    return found if isinstance(found, Finding) else f"{backend.url}, {found}"


def _check_broker(mqtt: MqttSettings) -> str | Finding:
    """Check the files of the MQTT broker. Does not connect to it."""
    check_broker_files(mqtt)
    found = "without a client certificate"
    if mqtt.certificate is not None and mqtt.key is not None:
        certified = check_own_certificate(mqtt.certificate, mqtt.key)
        if isinstance(certified, Finding):
            return certified
        found = certified
    return f"{mqtt.host}:{mqtt.port}, {found}"


def _check_traces(traces: TracesSettings) -> str:
    """Check the files of the export of spans. Does not connect to the collector."""
    target = span_target(traces)
    if target.ca_file is not None:
        _check_authorities(target.ca_file)
    if target.file is not None:
        check_writable_folder(target.file.parent)
    places = [*([str(target.file)] if target.file is not None else []), *filter(None, [target.endpoint])]
    return f"{target.share:.2%} of the messages between domains, to {' and '.join(places)}"


def _check_authorities(ca_file: Path | None) -> str:
    if ca_file is None:
        return "system certificate authorities"
    read_file(ca_file)
    try:
        ssl.create_default_context(cafile=str(ca_file))
    except ssl.SSLError as exc:
        raise FileError("certificate-malformed", ca_file, f"contains no certificate authorities: {exc.reason}") from exc
    return str(ca_file)


def _check_policies(settings: Settings) -> str:
    policies = meaning.policies_in_force(settings)
    meaning.build_gate(settings, policies.compiled)
    files = len(policies.files)
    what = f"{_counted(files, 'file')}, revision {policies.compiled.revision}{', tests passed' if files else ''}"
    if not policies.active.bundle:
        return what
    read_policies(settings.policy.files, groups=PolicyStore(settings.node.data_dir).groups())
    return f"{policies.place}: {what}; not the files of the settings"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _check_sandbox(settings: Settings) -> str:
    """The confinement of stubs, and the version of the engine library, which advisories name (not its package)."""
    workers = "workers without system call filter" if settings.sandbox.insecure_no_seccomp else "confined workers"
    return f"{workers}, engine {engine_version()}"
