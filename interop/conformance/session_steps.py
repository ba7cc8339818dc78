"""Steps that begin and end sessions, in the manner of each dialect.

Source: message specification, sections 5.1 to 5.4.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from interop.conformance.conversation import Conversation
from interop.conformance.filling import fill_text
from interop.conformance.jsontext import Json, shorten, write
from interop.conformance.matching import UUID, Anything, Maybe, Number, Open, Text
from interop.conformance.model import CannotOpen, CaseStep, Connects, Dialect, Leaves, Loses, Opens, Profile, Refusal
from interop.conformance.outcome import NodeFaultError
from interop.conformance.stage import Participant, connect
from interop.conformance.wire import LineClosedError, LineRefusedError, WireFaultError
from protofly.errors import TransportError

SESSION: Final = "mn:/session"
_CLOSING_SECONDS: Final = 1.0
_FACTS: Final = {"expires": Maybe(Number()), "ping": Maybe(Number()), "functions": Maybe(Anything())}


async def perform(talk: Conversation, step: CaseStep) -> None:
    """Begin or end a session, or try to."""
    match step:
        case Opens():
            await _open(talk, step)
        case CannotOpen():
            await _expect_refusal(talk, step)
        case Connects():
            await _connect(talk, step.who, _runtime(talk, step.who, step.runtime))
        case Leaves():
            await _leave(talk, talk.participants[step.who])
        case Loses():
            talk.transcript.note(step.who, "→", "(the transport is lost)")
            await talk.participants[step.who].line.drop()
        case _:
            raise TypeError(f"unknown step {step!r}")


def _runtime(talk: Conversation, who: str, given: str) -> str:
    runtime = fill_text(given, talk.names) if given else talk.names.get(who, "")
    return runtime or f"runtime://{talk.node.domain}/{talk.node.runtime_prefix}{talk.names['n']}-{who}"


async def _connect(
    talk: Conversation, who: str, runtime: str, *, bearer: str = "", is_direct: bool = False
) -> Participant:
    dialect = talk.manner.dialect
    talk.transcript.note(who, "→", f"(connects in dialect {dialect.value} as {runtime})")
    line = await connect(talk.nursery, talk.node, dialect, runtime, bearer=bearer, is_direct=is_direct)
    participant = Participant(who, runtime, line)
    talk.participants[who] = participant
    old_spelling = runtime.replace("runtime:", "hyperty-runtime:", 1)
    rest = runtime.partition(":")[2]
    talk.names |= {who: runtime, f"{who}.session": runtime, f"{who}.old": old_spelling, f"{who}.rest": rest}
    return participant


async def _open(talk: Conversation, step: Opens) -> None:
    needs_token = step.with_token or not talk.node.is_anonymous_welcome
    bearer = talk.node.token if needs_token else ""
    runtime = _runtime(talk, step.who, step.runtime)
    participant = await _connect(talk, step.who, runtime, bearer=bearer, is_direct=step.is_direct)
    if talk.manner.dialect.has_session_messages:
        await talk.say(participant, _open_message(participant, bearer))
        await talk.expect(participant, talk.mirrored(participant, _opened(talk)))
        body = participant.heard.get("body", {}) if isinstance(participant.heard, dict) else {}
        participant.token = body.get("runtimeToken", "")
        talk.names[f"{step.who}.session"] = participant.session
    elif talk.manner.dialect is Dialect.B:
        await talk.say(participant, {"cmd": "connect", "data": {"runtimeURL": participant.runtime}})
        words: Json = "connected" if talk.manner.profile.is_exact else Text()
        await talk.expect(participant, {"cmd": "connect", "response": 200, "data": {"msg": words}})
    else:
        await talk.fence(participant)  # dialect C has no reply: from here on the session is known to exist


def _open_message(participant: Participant, bearer: str) -> dict[str, Json]:
    message: dict[str, Json] = {"id": next(participant.ids), "type": "open", "from": participant.runtime, "to": SESSION}
    return message | {"body": {"credentials": {"kind": "bearer", "token": bearer}}} if bearer else message


def _opened(talk: Conversation) -> Json:
    """The body of a granted `open`: with a token over WebSocket, where socket.io's stubs expect none."""
    token: Json = Text(r"\S{16,}", "token that cannot be guessed")
    if talk.manner.profile is Profile.REFERENCE:
        return Open({"code": 200, "runtimeToken": Maybe(Text(UUID, "uuid"))})
    if talk.manner.dialect is not Dialect.A:
        token = Maybe(token)
    return {
        "code": 200,
        "description": "OK",
        "desc": Maybe("OK"),
        "runtimeToken": token,
        "session": Maybe(Open(_FACTS)),
    }


async def _expect_refusal(talk: Conversation, step: CannotOpen) -> None:
    bearer = fill_text(step.bearer, talk.names)
    runtime = _runtime(talk, step.who, step.runtime)
    try:
        participant = await _connect(talk, step.who, runtime, bearer=bearer)
    except LineRefusedError as exc:
        talk.transcript.note(step.who, "←", str(exc))
        if exc.status < 400:
            raise NodeFaultError(f"refused, but not with an HTTP status: {exc}") from exc
        return
    if talk.manner.dialect.has_session_messages:
        await talk.say(participant, _open_message(participant, bearer))
        refusal = Refusal(step.code, (step.reason,))
        await talk.expect(participant, talk.mirrored(participant, refusal))
        return
    if talk.manner.dialect is Dialect.B:
        await talk.say(participant, {"cmd": "connect", "data": {"runtimeURL": runtime}})
        refused = {
            "cmd": "connect",
            "response": Number(400, 599, whole=True),
            "data": {"msg": Text(), "reason": Maybe(Text())},
        }
        await talk.expect(participant, refused)
    await _expect_end(talk, participant)


async def _leave(talk: Conversation, participant: Participant) -> None:
    await talk.say(participant, _closing(talk.manner.dialect, participant))
    await _expect_end(talk, participant)


def _closing(dialect: Dialect, participant: Participant) -> dict[str, Json]:
    facts = {"runtimeURL": participant.runtime}
    if dialect is Dialect.B:
        return {"cmd": "disconnect", "data": facts}
    if dialect is Dialect.C:
        return {"cmd": "disconnect", "body": facts}
    return {"id": next(participant.ids), "type": "close", "from": participant.session, "to": SESSION}


async def _expect_end(talk: Conversation, participant: Participant) -> None:
    try:
        message = await talk.receive(participant, "the closing of the connection")
    except LineClosedError as exc:
        talk.transcript.note(participant.name, "←", str(exc))
        return
    raise NodeFaultError(f"expected the closing of the connection, got {shorten(write(message))}")


async def clear_stage(talk: Conversation) -> None:
    """End all sessions in order, so that a live node keeps nothing of the suite; never fails."""
    async with trio.open_nursery() as nursery:
        for participant in talk.participants.values():
            nursery.start_soon(_go, talk.manner.dialect, participant)


async def _go(dialect: Dialect, participant: Participant) -> None:
    gone = (LineClosedError, WireFaultError, TransportError, trio.BrokenResourceError, trio.ClosedResourceError)
    with suppress(*gone), trio.move_on_after(_CLOSING_SECONDS):
        await participant.line.send(write(_closing(dialect, participant)))
        while True:
            await participant.line.receive()
    with suppress(*gone), trio.move_on_after(_CLOSING_SECONDS):
        await participant.line.drop()
