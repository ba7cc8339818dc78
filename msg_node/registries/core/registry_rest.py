"""The published REST interface of a domain registry, as calls and as what their answers mean.

Answers are a stranger's. A record counts when it is an entry that was asked for, of one of our domains; others are
left out, and an answer with nothing but others is a bad one.

Source: data formats, sections 5.1 to 5.3; message specification, sections 10.1, 10.2 and 10.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from msg_node.kernel.registrations import Status
from msg_node.kernel.rest_calls import Answered, Call, Calls, path_to, refusal_of
from msg_node.registries.core.registry_entry import Changed, RegistryEntry, read_changed, url_of
from msg_node.registries.core.registry_query import By, Query, fits, is_named
from protofly.address import canonical_key, domain_of, scheme_of
from protofly.errors import Code, PeerError
from protofly.limits import REGISTRY_ANSWER_ENTRIES, REGISTRY_CLOCK_SKEW_SECONDS

WHO = "the domain registry"
UPDATED = Call("GET", "/registry/updated")

_HYPERTIES = frozenset({"hyperty", "runtime"})
_WIRE_NAMES = {
    "user": "user",
    "guid": "guid",
    "descriptor": "descriptor",
    "runtime": "runtime",
    "name": "name",
    "schema": "schema",
    "reporter": "reporter",
    "p2p_handler": "p2pHandler",
    "p2p_requester": "p2pRequester",
    "resources": "resources",
    "data_schemes": "dataSchemes",
    "expires_seconds": "expires",
}
_SPELLINGS = (
    ("hypertyID", "url", "hypertyURL"),
    ("userID", "user"),
    ("descriptor", "hypertyDescriptorURL"),
    ("runtime", "hypertyRuntimeURL"),
)
_OF_HYPERTIES = ("descriptor", "runtime", "guid", "p2p_handler", "p2p_requester", "resources", "data_schemes")
_OF_OBJECTS = ("schema", "name", "reporter", "runtime", "p2p_requester", "resources", "data_schemes")


class Record(msgspec.Struct, frozen=True):
    """An entry of the registry: as we read it, and with all members as it came."""

    entry: RegistryEntry
    members: Mapping[str, object]

    @property
    def url(self) -> str:
        """Address of the entry."""
        return self.entry.url

    @property
    def is_connected(self) -> bool:
        """True if somebody can be reached there now."""
        return self.entry.is_connected

    def life_seconds(self, now: float) -> float:
        """Return how long this may be given again: `expires` minus age, nothing when its dates cannot be true.

        Source: data formats, sections 5.2 (dates of another zone) and 8.
        """
        age_seconds = now - self.entry.refreshed_at
        if not self.is_connected or age_seconds < -REGISTRY_CLOCK_SKEW_SECONDS:
            return 0.0
        return max(0.0, self.entry.expires_seconds - max(0.0, age_seconds))


# Questions.


def spelled(address: str) -> str:
    """An address as it goes to the registry, which compares text: scheme and authority in lower case."""
    scheme, slashes, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{authority.lower()}{slash}{path}" if slashes else address


def entry_call(url: str) -> Call:
    """Read one entry."""
    if scheme_of(url) in _HYPERTIES:
        return Call("GET", path_to("hyperty", "url", spelled(url)))
    return Call("GET", path_to("hyperty", "dataobject", "url", spelled(url)))


def name_call(name: str) -> Call:
    """Read the data objects of a name."""
    return Call("GET", path_to("hyperty", "dataobject", "name", name))


def query_calls(query: Query) -> Calls:
    """Return the calls for a query. An account name with a domain is asked for without it as well.

    The reference server compares names with the last part of user addresses.
    """
    if query.by is By.URL:
        return Calls((entry_call(query.text),))
    filters = {"resources": query.resources, "dataSchemes": query.data_schemes}
    parameters = {name: ",".join(sorted(texts)) for name, texts in filters.items() if texts}
    paths: list[tuple[str, ...]]
    if query.by in (By.NAME, By.REPORTER):
        paths, kind = [("hyperty", "dataobject", query.by.value, spelled(query.text))], "do"
    elif query.by is By.USER:
        paths, kind = [("hyperty", "user", spelled(query.text))], "hyperty"
    elif query.by is By.GUID:
        paths, kind = [("hyperty", "guid", "user-guid://" + query.text.removeprefix("user-guid://"))], "hyperty"
        parameters = {}  # filtered by us: the published interface knows no filter here
    else:
        names = dict.fromkeys((query.text, query.text.partition("@")[0]))
        paths, kind = [("hyperty", "email", name) for name in names if name], "hyperty"
    if not parameters:
        return Calls(tuple([Call("GET", path_to(*path)) for path in paths]))
    return Calls(tuple([Call("GET", path_to(*path, kind, query=parameters)) for path in paths]))


def create_call(entry: RegistryEntry) -> Call:
    """Create or replace an entry."""
    members = _OF_HYPERTIES if entry.is_hyperty else _OF_OBJECTS
    document: dict[str, object] = {_WIRE_NAMES[name]: value for name in members if (value := getattr(entry, name))}
    document |= {"resources": entry.resources, "dataSchemes": entry.data_schemes}
    document |= {"status": entry.status.value, "expires": entry.expires_seconds}
    if entry.is_hyperty:
        return Call("PUT", path_to("hyperty", "user", spelled(entry.user), spelled(entry.url)), document)
    return Call("PUT", path_to("hyperty", "dataobject", spelled(entry.url)), document)


def update_call(old: RegistryEntry, changed: Changed) -> Call:
    """Change members of an entry; nothing at all keeps it alive. Both bring it back to life if need be.

    What is known of its status may be older than what waits before this call: an update says the status in any case.
    """
    document: dict[str, object] = {
        wire: value for name, wire in _WIRE_NAMES.items() if (value := getattr(changed, name)) is not None
    }
    if changed.status is not None:
        document["status"] = changed.status.value
    elif not old.is_connected or (document and old.status is Status.LIVE):
        document["status"] = Status.LIVE.value
    return _put(old, document)


def delete_call(entry: RegistryEntry) -> Call:
    """End an entry. The published interface has no such route for data objects: they are disconnected."""
    if entry.is_hyperty:
        return Call("DELETE", path_to("hyperty", "user", spelled(entry.user), spelled(entry.url)))
    return disconnect_call(entry)


def disconnect_call(entry: RegistryEntry) -> Call:
    """Say that an entry cannot be reached any more."""
    return _put(entry, {"status": Status.DISCONNECTED.value})


def _put(entry: RegistryEntry, document: Mapping[str, object]) -> Call:
    if entry.is_hyperty:
        return Call("PUT", path_to("hyperty", "url", spelled(entry.url)), document)
    return Call("PUT", path_to("dataobject", "url", spelled(entry.url)), document)


# Answers.


def is_written(answer: Answered) -> bool:
    """True if a write was taken; False when there is nothing to write about, or it is another user's.

    Raises:
        PeerError: See `refusal_of`.
    """
    if 200 <= answer.status < 300:
        return True
    if answer.status == 404:
        return False
    raise refusal_of(answer, WHO)


def records_in(answers: Iterable[Answered], query: Query, domains: frozenset[str]) -> list[Record]:
    """The entries in the answers to a query, each once.

    Raises:
        PeerError: BAD_REPLY, and see `refusal_of`.
    """
    found: dict[str, Record] = {}
    is_answered, has_strangers = False, False
    for answer in answers:
        for record in _records_of(answer, is_single=query.is_single):
            if record is None or domain_of(record.url) not in domains:
                has_strangers = True
            elif not is_named(record.entry, query):
                has_strangers = (
                    has_strangers or query.by is not By.IDENTIFIER
                )  # those we ask for by less than the whole
            else:
                is_answered = True
                if fits(record.entry, query):
                    found.setdefault(record.entry.key, record)
    if has_strangers and not is_answered:
        raise PeerError(Code.BAD_REPLY, "the domain registry answers with entries that nobody asked for")
    return list(found.values())


def statuses_in(answer: Answered, domains: frozenset[str]) -> list[Record]:
    """The entries whose status has changed, as `/registry/updated` reports them.

    Raises:
        PeerError: BAD_REPLY, and see `refusal_of`.
    """
    records = _records_of(answer, is_single=False)
    return [record for record in records if record is not None and domain_of(record.url) in domains]


def _records_of(answer: Answered, *, is_single: bool) -> list[Record | None]:
    """The records of one answer, None for each that is none; 408 says that none of them is connected."""
    if answer.status == 404:
        return []
    if answer.status not in (200, 408):
        raise refusal_of(answer, WHO)
    document = answer.document()
    keyed: list[tuple[str, object]]
    if isinstance(document, dict) and (is_single and url_named(document)):
        keyed = [("", document)]
    elif isinstance(document, dict):
        keyed = [item for item in document.items() if item[0] != "message" or isinstance(item[1], dict)]
    elif isinstance(document, list):
        keyed = [("", one) for one in document]
    else:
        raise PeerError(Code.BAD_REPLY, "the domain registry answers no records")
    if len(keyed) > REGISTRY_ANSWER_ENTRIES:
        raise PeerError(Code.BAD_REPLY, f"the domain registry answers more than {REGISTRY_ANSWER_ENTRIES} records")
    return [_record(key, members) for key, members in keyed]


def url_named(members: Mapping[str, object]) -> bool:
    """True if a JSON object is a record by itself, and not a map of records."""
    return any(isinstance(members.get(name), str) for name in ("hypertyID", "url", "hypertyURL"))


def _record(key: str, members: object) -> Record | None:
    """Read one record, None when it is none."""
    if not isinstance(members, dict) or any(_differ(members, names) for names in _SPELLINGS):
        return None
    try:
        url = url_of(members) or key
        if key and canonical_key(key) != canonical_key(url):
            return None
        domain_of(url)
        changed = read_changed(members)
        entry = RegistryEntry(
            url=url,
            sid=0,
            runtime=changed.runtime or "",
            started_at=_seconds(members.get("startingTime")),
            refreshed_at=_seconds(members.get("lastModified")),
        )
        given = {name: value for name in Changed.__struct_fields__ if (value := getattr(changed, name)) is not None}
        entry = replace(entry, **given)
    except PeerError:
        return None
    return Record(entry, members)


def _differ(members: Mapping[str, object], names: tuple[str, ...]) -> bool:
    """True if a record says one thing in several spellings that do not agree: readers would believe either."""
    return len({str(members[name]) for name in names if name in members}) > 1


def _seconds(instant: object) -> float:
    """Seconds since the Unix epoch; long ago for what is no instant."""
    if not isinstance(instant, str) or len(instant) > 40:
        return 0.0
    try:
        moment = datetime.fromisoformat(instant)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
