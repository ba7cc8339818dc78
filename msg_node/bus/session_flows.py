"""Flows of sessions: what their messages have in common is decided once, not for each.

A session mostly sends messages of one type from one address to one other. When such a message has gone the whole way
for the second time, what was decided about it is kept with the connection. The next ones need only what differs, and a
run of them goes on as one thing.

The whole way stays the definition. Whatever a flow was decided from may change at any time, and nobody has to say so:
once in each turn of its sender, before any message of the flow, the same functions are asked again that decide about
each message on the whole way. Within a turn nothing else happens, but for messages on the whole way: they begin a new
one.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from federation.links.flow_table import FlowMode
from federation.links.link_context import Refusal
from msg_node.addresses.core.observers import SUBSCRIPTION
from msg_node.bus.core.router import Decision, Decisions, Deliver, ToDomain
from msg_node.bus.core.tables import BusTables
from msg_node.bus.middleware import AUTHORISATION, Stack
from msg_node.bus.node_runs import NodeWay, RunsToNodes, goes_in_runs
from msg_node.bus.refusals import Refusals
from msg_node.bus.runtime_port import RuntimePort
from msg_node.bus.session_flow import ListenerWay, Outward, SessionFlow
from msg_node.kernel.congestion import Congestible
from msg_node.kernel.directories import OWN
from msg_node.kernel.links import NODES
from protofly import codec
from protofly.errors import Code
from protofly.header_text import header_text
from protofly.message import Message

logger = logging.getLogger("msg_node")

RUN_MESSAGES: Final = 64
"""Messages of one flow that go on as one thing: half a millisecond."""
_ELSEWHERE: Final = frozenset({"subscribe", "unsubscribe"})
"""Types of which more is noted than their destination."""


class SessionFlows:
    """Takes messages of flows.

    Args:
        stack: What each message passes before it leaves.
        refusals: Answers what is refused.
        runs: To other nodes; None: there are none.

    Attributes:
        router: Decides about each message on the whole way.
    """

    def __init__(
        self, state: BusTables, router: Decisions, stack: Stack, refusals: Refusals, runs: RunsToNodes | None = None
    ) -> None:
        self.router: Decisions = router
        self._twin = state.twin
        self._source_of = state.senders.source_of
        self._runs = runs
        self.judge_by(stack)
        self._refuse = refusals.refuse
        self._send_queues = refusals.send_queues
        self._turn = 0

    def judge_by(self, stack: Stack) -> None:
        """Have each message pass these steps before it leaves.

        A gate on our own bus judges each message with all its facts, and may send it elsewhere: then what stays in our
        domain goes the whole way.
        """
        self._judge = stack.judge_abroad
        self._has_own_gate = AUTHORISATION in stack.names

    def begin_turn(self) -> None:
        """Something else may have happened: each flow is looked at anew."""
        self._turn += 1

    def take(self, port: RuntimePort, frames: list[bytes], start: int, now: float) -> int:
        """Pass on messages of one flow, from frame `start`; returns how many. The next one goes the whole way.

        `now` is seconds since the Unix epoch.
        """
        message = self._matched(port, frames[start], now)
        flow = port.flows.last
        if message is None or flow is None:
            return 0
        run, decode = [message], flow.text.decode
        if self._judge is None:
            for index in range(start + 1, min(start + RUN_MESSAGES, len(frames))):
                message = decode(frames[index])
                if message is None:
                    break
                run.append(message)
        elif (refusal := self._judge(message, flow.sid, flow.roles, flow.domain, now)) is not None:
            self._refuse(port, message, refusal)
            return 1
        return self._send(port, flow, run, now)

    def _matched(self, port: RuntimePort, raw: bytes, now: float) -> Message | None:
        """Read a text of a flow that holds, which is the last one of the table then; None for any other text."""
        table = port.flows
        flow = table.last
        if flow is None:
            return None
        message = flow.text.decode(raw)
        if message is None:
            flow = table.find(raw)
            message = None if flow is None else flow.text.decode(raw)
            if flow is None or message is None:
                return None
            table.last = flow  # where the caller finds it
        if flow.turn != self._turn:
            if not self._is_current(flow, port, now):
                table.drop(flow)
                return None
            flow.turn = self._turn
        return message

    def _is_current(self, flow: SessionFlow, port: RuntimePort, now: float) -> bool:
        """True if the functions of the whole way decide what they decided when the flow was made."""
        like, sid = flow.like, flow.sid
        if port.sid != sid or port.guest_of or port.roles != flow.roles or self._twin.watches:
            return False
        if self._source_of(sid, like.from_key) is not OWN or not flow.outward.is_current:
            return False
        if self._has_own_gate and not flow.domain:
            return False
        decision = self.router.decide(like, sid, now)
        return type(decision) is type(flow.decision) and decision == flow.decision

    def _send(self, port: RuntimePort, flow: SessionFlow, run: list[Message], now: float) -> int:
        """Give messages to the way of their flow; what that does not take is judged like any other."""
        taken = flow.outward.send(run, now)
        port.flows.used(flow, taken)
        port.broken_in_a_row = 0
        refusal = None if taken else self._send_one(port, flow, run[0])
        if refusal is not None:
            self._refuse(port, run[0], refusal)
        elif (blocker := self._blocker(flow)) is not None:
            port.blockers.add(blocker)
        return taken or 1

    def _blocker(self, flow: SessionFlow) -> Congestible | None:
        decision = flow.decision
        if type(decision) is ToDomain:
            return self._send_queues.links.congested_link(decision.domain)
        number = decision.numbers[0]
        if number > 0:
            return self._send_queues.congested(number)
        return None if self._runs is None else self._runs.blocker(number)

    def _send_one(self, port: RuntimePort, flow: SessionFlow, message: Message) -> Refusal | None:
        """Do what the whole way does last."""
        decision = flow.decision
        if type(decision) is ToDomain:
            return self._send_queues.links.send(decision.domain, message, flow.roles)
        code = self._send_queues.to_listeners(decision.numbers, message, port.blockers, flow.roles)
        return None if code is None else Refusal(code)

    def notice(self, port: RuntimePort, message: Message, decision: Decision) -> None:
        """A message of a session of ours has gone the whole way, and was taken."""
        if type(decision) is Deliver:
            if len(decision.numbers) > 1 or NODES < decision.numbers[0] < 0 or self._has_own_gate:
                return
        elif type(decision) is not ToDomain or decision.numbers:
            return
        sid, to = port.sid, message.to
        if sid is None or not port.flows.wants(message):
            return
        if message.type in _ELSEWHERE or SUBSCRIPTION in to or to.startswith("domain://"):
            return
        text = header_text(message)
        outward = None if text is None else self._outward(port, message, decision)
        if text is not None and outward is not None:
            like = Message(message.id, message.type, message.from_, to, b"", b"")
            port.flows.keep(SessionFlow(text, like, sid, port.roles, decision, outward), like)

    def _outward(self, port: RuntimePort, message: Message, decision: ToDomain | Deliver) -> Outward | None:
        if type(decision) is ToDomain:
            return self._send_queues.links.flow(decision.domain, message, port.roles)
        number = decision.numbers[0]
        if not goes_in_runs(message.type, message.to):
            return None
        if number < 0:
            return None if self._runs is None else NodeWay(self._runs, number, port.roles)
        listener = self._send_queues.ports.get(number)
        return None if listener is None or listener.guest_of else ListenerWay(self._send_queues, number)


class _Expected(NamedTuple):
    """A message of a flow, and how many its link had sent before."""

    flow: SessionFlow
    message: Message
    sent: int


class VerifiedFlows(SessionFlows):
    """Lets every message go the whole way, and reports where a flow would have done something else."""

    _expected: _Expected | None = None

    def take(self, port: RuntimePort, frames: list[bytes], start: int, now: float) -> int:
        """See `SessionFlows.take`: none is taken."""
        message = self._matched(port, frames[start], now)
        flow = port.flows.last
        if message is not None and flow is not None:
            self._expected = _Expected(flow, message, flow.outward.sent)
        return 0

    def begin_turn(self) -> None:
        """The message, if there was one, has gone the whole way."""
        super().begin_turn()
        expected, self._expected = self._expected, None
        if expected is not None:
            self._compare(*expected)

    @staticmethod
    def _compare(flow: SessionFlow, message: Message, sent: int) -> None:
        is_alike = codec.decode(message.raw) == [message]
        difference = flow.outward.difference(message, sent) if is_alike else "it is read in another way"
        if difference:
            code, names = Code.FLOW_DIFFERS.word, (ascii(message.from_), ascii(message.to))
            text = '%s: %s from %s to %s: %s; set [debug] flows = "off", and report it'
            logger.error(text, code, ascii(message.type), *names, difference, extra={"code": code})


class NoFlows(SessionFlows):
    """Lets every message go the whole way."""

    def take(self, port: RuntimePort, frames: list[bytes], start: int, now: float) -> int:  # noqa: ARG002
        """See `SessionFlows.take`: none is taken."""
        return 0

    def notice(self, port: RuntimePort, message: Message, decision: Decision) -> None:
        """See `SessionFlows.notice`: nothing is kept."""


FLOWS: Final[dict[FlowMode, type[SessionFlows]]] = {"on": SessionFlows, "verify": VerifiedFlows, "off": NoFlows}
"""Handlers for messages of flows, by the value of `[debug] flows`."""
