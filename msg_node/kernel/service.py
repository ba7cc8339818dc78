"""Types that the services of the node share: request, caller, answer, and the effects of a step.

A service takes a `ServiceRequest` and gives an `Answer`, or raises a `PeerError` that becomes the refusal. It knows
nothing about headers, dialects or commits. A service that has to ask somebody outside of this process first gives an
`Inquiry` in place of its answer (`inquire`); `msg_node.bus.inquiries` says how that goes on. Source: message
specification, sections 2.4 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Generic, Literal, NamedTuple, TypeVar, cast

import msgspec

from msg_node.kernel.changes import Change
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.resources import Members
from protofly import codec
from protofly.errors import Code, HostError
from protofly.limits import INQUIRY_SECONDS
from protofly.message import Message


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request: a session of ours (positive number, `domain` "") or a link (negative number).

    `reads_desc`: a runtime of dialect A; `is_guest`: a runtime of another domain; `is_policy_manager`: it may manage
    policies.
    """

    number: int
    domain: str = ""
    is_operator: bool = False
    is_guest: bool = False
    reads_desc: bool = False
    is_policy_manager: bool = False

    @property
    def is_link(self) -> bool:
        """True if a foreign domain asks."""
        return self.number < 0

    @property
    def is_abroad(self) -> bool:
        """True if a foreign domain asks: over its link, or by a guest, which may do no more."""
        return self.is_link or self.is_guest


class ServiceRequest(msgspec.Struct):
    """One request to a service. `domain` is the one of our domains that it is for, `seed` fresh randomness.

    `elsewhere`: keys of addresses in it that other nodes own, as far as that was asked.
    """

    message: Message
    caller: Caller
    domain: str
    now: float
    seed: bytes
    elsewhere: frozenset[str] = frozenset()
    _members: Members | None = None

    @property
    def members(self) -> Members:
        """The decoded body.

        Raises:
            PeerError: BAD_BODY, TOO_LARGE.
        """
        if self._members is None:
            self._members = codec.request_members(self.message.body)
        return self._members


class Event(msgspec.Struct, frozen=True):
    """A message of the node's own, mostly an `update`; `has_id` unless the specification shows none."""

    from_: str
    to: str
    body: dict[str, object]
    has_id: bool = True
    type: str = "update"


class Durability(Enum):
    """Condition for sending replies that report earlier changes, which may not be durable yet.

    NONE: at once; they report nothing that is stored.
    PREFERRED: when these changes are durable; at once while the disk refuses, so that reads go on.
    REQUIRED: when these changes are durable; refused if they cannot be stored.
    """

    NONE = "none"
    PREFERRED = "preferred"
    REQUIRED = "required"


class Answer(msgspec.Struct, frozen=True):
    """The answer of a service. UNSET leaves `value` out, "" takes the default `description` of the code.

    `members` are further ones of the body, such as other spellings that runtimes read. `durability`: that of an answer
    to a read; any other answer requires it.
    """

    code: int = 200
    value: object = msgspec.UNSET
    reason: str = ""
    description: str = ""
    status_changes: Sequence[StatusChange] = ()
    events: Sequence[Event] = ()
    members: Mapping[str, object] | None = None
    durability: Durability = Durability.PREFERRED


_Question = TypeVar("_Question", bound=msgspec.Struct)
_Reply = TypeVar("_Reply")


@dataclass(frozen=True, slots=True)
class ConnectorName(Generic[_Question, _Reply]):
    """The name of a connector, and the types of what it is asked and what it replies."""

    word: str


class Lane(NamedTuple):
    """Inquiries of one lane are asked in the order in which they came; "": in no order.

    `is_sharing`: this one may go together with others of its lane that share.
    """

    name: str = ""
    is_sharing: bool = False


NO_LANE = Lane()


class Inquiry(msgspec.Struct, frozen=True):
    """A question to a system elsewhere that precedes the answer; made by `inquire`.

    Attributes:
        connector: Name of the connector that is asked.
        question: What it is asked.
        conclude: Makes the answer, or a further inquiry, of its reply and the time (seconds since the Unix epoch).
        failed: Makes them of the error in place of a reply; None: the code of the error is the answer.
        seconds: How long it may take, the wait for its turn included.
        lane: See `Lane`.
        is_sharing: See `Lane`.
    """

    connector: str
    question: msgspec.Struct
    conclude: Callable[[object, float], Answer | Inquiry]
    failed: Callable[[HostError, float], Answer | Inquiry] | None
    seconds: float
    lane: str
    is_sharing: bool


