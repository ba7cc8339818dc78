"""The steps that each message of a session passes between its source check and its delivery.

A step says why a message may not go on, or nothing. The stack is put together once, at the start, into one function;
without any step there is none, and the router asks nobody. The bus reports a refusal to the sender
like every refusal. Messages of other domains have passed the gate of their link instead, and `mn:/session` proves
its callers by itself. Source: message specification, section 20.2; requirement R4 (router, middleware, handler).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from federation.links.link_context import Refusal
from msg_node.sessions.core.sessions import Sessions
from policy.core.rates import Bucket, RateBucket, RateLimit, TypedBuckets, TypeRate
from protofly.address import canonical_key, is_below
from protofly.errors import Code
from protofly.limits import SESSIONS
from protofly.message import Message

MESSAGE_LOG: Final = "msg_node.messages"
"""Its lines are asked for one by one: no allowance bounds them."""
message_logger: Final = logging.getLogger(MESSAGE_LOG)
"""One line per message that the step `logging` picks."""

JudgeLocal = Callable[[Message, frozenset[str], int], Refusal | None]
"""Says why a message of a session with these roles and this number may not go to somebody of our own domain, or None.
"""

MessageStep = Callable[[Message, int, frozenset[str], str, float], Refusal | None]
"""Judges a message of session `sid` with roles, for a foreign domain ("": none), at a time (Unix epoch, seconds)."""

Onlooking = Callable[[str, Sequence[Message]], None]
"""Is shown what a domain brings, before it is routed."""

AUTHORISATION: Final = "authorisation"
"""The step that asks the gate on our own bus."""


def let_pass(_message: Message, _roles: frozenset[str], _sid: int) -> Refusal | None:
    """No gate on our own bus."""
    return None


class Stack(NamedTuple):
    """The steps of a node.

    Attributes:
        judge: All of them as one, None when there are none.
        judge_abroad: Those of them as one that have a say about what leaves our domain, None when there are none.
        judge_local: The gate on our own bus alone, for what is routed later.
        names: Their names in order, for operators.
        onlookers: Are shown what other domains bring, which passes no step.
    """

    judge: MessageStep | None = None
    judge_local: JudgeLocal = let_pass
    names: tuple[str, ...] = ()
    judge_abroad: MessageStep | None = None
    onlookers: tuple[Onlooking, ...] = ()


def make_stack(
    steps: Sequence[tuple[str, MessageStep]], judge_local: JudgeLocal = let_pass, onlookers: Sequence[Onlooking] = ()
) -> Stack:
    """Put steps together, in this order."""
    abroad = [step for name, step in steps if name != AUTHORISATION]  # the gate of its domain judges what leaves
    names = tuple(name for name, _ in steps)
    return Stack(_chain([step for _, step in steps]), judge_local, names, _chain(abroad), tuple(onlookers))


def _chain(steps: Sequence[MessageStep]) -> MessageStep | None:
    if len(steps) < 2:
        return steps[0] if steps else None

    def judge(message: Message, sid: int, roles: frozenset[str], domain: str, now: float) -> Refusal | None:
        for step in steps:
            refusal = step(message, sid, roles, domain, now)
            if refusal is not None:
                return refusal
        return None

    return judge


def authorisation(judge_local: JudgeLocal, guest_of: Callable[[int], str] = lambda _sid: "") -> MessageStep:
    """The gate `local`: what stays here is judged here, with roles; what leaves, by the gate of its domain.

    `guest_of` gives the domain of a guest's session: what guests send has passed the gate `in`.
    """

    def judge(message: Message, sid: int, roles: frozenset[str], domain: str, _now: float) -> Refusal | None:
        return None if domain or guest_of(sid) else judge_local(message, roles, sid)

    return judge


def authentication(sessions: Sessions, open_to: Iterable[str] = ()) -> MessageStep:
    """Sessions that proved nothing write only to those whom the operator names; `/*` at the end: to all below."""
    exact, bases = set[str](), list[str]()
    for pattern in open_to:
        if pattern.endswith("/*"):
            bases.append(canonical_key(pattern[:-2]))
        else:
            exact.add(canonical_key(pattern))

    def judge(message: Message, sid: int, _roles: frozenset[str], _domain: str, _now: float) -> Refusal | None:
        session = sessions.get(sid)
        if session is None or session.proof.credential:
            return None
        key = message.to_key
        is_open = key in exact or any(is_below(key, base) for base in bases)
        return None if is_open else Refusal(Code.NO_CREDENTIALS)

    return judge


def rate(limit: RateLimit, by_type: Sequence[TypeRate] = (), *, max_sessions: int = SESSIONS) -> MessageStep:
    """Make a step that limits the rates of a session, in all and by type; a session that comes back keeps its debt.

    Only the sessions that sent most recently are remembered; for all others their debt is paid.

    Raises:
        SettingsError: A limit that is none, or two for a type.
    """

    def make() -> Bucket:
        return TypedBuckets(limit, by_type) if by_type else RateBucket(limit)

    make()
    buckets: OrderedDict[int, Bucket] = OrderedDict()

    def judge(message: Message, sid: int, _roles: frozenset[str], _domain: str, now: float) -> Refusal | None:
        bucket = buckets.get(sid)
        if bucket is None:
            bucket = buckets[sid] = make()
            if len(buckets) > max_sessions:
                buckets.popitem(last=False)
        else:
            buckets.move_to_end(sid)
        seconds = bucket.take(len(message.raw), now, message.type)
        return None if not seconds else Refusal(Code.RATE, {"retryAfter": round(seconds, 3)})

    return judge


def log(every: int) -> MessageStep:
    """Write a line about each, or every tenth, … message: who, to whom, what, how large; never what it says."""
    passed = 0

    def judge(message: Message, sid: int, _roles: frozenset[str], domain: str, _now: float) -> Refusal | None:
        nonlocal passed
        passed += 1
        if passed % every == 0:
            message_logger.info(
                "session=%d type=%s id=%s from=%s to=%s bytes=%d%s",
                sid,
                message.type,
                (message.id or b"").decode("ascii", "backslashreplace").replace(" ", "\\x20"),
                _printable(message.from_),
                _printable(message.to),
                len(message.raw),
                f" domain={domain}" if domain else "",
                extra={"session": sid, "domain": domain, "id": (message.id or b"").decode("utf-8", "replace")},
            )
        return None

    return judge


def _printable(address: str) -> str:
    """An address as one word: whatever is in it, it writes no line of its own into a log."""
    return ascii(address)[1:-1].replace(" ", "\\x20")
