"""The links to other domains: one per domain, made when it is first needed, flushed together.

Source: design, section 3; message specification, section 18.1.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from itertools import count
from secrets import token_hex

import trio

from federation.core.auth import Claims
from federation.core.link_machine import LinkMachine, queues_of
from federation.core.stub_lifecycle import StubState
from federation.core.stub_status import StubAddresses, StubStatus
from federation.links.decision_records import DecisionRecords
from federation.links.domain_link import DomainLink
from federation.links.link_context import LinkContext, Refusal, refused_by
from federation.links.outward_flow import OutwardFlow
from federation.links.paused_senders import PausedSenders
from federation.links.visitors import Visitors, check_contact, greeting
from policy.core.engine import Facts
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message

logger = logging.getLogger("federation")

TICK_SECONDS = 0.25
TICKS_OF_QUIET_LINKS = 8
"""Every so many ticks links are looked at on which nothing waits, is under way, or is to be answered."""
PAUSE_SECONDS = 0.004
RESTART_SECONDS = 10.0
"""After a defect in the care for a link it is cared for again."""
MAX_LINKS = 256
CARRIERS_PER_DOMAIN = 8
"""Nodes of one domain that may be linked to us at once."""


class Federation:
    """All links of this node.

    Args:
        decisions: Judges, and records what the gate `peer` decides.
        stub_addresses: Says which address the stub of a domain has here.
        supervise: Runs the stub of one link for as long as it is needed; started once per link.
        max_links: Links at once. A peer that the settings name for itself gets its own in any case: whatever number of
            domains others have, they do not cut it off.

    Attributes:
        context: What the next link gets.
    """

    def __init__(
        self,
        context: LinkContext,
        decisions: DecisionRecords,
        stub_addresses: StubAddresses,
        *,
        supervise: Callable[[DomainLink], Awaitable[None]],
        max_links: int = MAX_LINKS,
    ) -> None:
        self.context = context
        self._rules = context.rules
        self._wake = context.bus.wake
        self._stub_addresses = stub_addresses
        self.decisions = decisions
        self._supervise = supervise
        self.max_links = max_links
        self._links: dict[str, DomainLink] = {}
        self.is_ours: Callable[[str], bool] = _always
        """Says if this node is to have the link to a domain; set before anything runs, where nodes share links."""
        self.visitors = Visitors(context, decisions)
        self.barred_messages = 0
        """Messages of ours to domains that we do not talk to: refused before there is a link."""
        self._dirty: set[DomainLink] = set()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run all links until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.open_lasting()
            task_status.started()
            for number in count(1):
                await trio.sleep(TICK_SECONDS)
                is_for_all = number % TICKS_OF_QUIET_LINKS == 0
                if is_for_all and self.is_ours is not _always:
                    self.open_lasting()  # links of nodes that have died may be ours by now
                looked_at = [link for link in self._links.values() if is_for_all or _is_owed(link.machine)]
                await _tick(looked_at, self.context.clock.monotonic)

    def open_lasting(self) -> None:
        """Start the stubs that run from the start and as long as they may: their users reach ours only through them.

        Those are interworking stubs, and stubs that the settings keep connected.
        """
        node = self._rules.ours.node
        for domain in (*self._rules.interworking.domains, *sorted(self.context.terms.connected)):
            if not self.is_ours(domain) or self.is_live(domain):
                continue
            try:
                (self._links.get(domain) or self.open_link(domain, greeting(node, node))).need.arise()
            except PeerError as exc:
                logger.error("the stub of %s cannot run: %s", domain, exc, extra={"domain": domain})

    @property
    def links(self) -> list[DomainLink]:
        """All links that exist."""
        return list(self._links.values())

    def hosted_stubs(self) -> list[StubStatus]:
        """The stubs of all links that ever needed theirs."""
        return [link.stub for link in self._links.values() if link.stub.state]

    def running_stubs(self) -> list[StubStatus]:
        """The stubs that have a worker process now."""
        return [link.stub for link in self._links.values() if link.stub.worker_pid is not None]

    def send(self, domain: str, message: Message, roles: frozenset[str] = frozenset()) -> Refusal | None:
        """Judge and queue one message for `domain`; a refusal is the caller's to answer. `roles` are its session's."""
        link = self._links.get(domain)
        if link is None:
            try:
                link = self.open_link(domain, message)
            except PeerError as exc:
                self.barred_messages += exc.code is Code.DOMAIN_BLOCKED
                return refused_by(exc)
        return link.send(message, roles)

    def flow(self, domain: str, message: Message, roles: frozenset[str]) -> OutwardFlow | None:
        """The shared decisions of the flow of the message that `send` just accepted; None: each is judged by itself."""
        link = self._links.get(domain)
        terms = None if link is None else link.outward.flow(message, roles)
        return None if link is None or terms is None else OutwardFlow(message, link, self._links, terms)

    def reach(self, domain: str, message: Message, roles: frozenset[str] = frozenset()) -> Refusal | None:
        """Have the link of a domain made, for a message that somebody keeps until it is up.

        A refusal says that the message may not go there. While it is kept, its domain is wanted (`LocalBus`).
        """
        try:
            link = self._links.get(domain) or self.open_link(domain, message)
            facts = Facts(
                "out",
                message,
                domain_of(message.from_),
                domain,
                domain,
                len(message.raw),
                0,
                time.time(),
                session_roles=roles,
                auth=message.verdict,
                link_class=self._rules.gate.class_of(domain),
            )
        except PeerError as exc:
            self.barred_messages += exc.code is Code.DOMAIN_BLOCKED
            return refused_by(exc)
        verdict = self.decisions.gate.judge(facts)
        if not verdict.permitted:
            code, msg_id = verdict.code or Code.POLICY, self._rules.ids.next(facts.now)
            recorded = link.records.kept_back(facts, verdict, msg_id, code, outcome="denied", policy_us=0)
            return Refusal(code, verdict.details_of(recorded))
        if verdict.decision.shadow:
            link.records.decided(facts, verdict)
        if not link.is_live:
            link.need.arise()
        return None

    def find(self, domain: str) -> DomainLink | None:
        """The link of a domain, None if there is none."""
        return self._links.get(domain)

    def is_live(self, domain: str) -> bool:
        """True when the link of a domain is up."""
        link = self._links.get(domain)
        return link is not None and link.is_live

    def _touched(self, link: DomainLink) -> None:
        self._dirty.add(link)
        self._wake()

    def flush(self) -> None:
        """Let every link that got something hand it to its carrier."""
        if self._dirty:
            dirty, self._dirty = self._dirty, set()
            for link in dirty:
                _flush(link)

    def congested_link(self, domain: str) -> PausedSenders | None:
        """The senders that pause for a domain, None while nobody has to."""
        link = self._links.get(domain)
        return link.senders if link is not None and link.senders.is_congested and not link.senders.is_slow else None

    def admit(self, claims: Claims) -> DomainLink:
        """Another node has proved its domain: give it the link of that domain.

        Raises:
            PeerError: As `Visitors.check`; OVERLOAD when there are too many links.
        """
        self.visitors.check(claims)
        domain = claims.iss
        probe = greeting(claims.node, self._rules.ours.node)
        try:
            link = self._links.get(domain) or self.open_link(domain, probe)
        except PeerError as exc:
            code = Code.AUTH_POLICY if exc.code in (Code.DOMAIN_BLOCKED, Code.POLICY) else exc.code
            raise PeerError(code, exc.detail, domain=domain) from exc
        if len(link.machine.carriers) >= CARRIERS_PER_DOMAIN:
            raise PeerError(Code.AUTH_LIMIT, "too many links of this domain at once", domain=domain)
        return link

    def open_link(self, domain: str, message: Message) -> DomainLink:
        """Make the link of a domain; policy is asked before anything else is done about it.

        Raises:
            PeerError: NAME_INVALID, DOMAIN_BLOCKED, OVERLOAD.
        """
        check_contact(self.decisions, domain, message)
        is_named = self.decisions.gate.names(domain)  # they are as many as the operator wrote
        if len(self._links) >= self.max_links and not self._drop_idle() and not is_named:
            raise PeerError(Code.OVERLOAD, "too many foreign domains at once", domain=domain)
        stub_url = self._stub_addresses.of(domain)
        link = DomainLink(domain, token_hex(16), stub_url, self.context, touched=self._touched)
        link.need.asked_by = message.from_
        self._links[domain] = link
        assert self._nursery is not None
        self._nursery.start_soon(self._run_link, link)
        return link

    async def _run_link(self, link: DomainLink) -> None:
        with link.scope:
            while not await _ends_soundly(link, self._supervise):
                await trio.sleep(RESTART_SECONDS)
                if not link.is_idle:
                    link.need.arise()

    def cut_off(self, domain: str, code: Code, detail: str) -> bool:
        """End the link of a domain at once, and stop its stub; False if it has none. The next one passes the gate."""
        link = self._links.pop(domain, None)
        if link is not None:
            link.retire(code, detail)
        return link is not None

    def restart(self, domain: str) -> bool:
        """Stop the stub of a domain at once and start it anew, with a clean record; False if it has no link.

        Messages that it had go again, with their numbers.
        """
        link = self._links.get(domain)
        if link is None or self._nursery is None:
            return False
        link.scope.cancel()
        if link.stub.state:
            link.stub.became(StubState.DISCONNECTED.value, "", now=time.time())
        link.machine.refusal = link.machine.last_code = None  # what comes now waits for the new start
        link.scope = trio.CancelScope()
        self._nursery.start_soon(self._run_link, link)
        link.need.arise()
        return True

    def _drop_idle(self) -> bool:
        for domain, link in self._links.items():
            if link.is_idle and not link.is_live:
                link.retire(Code.OVERLOAD, "the link is closed")
                del self._links[domain]
                return True
        return False


async def _tick(links: list[DomainLink], monotonic: Callable[[], float]) -> None:
    """Answer what waited too long, of all links in turns: one that has very much of it holds nobody up."""
    while links:
        unfinished = []
        for link in links:
            if _is_unfinished(link, monotonic()):
                unfinished.append(link)
                await trio.sleep(PAUSE_SECONDS)
        links = unfinished


def _is_unfinished(link: DomainLink, now: float) -> bool:
    """Look at one link; true when there may be more to answer."""
    try:
        return link.tick(now)
    except Exception:  # a defect of ours may cost this domain what waits, never the node
        logger.exception("the link to %s failed", link.domain, extra={"domain": link.domain})
        return False


def _flush(link: DomainLink) -> None:
    """Let the carriers of one link take what waits."""
    try:
        link.flush()
    except Exception:  # a defect of ours may cost this domain what waits, never the node
        logger.exception("the link to %s failed", link.domain, extra={"domain": link.domain})


async def _ends_soundly(link: DomainLink, supervise: Callable[[DomainLink], Awaitable[None]]) -> bool:
    """Run the stub of one link for as long as it is needed; false when that has failed."""
    try:
        await supervise(link)
    except Exception:  # a defect of ours may cost this domain a while, never the node
        logger.exception("the care for the link to %s failed", link.domain, extra={"domain": link.domain})
        return False
    return True


def _always(_domain: str) -> bool:
    """A node alone has every link."""
    return True


def _is_owed(machine: LinkMachine) -> bool:
    """True when messages wait or are under way, or replies are expected: then time may be up for some of them."""
    return len(machine.replies) > 0 or any(queue.waiting or queue.under_way for queue in queues_of(machine))
