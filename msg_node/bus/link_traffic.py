"""Messages of linked domains, which their borders have judged: decided and performed, a batch at a time.

The clock is read once per batch. Source: message specification, sections 18.4 and 20.2.
"""

from __future__ import annotations

import time

from msg_node.addresses.core.observers import SUBSCRIPTION, Observers
from msg_node.bus.core.admission import check_passable
from msg_node.bus.core.draining_router import DrainingRouter
from msg_node.bus.core.fenced_router import fenced
from msg_node.bus.core.router import (
    FIND_NODE,
    FIND_USER,
    SERVE,
    SERVE_SESSION,
    Decision,
    Decisions,
    Deliver,
    Refuse,
    ToDomain,
)
from msg_node.bus.core.tables import BusTables
from msg_node.bus.own_messages import OwnMessages
from msg_node.bus.session_traffic import Destinations
from msg_node.registries.core.foreign_registry import REGISTRIES, as_found
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message


class LinkTraffic:
    """Takes in what links bring.

    Args:
        observers: Follows who may observe what.
        own: Sends what services reply: over the link again.
    """

    def __init__(
        self, state: BusTables, observers: Observers, router: Decisions, destinations: Destinations, own: OwnMessages
    ) -> None:
        self._links = state.links
        self._guests = state.guests
        self._domains = state.domains
        self._observers = observers
        self._router = router
        self._own = own
        self._send_queues = destinations.send_queues
        self._effects = destinations.effects
        self._parked_actions = destinations.parked_actions
        self._foreign = destinations.foreign
        self._users = destinations.users
        self._nodes = destinations.nodes

    def refuse_requests(self, retry_seconds: float) -> None:
        """The node stops: refuse new requests from now on."""
        self._router = DrainingRouter(self._router, retry_seconds)

    def fence(self, retry_seconds: float | None) -> None:
        """Refuse what promises anything; with None, go on."""
        self._router = fenced(self._router, retry_seconds)

    def take(self, domain: str, messages: list[Message]) -> list[Code | None]:
        """Route messages that passed the border of a linked domain; answers for each why it was refused."""
        now = time.time()
        number = self._links.number(domain)
        codes: list[Code | None] = []
        for message in messages:
            try:
                readable = as_found(message) if message.from_.startswith(REGISTRIES) else message
                code = self._take(domain, number, readable, now)
                is_parked = code is not None and self._parked_actions.parks(code, readable, number, frozenset())
                codes.append(None if is_parked else code)
            except PeerError as exc:
                codes.append(exc.code)
        self._send_queues.wake()
        return codes

    def link_is_live(self, domain: str) -> None:
        """A link is up (again): renew what we listen to there, hand over what waits for it."""
        self._foreign.link_is_live(domain)
        self._parked_actions.outbox.link_is_live(domain, time.time())

    def is_wanted(self, domain: str) -> bool:
        """True if a domain's link is needed although nothing is under way."""
        return self._foreign.is_wanted(domain) or self._parked_actions.outbox.is_wanted(domain)

    def _take(self, domain: str, number: int, message: Message, now: float) -> Code | None:
        is_response = message.type == "response"
        if is_response and self._foreign.is_answer(message):
            self._foreign.answered(message, domain)
            return None
        if message.type == "unsubscribe" or SUBSCRIPTION in (message.from_ if is_response else message.to):
            self._observers.passes(message, number)
            self._effects.store_rest()
        if message.peek.ttl or message.type == "forward":
            check_passable(message)
        if (self._parked_actions.is_used or message.peek.message_class) and self._parked_actions.takes_from_link(
            message, domain, number, now
        ):
            return None
        decision = self._router.decide(message, number, now)
        if type(decision) is not Deliver:
            return self._to_node(message, decision, number, now)
        sids = self._guests.without_transit(message.to, decision.numbers)
        if not sids:  # nothing goes on to a third domain
            return Code.TRANSIT if domain_of(message.to) not in self._domains else None
        if message.type == "delete":
            self._foreign.object_deleted(message, domain)
        return self._send_queues.to_listeners(sids, message, self._send_queues.link_blockers)

    def _to_node(self, message: Message, decision: Decision, number: int, now: float) -> Code | None:
        """Let the node itself see to a message: serve it, find its user, or refuse it."""
        if decision is SERVE:
            self._effects.serve(message, number, self._own.send, now)
            return None
        if type(decision) is ToDomain:
            return Code.TRANSIT
        if decision is FIND_USER:
            refusal = self._users.take(message, number)
            return None if refusal is None else refusal.code
        if decision is FIND_NODE and self._nodes is not None:
            refusal = self._nodes.take(message, number)
            return None if refusal is None else refusal.code
        if decision is SERVE_SESSION:
            return Code.NO_SUCH_SERVICE
        return decision.code if type(decision) is Refuse else None
