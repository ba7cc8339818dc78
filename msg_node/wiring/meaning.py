"""Values that the components take from the settings; `app` passes them."""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from catalogue_client.core.state import TrustAnchor
from catalogue_client.core.updates import AUTOMATIC, UpdateRule
from federation.core.alias_rules import AliasRules
from federation.core.auth import channel_binding
from federation.core.border import HopBound
from federation.core.outbound_queue import QueueLimits
from federation.core.resolution import PeerEntry
from federation.links.decision_records import DecisionRecords
from federation.links.guest_border import GuestBorder, GuestContext
from federation.links.link_context import BorderRules, Identify, OurNames
from federation.links.link_records import Recording
from federation.links.visitors import greeting
from federation.stubs.instance_run import CanaryTerms
from msg_node.admin.policy_deployment import Policies, policies_of
from msg_node.bus.core.message_queue import QueueBounds
from msg_node.connectors.https import HttpsOptions
from msg_node.connectors.listener import ListenerOptions
from msg_node.connectors.proxies import Proxies
from msg_node.connectors.web_server import web_context
from msg_node.kernel.restrictions import Restricted, Restrictions
from msg_node.kernel.runtime_address import runtime_part
from msg_node.node_state import NodeState
from msg_node.sessions.core.transitions import SessionRules
from msg_node.settings.model import Settings
from msg_node.settings.rates import quotas_of, rate_limit, type_rates
from msg_node.settings.tables.admin import AdminSettings
from msg_node.settings.tables.listeners import SiteSettings
from msg_node.settings.tables.peers import PeerSettings
from msg_node.storage.policy_store import PolicyStore
from msg_node.storage.tls_files import believe, show
from policy.core.engine import CompiledPolicies
from policy.core.gate import Gate, PeerRule
from policy.core.model import Facts
from policy.core.obligations import notified_addresses
from protofly.address import domain_of
from protofly.documents import TrustLevel
from protofly.errors import Code, HostError, PeerError, SettingsError
from protofly.message import Message
from protofly.records import Record
from sandbox.core.budget import Budget
from wire.core.network import Network, parse_networks


def policies_in_force(settings: Settings) -> Policies:
    """The policies that a node with these settings has: a bundle that operators activated, or the files. Blocks.

    Raises:
        SettingsError: They cannot be read or used.
    """
    store = PolicyStore(settings.node.data_dir)
    active = store.active()
    try:
        return policies_of(settings.policy, settings.node.domain, store, active)
    except HostError as exc:
        if not active.bundle:
            raise
        detail = f"the policies that were activated cannot be used: {exc.detail}; remove {store.active_file} to return"
        raise SettingsError(f"{detail} to the files of the settings") from exc


def build_gate(settings: Settings, policies: CompiledPolicies | None = None) -> Gate:
    """The gates with their peers, and with `policies`, or with those in force.

    Raises:
        SettingsError: Entries, lists or policies cannot be used here.
    """
    chosen = settings.policy
    policies = policies_in_force(settings).compiled if policies is None else policies
    elsewhere = [one for one in notified_addresses(policies.sets) if domain_of(one) not in settings.own_domains]
    if elsewhere:
        raise SettingsError(f"notify: {min(elsewhere)} is an address of another domain; name one of our own")
    peers = {peer.domain: peer_rule(peer) for peer in settings.peer}
    return Gate(policies, peers, allow=chosen.allow, deny=chosen.deny, own_bus=chosen.local_default)


def parks(decisions: DecisionRecords, message: Message, roles: frozenset[str], domain: str) -> bool:
    """True if a policy has the obligation `park` for a request whose recipient is away.

    `roles` are those of the sender's session; `domain` is the one that it came from, "" for our own.
    """
    gate = decisions.gate
    if not gate.policies.sets:
        return False
    facts = Facts(
        "in" if domain else "local",
        message,
        domain_of(message.from_),
        domain_of(message.to),
        domain,
        len(message.raw),
        0,
        time.time(),
        session_roles=roles,
        recipients=decisions.recipients,
    )
    verdict = gate.foresee(facts)  # it was judged and counted when it came
    return verdict.permitted and any(one.name == "park" and one.value is True for one in verdict.decision.obligations)


def build_guests(
    settings: Settings,
    decisions: DecisionRecords,
    node_url: str,
    record: Callable[[Record], None],
    state: NodeState,
    identify: Identify | None,
) -> GuestBorder:
    """Make the judge of runtimes of other domains that have a session here."""
    domain, gate = settings.node.domain, decisions.gate
    ours = OurNames(domain, node_url, frozenset(settings.own_domains))
    rules = BorderRules(
        ours,
        gate,
        identify,
        state.interworking,
        max_hops=HopBound(settings.limits.max_hops),
        recipients=decisions.recipients,
    )
    recording = Recording(domain, gate, record, settings.records.hash_addresses, decisions.carry_out)
    return GuestBorder(GuestContext(rules, recording, decisions, main_domains(settings)))


