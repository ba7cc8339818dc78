"""Where requests stand, in a domain of several nodes: each waits at one of them, and any answers about it.

What this node has, it answers by itself. About any other request, and for a list, it asks all nodes at once, and says
who asks in words that each can judge (`Viewer`). A node that cancels a request answers when that is durable. As long as
a node cannot be asked that may have a request, nobody says that there is none: the sender would take it for undone.
Source: message specification, section 19.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec
import trio

from msg_node.bus.effects import Effects
from msg_node.bus.node_questions import NodeQuestions
from msg_node.kernel.changes import Change
from msg_node.kernel.service import (
    Answer,
    Caller,
    ConnectorName,
    Durability,
    Inquiry,
    ServiceRequest,
    ServiceResult,
    inquire,
)
from msg_node.requests.core.delivery_service import DeliveryService, request_id_of
from msg_node.requests.core.viewer import Viewer
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError
from protofly.message import Message

ASK: Final = b"d"


class DeliveryQuestion(msgspec.Struct, frozen=True):
    """A request to the service as it came, and who asks."""

    viewer: Viewer
    message: msgspec.Raw


class DeliveryAnswer(msgspec.Struct, frozen=True):
    """The body of what one node answers."""

    code: int
    description: str = ""
    reason: str = ""
    value: object = msgspec.UNSET


class DeliveryAnswers(msgspec.Struct, frozen=True):
    """Answers of the other nodes; `is_whole` is False if a node that may have entries could not be asked."""

    answers: Sequence[DeliveryAnswer]
    is_whole: bool = False


DELIVERY_OF_NODES: ConnectorName[DeliveryQuestion, DeliveryAnswers] = ConnectorName("delivery")
_question_decoder = msgspec.json.Decoder(DeliveryQuestion)
_answer_decoder = msgspec.json.Decoder(DeliveryAnswer)
_OK: Final = 200
_NOT_HERE: Final = Code.NO_SUCH_REQUEST


class DeliveryOfNodes:
    """The service of the domain over that of this node: asks those of the others, and answers theirs.

    Args:
        questions: Between nodes.
        delivery: That of this node.
        take_changes: Gives what that has changed.
        unreachable: Names of nodes that may have requests and cannot be asked.

    Attributes:
        effects: Make durable what others cancel here; set once, before anything runs.
    """

    def __init__(
        self,
        questions: NodeQuestions,
        delivery: DeliveryService,
        take_changes: Callable[[], list[Change]],
        unreachable: Callable[[], Sequence[str]],
    ) -> None:
        self._questions = questions
        self._delivery = delivery
        self._take_changes = take_changes
        self._unreachable = unreachable
        self.effects: Effects
        questions.late_answerers[ASK] = self._answer

    def service(self, request: ServiceRequest) -> Answer | Inquiry:
        """Serve requests about requests of the domain; see `Service`."""
        viewer = self._delivery.viewer(request.caller)
        own: Answer | None = None
        try:
            own = self._delivery.serve(request, viewer)
        except PeerError as exc:
            if exc.code is not _NOT_HERE:
                raise
        request_id = request_id_of(request)
        if own is not None and request_id:
            return own

        def conclude(others: DeliveryAnswers, _: float) -> Answer:
            if own is not None:
                return _joined(own, others.answers)
            found = next((one for one in others.answers if one.reason != _NOT_HERE.word), None)
            if found is not None:
                return Answer(found.code, found.value, found.reason, found.description, durability=Durability.REQUIRED)
            if not others.is_whole:
                raise PeerError(Code.NOT_CONNECTED, "a node that may have the request cannot be asked; try again")
            if self._delivery.has_given(viewer, request_id):
                raise PeerError(Code.NOT_CONNECTED, "the request is on its way to another node; try again")
            raise PeerError(_NOT_HERE, "no such request is known")

        def failed(_error: HostError, now: float) -> Answer:
            return conclude(DeliveryAnswers([]), now)

        question = DeliveryQuestion(viewer, msgspec.Raw(request.message.raw))
        return inquire(DELIVERY_OF_NODES, question, conclude, failed=failed)

    async def ask(self, question: DeliveryQuestion) -> DeliveryAnswers:
        """Ask all nodes that are connected, at once. Never raises: who does not answer makes the answers not whole."""
        text, answers, silent = msgspec.json.encode(question), list[DeliveryAnswer](), list[str]()

        async def ask_one(node: str) -> None:
            try:
                answers.append(_answer_decoder.decode(await self._questions.ask(node, ASK, text)))
            except (HostError, msgspec.MsgspecError):
                silent.append(node)

        async with trio.open_nursery() as nursery:
            for node in self._questions.bus.connected:
                nursery.start_soon(ask_one, node)
        return DeliveryAnswers(answers, is_whole=not silent and not self._unreachable())

    def _answer(self, text: bytes, answer: Callable[[bytes], None]) -> None:
        """Answer another node, when what it has changed here is durable. Raises PeerError: PROTOCOL_ERROR."""
        try:
            question = _question_decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "the question cannot be read") from exc
        message = codec.decode(bytes(question.message))[0]
        durability = Durability.REQUIRED
        try:
            request = ServiceRequest(message, Caller(0), domain_of(message.to), time.time(), b"")
            found = self._delivery.serve(request, question.viewer)
            reply = codec.response(message, found.code, description=found.description, value=found.value)
        except PeerError as exc:
            reply, durability = codec.refusal(message, exc.code, detail=exc.detail), Durability.NONE

        def leave(reply: Message) -> None:
            answer(bytes(reply.body))

        changes = self._take_changes()
        self.effects.apply(ServiceResult(replies=[reply], changes=changes, durability=durability), leave)


def _joined(own: Answer, others: Sequence[DeliveryAnswer]) -> Answer:
    """One list of all: what is parked here, then what is elsewhere."""
    listed = [own.value, *(one.value for one in others if one.code == _OK)]
    joined = [entry for value in listed if isinstance(value, list) for entry in cast("list[object]", value)]
    return Answer(value=joined, durability=Durability.REQUIRED)
