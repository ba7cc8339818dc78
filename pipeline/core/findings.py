"""What can be found about a segment: code, how bad it is, what it means, what to do next.

The ladder is that of roaming files between telephone companies: a copy is ignored, a number used twice is rejected, a
number too high is a gap that is reported and may heal. Source: GSMA TAP; pipeline study, section 7.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class Severity(IntEnum):
    """Severity of a finding; a fatal one rejects the segment."""

    FINE = 0
    WARNING = 1
    SEVERE = 2
    FATAL = 3

    @property
    def word(self) -> str:
        """As tables have it."""
        return self.name.lower()


class SegmentVerdict(Enum):
    """The verdict on a segment."""

    ACCEPTED = "accepted"
    COPY = "copy"
    REJECTED = "rejected"


_COPY_AGAIN = "fetch manifest and segment again from the node's spool and ingest again"
_ASK_NODE = "ask the operator of the node; keep both files as evidence"


class Finding(Enum):
    """Every finding: code, severity, meaning, advice."""

    # The files cannot be used.
    MALFORMED = "malformed", Severity.FATAL, "the manifest is not valid", _COPY_AGAIN
    MANIFEST_TOO_LARGE = "manifest-too-large", Severity.FATAL, "the manifest is larger than a node writes", _ASK_NODE
    NOT_A_FILE = "not-a-file", Severity.FATAL, "a link, folder or device in place of a file", _ASK_NODE
    UNREADABLE = "unreadable", Severity.FATAL, "the system refuses to read it", "make it readable and ingest again"
    NAME = "name", Severity.FATAL, "the file's name does not match its manifest", _ASK_NODE
    SCHEMA = "schema", Severity.FATAL, "an unknown schema version", "update, then ingest again"
    MISSING = "missing", Severity.FATAL, "the segment of this manifest is missing", _COPY_AGAIN
    ERASED = (
        "erased",
        Severity.FATAL,
        "its records were erased",
        "nothing; a lake that had them before keeps its statements, another one cannot have them",
    )
    TOO_LARGE = "too-large", Severity.FATAL, "more than a segment may hold", _ASK_NODE
    TORN = "torn", Severity.FATAL, "the segment ends within a frame", _COPY_AGAIN
    TRUNCATED = "truncated", Severity.FATAL, "the segment is shorter than its manifest says", _COPY_AGAIN
    OVERLONG = "overlong", Severity.FATAL, "the segment is longer than its manifest says", _COPY_AGAIN
    HASH = "hash", Severity.FATAL, "the segment's content does not match its manifest", _COPY_AGAIN
    FRAME = "frame", Severity.FATAL, "a frame is damaged, or in a form that no node writes", _ASK_NODE
    CHANGED = "changed", Severity.FATAL, "the segment changed while it was read", _COPY_AGAIN
    # The manifest is not to be believed.
    COUNT = "count", Severity.FATAL, "the number of records differs from the manifest", _ASK_NODE
    NUMBERS = "numbers", Severity.FATAL, "the manifest's numbers contradict each other", _ASK_NODE
    DAYS = "days", Severity.FATAL, "its records cover more days than a segment can", _ASK_NODE
    SIGNATURE = "signature", Severity.FATAL, "the signature is not the node's", _ASK_NODE
    UNSIGNED = "unsigned", Severity.WARNING, "the manifest is not signed", "give the node a key, or accept the risk"
    UNKNOWN_KEY = (
        "unknown-key",
        Severity.WARNING,
        "signed by an untrusted key",
        "add it to --keys if it is correct",
    )
    KEY_EXPIRED = "key-expired", Severity.WARNING, "signed outside the validity of the key", _ASK_NODE
    UNCHECKED = "unchecked", Severity.FINE, "signed, but no keys were given", "name them with --keys"
    # The segment does not fit to the others of its node.
    REUSED = "reused", Severity.FATAL, "the number was used before for other content", _ASK_NODE
    OVERLAP = "overlap", Severity.FATAL, "record numbers of another segment are used again", _ASK_NODE
    CHAIN_BREAK = "chain-break", Severity.SEVERE, "it does not name the segment before it", _ASK_NODE
    SEQUENCE_BREAK = (
        "sequence-break",
        Severity.SEVERE,
        "records between it and the segment before it are unaccounted for",
        _ASK_NODE,
    )
    CHAIN_START = (
        "chain-start",
        Severity.WARNING,
        "a new chain begins although an older one is known",
        "check if the node's spool was emptied",
    )
    GAP = "gap", Severity.WARNING, "a segment before it is missing", "fetch it from the node's spool"
    FIRST = (
        "first",
        Severity.FINE,
        "the oldest segment here, but not the node's first",
        "fetch older ones if there are any",
    )
    LATE = "late", Severity.FINE, "fills a gap", "settle its days again"
    COPY = "copy", Severity.FINE, "the same segment again", "nothing"
    # What it says about the node.
    CLOCK = (
        "clock",
        Severity.SEVERE,
        "its times contradict each other or those of the segment next to it: a clock has jumped",
        "check the node's clock",
    )
    CRASH = (
        "crash",
        Severity.WARNING,
        "the node crashed: records of its last moment may be missing, uncounted",
        "find out why it crashed; what falls into that time is `unprovable`",
    )
    LOST = (
        "lost",
        Severity.WARNING,
        "the node lost records before it could write them",
        "check the node's disk and queue",
    )
    QUARANTINED = "quarantined", Severity.SEVERE, "lines are not valid records", "see `show quarantine`"
    # What it says about us.
    VANISHED = (
        "vanished",
        Severity.SEVERE,
        "was stored, but could not be verified again",
        "compare it with the node's spool",
    )
    FAILED = (
        "failed",
        Severity.FATAL,
        "this program failed on it and stored none of its rows",
        "report it with its detail; every run tries it again",
    )

    def __init__(self, code: str, severity: Severity, meaning: str, advice: str) -> None:
        self.code = code
        self.severity = severity
        self.meaning = meaning
        self.advice = advice


GONE: Final = frozenset({Finding.MISSING, Finding.ERASED})
"""There is a manifest, and no segment."""
SIGNATURE_FINDINGS = frozenset({Finding.UNSIGNED, Finding.UNKNOWN_KEY, Finding.KEY_EXPIRED, Finding.UNCHECKED})
"""Fatal, too, when signatures are required."""
