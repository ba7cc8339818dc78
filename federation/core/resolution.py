"""The way from a domain's name to the place of its documents, as a cursor: answers in, next questions out.

    peer entry ─complete─▶ Location                                  (no question at all)
        │ no
        ▼
    TXT _rethink-mn.B   SVCB _rethink-mn.B   SRV _rethink-mn._tcp.B   (asked together)
        │                    │ AliasMode, at most 4 steps
        ▼                    ▼
    hints (id, k, mode)  targets: SVCB, else SRV, else B:443          ("." = the domain says no)

Nothing here does I/O. Nothing found here is trusted either: certificate name, SNI and `Host` stay B, whatever the
target is. A question that fails is as good as an empty answer, unless all fail: otherwise a name server that drops
unknown record types would make its domains unreachable.

Source: trust and hosts, sections 2.4 and 2.5; RFC 9460; RFC 2782.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Self

from catalogue_client.core.location import Location
from federation.core.backoff import clamped_ttl_seconds
from federation.core.discovery_errors import DiscoveryStep, Failure
from federation.core.name_questions import Answer, AnswerStatus, Question, RecordKind, ServiceRecord
from protofly import limits
from protofly.address import valid_domain
from protofly.errors import Code, PeerError, SettingsError
from protofly.pauses import jittered
from wire.core.network import HTTPS_PORT, judge_port

SERVICE_LABEL: Final = "_rethink-mn"
PROTOCOLS: Final = frozenset({"rethink-mn/1", "h2", "http/1.1"})

_VERSION: Final = "v=rmn1"
_CHANGE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PIN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_MODES: Final = frozenset({"enforce", "testing"})
_STEP_OF_KIND: Final = {
    RecordKind.TXT: DiscoveryStep.TXT,
    RecordKind.SVCB: DiscoveryStep.SVCB,
    RecordKind.SRV: DiscoveryStep.SRV,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEntry:
    """The operator's settings about one domain: if they say enough, nobody is asked.

    `well_known_url` "" is the usual one; `connect_host` "" and `connect_port` 0 are those of the URL.
    """

    domain: str
    well_known_url: str = ""
    connect_host: str = ""
    connect_port: int = 0

    @classmethod
    def of_settings(cls, domain: str, *, well_known_url: str = "", connect: str = "") -> Self:
        """The entry for the settings of a peer; `connect` is "host:port" or "[v6]:port".

        Raises:
            SettingsError: `connect` is neither.
        """
        if not connect:
            return cls(domain=domain, well_known_url=well_known_url)
        host, _, port = connect.rpartition(":")
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65_535
        if not host or not is_port or (":" in host and not (host.startswith("[") and host.endswith("]"))):
            raise SettingsError(f"peer {domain}: connect: write host:port or [v6]:port, not {connect!r}")
        return cls(
            domain=domain,
            well_known_url=well_known_url,
            connect_host=host.removeprefix("[").removesuffix("]"),
            connect_port=int(port),
        )

    def location(self) -> Location | None:
        """The location that the entry names, None when it names none."""
        if not self.well_known_url and not self.connect_host and not self.connect_port:
            return None
        return Location(
            domain=self.domain,
            well_known_url=self.well_known_url or Location.of(self.domain).well_known_url,
            connect_host=self.connect_host,
            connect_port=self.connect_port,
        )


@dataclass(frozen=True, slots=True)
class DomainHints:
    """The content of a TXT record: a change signal and a pin that binds only when validated."""

    change_id: str = ""
    pin: str = ""
    mode: str = "enforce"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The possible places of a domain's documents, in the order to try, and the seconds for which that is believed."""

    locations: tuple[Location, ...]
    life_seconds: float
    notes: tuple[str, ...] = ()


