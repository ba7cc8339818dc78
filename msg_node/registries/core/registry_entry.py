"""One entry of the domain registry: its members, how they are read from a body, how they are shown to a reader.

Liberal in: phase-1 names, missing `status`, `expires`, `resources` and `dataSchemes`, numbers as text. Strict out:
the members of the reference server. Source: message specification, sections 10.1, 10.2 and 10.5; data formats,
section 5.2.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from msg_node.kernel.registrations import Status
from msg_node.kernel.resources import Members, texts_of
from protofly.address import canonical_key, scheme_of
from protofly.errors import Code, PeerError
from protofly.limits import (
    REGISTRY_ENTRY_CHARS,
    REGISTRY_EXPIRES_MAX_SECONDS,
    REGISTRY_EXPIRES_SECONDS,
    REGISTRY_LIST_ENTRIES,
    REGISTRY_TEXT_CHARS,
)

_HYPERTY_SCHEMES = frozenset({"hyperty", "runtime"})


class RegistryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One registered hyperty or data object.

    `sid` is the session that refreshes it, times are seconds since the Unix epoch.
    """

    url: str
    sid: int
    runtime: str
    status: Status = Status.LIVE
    expires_seconds: int = REGISTRY_EXPIRES_SECONDS
    resources: tuple[str, ...] = ()
    data_schemes: tuple[str, ...] = ()
    user: str = ""
    guid: str = ""
    descriptor: str = ""
    name: str = ""
    schema: str = ""
    reporter: str = ""
    p2p_handler: str = ""
    p2p_requester: str = ""
    started_at: float = 0.0
    refreshed_at: float = 0.0

    @property
    def key(self) -> str:
        """Canonical key of the entry."""
        return canonical_key(self.url)

    @property
    def is_hyperty(self) -> bool:
        """True if this is a hyperty (or runtime) entry; all others are data objects."""
        return is_of_hyperty(self.url)

    @property
    def is_connected(self) -> bool:
        """True if somebody can be reached there now."""
        return self.status in (Status.LIVE, Status.CREATED)

    @property
    def chars(self) -> int:
        """Characters of all members together."""
        texts = (
            self.url,
            self.runtime,
            self.user,
            self.guid,
            self.descriptor,
            self.name,
            self.schema,
            self.reporter,
            self.p2p_handler,
            self.p2p_requester,
            *self.resources,
            *self.data_schemes,
        )
        return sum(map(len, texts))


def is_of_hyperty(url: str) -> bool:
    """True if an address is that of a hyperty or runtime, and not of a data object."""
    return scheme_of(url) in _HYPERTY_SCHEMES


# Members by the names they have on the wire, phase-1 names last.
_TEXTS = {
    "user": ("user", "userID"),
    "guid": ("guid",),
    "descriptor": ("descriptor", "hypertyDescriptorURL"),
    "runtime": ("runtime", "hypertyRuntimeURL"),
    "name": ("name",),
    "schema": ("schema",),
    "reporter": ("reporter",),
    "p2p_handler": ("p2pHandler",),
    "p2p_requester": ("p2pRequester",),
}
_LISTS = {"resources": "resources", "data_schemes": "dataSchemes"}
_MANDATORY_HYPERTY = ("user", "descriptor", "runtime")
_MANDATORY_OBJECT = ("name", "schema", "reporter", "runtime")
_URL_NAMES = ("url", "hypertyURL", "hypertyID")


class IncompleteError(PeerError):
    """A registration without its mandatory members; `missing` names them."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__(Code.BAD_BODY, "mandatory members are missing")
        self.missing = missing


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Members that an update brings; None stands for not given."""

    user: str | None = None
    guid: str | None = None
    descriptor: str | None = None
    runtime: str | None = None
    name: str | None = None
    schema: str | None = None
    reporter: str | None = None
    p2p_handler: str | None = None
    p2p_requester: str | None = None
    resources: tuple[str, ...] | None = None
    data_schemes: tuple[str, ...] | None = None
    status: Status | None = None
    expires_seconds: int | None = None


