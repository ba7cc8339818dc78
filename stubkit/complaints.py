"""What a host could not carry out among the actions of a stub. Pure; the rules are those of docs/abi.md, "Actions"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from protofly import limits
from protofly.errors import StubFaultError
from sandbox.core.exchange import Action, GuestAction
from sandbox.core.open_request import check_open, decode_open

CHANNEL_MAX: Final = 65_535
TIMER_BYTES: Final = 4
STATES: Final = frozenset({b"created", b"in-progress", b"live", b"failed", b"disconnected"})
LOG_LEVEL_MAX: Final = 3
_ON_CHANNEL: Final = frozenset(
    {Action.OPEN, Action.SEND, Action.CLOSE, Action.REQUEST_AUTH_TOKEN, Action.VERIFY_PEER},
)


def complaints_about(actions: Sequence[GuestAction], endpoints: frozenset[str], *, is_first: bool = False) -> list[str]:
    """One sentence for every action that breaks a rule, each sentence once.

    Args:
        actions: Answer to one batch of events.
        endpoints: Names that the manifest grants.
        is_first: Whether this answers `start`: then a state has to be among the actions.
    """
    found = [complaint for action in actions if (complaint := _complaint(action, endpoints))]
    if is_first and all(action.op != Action.STATUS for action in actions):
        found.append("`start` was not answered with a status")
    return list(dict.fromkeys(found))


def _complaint(action: GuestAction, endpoints: frozenset[str]) -> str:
    if action.op in _ON_CHANNEL and not 1 <= action.arg <= CHANNEL_MAX:
        return f"channel {action.arg} is not between 1 and {CHANNEL_MAX}"
    size = len(action.payload)
    match action.op:
        case Action.OPEN:
            return _open_complaint(action, endpoints)
        case Action.SET_TIMER if size != TIMER_BYTES:
            return f"a timer's delay has {TIMER_BYTES} bytes, not {size}"
        case Action.REQUEST_AUTH_TOKEN if not limits.CHALLENGE_BYTES_MIN <= size <= limits.CHALLENGE_BYTES_MAX:
            return f"a challenge of {size} bytes"
        case Action.VERIFY_PEER if not 0 < size <= limits.TOKEN_BYTES:
            return f"a token of {size} bytes"
        case Action.STATUS if action.payload.partition(b" ")[0] not in STATES:
            return f"unknown state {_shown(action.payload)}"
        case Action.REFUSED if len(action.payload.split(b" ", 1)) < 2 or not action.payload[:3].isdigit():
            return f"a refusal is `status word text`, not {_shown(action.payload)}"
        case Action.LOG if action.arg > LOG_LEVEL_MAX or size > limits.STUB_LOG_BYTES:
            return "a log line of unknown level or too long"
        case Action.DELIVER:
            return _deliver_complaint(action.payload)
    return ""


def _open_complaint(action: GuestAction, endpoints: frozenset[str]) -> str:
    try:
        wanted = decode_open(action.payload)
        check_open(wanted, action.flags)
    except StubFaultError as exc:
        return f"`open`: {exc.detail}" + (f": {exc.__cause__}" if exc.__cause__ else "")
    if wanted.endpoint not in endpoints:
        return f"opens endpoint {wanted.endpoint!r}, which is not granted"
    return ""


def _deliver_complaint(payload: bytes) -> str:
    try:
        msgspec.json.decode(payload, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        return f"delivers something that is no message: {exc}"
    return ""


def _shown(payload: bytes) -> str:
    """The beginning of what a stub said, quoted."""
    return repr(payload[:40].decode("utf-8", "replace"))
