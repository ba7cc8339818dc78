"""A message of a node to the node of another domain, which shows that messages go there and come back.

It is an ordinary request, `read` to `domain://msg-node.<domain>`: it passes the same gates, stub and link as messages
of users do. Whatever the other domain answers has made the round trip, a refusal of its gate as well. An answer that
names a node of our own domain as its source was made here, in place of theirs: nothing came back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protofly import codec
from protofly.address import domain_of
from protofly.answer_codes import code_of
from protofly.errors import PeerError
from protofly.message import Message

WAIT_SECONDS: Final = 10.0
_FINAL: Final = 200
_WORD_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """The result of a round trip: the answer's code and reason, and the side that made it.

    Attributes:
        code: Status of the answer, 0 when it cannot be read.
        reason: Code word of the answer, "" without one.
        is_ours: It was made on our side.
    """

    code: int
    reason: str
    is_ours: bool


def question(node: str, domain: str, name: str) -> Message:
    """The request of a node; `name` is another one each time."""
    return codec.build(id=f"round-trip-{name}", type="read", from_=node, to=f"domain://msg-node.{domain}")


def answer_to(asked: Message, message: Message) -> RoundTrip | None:
    """Read a message as the final answer to our request. Returns None if it is no final answer."""
    if not message.is_response or message.id != asked.id or message.to != asked.from_:
        return None
    code = code_of(message)
    if 0 < code < _FINAL:
        return None
    members = _members(message)
    return RoundTrip(code, members.get("reason", "")[:_WORD_CHARS], _is_of(domain_of(asked.from_), members))


def _members(message: Message) -> dict[str, str]:
    """Those of the body that are texts."""
    try:
        members = codec.body_members(message.body)
    except PeerError:
        return {}
    return {name: value for name, value in members.items() if isinstance(value, str)}


def _is_of(domain: str, members: dict[str, str]) -> bool:
    try:
        return domain_of(members.get("source", "")) == domain
    except PeerError:
        return False
