"""Users of legacies in our domain registry: what an interworking stub may register, and how readers see it.

A stub shows its users as hyperties of its own domain, and what they create as data objects of its own domain. Both are
registered here, for the stub: it is their runtime and their reporter, and their lease is its life. It registers for
users of its ranges and of its domain, for nobody else, and under no GUID: a GUID belongs to the holder of its key.

Whether somebody is a legacy user is known from verified manifests (`Interworking`), never from how an address looks.
Where a stub has registered nobody under a legacy address, readers of our own domain learn that the address can be
written to, as it can.

Source: message specification, section 16, rules 3 and 5; feature rows LI-08 and LI-10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from federation.core.interworking import Interworking
from msg_node.kernel.registrations import Status
from msg_node.registries.core.registry_entry import Changed, RegistryEntry
from msg_node.registries.core.registry_query import By, Query
from protofly.address import domain_of, parse
from protofly.errors import Code, PeerError

MARK = "legacy"
"""Member of an entry, true where a verified manifest says so."""


@dataclass(frozen=True, slots=True)
class LegacyUser:
    """A legacy address that nobody has registered: known by its stub alone."""

    url: str
    stub: str
    is_connected: bool

    def shown(self) -> dict[str, object]:
        """The members for readers."""
        status = Status.LIVE if self.is_connected else Status.DISCONNECTED
        members = {"hypertyID": self.url, "userID": self.url, "resources": [], "dataSchemes": []}
        return {**members, "status": status.value, "runtime": self.stub, MARK: True}


def check_stub_entry(
    interworking: Interworking, domain: str, key: str, entry: RegistryEntry | None, *, number: int
) -> None:
    """Judge whether the stub of a domain may write about an address.

    Args:
        interworking: All interworking stubs.
        domain: The one that asks.
        key: Canonical key of the address.
        entry: What is registered for it.
        number: The listener number of the domain's link.

    Raises:
        PeerError: POLICY when the domain has no interworking stub, NOT_OWNER when the address is not of its domain.
    """
    if not interworking.signed(domain):
        raise PeerError(Code.POLICY, "this registry is written by runtimes of its own domain")
    is_its = domain_of(key) == domain and "@" not in parse(key).authority and not interworking.granted_to(key)
    if not is_its or (entry is not None and entry.is_connected and entry.sid != number):
        raise PeerError(Code.NOT_OWNER, "a stub registers addresses of its own domain")


def of_stub(interworking: Interworking, domain: str, changed: Changed, *, is_hyperty: bool) -> Changed:
    """Return what a stub registers, in its own name.

    Raises:
        PeerError: NOT_OWNER for a user who is not its, or a GUID.
    """
    if changed.guid or (changed.user and not _is_its_user(interworking, domain, changed.user)):
        raise PeerError(Code.NOT_OWNER, "a stub registers users of its ranges, without GUID")
    stub = interworking.stub_address(domain)
    reporter = changed.reporter if is_hyperty else stub
    return replace(changed, runtime=stub, reporter=reporter, p2p_handler=None, p2p_requester=None)


def _is_its_user(interworking: Interworking, domain: str, user: str) -> bool:
    verdict = interworking.speaks_for(domain, user)
    return domain_of(user) == domain and "@" not in parse(user).authority if verdict is None else verdict


def legacy_query(interworking: Interworking, query: Query) -> Query:
    """A read that names a legacy address means the user who has it: hyperties of others stand for that user.

    Raises:
        PeerError: BAD_HEADER for an address that nobody could mean.
    """
    if query.by is not By.URL or not interworking.stub_of(query.text):
        return query
    return Query(By.USER, query.text, "", query.resources, query.data_schemes)


def unregistered(interworking: Interworking, query: Query) -> list[LegacyUser]:
    """The legacy user whom a read names and nobody has registered; nothing is known of that user's abilities."""
    if query.by is not By.USER or query.resources or query.data_schemes:
        return []
    try:
        domain = interworking.stub_of(query.text)
    except PeerError:
        return []
    return [LegacyUser(query.text, interworking.stub_address(domain), interworking.is_live(domain))] if domain else []


def marked(interworking: Interworking, url: str, members: Mapping[str, object]) -> Mapping[str, object]:
    """The members of an entry, saying whether it is a legacy user's; what others say about that counts for nothing."""
    if interworking.signed(domain_of(url)):
        return {**members, MARK: True}
    return {name: value for name, value in members.items() if name != MARK} if MARK in members else members
