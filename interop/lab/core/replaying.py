"""What a recorded conversation asks of a laboratory, and how its answers compare.

The addresses of a recording are those of another node. Here each of its domains has one of the laboratory in its place,
and each of its runtimes one that plays it; what was allocated is allocated again. `Cast` is who plays what, `Addresses`
translates what is said, and `compared` finds what is different in an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from protofly.address import domain_of
from protofly.conversation import LEFT_OUT, REDACTED, Conversation, Passed, SessionChanged
from protofly.errors import PeerError, SettingsError

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"<>]+")
_VOLATILE: Final = frozenset(
    {"desc", "description", "source", "trace", "via", "retryAfter", "auth", "assertedIdentity", REDACTED}
)
"""Members of an answer that are no part of what it says, or of which the recording has only the length."""
_TIMES: Final = re.compile(r"(?i)time|expires|modified|created|date$|_at$")
_NOBODY: Final = frozenset({404, 410})
_SERVICE: Final = "domain://"
_SESSION: Final = "mn:/session"
_ALLOCATION: Final = "/address-allocation"
_SHOWN_CHARS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One who plays: a runtime of the recording, or all that another domain, or nobody else, was heard of.

    Attributes:
        name: The recorded runtime, or the domain.
        domain: The recorded domain.
        addresses: What it has before the recording begins: recorded addresses, without what is below them.
    """

    name: str
    domain: str
    addresses: tuple[str, ...]

    @property
    def is_runtime(self) -> bool:
        """True for a runtime that was recorded as itself."""
        return self.name.startswith("runtime://")