class Resolution:
    """One look-up. Ask `questions()` until it is empty, hand every answer to `receive()`, then take the `outcome()`."""

    def __init__(self, domain: str, *, draw: Callable[[], float]) -> None:
        """Start a look-up for a domain that `valid_domain` accepted; `draw` gives random numbers in [0, 1)."""
        self._domain = domain
        self._draw = draw
        self._text = Question(f"{SERVICE_LABEL}.{domain}", RecordKind.TXT)
        self._service = Question(f"{SERVICE_LABEL}.{domain}", RecordKind.SVCB)
        self._legacy_service = Question(f"{SERVICE_LABEL}._tcp.{domain}", RecordKind.SRV)
        self._open = [self._text, self._service, self._legacy_service]
        self._answers: dict[Question, Answer] = {}
        self._aliases = [self._service.name]
        self._failure: Failure | None = None
        self._notes: list[str] = []

    def questions(self) -> tuple[Question, ...]:
        """The questions to ask now, all at once; empty when the result is known."""
        return () if self._failure else tuple(self._open)

    def receive(self, question: Question, answer: Answer) -> None:
        """Take the answer to one of the open questions. Answers that nobody asked for are ignored."""
        if question not in self._open:
            return
        self._open.remove(question)
        self._answers[question] = answer
        if question.kind is RecordKind.SVCB:
            self._follow_alias(question, answer)

    def outcome(self) -> Resolved | Failure:
        """The result, once there is nothing left to ask."""
        if self._failure:
            return self._failure
        if all(answer.status is AnswerStatus.FAILED for answer in self._answers.values()):
            detail = "; ".join(f"{question}: {answer.detail}" for question, answer in self._answers.items())
            return Failure(self._domain, DiscoveryStep.TXT, Code.DNS_FAILED, detail)
        targets = self._targets()
        if isinstance(targets, Failure):
            return targets
        return Resolved(self._locations(targets), self._life_seconds(), tuple(self._notes))

    def _follow_alias(self, question: Question, answer: Answer) -> None:
        alias = next((record for record in answer.services if record.priority == 0), None)
        if alias is None or not alias.target:  # an alias to the root declines the service, as any record does
            return
        if alias.target in self._aliases:
            self._fail(f"{question} is an alias in a circle")
        elif len(self._aliases) > limits.DNS_ALIAS_STEPS:
            self._fail(f"more than {limits.DNS_ALIAS_STEPS} aliases")
        else:
            self._aliases.append(alias.target)
            self._service = Question(alias.target, RecordKind.SVCB)
            self._open.append(self._service)

    def _fail(self, detail: str) -> None:
        self._failure = Failure(self._domain, DiscoveryStep.SVCB, Code.NO_SUCH_DOMAIN, detail)

    def _targets(self) -> tuple[tuple[str, int], ...] | Failure:
        """Hosts and ports to try, in order; a refused one refuses the set that it came in."""
        for question in (self._service, self._legacy_service):
            records = self._usable(question)
            if not records:
                continue
            step = _STEP_OF_KIND[question.kind]
            if any(not record.target for record in records):
                detail = f"{question} points to the root: no such service"
                life = self._answers[question].ttl_seconds
                return Failure(self._domain, step, Code.SERVICE_DECLINED, detail, life_seconds=life)
            try:
                return tuple(_judged_target(record) for record in in_order(records, draw=self._draw))
            except PeerError as error:
                return Failure(self._domain, step, error.code, f"{question}: {error.detail}")
        return ()

    def _usable(self, question: Question) -> list[ServiceRecord]:
        """Records that we understand; among them are no aliases, since each of those has led to a further question."""
        records = self._answers[question].services
        usable = [record for record in records if _is_understood(record)]
        if len(usable) < len(records):
            self._notes.append(f"{question}: {len(records) - len(usable)} record(s) for protocols we do not speak")
        return usable

    def _locations(self, targets: tuple[tuple[str, int], ...]) -> tuple[Location, ...]:
        answer = self._answers[self._text]
        hints, note = read_hints(answer.texts)
        if note:
            self._notes.append(f"{self._text}: {note}")
        return tuple(
            Location(
                domain=self._domain,
                well_known_url=Location.of(self._domain).well_known_url,
                connect_host=host,
                connect_port=port,
                change_id=hints.change_id,
                pin_hint=hints.pin,
                pin_is_validated=bool(hints.pin) and answer.is_validated,
                mode=hints.mode,
            )
            for host, port in targets or (("", 0),)
        )

    def _life_seconds(self) -> float:
        """The shortest TTL of what was found; a domain without records is believed for the default time."""
        found = [
            answer.ttl_seconds
            for answer in self._answers.values()
            if answer.status is AnswerStatus.FOUND and answer.ttl_seconds is not None
        ]
        if any(answer.status is AnswerStatus.FAILED for answer in self._answers.values()):
            return limits.DISCOVERY_MIN_SECONDS  # half an answer: ask again soon
        if not found:
            return jittered(limits.DISCOVERY_DEFAULT_SECONDS, draw=self._draw())
        return clamped_ttl_seconds(min(found))


