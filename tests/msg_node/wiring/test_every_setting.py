"""Every setting of the reference counts at a running node after a reload, or is named as one that needs a restart."""

from __future__ import annotations

import logging
import re
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from federation.links.link_context import BorderRules
from msg_node import app
from msg_node.admin.admin_site import AdminSite
from msg_node.admin.administration import Administration
from msg_node.admin.core.plan import Plan
from msg_node.admin.core.setting_changes import SettingChange, is_reloadable, reason_for_restart
from msg_node.kernel.service import Caller, ServiceRequest
from msg_node.node import Node
from msg_node.node_status import node_status
from msg_node.settings.model import Settings
from msg_node.settings.reference import configuration_reference
from msg_node.wiring import meaning
from msg_node.wiring.alarms import build_alarms
from msg_node.wiring.block_lists import build_block_lists
from protofly import codec
from protofly.errors import Code, PeerError, SettingsError
from protofly.message import Message
from sandbox.host import Sandbox
from stubkit.keys import KeyRing, make_key, make_keys, save_keys
from tests.examples_stubs.guest import STUBS
from trapezoid.publish_options import SigningSite, default_module
from trapezoid.publish_request import PublishRequest
from trapezoid.publishing import publish

PEER = "peer[b.example]"
PAGE = Path(__file__).parents[3] / "docs/operating.md"
TOKEN = "ab" * 32
KEYS = '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "k"}]}'
RULE = 'id = "p"\n[[rules]]\nid = "r"\neffect = "deny"\n'
POLICY: dict[str, Any] = {"files": ["FOLDER/p.toml"]}
ISSUER = {"issuer": "https://i.example", "audience": "a", "public_keys": []}
PROVIDER = {"issuer": "https://i.example", "audience": ["a"], "jwks": "FOLDER/keys.json"}
LIST = {"author": "lists.example", "url": "https://lists.example/list.json", "keys": ["A" * 43]}
WEBHOOK = {"url": "https://hooks.example/a", "certificate": "FOLDER/server.pem", "key": "FOLDER/server.key"}
SCRIPT = "https://catalogue.b.example/.well-known/protocolstub/default"
CHOSEN = {"stub": "FOLDER/stub.wasm", "endpoint": "wss://b.example/ws"}
RATE = {"messages_per_second": 7.0}


PROBE = Message(b"1", "read", "hyperty://a.example/x", "hyperty://b.example/y", b"{}", b"")


class Effect(NamedTuple):
    """How a setting shows that it counts.

    Attributes:
        value: Another one than `before`.
        seen: What the running node does or holds; differs with the setting.
        before: What the tables of the settings say before, beyond the usual.
    """

    value: Any
    seen: Callable[[Node], object]
    before: Mapping[str, Any] = MappingProxyType({})


def rule(node: Node) -> object:
    return node.gate._entries.find("b.example").rule


def talks_to(domain: str) -> Callable[[Node], bool]:
    return lambda node: node.reloading._may_talk(domain)


def steps(node: Node) -> object:
    """The steps of messages of sessions, and where they are asked."""
    return node.bus.from_sessions._delivery.judge, node.bus.from_sessions._flows._judge


def step(name: str) -> Callable[[Node], object]:
    """One step as it was made last."""
    return lambda node: node.steps._made.get(name)  # type: ignore[call-overload]


def delivery(node: Node) -> object:
    """What counts for what waits."""
    state = node.state.delivery
    inboxes, queues = state.inboxes, state.queues
    return state.parking.bounds, inboxes.keep_seconds, inboxes.per_owner, queues.defaults, queues.longest_seconds


def https(node: Node) -> Any:
    return node.listener._https


def publisher(node: Node) -> Any:
    assert node.site is not None
    return node.site.publisher


def inbox(node: Node) -> object:
    """Whose files are taken, and within which bounds."""
    assert node.site is not None
    assert node.site.inbox is not None
    taken = {domain: one.keys for domain, one in node.site.inbox._partners.items()}
    return taken, msgspec.structs.replace(node.site.inbox._settings, partner=())


def live_says(node: Node) -> object:
    """What a `live` document would say that is signed now."""
    draft = publisher(node)._signer.draft(now=0.0)
    return draft, set(node.acceptor.endpoints if node.acceptor else ())


def followed_lists(node: Node) -> object:
    """How lists are agreed on, and whether they were asked to look at it anew."""
    assert node.block_lists is not None
    chosen = node.current.get().policy
    return chosen.lists_agree, chosen.lists_exempt, node.block_lists._changed.is_set()


def listed(node: Node) -> object:
    """Aliases that count for links of b.example."""
    return node.federation.context.rules.listed_aliases("b.example")


def borders(node: Node) -> list[BorderRules]:
    return [node.federation.context.rules, node.bus.from_sessions.guests.rules]


def way(node: Node) -> object:
    """What the stub of b.example is, and its link."""
    choice = node.trust.chosen._of("b.example")
    link = next((one for one in node.federation.links if one.domain == "b.example"), None)
    return choice, "b.example" in node.trust.terms.chosen, id(link)


def believed(node: Node) -> object:
    """Who is believed, wherever messages are judged."""
    asked = {rules.identify is not None for rules in borders(node)} | {node.steps.gate.identify is not None}
    return asked, dict(node.backends.identity._verdicts.providers)


