"""Words of the domain registry that other services use as well: status of an entry, and by what entries are found."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from protofly.address import scheme_of

NOBODY = "user://anonymous"
_NOBODIES = frozenset({NOBODY, "user-guid://anonymous"})
"""Users that want to stay anonymous. Source: message specification, section 1.4."""
_SCHEMES = frozenset({"user", "user-guid", "acct"})


class Status(Enum):
    """Status of an entry. Source: data formats, section 5.2."""

    CREATED = "created"
    LIVE = "live"
    DISCONNECTED = "disconnected"
    DEAD = "dead"


class Index(Enum):
    """By what an entry can be found."""

    USER = "user"
    GUID = "guid"
    IDENTIFIER = "idp-identifier"
    NAME = "name"
    REPORTER = "reporter"


class StatusChange(NamedTuple):
    """The status of an entry is now another one: for the subscribers of `<url>/registration`."""

    key: str
    url: str
    status: Status


def user_named(key: str) -> tuple[Index, str] | None:
    """Return how our registry finds the user that a canonical key names, None if it names none."""
    scheme = scheme_of(key)
    if scheme not in _SCHEMES or key in _NOBODIES:
        return None
    return Index.GUID if scheme == "user-guid" else Index.USER, key
