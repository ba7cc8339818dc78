"""Takes changed settings over while the node runs: all of them or none.

What can change is in `msg_node/admin/core/setting_changes.py`. Everything is read and checked first, outside the event
loop; then it is put in force in one go. A setting that needs a restart refuses the whole change, by name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from federation.links.domain_link import DomainLink, close_link
from federation.links.visitors import greeting
from federation.stubs.chosen_stubs import StubChoice
from msg_node.admin.alarm_calls import Call
from msg_node.admin.alarm_watch import AlarmWatch
from msg_node.admin.block_subscriptions import BlockSubscriptions, Subscription
from msg_node.admin.core.plan import Plan
from msg_node.admin.core.setting_changes import SettingChange, differences, is_reloadable, reason_for_restart
from msg_node.admin.policy_deployment import Policies, policies_of
from msg_node.kernel.credentials import Credentials
from msg_node.settings.model import Settings
from msg_node.settings.sessions import build_credentials
from msg_node.settings.tables.peers import PeerSettings
from msg_node.settings.weakenings import insecure_switches
from msg_node.site.publisher import live_options
from msg_node.storage.policy_store import ActivePolicies, PolicyStore
from msg_node.wiring import meaning
from msg_node.wiring.alarms import webhook_of
from msg_node.wiring.backends import LoadedBackends
from msg_node.wiring.block_lists import subscriptions_of
from msg_node.wiring.changed_credentials import sessions_without_proof, take_credentials_over
from msg_node.wiring.discovery import LoadedWays, load_ways
from msg_node.wiring.identity import LoadedProviders, load_providers
from msg_node.wiring.mqtt import LoadedBroker, load_mqtt
from msg_node.wiring.peer_stubs import check_modules, stub_choices
from msg_node.wiring.recordings import recorded_bytes
from msg_node.wiring.reloadable import (
    Reloadable,
    take_aliases_over,
    take_backends_over,
    take_grants_over,
    take_limits_over,
    take_providers_over,
    take_tables_over,
    take_terms_over,
    take_writers_over,
)
from msg_node.wiring.served_tls import LoadedTls, ServedTls, load_tls
from policy.core.model import Facts
from protofly.errors import Code, RestartNeededError, SettingsError

if TYPE_CHECKING:
    from msg_node.admin.admin_site import AdminSite

logger = logging.getLogger("msg_node")

ReadSettings = Callable[[], Settings]
"""Reads and checks the settings files. Blocks. Raises SettingsError."""


class Loaded(NamedTuple):
    """Changes of the settings, and the parts read for them; reading those is all that can fail."""

    changes: list[SettingChange]
    policies: Policies
    tls: LoadedTls
    credentials: Credentials
    choices: list[StubChoice]
    providers: LoadedProviders
    lists: list[Subscription]
    webhook: Call | None
    ways: LoadedWays
    backends: LoadedBackends
    broker: LoadedBroker


class Reloading:
    """Takes changed settings over.

    Args:
        parts: Of the node.
        read: Reads the settings files.
    """

    def __init__(self, parts: Reloadable, read: ReadSettings) -> None:
        self._parts = parts
        self._read = read
        self.changing = trio.Lock()
        """Held while a change of settings or policies is planned and applied, so that no plan is made on old ones."""
        self._ways = parts.ways.loaded
        self.tls = ServedTls(parts.current.get, self._show)
        self.admin_site: AdminSite | None = None
        """Shows the certificate of `[admin]`; set once it is made, which takes the plans of this."""
        self.watches: tuple[BlockSubscriptions, AlarmWatch] | None = None
        """Follow block lists, and call the webhook; set likewise."""

    def _show(self, loaded: LoadedTls) -> None:
        """Show other certificates from the next connection on. Links that are up stay bound to the one they saw."""
        parts = self._parts
        parts.listener.context = loaded.listener
        if parts.acceptor is not None:
            parts.acceptor.bindings |= loaded.bindings
        if parts.reverse_checks is not None:
            parts.reverse_checks.bindings |= loaded.site_bindings
        if parts.site is not None:
            parts.site.show(loaded.site)
        if self.admin_site is not None:
            self.admin_site.show(loaded.admin)

    async def reload(self) -> None:
        """Take over what has changed, all or nothing, and look for failed domains again; what is wrong is logged."""
        forgotten = self._parts.resolver.forget_failures()
        if forgotten:
            logger.info("%d domains that were not found may be looked up again", forgotten)
        async with self.changing:
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
            RestartNeededError: A changed setting needs a restart.
            SettingsError: Settings or files cannot be used.
        """
        before = self._parts.current.get()
        after = await trio.to_thread.run_sync(self._read)
        changes = await trio.to_thread.run_sync(setting_changes, before, after)
        if others := [one.name for one in changes if not is_reloadable(one)]:
            reasons = "; ".join(f"{name}: needs a restart, {reason_for_restart(name)}" for name in others)
            raise RestartNeededError(f"{reasons}; nothing was changed")
        policies = await trio.to_thread.run_sync(meaning.policies_in_force, after)
        if policies.active.bundle:  # the files wait until it is rolled back, and have to be right by then
            store = PolicyStore(after.node.data_dir)
            domain = after.node.domain
            files = await trio.to_thread.run_sync(policies_of, after.policy, domain, store, ActivePolicies())
            await trio.to_thread.run_sync(meaning.build_gate, after, files.compiled)
        await trio.to_thread.run_sync(meaning.build_gate, after, policies.compiled)  # it checks entries and lists
        tls = await trio.to_thread.run_sync(load_tls, after)
        credentials = await trio.to_thread.run_sync(build_credentials, after)
        choices = await trio.to_thread.run_sync(stub_choices, after)
        await trio.to_thread.run_sync(check_modules, choices)
        providers = await trio.to_thread.run_sync(load_providers, after)
        lists = await trio.to_thread.run_sync(subscriptions_of, after)
        webhook = await trio.to_thread.run_sync(webhook_of, after)
        ways = await trio.to_thread.run_sync(load_ways, after, self._ways)
        await self._check_live(after)
        backends = await trio.to_thread.run_sync(self._parts.backends.load, after)
        broker = await trio.to_thread.run_sync(load_mqtt, after, self._parts.listener.reception, self._parts.node_url)
        read = policies, tls, credentials, choices, providers, lists, webhook, ways, backends, broker
        loaded = Loaded(changes, *read)
        credentials.manage_as(self._parts.state.transitions.credentials)
        ended = sessions_without_proof(self._parts.state, credentials, takes_guests=after.sessions.guests)
        revision = policies.compiled.revision
        shown: dict[str, object] = {"changes": changes, "policies": revision, "sessions_that_end": len(ended)}
        if policies.active.bundle:
            shown["policies_are_of"] = f"{policies.place}, not the files of the settings"
        now = {"policies": self._parts.gate.policies.revision}
        return Plan(now, shown, lambda: self._apply(after, loaded))

    async def _check_live(self, after: Settings) -> None:
        """Check that readers would take what the node would sign from now on. Raises SettingsError."""
        site = self._parts.site
        if site is not None and site.publisher is not None and after.publish is not None:
            check = partial(site.publisher.check, live_options(after, after.publish), now=time.time())
            await trio.to_thread.run_sync(check)

    def _apply(self, settings: Settings, loaded: Loaded) -> None:
        parts = self._parts
        before = parts.current.get()
        guests = settings.sessions.guests
        take_credentials_over(parts.state, parts.bus, loaded.credentials, takes_guests=guests)
        parts.current.put(settings)
        take_providers_over(parts, settings, loaded.providers)
        take_limits_over(parts, settings)
        take_tables_over(parts, before, settings)
        take_writers_over(parts, settings)
        take_backends_over(parts, settings, loaded.backends, loaded.broker)
        granted = take_grants_over(parts, settings)
        if self.admin_site is not None and settings.admin is not None:
            self.admin_site.follow(settings.admin)
        peers = {peer.domain: meaning.peer_rule(peer) for peer in settings.peer}
        chosen = settings.policy
        parts.gate.configure(peers, allow=chosen.allow, deny=chosen.deny, own_bus=chosen.local_default)
        parts.policies.deploy(loaded.policies)
        take_terms_over(parts, settings)
        parts.dialler.replace_allowed(meaning.allowed_addresses(settings))
        take_aliases_over(parts, settings)
        parts.traffic.follow(meaning.classes(settings))
        self.tls.put(loaded.tls)
        if settings.log.level != before.log.level:
            parts.levels.settle(settings.log.level)
        if self.watches is not None:
            block_lists, alarms = self.watches
            alarms.calls.call = loaded.webhook
            if _lists(settings) != _lists(before):
                block_lists.follow(loaded.lists)
        has_other_ways, self._ways = loaded.ways is not self._ways, loaded.ways
        if has_other_ways:
            parts.ways.follow(loaded.ways)
        if has_other_ways or settings.peer != before.peer:
            parts.documents.reconsider()
            parts.resolver.forget_failures()
        self._take_links_over(before, settings, self._other_stubs(settings, loaded), granted)
        parts.federation.open_lasting()
        for switch in insecure_switches(settings):
            if switch not in insecure_switches(before):
                logger.warning("INSECURE by the settings: %s", switch)
        logger.info("the settings are in force: %d changes", len(loaded.changes))

    def _other_stubs(self, settings: Settings, loaded: Loaded) -> frozenset[str]:
        """Let other terms of stubs count; returns the domains whose stubs are to start again under theirs."""
        parts, recorded = self._parts, recorded_bytes(settings)
        others = parts.stubs.choose(loaded.choices)
        others |= {domain for domain, _ in parts.recorders.max_bytes.items() ^ recorded.items()}
        parts.recorders.max_bytes = recorded
        if parts.stubs.spend(meaning.stub_budget(settings)):
            others |= {link.domain for link in parts.federation.links}
        return others

    def _take_links_over(
        self, before: Settings, settings: Settings, other_stubs: frozenset[str], granted: frozenset[str]
    ) -> None:
        """Let links go on with what holds now for their domains, or end those that cannot.

        `other_stubs` start again under other terms; `granted`: interworking stubs are granted something else.
        """
        parts = self._parts
        for link in parts.federation.links:
            if link.domain in other_stubs:
                link.need.recall()  # the next instance is given what the settings say now
            if not self._may_talk(link.domain):
                parts.federation.cut_off(link.domain, Code.DOMAIN_BLOCKED, "our settings do not talk to this domain")
            elif _way(before, link.domain) != _way(settings, link.domain):
                parts.federation.cut_off(link.domain, Code.DRAINING, "our settings have another way to this domain")
            elif link.domain in granted or _contact_rules(before, link.domain) != _contact_rules(settings, link.domain):
                self._renew(link)
            elif meaning.update_rule(before, link.domain) != meaning.update_rule(settings, link.domain):
                self._take_other_version(link)

    def _renew(self, link: DomainLink) -> None:
        """Have the next contact begin anew, now if there is none."""
        if link.is_live:
            close_link(link)
        else:
            self._parts.federation.restart(link.domain)

    def _take_other_version(self, link: DomainLink) -> None:
        """Have the stub of a link look which versions may run; one that may run no more does not go on."""
        rule, running = meaning.update_rule(self._parts.current.get(), link.domain), link.stub.module_sha256
        if rule.mode == "pinned" and running not in rule.modules:
            self._renew(link)
        else:
            link.need.look()

    def _may_talk(self, domain: str) -> bool:
        """Ask the gate `peer` without counting."""
        probe, ours = greeting(self._parts.node_url, self._parts.node_url), self._parts.current.get().node.domain
        facts = Facts("peer", probe, ours, domain, domain, len(probe.raw), 0, 0.0)
        return self._parts.gate.explain(facts).verdict.permitted


def _lists(settings: Settings) -> object:
    return settings.block_list, settings.policy.lists_agree, settings.policy.lists_exempt


def _way(settings: Settings, domain: str) -> object:
    """How a domain is spoken with; its link was made with it."""
    peer = next((one for one in settings.peer if one.domain == domain), PeerSettings(domain=domain))
    chosen = peer.stub, peer.unsigned_stub, peer.sha256, peer.endpoint
    return chosen, peer.insecure_plaintext, peer.send_via


def _contact_rules(settings: Settings, domain: str) -> object:
    """The rules for contact with a domain."""
    aliases = sorted(alias for alias, main in meaning.main_domains(settings).items() if main == domain)
    return meaning.anchor_of(settings, domain), meaning.allowed_addresses(settings).get(domain, ()), aliases


def setting_changes(before: Settings, after: Settings) -> list[SettingChange]:
    """Compare two sets of settings."""
    nothing = _plain(PeerSettings(domain=""))
    return differences(_plain(before), _plain(after), {"peer": nothing})


def _plain(settings: msgspec.Struct) -> object:
    return msgspec.to_builtins(settings, enc_hook=str)
