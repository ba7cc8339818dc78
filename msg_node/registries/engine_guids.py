"""Records of GUIDs in the engine that nodes of a domain share: what one has seen, none takes a registry's word against.

See `GuidStore`. A mark is raised by compare-and-set, so that of two nodes that have seen different records of one GUID
the one that comes second is held against the first one's mark.
"""

from __future__ import annotations

from itertools import count
from typing import Final

import msgspec

from msg_node.kernel.domain_records import DomainRecords
from msg_node.registries.guid_store import Kept
from protofly.errors import Code, HostError
from protofly.guid_record import GuidRecord, Mark, advance
from protofly.limits import GUIDS_REMEMBERED

GUIDS: Final = "guids"
_ATTEMPTS: Final = 20
"""Each fails only if another node has changed the same GUID meanwhile."""
_KEPT_BETWEEN: Final = 1_000
"""After so many records, those beyond the bound are forgotten."""


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """`DomainRecords.forget_oldest` reads `is_revoked` and `seen_at`."""

    jwt: str
    last_update_us: int
    digest: str
    is_revoked: bool
    seen_at: float


class EngineGuids:
    """Durable records by GUID, for all nodes of a domain. Plain calls that wait for the engine: for threads.

    Args:
        records: Those of the domain; who made them closes them.
        max_guids: How many are remembered, and up to a thousand more.
    """

    def __init__(self, records: DomainRecords, *, max_guids: int = GUIDS_REMEMBERED) -> None:
        self._records = records
        self._max_guids = max_guids
        self._numbers = count(1)

    def load(self, guid: str) -> Kept | None:
        """See `GuidStore`. Raises HostError."""
        row = self._records.read(GUIDS, guid)
        return None if row is None else _kept(row)

    def accept(self, record: GuidRecord, jwt: str, *, now: float) -> None:
        """See `GuidStore`.

        Raises:
            RecordError: See `advance`; then everything stays as it was.
            HostError: It is not durable.
        """
        for _ in range(_ATTEMPTS):
            old = self._records.read(GUIDS, record.guid)
            mark = advance(record, None if old is None else _kept(old).mark, now=now)
            row = _Row(
                jwt=jwt,
                last_update_us=mark.last_update_us,
                digest=mark.digest,
                is_revoked=mark.is_revoked,
                seen_at=now,
            )
            if self._records.replace(GUIDS, record.guid, old, msgspec.json.encode(row)):
                if next(self._numbers) % _KEPT_BETWEEN == 0:
                    self._records.forget_oldest(GUIDS, self._max_guids)
                return
        raise _contended(record.guid)

    def adopt(self, guid: str, kept: Kept) -> bool:
        """Take over what a node knew by itself, unless as much is known here. Raises HostError."""
        for _ in range(_ATTEMPTS):
            old = self._records.read(GUIDS, guid)
            mark, known = kept.mark, None if old is None else _kept(old).mark
            if known is not None and _is_as_far(known, mark):
                return False
            row = _Row(
                jwt=kept.jwt,
                last_update_us=mark.last_update_us,
                digest=mark.digest,
                is_revoked=mark.is_revoked,
                seen_at=kept.seen_at,
            )
            if self._records.replace(GUIDS, guid, old, msgspec.json.encode(row)):
                return True
        raise _contended(guid)

    def forget(self, guid: str) -> bool:
        """See `GuidStore`. Raises HostError."""
        for _ in range(_ATTEMPTS):
            old = self._records.read(GUIDS, guid)
            row = None if old is None else msgspec.json.decode(old, type=_Row)
            if row is None or not row.jwt:
                return False
            if self._records.replace(GUIDS, guid, old, msgspec.json.encode(msgspec.structs.replace(row, jwt=""))):
                return True
        raise _contended(guid)


def _kept(raw: bytes) -> Kept:
    row = msgspec.json.decode(raw, type=_Row)
    return Kept(row.jwt, Mark(row.last_update_us, row.digest, row.is_revoked), row.seen_at)


def _is_as_far(known: Mark, other: Mark) -> bool:
    """True if a mark is not behind another one: a revocation stays, and else the later update counts."""
    if known.is_revoked or other.is_revoked:
        return known.is_revoked
    return known.last_update_us >= other.last_update_us


def _contended(guid: str) -> HostError:
    return HostError(Code.STATE_UNAVAILABLE, f"other nodes keep changing what is known of {guid}")
