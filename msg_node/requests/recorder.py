"""Makes what happens to a request durable, then reports it to its sender.

A sender that waits for a reply is answered directly, any other through its inbox. No report leaves before what it
promises is on the disk. Source: message specification, section 19.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from secrets import randbits

from msg_node.kernel.counts import NodeCount
from msg_node.kernel.service import Durability, ServiceResult
from msg_node.requests.core.delivery_messages import status_reply, waiting_report
from msg_node.requests.core.delivery_status import Status, StatusReport
from msg_node.requests.core.outbound import OutboundQueues
from msg_node.requests.core.parked import ParkedRequest
from msg_node.requests.core.recent_results import RecentResults
from msg_node.requests.core.tables import RequestTables
from msg_node.requests.senders import Apply, Senders, to_nobody
from protofly.address import domain_of
from protofly.counters import Counters
from protofly.errors import Code
from protofly.message import Message

_ID_BITS = 31


class RequestRecorder:
    """Stores requests that wait, ends those that are finished, and reports both.

    Args:
        node: Address of this node.
        apply: See `Apply`.

    Attributes:
        url: Address of our service `delivery`, in whose name requests are reported and cancelled.
        ids: For messages of our own.
        recent: Results of actions that ended lately.
        on_parked: Called with the queue of each request that is stored.
        now: The clock of the bus: seconds since the Unix epoch.
    """

    def __init__(
        self,
        state: RequestTables,
        send_queues: OutboundQueues,
        counters: Counters,
        *,
        node: str,
        apply: Apply,
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._parking = state.delivery.parking
        self._send_queues = send_queues
        self._apply = apply
        self.counters = counters
        self.now = now
        self.url = f"domain://msg-node.{domain_of(node)}/delivery"
        self.ids = count(randbits(_ID_BITS))  # message specification, section 3, rule 7
        self.senders = Senders(state, send_queues, url=self.url, apply=apply, ids=self.ids, now=now)
        self.recent = RecentResults()
        self.on_parked: Callable[[str], None] = lambda _queue: None
        self._unreported: set[ParkedRequest] = set()  # parked; their replies wait for the commit

    def park(self, entries: Iterable[ParkedRequest]) -> None:
        """Store requests, and answer senders that wait for a reply that theirs is parked."""
        for entry in entries:
            if not entry.is_stored:
                self._parking.store(entry)
                self.counters[NodeCount.ACTIONS_PARKED] += 1
                self.on_parked(entry.queue)
            is_owed = entry in self._parking.owed or entry.is_invitation
            self._parking.owed.discard(entry)
            if not is_owed:
                continue
            reply = status_reply(entry, waiting_report(entry))
            answer = partial(self._parked, entry)
            self._unreported.add(entry)
            changes = self._state.take_changes()
            self._apply(ServiceResult(replies=[reply], changes=changes, durability=Durability.REQUIRED), answer)
        self.commit()

    def park_owed(self) -> None:
        """The node stops: store every request whose sender still waits for a direct reply, and answer that it waits."""
        while owed := self._parking.owed.overdue(math.inf):
            self.park(owed)

    def finish(self, entry: ParkedRequest, word: StatusReport, *, answer: Message | None = None) -> None:
        """End an open request with its final answer, and send that to its sender if it waits, else to its inbox."""
        is_owed, now = entry in self._parking.owed, self.now()
        self._parking.finish(entry, word, now)
        self.recent.keep(entry, word, time.monotonic())
        self.counters[NodeCount.ACTIONS.of(word.status.value)] += 1
        if not ((is_owed or entry.is_invitation) and self.senders.reply(entry, word, answer)):
            self.senders.notify(entry, word)

    def withdraw(self, entry: ParkedRequest) -> None:
        """End a request that is refused after all, without a report; no effect when it has ended."""
        if self._parking.is_open(entry):
            self._parking.finish(entry, StatusReport.of_code(Status.FAILED, Code.STORAGE), self.now())
            self.commit()

    def report_again(self, entry: ParkedRequest) -> None:
        """Answer a repetition of an open request: how it stands, unless the reply to the first one is still to come."""
        self.counters[NodeCount.REPEATED_REQUESTS] += 1
        if entry not in self._parking.owed and entry not in self._unreported:
            self.senders.send_to_sender(entry, status_reply(entry, waiting_report(entry)))

    def report_end_again(self, reply: Message, send: Callable[[Message], None]) -> None:
        """Answer a repetition of a request that has ended, when this end is durable; `send` takes the reply."""
        self.counters[NodeCount.REPEATED_REQUESTS] += 1
        self._apply(ServiceResult(replies=[reply], durability=Durability.REQUIRED), send)

    def commit(self) -> None:
        """Have stored what has changed and no reply waits for."""
        changes = self._state.take_changes()
        if changes:
            self._apply(ServiceResult(changes=changes), to_nobody)

    def _parked(self, entry: ParkedRequest, reply: Message) -> None:
        """Send the reply that a request is parked, or that it could not be stored: then it ends."""
        self._unreported.discard(entry)
        if bytes(reply.peek.code).startswith(b"5"):
            self.withdraw(entry)
        if entry.sender.domain:
            self._send_queues.links.send(entry.sender.domain, reply)
        else:
            self.senders.reply_to(entry.asker, reply)
