"""The domain registry of several nodes: each has the entries of its own sessions, and a reader gets those of all.

A `read` is answered from here, then by every other node, and the answers become one: entries by address, or a list.
What cannot be asked in time has no part in it. Everything else is for the node whose session it is. Source: message
specification, section 10.6.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec
import trio

from msg_node.bus.node_questions import NodeQuestions
from msg_node.kernel.resources import check_criteria
from msg_node.kernel.service import Answer, Caller, ConnectorName, Inquiry, Service, ServiceRequest, inquire
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError

READ: Final = b"r"
_FOUND: Final = (408, 200)
"""Codes of answers that have entries: of those that are away, and of those of which one is connected."""


class RegistryRead(msgspec.Struct, frozen=True):
    """A `read` as it came."""

    raw: bytes


class RegistryAnswer(msgspec.Struct, frozen=True):
    """The answer of the registry of one node."""

    code: int
    value: object = None


class RegistryAnswers(msgspec.Struct, frozen=True):
    """The answers of the registries of the other nodes."""

    answers: Sequence[RegistryAnswer]
    missing: int = 0
    """Number of nodes that have not answered."""


REGISTRIES_OF_NODES: ConnectorName[RegistryRead, RegistryAnswers] = ConnectorName("nodes")
_decoder = msgspec.json.Decoder(RegistryAnswer)


def _joined(own: Answer, others: Sequence[RegistryAnswer]) -> Answer:
    """One answer of all: entries that are connected stand above those that are away."""
    found = [(own.code, own.value), *((one.code, one.value) for one in others)]
    ranked = sorted((one for one in found if one[0] in _FOUND), key=lambda one: _FOUND.index(one[0]))
    if not ranked or all(code == own.code and value is own.value for code, value in ranked):
        return own
    values = [value for _, value in ranked]
    joined: object = values[-1]
    if all(isinstance(value, dict) for value in values):
        joined = {name: one for value in values if isinstance(value, dict) for name, one in value.items()}
    elif all(isinstance(value, list) for value in values):
        joined = [one for value in reversed(values) if isinstance(value, list) for one in value]
    if ranked[-1][0] == 200:
        return Answer(200, joined)
    return Answer(408, joined, Code.TEMPORARILY_UNAVAILABLE.word, "Temporarily Unavailable")


class RegistriesOfNodes:
    """The registry of the domain over that of this node: asks those of the others, and answers theirs.

    Args:
        questions: Between nodes.
        registry: That of this node.
    """

    def __init__(self, questions: NodeQuestions, registry: Service) -> None:
        self._questions = questions
        self._registry = registry
        questions.answerers[READ] = self._answer

    def service(self, request: ServiceRequest) -> Answer | Inquiry:
        """Serve the registry of the domain; see `Service`."""
        answer = self._registry(request)
        if request.message.type != "read" or isinstance(answer, Inquiry):
            return answer

        def conclude(others: RegistryAnswers, _: float) -> Answer:
            return _joined(answer, others.answers)

        def failed(_error: HostError, _: float) -> Answer:
            return answer

        return inquire(REGISTRIES_OF_NODES, RegistryRead(request.message.raw), conclude, failed=failed)

    def ask_users(self, guid: str, domain: str, conclude: Callable[[Collection[str]], Answer | Inquiry]) -> Inquiry:
        """Ask the other nodes which users have registered a GUID there; `conclude` answers when all have said it.

        The inquiry raises PeerError TEMPORARILY_UNAVAILABLE while one of them does not.
        """

        def concluded(others: RegistryAnswers, _: float) -> Answer | Inquiry:
            if others.missing:
                raise PeerError(Code.TEMPORARILY_UNAVAILABLE, "another node of this domain does not answer: try again")
            lists = [one.value for one in others.answers if isinstance(one.value, list)]
            return conclude([str(entry.get("userID", "")) for entries in lists for entry in entries])

        body = {"resource": f"/hyperty/guid/{guid}", "shape": "list"}
        address = f"domain://registry.{domain}"
        message = {"type": "read", "from": address, "to": address, "body": body}
        return inquire(REGISTRIES_OF_NODES, RegistryRead(msgspec.json.encode(message)), concluded)

    async def ask(self, question: RegistryRead) -> RegistryAnswers:
        """Ask all nodes that are connected, at once. Never raises: who does not answer has no part in it."""
        answers: list[RegistryAnswer] = []
        nodes = list(self._questions.bus.connected)

        async def ask_one(node: str) -> None:
            try:
                answers.append(_decoder.decode(await self._questions.ask(node, READ, question.raw)))
            except (HostError, msgspec.MsgspecError):
                return

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(ask_one, node)
        return RegistryAnswers(answers, len(nodes) - len(answers))

    def _answer(self, text: bytes) -> bytes:
        message = codec.decode(text)[0]
        try:
            request = ServiceRequest(message, Caller(0), domain_of(message.to), time.time(), b"")
            check_criteria(request.members)
            answer = self._registry(request)
            if isinstance(answer, Inquiry) or message.type != "read":
                return msgspec.json.encode(RegistryAnswer(404))
            return msgspec.json.encode(RegistryAnswer(answer.code, answer.value))
        except PeerError as exc:
            return msgspec.json.encode(RegistryAnswer(exc.code.status))
