"""The words of a policy: sets, policies, rules, conditions; what a decision is made of and what it says.

Everything here is a frozen value that JSON can hold, so that the same policy can be sent to another process and
compiled there again.
Source: data formats, section 6; message specification, section 15.3; trust and hosts, section 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol

import msgspec

from protofly.errors import Code
from protofly.message import Message

DOCUMENT_PREFIX: Final = "document: "
"""Begins what a verdict names as its rule when the policy of an object decides."""

Hook = Literal["peer", "out", "in", "local"]
"""The place of a gate: before discovery, before and after the peer's stub, on the own bus."""

LinkClass = Literal["node", "plain"]
"""Trust class of a foreign domain: `node` authenticates itself; in `plain`, senders are not authenticated."""

HOOKS: Final[tuple[Hook, ...]] = ("peer", "out", "in", "local")

Scalar = str | int | float | bool


class Effect(Enum):
    """The effect that a rule wants, and that a decision has."""

    PERMIT = "permit"
    DENY = "deny"
    NOT_APPLICABLE = "not-applicable"
    INDETERMINATE = "indeterminate"


class Algorithm(Enum):
    """Algorithm that combines the results of several rules or policies."""

    DENY_OVERRIDES = "deny-overrides"
    PERMIT_OVERRIDES = "permit-overrides"
    FIRST_APPLICABLE = "first-applicable"


class Mode(Enum):
    """Mode of a rule: it decides, or only reports what it would have decided."""

    ENFORCE = "enforce"
    REPORT = "report"


class Operator(Enum):
    """Comparison of one attribute with a parameter."""

    EQUALS = "equals"
    IN = "in"
    CONTAINS = "contains"
    LIKE = "like"
    MORE_THAN = "moreThan"
    LESS_THAN = "lessThan"
    BETWEEN = "between"
    PRESENT = "present"


class Test(msgspec.Struct, frozen=True, kw_only=True, tag="test", omit_defaults=True):
    """One attribute compared with any of several parameters (one of them has to fit).

    `zone` is where the clocks are that a time, date or weekday is read from, "" for UTC.
    """

    __test__ = False  # not a test of pytest's

    attribute: str
    operator: Operator
    parameters: tuple[Scalar, ...]
    zone: str = ""


class AllOf(msgspec.Struct, frozen=True, kw_only=True, tag="all"):
    """Every part has to hold; with no parts it always holds."""

    parts: tuple[Condition, ...] = ()


class AnyOf(msgspec.Struct, frozen=True, kw_only=True, tag="any"):
    """One part has to hold."""

    parts: tuple[Condition, ...]


class Not(msgspec.Struct, frozen=True, kw_only=True, tag="not"):
    """The part must not hold."""

    part: Condition


Condition = Test | AllOf | AnyOf | Not

ALWAYS: Final = AllOf()


class Obligation(msgspec.Struct, frozen=True, kw_only=True):
    """Something the enforcer gets along with an effect, such as `log = "blocked"`."""

    on: Effect
    name: str
    value: Scalar


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One effect and the condition under which it is wanted."""

    id: str
    effect: Effect
    priority: int = 0
    target: Condition = ALWAYS
    condition: Condition = ALWAYS
    mode: Mode = Mode.ENFORCE
    obligations: tuple[Obligation, ...] = ()


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that are combined into one result."""

    id: str
    rules: tuple[Rule, ...]
    priority: int = 0
    target: Condition = ALWAYS
    algorithm: Algorithm = Algorithm.DENY_OVERRIDES
    obligations: tuple[Obligation, ...] = ()


class PolicySet(msgspec.Struct, frozen=True, kw_only=True):
    """Policies that are combined into one result.

    The first set whose target matches decides; the later ones are not asked.
    """

    id: str
    policies: tuple[Policy, ...]
    version: str = ""
    update: str = ""
    priority: int = 0
    target: Condition = ALWAYS
    algorithm: Algorithm = Algorithm.DENY_OVERRIDES
    mode: Mode = Mode.ENFORCE
    obligations: tuple[Obligation, ...] = ()


