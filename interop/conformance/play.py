"""Plays one case: does what its steps say, and holds every message against what has to come.

A case ends at the first thing that is not as foreseen. Nothing is awaited longer than the node's patience; that nothing
comes is not proved by waiting, but by a later message that has to come first.
"""

from __future__ import annotations

import secrets
from typing import Final, cast

import trio

from interop.conformance import session_steps
from interop.conformance.conversation import Conversation
from interop.conformance.filling import Manner, fill, fill_text
from interop.conformance.jsontext import Json, shorten, write
from interop.conformance.matching import Comparison, Difference, OneOf, Open, Verbatim
from interop.conformance.model import (
    ABSENT,
    Answered,
    Arrives,
    Asks,
    CannotOpen,
    Case,
    CaseStep,
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
    RefusedOrClosed,
    Replies,
    Says,
    SaysTogether,
    SendsMalformed,
    Silent,
    Survives,
)
from interop.conformance.outcome import CaseVerdict, NoAnswerError, NodeFaultError, Outcome
from interop.conformance.stage import Node, Participant
from interop.conformance.wire import LineClosedError, LineRefusedError, WireFaultError
from protofly.errors import TransportError

CASE_SECONDS: Final = 60.0
NOTICE_SECONDS: Final = 0.1
_SURVIVAL_MESSAGES: Final = 100


Speaking = Asks | Says | SaysTogether | Replies | Pings | SendsMalformed