def passwords(node: Node) -> object:
    """At which cost passwords are hashed, and how many side by side."""
    check = node.backends.identity.passwords
    return check.cost, check._limiter.total_tokens


def tokens(node: Node) -> object:
    """What signs our tokens and for how long, what verifies them, and what we say about that."""
    identity = node.backends.identity
    signing = identity._tokens
    assert signing is not None
    accepted = [key for issuer, key in credentials(node)._keys.items() if issuer == signing.rules.issuer]
    return signing._header["kid"], signing._life, accepted, deepcopy(identity._public_keys)


def demanded(node: Node) -> object:
    """Whether a message of another domain needs an assertion."""
    message = Message(b"1", "read", "hyperty://b.example/x", "hyperty://a.example/y", b"{}", b"")
    try:
        return [rules.identify is not None and rules.identify(message, "b.example", 0.0) for rules in borders(node)]
    except PeerError as exc:
        return exc.code


def bucket_of(node: Node, domain: str = "b.example") -> object:
    return node.gate._entries.find(domain).outbound


def limit(name: str, value: Any, seen: Callable[[Node], object]) -> tuple[str, Effect]:
    return f"limits.{name}", Effect(value, seen)


def credentials(node: Node) -> Any:
    return node.state.transitions.credentials


ELSEWHERE: dict[str, Any] = {
    "url": "https://other.example",
    "ca_file": "FOLDER/ca.pem",
    "certificate": "FOLDER/server.pem",
    "key": "FOLDER/server.key",
    "insecure_plaintext": True,
    "attempt_seconds": 1.5,
}
"""Another value for each setting of a server that the node asks."""
CONNECTOR = {"service": "discovery", "stub": "FOLDER/connector.wasm", "endpoint": "https://people.example"}
GRANTED = {"domain": "b.example", "ranges": ["sip://b.example"]}
BROKER = {"mqtt": {"host": "broker.example"}}


def registry(node: Node) -> object:
    """How the domain registry is asked."""
    backend, relay, watch = node.backends._registry, node.backends._relay, node.backends._watch
    assert backend
    assert relay
    assert watch
    return id(backend._http), backend._attempt_seconds, relay.cache._max_seconds, watch.pause._seconds


def broker_of_qos(node: Node) -> object:
    """How the QoS broker is asked."""
    backend, service, watch = node.backends._broker, node.backends._qos, node.backends._qos_watch
    assert backend
    assert service
    assert watch
    return id(backend._http), backend._attempt_seconds, service.max_lease_seconds, watch.pause._seconds


def global_registry(node: Node) -> object:
    """How the global registry is asked."""
    assert node.backends.identity.guids
    registry, service = node.backends.identity.guids
    times = service._read_seconds, service._write_seconds, registry._cache_seconds
    return id(registry._server), registry._verify, times


def catalogue(node: Node) -> object:
    """How catalogues are read for runtimes, and for whom."""
    catalogues = node.backends._catalogues
    assert catalogues
    own = catalogues.reader._own
    return id(own), catalogues.reader._cache_seconds, "catalogue" in node.bus.inquiries._connectors


def all_services(node: Node) -> Any:
    return node.backends.connectors._services


def guest_stubs(node: Node) -> object:
    """Whether a runtime may read a stub of another domain."""
    service = all_services(node).behind("domain://catalogue.a.example")
    assert service
    body = {"resource": "hyperty-catalogue://c.example/.well-known/protocolstub/default"}
    message = codec.build(
        id=1, type="read", from_="runtime://a.example/x", to="domain://catalogue.a.example", body=body
    )
    try:
        service(ServiceRequest(message, Caller(1), "a.example", 0.0, bytes(32)))
    except PeerError as exc:
        return exc.code
    return None


def push(node: Node) -> object:
    """How runtimes are woken."""
    calls = node.backends._push
    assert calls
    assert calls._calls
    shown = calls.service._public_key, calls.service._origins
    return shown, calls._calls._key._subject, calls._calls._options, sorted(calls._calls._services)


def connectors(node: Node) -> object:
    """Which connectors there are, and how often each was made."""
    served = all_services(node).serves("domain://discovery.a.example")
    return served, [id(one) for one in node.backends.connectors._stubs.values()]


