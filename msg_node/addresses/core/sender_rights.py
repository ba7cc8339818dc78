"""Who may use which `from`, and who may change which object. Source: message specification, sections 9.4 and 20.3.

The `from` of a session is judged in this order, and the first that fits decides: an address that the session owns (one
dictionary hit, nearly every message); for responses, an address that it was asked as or subscribed to; an address that
somebody else owns; an address below a runtime or below an owned address, which follows what is above it. What is left
belongs to nobody here: names without a scheme are the runtime's own affair, addresses of domains, of other domains and
of interworking stubs are never a session's, the others may be learned where the operator lets the node learn.
"""

from __future__ import annotations

from typing import Protocol

from federation.core.interworking import Interworking
from msg_node.addresses.core.holders import Holders
from msg_node.kernel.directories import OWN, Source
from msg_node.kernel.links import LinkNumbers
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.rules import Rules
from protofly.address import domain_of, scheme_of


class GuestDomains(Protocol):
    """Knows the sessions of guests."""

    def domain(self, sid: int, /) -> str:
        """The domain of a guest's session, "" for the sessions of our own domain."""


class SenderRights:
    """Judges senders; keeps nothing of its own."""

    def __init__(
        self,
        holders: Holders,
        own: OwnNames,
        rules: Rules,
        interworking: Interworking,
        guests: GuestDomains,
        links: LinkNumbers,
    ) -> None:
        self._holders = holders
        self._owner = holders.owners.owner
        self._domains = own.domains
        self._rules = rules
        self._interworking = interworking
        self._guests = guests
        self._links = links

    def source_of(self, sid: int, from_key: str, *, is_response: bool = False, was_addressed: bool = False) -> Source:
        """Judge the `from` of a message of a session.

        Args:
            sid: The session that sent the message.
            from_key: Canonical key of its `from`.
            is_response: Whether it is a response.
            was_addressed: Whether `from_key` was the `to` of a message that was delivered to this session.

        Source: message specification, section 20.3.
        """
        owner = self._owner(from_key)
        if owner == sid:
            return OWN
        if is_response and (was_addressed or self._holders.listeners.listens(sid, from_key)):
            return Source.SUBSCRIBED
        if owner is not None:
            return Source.NOT_OWNER
        above = self._holders.holder_above(from_key)
        if above is not None:
            return OWN if above == sid else Source.NOT_OWNER
        return self._unowned_source(sid, from_key)

    def _unowned_source(self, sid: int, from_key: str) -> Source:
        scheme = scheme_of(from_key)
        if not scheme:
            return Source.LOCAL_NAME
        domain = domain_of(from_key)
        if scheme in ("domain", "global", "mn"):
            return Source.SPOOFED  # elements of a domain: a guest is a runtime, and no node
        if domain and domain == self._guests.domain(sid):
            return Source.LEARNABLE
        if (domain and domain not in self._domains) or self._interworking.granted_to(from_key):
            return Source.SPOOFED
        if self._rules.shares_domain:
            return Source.NOT_OWNER
        reporter = self._holders.listed_reporter_of(from_key)
        if reporter not in (None, sid):
            return Source.NOT_OWNER
        if self._rules.learns:
            return Source.LEARNABLE
        return Source.NOT_OWNER if reporter is None else OWN

    def may_change(self, origin: int, object_key: str, from_key: str) -> bool:
        """True if what a session or link sends to `O/changes` comes from the reporter of `O`.

        Args:
            origin: Number of the session or link, 0 for the node itself.
            object_key: `O`.
            from_key: Sender of the message; the session, or the border of the link, has been asked about it.

        Source: message specification, section 9.4.
        """
        owner = self._owner(object_key)
        if owner == origin or origin == 0 or not self._rules.reporter_only:
            return True
        if origin < 0:
            home_of = self._interworking.home_of
            return owner is None and home_of(object_key) == home_of(from_key)
        rules, holders = self._rules, self._holders
        holder = holders.holder(object_key) if rules.shares_domain else holders.reporter_of(object_key)
        if holder is not None:
            return holder == origin
        guest_domain = self._guests.domain(origin)  # nobody reports it: then only a guest of its own domain changes it
        return guest_domain != "" and guest_domain == domain_of(object_key)

    def other_domain_of(self, number: int) -> str:
        """The foreign domain that a link or a guest's session speaks for, "" for a session of our own domain."""
        return self._links.domain(number) if number < 0 else self._guests.domain(number)
