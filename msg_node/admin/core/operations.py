"""The operations of the admin service: what operators may ask of a running node, and with which arguments.

One table for all ways in: the socket in the data folder, messages, and HTTP. A request names an operation and gives its
arguments; unknown operations, unknown arguments and values of the wrong kind are refused before anything is done.
Operations that change something have a dry run, which checks everything and changes nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from protofly.address import valid_domain
from protofly.errors import Code, HostError, PeerError

Value: TypeAlias = str | int | float | bool
"""The value of an argument, after it was read."""

TEXT_CHARS: Final = 512
MOST_SECONDS: Final = 10 * 366 * 86_400.0
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class ArgumentKind(Enum):
    """What the value of an argument may be."""

    TEXT = "text"
    NUMBER = "number"
    SECONDS = "seconds"
    """A number of seconds, or a text such as `30s`, `15m`, `2h` or `1d`."""
    FLAG = "flag"
    DOMAIN = "domain"
    PATTERN = "domain pattern"
    """A domain, or `*.` and a domain for all its sub-domains."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operation.

    Attributes:
        name: As requests give it.
        kind: What it may be.
        meaning: One sentence.
        is_required: Requests without it are refused.
        choices: The only values that a text may have; empty: any.
    """

    name: str
    kind: ArgumentKind
    meaning: str
    is_required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        name: Words with blanks between them, as on the command line.
        meaning: One sentence.
        arguments: In the order of the command line.
        changes: It changes something: it has a dry run, and each use is recorded.
    """

    name: str
    meaning: str
    arguments: tuple[Argument, ...] = ()
    changes: bool = False


class AdminRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request, as every way in reads it."""

    operation: str
    arguments: dict[str, Any] = {}
    dry_run: bool = False


LIMIT: Final = Argument("limit", ArgumentKind.NUMBER, "Rows to return, at most 1000; 100 without it.")
AFTER: Final = Argument("after", ArgumentKind.NUMBER, "Rows to skip: the `next` of the page before.")
WHERE: Final = Argument("where", ArgumentKind.TEXT, "Only rows whose member contains a text: `member=text`.")
_PAGED: Final = (WHERE, LIMIT, AFTER)

_TERM: Final = (
    Argument("for", ArgumentKind.SECONDS, "How long; without it until it is lifted."),
    Argument("reason", ArgumentKind.TEXT, "Why, for the record."),
)
_DOMAIN: Final = (Argument("domain", ArgumentKind.DOMAIN, "The domain.", is_required=True),)
_RUNTIME: Final = Argument("runtime", ArgumentKind.TEXT, "Address of the runtime.", is_required=True)


def _change(name: str, meaning: str, arguments: tuple[Argument, ...] = ()) -> Operation:
    return Operation(name, meaning, arguments, changes=True)


_TABLE: Final = (
    Operation("status", "Everything that `/status` shows."),
    Operation("summary", "The node at a glance: counts, what is wrong, what will be."),
    Operation("sessions", "Sessions of runtimes, live or parked.", _PAGED),
    Operation("addresses", "Addresses that sessions own.", _PAGED),
    Operation("subscriptions", "Subscriptions of sessions and of linked domains.", _PAGED),
    Operation("links", "Links to other domains.", _PAGED),
    Operation("stubs", "Stubs that run here or did, with their last states.", _PAGED),
    Operation("peers", "Other domains: entry, stored trust, discovery, link.", _PAGED),
    Operation("partner", "Everything about one other domain.", _DOMAIN),
    Operation("latencies", "Messages of the last five minutes to other domains: counts and times.", _PAGED),
    Operation(
        "denials",
        "The last messages that gates did not let pass, newest first.",
        (Argument("domain", ArgumentKind.DOMAIN, "Only those of this domain."), *_PAGED),
    ),
    Operation("policies", "The rules in force, in the order in which they are asked.", _PAGED),
    Operation(
        "evaluate",
        "Whether a message would pass a gate now, and why.",
        (
            Argument("from", ArgumentKind.TEXT, "Address of its sender.", is_required=True),
            Argument("to", ArgumentKind.TEXT, "Address of its recipient.", is_required=True),
            Argument("type", ArgumentKind.TEXT, "Its type, for example create.", is_required=True),
            Argument("body", ArgumentKind.TEXT, "Its body, a JSON object; empty without it."),
            Argument(
                "gate",
                ArgumentKind.TEXT,
                "The gate; the first one on its way without it.",
                choices=("peer", "out", "in", "local"),
            ),
            Argument("roles", ArgumentKind.TEXT, "Roles of the session that sends it, with commas."),
        ),
    ),
    Operation("alarms", "Alarms that are raised, oldest first.", _PAGED),
    Operation("quotas", "Bounds of the node, and how much of each is taken.", _PAGED),
    Operation("queues", "Queues with messages or requests in them.", _PAGED),
    Operation("restrictions", "What operators have forbidden: domains, runtimes, stubs; each with its end.", _PAGED),
    Operation(
        "log",
        "The last lines of the log.",
        (Argument("level", ArgumentKind.TEXT, "Only lines of this level and above."), *_PAGED),
    ),
    _change(
        "peer block",
        "Cut a domain off: messages, links, stub, guests, stored requests.",
        (Argument("domain", ArgumentKind.PATTERN, "The domain, or `*.` and a domain.", is_required=True), *_TERM),
    ),
    _change(
        "peer unblock",
        "Lift the block of a domain.",
        (Argument("domain", ArgumentKind.PATTERN, "As it was blocked.", is_required=True),),
    ),
    _change("peer close", "End the links of a domain in good order; the next message opens one.", _DOMAIN),
    _change("peer refresh", "Look a domain up again now, and start its stub anew if its link is down.", _DOMAIN),
    _change(
        "kick",
        "End the sessions of a runtime, with all that they hold.",
        (
            _RUNTIME,
            Argument("ban", ArgumentKind.SECONDS, "Let it open no session for so long."),
            Argument("reason", ArgumentKind.TEXT, "Why, for the runtime and for the record."),
        ),
    ),
    _change("unban", "Let a banned runtime open sessions again.", (_RUNTIME,)),
    _change("stub drain", "End the stub of a domain in good order; the next message starts it.", _DOMAIN),
    _change("stub restart", "Stop the stub of a domain at once, and start it anew.", _DOMAIN),
    _change("stub forbid", "Let the stub of a domain not run here.", (*_DOMAIN, *_TERM)),
    _change("stub allow", "Let a forbidden stub run again.", _DOMAIN),
    _change("reload", "Take changed settings over, all or nothing."),
    _change("drain", "Stop the node in order, as SIGTERM does."),
    _change(
        "log level",
        "Set the level of a logger, for a time.",
        (
            Argument(
                "level",
                ArgumentKind.TEXT,
                "The new level.",
                is_required=True,
                choices=("debug", "info", "warning", "error"),
            ),
            Argument("logger", ArgumentKind.TEXT, "For example msg_node or federation; all without it."),
            Argument("for", ArgumentKind.SECONDS, "How long; ten minutes without it."),
        ),
    ),
)

OPERATIONS: Final = {one.name: one for one in _TABLE}
"""All operations by name."""


def error_facts(error: HostError) -> dict[str, object]:
    """Word an error for programs, the same on the socket and over HTTPS."""
    return {"code": error.code.word, "status": error.code.status, "detail": error.detail or error.code.description}


def find_operation(name: str) -> Operation:
    """Find an operation.

    Raises:
        PeerError: NO_SUCH_SERVICE.
    """
    found = OPERATIONS.get(name)
    if found is None:
        names = ", ".join(OPERATIONS)
        raise PeerError(Code.NO_SUCH_SERVICE, f"there is no operation {name[:64]!r}; there are: {names}")
    return found


def read_arguments(operation: Operation, given: dict[str, Any]) -> dict[str, Value]:
    """Check the arguments of a request.

    Returns:
        The values of those that were given, each of its kind; seconds are numbers.

    Raises:
        PeerError: BAD_BODY; NAME_INVALID for what is no domain.
    """
    known = {one.name: one for one in operation.arguments}
    for name in given:
        if name not in known:
            wanted = ", ".join(known) or "none"
            raise PeerError(Code.BAD_BODY, f"{operation.name} knows no argument {name[:64]!r}; it knows: {wanted}")
    for one in operation.arguments:
        if one.is_required and given.get(one.name) in (None, ""):
            raise PeerError(Code.BAD_BODY, f"{operation.name} needs `{one.name}`: {one.meaning}")
    return {name: _read(known[name], value) for name, value in given.items() if value is not None}


def _read(argument: Argument, value: object) -> Value:
    wrong = PeerError(Code.BAD_BODY, f"`{argument.name}`: expected a {argument.kind.value}, got {str(value)[:64]!r}")
    match argument.kind:
        case ArgumentKind.FLAG:
            if isinstance(value, bool):
                return value
        case ArgumentKind.NUMBER:
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
        case ArgumentKind.SECONDS:
            seconds = _seconds(value)
            if seconds is not None:
                return seconds
        case ArgumentKind.TEXT:
            if isinstance(value, str) and len(value) <= TEXT_CHARS:
                if argument.choices and value not in argument.choices:
                    choices = ", ".join(argument.choices)
                    raise PeerError(Code.BAD_BODY, f"`{argument.name}`: expected one of {choices}, got {value[:64]!r}")
                return value
        case ArgumentKind.DOMAIN | ArgumentKind.PATTERN:
            if isinstance(value, str):
                is_pattern = argument.kind is ArgumentKind.PATTERN and value.startswith("*.")
                valid_domain(value[2:] if is_pattern else value)
                return value
    raise wrong


def _seconds(value: object) -> float | None:
    """Read a duration; None when it is none."""
    if isinstance(value, bool):
        return None
    seconds = float(value) if isinstance(value, int | float) else -1.0
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        seconds = float(match[1]) * _UNITS[match[2]] if match is not None else -1.0
    return seconds if math.isfinite(seconds) and 0 < seconds <= MOST_SECONDS else None
