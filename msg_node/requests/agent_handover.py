"""Requests for agents of ours: handed over in order while the agent is connected, parked while it is not.

The twin for other domains is `outbox`. Source: message specification, section 19.
"""

from __future__ import annotations

from msg_node.kernel.counts import NodeCount
from msg_node.requests.cancellations import Cancellations
from msg_node.requests.core.delivery_messages import handed_over
from msg_node.requests.core.delivery_status import CANCELLED, Status, StatusReport
from msg_node.requests.core.outbound import OutboundQueues
from msg_node.requests.core.tables import RequestTables
from msg_node.requests.recorder import RequestRecorder
from protofly.address import canonical_key
from protofly.errors import Code

_DENIED = frozenset({Code.POLICY, Code.DOMAIN_BLOCKED})


class AgentHandover:
    """The queues of agents of ours."""

    def __init__(
        self, state: RequestTables, send_queues: OutboundQueues, recorder: RequestRecorder, cancellations: Cancellations
    ) -> None:
        self._state = state
        self._delivery = state.delivery
        self._queues = state.delivery.parking.queues
        self._send_queues = send_queues
        self._recorder = recorder
        self._cancellations = cancellations
        self._handed_on: dict[int, int] = {}  # by session: the connection that has what was handed over
        self._stalled: set[str] = set()  # queues whose takers could not take all that they may have

    def holder(self, queue: str) -> int:
        """The live session that answers for an agent; 0 when there is none."""
        sid = self._state.owners.owner(queue)
        return sid if sid is not None and sid in self._send_queues.ports else 0

    def hand_over(self, queue: str, now: float) -> None:
        """Send an agent what it may have now; no effect while it is away. What our gate denies has failed."""
        sid = self.holder(queue)
        if not sid:
            return
        taker = self._queues.taker_of(queue)
        if taker not in (0, sid):  # the address has another owner now
            self.lost(taker)
        self._handed_on[sid] = self._send_queues.ports[sid].connection
        entries = self._queues.take(queue, sid, unanswered=self._delivery.queues.rules(queue).unanswered)
        for index, entry in enumerate(entries):
            code = self._send_queues.to_listeners((sid,), handed_over(entry, now), set(), entry.roles)
            if code in _DENIED:  # now as later
                self._recorder.finish(entry, StatusReport.of_code(Status.FAILED, code))
                continue
            if code is not None:
                self._queues.untaken(entries[index:])
                self._stalled.add(queue)
                break
            self._recorder.counters[NodeCount.ACTIONS_HANDED_OVER] += 1
        if entries:
            self._send_queues.wake()

    def bound(self, sid: int) -> None:
        """A session has a connection (again), and was notified: send what waited for it."""
        now = self._recorder.now()
        port = self._send_queues.ports.get(sid)
        if port is None or self._handed_on.get(sid) != port.connection:  # else it was only renewed
            self.lost(sid)
        for queue in self._queues_of(sid):
            for entry in [one for one in self._queues.entries(queue) if one.is_cancelling]:
                self._cancellations.ask(entry, sid)
            self.hand_over(queue, now)
        session = self._state.sessions.get(sid)
        if session is not None and len(self._delivery.inboxes):
            owned = [canonical_key(row.url) for row in self._state.owners.owned(sid)]
            self._recorder.senders.notify_inboxes([*self._delivery.inboxes.owners_of(session.runtime_key), *owned])

    def lost(self, sid: int) -> None:
        """A session has lost its connection: park what it had not acknowledged, and end what was being cancelled."""
        self._handed_on.pop(sid, None)
        for queue in self._queues.lost(sid):
            waiting = [entry for entry in self._queues.entries(queue) if entry.status is Status.PENDING]
            for entry in waiting:
                if entry.is_cancelling:
                    self._recorder.finish(entry, CANCELLED)
            self._recorder.park([entry for entry in waiting if not entry.is_stored and not entry.is_cancelling])

    def hand_over_again(self, sid: int) -> None:
        """Repeat what a session was handed: its connection stands, but messages may have been lost on the way."""
        self.lost(sid)
        self.bound(sid)

    def retry(self, now: float) -> None:
        """Hand over from queues whose takers could not take all, every second or so."""
        stalled, self._stalled = self._stalled, set()
        for queue in stalled:
            self.hand_over(queue, now)

    def _queues_of(self, sid: int) -> list[str]:
        names, owners = self._queues.names(), self._state.owners
        session = self._state.sessions.get(sid)
        if not names or session is None:
            return []
        if len(names) <= owners.count(sid):
            return [queue for queue in names if owners.owner(queue) == sid]
        keys = [session.runtime_key, *(canonical_key(row.url) for row in owners.owned(sid))]
        return [key for key in keys if key in names]
