"""Message records become blocks of columns; see `protofly.record_blocks` for what these are. Pure.

This is the hot half: a node writes a block of some thousand records, so a member is read from all of them at once, and
what is done for each value is done by C code of the interpreter. What the records of a run share is read once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple, cast

import msgspec

from protofly.record_blocks import (
    BLOCK_HEADER_BYTES_MAX,
    BLOCK_MAGIC,
    ID_BYTES,
    LENGTH_BYTES,
    SHORT_PLACES,
    TYPECODES,
    WIDTHS,
    BlockHeader,
    Form,
)
from protofly.record_runs import OWN_MEMBERS, OWN_NUMBERS, MessageRun, count_records, records_in
from protofly.records import MessageRecord


class Encoded(NamedTuple):
    """A block as it goes into a frame, and what is collected from it for the manifest.

    Attributes:
        content: The block.
        times_us: Of its records.
        policy_revs: Different ones of its records.
        stub_vers: The same.
    """

    content: bytes
    times_us: Sequence[int]
    policy_revs: Sequence[str | None]
    stub_vers: Sequence[str | None]


def encode_blocks(
    records: Sequence[MessageRecord | MessageRun],
    *,
    node: str,
    boot: int,
    first_seq: int,
    hashed: Callable[[str], str] | None = None,
) -> list[Encoded]:
    """Write records as blocks, numbered in the order of the blocks from `first_seq` on.

    Records that leave and records that come in have other members, so they go into blocks of their own, in the order
    in which they came. A run is written as the records that it stands for. `hashed` is what is written of an address in
    place of it.

    Raises:
        UnicodeEncodeError, msgspec.EncodeError, TypeError: A record is not JSON.
    """
    parts = [[one for one in records if one.role == "out"], [one for one in records if one.role != "out"]]
    waiting = [part for part in reversed(parts) if part]
    done: list[Encoded] = []
    while waiting:
        part = waiting.pop()
        count = count_records(part)
        header = BlockHeader(node=node, boot=boot, first_seq=first_seq, records=count, columns=())
        encoded = _encode_block(part, header, hashed)
        if encoded is None:  # too long a header: many long texts
            singly = cast("list[MessageRecord | MessageRun]", list(records_in(part)))
            waiting += [singly[count // 2 :], singly[: count // 2]]
            continue
        first_seq += count
        done.append(encoded)
    return done


_encode = msgspec.json.Encoder().encode


class _BlockWriter:
    """The columns of one block, in the order in which they are added.

    Args:
        counts: For how many records each of the values that are shared stands; None: each for one.
    """

    def __init__(self, records: int, counts: Sequence[int] | None = None) -> None:
        self.columns: list[dict[str, Any]] = []
        self.data: list[bytes] = []
        self._records = records
        self._counts = counts

    def shared(self, name: str, values: list[Any]) -> Sequence[Any]:
        """Add what records of a run share: a value for each run and each record beside them. Returns different ones."""
        if self._counts is None or values.count(values[0]) == len(values):
            return self.words(name, values)
        return self.words(name, list(chain.from_iterable(map(repeat, values, self._counts))))

    def words(self, name: str, values: list[Any]) -> Sequence[Any]:
        """Add values of which few are different, one for each record or the same for all; returns these."""
        first = values[0]
        if values.count(first) == len(values):
            self._same(name, first)
            return (first,)
        words = list(dict.fromkeys(values))
        if len(words) > SHORT_PLACES and 2 * len(words) > self._records:
            self._add(name, "each", words=values)
            return words
        self._add(name, "words", words=words)
        places = {word: place for place, word in enumerate(words)}
        found = [places[value] for value in values]
        self.data.append(bytes(found) if len(words) <= SHORT_PLACES else _planes(array("H", found).tobytes(), 2))
        return words

    def numbers(self, name: str, values: list[Any]) -> None:
        """Add numbers."""
        first = values[0]
        if values.count(first) == self._records:
            self._same(name, first)
            return
        try:
            form, data = _packed(values)
            self._add(name, form)
        except OverflowError:
            self.words(name, values)
            return
        except TypeError:  # there are some without one
            self.data.append(bytes([value is not None for value in values]))
            form, data = _packed([value for value in values if value is not None])
            self._add(name, form, nullable=True)
        self.data.append(data)

    def ids(self, name: str, values: list[str]) -> None:
        """Add ids, or texts that are none."""
        digits = " ".join(values)
        try:
            content = bytes.fromhex(digits)
        except ValueError:
            content = b""
        is_long_enough = len(content) == ID_BYTES * self._records
        if is_long_enough and content.hex(" ", ID_BYTES) == digits:  # so each is 32 digits in lower case
            self._add(name, "hex")
            self.data.append(_planes(content, ID_BYTES))
        else:
            self.words(name, values)

    def _same(self, name: str, value: object) -> None:
        if value is not None:
            self._add(name, "same", words=(value,))

    def _add(self, name: str, form: Form, *, words: Sequence[Any] = (), nullable: bool = False) -> None:
        column: dict[str, Any] = {"name": name, "form": form}
        if words:
            column["values"] = words
        if nullable:
            column["nullable"] = True
        self.columns.append(column)


def _encode_block(
    part: Sequence[MessageRecord | MessageRun], header: BlockHeader, hashed: Callable[[str], str] | None
) -> Encoded | None:
    """One block; None when its header would be too long and it has more than one record."""
    if MessageRun not in set(map(type, part)):
        likes = cast("Sequence[MessageRecord]", part)
        writer, own = _BlockWriter(header.records), _own_of_records(likes)
    else:
        likes = [one.like if isinstance(one, MessageRun) else one for one in part]
        counts = [len(one) if isinstance(one, MessageRun) else 1 for one in part]
        writer, own = _BlockWriter(header.records, counts), _own_of_runs(part)
    for name in OWN_NUMBERS:
        writer.numbers(name, own[name])
    for name, texts in _keys_of(likes, hashed).items():
        writer.shared(name, texts)
    found = {name: writer.shared(name, words) for name, words in _words_of(likes).items()}
    writer.ids("msg_id", own["msg_id"])
    writer.ids("digest", own["digest"])
    encoded = _encode(msgspec.structs.replace(header, columns=tuple(writer.columns)))
    if len(encoded) > BLOCK_HEADER_BYTES_MAX and header.records > 1:
        return None
    content = b"".join([BLOCK_MAGIC, len(encoded).to_bytes(LENGTH_BYTES, "little"), encoded, *writer.data])
    return Encoded(content, own["ts_us"], found["policy_rev"], found["stub_ver"])


def _own_of_runs(part: Sequence[MessageRecord | MessageRun]) -> dict[str, list[Any]]:
    """The same as `_own_of_records` where there are runs."""
    own: dict[str, list[Any]] = {}
    for name in OWN_MEMBERS:
        values = own[name] = []
        for one in part:
            if isinstance(one, MessageRun):
                values += one.column(name)
            else:
                values.append(getattr(one, name))
    return own


# A list for each member by its name: nothing in the language reads a member of many objects faster.


def _own_of_records(records: Sequence[MessageRecord]) -> dict[str, list[Any]]:
    """Members that every record has for itself."""
    return {
        "ts_us": [one.ts_us for one in records],
        "size_in": [one.size_in for one in records],
        "size_wire": [one.size_wire for one in records],
        "d_policy_us": [one.d_policy_us for one in records],
        "d_stub_us": [one.d_stub_us for one in records],
        "d_peer_us": [one.d_peer_us for one in records],
        "d_total_us": [one.d_total_us for one in records],
        "fuel": [one.fuel for one in records],
        "msg_id": [one.msg_id for one in records],
        "digest": [one.digest for one in records],
    }


def _keys_of(records: Sequence[MessageRecord], hashed: Callable[[str], str] | None) -> dict[str, list[Any]]:
    keys = {"src_key": [one.src_key for one in records], "dst_key": [one.dst_key for one in records]}
    if hashed is None:
        return keys
    return {name: list(map(hashed, values)) for name, values in keys.items()}


def _words_of(records: Sequence[MessageRecord]) -> dict[str, list[Any]]:
    return {
        "msg_type": [one.msg_type for one in records],
        "role": [one.role for one in records],
        "attempt": [one.attempt for one in records],
        "src_domain": [one.src_domain for one in records],
        "dst_domain": [one.dst_domain for one in records],
        "outcome": [one.outcome for one in records],
        "peer_node": [one.peer_node for one in records],
        "channel": [one.channel for one in records],
        "clock_err_us": [one.clock_err_us for one in records],
        "policy_rev": [one.policy_rev for one in records],
        "rule_id": [one.rule_id for one in records],
        "decision": [one.decision for one in records],
        "reason": [one.reason for one in records],
        "facts": [one.facts for one in records],
        "outcome_code": [one.outcome_code for one in records],
        "stub_id": [one.stub_id for one in records],
        "stub_ver": [one.stub_ver for one in records],
        "mem_peak_kib": [one.mem_peak_kib for one in records],
        "host_calls": [one.host_calls for one in records],
        "trap": [one.trap for one in records],
        "trace_id": [one.trace_id for one in records],
    }


def _packed(values: list[Any]) -> tuple[Form, bytes]:
    """Numbers in the smallest form that takes all. Raises TypeError (one is none), OverflowError (none takes it)."""
    try:
        return "u1", bytes(values)
    except ValueError:
        pass
    for form in ("u2", "u4"):
        try:
            numbers = array(TYPECODES[form], values)
        except OverflowError:
            continue
        return form, _planes(numbers.tobytes(), WIDTHS[form])
    return "i8", _planes(array("q", values).tobytes(), 8)


def _planes(data: bytes, width: int) -> bytes:
    """The first bytes of all values, then the second ones, and so on."""
    return b"".join([data[plane::width] for plane in range(width)])
