"""The operations of the admin service: what operators may ask of a running node, and with which arguments.

One table for all ways in: the socket in the data folder, messages, and HTTP. A request names an operation and gives its
arguments; unknown operations, unknown arguments and values of the wrong kind are refused before anything is done.
Operations that change something have a dry run, which checks everything and changes nothing.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from msg_node.identity.core.local_clients import KINDS
from policy.core.session_class import SESSION_CLASSES
from protofly.address import valid_domain
from protofly.errors import Code, HostError, PeerError
from protofly.limits import POLICY_BUNDLE_BYTES, POLICY_SIGNATURE_BYTES

Value: TypeAlias = str | int | float | bool
"""The value of an argument, after it was read."""

REQUEST_BYTES: Final = 2 * POLICY_BUNDLE_BYTES + (64 << 10)
"""Of a request as JSON; the largest ones have a bundle in them."""
TEXT_CHARS: Final = 1024
_SHOWN_CHARS: Final = 64
MOST_SECONDS: Final = 10 * 366 * 86_400.0
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class ArgumentKind(Enum):
    """The kinds of values that an argument may have."""

    TEXT = "text"
    NUMBER = "number"
    SECONDS = "seconds"
    """A number of seconds, or a text such as `30s`, `15m`, `2h` or `1d`."""
    FLAG = "flag"
    DOMAIN = "domain"
    PATTERN = "domain pattern"
    """A domain, or `*.` and a domain for all its sub-domains."""
    MOMENT = "moment"
    """Seconds since the Unix epoch, or a text such as `2026-03-01T18:00:00Z`; UTC where it does not say."""
    FILES = "policy files"
    """An object: the texts of files by their names. Read as its JSON."""
    DIGEST = "digest"
    """SHA-256 of a file: 64 lower-case hex digits."""
    SIGNATURE = "signature"
    """The text of a DSSE envelope."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operation.

    Attributes:
        name: As requests give it.
        kind: What it may be.
        meaning: One sentence.
        is_required: Requests without it are refused.
        choices: The only values that a text may have; empty: any.
        is_personal: It names a person: records and the log have a keyed hash of it.
        is_secret: Neither records nor the log have it, in any form.
    """

    name: str
    kind: ArgumentKind
    meaning: str
    is_required: bool = False
    choices: tuple[str, ...] = ()
    is_personal: bool = False
    is_secret: bool = False


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

    @property
    def is_personal(self) -> bool:
        """True if it is about a person, whom an argument names."""
        return any(one.is_personal for one in self.arguments)

    @property
    def is_secret(self) -> bool:
        """True if an argument of it is a secret."""
        return any(one.is_secret for one in self.arguments)


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
_MODULE_OR_DOMAIN: Final = (
    Argument("domain", ArgumentKind.DOMAIN, "The domain. This, or `module`, is required."),
    Argument("module", ArgumentKind.DIGEST, "SHA-256 of the module, whichever domains publish it."),
)
_BUNDLE: Final = (
    Argument("bundle", ArgumentKind.TEXT, "Digest or revision, or its first eight characters.", is_required=True),
)
_KEPT: Final = (Argument("message", ArgumentKind.TEXT, "Its name, as `quarantine` gives it.", is_required=True),)
_PROPOSAL: Final = (
    Argument("proposal", ArgumentKind.TEXT, "Name of the proposal, as its answer gave it.", is_required=True),
)
_GROUP: Final = (Argument("group", ArgumentKind.TEXT, "Name of the group.", is_required=True),)
_MEMBER: Final = Argument(
    "member", ArgumentKind.TEXT, "A text that rules compare: a user, an address, a domain.", is_required=True
)
_NAME: Final = Argument(
    "name", ArgumentKind.TEXT, "Lower-case letters, digits, and `.`, `_`, `-` inside.", is_required=True
)
_ROLES: Final = Argument("roles", ArgumentKind.TEXT, "Roles of its sessions, with commas.")
_NEW_PASSWORD: Final = Argument("password", ArgumentKind.TEXT, "8 to 1024 bytes.", is_required=True, is_secret=True)
_ALLOWED: Final = Argument(
    "runtime", ArgumentKind.TEXT, "Address that it may open, or one with a final `*`; of its own name without it."
)
_LIFE: Final = Argument("for", ArgumentKind.SECONDS, "How long its token counts; for ever without it.")
_KIND: Final = Argument(
    "kind", ArgumentKind.TEXT, "What the client is; a role of its sessions, too.", is_required=True, choices=KINDS
)
_GATE: Final = (
    Argument("from", ArgumentKind.TEXT, "Domain of senders; `*.` and a domain, or `*`.", is_required=True),
    Argument("to", ArgumentKind.TEXT, "Domain of recipients, likewise.", is_required=True),
    Argument("type", ArgumentKind.TEXT, "Only messages of this type."),
    Argument("scheme", ArgumentKind.TEXT, "Only to addresses of this scheme."),
)
_RUNTIME: Final = Argument("runtime", ArgumentKind.TEXT, "Address of the runtime.", is_required=True)


def _change(name: str, meaning: str, arguments: tuple[Argument, ...] = ()) -> Operation:
    return Operation(name, meaning, arguments, changes=True)


_TABLE: Final = (
    Operation("status", "Everything that `/status` shows."),
    Operation("metrics", "The text that `/metrics` shows of this process."),
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
        "The last messages that gates did not let pass, newest first; with a time, those of the audit records.",
        (
            Argument("domain", ArgumentKind.DOMAIN, "Only those of this domain."),
            Argument("gate", ArgumentKind.TEXT, "Only those of this gate.", choices=("peer", "out", "in", "local")),
            Argument("rule", ArgumentKind.TEXT, "Only those by this rule."),
            Argument("since", ArgumentKind.MOMENT, "From when on: as `until`."),
            Argument("until", ArgumentKind.MOMENT, "Until when: `2026-03-01T18:00:00Z`, or seconds since 1970."),
            *_PAGED,
        ),
    ),
    Operation(
        "records",
        "What the audit records have: messages, decisions, links, stubs, sessions; the newest 5,000 of a time.",
        (
            Argument("since", ArgumentKind.MOMENT, "From when on: as `until`.", is_required=True),
            Argument("until", ArgumentKind.MOMENT, "Until when: `2026-03-01T18:00:00Z`, or seconds since 1970."),
            Argument("domain", ArgumentKind.DOMAIN, "Only what involves this domain."),
            Argument("from", ArgumentKind.TEXT, "Only from this address, or about this runtime."),
            Argument("to", ArgumentKind.TEXT, "Only to this address."),
            Argument("id", ArgumentKind.TEXT, "Only about this message: its `msg_id`, or the id that its sender gave."),
            Argument("refused", ArgumentKind.FLAG, "Only what was refused."),
            *_PAGED,
        ),
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
            Argument(
                "class", ArgumentKind.TEXT, "Class of that session; by its roles without it.", choices=SESSION_CLASSES
            ),
            Argument("bundle", ArgumentKind.TEXT, "With the policies of this bundle, not those in force."),
        ),
    ),
    Operation(
        "peer check", "What a first contact with a domain meets, step by step; a few a minute, one at a time.", _DOMAIN
    ),
    Operation("peer ping", "A message to the node of a domain and its answer, over the link that is up.", _DOMAIN),
    Operation("policy active", "Which policies are in force, since when, and what was before."),
    Operation("policy bundles", "Bundles of policies, newest first, and the files of the settings.", _PAGED),
    Operation("groups", "Named lists that rules refer to, with their members.", _PAGED),
    Operation("policy bundle", "One bundle with its files.", _BUNDLE),
    Operation("policy proposals", "Changes of policies that wait for a second person, oldest first.", _PAGED),
    Operation("alarms", "Alarms that are raised, oldest first.", _PAGED),
    Operation("quotas", "Bounds of the node, and how much of each is taken.", _PAGED),
    Operation("gates", "Gates for a time, in the order in which they are asked.", _PAGED),
    Operation("limits", "What was counted for limits of rules, of periods that go on.", _PAGED),
    Operation("queues", "Queues with messages or requests in them.", _PAGED),
    Operation("users", "Local users who log in with a password.", _PAGED),
    Operation("clients", "Clients that operators have added, with their state.", _PAGED),
    Operation(
        "restrictions", "What operators have forbidden: domains, runtimes, stubs, modules; each with its end.", _PAGED
    ),
    Operation("recordings", "Recordings of conversations, oldest first; one under way with what it has.", _PAGED),
    Operation("quarantine", "Messages in quarantine, without bodies: folder by folder, the oldest first.", _PAGED),
    Operation("quarantine show", "One message in quarantine, with its body. Each use is recorded.", _KEPT),
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
    _change(
        "peer connect", "Open a link to a domain if none is up, and send a message to its node, which answers.", _DOMAIN
    ),
    _change("peer close", "End the links of a domain in good order; the next message opens one.", _DOMAIN),
    _change("peer refresh", "Ask a domain for its documents now; start its stub anew if its link is down.", _DOMAIN),
    _change(
        "peer retrust",
        "Replace the trust in a domain that lost its keys: believe only this key set from now on.",
        (
            *_DOMAIN,
            Argument(
                "fingerprint",
                ArgumentKind.TEXT,
                "Of its new key set, received over another channel.",
                is_required=True,
            ),
        ),
    ),
    _change(
        "peer forget", "Undo an unused retrust; otherwise forget the keys of a domain, and a pinned stub.", _DOMAIN
    ),
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
    _change(
        "erase",
        "Erase one person: sessions, addresses, registrations, requests, values. Requests for them fail.",
        (
            Argument(
                "person",
                ArgumentKind.TEXT,
                "An address, an account (ana@a.example), or `<issuer> <user>` as tokens have it.",
                is_required=True,
                is_personal=True,
            ),
            Argument("keep_bans", ArgumentKind.FLAG, "Keep what keeps them out: bans, and expulsions from objects."),
        ),
    ),
    _change(
        "gate set",
        "Let what one domain sends to another pass, or not, for a time; above all rules.",
        (
            *_GATE,
            Argument("effect", ArgumentKind.TEXT, "Whether it passes; `deny` without it.", choices=("deny", "permit")),
            Argument("for", ArgumentKind.SECONDS, "How long. This, or `until`, is required."),
            Argument("until", ArgumentKind.MOMENT, "Until when: `2026-03-01T18:00:00Z`, or seconds since 1970."),
            Argument("reason", ArgumentKind.TEXT, "Why, for the record."),
        ),
    ),
    _change("gate unset", "End a gate before its time.", _GATE),
    _change("quarantine release", "Send a message in quarantine on its way again, past the gates.", _KEPT),
    _change(
        "quarantine delete",
        "Remove a message in quarantine.",
        (Argument("message", ArgumentKind.TEXT, "Its name, or `<folder>/*` for all of a folder.", is_required=True),),
    ),
    _change("stub drain", "End the stub of a domain in good order; the next message starts it.", _DOMAIN),
    _change("stub restart", "Restart the stub of a domain at once.", _DOMAIN),
    _change(
        "stub forbid",
        "Forbid the stub of a domain, or a module of any domain, to run here.",
        (*_MODULE_OR_DOMAIN, *_TERM),
    ),
    _change("stub allow", "Allow a forbidden stub or module to run again.", _MODULE_OR_DOMAIN),
    _change(
        "stub pin",
        "Accept another module as the stub that the settings choose for a domain.",
        (
            *_DOMAIN,
            Argument("module", ArgumentKind.DIGEST, "SHA-256 of the only module to accept.", is_required=True),
        ),
    ),
    _change(
        "stub approve",
        "Let versions of a stub run that are held, or have failed here.",
        (*_DOMAIN, Argument("stub", ArgumentKind.TEXT, "Of those that are held, only the one of this name.")),
    ),
    _change(
        "stub roll-back",
        "Go back to the version of a stub before the running one, which is not tried again.",
        (*_DOMAIN, Argument("reason", ArgumentKind.TEXT, "Why, for the record.")),
    ),
    _change(
        "policy add",
        "Keep a bundle of policy files, after its tests have passed; it is not in force by that.",
        (
            Argument("files", ArgumentKind.FILES, "Texts of TOML or JSON files by name, in order.", is_required=True),
            Argument("note", ArgumentKind.TEXT, "What is new in it."),
            Argument("signature", ArgumentKind.SIGNATURE, "What `trapezoid policy sign` has made of the same files."),
        ),
    ),
    _change("policy activate", "Put a bundle in force, or `settings`, the files of the settings.", _BUNDLE),
    _change("policy roll-back", "Restore the policies that were in force before."),
    _change("policy remove", "Delete a bundle that is not in force.", _BUNDLE),
    _change("policy confirm", "Make a change of policies that another person has proposed.", _PROPOSAL),
    _change("policy withdraw", "Withdraw a proposed change of policies.", _PROPOSAL),
    _change("group create", "Make a group without members, to which rules refer as a list.", _GROUP),
    _change("group add", "Add a member to a group, from the next message on.", (*_GROUP, _MEMBER)),
    _change("group take", "Take a member out of a group, from the next message on.", (*_GROUP, _MEMBER)),
    _change("group remove", "Remove a group that no policy in force refers to.", _GROUP),
    _change("user add", "Add a local user.", (_NAME, _NEW_PASSWORD, _ROLES)),
    _change("user change", "Give a local user other roles, from the next log-in on.", (_NAME, _ROLES)),
    _change("user password", "Change the password of a local user, and end all log-ins.", (_NAME, _NEW_PASSWORD)),
    _change("user disable", "Let a local user log in no more, and end all log-ins.", (_NAME,)),
    _change("user enable", "Let a disabled user log in again.", (_NAME,)),
    _change("user remove", "Remove a local user, and end all log-ins.", (_NAME,)),
    _change("client add", "Add a client; the answer has its token.", (_NAME, _KIND, _ALLOWED, _ROLES, _LIFE)),
    _change(
        "client enrol",
        "Add a client that gets its token by itself; the answer has a code for it, which counts once.",
        (
            _NAME,
            _KIND,
            _ALLOWED,
            _ROLES,
            _LIFE,
            Argument("within", ArgumentKind.SECONDS, "How long the code counts: at most 7d, 15m without it."),
        ),
    ),
    _change("client change", "Give a client other roles or runtimes, at once.", (_NAME, _ALLOWED, _ROLES)),
    _change("client token", "Give a client another token; sessions with the old one end.", (_NAME, _LIFE)),
    _change("client disable", "Forbid a client to open sessions, and end those that it has.", (_NAME,)),
    _change("client enable", "Let a disabled client open sessions again.", (_NAME,)),
    _change("client remove", "Remove a client, and end its sessions.", (_NAME,)),
    _change(
        "recording start",
        "Record what passes between two sides into an encrypted file; needs `[recording]` in the settings.",
        (
            Argument("for", ArgumentKind.SECONDS, "How long at most.", is_required=True),
            Argument(
                "from",
                ArgumentKind.TEXT,
                "One side: an address, one with a final `*`, or a domain; everybody without it.",
                is_personal=True,
            ),
            Argument("to", ArgumentKind.TEXT, "The other side, likewise; both directions count.", is_personal=True),
            Argument("bodies", ArgumentKind.FLAG, "With what messages say, without secrets; lengths only without it."),
            Argument("name", ArgumentKind.TEXT, "Name of the file; the moment and the node without it."),
            Argument("reason", ArgumentKind.TEXT, "Why, for the record."),
        ),
    ),
    _change("recording stop", "End the recording under way."),
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
            wanted = f"{one.meaning} Expected {_expected(one)}"
            raise PeerError(Code.BAD_BODY, f"{operation.name} needs `{one.name}`: {wanted}")
    return {name: _read(known[name], value) for name, value in given.items() if value is not None}


def _read(argument: Argument, value: object) -> Value:
    found = _READERS[argument.kind](value)
    if found is None or (argument.choices and found not in argument.choices):
        raise PeerError(Code.BAD_BODY, f"`{argument.name}`: expected {_expected(argument)}{_got(argument, value)}")
    return found


def _expected(argument: Argument) -> str:
    return f"one of {', '.join(argument.choices)}" if argument.choices else _EXPECTED[argument.kind]


def _got(argument: Argument, value: object) -> str:
    """What was given instead, for the one who asks; nothing of a secret."""
    if argument.is_secret:
        return ""
    text = str(value)
    more = "" if len(text) <= _SHOWN_CHARS else f"… of {len(text)} characters"
    return f", got {text[:_SHOWN_CHARS]!r}{more}"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= TEXT_CHARS else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _domain(value: object) -> str | None:
    """Read a domain. Raises PeerError: NAME_INVALID."""
    if isinstance(value, str):
        valid_domain(value)
        return value
    return None


def _pattern(value: object) -> str | None:
    """Read a domain or a pattern. Raises PeerError: NAME_INVALID."""
    if isinstance(value, str):
        valid_domain(value.removeprefix("*."))
        return value
    return None


def _digest(value: object) -> str | None:
    return value if isinstance(value, str) and _DIGEST.fullmatch(value) else None


def _files(value: object) -> str | None:
    is_files = isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
    return msgspec.json.encode(value).decode() if is_files else None


def _signature(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= POLICY_SIGNATURE_BYTES else None


def _moment(value: object) -> float | None:
    """Read a moment; None when it is none."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) if math.isfinite(value) else None
        moment = dt.datetime.fromisoformat(str(value)[:_SHOWN_CHARS])
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _seconds(value: object) -> float | None:
    """Read a duration; None when it is none."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        value = None if match is None else float(match[1]) * _UNITS[match[2]]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 < value <= MOST_SECONDS else None


_READERS: Final[Mapping[ArgumentKind, Callable[[object], Value | None]]] = {
    ArgumentKind.TEXT: _text,
    ArgumentKind.NUMBER: _number,
    ArgumentKind.SECONDS: _seconds,
    ArgumentKind.FLAG: _flag,
    ArgumentKind.MOMENT: _moment,
    ArgumentKind.DOMAIN: _domain,
    ArgumentKind.PATTERN: _pattern,
    ArgumentKind.FILES: _files,
    ArgumentKind.DIGEST: _digest,
    ArgumentKind.SIGNATURE: _signature,
}
"""How each kind of value is read; None for what is no such value."""
_EXPECTED: Final[Mapping[ArgumentKind, str]] = {
    ArgumentKind.TEXT: f"a text of at most {TEXT_CHARS} characters",
    ArgumentKind.NUMBER: "a whole number, 0 or more",
    ArgumentKind.SECONDS: "a time of at most ten years: seconds above 0, or a text such as 30s, 15m, 2h or 1d",
    ArgumentKind.FLAG: "true or false",
    ArgumentKind.MOMENT: "a moment: a text such as 2026-03-01T18:00:00Z, or seconds since 1970",
    ArgumentKind.DOMAIN: "the name of a domain",
    ArgumentKind.PATTERN: "the name of a domain, or *. and one for all its sub-domains",
    ArgumentKind.FILES: "an object: the texts of files by their names",
    ArgumentKind.DIGEST: "a SHA-256 as 64 lower-case hex digits",
    ArgumentKind.SIGNATURE: f"the text of a signature, of at most {POLICY_SIGNATURE_BYTES} characters",
}
"""How each kind is asked for."""
