r"""Events and actions as plain objects that authors read and write: in traces, scripts and recordings.

    {"event": "data", "channel": 1, "is_text": true, "text": "WELCOME ey…"}
    {"action": "open", "channel": 1, "kind": "websocket", "text": "{\"endpoint\":\"mn\"}"}

`arg` of a record has the name that fits its kind, flags are members of their own, and the bytes are `text` where they
are UTF-8 without control characters, else `hex`. An author may write `json` in place of `text`. Pure.

Source: docs/abi.md, "Records".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from protofly.errors import SettingsError, StubFaultError
from sandbox.core.exchange import (
    FLAG_TEXT,
    PROLOGUE,
    PROLOGUE_BYTES,
    RECORD,
    RECORD_BYTES,
    Action,
    ChannelKind,
    Event,
    GuestAction,
    GuestEvent,
    decode_actions,
)

Facts = dict[str, Any]

ACTIONS: Final = tuple(kind.name.lower() for kind in Action)
"""Names of the actions."""
_EVENT_ARGS: Final = {
    Event.MESSAGE: "number",
    Event.OPENED: "channel",
    Event.DATA: "channel",
    Event.CLOSED: "channel",
    Event.TIMER: "timer",
    Event.HTTP_RESPONSE: "channel",
    Event.AUTH_TOKEN: "channel",
    Event.PEER_VERIFIED: "channel",
}
_EVENT_FLAGS: Final = {
    Event.DATA: "is_text",
    Event.AUTH_TOKEN: "is_granted",
    Event.PEER_VERIFIED: "is_verified",
    Event.ADDRESSES: "is_snapshot",
}
_ACTION_ARGS: Final = {
    Action.OPEN: "channel",
    Action.SEND: "channel",
    Action.CLOSE: "channel",
    Action.DELIVER: "number",
    Action.SET_TIMER: "timer",
    Action.REQUEST_AUTH_TOKEN: "channel",
    Action.VERIFY_PEER: "channel",
    Action.ACCEPTED: "number",
    Action.REFUSED: "number",
    Action.LOG: "level",
}
_LEVELS: Final = ("debug", "info", "warning", "error")
_EVENTS: Final = {_event.name.lower(): _event for _event in Event}
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTENT: Final = ("text", "hex", "json")


def decode_events(buffer: bytes) -> tuple[int, list[GuestEvent]]:
    """Unix time in milliseconds, and the events of one event buffer, as the host made it."""
    now_ms, _random = PROLOGUE.unpack_from(buffer)
    events: list[GuestEvent] = []
    offset = PROLOGUE_BYTES
    while offset < len(buffer):
        op, flags, _reserved, arg, length = RECORD.unpack_from(buffer, offset)
        start = offset + RECORD_BYTES
        offset = start + length
        events.append(GuestEvent(op, arg, buffer[start:offset], flags))
    return now_ms, events


def readable_actions(output: bytes) -> list[GuestAction]:
    """The actions of one answer; none when it breaks the contract, which the host reports as a fault."""
    try:
        return decode_actions(output)
    except StubFaultError:
        return []


def event_facts(event: GuestEvent) -> Facts:
    """One event as an object."""
    kind = Event(event.op)
    facts: Facts = {"event": kind.name.lower()}
    if kind in _EVENT_ARGS:
        facts[_EVENT_ARGS[kind]] = event.arg
    if kind in _EVENT_FLAGS:
        facts[_EVENT_FLAGS[kind]] = bool(event.flags & 1)
    return facts | _content(event.payload)


def action_facts(action: GuestAction) -> Facts:
    """One action as an object."""
    kind = Action(action.op)
    facts: Facts = {"action": kind.name.lower()}
    if kind in _ACTION_ARGS:
        facts[_ACTION_ARGS[kind]] = action.arg
    if kind is Action.OPEN:
        known = action.flags in ChannelKind._value2member_map_
        facts["kind"] = ChannelKind(action.flags).name.lower().replace("_", "-") if known else action.flags
    elif kind is Action.SEND:
        facts["is_text"] = bool(action.flags & FLAG_TEXT)
    elif kind is Action.LOG:
        facts["level"] = _LEVELS[min(action.arg, len(_LEVELS) - 1)]
    elif kind is Action.SET_TIMER:
        return facts | {"ms": int.from_bytes(action.payload, "little")}
    return facts | _content(action.payload)


def event_of(facts: Mapping[str, Any]) -> GuestEvent:
    """The event that an author wrote.

    Raises:
        SettingsError: It is none; the text names the member.
    """
    kind = _EVENTS.get(str(facts.get("event")))
    if kind is None:
        raise SettingsError(f"no such event: {facts.get('event')!r}; known: {', '.join(_EVENTS)}")
    arg, flag = _EVENT_ARGS.get(kind, ""), _EVENT_FLAGS.get(kind, "")
    known = {"event", arg, flag, *_CONTENT} - {""}
    if unknown := sorted(set(facts) - known):
        raise SettingsError(f"event {kind.name.lower()}: unknown member {unknown[0]!r}; known: {sorted(known)}")
    number = facts.get(arg, 1 if arg else 0)
    if not isinstance(number, int) or not 0 <= number < 1 << 32:
        raise SettingsError(f"event {kind.name.lower()}: {arg} must be a number of 32 bits")
    return GuestEvent(kind, number, payload_of(facts), 1 if facts.get(flag) else 0)


def payload_of(facts: Mapping[str, Any]) -> bytes:
    """The bytes that `text`, `hex` or `json` says; nothing when there is none of them.

    Raises:
        SettingsError: There are two of them, or the digits are none.
    """
    given = [name for name in _CONTENT if name in facts]
    if len(given) > 1:
        raise SettingsError(f"{given[0]} and {given[1]} in one record")
    if not given:
        return b""
    value = facts[given[0]]
    if given[0] == "json":
        return msgspec.json.encode(value)
    if not isinstance(value, str):
        raise SettingsError(f"{given[0]} must be a text")
    try:
        return value.encode() if given[0] == "text" else bytes.fromhex(value)
    except ValueError as exc:
        raise SettingsError(f"{given[0]} {value[:40]!r}: {exc}") from exc


def _content(payload: bytes) -> Facts:
    if not payload:
        return {}
    if not _CONTROLS.search(payload):
        try:
            return {"text": payload.decode()}
        except UnicodeDecodeError:
            pass  # not text
    return {"hex": payload.hex()}
