"""The way to other domains: finding them, and connecting to them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

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
from msg_node.storage.tls_files import stamp_of
from msg_node.wiring import meaning

_RESOLVERS: Final = Path("/etc/resolv.conf")
"""Has the name servers of the system, for settings that name none."""


class LoadedWays(NamedTuple):
    """Name servers and certificate authorities, read for changed settings.

    Attributes:
        names: Asks the name servers.
        tls_context: Believes the authorities.
        source: Settings, and files with their times, that they were read from.
    """

    names: DnsClient
    tls_context: ssl.SSLContext
    source: tuple[object, ...]


def load_ways(settings: Settings, known: LoadedWays | None = None) -> LoadedWays:
    """Read what the settings say about the way to other domains. Blocks.

    Args:
        settings: What to read it by.
        known: Returned as it is if the same would be read: the authorities of the system take most of a reload.

    Raises:
        SettingsError: A name server or a file cannot be used.
    """
    chosen = settings.discovery
    files = _RESOLVERS, Path(ssl.get_default_verify_paths().cafile or ""), chosen.ca_file
    source = (chosen, *(None if file is None else stamp_of(file) for file in files))
    if known is not None and known.source == source:
        return known
    names = DnsClient(chosen.nameservers, believes_ad=chosen.trust_ad_bit)
    return LoadedWays(names, meaning.client_context(settings), source)


class WaysOut(NamedTuple):
    """The parts that ask name servers, fetch documents and open lines of stubs."""

    names: DnsClient
    http: HttpFetcher
    lines: LineOpener
    loaded: LoadedWays

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
    loaded = load_ways(settings)
    names, tls_context = loaded.names, loaded.tls_context
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
        ways=WaysOut(names, http, LineOpener(dialler, tls_context), loaded),
    )
