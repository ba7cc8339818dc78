"""The twin of several nodes: a thing is described at the node of its agent, and read at any.

A `read` is answered by all nodes at once, and the answers become one (`core/twin_answers`). What cannot be asked in
time has no part in it. Writes are for the node of the agent; the things of an agent go along when its session moves.
Source: message specification, section 19.2.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec
import trio

from msg_node.bus.core.twin_answers import joined_twins
from msg_node.bus.node_questions import NodeQuestions
from msg_node.kernel.service import Answer, Caller, ConnectorName, Inquiry, Service, ServiceRequest, inquire
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError

READ: Final = b"t"


class TwinRead(msgspec.Struct, frozen=True):
    """A `read` as it came."""

    raw: bytes


class TwinValues(msgspec.Struct, frozen=True):
    """The values that the twins of other nodes have, without the nodes that have none."""

    values: list[object]


TWINS_OF_NODES: ConnectorName[TwinRead, TwinValues] = ConnectorName("twins")


class TwinsOfNodes:
    """The twin of the domain over that of this node: asks those of the others, and answers theirs.

    Args:
        questions: Between nodes.
        twin: That of this node.
    """

    def __init__(self, questions: NodeQuestions, twin: Service) -> None:
        self._questions = questions
        self._twin = twin
        questions.answerers[READ] = self._answer

    def service(self, request: ServiceRequest) -> Answer | Inquiry:
        """Serve the twin of the domain; see `Service`."""
        if request.message.type != "read":
            return self._twin(request)
        own: list[object] = []
        missing: PeerError | None = None
        try:
            answer = self._twin(request)
        except PeerError as exc:
            if exc.code is not Code.NOT_REGISTERED:
                raise
            missing = exc
        else:
            if isinstance(answer, Inquiry):
                return answer
            own.append(answer.value)

        def conclude(others: TwinValues, _: float) -> Answer:
            values = [*own, *others.values]
            if not values and missing is not None:
                raise missing
            return Answer(value=joined_twins(values) if len(values) > 1 else values[0])

        def failed(_error: HostError, now: float) -> Answer:
            return conclude(TwinValues([]), now)

        return inquire(TWINS_OF_NODES, TwinRead(request.message.raw), conclude, failed=failed)

    async def ask(self, question: TwinRead) -> TwinValues:
        """Ask all nodes that are connected, at once. Never raises: who does not answer has no part in it."""
        values: list[object] = []

        async def ask_one(node: str) -> None:
            try:
                values.extend(msgspec.json.decode(await self._questions.ask(node, READ, question.raw), type=list))
            except (HostError, msgspec.MsgspecError):
                return

        async with trio.open_nursery() as nursery:
            for node in self._questions.bus.connected:
                nursery.start_soon(ask_one, node)
        return TwinValues(values)

    def _answer(self, text: bytes) -> bytes:
        """Answer another node: a list of nothing or of the value that is here. It has asked who may read."""
        message = codec.decode(text)[0]
        if message.type != "read":
            return b"[]"
        try:
            answer = self._twin(ServiceRequest(message, Caller(0), domain_of(message.to), time.time(), b""))
        except PeerError:
            return b"[]"
        return b"[]" if isinstance(answer, Inquiry) else msgspec.json.encode([answer.value])