@dataclass(slots=True)
class Asked:
    """A recorded request, or event, and what came of it.

    Attributes:
        message: As recorded.
        part: Who says it; an index of the cast.
        answer: The final answer; None: none was recorded.
        skipped: Why it cannot be played; "" if it can.
    """

    message: Passed
    part: int
    answer: Passed | None = None
    skipped: str = ""

    @property
    def is_request(self) -> bool:
        """True if somebody may answer it."""
        return bool(self.message.id)

    @property
    def recorded_ms(self) -> float:
        """Milliseconds until its answer in the recording; 0 without one."""
        return 0.0 if self.answer is None else (self.answer.at - self.message.at) * 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A recording, as it is played.

    Attributes:
        domains: Recorded domains; the first one is the node's own.
        cast: Who plays.
        acts: Requests, events and changes of sessions, in order of time; of sessions with the index of the part.
    """

    domains: tuple[str, ...]
    cast: tuple[Part, ...]
    acts: tuple[Asked | tuple[SessionChanged, int], ...]

    @property
    def asked(self) -> list[Asked]:
        """The requests and events."""
        return [one for one in self.acts if isinstance(one, Asked)]


def base_of(address: str) -> str:
    """An address without what is below it: scheme, domain, and the first part of the path."""
    scheme, _, rest = address.partition("://")
    parts = rest.split("/")
    return f"{scheme}://{'/'.join(parts[:2])}" if rest else address


def _domain(address: str) -> str:
    try:
        return domain_of(address)
    except PeerError:
        return ""


def make_script(conversation: Conversation, *, most_domains: int) -> Script:
    """Read a recording as a script.

    Raises:
        SettingsError: It has nothing to play, or more domains than a laboratory.
    """
    messages = conversation.messages
    own = conversation.started.domain
    others = sorted({_domain(one.to) for one in messages} | {_domain(one.from_) for one in messages} - {own, ""})
    domains = (own, *(one for one in others if one not in ("", own)))
    if not messages:
        raise SettingsError("the recording has no message")
    if len(domains) > most_domains:
        detail = f"{len(domains)} domains, and a laboratory has at most {most_domains}; record fewer (--from, --to)"
        raise SettingsError(f"the recording has messages of {detail}")
    answers = _answers(messages)
    owners, allocated = _owners(messages, answers, own)
    names = [*dict.fromkeys(owners.values())]
    kept: dict[str, list[str]] = {name: [] for name in names}
    for address, name in owners.items():
        if address not in allocated and address != name:
            kept[name].append(address)
    cast = tuple(
        Part(name=name, domain=_domain(name) if "://" in name else name, addresses=tuple(sorted(kept[name])))
        for name in names
    )
    numbers = {name: number for number, name in enumerate(names)}
    return Script(domains=domains, cast=cast, acts=tuple(_acts(conversation, answers, numbers)))


def _key(sender: str, recipient: str, id_: object) -> tuple[str, str, bytes]:
    return sender, recipient, bytes(id_) if isinstance(id_, msgspec.Raw) else b""


def _answers(messages: Sequence[Passed]) -> dict[tuple[str, str, bytes], list[Passed]]:
    """Final answers by the sender, recipient and id of what they answer, in order."""
    found: dict[tuple[str, str, bytes], list[Passed]] = {}
    for one in messages:
        code = one.members.get("code", 200) if one.type == "response" else 0
        if isinstance(code, int) and code >= 200:
            found.setdefault(_key(one.to, one.from_, one.id), []).append(one)
    return found


def _owners(
    messages: Sequence[Passed], answers: Mapping[tuple[str, str, bytes], list[Passed]], own: str
) -> tuple[dict[str, str], set[str]]:
    """Who plays which address, and which of them were allocated meanwhile."""
    owners: dict[str, str] = {}
    allocated: set[str] = set()
    runtimes = {one.origin for one in messages if one.side == "runtime"}
    owners |= {runtime: runtime for runtime in sorted(runtimes)}
    for one in messages:
        if one.side == "runtime" and _domain(one.from_) == own:
            owners.setdefault(base_of(one.from_), one.origin)
            for address in _allocated_by(one, answers):
                owners[base_of(address)] = one.origin
                allocated.add(base_of(address))
        elif one.side == "domain":
            owners.setdefault(base_of(one.from_), one.origin)
    unknown: dict[str, bool] = {}
    for one in messages:
        base = base_of(one.to)
        if base in owners or one.type == "response" or one.to.startswith((_SERVICE, _SESSION)):
            continue
        codes = [answer.members.get("code") for answer in answers.get(_key(one.from_, one.to, one.id), ())[:1]]
        unknown[base] = unknown.get(base, False) or not _NOBODY.intersection(codes)
    for address, is_there in unknown.items():
        if is_there and _domain(address):
            owners[address] = _domain(address)
    return owners, allocated


def _allocated_by(message: Passed, answers: Mapping[tuple[str, str, bytes], list[Passed]]) -> list[str]:
    if message.type != "create" or not message.to.endswith(_ALLOCATION):
        return []
    found = answers.get(_key(message.from_, message.to, message.id), ())
    return allocated_in(found[0].members) if found else []


def allocated_in(body: Mapping[str, Any]) -> list[str]:
    """The addresses that an answer of an address allocation gives."""
    value = body.get("value")
    addresses = value.get("allocated", ()) if isinstance(value, dict) else ()
    return [str(one) for one in addresses] if isinstance(addresses, list) else []


def _acts(
    conversation: Conversation, answers: Mapping[tuple[str, str, bytes], list[Passed]], numbers: Mapping[str, int]
) -> Iterator[Asked | tuple[SessionChanged, int]]:
    left = {key: list(found) for key, found in answers.items()}
    for line in conversation.lines:
        if isinstance(line, SessionChanged):
            if line.runtime in numbers:
                yield line, numbers[line.runtime]
        elif line.type != "response" and line.side != "node":
            asked = Asked(line, numbers[line.origin if line.origin in numbers else _domain(line.from_)])
            found = left.get(_key(line.from_, line.to, line.id)) if line.id else None
            asked.answer = found.pop(0) if found else None
            asked.skipped = _why_not(line)
            yield asked


def _why_not(message: Passed) -> str:
    if not message.to.startswith(_SERVICE):
        return ""
    if REDACTED in message.members:
        return "the recording has not what it says"
    return "a secret in it was left out" if LEFT_OUT in bytes(message.body).decode() else ""


@dataclass(slots=True)
class Addresses:
    """The addresses of a recording, and those of the laboratory that stand for them.

    Attributes:
        domains: By recorded domain.
        known: By recorded address, without what is below it.
    """

    domains: Mapping[str, str]
    known: dict[str, str] = field(default_factory=dict)

    def learn(self, recorded: Sequence[str], here: Sequence[str]) -> None:
        """Note by which addresses allocated ones are known here."""
        self.known.update(zip(map(base_of, recorded), map(base_of, here), strict=False))

    def here(self, address: str) -> str:
        """The address in the laboratory."""
        base = base_of(address)
        found = self.known.get(base)
        if found is not None:
            return found + address[len(base) :]
        domain = _domain(address)
        place = self.domains.get(domain)
        if place is None:
            return address
        head, _, tail = address.partition("://")
        authority, slash, path = tail.partition("/")
        return f"{head}://{authority.removesuffix(domain)}{place}{slash}{path}"

    def text(self, text: str) -> str:
        """A text with all its addresses translated."""
        return _ADDRESS.sub(lambda found: self.here(found[0]), text) if "://" in text else text

    def value(self, value: Any) -> Any:
        """The same of a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self.value(one) for name, one in value.items()}
        return value


def compared(recorded: Mapping[str, Any] | None, here: Mapping[str, Any] | None) -> list[str]:
    """Compare an answer with the recorded one; one line per difference: `- ` recorded, `+ ` from the laboratory.

    Args:
        recorded: Its body in addresses of the laboratory; None: there was no answer.
        here: The same of the laboratory, as a recording would have it.
    """
    if recorded is None or here is None:
        return [] if recorded is here else [_side("-", "answer", recorded), _side("+", "answer", here)]
    return [*_differences("", dict(recorded), dict(here))]


def _side(sign: str, name: str, body: Mapping[str, Any] | None) -> str:
    if body is None:
        return f"{sign} {name}: none"
    return f"{sign} {name}: {body.get('code', 200)} {body.get('reason', '')}".rstrip()


def _differences(path: str, recorded: Any, here: Any) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(here, dict):
        for name in sorted(recorded.keys() | here.keys()):
            if (path or name not in _VOLATILE) and not _TIMES.search(name):
                yield from _differences(f"{path}.{name}" if path else name, recorded.get(name), here.get(name))
    elif isinstance(recorded, list) and isinstance(here, list) and len(recorded) == len(here):
        for number, (before, now) in enumerate(zip(recorded, here, strict=True)):
            yield from _differences(f"{path}[{number}]", before, now)
    elif recorded != here:
        for sign, value in (("-", recorded), ("+", here)):
            if value is not None:
                yield f"{sign} {path}: {_shown(value)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
