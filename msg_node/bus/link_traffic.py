"""Messages of linked domains, which their borders have judged: decided and performed, a batch at a time.

The clock is read once per batch. Source: message specification, sections 18.4 and 20.2.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Final

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
from msg_node.bus.middleware import Onlooking, Stack
from msg_node.bus.node_runs import RunsToNodes
from msg_node.bus.own_messages import OwnMessages
from msg_node.bus.session_traffic import Destinations
from msg_node.kernel.links import is_node
from msg_node.registries.core.foreign_registry import REGISTRIES, as_found
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import NO_PEEK, Message

_NOTED: Final = frozenset({"response", "unsubscribe", "forward", "delete"})
"""Types of which more is looked at than where they go."""


class LinkTraffic:
    """Takes in what links bring.

    Args:
        observers: Follows who may observe what.
        own: Sends what services reply: over the link again.
        runs: To other nodes; None: there are none.

    Attributes:
        own: The same.
        on_live: Called with a domain whose link is up (again).
    """

    def __init__(
        self,
        state: BusTables,
        observers: Observers,
        router: Decisions,
        destinations: Destinations,
        own: OwnMessages,
        runs: RunsToNodes | None = None,
    ) -> None:
        self._state = state
        self._guests = state.guests
        self._observers = observers
        self._router = router
        self.own = own
        self._runs = runs
        self._send_queues = destinations.send_queues
        self._effects = destinations.effects
        self._parked_actions = destinations.parked_actions
        self._foreign = destinations.foreign
        self._own_requests = destinations.own_requests
        self._users = destinations.users
        self._nodes = destinations.nodes
        self._onlookers: tuple[Onlooking, ...] = ()
        self.on_live: Callable[[str], None] = _ignore

    def refuse_requests(self, retry_seconds: float) -> None:
        """The node stops: refuse new requests from now on."""
        self._router = DrainingRouter(self._router, retry_seconds)

    def fence(self, retry_seconds: float | None) -> None:
        """Refuse what promises anything; with None, go on."""
        self._router = fenced(self._router, retry_seconds)

    def judge_by(self, stack: Stack) -> None:
        """Show what links bring to those who look on now; the steps of sessions do not count here."""
        self._onlookers = stack.onlookers

    def take(self, domain: str, messages: list[Message]) -> list[Code | None]:
        """Route messages that passed the border of a linked domain; answers for each why it was refused."""
        for show in self._onlookers:
            show(domain, messages)
        now = time.time()
        number = self._state.links.number(domain)
        codes: list[Code | None] = []
        while (taken := len(codes)) < len(messages):
            message = messages[taken]
            run = 0
            if taken + 1 < len(messages) and messages[taken + 1].to is message.to:
                run = self._take_run(number, messages, taken, now)
                codes += [None] * run
            if not run:
                codes.append(self._take_one(domain, number, message, now))
        self._send_queues.end_turn(now, len(codes))
        return codes

    def _take_one(self, domain: str, number: int, message: Message, now: float) -> Code | None:
        try:
            readable = as_found(message) if message.from_.startswith(REGISTRIES) else message
            code = self._take(domain, number, readable, now)
            is_parked = code is not None and self._parked_actions.parks(code, readable, number, frozenset())
        except PeerError as exc:
            return exc.code
        return None if is_parked else code

    def _take_run(self, number: int, messages: list[Message], start: int, now: float) -> int:
        """Take messages of one flow, which share their header as objects, where all they need is one recipient of ours.

        Returns how many; the next one goes the whole way. Within a run nothing changes that decides about it: what is
        delivered changes queues only.
        """
        like = messages[start]
        to, from_, type_ = like.to, like.from_, like.type
        if type_ in _NOTED or self._parked_actions.is_used or SUBSCRIPTION in to or from_.startswith(REGISTRIES):
            return 0
        run = []
        for message in islice(messages, start, None):
            is_alike = message.to is to and message.from_ is from_ and message.type is type_
            if not is_alike or message.peek is not NO_PEEK or (message.id is None) != (like.id is None):
                break
            run.append(message)
        try:
            decision = self._router.decide(like, number, now) if len(run) > 1 else None
        except PeerError:
            return 0
        if type(decision) is not Deliver:
            return 0
        sids = self._guests.without_transit(to, decision.numbers)
        queues = self._send_queues
        if len(sids) != 1:
            return 0
        if self._runs is None or not is_node(sids[0]):
            taken, blocker = queues.run_to_listener(sids[0], run), queues.congested(sids[0])
        else:
            taken = self._runs.send(sids[0], run) if all(one.takes_members for one in run) else 0
            blocker = self._runs.blocker(sids[0]) if taken else None
        if blocker is not None:
            queues.link_blockers.add(blocker)
        return taken

    def link_is_live(self, domain: str) -> None:
        """A link is up (again): renew what we listen to there, hand over what waits for it."""
        self._foreign.link_is_live(domain)
        self.on_live(domain)
        self._parked_actions.outbox.link_is_live(domain, time.time())

    def is_wanted(self, domain: str) -> bool:
        """True if a domain's link is needed although nothing is under way."""
        return self._foreign.is_wanted(domain) or self._parked_actions.outbox.is_wanted(domain)

    def _take(self, domain: str, number: int, message: Message, now: float) -> Code | None:
        is_response = message.type == "response"
        if is_response and self._own_requests.take_answer(message, domain):
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
            return Code.TRANSIT if domain_of(message.to) not in self._state.domains else None
        if message.type == "delete":
            self._foreign.object_deleted(message, domain)
        return self._send_queues.to_listeners(sids, message, self._send_queues.link_blockers)

    def _to_node(self, message: Message, decision: Decision, number: int, now: float) -> Code | None:
        """Let the node itself see to a message: serve it, find its user, or refuse it."""
        if decision is SERVE:
            self._effects.serve(message, number, self.own.send, now)
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


def _ignore(_domain: str) -> None:
    """Nobody else needs to know."""
