"""Takes changed settings over while the node runs: all of them or none.

What can change is in `msg_node/admin/core/setting_changes.py`. Everything is read and checked first, outside the event
loop; then it is put in force in one go. A setting that needs a restart refuses the whole change, by name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from federation.aliases import Aliases
from federation.dialler import Dialler
from federation.domain_documents import DomainDocuments
from federation.domain_link import DomainLink, close_link
from federation.link_acceptor import LinkAcceptor
from federation.resolver import Resolver
from federation.router import Federation, greeting
from msg_node.admin.core.plan import Plan
from msg_node.admin.core.setting_changes import SettingChange, differences, is_reloadable, reason_for_restart
from msg_node.admin.core.traffic import Traffic
from msg_node.admin.log_levels import LogLevels
from msg_node.admin.policy_deployment import PolicyDeployment
from msg_node.bus.bus import Bus
from msg_node.connectors.listener import Listener
from msg_node.kernel.credentials import Credentials
from msg_node.node_state import NodeState
from msg_node.settings.model import PeerSettings, Settings
from msg_node.settings.sessions import build_credentials
from msg_node.site.site import Site
from msg_node.wiring import meaning
from msg_node.wiring.changed_credentials import sessions_without_proof, take_credentials_over
from msg_node.wiring.foundation import CurrentSettings
from msg_node.wiring.served_tls import LoadedTls, ServedTls, load_tls
from policy.core.engine import CompiledPolicies
from policy.core.gate import Gate
from policy.core.model import Facts, Mode
from policy.files import read_policies
from protofly.errors import Code, SettingsError

if TYPE_CHECKING:
    from msg_node.admin.admin_site import AdminSite

logger = logging.getLogger("msg_node")

ReadSettings = Callable[[], Settings]
"""Reads and checks the settings files. Blocks. Raises SettingsError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloadable:
    """The parts of a node that take changed settings over.

    Attributes:
        current: Holds the settings in force.
        gate: Peers, lists, rates, policies.
        policies: Writes down which policies are in force.
        dialler: Internal addresses that peers may have.
        resolver: Asks again for domains that were not found.
        documents: Verify other domains by the anchors of their entries.
        aliases: Which names may be aliases.
        federation: Ends links of domains that are not talked to any more.
        levels: Levels of the log.
        listener: Shows the certificate of `[listen]`.
        acceptor: Knows to what links may be bound.
        site: Shows that of `[site]`.
        traffic: Has figures of the domains that are named.
        state: Sessions, and what proofs count.
        bus: Ends sessions whose credentials are gone.
        node_url: Our runtime address.
    """

    current: CurrentSettings
    gate: Gate
    policies: PolicyDeployment
    dialler: Dialler
    resolver: Resolver
    documents: DomainDocuments
    aliases: Aliases
    federation: Federation
    levels: LogLevels
    listener: Listener
    acceptor: LinkAcceptor | None
    site: Site | None
    traffic: Traffic
    state: NodeState
    bus: Bus
    node_url: str


