"""Where a user can be: what the GUID record says, and which of the user's hyperties are live in our own domain.

A message to a user goes to all their live hyperties. An action goes to one, since it is done once: to a live one, or
to the one that was here last, for which it waits.

Source: message specification, sections 11, 19.2 and 20.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from msg_node.kernel.directories import OwnerDirectory, SessionDirectory
from msg_node.kernel.registrations import NOBODY, Index, Status
from msg_node.kernel.resources import key_or_refuse
from msg_node.registries.core.registry import DomainRegistry
from msg_node.registries.core.registry_entry import RegistryEntry
from protofly.address import domain_of, scheme_of, valid_domain
from protofly.errors import PeerError
from protofly.guid import guid_address
from protofly.guid_record import GuidRecord, UserId
from protofly.limits import USER_NAMES


class UserPlaces(NamedTuple):
    """The places of a user by their GUID record.

    `here` are the holder's names that our own registry may know, `domains` other domains of the record, in its order;
    `ends_at`: until when the record counts, seconds since the Unix epoch.
    """

    here: tuple[tuple[Index, str], ...]
    domains: tuple[str, ...]
    ends_at: float


def places_of(record: GuidRecord, own_domains: Collection[str]) -> UserPlaces:
    """Read the places out of a record that has been proved."""
    here: list[tuple[Index, str]] = [(Index.GUID, guid_address(record.guid))]
    domains: dict[str, None] = {}
    for user_id in record.user_ids:
        domain = _domain_of(user_id)
        if domain in own_domains and user_id.uid != NOBODY:
            here.append((Index.USER, user_id.uid))
        elif domain:
            domains[domain] = None
    return UserPlaces(tuple(here)[:USER_NAMES], tuple(domains)[:USER_NAMES], record.timeout_us / 1e6)


def _domain_of(user_id: UserId) -> str:
    """The domain whose registry knows a user identifier: as the record says, or that of the identifier itself."""
    with suppress(PeerError):
        if user_id.domain:
            return valid_domain(user_id.domain.lower())
        if scheme_of(user_id.uid) == "user":
            return valid_domain(domain_of(user_id.uid))
    return ""


class LocalUsers:
    """Finds users in the registry of our own domain; keeps nothing of its own."""

    def __init__(self, registry: DomainRegistry, owners: OwnerDirectory, sessions: SessionDirectory) -> None:
        self._registry = registry
        self._owners = owners
        self._sessions = sessions

    def hyperties_of(self, names: Iterable[tuple[Index, str]]) -> list[RegistryEntry]:
        """The hyperties that are registered for a user with these names, live ones and others."""
        found = {entry.key: entry for index, text in names for entry in self._registry.find(index, text)}
        return list(found.values())  # data objects are not found by users

    def live_numbers(self, entries: Iterable[RegistryEntry], origin: int) -> tuple[int, ...]:
        """The sessions that hold live entries, except the one that asks."""
        holders = [self._owners.owner(entry.key) or entry.sid for entry in entries if entry.is_connected]
        return tuple(dict.fromkeys(number for number in holders if number and number != origin))

    def hyperty_for(self, names: Iterable[tuple[Index, str]], origin: int) -> str:
        """The address to which an action for a user with these names goes; "" when none is registered here."""
        entries = self.hyperties_of(names)
        live = [entry for entry in entries if self.live_numbers([entry], origin)]
        chosen = max(live or entries, key=lambda entry: entry.refreshed_at, default=None)
        if chosen is None:
            return ""
        session = self._sessions.get(chosen.sid)
        if session is None or self._owners.owner(chosen.key) is not None:
            return chosen.key
        return session.runtime_key  # the runtime that registered an address without owning it answers for it

    def is_live_for(self, names: Iterable[tuple[Index, str]], origin: int) -> bool:
        """True if a user with these names has a live hyperty here, other than the session that asks."""
        return bool(self.live_numbers(self.hyperties_of(names), origin))

    def profile(self, user: str) -> dict[str, str]:
        """Return what is registered of a user, without the hyperties; {} if nothing is.

        Raises:
            PeerError: BAD_BODY for what is no address.
        """
        index = Index.GUID if scheme_of(key_or_refuse(user)) == "user-guid" else Index.USER
        entries = self.hyperties_of([(index, user)])
        if not entries:
            return {}
        status = Status.LIVE if any(entry.is_connected for entry in entries) else Status.DISCONNECTED
        profile = {"userURL": entries[-1].user, "guid": entries[-1].guid, "status": status.value}
        return {name: text for name, text in profile.items() if text}
