"""The trust of a node in other domains, and the proof of its own: documents, stubs, aliases, identity."""

from __future__ import annotations

from dataclasses import dataclass

from catalogue_client.client import CatalogueClient
from catalogue_client.trust_store import TrustStore
from federation.core.peer_terms import PeerTerms
from federation.discovery.aliases import Aliases
from federation.discovery.domain_documents import DomainDocuments
from federation.discovery.identity import Identity
from federation.stubs.catalogue_scripts import CatalogueScripts
from federation.stubs.chosen_stubs import ChosenStubs
from federation.stubs.shipped_files import interpreter_file
from federation.stubs.stub_provider import StubProvider
from msg_node.kernel.data_schemas import check_configuration
from msg_node.kernel.restrictions import Restricted
from msg_node.settings.peer_stubs import peer_terms
from msg_node.wiring import meaning
from msg_node.wiring.discovery import Discovery
from msg_node.wiring.foundation import Foundation
from msg_node.wiring.peer_stubs import stub_choices
from policy.core.gate import Gate
from sandbox.host import Sandbox
from stubs_cache.cache import StubsCache
from stubs_cache.stub_pins import StubPins


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Parts that decide what is trusted, and by which proof.

    Attributes:
        store: What is stored about other domains.
        documents: Verified documents of other domains.
        provider: Verified stubs of other domains.
        aliases: Further names of other domains.
        identity: Proves our domains, and verifies the proofs of others.
        pins: Digests of stubs that the operator chose.
        chosen: What the settings say about single stubs.
        terms: What they say about the links of single domains.
    """

    store: TrustStore
    documents: DomainDocuments
    provider: StubProvider
    aliases: Aliases
    identity: Identity
    pins: StubPins
    chosen: ChosenStubs
    terms: PeerTerms


def build_trust(foundation: Foundation, discovery: Discovery, gate: Gate, cache: StubsCache, sandbox: Sandbox) -> Trust:
    """Make what verifies other domains; it asks nothing yet.

    Raises:
        SettingsError: A stub that the settings choose is in no file and in no catalogue.
    """
    settings = foundation.settings
    trust_store = TrustStore(settings.node.data_dir / "trust.sqlite", secret=foundation.secret)
    client = CatalogueClient(
        discovery.fetcher,
        trust_store,
        our_domain=settings.node.domain,
        updates=lambda domain: meaning.update_rule(foundation.current.get(), domain),
    )
    documents = DomainDocuments(
        resolver=discovery.resolver,
        client=client,
        cache=cache,
        anchor_of=lambda domain: meaning.anchor_of(foundation.current.get(), domain),
    )
    aliases = Aliases(meaning.alias_rules(settings, gate, foundation.node_url), documents.alias_trust_of)
    identity = Identity(
        node=foundation.node_url,
        domains=list(settings.own_domains),
        key=foundation.key,
        trust_of=documents.trust_of,
        aliases=aliases,
    )
    documents.notify_renewed(identity.documents_renewed)
    pins = StubPins(settings.node.data_dir / "pinned_stubs", secret=foundation.secret)
    chosen = ChosenStubs(
        stub_choices(settings),
        pins,
        check=check_configuration,
        scripts=CatalogueScripts(client, cache, interpreter_file()),
        budget=meaning.stub_budget(settings),
    )

    def forbidden(sha256: str) -> str | None:
        found = foundation.state.restrictions.find(Restricted.STUB, sha256)
        return None if found is None else found.reason

    provider = StubProvider(
        documents=documents, client=client, cache=cache, sandbox=sandbox, chosen=chosen, forbidden=forbidden
    )
    return Trust(
        store=trust_store,
        documents=documents,
        provider=provider,
        aliases=aliases,
        identity=identity,
        pins=pins,
        chosen=chosen,
        terms=peer_terms(settings),
    )
