"""Refined records of many domains, made fast: numpy columns straight into the Parquet files of a lake's `silver_mdr`.

The traffic is that of the pipeline study, section 0: ordered pairs by Zipf's law, sizes and latencies log-normal,
clocks some 30 ms apart and one of them 2.5 s ahead, two records of every message, and faults whose number is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.lake.stages import StagedFile
from pipeline.lake.tables import Lake
from pipeline.schemas import NODE_OWNER, SEGMENTS, SILVER_MDR
from pipeline.segments.part_files import record_writer

DAY_US: Final = 86_400_000_000
START: Final = datetime(2026, 3, 2, tzinfo=UTC)
START_US: Final = int(START.timestamp()) * 1_000_000
CHUNK_ROWS: Final = 1_000_000
WRONG_CLOCK_US: Final = 2_500_000
_TYPES: Final = ("create", "read", "update", "response")
_FAULT_SHARES: Final = {
    "lost": 5e-4,
    "orphan": 1e-4,
    "duplicated": 3e-4,
    "altered": 1e-4,
    "size": 1e-4,
    "outcome": 1e-4,
    "skewed": 1e-4,
}

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Size of the traffic to make. `messages` are sent; each domain has about as many records."""

    messages: int
    domains: int = 200
    pairs: int = 6_000
    days: int = 3
    seed: int = 1
    faults: float = 1.0
    """Factor on the usual share of faults, which is 0.13 % in all."""


@dataclass(slots=True)
class Planted:
    """Contents of the traffic: faults by class, messages sent, and each domain's clock."""

    cases: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FAULT_SHARES, 0))
    sent: int = 0
    records: int = 0
    offsets_us: dict[str, int] = field(default_factory=dict)


def fill_lake(lake: Lake, plan: Plan) -> Planted:
    """Put traffic into an empty lake, and a ledger that proves the records of every domain complete."""
    maker = Maker(plan)
    with lake.stage() as stage:
        staged = []
        for day, rows in maker.chunks():
            path = stage.new_file(SILVER_MDR, {"dt": day})
            with record_writer(path, rows.schema) as writer:
                writer.write_table(rows)
            staged.append(StagedFile(path, rows.num_rows, {"dt": day}))
        lake.adopt(staged, SILVER_MDR)
    lake.commit(_ledger(plan), SEGMENTS)
    owners = [{"our_domain": name, "node": f"mn-1.{name}"} for name in map(_domain, range(plan.domains))]
    lake.commit(pa.Table.from_pylist(owners, to_arrow_schema(NODE_OWNER.schema)), NODE_OWNER)
    return maker.planted