EFFECTS: dict[str, Effect] = {
    **{f"registry.{name}": Effect(value, registry) for name, value in ELSEWHERE.items()},
    **{f"qos.{name}": Effect(value, broker_of_qos) for name, value in ELSEWHERE.items()},
    **{f"global_registry.{name}": Effect(value, global_registry) for name, value in ELSEWHERE.items()},
    **{
        f"catalogue.own.{name}": Effect(value, catalogue, {"catalogue": {"own": {"url": "https://own.example"}}})
        for name, value in ELSEWHERE.items()
    },
    "registry.cache_seconds": Effect(7.0, registry),
    "registry.poll_seconds": Effect(7.0, registry),
    "qos.max_lease_seconds": Effect(7, broker_of_qos),
    "qos.watch_seconds": Effect(7.0, broker_of_qos),
    "global_registry.write_seconds": Effect(7.0, global_registry),
    "global_registry.verify": Effect("warn", global_registry),
    "global_registry.cache_seconds": Effect(7.0, global_registry),
    "catalogue.cache_seconds": Effect(7.0, catalogue),
    "catalogue.serve": Effect(False, catalogue),
    "catalogue.guest_stubs": Effect(False, guest_stubs),
    "push.key": Effect("FOLDER/other-push.pem", push),
    "push.subject": Effect("mailto:other@a.example", push),
    "push.ttl_seconds": Effect(7, push),
    "push.rest_seconds": Effect(7.0, push),
    "push.service": Effect([{"url": "https://other.example"}], push),
    **{
        f"mqtt.{name}": Effect(value, lambda node: id(node.mqtt.binding), BROKER)
        for name, value in {
            "host": "other.example",
            "port": 1883,
            "version": "3.1.1",
            "ca_file": "FOLDER/ca.pem",
            "certificate": "FOLDER/server.pem",
            "key": "FOLDER/server.key",
            "insecure_plaintext": True,
            "username": "node",
            "password_file": "FOLDER/p.toml",
            "prefix": "other",
            "tokens": "at-open",
        }.items()
    },
    "connector": Effect([CONNECTOR], connectors),
    "interworking": Effect(
        [GRANTED],
        lambda node: (
            node.state.interworking.granted_to("sip:ana@b.example"),
            [one.inward._side_now.border.speaker.may_use("sip:ana@b.example") for one in node.federation.links],
        ),
    ),
    "middleware.schema.validate": Effect(True, steps),
    "subscriptions.taps": Effect(True, steps),
    "limits.frame_bytes": Effect(70_000, lambda node: node.listener.reception.max_bytes),
    "limits.max_hops": Effect(
        3, lambda node: (node.bus.options.max_hops.most, [rules.max_hops.most for rules in borders(node)])
    ),
    "node.drain_seconds": Effect(1.5, lambda node: app.drain_of(node)._ask_seconds()),
    "listen.certificate": Effect("FOLDER/other.pem", lambda node: id(node.listener.context)),
    "listen.key": Effect("FOLDER/same.key", lambda node: id(node.listener.context)),
    "site.certificate": Effect("FOLDER/other.pem", lambda node: id(site(node).context)),
    "site.key": Effect("FOLDER/same.key", lambda node: id(site(node).context)),
    "admin.certificate": Effect("FOLDER/other.pem", lambda node: id(admin(node).context)),
    "admin.key": Effect("FOLDER/same.key", lambda node: id(admin(node).context)),
    "site.status_token_sha256": Effect(TOKEN, lambda node: node.site and node.site._settings.status_token_sha256),
    "site.connections": Effect(9, lambda node: site(node)._table._most),
    "site.connections_per_address": Effect(99, lambda node: site(node)._table._most_per_address),
    "site.requests_per_second": Effect(3.0, lambda node: site(node)._requests._limit),
    "site.reverse_check": Effect(False, lambda node: node.site and node.site._settings.reverse_check),
    "listen.unopened_per_second": Effect(3.0, lambda node: node.listener.half_open._unopened._limit),
    "listen.trusted_proxies": Effect(["192.0.2.1"], lambda node: node.listener.proxies.include("192.0.2.1")),
    "listen.client_address_from": Effect("forwarded", lambda node: node.listener.proxies.client_address_from),
    "listen.proxy_certificates": Effect(
        ["FOLDER/ca.pem"],
        lambda node: node.acceptor and set(node.acceptor.bindings),
        {"listen": {"certificate": None, "key": None}},
    ),
    "site.trusted_proxies": Effect(["192.0.2.1"], lambda node: site(node).proxies.include("192.0.2.1")),
    "site.client_address_from": Effect("forwarded", lambda node: site(node).proxies.client_address_from),
    "listen.client_ca": Effect("FOLDER/other-ca.pem", lambda node: id(node.listener.context)),
    "listen.client_certificate": Effect("required", lambda node: credentials(node)._certificates.is_needed),
    "listen.origins": Effect(
        ["https://app.a.example"], lambda node: node.listener.reception.admits("https://x.example")
    ),
    "https.poll_seconds": Effect(7.0, lambda node: (https(node)._poll_seconds, announced(node))),
    "https.queue_messages": Effect(7, lambda node: https(node)._queue_messages),
    "site.public_url": Effect("https://www.a.example", live_says),
    "admin.behind_proxy": Effect(True, lambda node: node.admin_site and node.admin_site._access.behind_proxy),
    "admin.requests_per_second": Effect(3.0, lambda node: admin(node)._requests._limit),
    **{
        f"publish.{name}": Effect(value, live_says)
        for name, value in {
            "endpoint_url": "wss://mn.a.example:9/link",
            "endpoint_name": "other",
            "endpoint_spki": ["A" * 43],
            "live_seconds": 7200.0,
            "mode": "testing",
            "contact": "mailto:ops@a.example",
            "endpoint": [{"name": "sip", "url": "tls://sip.a.example:5061"}],
        }.items()
    },
    "publish.cache_seconds": Effect(7.0, lambda node: publisher(node)._cache_seconds),
    "discovery.nameservers": Effect(
        ["127.0.0.1:53"], lambda node: [str(one) for one in node.ways.names._resolver.nameservers]
    ),
    "discovery.trust_ad_bit": Effect(
        True, lambda node: node.ways.names._believes_ad, {"discovery": {"nameservers": ["127.0.0.1:53"]}}
    ),
    "discovery.ca_file": Effect(
        "FOLDER/ca.pem", lambda node: (id(node.ways.http._ssl_context), id(node.ways.lines.tls_context))
    ),
    "sandbox.memory_bytes": Effect(1 << 20, lambda node: node.trust.chosen._budget.memory_bytes),
    "sandbox.batch_seconds": Effect(0.5, lambda node: node.trust.chosen._budget.batch_seconds),
    "sandbox.cpu_share": Effect(0.25, lambda node: node.trust.chosen._budget.cpu_share),
    "sandbox.cache_bytes": Effect(7, lambda node: node.cache.max_bytes),
    "records.queue_records": Effect(7, lambda node: node.records._options.queue_records),
    "records.sync_seconds": Effect(7.0, lambda node: node.records._options.sync_seconds),
    "records.segment_bytes": Effect(7, lambda node: node.records._segments._options.segment_bytes),
    "records.segment_seconds": Effect(7.0, lambda node: node.records._segments._options.segment_seconds),
    "traces.share": Effect(0.5, lambda node: node.spans and node.spans._target.share),
    "traces.per_second": Effect(3, lambda node: node.spans and node.spans._target.per_second),
    **{
        f"exchange.{name}": Effect(value, inbox)
        for name, value in {
            "file_bytes": 4096,
            "waiting_files": 7,
            "waiting_bytes": 4096,
            "hourly_files": 7,
            "partner": [{"domain": "b.example", "keys": ["A" * 43]}],
        }.items()
    },
    "policy.files": Effect(["FOLDER/p.toml"], steps),
    "policy.mode": Effect("report", lambda node: node.policies.facts()["mode"], {"policy": POLICY}),
    "policy.local_default": Effect("deny", steps),
    "policy.keys": Effect(["11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"], lambda node: node.current.get().policy.keys),
    "policy.two_persons": Effect(True, lambda node: node.current.get().policy.two_persons),
    "policy.lists_agree": Effect(2, followed_lists, {"block_list": [LIST, {**LIST, "author": "y.example"}]}),
    "policy.lists_exempt": Effect(["c.example"], followed_lists),
    "policy.allow": Effect(["c.example"], talks_to("b.example")),
    "policy.deny": Effect(["b.example"], talks_to("b.example")),
    "records.keep_days": Effect({"mdr": 90.0}, lambda node: dict(node.current.get().records.keep_days)),
    "sessions.anonymous": Effect(False, lambda node: credentials(node).allows_anonymous("runtime://a.example/x")),
    "sessions.anonymous_runtimes": Effect([], lambda node: credentials(node).allows_anonymous("runtime://a.example/x")),
    "sessions.credential": Effect(
        [{"token_sha256": TOKEN, "runtime": "runtime://a.example/x"}], lambda node: list(credentials(node)._by_digest)
    ),
    "sessions.issuer": Effect([ISSUER], lambda node: list(credentials(node)._issuers)),
    "sessions.certificate": Effect(
        [{"runtime": "runtime://a.example/x", "sha256": TOKEN}],
        lambda node: credentials(node)._certificates,
    ),
    "sessions.grace_seconds": Effect(7.0, lambda node: (node.state.transitions.terms.grace_seconds, announced(node))),
    "sessions.take_over_grace_seconds": Effect(7.0, lambda node: node.state.transitions.rules.take_over_grace_seconds),
    "sessions.lease_seconds": Effect(70.0, lambda node: node.state.transitions.terms.lease_seconds),
    "sessions.ping_seconds": Effect(7.0, lambda node: (node.bus.sweeper.ping_seconds, announced(node))),
    "sessions.guests": Effect(True, lambda node: services(node)._session_service._takes_guests()),
    "sessions.presence": Effect(True, lambda node: services(node)._announcements._notifies_presence()),
    **{
        name: Effect(value, lambda node: deepcopy(node.state.rules))
        for name, value in {
            "allocation.strict_release": False,
            "subscriptions.require_consent": True,
            "subscriptions.expand_schema": True,
            "routing.learn": False,
            "routing.users": True,
            "routing.reporter_only": False,
            "compat.sm_error": 500,
            "compat.echo": True,
            "delivery.thing_roles": ["gardener"],
        }.items()
    },
    **{
        f"delivery.{name}": Effect(value, delivery)
        for name, value in {
            "expires_seconds": 70.0,
            "longest_seconds": 7000.0,
            "unanswered": 3,
            "per_agent": 3,
            "per_sender": 3,
            "bytes": 70_000,
            "inbox_seconds": 7.0,
            "inbox_entries": 3,
        }.items()
    },
    "allocation.pool": Effect(
        [{"scheme": "sip", "addresses": ["sip:1@a.example"]}], lambda node: node.state.owners.pools.free("sip")
    ),
    "subscriptions.catch_up_seconds": Effect(
        7.0, lambda node: (missed(node) is None or missed(node)._seconds, announced(node))
    ),
    "subscriptions.catch_up_messages": Effect(
        3, lambda node: missed(node)._messages, {"subscriptions": {"catch_up_seconds": 9.0}}
    ),
    "twin.objects": Effect(["comm://a.example/*"], lambda node: node.state.twin.keeps("comm://a.example/room")),
    "compat.keep_registered": Effect(True, lambda node: node.state.registry.keeps_registered),
    "compat.profile": Effect("rethink", lambda node: node_status(node)["profile"]),
    "identity.registered_users": Effect(
        "proved",
        lambda node: node.current.get().identity.registered_users,
        {"identity": {"provider": [PROVIDER]}},
    ),
    "compat.return_by_address": Effect(True, lambda node: node.state.transitions.rules.returns_by_address),
    "compat.take_over": Effect(True, lambda node: node.state.transitions.rules.second_open_takes_over),
    **dict(
        (
            limit("session_queue_messages", 7, lambda node: node.listener.reception.queue.messages),
            limit("session_queue_bytes", 7, lambda node: node.listener.reception.queue.bytes),
            limit("allocation_per_session", 7, lambda node: node.state.owners.per_session),
            limit("allocation_per_guest_domain", 7, lambda node: node.state.guests.per_domain),
            limit("subscriptions_per_session", 7, lambda node: node.state.listeners.per_session),
            limit("waiting_messages", 7, lambda node: [link.queue.limits for link in node.federation.links]),
            limit("waiting_bytes", 7, lambda node: node.federation.context.limits.waiting_bytes),
            limit("waiting_seconds", 7.0, lambda node: node.federation.context.limits.waiting_seconds),
            limit("sessions", 7, lambda node: node.state.transitions.rules.max_sessions),
            limit("links", 7, lambda node: node.federation.max_links),
        )
    ),
    "middleware.order": Effect(
        ["rate", "logging"],
        lambda node: node.steps.stack(node.current.get()).names,
        {"middleware": {"rate": RATE, "logging": {"every": 5}}},
    ),
    "middleware.logging.every": Effect(3, steps),
    "middleware.authentication.required": Effect(True, steps),
    "middleware.authentication.open_to": Effect(
        ["hyperty://a.example/x"], steps, {"middleware": {"authentication": {"required": True}}}
    ),
    "middleware.rate.messages_per_second": Effect(3.0, steps),
    "middleware.rate.bytes_per_second": Effect(3.0, steps),
    "middleware.rate.burst_seconds": Effect(3.0, steps, {"middleware": {"rate": RATE}}),
    "middleware.rate.by_type": Effect([{"types": ["read"], **RATE}], steps),
    "block_list": Effect([LIST], lambda node: node.block_lists and [one.settings for one in node.block_lists.lists]),
    **{
        f"alarms.webhook.{name}": Effect(
            value, lambda node: node.alarm_watch and node.alarm_watch.calls.call, {"alarms": {"webhook": WEBHOOK}}
        )
        for name, value in {
            "url": "https://hooks.example/b",
            "ca_file": "FOLDER/ca.pem",
            "certificate": "FOLDER/other.pem",
            "key": "FOLDER/same.key",
            "insecure_plaintext": True,
            "attempt_seconds": 2.0,
        }.items()
    },
    "identity.provider": Effect([PROVIDER], believed),
    **{
        f"identity.passwords.{name}": Effect(value, passwords)
        for name, value in {"memory_kib": 32_768, "passes": 4, "checks": 2}.items()
    },
    **{
        f"identity.tokens.{name}": Effect(value, tokens)
        for name, value in {"keys_dir": "FOLDER/other-keys", "seconds": 70.0, "login_seconds": 700.0}.items()
    },
    "identity.demand": Effect(["*"], demanded, {"identity": {"provider": [PROVIDER]}}),
    "log.level": Effect("debug", lambda _node: logging.getLogger().level),
    f"{PEER}.domain": Effect("c.example", talks_to("c.example")),
    f"{PEER}.default": Effect("deny", lambda node: rule(node).default),  # type: ignore[attr-defined]
    f"{PEER}.trust": Effect(
        "pinned", lambda node: node.trust.documents._anchor_of("b.example"), {"peer": [{"fingerprint": "A" * 43}]}
    ),
    f"{PEER}.fingerprint": Effect("A" * 43, lambda node: node.trust.documents._anchor_of("b.example")),
    f"{PEER}.allow_addresses": Effect(["10.0.0.0/8"], lambda node: node.dialler._allowed),
    f"{PEER}.aliases": Effect(
        ["alias.example"],
        lambda node: (listed(node), node.bus.from_sessions.guests._context.mains.get("alias.example"), way(node)),
    ),
    f"{PEER}.record_bytes": Effect(7, lambda node: node.recorders.max_bytes.get("b.example")),
    f"{PEER}.updates": Effect("hold", lambda node: meaning.update_rule(node.current.get(), "b.example")),
    f"{PEER}.modules": Effect(
        [TOKEN], lambda node: meaning.update_rule(node.current.get(), "b.example"), {"peer": [{"updates": "hold"}]}
    ),
    f"{PEER}.canary_percent": Effect(10, lambda node: meaning.canary_terms(node.current.get(), "b.example")),
    f"{PEER}.canary_seconds": Effect(
        60,
        lambda node: meaning.canary_terms(node.current.get(), "b.example"),
        {"peer": [{"canary_percent": 10}]},
    ),
    f"{PEER}.configuration": Effect({"a": 1}, lambda node: node.trust.chosen._of("b.example").configuration),
    f"{PEER}.stay_connected": Effect(True, lambda node: [link.is_idle for link in node.federation.links]),
    f"{PEER}.class": Effect(
        "plain",
        lambda node: [(link.outward.link_class, link.inward.link_class) for link in node.federation.links],
    ),
    f"{PEER}.messages_per_second": Effect(3.0, bucket_of),
    f"{PEER}.bytes_per_second": Effect(3.0, bucket_of),
    f"{PEER}.burst_seconds": Effect(3.0, bucket_of, {"peer": [RATE]}),
    f"{PEER}.stub": Effect("FOLDER/stub.wasm", way, {"peer": [{"endpoint": "wss://b.example/ws"}]}),
    f"{PEER}.endpoint": Effect("wss://b.example/other", way, {"peer": [CHOSEN]}),
    f"{PEER}.unsigned_stub": Effect(SCRIPT, way, {"peer": [{"endpoint": "wss://b.example/ws", "sha256": TOKEN}]}),
    f"{PEER}.sha256": Effect(
        "cd" * 32,
        way,
        {"peer": [{"endpoint": "wss://b.example/ws", "sha256": TOKEN, "unsigned_stub": SCRIPT}]},
    ),
    f"{PEER}.insecure_plaintext": Effect(True, lambda node: (set(node.trust.terms.plaintext), set(node.plaintext))),
    f"{PEER}.send_via": Effect(False, lambda node: (way(node), set(node.trust.terms.bare))),
    f"{PEER}.well_known_url": Effect("https://b.example/x", lambda node: node.resolver._peers["b.example"]),
    f"{PEER}.connect": Effect("192.0.2.1:443", lambda node: node.resolver._peers["b.example"]),
    f"{PEER}.p2p": Effect(False, lambda node: rule(node).p2p),  # type: ignore[attr-defined]
    f"{PEER}.may_receive": Effect(["personal"], lambda node: rule(node).may_receive),  # type: ignore[attr-defined]
    f"{PEER}.rate": Effect([{"types": ["read"], **RATE}], bucket_of),
    f"{PEER}.quota": Effect([{"per": "day", "messages": 5}], bucket_of),
    **{
        f"{PEER}.grant.{name}": Effect(value, lambda node: node.trust.chosen._of("b.example").grant)
        for name, value in {
            "endpoints": ["mn"],
            "http": False,
            "auth": False,
            "memory_bytes": 1 << 20,
            "call_ms": 20,
            "cpu_share": 0.25,
        }.items()
    },
}