class Player:
    """One run of one case."""

    def __init__(self, case: Case, talk: Conversation) -> None:
        self.case, self.talk = case, talk
        self.step = 0

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

    async def _perform(self, step: CaseStep) -> None:
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

    async def _dispatch(self, step: CaseStep) -> None:
        match step:
            case Opens() | CannotOpen() | Connects() | Leaves() | Loses():
                await session_steps.perform(self.talk, step)
            case Asks() | Says() | SaysTogether() | Replies() | Pings() | SendsMalformed():
                await self._send(step)
            case Silent() | Survives() | Notices():
                await self._prove(step)
            case _:
                await self._listen(step)

    # Saying.

    async def _send(self, step: Speaking) -> None:
        participant = self.talk.participants[step.who]
        try:
            await self._send_on(participant, step)
        except LineClosedError as closed:  # in the middle of it, perhaps; the next receive reports it
            self.talk.transcript.note(participant.name, "←", str(closed))

    async def _send_on(self, participant: Participant, step: Speaking) -> None:
        match step:
            case Asks():
                await self.talk.say(participant, self._message(participant, step))
            case Says(_, text):
                await self.talk.say_text(participant, fill_text(text, self.talk.names))
            case SaysTogether(_, texts):
                filled_texts = [fill_text(text, self.talk.names) for text in texts]
                for filled in filled_texts:
                    self.talk.transcript.note(participant.name, "→", filled)
                await participant.line.send_together(filled_texts)
            case Replies(_, body):
                await self.talk.say(participant, self._reply(participant, body))
            case Pings():
                with trio.move_on_after(self.talk.node.patience_seconds) as scope:
                    await participant.line.ping()
                if scope.cancelled_caught:
                    raise NoAnswerError("the transport's keep-alive was not answered")
            case SendsMalformed(_, text):
                filled = fill_text(text, self.talk.names)
                self.talk.transcript.note(participant.name, "→", filled)
                await participant.line.send_malformed(filled.encode().replace("\ufffd".encode(), b"\xff"))

    def _message(self, participant: Participant, step: Asks) -> dict[str, Json]:
        id_ = next(participant.ids) if step.id is None else step.id
        from_ = participant.runtime if step.from_ == "" else step.from_
        message = {"id": id_, "type": step.type, "from": from_, "to": step.to, "body": step.body, **step.others}
        present = {name: value for name, value in message.items() if value is not ABSENT}
        return cast("dict[str, Json]", fill(present, self.talk.names))

    def _reply(self, participant: Participant, body: Json) -> dict[str, Json]:
        heard = participant.heard
        assert isinstance(heard, dict), "a case must hear before it replies"
        header = {"id": heard["id"], "type": "response", "from": heard["to"], "to": heard["from"]}
        return {**header, "body": fill(body, self.talk.names)}

    # Hearing.

    def _answer(self, participant: Participant, step: Answered) -> Json:
        mirrored = self.talk.mirrored(participant, step.body, from_=step.from_)
        if not step.or_validator:
            return mirrored
        return OneOf((mirrored, {**mirrored, "from": "mn:/validator", "to": participant.runtime}))

    async def _listen(self, step: CaseStep) -> None:
        participant = self.talk.participants[step.who]
        match step:
            case Hears(_, message):
                await self.talk.expect(participant, message)
            case HearsAll(_, messages):
                await self._expect_all(
                    participant,
                    [self.talk.filled(message) for message in messages],
                )
            case Answered():
                await self.talk.expect(participant, self._answer(participant, step))
            case Arrives():
                await self.talk.expect(participant, self._forwarded(step))
            case Closed():
                await self._expect_closing(participant, step)
            case RefusedOrClosed():
                await self._expect_refusal_or_closing(participant, step)
            case _:
                raise TypeError(f"unknown step {step!r}")

    async def _expect_all(self, participant: Participant, patterns: list[Json]) -> None:
        while patterns:
            message = await self.talk.receive(participant, patterns)
            trials = []
            for pattern in patterns:
                trial = Comparison()
                trial.compare(pattern, message)
                trials.append(trial)
            best = min(range(len(patterns)), key=lambda index: len(trials[index].differences))
            self.talk.hold(patterns.pop(best), message)

    def _forwarded(self, step: Arrives) -> Json:
        sent = self.talk.participants[step.sent_by].sent
        assert isinstance(sent, dict), "a case must send before something arrives"
        message = {**sent, **step.changes}
        if step.body:
            message["body"] = {**cast("dict[str, Json]", sent["body"]), **step.body}
        body = message.get("body")
        if isinstance(body, dict):
            inside = {name: value for name, value in body.items() if value is not ABSENT}
            if "value" in inside and "value" not in step.body:
                inside["value"] = Verbatim(inside["value"])
            message["body"] = inside if self.talk.manner.profile.is_exact else Open(inside)
        return {name: value for name, value in message.items() if value is not ABSENT}

    async def _expect_closing(self, participant: Participant, step: Closed) -> None:
        codes = step.codes
        try:
            message = await self.talk.receive(participant, "the closing of the connection")
            if step.or_notice and _is_notice(message):
                message = await self.talk.receive(participant, "the closing of the connection")
        except LineClosedError as closed:
            self.talk.transcript.note(participant.name, "←", f"closed, code {closed.code} {closed.detail}".rstrip())
            if codes and closed.code is not None and closed.code not in codes:
                wanted = " or ".join(map(str, codes))
                raise NodeFaultError(f"closed with code {closed.code}, expected {wanted}") from closed
            return
        raise NodeFaultError(f"expected the closing of the connection, got {shorten(write(message))}")

    async def _expect_refusal_or_closing(self, participant: Participant, step: RefusedOrClosed) -> None:
        try:
            message = await self.talk.receive(participant, "a refusal, or the closing of the connection")
        except LineClosedError as closed:
            self.talk.transcript.note(participant.name, "←", f"closed, code {closed.code} {closed.detail}".rstrip())
            return
        if step.answer is not None:
            self.talk.hold(
                self.talk.filled(self._answer(participant, step.answer)),
                message,
            )
            return
        body = message.get("body") if isinstance(message, dict) else None
        code = body.get("code") if isinstance(body, dict) else None
        if code != "error" and not (isinstance(code, int) and code >= 400):
            raise NodeFaultError(f"expected a refusal, got {shorten(write(message))}")

    # Nothing came.

    async def _prove(self, step: Silent | Survives | Notices) -> None:
        participant = self.talk.participants[step.who]
        before = participant.sent, participant.heard
        if isinstance(step, Survives):
            await self._survive(participant)
        elif isinstance(step, Notices):
            await self._notice(participant, self.talk.names[step.lost])
            await self._survive(participant)
        elif step.after:
            await self._overtake(self.talk.participants[step.after], participant)
        else:
            await self.talk.fence(participant)
            await self.talk.fence(participant)  # what the node does beside the line has had a whole round trip to come
        participant.sent, participant.heard = before

    async def _overtake(self, speaker: Participant, participant: Participant) -> None:
        """A message of the same speaker has to be the next that the participant hears."""
        before = speaker.sent
        body: Json = {"value": f"fence-{secrets.token_hex(5)}"}
        to = f"{participant.runtime}/sm"
        message = {"id": next(speaker.ids), "type": "update", "from": speaker.runtime, "to": to, "body": body}
        await self.talk.say(speaker, message)
        await self.talk.expect(participant, self.talk.loosened(message))
        speaker.sent = before

    async def _notice(self, participant: Participant, lost: str) -> None:
        """Ask again and again: what reached the dead line is never answered, the rest is."""
        with trio.move_on_after(self.talk.node.patience_seconds) as scope:
            while True:
                message = {"id": next(participant.ids), "type": "read", "from": participant.runtime, "to": f"{lost}/sm"}
                await self.talk.say(participant, message)
                with trio.move_on_after(NOTICE_SECONDS):
                    await self.talk.receive(participant, "an answer for a runtime whose transport is lost")
                    return
        if scope.cancelled_caught:
            raise NoAnswerError(f"requests for {lost}, whose transport is lost, are not answered")

    async def _survive(self, participant: Participant) -> None:
        harmless = self.talk.harmless(participant)
        await self.talk.say(participant, harmless)
        for _ in range(_SURVIVAL_MESSAGES):
            message = await self.talk.receive(participant, "an answer to show that the session goes on")
            if isinstance(message, dict) and message.get("id") == harmless["id"]:
                return
        raise NodeFaultError("the session does not come to rest")


