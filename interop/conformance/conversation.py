"""What is said between the participants of a case and the node: messages out, messages in, names and transcript."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Final

import trio

from interop.conformance.filling import Manner
from interop.conformance.jsontext import Json, NotJsonError, parse, shorten, write
from interop.conformance.matching import Comparison, Open, describe
from interop.conformance.model import Success
from interop.conformance.outcome import NoAnswerError, NodeFaultError
from interop.conformance.stage import Node, Participant, Transcript

NAMES: Final = ("ana", "bo", "cy")
"""Names that a case may use without having them in its cast."""


class Conversation:
    """Sends and receives for the participants of one case, and holds what comes against patterns.

    `names` are the values for the braces in a case's texts; matching adds to them.
    """

    def __init__(self, nursery: trio.Nursery, node: Node, manner: Manner, cast: Iterable[str]) -> None:
        self.nursery, self.node, self.manner = nursery, node, manner
        self.transcript = Transcript()
        self.participants: dict[str, Participant] = {}
        word = secrets.token_hex(5)
        address = f"domain://msg-node.{node.domain}"
        self.names: dict[str, str] = {
            "d": node.domain,
            "d.upper": node.domain.upper(),
            "n": word,
            "node": address,
            "sm": f"{address}/sm",
            "allocation": f"{address}/address-allocation",
        }
        for who in (*NAMES, *cast):
            self.names[who] = f"runtime://{node.domain}/{node.runtime_prefix}{word}-{who}"

    async def say(self, participant: Participant, message: Mapping[str, Json]) -> None:
        """Send one message."""
        await self.say_text(participant, write(message))

    async def say_text(self, participant: Participant, text: str) -> None:
        """Send one text, which may be anything."""
        self.transcript.note(participant.name, "→", text)
        try:
            participant.sent = parse(text, allow_duplicates=True)
        except NotJsonError:
            participant.sent = None
        await participant.line.send(text)

    async def receive(self, participant: Participant, expected: Json) -> Json:
        """The next message to a participant."""
        with trio.move_on_after(self.node.patience_seconds) as scope:
            message = await participant.line.receive()
        if scope.cancelled_caught:
            raise NoAnswerError(f"{participant.name} heard nothing; expected {shorten(describe(expected))}")
        self.transcript.note(participant.name, "←", message)
        participant.heard = message
        return message

    def filled(self, pattern: Json) -> Json:
        """A pattern with the names filled in, as the node's manner demands it."""
        return self.manner.expect(pattern, self.names)

    async def expect(self, participant: Participant, pattern: Json) -> Json:
        """The next message to a participant has to fit."""
        expected = self.filled(pattern)
        message = await self.receive(participant, expected)
        self.hold(expected, message)
        return message

    def hold(self, expected: Json, message: Json) -> None:
        """A message against a filled pattern; keeps what the pattern names."""
        comparison = Comparison()
        comparison.compare(expected, message)
        self._check_words(message, comparison)
        if comparison.differences:
            raise NodeFaultError(f"expected {shorten(describe(expected), 1000)}", tuple(comparison.differences))
        self.names.update(comparison.kept)

    def _check_words(self, message: Json, comparison: Comparison) -> None:
        """`desc` has to say the same as `description`. Source: message specification, section 4."""
        body = message.get("body") if isinstance(message, dict) else None
        if self.manner.profile.is_exact and isinstance(body, dict) and {"desc", "description"} <= body.keys():
            comparison.compare(body["description"], body["desc"], "body.desc")

    def mirrored(self, participant: Participant, body: Json, *, from_: str = "") -> dict[str, Json]:
        """The response to what a participant sent last."""
        sent = participant.sent
        assert isinstance(sent, dict), "a case must ask before it is answered"
        header = {"id": sent["id"]} if "id" in sent else {}
        return {**header, "type": "response", "from": from_ or sent["to"], "to": sent["from"], "body": body}

    def loosened(self, message: dict[str, Json]) -> Json:
        """A forwarded message; the reference nodes add members to its body."""
        body = message.get("body")
        if self.manner.profile.is_exact or not isinstance(body, dict):
            return message
        return {**message, "body": Open(body)}

    async def fence(self, participant: Participant) -> None:
        """Ask for something harmless; its answer has to be the next message."""
        await self.say(participant, self.harmless(participant))
        await self.expect(participant, self.mirrored(participant, Success()))

    def harmless(self, participant: Participant) -> dict[str, Json]:
        """A request that changes nothing and is always answered."""
        id_, unknown = next(participant.ids), f"comm://{self.node.domain}/fence-{secrets.token_hex(5)}"
        from_, to = f"{participant.runtime}/sm", self.names["sm"]
        return {"id": id_, "type": "unsubscribe", "from": from_, "to": to, "body": {"resources": [unknown]}}
