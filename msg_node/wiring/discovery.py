"""The way to other domains: finding them, and connecting to them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from catalogue_client.http_fetcher import HttpFetcher
from federation.attempt_log import AttemptLog
from federation.decision_records import DecisionRecords
from federation.dialler import Dialler
from federation.logged_fetcher import LoggedFetcher
from federation.name_client import DnsClient
from federation.resolver import Resolver
from federation.visitors import greeting, may_talk
from msg_node.settings.model import Settings
from msg_node.settings.peer_stubs import peer_terms
from msg_node.wiring import meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The way to other domains.

    Attributes:
        resolver: Finds the site of a domain.
        dialler: Opens connections, and refuses internal addresses.
        fetcher: Fetches documents.
        plaintext: Domains whose documents may be fetched without TLS; may be changed.
        tls_context: Verifies other domains.
    """

    resolver: Resolver
    dialler: Dialler
    fetcher: LoggedFetcher
    plaintext: set[str]
    tls_context: ssl.SSLContext


def build_discovery(settings: Settings, decisions: DecisionRecords, node_url: str) -> Discovery:
    """Make the way to other domains; it is asked nothing yet.

    Args:
        settings: Loaded and checked.
        decisions: Say which domains we talk to.
        node_url: Our runtime address.

    Raises:
        SettingsError: Something that the settings name cannot be used.
    """
    log = AttemptLog()
    names = DnsClient(settings.discovery.nameservers, believes_ad=settings.discovery.trust_ad_bit)
    dialler = Dialler(names, allow_addresses=meaning.allowed_addresses(settings), log=log)
    resolver = Resolver(
        names,
        own_domains=settings.own_domains,
        peers=meaning.peer_entries(settings),
        is_permitted=lambda domain: may_talk(decisions, domain, greeting(node_url, node_url), is_visit=True),
        log=log,
    )
    tls_context = meaning.client_context(settings)
    plaintext = set(peer_terms(settings).plaintext)
    return Discovery(
        resolver=resolver,
        dialler=dialler,
        fetcher=LoggedFetcher(HttpFetcher(dialler, tls_context, insecure_plaintext=plaintext), log),
        plaintext=plaintext,
        tls_context=tls_context,
    )
