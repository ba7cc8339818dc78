"""What a case is: a conversation between runtimes and a node, as data.

A case names its cast; every member of the cast opens a session before the first step. Steps then say who sends what and
what has to come back, as a whole. Texts may hold names in braces, filled in anew for every run:

==================  ==================================================================================
`{d}`, `{d.upper}`  the node's own domain, as it is and in upper case
`{n}`               a word that no other run has, for addresses that a case makes up
`{ana}`             runtime address of a member of the cast, here of ana
`{ana.session}`     her session address: with the token where the dialect has one
`{ana.old}`         her runtime address as `hyperty-runtime://…`
`{ana.rest}`        her runtime address without scheme and colon
`{node}`            `domain://msg-node.<d>`
`{sm}`              its subscription manager
`{allocation}`      its address allocation
`{x}`               whatever an earlier step kept with `Keep("x", …)`
==================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from interop.conformance.jsontext import Json
from interop.conformance.matching import Keep, OneOf, Placeholder, Text


class Dialect(Enum):
    """Protocol between runtimes and the node. Source: message specification, sections 5.1 to 5.3."""

    A = "a"
    SOCKETIO = "socketio"
    POLLING = "polling"
    B = "b"
    C = "c"

    @property
    def has_session_messages(self) -> bool:
        """True if `open` is a message (dialect A), on whatever transport."""
        return self in _DIALECT_A

    @property
    def has_frames(self) -> bool:
        """True if the connection is a WebSocket from its first byte."""
        return self in {Dialect.A, Dialect.B, Dialect.C}


_DIALECT_A: Final = frozenset({Dialect.A, Dialect.SOCKETIO, Dialect.POLLING})
ALL: Final = frozenset(Dialect)
SESSION_MESSAGES: Final = _DIALECT_A
FRAMES: Final = frozenset({Dialect.A, Dialect.B, Dialect.C})


class Profile(Enum):
    """Set of rules that a node is tested against."""

    STRICT = "strict"
    """The message specification."""
    REFERENCE = "reference"
    """What the three reference nodes agree on; more than they say is allowed."""
    RETHINK = "rethink"
    """The message specification, at a node whose operator switched on what existing runtimes rely on."""

    @property
    def is_exact(self) -> bool:
        """True if messages have exactly the members that the specification defines."""
        return self is not Profile.REFERENCE


SPECIFICATION: Final = frozenset({Profile.STRICT, Profile.RETHINK})
STRICT_ONLY: Final = frozenset({Profile.STRICT})


class Need(Enum):
    """The things besides a node that a case needs."""

    TOKEN = "token"  # noqa: S105 - the word for it, not one
    ANONYMOUS = "anonymous"


class Absent(Enum):
    """A member that is not there, which is not null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
NODE_ADDRESS: Final = Text(r"runtime://{d}/\S+", "address of the node")


@dataclass(frozen=True, slots=True)
class Success(Placeholder):
    """Body of a granted request: 200, `OK`, and `value` if one is foreseen.

    Source: message specification, section 4.
    """

    value: Json = ABSENT


@dataclass(frozen=True, slots=True)
class Refusal(Placeholder):
    """Body of a refused request: code, words, one of the reasons. Source: message specification, section 4.

    With `in_place_of_target` it is the node that speaks for a target, and `source` has to say so.
    """

    code: int
    reasons: tuple[str, ...]
    value: Json = ABSENT
    in_place_of_target: bool = False
    text: str = r"(?s).+"


@dataclass(frozen=True, slots=True)
class CaseStep:
    """Something that `who` does, or that has to happen to `who`."""

    who: str


@dataclass(frozen=True, slots=True)
class Opens(CaseStep):
    """Connects and opens a session; the whole opening is checked.

    `runtime`: another address than `{who}`. `with_token`: presents the token that the suite was given.
    `is_direct`: in dialect socketio, WebSocket from the first byte.
    """

    runtime: str = ""
    with_token: bool = False
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class CannotOpen(CaseStep):
    """Connects, tries to open a session, and has to be refused in the way of the dialect.

    `bearer`: a token that is presented; only dialect A says `code` and `reason`.
    """

    runtime: str = ""
    code: int = 409
    reason: str = "address-taken"
    bearer: str = ""


@dataclass(frozen=True, slots=True)
class Connects(CaseStep):
    """Makes a connection, and says nothing on it. In dialect C that is all there is; `runtime` goes into the query."""

    runtime: str = ""


@dataclass(frozen=True, slots=True)
class Asks(CaseStep):
    """Sends a message. Without `from_` it comes from the runtime address; without `id` it gets the next number."""

    type: str
    to: Json
    body: Json = ABSENT
    from_: Json = ""
    id: Json | None = None
    others: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Says(CaseStep):
    """Sends a text as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class SaysTogether(CaseStep):
    """Sends several texts as close together as the transport can: while polling, in one request."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hears(CaseStep):
    """The next message is this one, as a whole."""

    message: Json


@dataclass(frozen=True, slots=True)
class HearsAll(CaseStep):
    """The next messages are these, in any order."""

    messages: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Answered(CaseStep):
    """The next message is the response to what `who` asked last: header mirrored, body as given.

    With `or_validator` it may come from `mn:/validator` to the runtime as well: the message was no message.
    """

    body: Json
    from_: str = ""
    or_validator: bool = False


