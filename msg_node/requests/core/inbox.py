"""Reports that senders have not acknowledged yet: one inbox per sender address, durable.

An entry is one word about one request; a newer word takes the place of an older one. It is pushed at most once,
as soon as its owner has a connection, and stays readable until the owner acknowledges it, a day has passed, or the
inbox is full: then the oldest word that is not final goes first, and the oldest final one if there is no other. What
waits for one runtime has a bound in bytes as well, for all of its addresses together; where all inboxes together are
full, the runtime for which most waits makes way. `now` is in seconds since the Unix epoch.

Source: message specification, section 19.3.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, KeysView
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.requests.core.parked import Sender
from protofly.limits import (
    INBOX_BYTES,
    INBOX_BYTES_PER_RUNTIME,
    INBOX_ENTRIES,
    INBOX_PER_OWNER,
    INBOX_SECONDS,
    PARKED_EXPIRED_AT_ONCE,
)

_Box = TypeVar("_Box", bound="dict[int, InboxEntry]")


class InboxRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry as it is stored: `body` is the body of the event that reports it."""

    number: int
    owner: str
    request_id: str
    queue: str
    body: Raw
    at: float
    runtime_key: str
    credential: str = ""
    is_final: bool = False
    is_notified: bool = msgspec.field(default=False, name="is_told")


@dataclass(slots=True, eq=False)
class InboxEntry:
    """One word about one request. `number` is the id of the event that reports it, by which it is acknowledged."""

    number: int
    owner: str
    request_id: str
    queue: str
    body: bytes
    at: float
    sender: Sender
    is_final: bool
    is_notified: bool = False

    def row(self) -> InboxRow:
        """Return the row that is stored."""
        return InboxRow(
            number=self.number,
            owner=self.owner,
            request_id=self.request_id,
            queue=self.queue,
            body=Raw(self.body),
            at=self.at,
            runtime_key=self.sender.runtime_key,
            credential=self.sender.credential,
            is_final=self.is_final,
            is_notified=self.is_notified,
        )


class Notice(NamedTuple):
    """A report about a request, for the address `owner` in whose name `sender` sent it to `queue`.

    `body` is that of the event; `is_final`: the request has ended.
    """

    owner: str
    sender: Sender
    request_id: str
    queue: str
    body: bytes
    is_final: bool


