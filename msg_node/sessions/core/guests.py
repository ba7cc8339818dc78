"""Guests: runtimes of other domains with a session here, and what all guests of one domain may hold together.

What a guest is given is a lease: it ends with the guest's connection, and it counts towards its domain, however many
runtimes that domain sends. Source: feature row AA-12; message specification, sections 7.5 and 18.5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msg_node.kernel.links import is_node
from msg_node.kernel.session import Session
from protofly.address import domain_of
from protofly.errors import Code, PeerError


class Guests:
    """The sessions of guests, by domain.

    Args:
        per_domain: How many addresses the guests of one domain may own.
        count: How many addresses a session owns.
        our_domains: Our domain and its aliases.
    """

    def __init__(self, per_domain: int, count: Callable[[int], int], our_domains: Collection[str] = ()) -> None:
        self.per_domain = per_domain
        self._count = count
        self._our_domains = our_domains
        self._of_domain: dict[str, set[int]] = {}
        self._domains: dict[int, str] = {}

    def came(self, session: Session) -> None:
        """A session is there; only those of guests are remembered."""
        if session.is_guest:
            domain = domain_of(session.runtime_key)
            self._domains[session.sid] = domain
            self._of_domain.setdefault(domain, set()).add(session.sid)

    def went(self, sid: int) -> None:
        """A session is over."""
        domain = self._domains.pop(sid, None)
        if domain is not None:
            self._of_domain[domain].discard(sid)
            if not self._of_domain[domain]:
                del self._of_domain[domain]

    def domains(self) -> list[str]:
        """The domains that have guests here."""
        return list(self._of_domain)

    def of(self, domain: str) -> Collection[int]:
        """Sessions of a domain's guests."""
        return self._of_domain.get(domain, ())

    def domain(self, sid: int) -> str:
        """The domain of a guest's session, "" for the sessions of our own domain."""
        return self._domains.get(sid, "")

    def without_transit(self, to: str, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """The listeners to whom a message of another domain may go: never from one domain to a third.

        Guests hear what is said to addresses of ours, and nothing that is for another domain.
        """
        if not self._domains or domain_of(to) in self._our_domains:
            is_all_here = min(numbers, default=0) > 0
            return numbers if is_all_here else tuple([one for one in numbers if one > 0 or is_node(one)])
        return tuple([one for one in numbers if (one > 0 and one not in self._domains) or is_node(one)])

    def check_quota(self, sid: int, number: int) -> None:
        """Refuse when the guests of a guest's domain would own too much together.

        Raises:
            PeerError: QUOTA.
        """
        domain = self._domains.get(sid)
        if domain is None:
            return
        if sum(map(self._count, self.of(domain))) + number > self.per_domain:
            raise PeerError(Code.QUOTA, f"guests of {domain} may own {self.per_domain} addresses together")
