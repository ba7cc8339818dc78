"""Policies of objects that are at other nodes: asked before a service of this node speaks about these objects.

The node of the owner asks the policy of an object (`body.policy`) about each message that comes to it. Two services
answer at the node of the asker, though: who subscribes at `/sm` hears the object from then on, and the twin is read at
any node. So the nodes where the owners of named objects are judge such a request first. While one of them cannot be
asked, the request is refused: a policy that is not known must not open what it is to close.
Source: message specification, section 1.3; feature row PE-23.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import trio

from msg_node.bus.core.tables import BusTables
from msg_node.bus.node_questions import NodeQuestions
from msg_node.bus.node_routing import names_above
from msg_node.bus.node_runs import NoObjects, ObjectsHere
from msg_node.cluster.directory import Directory, found_soon
from msg_node.kernel.credentials import shown_of
from msg_node.kernel.service import Answer, ConnectorName, Inquiry, Service, ServiceRequest, inquire
from msg_node.registries.policy_documents import named_addresses
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError

JUDGE: Final = b"o"
_JUDGED: Final = {"sm": "subscribe", "twin": "read"}
"""The requests that are judged, by the name of the service below the node."""


class ObjectsElsewhere(msgspec.Struct, frozen=True):
    """A request to a service that names objects of other nodes, by canonical key, and the question to these nodes."""

    keys: tuple[str, ...]
    text: bytes


class _Question(msgspec.Struct, frozen=True):
    """The request, base64 as JSON has it, the roles of its sender, and whether that is of another domain."""

    message: bytes
    roles: tuple[str, ...] = ()
    is_from_abroad: bool = False


class ObjectJudgement(msgspec.Struct, frozen=True):
    """Verdict of the policies of objects at one node: "" permits the request, else the word of a code."""

    code: str = ""
    rule: str = ""
    msg_id: str = ""


PERMITTED: Final = ObjectJudgement()
_question_decoder = msgspec.json.Decoder(_Question)
_judgement_decoder = msgspec.json.Decoder(ObjectJudgement)

OBJECTS_OF_NODES: ConnectorName[ObjectsElsewhere, ObjectJudgement] = ConnectorName("objects")


class PoliciesOfNodes:
    """Stands before services, and has the nodes of named objects judge requests to them.

    Args:
        node: The name of this node.
        state: Who owns what here, and who asks.
        questions: Between nodes.
        directory: Where the owners of objects are.

    Attributes:
        objects: Judges what other nodes ask about objects of this one.
    """

    def __init__(self, node: str, state: BusTables, questions: NodeQuestions, directory: Directory) -> None:
        self._node = node
        self._state = state
        self._questions = questions
        self._directory = directory
        self.objects: ObjectsHere = NoObjects()
        questions.answerers[JUDGE] = self._answer

    def over(self, service: Service, judged: str) -> Service:
        """The same service, for requests of a type that the policies of the objects that they name let pass."""

        def serve(request: ServiceRequest) -> Answer | Inquiry:
            keys = self._elsewhere(request) if request.message.type == judged else ()
            if not keys:
                return service(request)

            def conclude(judgement: ObjectJudgement, _: float) -> Answer | Inquiry:
                if judgement.code:
                    code = next((one for one in Code if one.word == judgement.code), Code.POLICY)
                    raise PeerError(code, judgement.rule, msg_id=judgement.msg_id)
                if not request.caller.is_link and self._state.sessions.get(request.caller.number) is None:
                    raise PeerError(Code.NOT_CONNECTED, "the session has ended")
                return service(request)

            return inquire(OBJECTS_OF_NODES, ObjectsElsewhere(keys, self._question(request)), conclude)

        return serve

    def _elsewhere(self, request: ServiceRequest) -> tuple[str, ...]:
        """Objects of our domains that a request names, and that nobody here owns."""
        owners = self._state.owners
        return tuple(
            key
            for key in dict.fromkeys(named_addresses(request.message))
            if not key.startswith("thing://")
            and domain_of(key) in self._state.domains
            and owners.owner(key) is None
            and owners.owner_above(key) is None
        )

    def _question(self, request: ServiceRequest) -> bytes:
        caller = request.caller
        session = None if caller.is_link or caller.is_guest else self._state.sessions.get(caller.number)
        roles = () if session is None else tuple(sorted(shown_of(session.proof)))
        return msgspec.json.encode(_Question(request.message.raw, roles, caller.is_link or caller.is_guest))

    async def ask(self, asked: ObjectsElsewhere) -> ObjectJudgement:
        """Have the nodes of these objects judge, all at once.

        Raises:
            HostError: POLICY_UNAVAILABLE: one of them, or the directory, cannot be asked.
        """
        try:
            claims = await found_soon(self._directory, {name for key in asked.keys for name in names_above(key)})
        except HostError as exc:
            raise HostError(Code.POLICY_UNAVAILABLE, "the directory does not answer") from exc
        judgements: list[ObjectJudgement] = []

        async def ask_one(node: str) -> None:
            judgements.append(await self._asked(node, asked.text))

        try:
            async with trio.open_nursery() as nursery:
                for node in {claim.node for claim in claims.values()} - {self._node, ""}:
                    nursery.start_soon(ask_one, node)
        except* HostError as group:
            raise HostError(Code.POLICY_UNAVAILABLE, "the node of the object cannot be asked now") from group
        return next((one for one in judgements if one.code), PERMITTED)

    async def _asked(self, node: str, text: bytes) -> ObjectJudgement:
        """Raises HostError."""
        if node not in self._questions.bus.connected:
            raise HostError(Code.NOT_CONNECTED, f"node {node} is not connected")
        try:
            return _judgement_decoder.decode(await self._questions.ask(node, JUDGE, text))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise HostError(Code.NOT_CONNECTED, "the answer of the node cannot be read") from exc

    def _answer(self, text: bytes) -> bytes:
        """Judge for another node, whose gates have let the request pass. Raises PeerError: PROTOCOL_ERROR."""
        try:
            question = _question_decoder.decode(text)
            message = codec.decode(question.message)[0]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, codec.BrokenMessageError) as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "the question cannot be read") from exc
        refusal = self.objects.narrow(message, frozenset(question.roles), is_from_abroad=question.is_from_abroad)
        if refusal is None:
            return msgspec.json.encode(PERMITTED)
        value = refusal.value or {}
        rule = "" if question.is_from_abroad else str(value.get("rule", ""))
        return msgspec.json.encode(ObjectJudgement(refusal.code.word, rule, str(value.get("msgId", ""))))


def guarded_services(domains: Iterable[str]) -> dict[str, str]:
    """The services that answer at the node of the asker about objects of all nodes, and which of their requests.

    By canonical key; a service of each of these domains.
    """
    return {f"domain://msg-node.{domain}/{name}": type_ for domain in domains for name, type_ in _JUDGED.items()}