def _is_notice(message: Json) -> bool:
    """True if it is a status notice of the session manager. Source: message specification, section 5.4."""
    return isinstance(message, dict) and message.get("from") == "mn:/session" and message.get("type") == "update"


def not_applicable(case: Case, dialect: Dialect, manner: Manner, node: Node) -> str:
    """Reason why a case cannot be played in this dialect and profile at this node; "" if it can."""
    if dialect not in case.dialects:
        return "not a case of this dialect"
    if manner.profile not in case.profiles:
        return f"not in the profile {manner.profile.value}"
    if Need.TOKEN in case.needs and not node.token:
        return "needs a token"
    if Need.ANONYMOUS in case.needs and not node.is_anonymous_welcome:
        return "the node wants credentials from everybody"
    return ""


async def play(node: Node, case: Case, manner: Manner) -> Outcome:
    """Play one case, and say what came of it."""
    dialect = manner.dialect
    if reason := not_applicable(case, dialect, manner, node):
        return Outcome(case=case, dialect=dialect, verdict=CaseVerdict.NOT_APPLICABLE, problem=reason)
    began = trio.current_time()
    verdict, problem, differences = CaseVerdict.PASSED, "", tuple[Difference, ...]()
    async with trio.open_nursery() as nursery:
        player = Player(case, Conversation(nursery, node, manner, case.cast))
        try:
            await player.play()
        except NodeFaultError as exc:
            verdict, problem, differences = CaseVerdict.FAILED, str(exc), exc.differences
        except NoAnswerError as exc:
            verdict, problem = CaseVerdict.NO_ANSWER, str(exc)
        except TransportError as exc:
            verdict, problem = CaseVerdict.NO_ANSWER, f"{exc.code.word}: {exc.detail}"
        seconds = trio.current_time() - began
        await session_steps.clear_stage(player.talk)
        nursery.cancel_scope.cancel()
    return Outcome(
        case=case,
        dialect=dialect,
        verdict=verdict,
        problem=problem,
        differences=differences,
        step=player.step,
        transcript=tuple(player.talk.transcript.lines),
        seconds=seconds,
    )
