"""Reports of recipients of requests: answers of agents, and answers and events of other nodes.

Source: message specification, sections 18.4 and 19.
"""

from __future__ import annotations

from msg_node.kernel.counts import NodeCount
from msg_node.requests.agent_handover import AgentHandover
from msg_node.requests.cancellations import Cancellations, is_undone
from msg_node.requests.core.delivery_status import CANCELLED, Status, StatusReport, report_of
from msg_node.requests.core.parked import ParkedRequest
from msg_node.requests.core.recipients import is_domain
from msg_node.requests.core.tables import RequestTables
from msg_node.requests.outbox import NOT_NOW, Outbox
from msg_node.requests.recorder import RequestRecorder
from protofly import codec
from protofly.answer_codes import code_of
from protofly.errors import PeerError
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import Message


class RequestAnswers:
    """Applies reports about open requests. A request that ended makes place for the next one of its queue."""

    def __init__(
        self,
        state: RequestTables,
        recorder: RequestRecorder,
        agents: AgentHandover,
        outbox: Outbox,
        cancellations: Cancellations,
    ) -> None:
        self._state = state
        self._parking = state.delivery.parking
        self._recorder = recorder
        self._agents = agents
        self._outbox = outbox
        self._cancellations = cancellations

    def answered(self, message: Message, number: int) -> bool:
        """Apply the answer of a session or link. Returns False when it is about no request here.

        An answer of anyone but the taker is dropped and counted.
        """
        cancelled = self._cancellations.take_answered(message)
        if cancelled is not None:
            if is_undone(message) and self._parking.is_open(cancelled):
                self._reported(cancelled, CANCELLED)
            return True
        entry = self._parking.answered_by(message)
        if entry is None:
            if not self._parking.finished.is_late(message, self._recorder.now()):
                return False
            self._recorder.counters[NodeCount.LATE_ANSWERS] += 1
            return True
        if is_domain(entry.queue):
            is_of_taker = number < 0 and self._state.links.domain(number) == entry.queue
        else:
            is_of_taker = number > 0 and self._state.owners.owner(entry.queue) == number
        if not is_of_taker or entry.status is Status.PENDING:
            self._recorder.counters[NodeCount.REFUSED_ANSWERS] += 1
            return True
        self._reported(entry, report_of(message), message)
        return True

    def link_refused(self, message: Message) -> bool:
        """Apply the answer that our own link gives in place of the other node. False when it is about no request here.

        What could not leave waits for the next link.
        """
        entry = self._parking.answered_by(message)
        if entry is None or not is_domain(entry.queue):
            return False
        if code_of(message) not in NOT_NOW:
            self._reported(entry, report_of(message))
        elif entry.status is not Status.PENDING and not entry.is_acknowledged:
            self._parking.queues.untaken([entry])
        return True

    def notified(self, domain: str, message: Message) -> bool:
        """Apply an event of another node, to the inbox of a sender of ours, about how its request stands.

        Returns:
            False when it is no such event. One about a request that is not open any more has no effect.
        """
        if message.from_key != f"domain://msg-node.{domain}/delivery":
            return False
        try:
            members = codec.body_members(message.body)
        except PeerError:
            return False
        request_id = members.get("requestId")
        entry = self._parking.find("", request_id) if isinstance(request_id, str) else None
        if entry is not None and entry.queue == domain and message.to_key == f"{entry.request.from_key}/inbox":
            self._reported(entry, report_of(message))
        return True

    def _reported(self, entry: ParkedRequest, word: StatusReport, answer: Message | None = None) -> None:
        """Apply one report: the final answer, that another node keeps the request, or that its taker works on it."""
        if word.status.is_final:
            self._recorder.finish(entry, word, answer=answer)
            self._hand_over(entry.queue)
            return
        is_kept_elsewhere = word.code >= 200
        is_news = self._parking.acknowledged(entry, word.status)
        if is_kept_elsewhere:
            self._parking.queues.release(entry)
        is_owed, senders = entry in self._parking.owed, self._recorder.senders
        if is_owed and is_kept_elsewhere:
            self._recorder.park([entry])
        elif is_owed:
            self._parking.owed.add(entry, self._recorder.now() + REQUEST_TTL_SECONDS)
            senders.reply(entry, word, answer)
        elif entry.is_invitation:
            senders.reply(entry, word, answer)
        elif is_news and word.status is Status.DELIVERED:
            senders.notify(entry, word)
        if is_kept_elsewhere:
            self._hand_over(entry.queue)

    def _hand_over(self, queue: str) -> None:
        if self._parking.queues.waiting(queue):
            recipient = self._outbox if is_domain(queue) else self._agents
            recipient.hand_over(queue, self._recorder.now())
