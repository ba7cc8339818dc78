"""What a node wrote down, read from its spool with nothing of the node's own code but the schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from protofly.record_blocks import lines_in
from protofly.records import (
    AdminEvent,
    DecisionRecord,
    LinkEvent,
    MessageRecord,
    PolicyEvent,
    SessionEvent,
    StubEvent,
    address_key,
    frame_end,
    hash_address,
)

_Fact = TypeVar("_Fact", MessageRecord, DecisionRecord, LinkEvent, StubEvent, SessionEvent, PolicyEvent, AdminEvent)


def read_records(spool: Path, kind: type[_Fact]) -> list[_Fact]:
    """All records of one kind, also of segments that are still open."""
    decode = msgspec.json.Decoder(kind).decode
    records: list[_Fact] = []
    for path in sorted(spool.glob(f"{kind.kind.value}-*")):
        if path.name.endswith(".manifest.json"):
            continue
        records += map(decode, lines_of(path))
    return records


def lines_of(path: Path) -> Iterator[bytes]:
    """The records of a segment as JSON, up to its last whole frame."""
    data, position = path.read_bytes(), 0
    decompressor = zstandard.ZstdDecompressor()
    while (end := frame_end(data, position)) is not None:
        yield from lines_in(decompressor.decompress(data[position:end]))
        position = end


def hashed_by(data: Path) -> Callable[[str], str]:
    """Hashes addresses as the node with this data folder does."""
    return partial(hash_address, key=address_key((data / "secret").read_bytes()))