def inquire(
    connector: ConnectorName[_Question, _Reply],
    question: _Question,
    conclude: Callable[[_Reply, float], Answer | Inquiry],
    *,
    failed: Callable[[HostError, float], Answer | Inquiry] | None = None,
    seconds: float = INQUIRY_SECONDS,
    lane: Lane = NO_LANE,
) -> Inquiry:
    """Ask `connector`, and let `conclude` make the answer of its reply.

    `conclude` and `failed` run in the step that ends the inquiry: they may change the state of the node, whose changes
    are durable before the answer leaves, and may raise PeerError for a refusal. A further inquiry of the same lane
    keeps its place in it, unless something had to become durable in between. See `Inquiry`.
    """
    typed = cast("Callable[[object, float], Answer | Inquiry]", conclude)
    return Inquiry(connector.word, question, typed, failed, seconds, lane.name, lane.is_sharing)


class Asked(msgspec.Struct, frozen=True):
    """An inquiry under way: the request that it is for, who asked, and how many inquiries came before for it."""

    message: Message
    caller: Caller
    inquiry: Inquiry
    step: int = 0


Service = Callable[[ServiceRequest], Answer | Inquiry]
"""A service. Raises PeerError for a refusal."""


class CloseCode(IntEnum):
    """Reasons to close a WebSocket connection. Source: message specification, section 5.1; RFC 6455, section 7.4.1."""

    NORMAL = 1000
    UNPROVED = 1008
    TAKEN_OVER = 4001
    PROOF_EXPIRED = 4401
    REMOVED = 4403
    LEASE_OVER = 4408
    CROWDED_OUT = 4503

    @property
    def word(self) -> str:
        """The reason in the close frame."""
        return _CLOSE_WORDS.get(self, "")


_CLOSE_WORDS = {
    CloseCode.UNPROVED: Code.NO_CREDENTIALS.word,
    CloseCode.TAKEN_OVER: "taken-over",
    CloseCode.PROOF_EXPIRED: Code.BAD_TOKEN.word,
    CloseCode.REMOVED: "removed",
    CloseCode.LEASE_OVER: Code.EXPIRED.word,
    CloseCode.CROWDED_OUT: Code.OVERLOAD.word,
}


@dataclass(frozen=True, slots=True)
class Bind:
    """From now on a connection speaks for a session."""

    connection: int
    sid: int


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close a connection, after the replies to it."""

    connection: int
    code: CloseCode


@dataclass(frozen=True, slots=True)
class Probe:
    """Ping a connection; its pong counts as a sign of life (`Sessions.heard`)."""

    connection: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A session is over: nothing is delivered to it any more."""

    sid: int


@dataclass(frozen=True, slots=True)
class Parked:
    """A session has lost its connection: nothing is delivered to it until it comes back."""

    sid: int


Effect = Bind | CloseConnection | Probe | Ended | Parked


@dataclass(frozen=True, slots=True)
class Notice:
    """The notice to a connection about its session before it is closed: the `value` of its `<runtime>/status`.

    Source: message specification, sections 5.1 and 5.4.
    """

    connection: int
    runtime: str
    value: str
    reason: str = ""


SessionEventName = Literal["opened", "re-opened", "taken-over", "lost", "expired", "closed", "refused"]


@dataclass(frozen=True, slots=True)
class SessionNews:
    """Something happened to a session, for the audit records; `sid` None where there is none.

    `addresses` and `subscriptions` are what it held when it ended.
    """

    event: SessionEventName
    runtime_key: str
    sid: int | None = None
    code: str = ""
    detail: str = ""
    addresses: int | None = None
    subscriptions: int | None = None


class ServiceResult(msgspec.Struct):
    """The effects of one step.

    Attributes:
        replies: For whom asked; when there are `changes` they leave only after the commit.
        notifications: Messages of our own, to be routed like any other, after the commit as well.
        inquiries: To be asked, after the commit as well; the replies to their requests come later.
        changes: To be committed.
        effects: To be done at once, in order.
        notices: To be queued at once, before anything is closed.
        news: For the audit records.
        durability: When the replies leave without `changes`.
    """

    replies: Sequence[Message] = ()
    notifications: Sequence[Message] = ()
    inquiries: Sequence[Asked] = ()
    changes: Sequence[Change] = ()
    effects: Sequence[Effect] = ()
    notices: Sequence[Notice] = ()
    news: Sequence[SessionNews] = ()
    durability: Durability = Durability.NONE
