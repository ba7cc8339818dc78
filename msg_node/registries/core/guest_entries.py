"""What guests may register in our domain registry: addresses of ours that they hold, and users of their own domain.

A reader of the registry believes that who is found there is who was looked for, and messages to a user go to the
hyperties that are registered for that user. So a runtime of another domain registers neither users of ours nor of a
third domain, and nobody under a GUID: a GUID belongs to the holder of its key. It names itself as the runtime, and
nobody else as the reporter of an object. Source: message specification, sections 10 and 18.5.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from msg_node.registries.core.registry import identifiers_of
from msg_node.registries.core.registry_entry import Changed
from protofly.address import domain_of
from protofly.errors import Code, PeerError


def of_guest(domain: str, runtime: str, changed: Changed, *, holds: Callable[[str], bool]) -> Changed:
    """Return what a guest registers, in its own name.

    Args:
        domain: The guest's.
        runtime: The guest's.
        changed: As it came.
        holds: True for an address of ours that the guest holds.

    Raises:
        PeerError: NOT_OWNER for a user or reporter who is not its, or a GUID; BAD_HEADER for one that is no address.
    """
    if changed.guid or (changed.user and not _is_user_of(domain, changed.user)):
        raise PeerError(Code.NOT_OWNER, "a guest registers users of its own domain, without GUID")
    reporter = changed.reporter
    if reporter and domain_of(reporter) != domain and not holds(reporter):
        raise PeerError(Code.NOT_OWNER, "a guest registers objects that it reports itself")
    return replace(changed, runtime=runtime)


def _is_user_of(domain: str, user: str) -> bool:
    """True if a user is of a domain by the address and by every account name that is found by it."""
    accounts = [name for name in identifiers_of(user) if "@" in name]
    return domain_of(user) == domain and all(name.rpartition("@")[2].lower() == domain for name in accounts)
