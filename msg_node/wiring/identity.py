"""Makes, connects and runs the services about the identity of users, as the settings want them.

Source: message specification, sections 12, 13 and 20.4.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import trio

from catalogue_client.core.location import Location
from catalogue_client.http_fetcher import HttpFetcher
from federation.discovery.dialler import Dialler
from federation.discovery.name_client import DnsClient
from federation.links.link_context import UNIDENTIFIED, Identified, Identify
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.backend_tls import BackendTls
from msg_node.backends.global_registry import GlobalRegistry
from msg_node.backends.global_registry_rest import ANSWER_BYTES, GlobalRegistryRest
from msg_node.backends.issuer_keyring import IssuerKeyring, KeySource
from msg_node.bus.bus import Bus
from msg_node.identity.core.assertions import ANY_DOMAIN, ProviderRules
from msg_node.identity.core.identity_service import ISSUER_KEYS, IdentityService
from msg_node.identity.core.issued_tokens import IssuedTokens, TokenMark
from msg_node.identity.core.local_clients import ENROLMENT
from msg_node.identity.core.login_service import TOKEN_MARKS, LoginService
from msg_node.identity.core.password_login import PASSWORDS, LocalAccounts
from msg_node.identity.core.session_tokens import SessionTokens, TokenLife, holder, own_rules
from msg_node.identity.core.verdicts import AssertionVerdict, Verdicts
from msg_node.identity.engine_clients import MANAGED
from msg_node.identity.engine_users import EngineUsers
from msg_node.identity.local_clients import LocalClients
from msg_node.identity.mark_keeper import MarkKeeper, TokenMarks
from msg_node.identity.password_check import PasswordCheck
from msg_node.identity.password_hash import HashCost
from msg_node.identity.token_store import TokenStore
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.credentials import JWT, Credential
from msg_node.kernel.domain_records import keys_of
from msg_node.kernel.issuer_keys import VerificationKey, keys_of_jwks
from msg_node.kernel.service import Service
from msg_node.kernel.signed_tokens import ALGORITHMS
from msg_node.node_state import NodeState
from msg_node.registries.core.global_registry_service import GLOBAL_REGISTRY, GLOBAL_REGISTRY_KEY, GlobalRegistryService
from msg_node.registries.core.stub_claims import names_stub_of
from msg_node.registries.engine_guids import GUIDS
from msg_node.settings.model import Settings
from msg_node.settings.tables.identity import (
    GlobalRegistrySettings,
    PasswordSettings,
    ProviderSettings,
    TokenSettings,
)
from msg_node.storage.key_files import load_online_keys
from msg_node.wiring import meaning
from msg_node.wiring.accounts import clients_of, guids_of, users_of
from msg_node.wiring.changed_credentials import settle_sessions
from msg_node.wiring.cluster import HeldName
from protofly.documents import SigningKey
from protofly.errors import Code, PeerError, SettingsError
from protofly.message import Message


class GuidRegistry(NamedTuple):
    """The global registry, and the service that asks it."""

    registry: GlobalRegistry
    service: GlobalRegistryService

    def follow(self, client: GlobalRegistryRest, chosen: GlobalRegistrySettings) -> None:
        """Ask the global registry of other settings from now on."""
        self.registry.follow(client, verify=chosen.verify, cache_seconds=chosen.cache_seconds)
        self.service.follow(read_seconds=chosen.attempt_seconds, write_seconds=chosen.write_seconds)


class IdentityServices:
    """Global registry, the way to users, the identity manager, and the tokens that it gives.

    Use: `services` go into the table of services and `identify` into the links, then `connect`, then `run` in a
    nursery.
    """

    def __init__(
        self, settings: Settings, state: NodeState, node_key: SigningKey, name: HeldName | None = None
    ) -> None:
        """Make them; nothing is asked yet.

        Args:
            settings: Loaded and checked.
            state: Sessions, and who has what.
            node_key: Signs for the node.
            name: That of one of several nodes, which share what they know; None: it is in files of this node.

        Raises:
            SettingsError: A file that the settings name cannot be used.
            HostError: STORAGE.
        """
        self._settings = settings
        self._state = state
        self._node_key = node_key
        self._places = {peer.domain: peer.well_known_url for peer in settings.peer if peer.well_known_url}
        self._bus: Bus | None = None
        self.guids: GuidRegistry | None = None
        """The global registry; None where the settings name none."""
        if settings.global_registry is not None:
            registry = GlobalRegistry(
                registry_client(settings.global_registry),
                guids_of(settings.node.data_dir, None if name is None else name.records),
                verify=settings.global_registry.verify,
                cache_seconds=settings.global_registry.cache_seconds,
            )
            times = settings.global_registry
            service = GlobalRegistryService(read_seconds=times.attempt_seconds, write_seconds=times.write_seconds)
            self.guids = GuidRegistry(registry, service)
        loaded = load_providers(settings)
        self._keyring = IssuerKeyring(loaded.fetcher, loaded.sources, on_keys=self._took_keys)
        self._verdicts = Verdicts(loaded.rules, wants_keys=self._keyring.want)
        state.transitions.credentials.wants_keys = self._keyring.want
        for issuer, keys in loaded.keys.items():
            self._took_keys(issuer, keys)
        self.marks: MarkKeeper | None = None
        """Follows what becomes of our tokens; None when the settings want none."""
        self._tokens: SessionTokens | None = None
        self._public_keys: list[Mapping[str, str]] = []
        marks: TokenMarks | None = None
        if settings.identity.tokens is not None:
            marks = TokenStore(settings.node.data_dir / "tokens.sqlite") if name is None else name.token_marks()
            self._tokens = self._restored_tokens(settings.identity.tokens, marks.load())
        self._accounts = LocalAccounts(settings.node.domain, frozenset(settings.own_domains))
        self._logins = LoginService(state.transitions, self._tokens)
        users = users_of(settings.node.data_dir, None if name is None else name.records)
        if settings.identity.passwords is not None:
            users.open()
        self.passwords = PasswordCheck(users, end_user=self._end_user, network_of=self._network_of)
        self._follow_passwords(settings.identity.passwords)
        self.clients = LocalClients(clients_of(settings.node.data_dir, None if name is None else name.records))
        """Clients that operators manage."""
        if self._tokens is not None:
            assert marks is not None
            self.marks = MarkKeeper(marks, self._logins)

    def heard(self, payloads: Collection[str] | None) -> None:
        """Records of the domain were replaced; None: any may have been."""
        if isinstance(self.passwords.users, EngineUsers):
            self.passwords.users.heard(payloads)
        if keys_of(MANAGED, payloads) != []:
            self.clients.heard()
        if self.guids is not None:
            self.guids.registry.changed(keys_of(GUIDS, payloads))

    def _follow_passwords(self, chosen: PasswordSettings | None) -> None:
        """Let local users log in, or let them not."""
        self._logins.accounts = None if chosen is None else self._accounts
        if chosen is None:
            self.passwords.follow(None)
        else:
            self.passwords.follow(HashCost(chosen.memory_kib, chosen.passes), chosen.checks)

    def _end_user(self, name: str, moment: float) -> None:
        self._logins.end_user(self._accounts.address(name), moment, now=time.time())

    def _network_of(self, session: int) -> str | None:
        assert self._bus is not None
        port = self._bus.send_queues.ports.get(session)
        return None if port is None else port.line.offered.network

    def _restored_tokens(self, chosen: TokenSettings, marks: list[TokenMark]) -> SessionTokens:
        """Our own tokens, with what had become of them."""
        keys = load_online_keys(chosen.keys_dir, "token")
        issued = IssuedTokens()
        issued.restore(marks, now=time.time())
        rules = own_rules(self._settings.node.domain, self._settings.own_domains)
        tokens = SessionTokens(rules, keys, _life(chosen), issued, believes=self._believes)
        credentials = self._state.transitions.credentials
        credentials.set_issuer_keys(rules.issuer, tokens.verification_keys)
        credentials.set_further_check(rules.issuer, tokens.check)
        return tokens

    @property
    def services(self) -> Mapping[str, Service]:
        """Services by canonical key, for `Services(at=…)`."""
        services: dict[str, Service] = {}
        if self.guids is not None:
            services[GLOBAL_REGISTRY_KEY] = self.guids.service
        self._public_keys[:] = _own_keys(self._node_key, self._tokens)
        credentials, profile = self._state.transitions.credentials, self._state.users.profile
        identity = IdentityService(credentials, self._verdicts, self._logins, self._public_keys, profile)
        for domain in self._settings.own_domains:
            services[f"domain://idm.{domain}"] = identity
        return services

    @property
    def identify(self) -> Identify | None:
        """Says who sends a message that crosses our border; None when there are no identity providers."""
        identity = self._settings.identity
        return self._identify if identity.provider or identity.passwords is not None else None

    def connect(self, bus: Bus) -> None:
        """Have inquiries answered, and users found; once, before anything runs."""
        self._bus = bus
        counters = bus.send_queues.counters

        def count_groups_left_out(entries: int) -> None:
            counters[NodeCount.GROUPS_LEFT_OUT] += entries

        self._verdicts.count_groups_left_out = count_groups_left_out
        bus.inquiries.connect(ISSUER_KEYS, self._keyring.refresh)
        if self._tokens is not None and self.marks is not None:
            bus.inquiries.connect(TOKEN_MARKS, self.marks.keep)
            for login in self._tokens.issued.revoked():  # the node may have died before its sessions knew
                self._state.transitions.end_login(login, now=time.time())
        bus.inquiries.connect(PASSWORDS, self.passwords.ask)
        self._connect_clients(bus)
        if self.guids is not None:
            bus.inquiries.connect(GLOBAL_REGISTRY, self.guids.registry.ask)
            bus.users.record_of = self.guids.registry.record

    def _connect_clients(self, bus: Bus) -> None:
        """Let what operators change about clients count for sessions at once."""
        state = self._state

        def follow(credentials: Iterable[Credential]) -> None:
            state.transitions.credentials.manage(credentials)
            settle_sessions(state, bus)

        def move(number: int, credential: Credential) -> None:
            session = state.sessions.get(number)
            if session is not None:
                session.proof = replace(session.proof, credential=credential.digest, expires_at=credential.expires_at)
                state.sessions.save(session)

        def credential_of(number: int) -> str:
            session = state.sessions.get(number)
            return "" if session is None or session.is_guest else session.proof.credential

        self.clients.connect(follow=follow, move=move, credential_of=credential_of)
        bus.inquiries.connect(ENROLMENT, self.clients.enrol)

    def follow(self, settings: Settings, loaded: LoadedProviders) -> None:
        """Believe other providers from now on, for other domains, and local users if these settings have any.

        Credentials are those of these settings already.

        Keys that were fetched count on while their place is the same.
        """
        self._settings = settings
        self._follow_passwords(settings.identity.passwords)
        if self._tokens is not None and settings.identity.tokens is not None:
            self._tokens.sign_with(loaded.token_keys, _life(settings.identity.tokens))
            ours = self._tokens
            self._state.transitions.credentials.set_issuer_keys(ours.rules.issuer, ours.verification_keys)
            self._public_keys[:] = _own_keys(self._node_key, self._tokens)
        gone = self._keyring.follow(loaded.fetcher, loaded.sources)
        fetched = {one.issuer: self._verdicts.keys_of(one.issuer) for one in loaded.sources if one.issuer not in gone}
        self._verdicts.follow(loaded.rules, {**fetched, **loaded.keys})
        for issuer in settings.sessions.issuer:
            if not issuer.has_keys:
                keys = self._verdicts.keys_of(issuer.issuer)
                self._state.transitions.credentials.set_issuer_keys(issuer.issuer, keys)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for users, and keep keys fresh, until cancelled."""
        assert self._bus is not None
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._keyring.run)
                if self.guids is not None:
                    await nursery.start(self._bus.users.run)
                if self.marks is not None:
                    nursery.start_soon(self.marks.run)
                nursery.start_soon(self.passwords.run)
                nursery.start_soon(self.clients.run)
                task_status.started()
                await trio.sleep_forever()
        finally:
            if self.marks is not None:
                self.marks.close()
            self.passwords.close()
            self.clients.close()

    def status(self) -> dict[str, object]:
        """Report the state of each for operators."""
        status: dict[str, object] = {}
        if self.guids is not None and self._bus is not None:
            status["global_registry"] = self.guids.registry.counters.shown()
            status["users"] = self._bus.users.statistics()
        if self._settings.identity.provider:
            status["identity"] = self._keyring.status()
        if self._tokens is not None:
            status["tokens"] = {**self._logins.counters.shown(), "remembered": len(self._tokens.issued)}
        return status

    def _took_keys(self, issuer: str, keys: Sequence[VerificationKey]) -> None:
        """Keys of a provider are known: they count for assertions, and for tokens where it opens sessions too."""
        self._verdicts.set_keys(issuer, keys)
        if any(one.issuer == issuer and not one.has_keys for one in self._settings.sessions.issuer):
            self._state.transitions.credentials.set_issuer_keys(issuer, keys)

    def _identify(self, message: Message, domain: str, now: float) -> Identified:
        """Source: message specification, section 13.3."""
        sender = partial(self._state.holders.speaker_of, message.from_key) if domain in self._state.domains else None
        verdict = self._verdicts.judge(message.body, domain, now=now, sender=sender)
        if verdict.is_verified:
            if verdict.stub and domain not in self._state.domains:
                self._check_stub(verdict, domain)
            return Identified(True, verdict.user, verdict.issuer, verdict.groups)
        if domain in self._state.domains:
            who = self._of_session(message)
            return who if domain in self.domains_of(who.issuer) else UNIDENTIFIED
        demand = self._settings.identity.demand
        if demand and message.type != "response" and (domain in demand or ANY_DOMAIN in demand):
            raise PeerError(Code.BAD_ASSERTION, verdict.detail, domain=domain)
        return UNIDENTIFIED

    def _credential_of(self, key: str) -> str:
        """The credential of the session that owns an address or what is above it, "" when there is none."""
        session = self._state.sessions.get(self._state.holders.speaker_of(key) or 0)
        return "" if session is None else session.proof.credential

    def _check_stub(self, verdict: AssertionVerdict, domain: str) -> None:
        """A provider says where the stub of a user's domain is: it has to be where we get it. See `stub_claims`."""
        used = self._places.get(domain) or Location.of(domain).well_known_url
        if not names_stub_of(verdict.stub, domain, used):
            detail = f"its issuer says that the stub of {domain} is at {verdict.stub[:200]}, and not below {used}"
            raise PeerError(Code.BAD_ASSERTION, detail, domain=domain)

    def _of_session(self, message: Message) -> Identified:
        """Return the user of the session that a message comes from, if a token of a provider opened it."""
        kind, _, rest = self._credential_of(message.from_key).partition(" ")
        if kind != JWT:
            return UNIDENTIFIED
        issuer, _, subject = rest.partition(" ")
        if self._tokens is not None and issuer == self._tokens.rules.issuer:
            issuer, subject = holder(subject)  # by our own token: any claim may name the user
            return Identified(True, subject, issuer) if self._believes(issuer) else UNIDENTIFIED
        is_user = self._believes(issuer) and self._verdicts.providers[issuer].user_claim == "sub"
        return Identified(True, subject, issuer) if is_user else UNIDENTIFIED

    def _believes(self, issuer: str) -> bool:
        """True if an issuer is a provider of identities of our users."""
        return bool(self.domains_of(issuer))

    def domains_of(self, issuer: str) -> frozenset[str]:
        """Return the domains of ours for whose users an issuer speaks."""
        ours = frozenset(self._settings.own_domains)
        if self._logins.accounts is not None and self._tokens is not None and issuer == self._tokens.rules.issuer:
            return ours  # of our own users
        rules = self._verdicts.providers.get(issuer)
        if rules is None:
            return frozenset()
        return ours if ANY_DOMAIN in rules.domains else ours & rules.domains