def site(node: Node) -> Any:
    assert node.site is not None
    return node.site.server


def admin(node: Node) -> Any:
    assert node.admin_site is not None
    return node.admin_site.server


def services(node: Node) -> Any:
    return node.bus.runtimes._sessions


def missed(node: Node) -> Any:
    return node.bus.send_queues.missed


def announced(node: Node) -> object:
    return node.bus.runtimes._sessions._session_service._announced()


def names_of_reference() -> list[str]:
    """The settings of the page, as changes name them: entries of a list as a whole, but peers by domain."""
    names: dict[str, None] = {}
    prefix = ""
    for line in configuration_reference().splitlines():
        if found := re.fullmatch(r"## `\[?\[([a-z_.]+)\]\]?`", line):
            prefix, is_list = found[1], line.startswith("## `[[") and found[1] != "peer"
            prefix = prefix.replace("peer", PEER, 1) if prefix.startswith("peer") else prefix
            if is_list:
                names[prefix] = None
        elif (found := re.match(r"\| `([a-z_0-9]+)` \|", line)) and not is_list:
            names[f"{prefix}.{found[1]}"] = None
    return list(names)


@pytest.mark.parametrize("name", names_of_reference())
def test_a_setting_counts_after_a_reload_or_needs_a_restart_for_a_reason(name: str) -> None:
    assert is_reloadable(SettingChange(name, None, 1)) == (name in EFFECTS)
    if name not in EFFECTS:
        assert reason_for_restart(name)


