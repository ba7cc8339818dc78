"""The way to other domains: finding them, and connecting to them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import NamedTuple

from catalogue_client.http_fetcher import HttpFetcher
from federation.discovery.attempt_log import AttemptLog
from federation.discovery.dialler import Dialler
from federation.discovery.logged_fetcher import LoggedFetcher
from federation.discovery.name_client import DnsClient
from federation.discovery.resolver import Resolver
from federation.links.decision_records import DecisionRecords
from federation.links.visitors import greeting, may_talk
from federation.stubs.egress import LineOpener
from msg_node.settings.model import Settings
from msg_node.settings.peer_stubs import peer_terms
from msg_node.wiring import meaning


class LoadedWays(NamedTuple):
    """What was read for other settings: name servers, and authorities that vouch for other domains."""

    names: DnsClient
    tls_context: ssl.SSLContext


def load_ways(settings: Settings) -> LoadedWays:
    """Read what the settings say about the way to other domains. Blocks.

    Raises:
        SettingsError: A name server or a file cannot be used.
    """
    chosen = settings.discovery
    names = DnsClient(chosen.nameservers, believes_ad=chosen.trust_ad_bit)
    return LoadedWays(names, meaning.client_context(settings))


class WaysOut(NamedTuple):
    """The parts that ask name servers, fetch documents and open lines of stubs."""

    names: DnsClient
    http: HttpFetcher
    lines: LineOpener

    def follow(self, loaded: LoadedWays) -> None:
        """Let these count for the next question and the next connection."""
        self.names.follow(loaded.names)
        self.http.trust(loaded.tls_context)
        self.lines.tls_context = loaded.tls_context


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The way to other domains.

    Attributes:
        resolver: Finds the site of a domain.
        dialler: Opens connections, and refuses internal addresses.
        fetcher: Fetches documents.
        plaintext: Domains whose documents may be fetched without TLS; may be changed.
        ways: What other settings change of this.
    """

    resolver: Resolver
    dialler: Dialler
    fetcher: LoggedFetcher
    plaintext: set[str]
    ways: WaysOut


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
    names, tls_context = load_ways(settings)
    dialler = Dialler(names, allow_addresses=meaning.allowed_addresses(settings), log=log)
    resolver = Resolver(
        names,
        own_domains=settings.own_domains,
        peers=meaning.peer_entries(settings),
        is_permitted=lambda domain: may_talk(decisions, domain, greeting(node_url, node_url), is_visit=True),
        log=log,
    )
    plaintext = set(peer_terms(settings).plaintext)
    http = HttpFetcher(dialler, tls_context, insecure_plaintext=plaintext)
    return Discovery(
        resolver=resolver,
        dialler=dialler,
        fetcher=LoggedFetcher(http, log),
        plaintext=plaintext,
        ways=WaysOut(names, http, LineOpener(dialler, tls_context)),
    )
