"""Plays one case: does what its steps say, and holds every message against what has to come.

A case ends at the first thing that is not as foreseen. Nothing is awaited longer than the node's patience; that nothing
comes is not proved by waiting, but by a later message that has to come first.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, cast

import trio

from interop.conformance import session_steps
from interop.conformance.filling import Manner, fill, fill_text
from interop.conformance.jsontext import Json, NotJsonError, parse, shorten, write
from interop.conformance.matching import Comparison, Difference, OneOf, Open, Verbatim, describe
from interop.conformance.model import (
    ABSENT,
    Answered,
    Arrives,
    Asks,
    CannotOpen,
    Case,
    Closed,
    Connects,
    Dialect,
    Hears,
    HearsAll,
    Leaves,
    Loses,
    Need,
    Notices,
    Opens,
    Pings,
    Profile,
    RefusedOrClosed,
    Replies,
    Says,
    SaysTogether,
    SendsMalformed,
    Silent,
    Step,
    Success,
    Survives,
)
from interop.conformance.outcome import NoAnswerError, NodeFaultError, Outcome, Verdict
from interop.conformance.stage import Node, Participant, Transcript
from interop.conformance.wire import LineClosedError, LineRefusedError, WireFaultError
from protofly.errors import TransportError

CASE_SECONDS: Final = 60.0
NOTICE_SECONDS: Final = 0.1
PEOPLE: Final = ("ana", "bo", "cy")
_SURVIVAL_MESSAGES: Final = 100


Speaking = Asks | Says | SaysTogether | Replies | Pings | SendsMalformed


class Player:
    """One run of one case."""

    def __init__(self, nursery: trio.Nursery, node: Node, case: Case, manner: Manner) -> None:
        self.nursery, self.node, self.case, self.manner = nursery, node, case, manner
        self.transcript = Transcript()
        self.participants: dict[str, Participant] = {}
        self.step = 0
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
        for who in (*PEOPLE, *case.cast):
            self.names[who] = f"runtime://{node.domain}/{node.runtime_prefix}{word}-{who}"

    async def play(self) -> None:
        """All steps.

        Raises:
            NodeFaultError: something else came.
            NoAnswerError: nothing came.
            TransportError: the node cannot be reached any more.
        """
        for who in self.case.cast:
            await self._perform(Opens(who))
        for number, step in enumerate(self.case.steps, start=1):
            self.step = number
            await self._perform(step)

    async def _perform(self, step: Step) -> None:
        try:
            with trio.fail_after(CASE_SECONDS):
                await self._dispatch(step)
        except trio.TooSlowError as exc:
            raise NoAnswerError(f"{type(step).__name__} of {step.who} did not end") from exc
        except LineClosedError as exc:
            raise NodeFaultError(f"{step.who}: {exc}") from exc
        except LineRefusedError as exc:
            raise NodeFaultError(f"{step.who}: {exc}") from exc
        except WireFaultError as exc:
            raise NodeFaultError(f"{step.who}: {exc}") from exc

    async def _dispatch(self, step: Step) -> None:
        match step:
            case Opens() | CannotOpen() | Connects() | Leaves() | Loses():
                await session_steps.perform(self, step)
            case Asks() | Says() | SaysTogether() | Replies() | Pings() | SendsMalformed():
                await self._send(step)
            case Silent() | Survives() | Notices():
                await self._prove(step)
            case _:
                await self._listen(step)

    # Saying.

    async def _send(self, step: Speaking) -> None:
        participant = self.participants[step.who]
        try:
            await self._send_on(participant, step)
        except LineClosedError as closed:  # in the middle of it, perhaps; whoever listens next is told
            self.transcript.note(participant.name, "←", str(closed))

    async def _send_on(self, participant: Participant, step: Speaking) -> None:
        match step:
            case Asks():
                await self.say(participant, self._message(participant, step))
            case Says(_, text):
                await self.say_text(participant, fill_text(text, self.names))
            case SaysTogether(_, texts):
                filled_texts = [fill_text(text, self.names) for text in texts]
                for filled in filled_texts:
                    self.transcript.note(participant.name, "→", filled)
                await participant.line.send_together(filled_texts)
            case Replies(_, body):
                await self.say(participant, self._reply(participant, body))
            case Pings():
                with trio.move_on_after(self.node.patience_seconds) as scope:
                    await participant.line.ping()
                if scope.cancelled_caught:
                    raise NoAnswerError("the transport's keep-alive was not answered")
            case SendsMalformed(_, text):
                filled = fill_text(text, self.names)
                self.transcript.note(participant.name, "→", filled)
                await participant.line.send_malformed(filled.encode().replace("\ufffd".encode(), b"\xff"))

    def _message(self, participant: Participant, step: Asks) -> dict[str, Json]:
        id_ = next(participant.ids) if step.id is None else step.id
        from_ = participant.runtime if step.from_ == "" else step.from_
        message = {"id": id_, "type": step.type, "from": from_, "to": step.to, "body": step.body, **step.others}
        present = {name: value for name, value in message.items() if value is not ABSENT}
        return cast("dict[str, Json]", fill(present, self.names))

    def _reply(self, participant: Participant, body: Json) -> dict[str, Json]:
        heard = participant.heard
        assert isinstance(heard, dict), "a case must hear before it replies"
        header = {"id": heard["id"], "type": "response", "from": heard["to"], "to": heard["from"]}
        return {**header, "body": fill(body, self.names)}

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

    # Hearing.

    async def receive(self, participant: Participant, expected: Json) -> Json:
        """The next message to a participant."""
        with trio.move_on_after(self.node.patience_seconds) as scope:
            message = await participant.line.receive()
        if scope.cancelled_caught:
            raise NoAnswerError(f"{participant.name} heard nothing; expected {shorten(describe(expected))}")
        self.transcript.note(participant.name, "←", message)
        participant.heard = message
        return message

    async def expect(self, participant: Participant, pattern: Json) -> Json:
        """The next message to a participant has to fit."""
        expected = self.manner.expect(pattern, self.names)
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
        if self.manner.profile is Profile.STRICT and isinstance(body, dict) and {"desc", "description"} <= body.keys():
            comparison.compare(body["description"], body["desc"], "body.desc")

    def mirrored(self, participant: Participant, body: Json, *, from_: str = "") -> dict[str, Json]:
        """The response to what a participant sent last."""
        sent = participant.sent
        assert isinstance(sent, dict), "a case must ask before it is answered"
        header = {"id": sent["id"]} if "id" in sent else {}
        return {**header, "type": "response", "from": from_ or sent["to"], "to": sent["from"], "body": body}

    def _answer(self, participant: Participant, step: Answered) -> Json:
        mirrored = self.mirrored(participant, step.body, from_=step.from_)
        if not step.or_validator:
            return mirrored
        return OneOf((mirrored, {**mirrored, "from": "mn:/validator", "to": participant.runtime}))

    async def _listen(self, step: Step) -> None:
        participant = self.participants[step.who]
        match step:
            case Hears(_, message):
                await self.expect(participant, message)
            case HearsAll(_, messages):
                await self._expect_all(participant, [self.manner.expect(message, self.names) for message in messages])
            case Answered():
                await self.expect(participant, self._answer(participant, step))
            case Arrives():
                await self.expect(participant, self._forwarded(step))
            case Closed():
                await self._expect_closing(participant, step)
            case RefusedOrClosed():
                await self._expect_refusal_or_closing(participant, step)
            case _:
                raise TypeError(f"unknown step {step!r}")

    async def _expect_all(self, participant: Participant, patterns: list[Json]) -> None:
        while patterns:
            message = await self.receive(participant, patterns)
            trials = []
            for pattern in patterns:
                trial = Comparison()
                trial.compare(pattern, message)
                trials.append(trial)
            best = min(range(len(patterns)), key=lambda index: len(trials[index].differences))
            self.hold(patterns.pop(best), message)

    def _forwarded(self, step: Arrives) -> Json:
        sent = self.participants[step.sent_by].sent
        assert isinstance(sent, dict), "a case must send before something arrives"
        message = {**sent, **step.changes}
        if step.body:
            message["body"] = {**cast("dict[str, Json]", sent["body"]), **step.body}
        body = message.get("body")
        if isinstance(body, dict):
            inside = {name: value for name, value in body.items() if value is not ABSENT}
            if "value" in inside and "value" not in step.body:
                inside["value"] = Verbatim(inside["value"])
            message["body"] = inside if self.manner.profile is Profile.STRICT else Open(inside)
        return {name: value for name, value in message.items() if value is not ABSENT}

    async def _expect_closing(self, participant: Participant, step: Closed) -> None:
        codes = step.codes
        try:
            message = await self.receive(participant, "the closing of the connection")
            if step.or_notice and _is_notice(message):
                message = await self.receive(participant, "the closing of the connection")
        except LineClosedError as closed:
            self.transcript.note(participant.name, "←", f"closed, code {closed.code} {closed.detail}".rstrip())
            if codes and closed.code is not None and closed.code not in codes:
                wanted = " or ".join(map(str, codes))
                raise NodeFaultError(f"closed with code {closed.code}, expected {wanted}") from closed
            return
        raise NodeFaultError(f"expected the closing of the connection, got {shorten(write(message))}")

    async def _expect_refusal_or_closing(self, participant: Participant, step: RefusedOrClosed) -> None:
        try:
            message = await self.receive(participant, "a refusal, or the closing of the connection")
        except LineClosedError as closed:
            self.transcript.note(participant.name, "←", f"closed, code {closed.code} {closed.detail}".rstrip())
            return
        if step.answer is not None:
            self.hold(self.manner.expect(self._answer(participant, step.answer), self.names), message)
            return
        body = message.get("body") if isinstance(message, dict) else None
        code = body.get("code") if isinstance(body, dict) else None
        if code != "error" and not (isinstance(code, int) and code >= 400):
            raise NodeFaultError(f"expected a refusal, got {shorten(write(message))}")

    # Nothing came.

    async def fence(self, participant: Participant) -> None:
        """Ask for something harmless; its answer has to be the next message."""
        await self.say(participant, self._harmless(participant))
        await self.expect(participant, self.mirrored(participant, Success()))

    def _harmless(self, participant: Participant) -> dict[str, Json]:
        id_, unknown = next(participant.ids), f"comm://{self.node.domain}/fence-{secrets.token_hex(5)}"
        from_, to = f"{participant.runtime}/sm", self.names["sm"]
        return {"id": id_, "type": "unsubscribe", "from": from_, "to": to, "body": {"resources": [unknown]}}

    async def _prove(self, step: Silent | Survives | Notices) -> None:
        participant = self.participants[step.who]
        before = participant.sent, participant.heard
        if isinstance(step, Survives):
            await self._survive(participant)
        elif isinstance(step, Notices):
            await self._notice(participant, self.names[step.lost])
            await self._survive(participant)
        elif step.after:
            await self._overtake(self.participants[step.after], participant)
        else:
            await self.fence(participant)
            await self.fence(participant)  # what the node does beside the line has had a whole round trip to come
        participant.sent, participant.heard = before

    async def _overtake(self, speaker: Participant, participant: Participant) -> None:
        """A message of the same speaker has to be the next that the participant hears."""
        before = speaker.sent
        body: Json = {"value": f"fence-{secrets.token_hex(5)}"}
        to = f"{participant.runtime}/sm"
        message = {"id": next(speaker.ids), "type": "update", "from": speaker.runtime, "to": to, "body": body}
        await self.say(speaker, message)
        await self.expect(participant, self.loosened(message))
        speaker.sent = before

    def loosened(self, message: dict[str, Json]) -> Json:
        """A forwarded message; the reference nodes add members to its body."""
        body = message.get("body")
        if self.manner.profile is Profile.STRICT or not isinstance(body, dict):
            return message
        return {**message, "body": Open(body)}

    async def _notice(self, participant: Participant, lost: str) -> None:
        """Ask again and again: what reached the dead line is never answered, the rest is."""
        with trio.move_on_after(self.node.patience_seconds) as scope:
            while True:
                message = {"id": next(participant.ids), "type": "read", "from": participant.runtime, "to": f"{lost}/sm"}
                await self.say(participant, message)
                with trio.move_on_after(NOTICE_SECONDS):
                    await self.receive(participant, "an answer for a runtime whose transport is lost")
                    return
        if scope.cancelled_caught:
            raise NoAnswerError(f"requests for {lost}, whose transport is lost, are not answered")

    async def _survive(self, participant: Participant) -> None:
        harmless = self._harmless(participant)
        await self.say(participant, harmless)
        for _ in range(_SURVIVAL_MESSAGES):
            message = await self.receive(participant, "an answer to show that the session goes on")
            if isinstance(message, dict) and message.get("id") == harmless["id"]:
                return
        raise NodeFaultError("the session does not come to rest")


def _is_notice(message: Json) -> bool:
    """Whether it is a status notice of the session manager. Source: message specification, section 5.4."""
    return isinstance(message, dict) and message.get("from") == "mn:/session" and message.get("type") == "update"


def not_applicable(case: Case, dialect: Dialect, manner: Manner, node: Node) -> str:
    """Why a case cannot be played here; empty when it can."""
    if dialect not in case.dialects:
        return "not a case of this dialect"
    if manner.profile not in case.profiles:
        return "the reference nodes do not agree on it"
    if Need.TOKEN in case.needs and not node.token:
        return "needs a token"
    if Need.ANONYMOUS in case.needs and not node.is_anonymous_welcome:
        return "the node wants credentials from everybody"
    return ""


async def play(node: Node, case: Case, manner: Manner) -> Outcome:
    """Play one case, and say what came of it."""
    dialect = manner.dialect
    if reason := not_applicable(case, dialect, manner, node):
        return Outcome(case=case, dialect=dialect, verdict=Verdict.NOT_APPLICABLE, problem=reason)
    began = trio.current_time()
    verdict, problem, differences = Verdict.PASSED, "", tuple[Difference, ...]()
    async with trio.open_nursery() as nursery:
        player = Player(nursery, node, case, manner)
        try:
            await player.play()
        except NodeFaultError as exc:
            verdict, problem, differences = Verdict.FAILED, str(exc), exc.differences
        except NoAnswerError as exc:
            verdict, problem = Verdict.NO_ANSWER, str(exc)
        except TransportError as exc:
            verdict, problem = Verdict.NO_ANSWER, f"{exc.code.word}: {exc.detail}"
        seconds = trio.current_time() - began
        await session_steps.clear_stage(player)
        nursery.cancel_scope.cancel()
    return Outcome(
        case=case,
        dialect=dialect,
        verdict=verdict,
        problem=problem,
        differences=differences,
        step=player.step,
        transcript=tuple(player.transcript.lines),
        seconds=seconds,
    )
