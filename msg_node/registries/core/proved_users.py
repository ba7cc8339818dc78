"""Who may be registered as which user, where the operator wants users to be proved. Stands before a domain registry.

Messages to a user go to the hyperties that are registered for that user, and who looks a user up believes the answer.
By default a runtime of ours says itself whose it is. Where users are to be proved, it registers the one that its log-in
or the assertion in its request has proved, and a GUID that nobody else has registered: whose a GUID is, its record in a
global registry shows, and not a log-in. A provider proves nobody of a domain of ours for which it does not speak. Of
several nodes, the others are asked for a GUID that this one does not know yet as that user's. Source: message
specification, sections 10 and 13.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from msg_node.kernel.registrations import Index
from msg_node.kernel.resources import key_or_refuse, object_of, text_of
from msg_node.kernel.service import Answer, Caller, Inquiry, Service, ServiceRequest
from msg_node.registries.core.registry import DomainRegistry, identifiers_of
from msg_node.registries.core.registry_entry import Changed, read_changed, url_of
from msg_node.registries.core.registry_query import address_in
from msg_node.registries.core.registry_service import changed_by
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError


class Proved(NamedTuple):
    """A user as the provider names it, "" for none, and the domains of ours for which that provider speaks."""

    user: str = ""
    domains: frozenset[str] = frozenset()


Prove = Callable[[ServiceRequest], Proved]
"""The user that is proved to send a request."""

Conclude = Callable[[Collection[str]], Answer | Inquiry]
AskNodes = Callable[[str, str, Conclude], Inquiry]
"""Asks all other nodes for the users that have registered a GUID at the registry of a domain; the function answers."""


class ProvedUsers:
    """Refuses registrations as somebody else.

    Args:
        registry: What is registered.
        domains: Ours.
        is_wanted: True if users are to be proved now.
        prove: See `Prove`.
        is_there: True if there is a session of a number.

    Attributes:
        ask_nodes: See `AskNodes`; None for a node alone.
    """

    def __init__(
        self,
        registry: DomainRegistry,
        domains: frozenset[str],
        *,
        is_wanted: Callable[[], bool],
        prove: Prove,
        is_there: Callable[[int], bool],
    ) -> None:
        self._registry = registry
        self._domains = domains
        self._is_wanted = is_wanted
        self._prove = prove
        self._is_there = is_there
        self.ask_nodes: AskNodes | None = None

    def over(self, service: Service) -> Service:
        """Return a registry that asks this first. It raises PeerError NOT_OWNER for the user or GUID of another."""

        def judged(request: ServiceRequest) -> Answer | Inquiry:
            names = request.message.type in ("create", "update") and _is_runtime_of_ours(request.caller)
            return self._checked(request, service) if names and self._is_wanted() else service(request)

        return judged

    def _checked(self, request: ServiceRequest, service: Service) -> Answer | Inquiry:
        user, guid = self._named(request)
        if not user and not guid:
            return service(request)
        proved = self._prove(request)
        if not proved.user:
            raise PeerError(Code.NOT_OWNER, "users are to be proved here: log in before you register one")
        if user and not self._is_of(user, proved):
            raise PeerError(Code.NOT_OWNER, f"this session has proved to be of {proved.user}, and registers no other")
        known = [one.user for one in self._registry.find(Index.GUID, guid)] if guid else []
        self._check_guid(known, proved)
        if not guid or known or self.ask_nodes is None:
            return service(request)

        def conclude(users: Collection[str]) -> Answer | Inquiry:
            self._check_guid(users, proved)
            if not self._is_there(request.caller.number):
                raise PeerError(Code.NOT_CONNECTED, "the session has ended")
            return service(request)

        return self.ask_nodes(guid, request.domain, conclude)

    def _check_guid(self, users: Collection[str], proved: Proved) -> None:
        if not all(self._is_of(user, proved) for user in users):
            raise PeerError(Code.NOT_OWNER, "another user has registered this GUID")

    def _named(self, request: ServiceRequest) -> tuple[str, str]:
        """User and GUID of the entry as it would be; "" for none."""
        members, value = request.members, object_of(request.members, "value")
        if request.message.type == "create":
            before, changed = Changed(), read_changed(value)
        else:
            changed = changed_by(members, value)
            resource = text_of(members, "resource") or url_of(value)
            entry = self._registry.get(key_or_refuse(address_in(resource, request.domain))) if resource else None
            before = Changed() if entry is None else Changed(user=entry.user, guid=entry.guid)
        return _later(before.user, changed.user), _later(before.guid, changed.guid)

    def _is_of(self, user: str, proved: Proved) -> bool:
        if not is_same_user(user, proved.user, proved.domains):
            return False
        accounts = [name for name in identifiers_of(user) if "@" in name]
        domains = {domain_of(user), *(name.rpartition("@")[2].lower().rstrip(".") for name in accounts)}
        return domains & self._domains <= proved.domains


def is_same_user(user: str, proved: str, domains: frozenset[str]) -> bool:
    """Return True if an address of a user is that of a proved one.

    Args:
        user: As it is registered, for example `user://a.example/ana`.
        proved: An address, an account (`ana@a.example`), or the name of a user of ours.
        domains: Of ours: a provider that names users by a word alone means users of these.
    """
    if "://" in proved:
        try:
            return canonical_key(user) == canonical_key(proved)
        except PeerError:
            return False
    names = identifiers_of(user)
    if "@" in proved:
        return proved in names
    return proved in names and domain_of(user) in domains


def _later(before: str | None, after: str | None) -> str:
    return (before if after is None else after) or ""


def _is_runtime_of_ours(caller: Caller) -> bool:
    """Links and guests have rules of their own; operators register whom they like."""
    return not (caller.is_link or caller.is_guest or caller.is_operator)
