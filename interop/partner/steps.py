"""The steps of partner cases: each does one thing, or checks one thing, and says what was wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from interop.conformance.outcome import NoAnswerError, NodeFaultError
from interop.partner.core.frames import ACK, MESSAGES, pack_messages
from interop.partner.core.keys import Members
from interop.partner.core.publication import WELL_KNOWN
from interop.partner.core.scenarios import Change
from interop.partner.domain import SiteFault
from interop.partner.node import NodeUnderTest
from interop.partner.runtime import opens_session
from interop.partner.stage import ARRIVAL_SECONDS, HONEST, Handshake, Message, Stage
from interop.runtime_client import Incoming

MARKER: Final = "honest"
_PATIENCE_SECONDS: Final = 4.0
_FLAGS: Final = ("auth", "sessionToken", "assertedIdentity")


@dataclass(frozen=True, slots=True)
class Publishes:
    """The partner changes what it publishes; `adds_key`: with one more node key, so that the node fetches it again."""

    change: Change
    adds_key: bool = False

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        if self.adds_key:
            keys = stage.domain.publication.node_keys
            keys.append(f"N{len(keys) + 1}")
        self.change(stage.domain.publication)
        stage.domain.note("→ publishes")


@dataclass(frozen=True, slots=True)
class Behaves:
    """Its site or its name behaves otherwise from now on."""

    site: SiteFault | None = None
    records: Mapping[str, list[str]] = field(default_factory=dict)
    certificate: str = ""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        domain = stage.domain
        domain.fault = self.site
        domain.records |= {
            stage.fill(name): [stage.fill(text) for text in texts] for name, texts in self.records.items()
        }
        if self.certificate:
            domain.certificate_for = (stage.fill(self.certificate),)
        stage.publish_names()


@dataclass(frozen=True, slots=True)
class Visits:
    """The partner connects to the node's link endpoint, says HELLO and gives its token."""

    manner: Handshake = HONEST

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        await stage.visit(self.manner)


@dataclass(frozen=True, slots=True)
class VisitsWithNewKey:
    """The same, with the newest of its node keys."""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        await stage.visit(Handshake(key=stage.domain.publication.node_keys[-1]))


@dataclass(frozen=True, slots=True)
class ComesAsGuest:
    """A runtime of the partner's domain asks the node for a session, without a proof; the node does not open it."""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        runtime = stage.fill("runtime://{b}/guest")
        if await opens_session(stage.node, runtime):
            raise NodeFaultError(f"the node opened a session for {runtime}, which has proved nothing")


@dataclass(frozen=True, slots=True)
class Connects:
    """The partner connects to the node's link endpoint, and sends these frames instead of a handshake."""

    frames: tuple[bytes, ...]

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        line = await stage.connect()
        await line.send(*self.frames)


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The node welcomes the partner, with a token that proves its domain. `processed`: so much of the stream."""

    processed: int | None = None

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        processed = await stage.welcomed()
        if self.processed is not None and processed != self.processed:
            raise NodeFaultError(f"WELCOME says that {processed} was processed, expected {self.processed}")


@dataclass(frozen=True, slots=True)
class Refused:
    """The node ends the connection without a welcome; with one of these words, if there are any."""

    words: tuple[str, ...] = ()

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        try:
            with trio.fail_after(ARRIVAL_SECONDS):
                word = await stage.line.wait_end()
        except trio.TooSlowError as exc:
            raise NoAnswerError("the node neither welcomes the partner nor ends the connection") from exc
        if self.words and word not in self.words:
            raise NodeFaultError(f"refused with {word!r}, expected {' or '.join(self.words)}")


@dataclass(frozen=True, slots=True)
class Ended:
    """The node ends the connection; what it sends before is left aside."""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        try:
            with trio.fail_after(ARRIVAL_SECONDS):
                while await stage.line.receive() is not None:
                    pass
        except trio.TooSlowError as exc:
            raise NoAnswerError("the node does not end the connection") from exc


@dataclass(frozen=True, slots=True)
class WasAsked:
    """The site of the partner was asked for a path, `times` times or more: else nothing was tested."""

    path: str = WELL_KNOWN
    times: int = 1

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        found = stage.domain.requests.count(self.path)
        if found < self.times:
            raise NoAnswerError(
                f"the node asked {found} times for {self.path}, expected {self.times}: it remembers this domain from "
                "an earlier run; start it with empty data"
            )


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Nothing was asked of the partner's site, and `names`: nothing of its name server either."""

    names: bool = False

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        if stage.domain.requests:
            raise NodeFaultError(f"the node asked the site for {stage.domain.requests[0]}")
        if self.names and (asked := stage.names_asked()):
            raise NodeFaultError(f"the node asked for {asked[0]} before it looked at its policy")


