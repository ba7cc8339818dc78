"""One run of a case: the partner's domain, a runtime of the node under test, and the line between both nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_bytes, token_hex
from typing import Final, Protocol

import trio

from interop.conformance.outcome import NoAnswerError, NodeFaultError
from interop.partner.core.frames import (
    ACK,
    CHALLENGE,
    HELLO,
    MESSAGES,
    TOKEN,
    WELCOME,
    BrokenFrameError,
    Contact,
    Frame,
    binding_of,
    check_token,
    claims_of,
    new_claims,
    pack,
    unpack_messages,
)
from interop.partner.core.keys import Members, as_json, base64url, token
from interop.partner.domain import PartnerDomain
from interop.partner.line import PartnerLine
from interop.partner.node import NodeUnderTest
from interop.partner.runtime import NodeRuntime

ARRIVAL_SECONDS: Final = 45.0
"""What has to come comes within this time: a message waits for discovery for 15 s, a replaced stub may drain for 30."""
_THIRD: Final = "third.partner.example"
Message = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """Deviations of the partner's side of a handshake from an honest one. Texts may hold names in braces.

    Attributes:
        claims: Claims that are replaced; None as a value leaves one out.
        header: Members of the token's header that are replaced.
        key: Which of the domain's keys signs.
        stranger: Sign with a key of the same id that the domain does not publish.
        hello: Members of HELLO that are replaced.
        raw: Send this text in place of the token.
    """

    claims: Mapping[str, object | None] | None = None
    header: Members | None = None
    key: str = "N1"
    stranger: bool = False
    hello: Members | None = None
    raw: str | None = None


HONEST: Final = Handshake()


class Names(Protocol):
    """The name server of the partner."""

    def publish_names(self) -> None:
        """Answer with the records that the domains have now."""

    def asked(self, domain: str) -> list[str]:
        """Names of a domain, and below it, that were asked for."""


@dataclass(frozen=True, slots=True)
class Place:
    """Name server for a case, and the limit of cases at a time, of which its task holds one."""

    names: Names
    limit: trio.CapacityLimiter


class Stage:
    """The state of one run.

    Attributes:
        ana: A runtime of the node under test.
        line: The line that is used now; `hosted`: the last one that came from the partner's stub.
        stream: Name of the partner's stream, which it keeps over connections.
        peer_stream: Name of the node's stream, once known.
        delivered: Highest number of the node's stream that the partner has processed.
        got: Messages that the partner received and has not looked at, with their numbers.
        acknowledged: Highest number of ours that the node acknowledged.
        claims: What our last token claims.
    """

    def __init__(self, node: NodeUnderTest, domain: PartnerDomain, place: Place, nursery: trio.Nursery) -> None:
        self.node = node
        self.domain = domain
        self._place = place
        self.line: PartnerLine | None = None
        self.hosted: PartnerLine | None = None
        self.stream = token_hex(16)
        self.peer_stream = ""
        self.delivered = 0
        self.acknowledged = 0
        self.got: list[tuple[int, Message]] = []
        self.claims: Message = {}
        self._nursery = nursery
        self.ana = NodeRuntime(node, domain.name.partition(".")[0], nursery)
        self._opened: list[PartnerLine] = []
        self._last: tuple[int, Message] = (0, {})

    def fill(self, text: str) -> str:
        """Fill in `{a}` (the node's domain), `{b}` (ours), `{c}` (a third), `{ana}` and `{bo}` (hyperties of both)."""
        names = {"a": self.node.domain, "b": self.domain.name, "c": _THIRD, "ana": self.ana.hyperty, "bo": self.bo}
        names["site"] = self.domain.publication.base.rpartition(":")[2]
        for name, value in names.items():
            text = text.replace("{" + name + "}", value)
        return text

    @property
    def number(self) -> int:
        """Number of the message that was received last."""
        return self._last[0]

    @property
    def bo(self) -> str:
        """A hyperty of the partner's domain."""
        return f"hyperty://{self.domain.name}/bo"

    async def close(self) -> None:
        """End the session of the runtime properly, and all lines that the partner has opened."""
        for line in self._opened:
            await trio.aclose_forcefully(line.stream)
        await self.ana.close()

    def publish_names(self) -> None:
        """Have the name server answer with what the domain has now."""
        self._place.names.publish_names()

    async def rest(self, seconds: float) -> None:
        """Let time pass, during which another case may be played."""
        self._place.limit.release()
        try:
            await trio.sleep(seconds)
        finally:
            with trio.CancelScope(shield=True):
                await self._place.limit.acquire()

    def names_asked(self) -> list[str]:
        """Names of the domain that were asked for."""
        return self._place.names.asked(self.domain.name)

    def reply(self, body: Members) -> bytes:
        """The partner's reply to the request that it received last."""
        asked = self._last[1]
        return as_json(
            {"id": asked.get("id"), "type": "response", "from": asked.get("to"), "to": asked.get("from"), "body": body}
        )

    # The line, from either side.

    async def connect(self) -> PartnerLine:
        """Connect to the node's link endpoint, and say nothing."""
        line = self.line = await self.node.connect(self._nursery, self.domain.note)
        self._opened.append(line)
        return line

    async def visit(self, manner: Handshake = HONEST) -> PartnerLine:
        """Connect to the node's endpoint and say HELLO and TOKEN; what it makes of the token is not read yet."""
        line = await self.connect()
        hello = {
            "stream": self.stream,
            "peer_stream": self.peer_stream,
            "delivered": self.delivered,
            "domain": self.domain.name,
            "node": f"runtime://{self.domain.name}/mn-1",
            **{name: self._filled(value) for name, value in (manner.hello or {}).items()},
        }
        await line.send(pack(HELLO, 1, as_json(hello)))
        challenge = (await line.receive_kind(CHALLENGE)).payload
        if not 16 <= len(challenge) <= 64:
            raise NodeFaultError(f"a challenge of {len(challenge)} bytes; 16 to 64 are right")
        contact = Contact(
            issuer=self.domain.name,
            audience=self.node.domain,
            endpoint=self.node.terms.link,
            binding=binding_of(_certificate(line)),
            nonce=base64url(challenge),
        )
        await line.send(pack(TOKEN, 0, self.make_token(contact, manner)))
        return line

    def make_token(self, contact: Contact, manner: Handshake) -> bytes:
        """A token of ours, as honest as `manner` says. `claims` keeps what it claims."""
        if manner.raw is not None:
            return manner.raw.encode()
        claims = new_claims(contact, now=time.time(), entropy=token_bytes(48))
        for name, value in (manner.claims or {}).items():
            if value is None:
                del claims[name]
            elif name in {"iat", "exp"} and isinstance(value, int):
                claims[name] = int(time.time()) + value
            else:
                claims[name] = self._filled(value)
        key = self.domain.publication.key(manner.key)
        if manner.stranger:
            key = type(key)(key.name, "a stranger")
        self.claims = claims
        return token(claims, key, header=manner.header)

    def _filled(self, value: object) -> object:
        if isinstance(value, str):
            return self.fill(value)
        if isinstance(value, list):
            return [self._filled(one) for one in value]
        return value

    async def welcomed(self) -> int:
        """Wait until the node welcomes us, and check its token; returns how much of our stream it has processed."""
        assert self.line is not None
        frame = await self.line.receive_kind(WELCOME)
        text = frame.payload
        self.peer_stream = text[:32].decode(errors="replace")
        contact = Contact(
            issuer=self.node.domain,
            audience=self.domain.name,
            endpoint=self.node.terms.link,
            binding=binding_of(_certificate(self.line)),
            nonce=str(self.claims["cnonce"]),
        )
        await self._check(text[32:], contact)
        self.line.number = max(self.line.number, frame.arg + 1)
        return frame.arg

    async def _check(self, raw: bytes, contact: Contact) -> None:
        try:
            check_token(raw, contact, await self.node.node_keys(), now=time.time())
        except BrokenFrameError as exc:
            raise NodeFaultError(str(exc)) from exc

    async def host(self, manner: Handshake = HONEST, *, processed: int = 0) -> Message:
        """Take the next connection of the node to our endpoint, check its token and welcome it; returns its claims.

        Raises:
            NoAnswerError: It does not connect.
        """
        try:
            with trio.fail_after(ARRIVAL_SECONDS):
                line = self.line = self.hosted = await self.domain.arrivals.receive()
        except trio.TooSlowError as exc:
            raise NoAnswerError("the node does not connect to our link endpoint") from exc
        hello = json.loads((await line.receive_kind(HELLO)).payload)
        if hello.get("domain") != self.node.domain or len(str(hello.get("stream"))) != 32:
            raise NodeFaultError(f"HELLO is {hello}")
        challenge = token_bytes(32)
        await line.send(pack(CHALLENGE, 0, challenge))
        raw = (await line.receive_kind(TOKEN)).payload
        # The certificate of our endpoint is what the node has seen of us.
        binding = binding_of(line.own_certificate)
        contact = Contact(
            issuer=self.node.domain,
            audience=self.domain.name,
            endpoint=self.domain.endpoint,
            binding=binding,
            nonce=base64url(challenge),
        )
        await self._check(raw, contact)
        theirs = claims_of(raw)
        answer = Contact(
            issuer=self.domain.name,
            audience=self.node.domain,
            endpoint=self.domain.endpoint,
            binding=binding,
            nonce=str(theirs["cnonce"]),
        )
        await line.send(pack(WELCOME, processed, self.stream.encode() + self.make_token(answer, manner)))
        return theirs

    # Messages.

    def message(self, fields: Mapping[str, object]) -> bytes:
        """One message of ours: honest where `fields` does not say otherwise; a value None leaves a member out."""
        members: dict[str, object] = {"type": "create", "from": "{bo}", "to": "{ana}", **fields}
        body = members.pop("body", {})
        filled = {name: self._filled(value) for name, value in members.items() if value is not None}
        if isinstance(body, dict):
            body = {"via": [f"runtime://{self.domain.name}/mn-1"], **{k: self._filled(v) for k, v in body.items()}}
        return as_json({**filled, "body": body})

    async def next_frame(self, seconds: float = ARRIVAL_SECONDS) -> Frame:
        """The next frame on the line.

        Raises:
            NoAnswerError: None comes in time.
            NodeFaultError: The connection ended.
        """
        assert self.line is not None
        try:
            with trio.fail_after(seconds):
                frame = await self.line.receive()
        except trio.TooSlowError as exc:
            raise NoAnswerError(f"no frame came within {seconds:.0f} s") from exc
        if frame is None:
            raise NodeFaultError(f"the node ended the connection ({self.line.closed_with or 'no reason given'})")
        return frame

    async def next_message(self, *, acknowledges: bool = True) -> Message:
        """The next message that the node sends us; acknowledged unless asked otherwise. Errors as of `next_frame`."""
        while not self.got:
            frame = await self.next_frame()
            if frame.kind == ACK:
                self.acknowledged = max(self.acknowledged, frame.arg)
            elif frame.kind == MESSAGES:
                try:
                    self.got += unpack_messages(frame)
                except BrokenFrameError as exc:
                    raise NodeFaultError(str(exc)) from exc
        number, message = self.got.pop(0)
        if acknowledges and self.line is not None:
            self.delivered = max(self.delivered, number)
            await self.line.send(pack(ACK, number))
        self._last = number, message
        return message


def _certificate(line: PartnerLine) -> bytes:
    return bytes(line.stream.getpeercert(binary_form=True) or b"")
