"""Refusals of the bus, and the other answers that it makes in place of a recipient."""

from __future__ import annotations

from dataclasses import dataclass

from federation.links.link_context import Refusal
from msg_node.bus.core.admission import is_refusal_sent
from msg_node.bus.own_messages import OwnMessages
from msg_node.bus.own_requests import OwnRequests
from msg_node.bus.runtime_port import RuntimePort
from msg_node.bus.send_queues import SendQueues
from msg_node.kernel.answers import session_refusal
from msg_node.kernel.counts import NodeCount
from msg_node.requests.local_requests import LocalRequests
from msg_node.requests.parked_actions import ParkedActions
from protofly import codec
from protofly.errors import Code
from protofly.message import Message


@dataclass(frozen=True, slots=True)
class Refusals:
    """Answers requests that come to nothing.

    Attributes:
        node: Address of this node, named as the source of refusals.
        own: Routes answers whose asker is not at hand.
        parked_actions: Park a request instead of its refusal, if a policy wants that.
        own_requests: Requests of the node's own that wait for an answer.
        requests: Requests between sessions that wait for one.
    """

    node: str
    send_queues: SendQueues
    own: OwnMessages
    parked_actions: ParkedActions
    own_requests: OwnRequests
    requests: LocalRequests

    def refuse(self, port: RuntimePort, message: Message, refusal: Refusal) -> None:
        """Refuse a message that came over a connection: count it, and answer it if it expects that."""
        if port.sid is not None and self.parked_actions.parks(refusal.code, message, port.sid, port.roles):
            return
        self.send_queues.counters[NodeCount.REFUSED.of(refusal.code.word)] += 1
        if message.expects_reply or is_refusal_sent(message, refusal.code):
            has_desc = port.line.dialect.reads_desc
            if refusal.instead is not None and refusal.instead.code:
                status, description = refusal.instead.code, refusal.instead.description or None
                extra = {"source": self.node}
                reply = codec.response(message, status, description=description, extra=extra, has_desc=has_desc)
            else:
                code, value, detail = refusal.code, refusal.value, refusal.detail
                reply = session_refusal(message, code, value, source=self.node, has_desc=has_desc, detail=detail)
            self.send_queues.enqueue(port, reply)

    def refuse_later(self, number: int, message: Message, refusal: Refusal) -> None:
        """Refuse a message that waited, to the session or the link that it came from."""
        port = self.send_queues.ports.get(number)
        if port is not None:
            self.refuse(port, message, refusal)
        elif number < 0 and message.expects_reply:
            self.own.send(codec.refusal(message, refusal.code, source=self.node, detail=refusal.detail))

    def answer(self, message: Message) -> None:
        """Route a reply that the node made in place of somebody else."""
        if not self.own_requests.take_answer(message, "") and not (
            self.parked_actions.is_used and self.parked_actions.answers.link_refused(message)
        ):
            self.own.send(message)
        self.send_queues.wake()

    def unread(self, message: Message) -> None:
        """A message expired before a slow runtime read it: answer it, unless what it asks is answered otherwise."""
        self.send_queues.counters[NodeCount.EXPIRED] += 1
        self.undelivered(message, Code.TIMEOUT)

    def undelivered(self, message: Message, code: Code) -> None:
        """A message was on its way and did not arrive: answer it, unless what it asks is answered otherwise."""
        if message.expects_reply and not self.parked_actions.keeps(message) and not self.requests.ended_unread(message):
            self.answer(codec.refusal(message, code, source=self.node))

    def refuse_overdue(self, code: Code = Code.GATEWAY_TIMEOUT) -> bool:
        """Answer some of the requests between sessions whose time is over. Returns True if work may remain."""
        overdue = list(self.requests.overdue())
        for awaited in overdue:
            self.send_queues.counters[NodeCount.TIMEOUTS] += 1
            self.refuse_later(awaited.sid, awaited.request, Refusal(code))
        return bool(overdue)

    def refuse_open(self, code: Code) -> None:
        """Answer all requests between sessions that have no reply yet."""
        self.requests.abandon()
        while self.refuse_overdue(code):
            pass
