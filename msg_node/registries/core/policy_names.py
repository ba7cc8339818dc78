"""Which objects have a policy of their own: the address of the document, as the owner of each has named it.

Kept durably, since a restart must not open an object, and within bounds for each session before those in all. A name
counts as long as the session that gave it owns the object. Source: message specification, section 1.3 (`body.policy`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from protofly.errors import Code, PeerError
from protofly.limits import OBJECT_POLICIES, OBJECT_POLICIES_PER_SESSION, OBJECT_POLICY_DOCUMENTS


class PolicyNameRow(msgspec.Struct, frozen=True):
    """The policy of one object.

    `document` is its address; `by` the key of the sender that named it, which belongs to the session `sid`.
    """

    document: str
    by: str
    sid: int


class PolicyNames:
    """All of them, by canonical key of the object.

    Args:
        journal: Where changes are collected.
        owner: Gives the session that owns a canonical key.

    Attributes:
        on_arrival: Called with what a session of another node brought along.
    """

    def __init__(self, journal: Journal, owner: Callable[[str], int | None]) -> None:
        self._journal = journal
        self._owner = owner
        self._rows: dict[str, PolicyNameRow] = {}
        self._of_session: Counter[int] = Counter()
        self._of_document: Counter[str] = Counter()
        self.on_arrival: Callable[[Iterable[PolicyNameRow]], None] = _ignore

    def __len__(self) -> int:
        """The number of objects with a policy, and of those that lost their owner since they were looked at last."""
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        """The addresses of the documents that are named."""
        return iter(list(self._of_document))

    def find(self, object_key: str) -> PolicyNameRow | None:
        """The policy of an object, None if its owner has named none."""
        row = self._rows.get(object_key)
        if row is not None and self._owner(object_key) != row.sid:
            self.forget(object_key)
            return None
        return row

    def name(self, object_key: str, row: PolicyNameRow) -> None:
        """Give an object, which the session of the row owns, this policy and no other.

        Raises:
            PeerError: QUOTA when there are too many of the session, OVERLOAD when there are in all.
        """
        before = self._rows.get(object_key)
        if before == row:
            return
        if self._is_full(row):
            for key in list(self._rows):
                self.find(key)
        if self._of_session[row.sid] >= OBJECT_POLICIES_PER_SESSION and (before is None or before.sid != row.sid):
            raise PeerError(Code.QUOTA, f"a session may name policies of {OBJECT_POLICIES_PER_SESSION} objects")
        if self._is_full(row):
            raise PeerError(Code.OVERLOAD, "this node keeps as many policies of objects as it can")
        self.forget(object_key)
        self._insert(object_key, row)
        self._journal.put(Table.OBJECT_POLICIES, object_key, row)

    def forget(self, object_key: str) -> None:
        """An object is no more, or has no policy any more."""
        if self._remove(object_key):
            self._journal.delete(Table.OBJECT_POLICIES, object_key)

    def _remove(self, object_key: str) -> bool:
        row = self._rows.pop(object_key, None)
        if row is None:
            return False
        self._of_session -= Counter((row.sid,))  # what is 0 is not kept
        self._of_document -= Counter((row.document,))
        return True

    def end_session(self, sid: int) -> None:
        """A session owns nothing any more."""
        if self._of_session[sid]:
            for key in [key for key, row in self._rows.items() if row.sid == sid]:
                self.forget(key)

    def of_session(self, sid: int) -> dict[str, PolicyNameRow]:
        """The policies that a session has named, by canonical key of the object."""
        return {key: row for key, row in self._rows.items() if row.sid == sid} if self._of_session[sid] else {}

    def move_in(self, rows: Mapping[str, PolicyNameRow], sid: int) -> dict[str, PolicyNameRow]:
        """Take over what a session of another node has named, which is this one here; the caller stores the result.

        All of it, whatever the bounds are: it was within those of the other node, and an object without its policy
        would be open.
        """
        moved = {key: msgspec.structs.replace(row, sid=sid) for key, row in rows.items()}
        for key, row in moved.items():
            self._remove(key)
            self._insert(key, row)
        if moved:
            self.on_arrival(moved.values())
        return moved

    def restore(self, rows: Rows, *, sids: Collection[int]) -> None:
        """Take over what was stored; what belongs to no session is deleted.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            row = decode_row(raw, PolicyNameRow, table=Table.OBJECT_POLICIES, key=key)
            if row.sid in sids:
                self._insert(key, row)
            else:
                self._journal.delete(Table.OBJECT_POLICIES, key)

    def _is_full(self, row: PolicyNameRow) -> bool:
        has_no_place = row.document not in self._of_document and len(self._of_document) >= OBJECT_POLICY_DOCUMENTS
        return has_no_place or len(self._rows) >= OBJECT_POLICIES

    def _insert(self, object_key: str, row: PolicyNameRow) -> None:
        self._rows[object_key] = row
        self._of_session[row.sid] += 1
        self._of_document[row.document] += 1


def _ignore(_rows: Iterable[PolicyNameRow]) -> None:
    """Nobody reads documents here."""
