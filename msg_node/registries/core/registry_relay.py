"""`domain://registry.<d>` in front of an external registry: requests become calls, answers become replies.

Towards runtimes it is the embedded registry: the same checks of who writes, the same forms, the same codes.

The external registry is the truth about entries. What our own sessions have registered is in our own registry
as well, because only the node knows whose session an entry is, when that session ends, and who listens to its status.

    create, update, delete ─▶ (entry unknown here? read it) ─▶ who may write? ─▶ call ─▶ into our entries ─▶ reply
    read ─▶ answered a moment ago? ─▶ call ─▶ entries that were asked for ─▶ reply
    session ended ─▶ disconnected here ─▶ reported to the registry (`unreported`, `reported`)
    registry polled ─▶ status news ─▶ our entries, subscribers (`observe`)

Requests of one session keep their order, reads among themselves go together. A runtime of ours that asks for it
(`"raw": true`) gets what the registry said beside what the node made of it.

Source: message specification, section 10; data formats, section 5; feature row CN-09.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from msgspec import Raw
from msgspec.structs import replace

from msg_node.kernel.registrations import Status, StatusChange
from msg_node.kernel.resources import key_or_refuse, object_of, text_of
from msg_node.kernel.rest_calls import Answered, Answers, Call, Calls
from msg_node.kernel.service import Answer, ConnectorName, Inquiry, Lane, ServiceRequest, inquire
from msg_node.registries.core.registry_cache import RegistryCache
from msg_node.registries.core.registry_entry import Changed, RegistryEntry, new_entry, read_changed, url_of
from msg_node.registries.core.registry_query import By, Query, address_in, is_dataobject_search
from msg_node.registries.core.registry_rest import (
    Record,
    create_call,
    delete_call,
    entry_call,
    is_written,
    name_call,
    query_calls,
    records_in,
    statuses_in,
    update_call,
)
from msg_node.registries.core.registry_service import RegistryService, changed_by
from msg_node.registries.core.tables import RegistryTables
from protofly.errors import Code, HostError, PeerError
from protofly.limits import (
    REGISTRY_CACHE_SECONDS,
    REGISTRY_DISCONNECTS_AT_ONCE,
    REGISTRY_PERSONS_FOLLOWED,
    REGISTRY_RAW_BYTES,
    REGISTRY_STATUSES_REMEMBERED,
)

REGISTRY: ConnectorName[Calls, Answers] = ConnectorName("registry")
"""The connector that makes the calls."""

_NO_CONTACT = frozenset({Code.CONNECT_FAILED, Code.FETCH_TIMEOUT, Code.GATEWAY_TIMEOUT, Code.DNS_FAILED})
_Go = Callable[[RegistryEntry | None], Inquiry]


class RegistryRelay(RegistryService):
    """The domain registry as a message service, when it is elsewhere."""

    def __init__(self, state: RegistryTables, *, cache_seconds: float = REGISTRY_CACHE_SECONDS) -> None:
        """`cache_seconds`: how long an answer may be given again at most, by `expires` or less; 0: never."""
        super().__init__(state)
        self.domains = state.domains.union(state.interworking.domains)
        self.cache = RegistryCache(max_seconds=cache_seconds)
        self._last_seen: OrderedDict[str, Status] = OrderedDict()  # of entries that are not ours
        state.registry.unreported.is_kept = True

    # Writes.

    def _create(self, request: ServiceRequest) -> Inquiry:
        value = object_of(request.members, "value")
        url = url_of(value)
        if not url:
            raise PeerError(Code.BAD_BODY, "value.url is missing")
        key = key_or_refuse(url)
        changed = self._in_its_name(request, key, read_changed(value))
        entry = new_entry(url, changed, sid=request.caller.number, now=request.now)
        self._state.registry.check_quota(request.caller.number, key)

        def go(_: RegistryEntry | None) -> Inquiry:
            self._state.registry.check_quota(request.caller.number, key)  # others may have come meanwhile
            return self._ask(request, (create_call(entry),), partial(self._created, request, entry, changed))

        return self._with_entry(request, key, url, go, may_be_new=True)

    def _created(
        self, request: ServiceRequest, entry: RegistryEntry, changed: Changed, answers: Answers, now: float
    ) -> Answer:
        if not is_written(answers[0]):
            raise PeerError(Code.NOT_OWNER, "the domain registry has this address for another user")
        self.cache.forget(entry)
        changes = self._state.registry.register(entry.url, changed, sid=request.caller.number, now=now)
        return Answer(status_changes=changes + self._disconnect_if_gone(request, now))

    def _update(self, request: ServiceRequest) -> Inquiry:
        members, value = request.members, object_of(request.members, "value")
        resource = text_of(members, "resource") or url_of(value)
        if not resource:
            raise PeerError(Code.BAD_BODY, "no entry is named")
        url = address_in(resource, request.domain)
        key = key_or_refuse(url)
        changed = self._in_its_name(request, key, changed_by(members, value))

        def go(known: RegistryEntry | None) -> Inquiry:
            assert known is not None
            self._state.registry.check_quota(request.caller.number, key)
            calls = (update_call(known, changed),)
            return self._ask(request, calls, partial(self._updated, request, known, changed))

        return self._with_entry(request, key, url, go)

    def _updated(
        self, request: ServiceRequest, known: RegistryEntry, changed: Changed, answers: Answers, now: float
    ) -> Answer:
        if not is_written(answers[0]):
            return self._vanished(known)
        registry, key = self._state.registry, known.key
        if registry.get(key) is None:
            registry.adopt(replace(known, sid=request.caller.number))
        changes = registry.update(key, changed, sid=request.caller.number, now=now)
        entry = registry.get(key)
        assert entry is not None
        self.cache.forget(entry)
        return Answer(status_changes=changes + self._disconnect_if_gone(request, now))

    def _delete(self, request: ServiceRequest) -> Inquiry:
        value = object_of(request.members, "value")
        resource = text_of(request.members, "resource") or url_of(value)
        if not resource:
            return self._delete_by_name(request, text_of(value, "name"))
        url = address_in(resource, request.domain)
        return self._with_entry(request, key_or_refuse(url), url, partial(self._delete_entry, request))

    def _delete_by_name(self, request: ServiceRequest, name: str) -> Inquiry:
        """Delete the one data object of a name. Source: message specification, section 10.4."""
        if not name:
            raise PeerError(Code.BAD_BODY, "no entry is named")

        def conclude(answers: Answers, _: float) -> Inquiry:
            found = records_in(answers, Query(By.NAME, name), self.domains)
            if not found:
                raise PeerError(Code.NOT_REGISTERED, "no such entry")
            if len(found) > 1:
                raise PeerError(Code.DUPLICATE, "several data objects have this name")
            entry = found[0].entry
            known = self._state.registry.get(entry.key) or entry
            self._check_writer(request, entry.key, known)
            return self._delete_entry(request, known)

        return self._ask(request, (name_call(name),), conclude)

    def _delete_entry(self, request: ServiceRequest, known: RegistryEntry | None) -> Inquiry:
        assert known is not None

        def conclude(answers: Answers, now: float) -> Answer:
            if not is_written(answers[0]):
                return self._vanished(known)
            return Answer(status_changes=self._now_is(known, Status.DISCONNECTED, now))

        return self._ask(request, (delete_call(known),), conclude)

    def _with_entry(self, request: ServiceRequest, key: str, url: str, go: _Go, *, may_be_new: bool = False) -> Inquiry:
        """Go on when the asker may write; an entry that is unknown here is read first, where that matters."""
        known = self._state.registry.get(key)
        if known is not None or (may_be_new and self._state.owners.owner(key) is not None):
            self._check_writer(request, key, known)
            return go(known)
        self._check_writer(request, key, None)  # whom nothing could let write need not cost a call

        def conclude(answers: Answers, _: float) -> Inquiry:
            found = records_in(answers, Query(By.URL, url), self.domains)
            if not found and not may_be_new:
                raise PeerError(Code.NOT_REGISTERED, "no such entry")
            entry = found[0].entry if found else None
            self._check_writer(request, key, entry)
            return go(entry)

        return self._ask(request, (entry_call(url),), conclude)

    def _vanished(self, known: RegistryEntry) -> Answer:
        """The registry has no such entry: neither have we."""
        self.cache.forget(known)
        return Answer(404, reason=Code.NOT_REGISTERED.word, status_changes=self._forget(known))

    def _forget(self, known: RegistryEntry) -> list[StatusChange]:
        if self._state.registry.get(known.key) is not None:
            return self._state.registry.delete(known.key)
        return [StatusChange(known.key, known.url, Status.DISCONNECTED)] if known.is_connected else []

    def _disconnect_if_gone(self, request: ServiceRequest, now: float) -> list[StatusChange]:
        """The session may have ended while the registry was asked: then nobody keeps the entry alive."""
        number = request.caller.number
        is_here = self._state.interworking.is_live(request.caller.domain) if request.caller.is_link else False
        if is_here or self._state.sessions.get(number) is not None:
            return []
        return self._state.registry.disconnect_session(number, now=now)

    # Reads.

    def _read(self, request: ServiceRequest) -> Answer | Inquiry:
        query = self._query(request)
        if is_dataobject_search(query):
            return self._read_objects_of_user(request, query)
        cached = None if _wants_raw(request) else self.cache.get(query, request.now)
        if cached is not None:
            return self._found(request, query, cached)

        def conclude(answers: Answers, now: float) -> Answer:
            records = records_in(answers, query, self.domains)
            self.cache.put(query, records, now)
            return self._found(request, query, records)

        return self._ask(request, query_calls(query).calls, conclude)

    def _read_objects_of_user(self, request: ServiceRequest, query: Query) -> Inquiry:
        """Data objects of a person: the hyperties first, then what each of them reports."""
        persons = Query(by=query.by, text=query.text)

        def conclude(answers: Answers, _: float) -> Answer | Inquiry:
            found = records_in(answers, persons, self.domains)[:REGISTRY_PERSONS_FOLLOWED]
            if not found:
                return self._found(request, query, [])
            calls = tuple([query_calls(_objects_of(record, query)).calls[0] for record in found])
            return self._ask(request, calls, partial(collect, found))

        def collect(found: list[Record], answers: Answers, _: float) -> Answer:
            objects: dict[str, Record] = {}
            for record, answer in zip(found, answers, strict=True):
                for one in records_in((answer,), _objects_of(record, query), self.domains):
                    objects.setdefault(one.entry.key, one)
            return self._found(request, query, list(objects.values()))

        return self._ask(request, query_calls(persons).calls, conclude)

    def _found(self, request: ServiceRequest, query: Query, records: list[Record]) -> Answer:
        return self._answer_to(request, query, records, lambda record: record.members)

    # What happens without a request.

    def observe(self, answer: Answered, now: float) -> list[StatusChange]:
        """Take what the registry reports about statuses; real changes are for the subscribers.

        Raises:
            PeerError: It is no such answer.

        Source: message specification, section 10.3.
        """
        records = statuses_in(answer, self.domains)
        return [change for one in records for change in self._now_is(one.entry, one.entry.status, now)]

    def _now_is(self, entry: RegistryEntry, status: Status, now: float) -> list[StatusChange]:
        """The registry has this status for an entry; a change of it is notified once."""
        self.cache.forget(entry)
        registry, key = self._state.registry, entry.key
        known = registry.get(key)
        if known is not None and known.sid:
            return registry.observe(key, status, now=now)
        if key in registry.unreported:
            return []  # it cannot know yet
        before = self._last_seen.get(key) if known is None else known.status
        if known is not None:
            registry.delete(key)  # nobody of ours keeps it alive: how long it lives is the registry's
        self._last_seen[key] = status
        if len(self._last_seen) > REGISTRY_STATUSES_REMEMBERED:
            self._last_seen.popitem(last=False)
        return [] if before is status else [StatusChange(key, entry.url, status)]

    def unreported(self, now: float) -> list[RegistryEntry]:
        """Some of the entries that are alive in the registry though their sessions have ended."""
        registry = self._state.registry
        entries = []
        for key in registry.unreported.oldest(REGISTRY_DISCONNECTS_AT_ONCE):
            entry = registry.get(key)
            if entry is None or entry.is_connected:
                registry.unreported.discard(key)  # it has a holder again, or is deleted
                continue
            self.cache.forget(entry)
            if entry.refreshed_at + entry.expires_seconds <= now:
                registry.unreported.discard(key)  # the registry has noticed by itself
            else:
                entries.append(entry)
        return entries

    def reported(self, entry: RegistryEntry) -> None:
        """The registry knows that an entry is disconnected."""
        self._state.registry.unreported.discard(entry.key)

    def _ask(
        self, request: ServiceRequest, calls: tuple[Call, ...], conclude: Callable[[Answers, float], Answer | Inquiry]
    ) -> Inquiry:
        """Ask in the order of the session; who ask for another domain are many, and do not wait for each other."""
        is_read = request.message.type == "read"
        return inquire(
            REGISTRY,
            Calls(calls),
            partial(_with_raw, conclude) if _wants_raw(request) else conclude,
            failed=_failed,
            lane=Lane("" if is_read and request.caller.is_link else f"registry {request.caller.number}", is_read),
        )


def _wants_raw(request: ServiceRequest) -> bool:
    """True if a runtime of ours wants the raw answer; others get none, since it may hold more than they asked for."""
    is_ours = not (request.caller.is_link or request.caller.is_guest)
    return is_ours and request.members.get("raw") is True


def _with_raw(conclude: Callable[[Answers, float], Answer | Inquiry], answers: Answers, now: float) -> Answer | Inquiry:
    """Add the raw answers of the last calls to the result. A refusal is sent without them."""
    answer = conclude(answers, now)
    if isinstance(answer, Inquiry):
        return answer
    return replace(answer, members={**(answer.members or {}), "raw": [_raw(one) for one in answers]})


def _raw(answered: Answered) -> dict[str, object]:
    """An answer as it came: its body as JSON if it is some, else as text; neither when it is very long."""
    shown: dict[str, object] = {"code": answered.status}
    if len(answered.body) > REGISTRY_RAW_BYTES:
        return shown
    try:
        answered.document()
        return {**shown, "value": Raw(answered.body)}
    except PeerError:
        return {**shown, "text": answered.body.decode("utf-8", "replace")}


def _objects_of(record: Record, query: Query) -> Query:
    return Query(By.REPORTER, record.url, query.scheme, query.resources, query.data_schemes)


def _failed(error: HostError, _: float) -> Answer:
    """Source: message specification, section 10.6."""
    if error.code in _NO_CONTACT:
        code = Code.GATEWAY_TIMEOUT
        return Answer(code.status, reason=code.word, description="Error contacting the domain registry.")
    raise PeerError(error.code, error.detail)