def check_barred(restrictions: Restrictions, message: Message) -> None:
    """Check that no operator has barred the runtime that sends an `open` or `re-open`.

    Raises:
        PeerError: RUNTIME_BARRED.
    """
    found = restrictions.find(Restricted.RUNTIME, runtime_part(message.from_key))
    if found is not None:
        raise PeerError(Code.RUNTIME_BARRED, found.reason)


def permit_guest(guests: GuestBorder, restrictions: Restrictions, domain: str, message: Message) -> None:
    """The gate `peer` for `open` and `re-open` of a runtime of another domain.

    Raises:
        PeerError: RUNTIME_BARRED, or what the gate says.
    """
    check_barred(restrictions, message)
    guests.open(domain, message)


def permit_session(
    decisions: DecisionRecords,
    our_domain: str,
    restrictions: Restrictions,
    message: Message,
    roles: frozenset[str],
) -> None:
    """The gate `local` for `open` and `re-open`, whose recipient `mn:/session` is our domain to policies.

    Raises:
        PeerError: RUNTIME_BARRED, or the code and the rule that deny it.
    """
    check_barred(restrictions, message)
    if not decisions.gate.judges_own_bus:
        return
    domain = domain_of(message.from_)
    facts = Facts("local", message, domain, our_domain, "", len(message.raw), 0, time.time(), session_roles=roles)
    verdict, msg_id = decisions.judge(facts, group="openers", source=message.from_)
    if not verdict.permitted:
        detail = f"rule {verdict.rule_id}" if verdict.rule_id else ""
        raise PeerError(verdict.code or Code.POLICY, detail, msg_id=msg_id)


def peer_rule(peer: PeerSettings) -> PeerRule:
    """Make the rule of a peer entry for the gate."""
    limit = rate_limit(peer.messages_per_second, peer.bytes_per_second, peer.burst_seconds)
    return PeerRule(
        default=peer.default,
        rate=limit,
        rates=type_rates(peer.rate),
        quotas=quotas_of(peer.quota),
        p2p=peer.p2p,
        link_class=peer.trust_class,
        may_receive=frozenset(peer.may_receive),
    )


def peer_entries(settings: Settings) -> dict[str, PeerEntry]:
    """Peers that need no look-up, or part of one only."""
    return {
        peer.domain: PeerEntry.of_settings(peer.domain, well_known_url=peer.well_known_url, connect=peer.connect)
        for peer in settings.peer
        if not peer.domain.startswith("*")
    }


def anchor_of(settings: Settings, domain: str) -> TrustAnchor:
    """Return why the first root of a domain may be believed."""
    peer = _entry_of(settings, domain)
    return TrustAnchor.web() if peer is None else TrustAnchor(TrustLevel(peer.trust), peer.fingerprint)


def update_rule(settings: Settings, domain: str) -> UpdateRule:
    """Return which newer versions of the stub of a domain may run."""
    peer = _entry_of(settings, domain)
    return AUTOMATIC if peer is None else UpdateRule(peer.updates, frozenset(peer.modules))


def canary_terms(settings: Settings, domain: str) -> CanaryTerms | None:
    """Return what share of the messages for a domain a newer version of its stub carries first; None for none."""
    peer = _entry_of(settings, domain)
    return CanaryTerms(peer.canary_percent, peer.canary_seconds) if peer is not None and peer.canary_percent else None


def _entry_of(settings: Settings, domain: str) -> PeerSettings | None:
    """The peer entry that names a domain most closely."""
    entries = {peer.domain: peer for peer in settings.peer}
    labels = domain.split(".")
    names = (domain, *(f"*.{'.'.join(labels[index:])}" for index in range(1, len(labels))))
    return next((entries[name] for name in names if name in entries), None)


def alias_rules(settings: Settings, gate: Gate, node_url: str) -> AliasRules:
    """Make the rules of names that may be aliases of peers."""
    named = {peer.domain for peer in settings.peer} | {one.domain for one in settings.interworking}

    def is_barred(domain: str) -> bool:
        probe = greeting(node_url, node_url)
        size, link_class = len(probe.raw), gate.class_of(domain)
        now, our_domain = time.time(), settings.node.domain
        return gate.bars(Facts("peer", probe, our_domain, domain, domain, size, 0, now, link_class=link_class))

    return AliasRules(
        own_domains=settings.own_domains,
        peers=named,
        listed={peer.domain: peer.aliases for peer in settings.peer},
        is_barred=is_barred,
    )