def _own_keys(node_key: SigningKey, tokens: SessionTokens | None) -> list[Mapping[str, str]]:
    """The keys with which our domain signs, as JWK."""
    return [node_key.jwk(), *([] if tokens is None else tokens.public_keys)]


def _life(chosen: TokenSettings) -> TokenLife:
    return TokenLife(chosen.seconds, chosen.login_seconds)


def registry_client(settings: GlobalRegistrySettings) -> GlobalRegistryRest:
    """Make the client of the global registry in the settings. Raises SettingsError."""
    http = BackendHttp(settings.url, BackendTls("global_registry", settings), max_bytes=ANSWER_BYTES)
    return GlobalRegistryRest(http, read_seconds=settings.attempt_seconds, write_seconds=settings.write_seconds)


def _rules(provider: ProviderSettings, own_domains: tuple[str, ...]) -> ProviderRules:
    return ProviderRules(
        issuer=provider.issuer,
        audiences=frozenset(provider.audience),
        domains=frozenset(provider.domains or own_domains),
        algorithms=frozenset(provider.algorithms or ALGORITHMS),
        skew_seconds=provider.skew_seconds,
        user_claim=provider.user_claim,
        roles_claim=provider.roles_claim,
        groups_claim=provider.groups_claim,
        stub_claim=provider.stub_claim,
    )


