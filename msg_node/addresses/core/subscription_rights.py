"""Which addresses a session or link may listen to.

So that nobody can take the messages of another: `changes`, `status`, `registration` and children are for every observer
(or for those whom the reporter accepted); an entity itself, its `subscription` and `inbox`, and everything below it
(`/*`) are for its owner. Status of the node and of its stubs is for operators. A base address of our domain without an
owner is claimed by listening to it, but not by guests: what waits for its next owner is not for another domain. Another
domain listens to objects of ours, and never through us to those of a third. `*`, which is every message, is for
operators, if the settings allow it.

The order of the questions matters: first what is special by its name (taps, the node, things), then events and
children, which are judged by consent and not by owner, then the owner, and last what nobody owns.

Source: message specification, sections 7.4 and 8.5.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from msg_node.addresses.core.allocation import ancestors
from msg_node.addresses.core.tables import AddressTables
from msg_node.kernel.resources import (
    TAPS_KEY,
    Shape,
    is_child_form,
    is_claimable,
    is_of_no_domain,
    is_p2p_stub,
    shape_of,
)
from msg_node.kernel.runtime_address import agent_of, runtime_part
from msg_node.kernel.service import Caller
from protofly.address import domain_of, scheme_of
from protofly.errors import Code


class Right(Enum):
    """The answer to a request to listen. `code` is None where it is granted."""

    LISTEN = "listen"
    CLAIM = "claim"
    REFUSED = "refused"
    NO_CONSENT = "no-consent"

    @property
    def code(self) -> Code | None:
        """The refusal, if it is one."""
        return _REFUSALS.get(self)


_REFUSALS = {Right.REFUSED: Code.NOT_OWNER, Right.NO_CONSENT: Code.POLICY}


class SubscriptionRights:
    """Judges requests to listen; changes nothing."""

    def __init__(self, state: AddressTables) -> None:
        self._state = state

    def right(self, caller: Caller, key: str, claimed: Collection[str] = ()) -> Right:
        """Judge a request to listen to a canonical key; `claimed` are keys that the same request claims.

        Source: message specification, sections 7.4 and 8.5.
        """
        if key == TAPS_KEY:
            return Right.LISTEN if self._state.rules.taps and caller.is_operator else Right.REFUSED
        shape = shape_of(key)
        if self._state.holders.is_of_node(key):
            return Right.LISTEN if caller.is_operator and shape is Shape.EVENTS else Right.REFUSED
        if caller.is_link and domain_of(key) not in self._state.domains:
            is_theirs = shape is not Shape.BELOW and self._state.interworking.home_of(key) == caller.domain
            return Right.LISTEN if is_theirs else Right.REFUSED
        if caller.is_guest and not self._is_for_guest(caller, key):
            return Right.REFUSED
        if _is_of_thing(key, shape):
            return self._right_to_thing(caller, key)
        if shape is Shape.EVENTS or self._is_child(caller, key):
            return Right.LISTEN if self._state.observer_rights.has_consent(caller.number, key) else Right.NO_CONSENT
        if caller.is_link:
            return Right.REFUSED
        if is_p2p_stub(key):
            return self.right_to_p2p(caller, key)
        owner = self._holder(key[:-2] if shape is Shape.BELOW else key)
        if owner is not None:
            return Right.LISTEN if owner == caller.number else Right.REFUSED
        if any(above in claimed for above in ancestors(key)):
            return Right.LISTEN
        return self._right_to_unowned(caller, key, shape)

    def _is_for_guest(self, caller: Caller, key: str) -> bool:
        """True for what is ours or of the domain of a guest: it hears nothing of a third domain, and no plain name."""
        domain = domain_of(key)
        return domain in self._state.domains or domain == self._state.guests.domain(caller.number)

    def _is_child(self, caller: Caller, key: str) -> bool:
        """True for a child of an owned object in the oldest spelling, `O/n`, to which observers may listen.

        What is below an agent of things is never one for another domain. Source: message specification, sections 8.3
        and 19.1.
        """
        if not is_child_form(key) or is_p2p_stub(key):
            return False
        if caller.is_abroad and scheme_of(key) == "thing":
            return False
        return self._state.owners.owner(key) is None and self._state.owners.owner_above(key) is not None

    def _right_to_thing(self, caller: Caller, key: str) -> Right:
        """Events and properties of things are for sessions of their own domain, with a role if one is asked for.

        Source: message specification, section 19.1.
        """
        session = self._state.sessions.get(caller.number)
        if session is None or session.is_guest or domain_of(key) not in self._state.domains:
            return Right.REFUSED
        roles = self._state.rules.thing_roles
        is_agent = self._state.owners.owner(agent_of(key)) == caller.number
        return Right.LISTEN if is_agent or not roles or roles & session.proof.roles else Right.REFUSED

    def right_to_p2p(self, caller: Caller, key: str) -> Right:
        """The first session to announce a P2P stub of its domain owns it. Source: message specification, section 17."""
        owner = self._state.owners.claimant(key)
        if owner is not None:
            return Right.LISTEN if owner == caller.number else Right.REFUSED
        session = self._state.sessions.get(caller.number)
        is_of_domain = session is not None and domain_of(session.runtime_key) == domain_of(key)
        return Right.CLAIM if is_of_domain else Right.REFUSED

    def _holder(self, key: str) -> int | None:
        """The session that owns an address or the nearest one above it; -1 for a runtime that is not connected."""
        owner = self._state.owners.claimant(key)
        if owner is not None:
            return owner
        if runtime_part(key):
            holder = self._state.sessions.below(key)
            return -1 if holder is None else holder
        above = self._state.owners.owner_above(key)
        return None if above is None else above[0]

    def _right_to_unowned(self, caller: Caller, key: str, shape: Shape) -> Right:
        scheme, domain = scheme_of(key), domain_of(key)
        if key in self._state.owners.pools.keys:
            return Right.REFUSED
        if caller.is_guest and domain in self._state.domains:
            return Right.REFUSED  # it is lent names of ours, and chooses none
        if not scheme:
            return Right.LISTEN if shape is Shape.BASE else Right.REFUSED
        if domain not in self._state.domains and not is_of_no_domain(key):
            if not domain or not is_child_form(key):
                return Right.REFUSED
            return Right.LISTEN if self._state.observer_rights.has_consent(caller.number, key) else Right.NO_CONSENT
        if shape is Shape.CONTROL:
            if self._state.rules.shares_domain:
                return Right.REFUSED  # its reporter owns it, perhaps at another node
            others = set(self._state.listeners.targets(key)) - {caller.number}
            return Right.REFUSED if others else Right.LISTEN
        return Right.CLAIM if is_claimable(key) else Right.REFUSED


def _is_of_thing(key: str, shape: Shape) -> bool:
    """True for what agents report about their things: everything below, an event, a property."""
    return key.startswith("thing://") and (shape is Shape.BELOW or "/events/" in key or "/properties/" in key)