def allowed_addresses(settings: Settings) -> dict[str, tuple[Network, ...]]:
    """Internal ranges that the operator opened, by exact domain or name of a connector."""
    opened = {peer.domain: peer.allow_addresses for peer in settings.peer}
    opened |= {f"{one.service}.{settings.node.domain}": one.allow_addresses for one in settings.connector}
    return {name: parse_networks(ranges) for name, ranges in opened.items() if ranges}


def client_context(settings: Settings) -> ssl.SSLContext:
    """TLS towards other domains."""
    context = ssl.create_default_context()
    if settings.discovery.ca_file is not None:
        believe(context, settings.discovery.ca_file, "discovery.ca_file")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def stub_budget(settings: Settings) -> Budget:
    """The budget of each stub."""
    sandbox = settings.sandbox
    return Budget(memory_bytes=sandbox.memory_bytes, batch_seconds=sandbox.batch_seconds, cpu_share=sandbox.cpu_share)


def main_domains(settings: Settings) -> dict[str, str]:
    """The domain of a peer by each alias that its entry lists."""
    return {alias: peer.domain for peer in settings.peer for alias in peer.aliases}


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """TLS of the listener, None without it. Raises SettingsError."""
    listen = settings.listen
    if listen.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    show(context, listen.certificate, listen.key, "listen")
    if listen.client_ca is not None:
        believe(context, listen.client_ca, "listen.client_ca")
        context.verify_mode = ssl.CERT_OPTIONAL  # other domains' stubs have none; who needs one is asked at `open`
        context.num_tickets = 0  # every connection proves itself anew, against the authorities of today
    return context


def site_context(site: SiteSettings | AdminSettings | None, named: str) -> ssl.SSLContext | None:
    """TLS of the site or the admin site, in the section of that name; None without it. Raises SettingsError."""
    if site is None or site.certificate is None:
        return None
    return web_context(site.certificate, site.key, f"[{named}] ")


def status_access(site: SiteSettings) -> str:
    """Describe who may see `/status`."""
    if site.status_token_sha256:
        return "/status is for the bearer of the token"
    if site.certificate is None:
        return "/status is closed: without TLS anybody may be behind a local address; set this to open it for a token"
    return "/status is for clients on this machine; behind a proxy set this, else what the proxy hides is local"


def classes(settings: Settings) -> dict[str, str]:
    """The link class of each domain that an entry names in full."""
    return {peer.domain: peer.trust_class for peer in settings.peer if not peer.domain.startswith("*")}


def session_rules(settings: Settings) -> SessionRules:
    """Return how sessions begin and end."""
    return SessionRules(
        grace_seconds=settings.sessions.grace_seconds,
        take_over_grace_seconds=settings.sessions.take_over_grace_seconds,
        lease_seconds=settings.sessions.lease_seconds,
        max_sessions=settings.limits.sessions,
        returns_by_address=settings.compat.return_by_address,
        second_open_takes_over=settings.compat.take_over,
    )


def queue_limits(settings: Settings) -> QueueLimits:
    """Return what may wait for one domain."""
    chosen = settings.limits
    return QueueLimits(chosen.waiting_messages, chosen.waiting_bytes, chosen.waiting_seconds)


def https_options(settings: Settings) -> HttpsOptions | None:
    """Return the settings of runtimes over HTTP, None if they are off."""
    return HttpsOptions(settings.https.poll_seconds, settings.https.queue_messages) if settings.https.serve else None


def listener_options(settings: Settings) -> ListenerOptions:
    """Return the limits of runtimes."""
    return ListenerOptions(
        max_bytes=settings.limits.frame_bytes,
        queue=QueueBounds(settings.limits.session_queue_messages, settings.limits.session_queue_bytes),
        origins=settings.listen.origins,
        https=https_options(settings),
        unopened_per_second=settings.listen.unopened_per_second,
        proxies=Proxies.of(settings.listen),
    )


def bindings(settings: Settings) -> frozenset[str]:
    """Return what a channel to us may be bound to: the certificate that we serve, or those that proxies of ours do."""
    return _bindings_of(settings, settings.listen.certificate)


def site_bindings(settings: Settings) -> frozenset[str]:
    """Return the same for the site, in front of which are the proxies of the listener, if any."""
    return _bindings_of(settings, None if settings.site is None else settings.site.certificate)


def _bindings_of(settings: Settings, certificate: Path | None) -> frozenset[str]:
    shown = settings.listen.proxy_certificates if certificate is None else (certificate,)
    return frozenset(_binding(file) for file in shown) or frozenset({channel_binding(b"")})


def _binding(file: Path) -> str:
    pem = file.read_text(encoding="ascii")
    first = pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index("-----END CERTIFICATE-----") + 25]
    return channel_binding(hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest())
