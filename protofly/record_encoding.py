"""How records of one kind are written into frames: as JSON lines, or messages in blocks of columns. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import ClassVar, cast

import msgspec

from protofly.block_encoding import Encoded, encode_blocks
from protofly.record_runs import MessageRun, Recorded, records_in
from protofly.record_segments import BLOCKS_VERSION, LINES_VERSION, SegmentName, by_pair
from protofly.records import RECORD_TYPES, MessageRecord, Record, RecordKind, hash_addresses_in

ENCODING_ERRORS = (UnicodeEncodeError, msgspec.EncodeError, TypeError, OverflowError)
"""What `encode` raises for a record that is not JSON: a text with half a surrogate pair, or our own mistake."""

Hash = Callable[[str], str]

_encoder = msgspec.json.Encoder()
_ts_us, _policy_rev, _stub_ver = attrgetter("ts_us"), attrgetter("policy_rev"), attrgetter("stub_ver")


class Encoding(ABC):
    """Encodes records of one kind for one run of a node.

    Args:
        node: Name of the node.
        boot: The run.
        hashed: What is written in place of an address; None writes addresses, and texts of others, as they are.
    """

    version: ClassVar[int]
    """Schema version of segments."""

    def __init__(self, node: str, boot: int, hashed: Hash | None = None) -> None:
        self._node = node
        self._boot = boot
        self._hashed = hashed

    @abstractmethod
    def prepare(self, recorded: Sequence[Recorded]) -> Sequence[Recorded]:
        """Called once with what is going to be written; returns it as `encode` takes it."""

    @abstractmethod
    def encode(self, recorded: Sequence[Recorded], first_seq: int) -> list[Encoded]:
        """Number records from `first_seq` on and encode them, a frame each. May be repeated.

        Raises:
            ENCODING_ERRORS: One of them is not JSON.
        """


class LinesEncoding(Encoding):
    """One JSON line for each record."""

    version = LINES_VERSION

    def __init__(self, kind: RecordKind, node: str, boot: int, hashed: Hash | None = None) -> None:
        super().__init__(node, boot, hashed)
        self._type = RECORD_TYPES[kind]
        members = self._type.__struct_fields__
        self._has_policy = "policy_rev" in members
        self._has_stub = "stub_ver" in members

    def prepare(self, recorded: Sequence[Recorded]) -> Sequence[Recorded]:
        """Make records of runs, and hide addresses where they are to be hidden."""
        records = list(records_in(recorded))
        self._hide(records)
        return records

    def _hide(self, records: list[Record]) -> None:
        hashed = self._hashed
        if hashed is None:
            return
        for member in self._type.address_members:
            for record in records:
                address = getattr(record, member)
                if address is not None:
                    setattr(record, member, hashed(address))
        for member in self._type.free_members:
            for record in records:
                setattr(record, member, None)
        for member in self._type.text_members:
            for record in records:
                text = getattr(record, member)
                if text is not None:
                    setattr(record, member, hash_addresses_in(text, hashed))

    def encode(self, recorded: Sequence[Recorded], first_seq: int) -> list[Encoded]:
        """See `Encoding`. Records of messages are sorted by their domains."""
        records = list(records_in(recorded))
        if self._type is MessageRecord:
            records.sort(key=by_pair)
        for seq, record in enumerate(records, first_seq):
            record.v, record.node, record.boot, record.seq = self.version, self._node, self._boot, seq
        return [
            Encoded(
                _encoder.encode_lines(records),
                list(map(_ts_us, records)),
                list(set(map(_policy_rev, records))) if self._has_policy else (),
                list(set(map(_stub_ver, records))) if self._has_stub else (),
            )
        ]


class BlocksEncoding(Encoding):
    """Messages in columns: addresses are hashed once for each block, not for each record."""

    version = BLOCKS_VERSION

    def prepare(self, recorded: Sequence[Recorded]) -> Sequence[Recorded]:
        """See `Encoding`: nothing has to be done before."""
        return recorded

    def encode(self, recorded: Sequence[Recorded], first_seq: int) -> list[Encoded]:
        """See `Encoding`."""
        messages = cast("Sequence[MessageRecord | MessageRun]", recorded)
        return encode_blocks(messages, node=self._node, boot=self._boot, first_seq=first_seq, hashed=self._hashed)


def encoding_of(name: SegmentName, *, has_blocks: bool, hashed: Hash | None = None) -> Encoding:
    """The encoding of the segments of one kind and run; `has_blocks`: of messages, blocks."""
    if name.kind is RecordKind.MESSAGE and has_blocks:
        return BlocksEncoding(name.node, name.boot, hashed)
    return LinesEncoding(name.kind, name.node, name.boot, hashed)


def encodable(recorded: Sequence[Recorded]) -> Sequence[Recorded]:
    """The records that can be written; for the rare frame that cannot be encoded as a whole."""
    return [record for record in records_in(recorded) if _is_encodable(record)]


def _is_encodable(record: Record) -> bool:
    try:
        _encoder.encode(record)
    except ENCODING_ERRORS:
        return False
    return True