def keys_in_file(provider: ProviderSettings) -> list[VerificationKey]:
    """The keys of a provider that are not fetched.

    Raises:
        SettingsError: The file cannot be used.
    """
    assert provider.jwks is not None
    try:
        return keys_of_jwks(provider.jwks.read_bytes())
    except OSError as exc:
        raise SettingsError(f"provider {provider.issuer}: {provider.jwks}: {exc.strerror}") from exc
    except ValueError as exc:
        raise SettingsError(f"provider {provider.issuer}: {provider.jwks}: {exc}") from exc


class LoadedProviders(NamedTuple):
    """The identity providers of some settings.

    Attributes:
        rules: What each may say.
        sources: Where keys are fetched.
        fetcher: Fetches them; None where there is nothing to fetch.
        keys: Those that are in files.
        token_keys: Private ones, for our own tokens; none where the settings want no tokens.
    """

    rules: list[ProviderRules]
    sources: list[KeySource]
    fetcher: HttpFetcher | None
    keys: Mapping[str, Sequence[VerificationKey]]
    token_keys: Sequence[SigningKey] = ()


def load_providers(settings: Settings) -> LoadedProviders:
    """Read what the settings name; nothing is fetched yet. Blocks.

    Raises:
        SettingsError: A file cannot be used.
    """
    tokens = settings.identity.tokens
    fetched = [one for one in settings.identity.provider if one.jwks is None]
    sources = {
        one.issuer: KeySource.of(one.issuer, discovery_url=one.discovery_url, jwks_url=one.jwks_url) for one in fetched
    }
    return LoadedProviders(
        [_rules(one, settings.own_domains) for one in settings.identity.provider],
        list(sources.values()),
        _fetcher(settings, fetched, sources) if fetched else None,
        {one.issuer: keys_in_file(one) for one in settings.identity.provider if one.jwks is not None},
        () if tokens is None else load_online_keys(tokens.keys_dir, "token"),
    )


def _fetcher(settings: Settings, fetched: list[ProviderSettings], sources: Mapping[str, KeySource]) -> HttpFetcher:
    """Fetches through a dialler of its own: ranges that are open to a provider are open to nobody else."""
    allowed = {
        sources[one.issuer].host: tuple(map(ipaddress.ip_network, one.allow_addresses))
        for one in fetched
        if one.allow_addresses
    }
    plaintext = [sources[one.issuer].host for one in fetched if one.insecure_plaintext]
    names = DnsClient(settings.discovery.nameservers, believes_ad=settings.discovery.trust_ad_bit)
    return HttpFetcher(
        Dialler(names, allow_addresses=allowed), meaning.client_context(settings), insecure_plaintext=plaintext
    )
