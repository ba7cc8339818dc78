"""Steps that begin and end sessions, in the manner of each dialect.

Source: message specification, sections 5.1 to 5.4.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from interop.conformance.filling import fill_text
from interop.conformance.jsontext import Json, shorten, write
from interop.conformance.matching import UUID, Anything, Maybe, Number, Open, Text
from interop.conformance.model import CannotOpen, Connects, Dialect, Leaves, Loses, Opens, Profile, Refusal, Step
from interop.conformance.outcome import NodeFaultError
from interop.conformance.stage import Participant, connect
from interop.conformance.wire import LineClosedError, LineRefusedError, WireFaultError
from protofly.errors import TransportError

if TYPE_CHECKING:
    from interop.conformance.play import Player

SESSION: Final = "mn:/session"
_FAREWELL_SECONDS: Final = 1.0
_FACTS: Final = {"expires": Maybe(Number()), "ping": Maybe(Number()), "functions": Maybe(Anything())}


async def perform(player: Player, step: Step) -> None:
    """Begin or end a session, or try to."""
    match step:
        case Opens():
            await _open(player, step)
        case CannotOpen():
            await _expect_refusal(player, step)
        case Connects():
            await _connect(player, step.who, _runtime(player, step.who, step.runtime))
        case Leaves():
            await _leave(player, player.participants[step.who])
        case Loses():
            player.transcript.note(step.who, "→", "(the transport is lost)")
            await player.participants[step.who].line.drop()
        case _:
            raise TypeError(f"unknown step {step!r}")


def _runtime(player: Player, who: str, given: str) -> str:
    runtime = fill_text(given, player.names) if given else player.names.get(who, "")
    return runtime or f"runtime://{player.node.domain}/{player.node.runtime_prefix}{player.names['n']}-{who}"


async def _connect(player: Player, who: str, runtime: str, *, bearer: str = "", is_direct: bool = False) -> Participant:
    dialect = player.manner.dialect
    player.transcript.note(who, "→", f"(connects in dialect {dialect.value} as {runtime})")
    line = await connect(player.nursery, player.node, dialect, runtime, bearer=bearer, is_direct=is_direct)
    participant = Participant(who, runtime, line)
    player.participants[who] = participant
    old_spelling = runtime.replace("runtime:", "hyperty-runtime:", 1)
    rest = runtime.partition(":")[2]
    player.names |= {who: runtime, f"{who}.session": runtime, f"{who}.old": old_spelling, f"{who}.rest": rest}
    return participant


async def _open(player: Player, step: Opens) -> None:
    needs_token = step.with_token or not player.node.is_anonymous_welcome
    bearer = player.node.token if needs_token else ""
    runtime = _runtime(player, step.who, step.runtime)
    participant = await _connect(player, step.who, runtime, bearer=bearer, is_direct=step.is_direct)
    if player.manner.dialect.has_session_messages:
        await player.say(participant, _open_message(participant, bearer))
        await player.expect(participant, player.mirrored(participant, _opened(player)))
        body = participant.heard.get("body", {}) if isinstance(participant.heard, dict) else {}
        participant.token = body.get("runtimeToken", "")
        player.names[f"{step.who}.session"] = participant.session
    elif player.manner.dialect is Dialect.B:
        await player.say(participant, {"cmd": "connect", "data": {"runtimeURL": participant.runtime}})
        words: Json = "connected" if player.manner.profile is Profile.STRICT else Text()
        await player.expect(participant, {"cmd": "connect", "response": 200, "data": {"msg": words}})
    else:
        await player.fence(participant)  # dialect C has no reply: from here on the session is known to exist


def _open_message(participant: Participant, bearer: str) -> dict[str, Json]:
    message: dict[str, Json] = {"id": next(participant.ids), "type": "open", "from": participant.runtime, "to": SESSION}
    return message | {"body": {"credentials": {"kind": "bearer", "token": bearer}}} if bearer else message


def _opened(player: Player) -> Json:
    """The body of a granted `open`: with a token over WebSocket, where socket.io's stubs expect none."""
    token: Json = Text(r"\S{16,}", "token that cannot be guessed")
    if player.manner.profile is Profile.REFERENCE:
        return Open({"code": 200, "runtimeToken": Maybe(Text(UUID, "uuid"))})
    if player.manner.dialect is not Dialect.A:
        token = Maybe(token)
    return {
        "code": 200,
        "description": "OK",
        "desc": Maybe("OK"),
        "runtimeToken": token,
        "session": Maybe(Open(_FACTS)),
    }


async def _expect_refusal(player: Player, step: CannotOpen) -> None:
    bearer = fill_text(step.bearer, player.names)
    runtime = _runtime(player, step.who, step.runtime)
    try:
        participant = await _connect(player, step.who, runtime, bearer=bearer)
    except LineRefusedError as exc:
        player.transcript.note(step.who, "←", str(exc))
        if exc.status < 400:
            raise NodeFaultError(f"refused, but not with an HTTP status: {exc}") from exc
        return
    if player.manner.dialect.has_session_messages:
        await player.say(participant, _open_message(participant, bearer))
        refusal = Refusal(step.code, (step.reason,))
        await player.expect(participant, player.mirrored(participant, refusal))
        return
    if player.manner.dialect is Dialect.B:
        await player.say(participant, {"cmd": "connect", "data": {"runtimeURL": runtime}})
        refused = {
            "cmd": "connect",
            "response": Number(400, 599, whole=True),
            "data": {"msg": Text(), "reason": Maybe(Text())},
        }
        await player.expect(participant, refused)
    await _expect_end(player, participant)


async def _leave(player: Player, participant: Participant) -> None:
    await player.say(participant, _farewell(player.manner.dialect, participant))
    await _expect_end(player, participant)


def _farewell(dialect: Dialect, participant: Participant) -> dict[str, Json]:
    facts = {"runtimeURL": participant.runtime}
    if dialect is Dialect.B:
        return {"cmd": "disconnect", "data": facts}
    if dialect is Dialect.C:
        return {"cmd": "disconnect", "body": facts}
    return {"id": next(participant.ids), "type": "close", "from": participant.session, "to": SESSION}


async def _expect_end(player: Player, participant: Participant) -> None:
    try:
        message = await player.receive(participant, "the closing of the connection")
    except LineClosedError as exc:
        player.transcript.note(participant.name, "←", str(exc))
        return
    raise NodeFaultError(f"expected the closing of the connection, got {shorten(write(message))}")


async def clear_stage(player: Player) -> None:
    """End all sessions in order, so that a live node keeps nothing of the suite; never fails."""
    async with trio.open_nursery() as nursery:
        for participant in player.participants.values():
            nursery.start_soon(_go, player.manner.dialect, participant)


async def _go(dialect: Dialect, participant: Participant) -> None:
    gone = (LineClosedError, WireFaultError, TransportError, trio.BrokenResourceError, trio.ClosedResourceError)
    with suppress(*gone), trio.move_on_after(_FAREWELL_SECONDS):
        await participant.line.send(write(_farewell(dialect, participant)))
        while True:
            await participant.line.receive()
    with suppress(*gone), trio.move_on_after(_FAREWELL_SECONDS):
        await participant.line.drop()
