"""Answers of a global registry over REST: several generations of servers, one meaning.

Source: data formats, section 4.1; message specification, sections 12.3 and 12.4.
"""

from __future__ import annotations

from typing import NamedTuple

from protofly.errors import Code, PeerError
from protofly.signatures import parse_strict

_CODES = ("Code", "responseCode", "code")
_VALUES = ("Value", "data", "value")
_EXPLANATIONS = ("Explanation", "Description", "Message", "message", "description")
_REFUSALS = {
    400: Code.BAD_BODY,
    401: Code.BAD_BODY,
    409: Code.RECORD_OUTDATED,
    410: Code.RECORD_REVOKED,
    413: Code.TOO_LARGE,
    429: Code.RATE,
}
"""What is the writer's own fault; anything else is the registry's."""


class RestAnswer(NamedTuple):
    """One answer: its code, the record in it, and what it says besides."""

    code: int
    value: str
    explanation: str


def read_answer(status: int, body: bytes, *, host: str) -> RestAnswer:
    """Read an answer; the code inside wins over that of HTTP.

    Raises:
        PeerError: BAD_REPLY when it is none, HTTP_STATUS when a server in between has answered.
    """
    try:
        members = parse_strict(body)
    except ValueError:
        members = None
    if not isinstance(members, dict):
        if status != 200:
            raise PeerError(Code.HTTP_STATUS, f"the global registry answers {status}", domain=host)
        raise PeerError(Code.BAD_REPLY, "the global registry answers no JSON object", domain=host)
    code = next((members[name] for name in _CODES if name in members), status)
    if not isinstance(code, int) or not 100 <= code < 600:
        raise PeerError(Code.BAD_REPLY, "the global registry answers no code", domain=host)
    return RestAnswer(code, _first_text(members, _VALUES), _first_text(members, _EXPLANATIONS)[:200])


def record_in(answer: RestAnswer, *, host: str) -> str:
    """The record that a read has found.

    Raises:
        PeerError: NOT_REGISTERED; HTTP_STATUS for a registry that fails; BAD_REPLY for one that answers nothing.
    """
    if answer.code == 404:
        raise PeerError(Code.NOT_REGISTERED, "the global registry has no such GUID", domain=host)
    if answer.code != 200:
        raise PeerError(Code.HTTP_STATUS, _explained(answer), domain=host)
    if not answer.value:
        raise PeerError(Code.BAD_REPLY, "the global registry answers no record", domain=host)
    return answer.value


def check_written(answer: RestAnswer, *, host: str) -> None:
    """True if a write was taken.

    Raises:
        PeerError: What the writer did wrong; HTTP_STATUS for a registry that fails.
    """
    if answer.code != 200:
        raise PeerError(_REFUSALS.get(answer.code, Code.HTTP_STATUS), _explained(answer), domain=host)


def _explained(answer: RestAnswer) -> str:
    return f"the global registry answers {answer.code}: {answer.explanation}".rstrip(": ")


def _first_text(members: dict[str, object], names: tuple[str, ...]) -> str:
    return next((text for name in names if isinstance(text := members.get(name), str) and text), "")