@dataclass(frozen=True, slots=True)
class Sent:
    """The site has sent no more than this: larger bodies are cut."""

    at_most_bytes: int

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        if stage.domain.sent_bytes > self.at_most_bytes:
            raise NodeFaultError(f"the node read {stage.domain.sent_bytes} bytes, more than {self.at_most_bytes}")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The node runs the partner's stub, which connects; the partner checks its token and welcomes it as `manner` says.

    `serial`: of the stub that speaks, as the token claims.
    """

    manner: Handshake = HONEST
    serial: int = 0

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        claims = await stage.host(self.manner, processed=stage.delivered)
        stub = claims.get("stub")
        serial = stub.get("serial") if isinstance(stub, dict) else None
        if self.serial and serial != self.serial:
            raise NodeFaultError(f"the token is for stub serial {serial}, expected {self.serial}")


@dataclass(frozen=True, slots=True)
class NotHosted:
    """The node has not connected to the partner's endpoint."""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        if stage.domain.arrivals.statistics().current_buffer_used:
            raise NodeFaultError("the node runs a stub that it has to refuse: it connects to our link endpoint")


@dataclass(frozen=True, slots=True)
class Says:
    """The partner sends one message, honest where `fields` does not say otherwise."""

    fields: Members = field(default_factory=dict)

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        await stage.ana.talker()
        await stage.line.send_messages(stage.message(self.fields))


@dataclass(frozen=True, slots=True)
class SaysRaw:
    """The partner sends one message as these bytes; names in braces are filled in."""

    text: str

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        await stage.ana.talker()
        await stage.line.send_messages(stage.fill(self.text).encode(errors="surrogatepass"))


@dataclass(frozen=True, slots=True)
class SaysAgain:
    """The partner sends a message with a number that it has used before."""

    number: int
    fields: Members

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        await stage.ana.talker()
        await stage.line.send(pack_messages(self.number, [stage.message(self.fields)]))


@dataclass(frozen=True, slots=True)
class Sends:
    """The partner sends frames as they stand."""

    frames: tuple[bytes, ...]

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        await stage.line.send(*self.frames)


@dataclass(frozen=True, slots=True)
class Hears:
    """Ana hears these values, in this order, and nothing else so far: a message that must not come would be there."""

    values: tuple[object, ...]

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        ana = await stage.ana.talker()
        try:
            await ana.wait_for(lambda: len(ana.heard) >= len(self.values), seconds=ARRIVAL_SECONDS)
        except trio.TooSlowError as exc:
            raise NoAnswerError(f"ana heard {_values(ana.heard)}, expected {list(self.values)}") from exc
        if _values(ana.heard) != list(self.values):
            raise NodeFaultError(f"ana heard {_values(ana.heard)}, expected {list(self.values)}")


@dataclass(frozen=True, slots=True)
class HearsOnlyHonest:
    """An honest message of the partner reaches ana, on this line or a new one, and nothing that came before it did."""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        ana = await stage.ana.talker()
        for _ in range(2):
            if stage.line is not None:
                await stage.line.send_messages(stage.message({"body": {"value": MARKER}}))
            try:
                await ana.wait_for(lambda: MARKER in _values(ana.heard), seconds=_PATIENCE_SECONDS)
                break
            except trio.TooSlowError:
                await stage.visit()
                await stage.welcomed()
        if MARKER not in _values(ana.heard):
            raise NoAnswerError("an honest message of the partner does not arrive any more")
        if set(map(str, _values(ana.heard))) != {MARKER}:
            raise NodeFaultError(f"ana heard {_values(ana.heard)}, expected nothing but {MARKER!r}")


@dataclass(frozen=True, slots=True)
class ArrivedBody:
    """The last message that ana heard has nothing in its body that only nodes may set; `auth` is the node's own."""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        body = (await stage.ana.talker()).heard[-1].body
        found = [name for name in ("via", "trace", *_FLAGS) if name in body]
        if isinstance(body.get("auth"), bool):  # what the node itself says about its policy
            found.remove("auth")
        if found:
            raise NodeFaultError(f"the message reached ana with body.{found[0]}")


@dataclass(frozen=True, slots=True)
class Writes:
    """Ana sends the partner `count` messages with increasing values, or one request."""

    value: int = 1
    count: int = 1
    is_request: bool = False
    body: Members = field(default_factory=dict)

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        ana = await stage.ana.talker()
        for value in range(self.value, self.value + self.count):
            body = {"value": value, **self.body}
            if self.is_request:
                await stage.ana.ask(stage.bo, body)
            else:
                await ana.client.notify("create", ana.hyperty, stage.bo, body)