def url_of(value: Members) -> str:
    """The address a registration is for, "" when it names none.

    Raises:
        PeerError: BAD_BODY.
    """
    return next((text for name in _URL_NAMES if (text := _text(value.get(name), name))), "")


def read_changed(value: Members) -> Changed:
    """Read the members of a registration or an update; unknown ones are ignored.

    Raises:
        PeerError: BAD_BODY.
    """
    texts = {field: _first_text(value, names) for field, names in _TEXTS.items()}
    lists = {field: _list(value, name) for field, name in _LISTS.items()}
    return Changed(
        **texts,
        resources=lists["resources"],
        data_schemes=lists["data_schemes"],
        status=status_of(value["status"]) if value.get("status") is not None else None,
        expires_seconds=_expires(value["expires"]) if value.get("expires") is not None else None,
    )


def new_entry(url: str, changed: Changed, *, sid: int, now: float) -> RegistryEntry:
    """Make an entry out of a registration.

    Raises:
        IncompleteError: BAD_BODY.

    Source: message specification, section 10.1.
    """
    entry = apply(
        RegistryEntry(url=url, sid=sid, runtime="", started_at=now, refreshed_at=now), changed, sid=sid, now=now
    )
    mandatory = _MANDATORY_HYPERTY if entry.is_hyperty else _MANDATORY_OBJECT
    missing = [name for name in mandatory if not getattr(entry, name)]
    if missing:
        raise IncompleteError(missing)
    return entry


def apply(entry: RegistryEntry, changed: Changed, *, sid: int, now: float) -> RegistryEntry:
    """The entry with members changed, and refreshed.

    Raises:
        PeerError: TOO_LARGE.
    """
    given = {field: value for field in Changed.__struct_fields__ if (value := getattr(changed, field)) is not None}
    applied = replace(entry, **given, sid=sid, refreshed_at=now)
    if given and applied.chars > REGISTRY_ENTRY_CHARS:
        raise PeerError(Code.TOO_LARGE, f"an entry has at most {REGISTRY_ENTRY_CHARS} characters")
    return applied


def status_of(value: object) -> Status:
    """Read a status word.

    Raises:
        PeerError: BAD_BODY.
    """
    try:
        return Status(value)
    except ValueError as exc:
        raise PeerError(Code.BAD_BODY, "status is one of created, live, disconnected, dead") from exc


def shown(entry: RegistryEntry) -> dict[str, object]:
    """An entry as readers get it. Source: data formats, section 5.2."""
    addresses = (
        {"hypertyID": entry.url, "userID": entry.user, "guid": entry.guid, "descriptor": entry.descriptor}
        if entry.is_hyperty
        else {"url": entry.url, "name": entry.name, "schema": entry.schema, "reporter": entry.reporter}
    )
    optional = {"p2pHandler": entry.p2p_handler, "p2pRequester": entry.p2p_requester}
    return {
        **{name: value for name, value in addresses.items() if value},
        "resources": entry.resources,
        "dataSchemes": entry.data_schemes,
        "status": entry.status.value,
        "expires": entry.expires_seconds,
        "startingTime": _instant(entry.started_at),
        "lastModified": _instant(entry.refreshed_at),
        "runtime": entry.runtime,
        **{name: value for name, value in optional.items() if value},
    }


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _first_text(value: Members, names: tuple[str, ...]) -> str | None:
    return next((_text(value[name], name) for name in names if value.get(name) is not None), None)


def _text(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > REGISTRY_TEXT_CHARS:
        raise PeerError(Code.BAD_BODY, f"{name} is a text of at most {REGISTRY_TEXT_CHARS} characters")
    return value


def _list(value: Members, name: str) -> tuple[str, ...] | None:
    if value.get(name) is None:
        return None
    texts = tuple(texts_of(value, name))
    if len(texts) > REGISTRY_LIST_ENTRIES:
        raise PeerError(Code.BAD_BODY, f"{name} has at most {REGISTRY_LIST_ENTRIES} entries")
    return texts


def _expires(value: object) -> int:
    """Seconds of life: a number or a decimal text, bounded by the settings."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise PeerError(Code.BAD_BODY, "expires is a number of seconds")
    return int(min(value, REGISTRY_EXPIRES_MAX_SECONDS))