def settings_of(folder: Path, *changes: Mapping[str, Any]) -> Settings:
    """Settings with TLS, a peer and everything that `changes` say, one after the other."""
    tls = {"certificate": "FOLDER/server.pem", "key": "FOLDER/server.key", "port": 0}
    tables: dict[str, Any] = {
        "node": {"domain": "a.example", "data_dir": "FOLDER/data"},
        "listen": {**tls, "client_ca": "FOLDER/ca.pem"},
        "site": dict(tls),
        "admin": dict(tls),
        "peer": [{"domain": "b.example"}],
        "publish": {
            "keys_dir": "FOLDER/keys",
            "site_dir": "FOLDER/published",
            "endpoint_url": "wss://mn.a.example:8443/link",
        },
        "exchange": {},
        "registry": {"url": "https://registry.a.example"},
        "qos": {"url": "https://qos.a.example"},
        "global_registry": {"url": "https://guids.example"},
        "push": {
            "key": "FOLDER/push.pem",
            "subject": "mailto:ops@a.example",
            "service": [{"url": "https://push.example"}],
        },
        "traces": {"file": "FOLDER/spans.jsonl"},
        "identity": {"tokens": {"keys_dir": "FOLDER/keys"}, "passwords": {}},
    }
    for change in changes:
        _merge(tables, change)
    text = msgspec.json.encode(tables).decode().replace("FOLDER", str(folder))
    return msgspec.convert(msgspec.json.decode(text), Settings, dec_hook=lambda type_, value: type_(value))