@dataclass(frozen=True, slots=True)
class Gets:
    """The partner receives messages of ana with these values, in this order, and nothing between them."""

    value: int = 1
    count: int = 1
    acknowledges: bool = True

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        for value in range(self.value, self.value + self.count):
            message = await stage.next_message(acknowledges=self.acknowledges)
            found = _value(message)
            if found != value:
                raise NodeFaultError(f"received value {found!r} with number {stage.number}, expected {value}")
            _check_message(stage, message)


@dataclass(frozen=True, slots=True)
class GetsAgain:
    """The partner receives what it did not acknowledge once more, with the same numbers."""

    value: int
    number: int

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        message = await stage.next_message()
        if (_value(message), stage.number) != (self.value, self.number):
            found = f"value {_value(message)!r} with number {stage.number}"
            raise NodeFaultError(f"received {found}, expected {self.value} with {self.number}")


@dataclass(frozen=True, slots=True)
class GetsReply:
    """The partner receives the reply to its request `id_`, with a code of this range."""

    id_: int
    codes: tuple[int, int] = (200, 299)

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        message = await stage.next_message()
        body = message.get("body")
        code = body.get("code") if isinstance(body, dict) else None
        low, high = self.codes
        if message.get("type") != "response" or message.get("id") != self.id_:
            raise NodeFaultError(f"received {message.get('type')} {message.get('id')}, expected response {self.id_}")
        if not isinstance(code, int) or not low <= code <= high:
            raise NodeFaultError(f"the reply has code {code}, expected {low} to {high}")


@dataclass(frozen=True, slots=True)
class Answers:
    """The partner answers the request that it received last."""

    body: Members = field(default_factory=lambda: {"code": 200})

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        await stage.line.send_messages(stage.reply(self.body))


@dataclass(frozen=True, slots=True)
class Answered:
    """Ana's request is answered with a code of this range."""

    codes: tuple[int, int] = (200, 299)

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        answer = await stage.ana.answer()
        low, high = self.codes
        if not low <= answer.code <= high:
            raise NodeFaultError(f"ana's request is answered {answer.code} {answer.reason}, expected {low} to {high}")


REFUSED_CODES: Final = (400, 599)


@dataclass(frozen=True, slots=True)
class GetsNothing:
    """The node sends no message on this line for a while: it must not, before the partner has proved itself."""

    seconds: float = 2.0

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        with trio.move_on_after(self.seconds):
            while (frame := await stage.line.receive()) is not None:
                if frame.kind == MESSAGES:
                    raise NodeFaultError("the node sends messages to a partner that has not proved itself")


@dataclass(frozen=True, slots=True)
class HostedEnds:
    """The stub that the node runs ends its line, within the time that it may take to finish."""

    seconds: float = 40.0

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.hosted is not None
        try:
            with trio.fail_after(self.seconds):
                while await stage.hosted.receive() is not None:
                    pass
        except trio.TooSlowError as exc:
            raise NoAnswerError("the node goes on with a stub that has to end") from exc


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The node acknowledges our messages up to a number."""

    number: int

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        while stage.acknowledged < self.number:
            frame = await stage.next_frame()
            if frame.kind == ACK:
                stage.acknowledged = frame.arg


@dataclass(frozen=True, slots=True)
class Cuts:
    """The line ends as when a cable is cut. What was received and not looked at is gone."""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        assert stage.line is not None
        await stage.line.cut()
        stage.got.clear()


@dataclass(frozen=True, slots=True)
class Pauses:
    """Some time passes."""

    seconds: float

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        stage.domain.note(f"… {self.seconds} s")
        await trio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class PausesUntilRefresh:
    """So much time passes that the node may fetch documents again."""

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        await stage.rest(stage.node.terms.refresh_seconds)


@dataclass(frozen=True, slots=True)
class Checks:
    """Something about the node's own documents holds. `check` raises NodeFaultError."""

    check: Callable[[NodeUnderTest], Awaitable[None]]

    async def play(self, stage: Stage) -> None:
        """See `PartnerStep`."""
        await self.check(stage.node)


def _value(message: Message) -> object:
    body = message.get("body")
    return body.get("value") if isinstance(body, dict) else None


def _values(heard: list[Incoming]) -> list[object]:
    return [one.body.get("value") for one in heard]


def _check_message(stage: Stage, message: Message) -> None:
    """A message that crosses carries its sender, its hops, and no flag that means something only at home."""
    body = message.get("body")
    if message.get("from") != stage.fill("{ana}") or message.get("to") != stage.bo:
        raise NodeFaultError(f"received a message from {message.get('from')} to {message.get('to')}")
    via = body.get("via") if isinstance(body, dict) else None
    if not isinstance(via, list) or not via or not str(via[-1]).startswith(f"runtime://{stage.node.domain}/"):
        raise NodeFaultError(f"body.via is {via!r}, expected the node's address at its end")
    found = [name for name in _FLAGS if isinstance(body, dict) and name in body]
    if found:
        raise NodeFaultError(f"body.{found[0]} left its domain")