RECIPIENT_STATUSES: Final = ("live", "parked", "absent")
"""Values of `dstStatus`: connected, away with a kept session, or not here."""
RECIPIENT_PRESENCES: Final = ("created", "live", "disconnected", "dead")
"""Values of `dstPresence`: the status of an entry in the domain registry."""


class Recipients(Protocol):
    """Knows the recipients of our own domains. Its answers hold for the moment in which they are given."""

    def status(self, address: str, /) -> str | None:
        """One of `RECIPIENT_STATUSES`; None for what is not of our domains, or not known here."""

    def presence(self, address: str, /) -> str | None:
        """One of `RECIPIENT_PRESENCES`; None for what is not registered here."""


@dataclass(frozen=True, slots=True)
class KnownRecipient:
    """Gives the same facts of every recipient: for examples, and for facts out of records."""

    known_status: str | None = None
    known_presence: str | None = None

    def status(self, _address: str, /) -> str | None:
        """See `Recipients`."""
        return self.known_status

    def presence(self, _address: str, /) -> str | None:
        """See `Recipients`."""
        return self.known_presence


class Facts(msgspec.Struct, frozen=True, gc=False):
    """The attributes of one message at one gate. Made anew for each one: nothing of an earlier message can stay.

    A Struct because it is built twice per message (0.1 µs; a slots dataclass takes 0.3 to 0.6); positional use is the
    fastest.

    Args:
        hook: Which gate asks.
        message: The message; `peer` gates get the one that made us look for the domain.
        from_domain: Domain of the sender's address, "" when it has none.
        to_domain: Domain of the recipient's address, "" when it has none.
        link_domain: The foreign domain at the other end of the link, "" on the own bus.
        size_bytes: Length of the whole message as received.
        via_length: Entries of `body.via`.
        now: Seconds since the Unix epoch (UTC).
        identity_verified: Whether this node itself verified the sender's assertion. Never taken from the message.
        identity_user: User name of the verified assertion, "" without one.
        identity_issuer: Identity provider of the verified assertion, "" without one.
        identity_groups: Groups of that user, as the provider says; None when it says none, or nothing is verified.
        session_roles: Roles of the sender's session, and the word of its class; see `policy.core.session_class`.
        auth: What an earlier gate of this node decided about this message: true, a rule permitted it; false, no policy
            applied; None, there was no earlier gate. Never taken from the message.
        link_class: The trust class of `link_domain`, as the settings say; without meaning on the own bus.
        recipients: Knows about the recipient, for the rules that ask; None where nothing is known.
    """

    hook: Hook
    message: Message
    from_domain: str
    to_domain: str
    link_domain: str
    size_bytes: int
    via_length: int
    now: float
    identity_verified: bool = False
    identity_user: str = ""
    identity_issuer: str = ""
    identity_groups: frozenset[str] | None = None
    session_roles: frozenset[str] = frozenset()
    auth: bool | None = None
    link_class: LinkClass = "node"
    recipients: Recipients | None = None


@dataclass(frozen=True, slots=True)
class ShadowOutcome:
    """The decision that a rule or set in report mode would have made."""

    rule_id: str
    effect: Effect


LOGGED: Final = ShadowOutcome("", Effect.NOT_APPLICABLE)
"""Stands among the shadows of a decision that is to have a record of its own."""


@dataclass(
    frozen=True, slots=True, eq=False
)  # compared by identity: one object per rule, a dictionary key on the message path
class Decision:
    """The decision of the policies about one message.

    `rule_id` is `set/policy/rule`, "" when no rule decided; `reason` is given with a denial; `shadow` is what rules
    in report mode would have decided, and `LOGGED`: with anything in it, the decision has a record of its own.
    """

    effect: Effect
    rule_id: str = ""
    reason: Code | None = None
    obligations: tuple[Obligation, ...] = ()
    shadow: tuple[ShadowOutcome, ...] = ()
