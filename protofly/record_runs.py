"""Records of messages that differ in a few members only, as one thing. Pure.

Where many messages of one flow pass at once, their records share all but their times, ids, sizes and digests. A run has
what they share once, as a record, and a list for each member in which they differ. It stands for the records that
`MessageRun.records` makes of it, which is the definition: code that reads a run otherwise has to find the same.

A record by itself costs a node some 2 µs, in a run 0.7 (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from protofly.records import MessageRecord, Record

OWN_NUMBERS: Final = (
    *("ts_us", "size_in", "size_wire", "d_policy_us"),
    *("d_stub_us", "d_peer_us", "d_total_us", "fuel"),
)
OWN_MEMBERS: Final = (*OWN_NUMBERS, "msg_id", "digest")
"""Members in which the records of a run may differ."""
SHORTEST_RUN: Final = 4
"""Fewer records are cheaper by themselves."""


class MessageRun(Struct, frozen=True, gc=False):
    """Records of messages of one flow, in order.

    Attributes:
        like: As all of them are; its members of `columns` count for nothing.
        columns: Some of `OWN_MEMBERS`, each with its value in each record. At least `msg_id` is here; all have as many
            values.
    """

    like: MessageRecord
    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(self.columns["msg_id"])

    @property
    def role(self) -> Literal["out", "in"]:
        """That of all of them."""
        return self.like.role

    def column(self, name: str) -> list[Any]:
        """The values of a member, one for each record."""
        return self.columns.get(name) or [getattr(self.like, name)] * len(self)

    def last(self, count: int) -> list[MessageRecord]:
        """The last records, so many at most, in order."""
        first = max(0, len(self) - count)
        return list(MessageRun(self.like, {name: values[first:] for name, values in self.columns.items()}).records())

    def records(self) -> Iterator[MessageRecord]:
        """The records, each by itself."""
        names = tuple(self.columns)
        for values in zip(*self.columns.values(), strict=True):
            record: MessageRecord = self.like.__copy__()
            for name, value in zip(names, values, strict=True):
                setattr(record, name, value)
            yield record


Recorded: TypeAlias = Record | MessageRun
"""What a node writes down: a record, or some as one thing."""


def count_records(recorded: Sequence[Recorded]) -> int:
    """Count the records in a list in which one entry may stand for a run of several."""
    return len(recorded) + sum([len(one) - 1 for one in recorded if isinstance(one, MessageRun)])


def records_in(recorded: Iterable[Recorded]) -> Iterator[Record]:
    """These records, each by itself, in order."""
    for one in recorded:
        if isinstance(one, MessageRun):
            yield from one.records()
        else:
            yield one
