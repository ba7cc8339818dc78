"""`domain://registry.<d>`: registration, keep-alive, un-registration, look-up.

Source: message specification, section 10.

Writes are for our own sessions, about addresses of our domain that the session owns or that nobody owns, for guests
about those that they hold (`guest_entries`), and for interworking stubs (`legacy_users`); reads are for everybody whom
a gate lets through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from msg_node.kernel.registrations import Index, Status
from msg_node.kernel.resources import Members, key_or_refuse, object_of, text_of
from msg_node.kernel.service import Answer, Inquiry, ServiceRequest
from msg_node.registries.core.guest_entries import of_guest
from msg_node.registries.core.legacy_users import (
    LegacyUser,
    check_stub_entry,
    legacy_query,
    marked,
    of_stub,
    unregistered,
)
from msg_node.registries.core.registry_entry import (
    Changed,
    RegistryEntry,
    is_of_hyperty,
    read_changed,
    shown,
    status_of,
    url_of,
)
from msg_node.registries.core.registry_query import Query, address_in, find, read_query
from msg_node.registries.core.tables import RegistryTables
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError
from protofly.limits import PAGE_ENTRIES, REGISTRY_ANSWER_CHARS, REGISTRY_ANSWER_ENTRIES


class Findable(Protocol):
    """A result of a search: an entry of ours, or a record of another registry."""

    @property
    def url(self) -> str:
        """Address of the entry."""

    @property
    def is_connected(self) -> bool:
        """True if the entry can be reached now."""


_Found = TypeVar("_Found", bound=Findable)
_Show = Callable[[_Found], Mapping[str, object]]


class RegistryService:
    """The domain registry as a message service."""

    def __init__(self, state: RegistryTables) -> None:
        self._state = state

    def __call__(self, request: ServiceRequest) -> Answer | Inquiry:
        """Serve `create`, `read`, `update` and `delete`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, NOT_OWNER, NOT_REGISTERED, DUPLICATE, TRANSIT, POLICY, QUOTA.
        """
        if request.message.type == "read":
            return self._read(request)
        if request.message.type not in ("create", "update", "delete"):
            raise PeerError(Code.BAD_TYPE, "this service knows create, read, update and delete")
        if request.caller.is_link and not self._state.interworking.signed(request.caller.domain):
            raise PeerError(Code.POLICY, "this registry is written by runtimes of its own domain")
        match request.message.type:
            case "create":
                return self._create(request)
            case "update":
                return self._update(request)
            case _:
                return self._delete(request)

    def _create(self, request: ServiceRequest) -> Answer | Inquiry:
        value = object_of(request.members, "value")
        url = url_of(value)
        if not url:
            raise PeerError(Code.BAD_BODY, "value.url is missing")
        key = key_or_refuse(url)
        self._check_writer(request, key, self._state.registry.get(key))
        changed = self._in_its_name(request, key, read_changed(value))
        changes = self._state.registry.register(url, changed, sid=request.caller.number, now=request.now)
        return Answer(status_changes=changes)

    def _update(self, request: ServiceRequest) -> Answer | Inquiry:
        """Decide in the order of section 10.2."""
        members, value = request.members, object_of(request.members, "value")
        resource = text_of(members, "resource") or url_of(value)
        if not resource:
            raise PeerError(Code.BAD_BODY, "no entry is named")
        key = key_or_refuse(address_in(resource, request.domain))
        self._check_writer(request, key, self._state.registry.get(key))
        changed = self._in_its_name(request, key, changed_by(members, value))
        changes = self._state.registry.update(key, changed, sid=request.caller.number, now=request.now)
        return Answer(status_changes=changes)

    def _delete(self, request: ServiceRequest) -> Answer | Inquiry:
        value = object_of(request.members, "value")
        resource = text_of(request.members, "resource") or url_of(value)
        key = key_or_refuse(address_in(resource, request.domain)) if resource else self._key_of_name(value)
        self._check_writer(request, key, self._state.registry.get(key))
        return Answer(status_changes=self._state.registry.delete(key))

    def _key_of_name(self, value: Members) -> str:
        """The one data object of a name. Source: message specification, section 10.4."""
        name = text_of(value, "name")
        if not name:
            raise PeerError(Code.BAD_BODY, "no entry is named")
        found = self._state.registry.find(Index.NAME, name)
        if not found:
            raise PeerError(Code.NOT_REGISTERED, "no such entry")
        if len(found) > 1:
            raise PeerError(Code.DUPLICATE, "several data objects have this name")
        return found[0].key

    def _check_writer(self, request: ServiceRequest, key: str, entry: RegistryEntry | None) -> None:
        """Refuse who may not write about an address; `entry` is what is registered for it.

        Raises:
            PeerError: NOT_OWNER.
        """
        caller = request.caller
        if caller.is_operator:
            return
        if caller.is_link:
            check_stub_entry(self._state.interworking, caller.domain, key, entry, number=caller.number)
            return
        sid = caller.number
        if domain_of(key) not in self._state.domains:
            raise PeerError(Code.NOT_OWNER, "this registry keeps addresses of its own domain")
        owner = self._state.owners.owner(key)
        if caller.is_guest:
            is_free = owner == sid
        elif owner is None and self._state.rules.shares_domain:
            is_free = self._state.holders.speaker_of(key) == sid or (entry is not None and self._is_ours(entry, sid))
        elif owner is None:
            is_free = entry is None or not entry.is_connected or self._is_ours(entry, sid)
        else:
            is_free = owner == sid
        if not is_free:
            raise PeerError(Code.NOT_OWNER, "this address belongs to somebody else")

    def _in_its_name(self, request: ServiceRequest, key: str, changed: Changed) -> Changed:
        """Return a registration as its sender may make it: runtimes freely, guests and stubs in their own name.

        Raises:
            PeerError: NOT_OWNER.
        """
        caller = request.caller
        if caller.is_link:
            return of_stub(self._state.interworking, caller.domain, changed, is_hyperty=is_of_hyperty(key))
        session = self._state.sessions.get(caller.number)
        if not caller.is_guest or session is None:
            return changed
        return of_guest(
            domain_of(session.runtime_key),
            session.runtime,
            changed,
            holds=lambda text: self._state.owners.owner(key_or_refuse(text)) == caller.number,
        )

    def _is_ours(self, entry: RegistryEntry, sid: int) -> bool:
        if entry.sid == sid:
            return True
        session = self._state.sessions.get(sid)
        return session is not None and canonical_key(entry.runtime) == session.runtime_key

    def _read(self, request: ServiceRequest) -> Answer | Inquiry:
        query = self._query(request)
        found = find(self._state.registry, query)
        return self._answer_to(request, query, found, shown)

    def _query(self, request: ServiceRequest) -> Query:
        query = read_query(request.members, domain=request.domain, own_domains=self._state.domains)
        return legacy_query(self._state.interworking, query)

    def _answer_to(self, request: ServiceRequest, query: Query, found: Sequence[_Found], show: _Show[_Found]) -> Answer:
        """Answer a reader, with what verified manifests say about legacy users."""
        interworking = self._state.interworking
        if not found and not request.caller.is_abroad:
            return found_answer(request.members, query, unregistered(interworking, query), LegacyUser.shown)
        return found_answer(request.members, query, found, lambda one: marked(interworking, one.url, show(one)))


def found_answer(members: Members, query: Query, found: Sequence[_Found], show: _Show[_Found]) -> Answer:
    """Answer a reader; `show` makes the members of an entry. Source: message specification, section 10.6."""
    if not found:
        return Answer(404, reason=Code.NOT_REGISTERED.word)
    value, more = _value(members, query, found, show)
    extra = {"more": more} if more else None
    if any(entry.is_connected for entry in found):
        return Answer(200, value, members=extra)
    return Answer(408, value, Code.TEMPORARILY_UNAVAILABLE.word, "Temporarily Unavailable", members=extra)


def changed_by(members: Members, value: Members) -> Changed:
    """Read an update; one without changes is a keep-alive. Source: message specification, section 10.2."""
    if members.get("attribute") == "status" and isinstance(members.get("value"), str):
        return Changed(status=status_of(members["value"]))
    if value.get("status") == Status.DISCONNECTED.value:
        return read_changed(value)
    if members.get("method") == "refresh":
        return Changed()
    if value:
        return read_changed(value)
    if members.get("value") in (None, {}) and text_of(members, "resource"):
        return Changed()
    raise PeerError(Code.BAD_BODY, "nothing to update")


def _value(members: Members, query: Query, found: Sequence[_Found], show: _Show[_Found]) -> tuple[object, int]:
    """Strict out: one object for a single address, else a map; a list when the requester wants one.

    Also returns how many entries of the page, or of all, had no room.
    """
    is_list = members.get("shape") == "list"
    if query.is_single and not is_list:
        return show(found[0]), 0
    page = _page(members, found)
    shown: list[tuple[str, Mapping[str, object]]] = []
    room = REGISTRY_ANSWER_CHARS
    for entry in page:
        one = show(entry)
        room -= _chars_of(one)
        if room < 0 and shown:
            break
        shown.append((entry.url, one))
    more = (len(page) if _page_of(members) else len(found)) - len(shown)
    return [one for _, one in shown] if is_list else dict(shown), more


def _chars_of(shown: Mapping[str, object]) -> int:
    """Characters of the texts in an entry as readers get it."""
    chars = 0
    for value in shown.values():
        if isinstance(value, str):
            chars += len(value)
        elif isinstance(value, Sequence):
            chars += sum(len(text) for text in value if isinstance(text, str))
    return chars


def _page(members: Members, found: Sequence[_Found]) -> Sequence[_Found]:
    """Pages count from 1; who asks for none gets all, within reason. Source: message specification, section 1.3."""
    page = _page_of(members)
    start = (page - 1) * PAGE_ENTRIES
    return found[start : start + PAGE_ENTRIES] if page else found[:REGISTRY_ANSWER_ENTRIES]


def _page_of(members: Members) -> int:
    """The page that is asked for, 0 for none."""
    page = members.get("page")
    return max(page, 1) if isinstance(page, int) and not isinstance(page, bool) else 0