class Inboxes:
    """The inboxes of all sender addresses.

    Args:
        first_number: Where the ids of entries begin, at random below 2^31.
        max_entries: Entries of all together.

    Attributes:
        keep_seconds: How long an entry is kept.
        per_owner: Entries of one address; where there are more, one goes for each that comes.
        dropped: Entries that made way for newer ones.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        first_number: int = 1,
        keep_seconds: float = INBOX_SECONDS,
        per_owner: int = INBOX_PER_OWNER,
        max_entries: int = INBOX_ENTRIES,
    ) -> None:
        self._journal = journal
        self._next_number = first_number
        self.keep_seconds = keep_seconds
        self.per_owner = per_owner
        self._max_entries = max_entries
        self._entries: OrderedDict[int, InboxEntry] = OrderedDict()  # the oldest first
        self._of_owner: dict[str, OrderedDict[int, InboxEntry]] = {}
        self._not_final: dict[str, OrderedDict[int, InboxEntry]] = {}
        self._unnotified: dict[str, dict[int, InboxEntry]] = {}
        self._of_request: dict[str, InboxEntry] = {}
        self._of_runtime: dict[str, set[str]] = {}
        self._waiting: dict[str, dict[int, InboxEntry]] = {}  # by runtime, the oldest first
        self._bytes: Counter[str] = Counter()  # by runtime
        self._total_bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[InboxEntry]:
        """All entries, the oldest first; nothing changes meanwhile."""
        return iter(self._entries.values())

    def of_owner(self, owner: str) -> list[InboxEntry]:
        """Return the entries of an address, the oldest first."""
        return list(self._of_owner.get(owner, {}).values())

    def owners_of(self, runtime_key: str) -> list[str]:
        """Addresses in whose names a runtime sent what their inboxes report on."""
        return sorted(self._of_runtime.get(runtime_key, ()))

    def owners(self) -> KeysView[str]:
        """Every address that has anything; it stays true."""
        return self._of_owner.keys()

    def find(self, request_id: str) -> InboxEntry | None:
        """The word about a request."""
        return self._of_request.get(request_id)

    def deposit(self, notice: Notice, now: float) -> InboxEntry:
        """Keep a notice for its owner, in place of an older one about the same request."""
        owner = notice.owner
        older = self._of_request.get(notice.request_id)
        if older is not None:
            self._remove(older)
        theirs = self._of_owner.get(owner)
        if theirs is not None and len(theirs) >= self.per_owner:
            self._drop(next(iter((self._not_final.get(owner) or theirs).values())))
        self._make_room(notice.sender.runtime_key, len(notice.body))
        entry = InboxEntry(
            self._next_number, owner, notice.request_id, notice.queue, notice.body, now, notice.sender, notice.is_final
        )
        self._next_number += 1
        self._insert(entry)
        self._journal.put(Table.INBOX, _row_key(entry.number), entry.row())
        return entry

    def notified(self, entry: InboxEntry) -> None:
        """The entry was pushed to its owner; it is not pushed again."""
        entry.is_notified = True
        _leave(self._unnotified, entry)
        self._journal.put(Table.INBOX, _row_key(entry.number), entry.row())

    def has_unnotified(self, owner: str) -> bool:
        """True if an address has entries that were not pushed to it."""
        return owner in self._unnotified

    def unnotified(self, owner: str) -> list[InboxEntry]:
        """Entries that were not pushed to an address, the oldest first."""
        return list(self._unnotified.get(owner, {}).values())

    def acknowledge(self, owner: str, numbers: Iterable[int]) -> int:
        """An owner needs these entries no more; returns how many there were."""
        theirs: dict[int, InboxEntry] = self._of_owner.get(owner, OrderedDict())
        known = [theirs[number] for number in dict.fromkeys(numbers) if number in theirs]
        for entry in known:
            self._remove(entry)
        return len(known)

    def expire(self, now: float) -> int:
        """Remove entries that are too old, at most `PARKED_EXPIRED_AT_ONCE`. Returns how many were."""
        count = 0
        while self._entries and count < PARKED_EXPIRED_AT_ONCE:
            oldest = next(iter(self._entries.values()))
            if oldest.at > now:
                oldest.at = now  # the clock was set back
            if now - self.keep_seconds < oldest.at:
                break
            self._remove(oldest)
            count += 1
        return count

    def restore(self, rows: Rows) -> None:
        """Take over what was stored.

        Raises:
            HostError: STORAGE.
        """
        decoded = [decode_row(raw, InboxRow, table=Table.INBOX, key=key) for key, raw in rows.items()]
        for row in sorted(decoded, key=lambda one: (one.at, one.number)):
            self._next_number = max(self._next_number, row.number + 1)
            sender = Sender(row.runtime_key, row.credential)
            body = bytes(row.body)
            self._insert(
                InboxEntry(
                    row.number,
                    row.owner,
                    row.request_id,
                    row.queue,
                    body,
                    row.at,
                    sender,
                    row.is_final,
                    row.is_notified,
                )
            )

    # Inner steps.

    def _insert(self, entry: InboxEntry) -> None:
        self._entries[entry.number] = entry
        self._of_owner.setdefault(entry.owner, OrderedDict())[entry.number] = entry
        if not entry.is_final:
            self._not_final.setdefault(entry.owner, OrderedDict())[entry.number] = entry
        if not entry.is_notified:
            self._unnotified.setdefault(entry.owner, {})[entry.number] = entry
        self._of_request[entry.request_id] = entry
        runtime_key = entry.sender.runtime_key
        self._of_runtime.setdefault(runtime_key, set()).add(entry.owner)
        self._waiting.setdefault(runtime_key, {})[entry.number] = entry
        self._bytes[runtime_key] += len(entry.body)
        self._total_bytes += len(entry.body)

    def _make_room(self, runtime_key: str, size_bytes: int) -> None:
        while runtime_key in self._waiting and self._bytes[runtime_key] + size_bytes > INBOX_BYTES_PER_RUNTIME:
            self._drop(next(iter(self._waiting[runtime_key].values())))
        while self._entries and (
            len(self._entries) >= self._max_entries or self._total_bytes + size_bytes > INBOX_BYTES
        ):
            fullest = max(self._waiting, key=self._bytes.__getitem__)
            self._drop(next(iter(self._waiting[fullest].values())))

    def _drop(self, entry: InboxEntry) -> None:
        self.dropped += 1
        self._remove(entry)

    def _remove(self, entry: InboxEntry) -> None:
        del self._entries[entry.number]
        del self._of_request[entry.request_id]
        _leave(self._of_owner, entry)
        if not entry.is_final:
            _leave(self._not_final, entry)
        if not entry.is_notified:
            _leave(self._unnotified, entry)
        theirs: dict[int, InboxEntry] = self._of_owner.get(entry.owner, OrderedDict())
        runtime_key = entry.sender.runtime_key
        self._bytes[runtime_key] -= len(entry.body)
        self._total_bytes -= len(entry.body)
        del self._waiting[runtime_key][entry.number]
        if not self._waiting[runtime_key]:
            del self._waiting[runtime_key], self._bytes[runtime_key]
        if not any(one.sender.runtime_key == runtime_key for one in theirs.values()):
            owners = self._of_runtime[runtime_key]
            owners.discard(entry.owner)
            if not owners:
                del self._of_runtime[runtime_key]
        self._journal.delete(Table.INBOX, _row_key(entry.number))


def _leave(table: dict[str, _Box], entry: InboxEntry) -> None:
    theirs = table.get(entry.owner)
    if theirs is not None:
        theirs.pop(entry.number, None)
        if not theirs:
            del table[entry.owner]


def _row_key(number: int) -> str:
    return str(number)
