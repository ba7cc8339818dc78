"""The command frames of dialects B and C: the words before the first message and after the last one.

| frame | direction |
|---|---|
| `{"cmd":"connect","data":{"runtimeURL":"…"}}` | from the runtime, first frame of dialect B |
| `{"cmd":"connect","response":200,"data":{"msg":"connected"}}` | answer; 403 and "Invalid handshake!" to all else |
| `{"cmd":"disconnect","data":{"runtimeURL":"…"}}` | from the runtime, dialect B; dialect C has `body` for `data` |

Source: message specification, sections 5.2 and 5.3.
"""

from __future__ import annotations

from typing import Final

import msgspec

CONNECT: Final = "connect"
DISCONNECT: Final = "disconnect"
CONNECTED: Final = "connected"
INVALID_HANDSHAKE: Final = "Invalid handshake!"
_MARK: Final = b'"cmd"'


class _Target(msgspec.Struct, frozen=True, rename={"runtime": "runtimeURL"}):
    runtime: str = ""


class _Frame(msgspec.Struct, frozen=True):
    cmd: str
    data: _Target | None = None
    body: _Target | None = None


class Command(msgspec.Struct, frozen=True):
    """A command of a runtime about its connection; `runtime` is "" if it named none."""

    word: str
    runtime: str


_decode = msgspec.json.Decoder(_Frame).decode


def read_command(raw: bytes) -> Command | None:
    """The command in a frame, None when it is none: a message, or nonsense."""
    if _MARK not in raw:
        return None
    try:
        frame = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    target = frame.data or frame.body
    return Command(frame.cmd, target.runtime if target is not None else "")


def connect_answer(status: int, text: str, *, reason: str = "") -> bytes:
    """The answer to a runtime of dialect B; `reason` is the stable word of a refusal."""
    data = {"msg": text, "reason": reason} if reason else {"msg": text}
    return msgspec.json.encode({"cmd": CONNECT, "response": status, "data": data})
