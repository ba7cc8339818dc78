"""Questions to the domain name system and their answers, as values of our own.

The client that speaks DNS (`federation/discovery/name_client.py`) makes these from bytes of strangers; everything after
it works on them without a DNS library. No answer is an exception: not to know is a status.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RecordKind(Enum):
    """Record types that we ask for. Their values are the names in zone files."""

    A = "A"
    AAAA = "AAAA"
    TXT = "TXT"
    SVCB = "SVCB"
    SRV = "SRV"


class AnswerStatus(Enum):
    """The result of a question."""

    FOUND = "found"
    NO_DATA = "no-data"
    NO_NAME = "no-name"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Question:
    """One question: a name without final dot, and what kind of records."""

    name: str
    kind: RecordKind

    def __str__(self) -> str:
        """As operators would type it after `dig`."""
        return f"{self.kind.value} {self.name}"


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """One SVCB or SRV record. `target` is "" for the root name; `priority` 0 is AliasMode in SVCB.

    Address hints of SVCB are not even kept. `port` 0 means that the record names none.
    """

    priority: int
    target: str
    port: int = 0
    weight: int = 0
    protocols: tuple[str, ...] = ()
    has_unknown_mandatory: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a name server. Only the field for the question's kind is filled.

    `ttl_seconds` is the shortest of the chain, for negative answers the zone's negative TTL; None when nothing said so.
    `is_validated`: DNSSEC-validated by a resolver that the operator trusts.
    """

    status: AnswerStatus
    texts: tuple[str, ...] = ()
    services: tuple[ServiceRecord, ...] = ()
    addresses: tuple[str, ...] = ()
    ttl_seconds: float | None = None
    is_validated: bool = False
    detail: str = ""