class Maker:
    """Makes the records of a plan, with faults in them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = rng = np.random.default_rng(plan.seed)
        self.names = np.array([_domain(number) for number in range(plan.domains)])
        self.offsets = rng.normal(0, 30_000, plan.domains).astype(np.int64)
        self.offsets[plan.domains // 2] = WRONG_CLOCK_US
        self.planted = Planted(offsets_us=dict(zip(self.names.tolist(), self.offsets.tolist(), strict=True)))
        everyone = np.arange(plan.domains * plan.domains)
        everyone = everyone[everyone // plan.domains != everyone % plan.domains]
        half = everyone[everyone // plan.domains < everyone % plan.domains]
        chosen = rng.permutation(half)[: plan.pairs // 2]
        # Both directions of a pair, so that clocks can be distinguished.
        self.source = np.concatenate([chosen // plan.domains, chosen % plan.domains])
        self.target = np.concatenate([chosen % plan.domains, chosen // plan.domains])
        weights = 1 / np.arange(1, len(chosen) + 1) ** 0.9
        self.shares = np.tile(weights / weights.sum() / 2, 2)
        transit = rng.lognormal(np.log(12_000), 0.6, len(chosen)).astype(np.int64)
        self.transit_us = np.tile(transit, 2)
        self.next_seq = 1

    def chunks(self) -> Iterator[tuple[str, pa.Table]]:
        """Day by day, domain by domain, sorted by message id, as refining leaves them."""
        for day in range(self.plan.days):
            wanted = self.plan.messages // self.plan.days
            for start in range(0, wanted, CHUNK_ROWS):
                part = min(CHUNK_ROWS, wanted - start)
                slice_us = DAY_US * part // wanted
                begin_us = START_US + day * DAY_US + DAY_US * start // wanted
                # Nothing in the last seconds of a day, so that no clock carries a record into the next one.
                yield from self.chunk(day, part, begin_us + 10_000_000, slice_us - 20_000_000)

    def chunk(self, day: int, count: int, begin_us: int, length_us: int) -> Iterator[tuple[str, pa.Table]]:
        """Records of so many messages of some time of a day, as the senders and as the receivers have them."""
        rng = self.rng
        time_us = np.sort(begin_us + rng.integers(0, length_us, count))
        pair = rng.choice(len(self.source), count, p=self.shares)
        source, target = self.source[pair], self.target[pair]
        out_ts_us = time_us + self.offsets[source]
        latency_us = self.transit_us[pair] + rng.lognormal(np.log(2_000), 1.0, count).astype(np.int64)
        common: dict[str, Any] = {
            "source": source,
            "target": target,
            "msg_id": _message_ids(out_ts_us, rng),
            "digest": rng.integers(0, 256, (count, 16), dtype=np.uint8),
            "size": rng.lognormal(np.log(430), 1.0, count).astype(np.int64).clip(120, 200_000),
            "msg_type": rng.integers(0, len(_TYPES), count, dtype=np.int8),
        }
        is_denied = rng.random(count) < 0.02
        fault = self._faults(count, is_denied)
        out_outcome = np.where(fault == "outcome", "timeout", "delivered")
        in_outcome = np.where(is_denied, "denied", "delivered")
        in_ts_us = time_us + latency_us + self.offsets[target]
        in_ts_us = np.where(fault == "skewed", in_ts_us + 5_000_000, in_ts_us)
        altered = common["digest"].copy()
        altered[fault == "altered", 0] ^= 1
        in_size = common["size"] + (fault == "size")
        total_us = latency_us + self.transit_us[pair]
        out = self._rows("out", common, out_ts_us, out_outcome, total_us)
        in_ = self._rows(
            "in", common | {"digest": altered, "size": in_size}, in_ts_us, in_outcome, latency_us // 9 + 40
        )
        name = (START + timedelta(days=day)).strftime("%Y-%m-%d")
        self.planted.sent += count - int(np.isin(fault, ("orphan", "outcome")).sum())
        out = out.filter(pa.array(fault != "orphan"))
        again = in_.filter(pa.array(fault == "duplicated"))
        again = again.set_column(again.column_names.index("seq"), "seq", pa.array(self._numbers(again.num_rows)))
        in_ = pa.concat_tables([in_.filter(pa.array(fault != "lost")), again])
        self.planted.records += out.num_rows + in_.num_rows
        yield name, out
        yield name, in_

    def _faults(self, count: int, is_denied: NDArray[np.bool_]) -> NDArray[np.str_]:
        fault = np.full(count, "", dtype="<U10")
        sound = self.rng.permutation(np.flatnonzero(~is_denied))
        start = 0
        for name, share in _FAULT_SHARES.items():
            many = int(count * share * self.plan.faults)
            fault[sound[start : start + many]] = name
            start += many
            self.planted.cases[name] += many
        return fault

    def _rows(
        self, role: str, common: dict[str, Any], ts_us: Numbers, outcome: NDArray[np.str_], total_us: Numbers
    ) -> pa.Table:
        count = len(ts_us)
        source, target = self._words(common["source"]), self._words(common["target"])
        ours, theirs = (source, target) if role == "out" else (target, source)
        denied = outcome == "denied"
        return pa.table(
            {
                "node": self._words(common["source"] if role == "out" else common["target"], prefix="mn-1."),
                "boot": pa.array(np.ones(count, np.int64)),
                "seq": pa.array(self._numbers(count)),
                "ts_us": pa.array(ts_us),
                "role": _constant(role, count),
                "msg_id": _binary(common["msg_id"]),
                "attempt": pa.array(np.ones(count, np.int32)),
                "src_domain": source,
                "dst_domain": target,
                "our_domain": ours,
                "peer_domain": theirs,
                "msg_type": pa.DictionaryArray.from_arrays(pa.array(common["msg_type"]), list(_TYPES)),
                "size_in": pa.array(common["size"] - 90),
                "size_wire": pa.array(common["size"]),
                "digest": _binary(common["digest"]),
                "outcome": pa.array(outcome).dictionary_encode(),
                "decision": pa.array(np.where(denied, "deny", "permit")).dictionary_encode(),
                "policy_rev": _constant("0123456789abcdef", count),
                "rule_id": pa.array(np.where(denied, "closed-domains", "open")).dictionary_encode(),
                "d_policy_us": pa.array(total_us % 7 + 1),
                "d_total_us": pa.array(total_us),
            }
        )

    def _numbers(self, count: int) -> Numbers:
        first, self.next_seq = self.next_seq, self.next_seq + count
        return np.arange(first, first + count, dtype=np.int64)

    def _words(self, numbers: Numbers, prefix: str = "") -> pa.Array:
        words = [f"{prefix}{name}" for name in self.names]
        return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int16)), words)


def _domain(number: int) -> str:
    return f"d{number:03}.example"


def _message_ids(ts_us: Numbers, rng: np.random.Generator) -> NDArray[np.uint8]:
    """UUIDs of version 7 for these times."""
    head = (ts_us // 1000).astype(np.uint64) << np.uint64(16) | np.uint64(0x7000)
    head |= rng.integers(0, 1 << 12, len(ts_us), dtype=np.uint64)
    tail = rng.integers(0, 1 << 62, len(ts_us), dtype=np.uint64) | np.uint64(1 << 63)
    return np.stack([head, tail], axis=1).astype(">u8").view(np.uint8).reshape(-1, 16)


def _binary(rows: NDArray[np.uint8]) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(16), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows).tobytes())]
    ).cast(pa.binary())


def _constant(word: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), [word])


def _ledger(plan: Plan) -> pa.Table:
    """One segment for each node, closed an hour after the last day."""
    names = SEGMENTS.schema.names
    rows = [
        dict.fromkeys(names)
        | {
            "node": f"mn-1.{_domain(number)}",
            "kind": "mdr",
            "boot": 1,
            "segno": 1,
            "first_seq": 1,
            "last_seq": 1 << 62,
            "records": 0,
            "lost_records": 0,
            "rows_quarantined": 0,
            "sha256": f"{number:064x}",
            "prev_sha256": "",
            "opened_us": START_US,
            "closed_us": START_US + plan.days * DAY_US + 3_600_000_000,
            "min_ts_us": START_US,
            "max_ts_us": START_US + plan.days * DAY_US,
            "verdict": "accepted",
            "findings": [],
            "batch": 1,
            "entered": START.strftime("%Y-%m-%d"),
        }
        for number in range(plan.domains)
    ]
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(SEGMENTS.schema))
