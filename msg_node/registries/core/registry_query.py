"""The query forms of a registry read, and their answers out of the embedded registry.

Source: message specification, section 10.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from msg_node.kernel.registrations import Index
from msg_node.kernel.resources import Members, check_texts, object_of, text_of, texts_of
from msg_node.registries.core.registry import DomainRegistry, identifiers_of
from msg_node.registries.core.registry_entry import RegistryEntry
from protofly.address import canonical_key, scheme_of
from protofly.errors import Code, PeerError

_HYPERTY = "hyperty"
_RUNTIME_SCHEME = "hyperty-runtime"
_HYPERTY_SCHEMES = frozenset({_HYPERTY, "runtime", _RUNTIME_SCHEME})
_ANY_OBJECT = "dataobject"
_USERS_REMEMBERED = 16  # of one query; mostly all entries have the same


class By(Enum):
    """The kind of a query: by address, or by a member of entries."""

    URL = "url"
    USER = "user"
    GUID = "guid"
    IDENTIFIER = "idp-identifier"
    NAME = "name"
    REPORTER = "reporter"


_INDEX = {
    By.USER: Index.USER,
    By.GUID: Index.GUID,
    By.IDENTIFIER: Index.IDENTIFIER,
    By.NAME: Index.NAME,
    By.REPORTER: Index.REPORTER,
}
_OF_PERSONS = frozenset({By.USER, By.GUID, By.IDENTIFIER})
_WORDS = {word.value: word for word in By} | {"email": By.IDENTIFIER, "userprofile": By.IDENTIFIER}


@dataclass(frozen=True, slots=True)
class Query:
    """One read: what is looked for, and the filters on what is found. `scheme` "" takes entries of every kind."""

    by: By
    text: str
    scheme: str = ""
    resources: frozenset[str] = frozenset()
    data_schemes: frozenset[str] = frozenset()
    identifier: str = ""

    @property
    def is_single(self) -> bool:
        """True if the answer is one entry, not a map."""
        return self.by is By.URL


def read_query(members: Members, *, domain: str, own_domains: frozenset[str]) -> Query:
    """Understand a read request.

    Args:
        members: Body of the request.
        domain: The domain that the registry was addressed as; it completes short forms.
        own_domains: Domains that this registry answers for.

    Raises:
        PeerError: BAD_BODY, TRANSIT.
    """
    criteria = object_of(members, "criteria")
    check_texts(criteria, "domain", "reporter", "scheme", "filter")
    asked_domain = text_of(criteria, "domain")
    if asked_domain and asked_domain.lower() not in own_domains:
        raise PeerError(Code.TRANSIT, "this registry answers for its own domain only")
    by, text, scheme = _target(text_of(members, "resource"), domain)
    reporter = text_of(criteria, "reporter")
    if reporter:
        by, text, scheme = By.REPORTER, reporter, _ANY_OBJECT
    if not text:
        raise PeerError(Code.BAD_BODY, "no resource is named")
    chosen = text_of(criteria, "filter")
    wants_identifier = chosen == By.IDENTIFIER.value
    if chosen and not wants_identifier:
        raise PeerError(Code.BAD_BODY, f"criteria.filter knows {By.IDENTIFIER.value} only")
    return Query(
        by=By.IDENTIFIER if wants_identifier and by is By.NAME else by,
        text=text,
        scheme=(text_of(criteria, "scheme") or scheme).lower(),
        resources=frozenset(texts_of(criteria, "resources")),
        data_schemes=frozenset(texts_of(criteria, "dataSchemes")),
        identifier=text if wants_identifier and by in _OF_PERSONS else "",
    )


def address_in(resource: str, domain: str) -> str:
    """The address that a resource form of an update or delete names, "" for none.

    Raises:
        PeerError: BAD_BODY for a data object path without a scheme.

    Source: message specification, section 10.2.
    """
    if not resource.startswith("/"):
        return resource
    _, kind, rest = (*resource.split("/", 2), "", "")[:3]
    rest = rest.removeprefix("url/")
    if ":" in rest.partition("/")[0]:
        return rest
    if kind.lower() == _HYPERTY and rest:
        return f"hyperty://{domain}/{rest}"
    raise PeerError(Code.BAD_BODY, "the path names no address")


def _target(resource: str, domain: str) -> tuple[By, str, str]:
    """Read a path: the kind of query, its text, and the scheme of entries. Only its first three slashes divide it."""
    if resource.startswith("/"):
        _, scheme, word, rest = (*resource.split("/", 3), "", "", "")[:4]
        by = _WORDS.get(word.lower())
        if by is None or not rest:
            return By.URL, address_in(resource, domain), ""
        return by, rest, "" if by is By.URL else scheme.lower()
    match scheme_of(resource) if "://" in resource else "":
        case "":
            return By.NAME, resource, _ANY_OBJECT
        case "user":
            return By.USER, resource, _HYPERTY
        case "user-guid":
            return By.GUID, resource, _HYPERTY
        case _:
            return By.URL, resource, ""


def find(registry: DomainRegistry, query: Query) -> list[RegistryEntry]:
    """Entries that a query means, oldest first."""
    checks = _checks(query)
    found = _candidates(registry, query)
    for check in checks:  # one after the other: what one filter costs is a call for each entry, and no more
        found = list(filter(check, found))
    return found


def is_dataobject_search(query: Query) -> bool:
    """True if a query names a person and means the data objects that the hyperties of that person report."""
    return query.by in _OF_PERSONS and query.scheme not in ("", _HYPERTY)


def is_named(entry: RegistryEntry, query: Query) -> bool:
    """True if an entry that somebody else found has what a query names."""
    match query.by:
        case By.URL:
            return _same(entry.url, query.text)
        case By.USER:
            return _same(entry.user, query.text)
        case By.GUID:
            return not entry.guid or _bare_guid(entry.guid) == _bare_guid(query.text)
        case By.IDENTIFIER:
            return query.text in identifiers_of(entry.user)
        case By.NAME:
            return entry.name == query.text
        case By.REPORTER:
            return _same(entry.reporter, query.text)


def _same(one: str, other: str) -> bool:
    try:
        return canonical_key(one) == canonical_key(other)
    except PeerError:
        return one == other


def _bare_guid(text: str) -> str:
    return text.removeprefix("user-guid://")


def _candidates(registry: DomainRegistry, query: Query) -> list[RegistryEntry]:
    if query.by is By.URL:
        entry = registry.get(canonical_key(query.text))
        return [] if entry is None else [entry]
    found = registry.find(_INDEX[query.by], query.text)
    if is_dataobject_search(query):
        return [entry for person in found for entry in registry.find(Index.REPORTER, person.url)]
    return found


def fits(entry: RegistryEntry, query: Query) -> bool:
    """True if an entry passes the filters of a query."""
    return all(check(entry) for check in _checks(query))


def _checks(query: Query) -> list[Callable[[RegistryEntry], bool]]:
    """The filters of a query, each a fraction of a microsecond for an entry.

    A runtime that registers thousands of entries for a user makes everybody's look-ups of that user pay for them.
    """
    checks: list[Callable[[RegistryEntry], bool]] = []
    if query.scheme == _ANY_OBJECT:
        checks.append(lambda entry: _written_scheme(entry) not in _HYPERTY_SCHEMES)
    elif query.scheme:
        schemes = {query.scheme, _RUNTIME_SCHEME} if query.scheme == "runtime" else {query.scheme}
        checks.append(lambda entry: _written_scheme(entry) in schemes)
    if query.resources:
        checks.append(lambda entry: query.resources.issubset(entry.resources))
    if query.data_schemes:
        checks.append(lambda entry: query.data_schemes.issubset(entry.data_schemes))
    if query.identifier:
        wanted = _identifiers(query.identifier)
        is_wanted = lru_cache(_USERS_REMEMBERED)(lambda user: not wanted.isdisjoint(identifiers_of(user)))
        checks.append(lambda entry: is_wanted(entry.user))
    return checks


def _written_scheme(entry: RegistryEntry) -> str:
    return entry.url.partition(":")[0].lower()


def _identifiers(text: str) -> set[str]:
    return identifiers_of(text) if "://" in text else {text}
