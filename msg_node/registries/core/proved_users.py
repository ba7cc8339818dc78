"""Who may be registered as which user, where the operator wants users to be proved. Stands before a domain registry.

Messages to a user go to the hyperties that are registered for that user, and who looks a user up believes the answer.
By default a runtime of ours says itself whose it is. Where users are to be proved, it registers the one that its log-in
or the assertion in its request has proved, and a GUID that nobody else has registered: whose a GUID is, its record in a
global registry shows, and not a log-in. Source: message specification, sections 10 and 13.3.
"""

from __future__ import annotations

from collections.abc import Callable

from msg_node.kernel.registrations import Index
from msg_node.kernel.resources import key_or_refuse, object_of, text_of
from msg_node.kernel.service import Answer, Caller, Inquiry, Service, ServiceRequest
from msg_node.registries.core.registry import DomainRegistry, identifiers_of
from msg_node.registries.core.registry_entry import Changed, read_changed, url_of
from msg_node.registries.core.registry_query import address_in
from msg_node.registries.core.registry_service import changed_by
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError

Prove = Callable[[ServiceRequest], str]
"""The user that is proved to send a request, as its provider names users; "" if none is."""


class ProvedUsers:
    """Refuses registrations as somebody else.

    Args:
        registry: What is registered.
        domains: Ours. A provider that names users by a word alone means users of these.
        is_wanted: True if users are to be proved now.
        prove: See `Prove`.
    """

    def __init__(
        self, registry: DomainRegistry, domains: frozenset[str], *, is_wanted: Callable[[], bool], prove: Prove
    ) -> None:
        self._registry = registry
        self._domains = domains
        self._is_wanted = is_wanted
        self._prove = prove

    def over(self, service: Service) -> Service:
        """Return a registry that asks this first. It raises PeerError NOT_OWNER for the user or GUID of another."""

        def judged(request: ServiceRequest) -> Answer | Inquiry:
            names = request.message.type in ("create", "update") and _is_runtime_of_ours(request.caller)
            if names and self._is_wanted():
                self._check(request)
            return service(request)

        return judged

    def _check(self, request: ServiceRequest) -> None:
        user, guid = self._named(request)
        if not user and not guid:
            return
        proved = self._prove(request)
        if not proved:
            raise PeerError(Code.NOT_OWNER, "users are to be proved here: log in before you register one")
        if user and not is_same_user(user, proved, self._domains):
            raise PeerError(Code.NOT_OWNER, f"this session has proved to be of {proved}, and registers no other user")
        if guid and any(not self._is_of(one.user, proved) for one in self._registry.find(Index.GUID, guid)):
            raise PeerError(Code.NOT_OWNER, "another user has registered this GUID")

    def _named(self, request: ServiceRequest) -> tuple[str, str]:
        """User and GUID of the entry as it would be; "" for none."""
        members, value = request.members, object_of(request.members, "value")
        if request.message.type == "create":
            changed = read_changed(value)
            return changed.user or "", changed.guid or ""
        changed = changed_by(members, value)
        resource = text_of(members, "resource") or url_of(value)
        entry = self._registry.get(key_or_refuse(address_in(resource, request.domain))) if resource else None
        before = Changed() if entry is None else Changed(user=entry.user, guid=entry.guid)
        return _later(before.user, changed.user), _later(before.guid, changed.guid)

    def _is_of(self, user: str, proved: str) -> bool:
        return bool(user) and is_same_user(user, proved, self._domains)


def is_same_user(user: str, proved: str, domains: frozenset[str]) -> bool:
    """Return True if an address of a user is that of a proved one.

    Args:
        user: As it is registered, for example `user://a.example/ana`.
        proved: An address, an account (`ana@a.example`), or the name of a user of ours.
        domains: Ours.
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