@dataclass(frozen=True, slots=True)
class Arrives(CaseStep):
    """The next message is the one that `sent_by` sent last, unchanged but for `changes` in header or body."""

    sent_by: str
    changes: Mapping[str, Json] = field(default_factory=dict)
    body: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replies(CaseStep):
    """Answers the message that `who` heard last."""

    body: Json


@dataclass(frozen=True, slots=True)
class Silent(CaseStep):
    """Nothing came: proved by later messages that have to come first. `after`: whose messages should not have come."""

    after: str = ""


@dataclass(frozen=True, slots=True)
class Survives(CaseStep):
    """The session goes on, whatever was answered."""


@dataclass(frozen=True, slots=True)
class Closed(CaseStep):
    """The node closes the connection, without a message before. `codes`: which WebSocket close codes will do.

    With `or_notice` a status notice of `mn:/session` may come first.
    """

    codes: tuple[int, ...] = ()
    or_notice: bool = False


@dataclass(frozen=True, slots=True)
class RefusedOrClosed(CaseStep):
    """The answer is a refusal (in these words, if some are given), or the node closes the connection."""

    answer: Answered | None = None


@dataclass(frozen=True, slots=True)
class Loses(CaseStep):
    """The transport ends without a word of the dialect."""


@dataclass(frozen=True, slots=True)
class Notices(CaseStep):
    """Asks for a lost session's runtime `{lost}` until the node answers: from then on it knows of the loss."""

    lost: str


@dataclass(frozen=True, slots=True)
class Leaves(CaseStep):
    """Ends the session in the way of the dialect; the node has to close the connection, and nothing else."""


@dataclass(frozen=True, slots=True)
class Pings(CaseStep):
    """The transport's own keep-alive is answered."""


@dataclass(frozen=True, slots=True)
class SendsMalformed(CaseStep):
    """Sends a text frame that is no UTF-8: `text`, with the byte FF in the place of each `\ufffd`."""

    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One conversation, and the words of the specification that it holds a node to."""

    id: str
    section: str
    says: str
    steps: tuple[CaseStep, ...]
    cast: tuple[str, ...]
    dialects: frozenset[Dialect] = ALL
    profiles: frozenset[Profile] = SPECIFICATION
    needs: frozenset[Need] = frozenset()

    @property
    def group(self) -> str:
        """First word of the id: the row of the report."""
        return self.id.partition("-")[0]


Steps = CaseStep | Sequence[CaseStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Dialects, profiles and needs of a case; `reference`: in all profiles, since the reference nodes agree on it."""

    dialects: frozenset[Dialect] = ALL
    reference: bool = False
    needs: frozenset[Need] = frozenset()
    profiles: frozenset[Profile] = SPECIFICATION


EVERYWHERE: Final = Scope()


def case(
    id: str,
    section: str,
    says: str,
    *steps: Steps,
    cast: str = "ana",
    scope: Scope = EVERYWHERE,
) -> Case:
    """A case; steps may be sequences of steps."""
    flat = [step for entry in steps for step in ([entry] if isinstance(entry, CaseStep) else entry)]
    return Case(
        id=id,
        section=section,
        says=says,
        steps=tuple(flat),
        cast=tuple(cast.split()),
        dialects=scope.dialects,
        profiles=frozenset(Profile) if scope.reference else scope.profiles,
        needs=scope.needs,
    )


def granted(who: str, value: Json = ABSENT) -> Answered:
    """The last request was granted."""
    return Answered(who, Success(value))


def refused(who: str, code: int, *reasons: str, value: Json = ABSENT) -> Answered:
    """The last request was refused by the service that it went to."""
    return Answered(who, Refusal(code, reasons, value))


def malformed(who: str) -> Answered:
    """The last request had a body that is no object: its target says so, or the validator does."""
    return Answered(who, Refusal(400, ("bad-body", "bad-header")), or_validator=True)


def over_limit(who: str) -> Answered:
    """The last message was over a limit. Source: message specification, sections 1.6 and 4."""
    refusals = Refusal(413, ("too-large",)), Refusal(400, ("too-deep",))
    return Answered(who, OneOf(refusals), or_validator=True)


def unreachable(who: str, code: int, *reasons: str) -> Answered:
    """The last request was refused by the node in place of its target."""
    return Answered(who, Refusal(code, reasons, in_place_of_target=True))


def owns(who: str, name: str, scheme: str = "hyperty") -> tuple[CaseStep, ...]:
    """`who` gets an address by allocation, which later steps call `{name}`."""
    kept = Keep(name, Text(rf"{scheme}://{{d}}/\S+", f"{scheme} address"))
    body = {"scheme": scheme, "value": {"number": 1, "allocationKey": f"{{{who}}}/key-{name}"}}
    return (
        Asks(who, "create", "{allocation}", body, from_=f"{{{who}}}/address-allocation"),
        granted(who, {"allocated": [kept]}),
    )


def listens(who: str, *addresses: str) -> tuple[CaseStep, ...]:
    """`who` subscribes to addresses."""
    return (
        Asks(who, "subscribe", "{sm}", {"resources": list(addresses), "source": f"{{{who}}}"}, from_=f"{{{who}}}/sm"),
        granted(who),
    )


def reports(who: str, object_: str) -> tuple[CaseStep, ...]:
    """`who` becomes the reporter of an object that nobody owns: the first who takes its subscriptions."""
    return listens(who, f"{object_}/subscription")