def step_of(question: Question) -> DiscoveryStep:
    """The step that a question belongs to."""
    return _STEP_OF_KIND.get(question.kind, DiscoveryStep.ADDRESS)


def read_hints(texts: Sequence[str]) -> tuple[DomainHints, str]:
    """Read `v=rmn1; id=…; k=…; mode=…` out of the TXT records of a domain; the second value says what was ignored.

    Records of other versions are none of our business. Two of ours, or one that is not well formed, give no hints: a
    hint can only make us stricter, so to lose it costs nothing.

    Source: trust and hosts, section 2.4 (step 2).
    """
    ours = [text for text in texts if text.partition(";")[0].strip() == _VERSION]
    if len(ours) > 1:
        return DomainHints(), f"{len(ours)} records begin with {_VERSION}: ignored"
    if not ours:
        return DomainHints(), "no record begins with " + _VERSION if texts else ""
    fields = _read_fields(ours[0])
    if fields is None:
        return DomainHints(), "malformed: ignored"
    return DomainHints(fields.get("id", ""), fields.get("k", ""), fields.get("mode", "enforce")), ""


def _read_fields(text: str) -> dict[str, str] | None:
    if len(text) > limits.DNS_TXT_CHARS or not text.isascii() or not text.isprintable():
        return None
    fields: dict[str, str] = {}
    for part in text.split(";")[1:]:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key and not equals:
            continue  # the final semicolon
        if not key or not equals or key in fields:
            return None
        fields[key] = value
    is_sound = (
        ("id" not in fields or _CHANGE_ID.fullmatch(fields["id"]))
        and ("k" not in fields or _PIN.fullmatch(fields["k"]))
        and fields.get("mode", "enforce") in _MODES
    )
    return fields if is_sound else None


def in_order(records: Sequence[ServiceRecord], *, draw: Callable[[], float]) -> list[ServiceRecord]:
    """Records by priority, inside one priority at random by weight. Source: RFC 2782 (usage rules)."""
    ordered: list[ServiceRecord] = []
    for priority in sorted({record.priority for record in records}):
        left = sorted((record for record in records if record.priority == priority), key=lambda record: record.weight)
        while left:
            record = _drawn_by_weight(left, draw())
            ordered.append(record)
            left.remove(record)
    return ordered


def _drawn_by_weight(records: list[ServiceRecord], drawn: float) -> ServiceRecord:
    """One of some records, lightest first; `drawn` is a random number in [0, 1)."""
    mark = drawn * (sum(record.weight for record in records) + 1)
    sums = accumulate(record.weight for record in records)
    return next((record for record, running in zip(records, sums, strict=True) if running >= mark), records[-1])


def _is_understood(record: ServiceRecord) -> bool:
    is_for_us = not record.protocols or not PROTOCOLS.isdisjoint(record.protocols)
    return is_for_us and not record.has_unknown_mandatory


def _judged_target(record: ServiceRecord) -> tuple[str, int]:
    port = record.port or HTTPS_PORT
    judge_port(port)
    return valid_domain(record.target), port