def _merge(tables: dict[str, Any], change: Mapping[str, Any]) -> None:
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(tables.get(name), dict):
            _merge(tables[name], value)
        elif name == "peer":
            tables["peer"][0].update(value[0])
        else:
            tables[name] = deepcopy(value)


def changed(name: str, value: Any) -> dict[str, Any]:
    """A change of one setting."""
    change = value
    for part in reversed(name.replace(PEER, "peer").split(".")):
        change = {part: change}
    return {"peer": [change["peer"]]} if "peer" in change else change


def push_key() -> bytes:
    """A new private key as `[push]` wants it."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Running(NamedTuple):
    """A node whose settings are read from `wanted`."""

    node: Node
    wanted: list[Settings]

    async def plan(self, settings: Settings) -> Plan:
        self.wanted[:] = [settings]
        return await self.node.reloading.plan()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with built(tmp_path) as made:
        yield made


@asynccontextmanager
async def built(folder: Path) -> AsyncIterator[Running]:
    """A node with its sites and a link, without a listener and without stubs. Its level of the log ends with it."""
    level = logging.getLogger().level
    try:
        async with _built(folder) as running:
            yield running
    finally:
        logging.getLogger().setLevel(level)


@asynccontextmanager
async def _built(folder: Path) -> AsyncIterator[Running]:
    keys = replace(make_keys(), token=(make_key("token"),))
    save_keys(keys, folder / "keys")
    save_keys(KeyRing(token=(make_key("token"),)), folder / "other-keys")
    publish(
        SigningSite(domain="a.example", keys=keys, path=folder / "published", now=time.time()),
        PublishRequest(module=default_module(), url="https://a.example"),
    )
    authority = trustme.CA()
    pem = authority.issue_cert("a.example").private_key_and_cert_chain_pem.bytes()
    for name in ("server.pem", "server.key", "other.pem", "same.key"):
        (folder / name).write_bytes(pem)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
    (folder / "keys.json").write_text(KEYS)
    shutil.copyfile(STUBS / "vertx_peer" / "vertx_peer.wasm", folder / "stub.wasm")
    shutil.copyfile(STUBS / "people_search" / "people_search.wasm", folder / "connector.wasm")
    for name in ("push.pem", "other-push.pem"):
        (folder / name).write_bytes(push_key())
        (folder / name).chmod(0o600)
    (folder / "p.toml").write_text(RULE)
    (folder / "data").mkdir()
    wanted = [settings_of(folder)]
    policies = meaning.policies_in_force(wanted[0])
    node = app._build(wanted[0], Sandbox(), meaning.build_gate(wanted[0], policies.compiled), policies, None)
    node.reloading = app._reloading(node, lambda: wanted[0])
    node.administration = Administration(app._administered(node))
    administered = app._administered(node)
    node.block_lists = build_block_lists(administered)
    node.alarm_watch = build_alarms(administered, records=node.records, expiries=node.expiries)
    node.reloading.watches = node.block_lists, node.alarm_watch
    node.admin_site = node.reloading.admin_site = AdminSite(wanted[0], node.administration)
    async with trio.open_nursery() as nursery:
        assert node.site is not None
        await nursery.start(node.site.run)
        await nursery.start(node.admin_site.run)
        await nursery.start(node.federation.run)
        await nursery.start(node.backends.connectors.run)
        yield Running(node, wanted)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("table", sorted({name.partition(".")[0].partition("[")[0] for name in EFFECTS}))
async def test_what_a_reload_takes_over_counts(table: str, running: Running, tmp_path: Path) -> None:
    without_effect = []
    for name, effect in EFFECTS.items():
        if name.partition(".")[0].partition("[")[0] != table:
            continue
        before = settings_of(tmp_path, effect.before)
        (await running.plan(before)).apply()
        running.node.federation.reach("b.example", PROBE)
        seen = effect.seen(running.node)
        plan = await running.plan(settings_of(tmp_path, effect.before, changed(name, effect.value)))
        assert isinstance(plan.after, dict)
        named = [one.name.rpartition("]")[2] for one in plan.after["changes"]]
        assert any(f"{one}.".startswith(name.removeprefix(PEER) + ".") for one in named), name
        assert effect.seen(running.node) == seen, f"{name} counts before the plan is applied"
        plan.apply()
        if effect.seen(running.node) == seen:
            without_effect.append(name)
    assert without_effect == []


def test_the_page_lists_every_setting_that_needs_a_restart_and_no_other() -> None:
    part = PAGE.read_text().partition("\n### What needs a restart\n")[2].partition("\n\nFor runtimes a restart")[0]
    listed = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)*)`", part))
    needed = {name for name in names_of_reference() if not is_reloadable(SettingChange(name, None, 1))}
    tables = {one for one in listed if any(name.startswith(f"{one}.") for name in needed)}
    assert needed == {name for name in needed if name in listed or any(name.startswith(f"{one}.") for one in tables)}
    for table in tables:
        assert not [name for name in EFFECTS if name.startswith(f"{table}.")]
    assert listed <= needed | tables


def test_the_page_lists_every_setting_that_a_reload_takes_over_in_the_row_of_its_table() -> None:
    part = PAGE.read_text().partition("\n### What a reload takes over\n")[2].partition("\n### ")[0]
    listed: dict[str, set[str]] = {}
    for section in part.split("\n\n"):
        of_peer = section.startswith("| `[[peer]]` |")
        for row in section.splitlines()[2:] if section.startswith("| ") else ():
            first, counts = row.split(" | ")[:2]
            tables = ["peer"] if of_peer else re.findall(r"`\[+([a-z_.]+)\]+`", first)
            names = {"all"} if counts.startswith("all") else set(re.findall(r"`([a-z0-9_]+)`", counts))
            for table in tables:
                listed.setdefault(table, set()).update(names)
    for name in EFFECTS:
        table, _, setting = (
            ("peer", "", name.removeprefix(PEER + ".")) if name.startswith(PEER) else name.partition(".")
        )
        setting = setting.partition(".")[0]
        named = listed.get(table, set()) | listed.get(f"{table}.{setting}", set())
        assert {"all", setting} & named, f"{name} is missing in {PAGE.name}"


async def test_one_setting_that_needs_a_restart_keeps_all_as_they_are(running: Running, tmp_path: Path) -> None:
    both = {"limits": {"links": 7}, "log": {"format": "json"}, "debug": {"flows": "off"}}
    named = r"log.format: needs a restart, .*debug.flows: needs a restart"
    with pytest.raises(SettingsError, match=named) as caught:
        await running.plan(settings_of(tmp_path, both))
    assert caught.value.code is Code.NEEDS_RESTART
    assert running.node.federation.max_links != 7


async def test_a_publication_that_readers_would_refuse_keeps_all_as_it_is(running: Running, tmp_path: Path) -> None:
    before = live_says(running.node)
    with pytest.raises(SettingsError, match="readers would refuse the live document"):
        await running.plan(settings_of(tmp_path, {"publish": {"endpoint_spki": ["A" * 65]}, "limits": {"links": 7}}))
    assert live_says(running.node) == before
    assert running.node.federation.max_links != 7


async def test_an_endpoint_that_was_published_before_counts_for_links_that_know_no_other(
    running: Running, tmp_path: Path
) -> None:
    (await running.plan(settings_of(tmp_path, {"publish": {"endpoint_url": "wss://new.a.example/link"}}))).apply()
    assert running.node.acceptor is not None
    assert running.node.acceptor.endpoints == {"wss://mn.a.example:8443/link", "wss://new.a.example/link"}


async def test_other_authorities_in_the_same_file_count_after_a_reload_and_the_same_ones_are_not_read_again(
    running: Running, tmp_path: Path
) -> None:
    shutil.copyfile(tmp_path / "ca.pem", tmp_path / "believed.pem")
    settings = settings_of(tmp_path, {"discovery": {"ca_file": "FOLDER/believed.pem"}})
    (await running.plan(settings)).apply()
    ways = running.node.ways
    before = ways.http._ssl_context
    assert before is not None
    (await running.plan(settings)).apply()
    assert ways.http._ssl_context is ways.lines.tls_context is before
    shutil.copyfile(tmp_path / "other-ca.pem", tmp_path / "believed.pem")
    wanted = {
        one["serialNumber"] for one in ssl.create_default_context(cafile=tmp_path / "believed.pem").get_ca_certs()
    }
    plan = await running.plan(settings)
    assert ways.http._ssl_context is before
    plan.apply()
    for context in (ways.http._ssl_context, ways.lines.tls_context):
        assert wanted <= {one["serialNumber"] for one in context.get_ca_certs()}
    (tmp_path / "believed.pem").unlink()
    with pytest.raises(SettingsError, match=r"discovery\.ca_file"):
        await running.plan(settings)


async def test_other_bounds_of_stubs_are_for_their_next_instance(running: Running, tmp_path: Path) -> None:
    running.node.federation.reach("b.example", PROBE)
    [link] = running.node.federation.links
    recalled = []
    link.need.recall = lambda: recalled.append(link.domain)  # type: ignore[method-assign]
    (await running.plan(settings_of(tmp_path, {"sandbox": {"memory_bytes": 1 << 20}}))).apply()
    (await running.plan(settings_of(tmp_path, {"sandbox": {"memory_bytes": 1 << 20}}))).apply()
    assert recalled == ["b.example"]


async def test_switches_that_weaken_are_logged_and_shown_after_a_reload(
    running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (
        await running.plan(settings_of(tmp_path, {"alarms": {"webhook": {**WEBHOOK, "insecure_plaintext": True}}}))
    ).apply()
    assert any("INSECURE by the settings" in one and "alarms.webhook" in one for one in caplog.messages)
    assert any("alarms.webhook" in one for one in node_status(running.node)["insecure"])  # type: ignore[attr-defined]
