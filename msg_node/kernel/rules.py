"""The switches of an operator over addresses, subscriptions and routing, as the cores read them.

Every default is what the message specification recommends; the other positions serve old peers and their test suites.
Source: message specification, sections 7.3, 8.1, 8.5, 9.4, 20.3 to 20.5.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from protofly.limits import ALLOCATION_PER_GUEST_DOMAIN


@dataclass(slots=True)
class Rules:
    """Rules of this node that settings may change; all who read them have the same object.

    Attributes:
        learns: An address of ours that nobody owns may be used as `from`, and is then reachable for an hour.
        shares_domain: Other nodes serve the domain too: an address that nobody owns here may be somebody's there, so
            nobody speaks as one, reports it or registers it who does not own it.
        resolves_users: Messages to a user go to the live hyperties that the registry has for that user.
        echoes: Runtimes of dialect A get copies of what they send to addresses that they listen to themselves.
        reporter_only: Observers of an object hear its reporter, and each other by the rules of `core/objects` only.
        strict_release: Addresses are released by their owner's runtime and by operators only.
        require_consent: Changes and children are heard after the reporter has said yes.
        keeps_registered: Registry entries outlive the session of their runtime, until they expire.
        sm_error: The answer to dialect A when a subscription names nothing: 400, or 500 as old nodes do.
        expands_schema: Who names the schema of an object, and no children, hears the children that the schema lists.
        taps: Operators may listen to everything.
        guest_addresses: How many addresses the guests of one domain may own together.
        thing_roles: One of these has who listens to things; none: every session of the domain may.
    """

    learns: bool = True
    shares_domain: bool = False
    resolves_users: bool = False
    echoes: bool = False
    reporter_only: bool = True
    strict_release: bool = True
    require_consent: bool = False
    keeps_registered: bool = False
    sm_error: int = 400
    guest_addresses: int = ALLOCATION_PER_GUEST_DOMAIN
    expands_schema: bool = False
    taps: bool = False
    thing_roles: frozenset[str] = frozenset()

    def follow(self, other: Rules) -> None:
        """Have every rule as `other` has it, from the next decision on."""
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))