class Reloading:
    """Takes changed settings over.

    Args:
        parts: Of the node.
        read: Reads the settings files.
    """

    def __init__(self, parts: Reloadable, read: ReadSettings) -> None:
        self._parts = parts
        self._read = read
        self.tls = ServedTls(parts.current.get, self._show)
        self.admin_site: AdminSite | None = None
        """Shows the certificate of `[admin]`; set once it is made, which takes the plans of this."""

    def _show(self, loaded: LoadedTls) -> None:
        """Show other certificates from the next connection on. Links that are up stay bound to the one they saw."""
        parts = self._parts
        parts.listener.context = loaded.listener
        if parts.acceptor is not None:
            parts.acceptor.bindings |= loaded.bindings
        if parts.site is not None:
            parts.site.show(loaded.site)
        if self.admin_site is not None:
            self.admin_site.show(loaded.admin)

    async def reload(self) -> None:
        """Take over what has changed, all or nothing, and look for failed domains again; what is wrong is logged."""
        forgotten = self._parts.resolver.forget_failures()
        if forgotten:
            logger.info("%d domains that were not found may be looked up again", forgotten)
        try:
            plan = await self.plan()
        except SettingsError as exc:
            self._parts.policies.refused(exc)
            logger.error("the settings stay as they are: %s", exc.detail)
            return
        plan.apply()

    async def plan(self) -> Plan:
        """Read and check everything; nothing changes before `apply` of the plan.

        Raises:
            SettingsError: Settings or files cannot be used, or a changed one needs a restart.
        """
        before = self._parts.current.get()
        after = await trio.to_thread.run_sync(self._read)
        changes = setting_changes(before, after)
        if others := [one.name for one in changes if not is_reloadable(one)]:
            reasons = "; ".join(f"{name}: needs a restart, {reason_for_restart(name)}" for name in others)
            raise SettingsError(f"{reasons}; nothing was changed")
        policies = await trio.to_thread.run_sync(
            partial(read_policies, after.policy.files, mode=Mode(after.policy.mode))
        )
        peers = {peer.domain: meaning.peer_rule(peer) for peer in after.peer}
        Gate(policies, peers, allow=after.policy.allow, deny=after.policy.deny)  # it checks them
        loaded = await trio.to_thread.run_sync(load_tls, after)
        credentials = await trio.to_thread.run_sync(build_credentials, after)
        ended = sessions_without_proof(self._parts.state, credentials)
        shown = {"changes": changes, "policies": policies.revision, "sessions_that_end": len(ended)}
        revision = {"policies": self._parts.gate.policies.revision}
        return Plan(revision, shown, lambda: self._apply(after, policies, loaded, credentials))

    def _apply(
        self, settings: Settings, policies: CompiledPolicies, loaded: LoadedTls, credentials: Credentials
    ) -> None:
        parts = self._parts
        before = parts.current.get()
        take_credentials_over(parts.state, parts.bus, credentials)
        parts.current.put(settings)
        peers = {peer.domain: meaning.peer_rule(peer) for peer in settings.peer}
        parts.gate.configure(peers, allow=settings.policy.allow, deny=settings.policy.deny)
        parts.policies.deploy(policies, settings.policy.files, settings.policy.mode)
        parts.dialler.replace_allowed(meaning.allowed_addresses(settings))
        parts.aliases.rules = meaning.alias_rules(settings, parts.gate, parts.node_url)
        parts.traffic.follow(meaning.classes(settings))
        self.tls.put(loaded)
        if settings.log.level != before.log.level:
            parts.levels.settle(settings.log.level)
        if settings.peer != before.peer:
            parts.documents.reconsider()
            parts.resolver.forget_failures()
        for link in parts.federation.links:
            if not self._may_talk(link.domain):
                parts.federation.cut_off(link.domain, Code.DOMAIN_BLOCKED, "our settings do not talk to this domain")
            elif _contact_rules(before, link.domain) != _contact_rules(settings, link.domain):
                self._renew(link)
        parts.federation.open_lasting()
        logger.info("the settings are in force: %d changes", len(setting_changes(before, settings)))

    def _renew(self, link: DomainLink) -> None:
        """Have the next contact begin anew, now if there is none."""
        if link.is_live:
            close_link(link)
        else:
            self._parts.federation.restart(link.domain)

    def _may_talk(self, domain: str) -> bool:
        """Ask the gate `peer` without counting."""
        probe, ours = greeting(self._parts.node_url, self._parts.node_url), self._parts.current.get().node.domain
        facts = Facts("peer", probe, ours, domain, domain, len(probe.raw), 0, 0.0)
        return self._parts.gate.explain(facts).verdict.permitted


def _contact_rules(settings: Settings, domain: str) -> object:
    """What a contact with a domain is held against."""
    return meaning.anchor_of(settings, domain), meaning.allowed_addresses(settings).get(domain, ())


def setting_changes(before: Settings, after: Settings) -> list[SettingChange]:
    """Compare two sets of settings."""
    nothing = _plain(PeerSettings(domain=""))
    return differences(_plain(before), _plain(after), {"peer": nothing})


def _plain(settings: msgspec.Struct) -> object:
    return msgspec.to_builtins(settings, enc_hook=str)
