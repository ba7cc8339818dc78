"""`python -m benchmarks.pipeline.node_write`: what records cost a node, per message record.

Records of the node's own links, what the node counts of them, and the writer's own stream. Twice: over real-looking
messages (Zipf users, log-normal sizes, the synthetic deployed policies), where each is recorded by itself, and over
those of one flow, 200 bytes each, which are recorded in runs. Each stage is repeated and the best round counts, since
others use this machine too; µs are CPU time.
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.synth.traffic import read_policy
from federation.core.message_ids import MessageIds
from federation.core.outbound_queue import OutboundMessage
from federation.links.link_records import LinkRecords, Recording
from msg_node.admin.core.traffic import Traffic
from msg_node.records.stream import Stream
from policy.core.engine import Facts
from policy.core.gate import Gate, GateVerdict
from protofly.codec import build
from protofly.limits import RECORD_FRAME_RECORDS
from protofly.message import Message
from protofly.record_encoding import encoding_of
from protofly.record_runs import MessageRun, Recorded, count_records
from protofly.record_segments import SegmentName
from protofly.records import RecordKind, envelope_digest

BAR_US: Final = 2.0
BAR_BYTES: Final = 35.0
FLOW_BAR_US: Final = 0.6
FLOW_BAR_BYTES: Final = 30.0
ROUNDS: Final = 7
_NODE: Final = "mn-1.a.example"
_BOOT: Final = 1_772_409_600_000
_SMALL_FRAME: Final = 64
_BATCH: Final = 128
"""Messages that are acknowledged at once, or come in one turn."""
_TYPES: Final = ("create",) * 24 + ("update",) * 27 + ("response",) * 28 + ("read",) * 12 + ("subscribe",) * 5


@dataclass(frozen=True, slots=True)
class Figures:
    """CPU µs and bytes for each record."""

    records_out_us: float
    records_in_us: float
    write_us: float
    write_small_frames_us: float
    write_lines_us: float
    bytes_on_disk: float
    bytes_small_frames: float
    bytes_lines: float
    observe_us: float
    flow_out_us: float
    flow_in_us: float
    flow_observe_us: float
    flow_write_us: float
    flow_bytes_on_disk: float

    @property
    def meets_bars(self) -> bool:
        """True if no bar is missed."""
        whole = self.write_us <= BAR_US and self.bytes_on_disk <= BAR_BYTES
        return whole and self.flow_write_us <= FLOW_BAR_US and self.flow_bytes_on_disk <= FLOW_BAR_BYTES

    @property
    def in_all_us(self) -> float:
        """Return the cost of records, counting and writer, half of the records going out and half coming in."""
        return (self.records_out_us + self.records_in_us) / 2 + self.observe_us + self.write_us

    @property
    def flow_in_all_us(self) -> float:
        """Return the same for the messages of a flow."""
        return (self.flow_out_us + self.flow_in_us) / 2 + self.flow_observe_us + self.flow_write_us


@dataclass(frozen=True, slots=True)
class _Judged:
    facts: Facts
    verdict: GateVerdict
    msg_id: bytes
    digest: str


class _Bench:
    def __init__(self, messages: int, *, is_flow: bool = False) -> None:
        self.records: list[Recorded] = []
        self._flow = object() if is_flow else None
        self._gate = Gate(read_policy("deployed")[1])
        self._records = LinkRecords(
            "b.example", Recording("a.example", self._gate, self.records.append, record_run=self.records.append)
        )
        self._records.carried(channel="stub", peer_node="runtime://b.example/mn-1", stub_version="ab" * 32)
        ids, rng, now = MessageIds(b"12345678"), random.Random(1), float(_BOOT // 1000)
        self.leaving: list[_Judged] = []
        self.coming: list[_Judged] = []
        for number in range(messages):
            now += rng.expovariate(300)
            make = _message_of_a_flow if is_flow else _message
            self.leaving.append(self._judge("out", make(rng, number, "a", "b"), ids.next(now), now))
            self.coming.append(self._judge("in", make(rng, number, "b", "a"), ids.next(now), now))

    def _judge(self, hook: str, message: Message, msg_id: bytes, now: float) -> _Judged:
        size = len(message.raw) + (120 if hook == "in" else 0)
        source, target = ("a.example", "b.example") if hook == "out" else ("b.example", "a.example")
        facts = Facts(
            "out" if hook == "out" else "in", message, source, target, "b.example", size, 2 * (hook == "in"), now
        )
        digest = envelope_digest(message.type, message.from_, message.to, message.id, message.body)
        return _Judged(facts, self._gate.judge(facts), msg_id, digest)

    def pending(self) -> list[OutboundMessage]:
        """Messages under way, as the link queues them."""
        return [
            OutboundMessage(
                one.facts.message,
                one.facts.message.raw + b"x" * 120,
                one.msg_id,
                one.digest,
                int(one.facts.now * 1e6),
                one.facts.now,
                one.verdict.rule_id,
                one.verdict.revision,
                5,
                30.0,
                handed_seconds=one.facts.now + 0.0001,
                reason=one.verdict.step,
                stub_us=150 + number % 97,
                fuel=9_000 + number % 1_999,
                flow=self._flow,
            )
            for number, one in enumerate(self.leaving)
        ]

    def leave(self, pending: list[OutboundMessage]) -> None:
        """Record messages that leave."""
        if self._flow is None:  # of a flow they were taken from the facts of the first one
            for one, judged in zip(pending, self.leaving, strict=True):
                one.facts = self._records.facts_of(judged.facts, judged.verdict)
        for start in range(0, len(pending), _BATCH):
            self._records.delivered(pending[start : start + _BATCH], pending[start].handed_seconds + 0.02)

    def enter(self) -> None:
        """Record messages that arrive."""
        records = self._records
        for one in self.coming:
            records.arrived(records.entering(one.facts, one.verdict, one.msg_id, one.digest), None, 50)

    def enter_runs(self) -> None:
        """Record messages of a flow that arrive, as its flow does."""
        first = self.coming[0]
        pattern = self._records.entering(first.facts, first.verdict, first.msg_id, first.digest)
        for start in range(0, len(self.coming), _BATCH):
            some = self.coming[start : start + _BATCH]
            columns: dict[str, list[Any]] = {
                "msg_id": [one.msg_id.hex() for one in some],
                "size_in": [len(one.facts.message.raw) for one in some],
                "size_wire": [one.facts.size_bytes for one in some],
                "digest": [one.digest for one in some],
            }
            self._records.arrived_run(MessageRun(pattern.__copy__(), columns), [None] * len(some), 50)

    def write(self, records: Sequence[Recorded], frame: int, *, has_blocks: bool) -> float:
        """Do the work of the writer's thread; returns bytes for each record."""
        name = SegmentName(RecordKind.MESSAGE, _NODE, _BOOT, 0)
        with tempfile.TemporaryDirectory() as folder:
            stream = Stream(Path(folder), name, encoding_of(name, has_blocks=has_blocks))
            for start in range(0, len(records), frame):
                stream.write(records[start : start + frame])
            assert stream.segment is not None
            stream.segment.abandon()
            return stream.segment.whole_bytes / count_records(records)

    def observe(self) -> None:
        """Count records as a node does for its figures."""
        traffic = Traffic({"b.example": "node"})
        for start in range(0, len(self.records), RECORD_FRAME_RECORDS):
            traffic.observe(self.records[start : start + RECORD_FRAME_RECORDS], float(_BOOT // 1000))


def measure(messages: int) -> Figures:
    """Measure with so many messages in each direction."""
    bench = _Bench(messages)
    pending = bench.pending()
    gc.collect()
    gc.freeze()
    leaving = _best(lambda: bench.leave(pending), before=bench.records.clear) / messages
    coming = _best(bench.enter, before=bench.records.clear) / messages
    bench.records.clear()
    bench.leave(pending)
    bench.enter()
    observing = _best(bench.observe) / messages / 2
    halves = bench.records[:messages], bench.records[messages:]
    records = [record for pair in zip(*halves, strict=True) for record in pair]
    ways = ((RECORD_FRAME_RECORDS, True), (_SMALL_FRAME, True), (RECORD_FRAME_RECORDS, False))
    sizes = dict.fromkeys(ways, 0.0)
    rounds: dict[tuple[int, bool], list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):  # in turns, so that what else is going on here is the same for all
        for way in ways:
            started = time.process_time()
            sizes[way] = bench.write(records, way[0], has_blocks=way[1])
            rounds[way].append((time.process_time() - started) / len(records) * 1e6)
    write_us, small_us, lines_us = (min(rounds[way]) for way in ways)
    on_disk, small_bytes, lines_bytes = (sizes[way] for way in ways)
    return Figures(
        records_out_us=leaving,
        records_in_us=coming,
        observe_us=observing,
        write_us=write_us,
        write_small_frames_us=small_us,
        write_lines_us=lines_us,
        bytes_on_disk=on_disk,
        bytes_small_frames=small_bytes,
        bytes_lines=lines_bytes,
        **_measure_flow(messages),
    )


def _measure_flow(messages: int) -> dict[str, float]:
    """The same for messages of one flow."""
    bench = _Bench(messages, is_flow=True)
    pending = bench.pending()
    leaving = _best(lambda: bench.leave(pending), before=bench.records.clear) / messages
    coming = _best(bench.enter_runs, before=bench.records.clear) / messages
    bench.records.clear()
    bench.leave(pending)
    bench.enter_runs()
    observing = _best(bench.observe) / messages / 2
    sizes: list[float] = []
    runs_of_a_frame = RECORD_FRAME_RECORDS // _BATCH
    writing = _best(lambda: sizes.append(bench.write(bench.records, runs_of_a_frame, has_blocks=True)))
    return {
        "flow_out_us": leaving,
        "flow_in_us": coming,
        "flow_observe_us": observing,
        "flow_write_us": writing / messages / 2,
        "flow_bytes_on_disk": sizes[0],
    }


def _best(work: Callable[[], None], *, before: Callable[[], None] = lambda: None) -> float:
    """CPU µs of the best round."""
    rounds = []
    for _ in range(ROUNDS):
        before()
        started = time.process_time()
        work()
        rounds.append(time.process_time() - started)
    return min(rounds) * 1e6


def _message(rng: random.Random, number: int, source: str, target: str) -> Message:
    return build(
        id=number,
        type=rng.choice(_TYPES),
        from_=f"hyperty://{source}.example/h-{int(240 * rng.random() ** 2.2):03x}",
        to=f"hyperty://{target}.example/h-{int(240 * rng.random() ** 2.2):03x}",
        body={"value": "x" * int(rng.lognormvariate(5.7, 1))},
    )


def _message_of_a_flow(rng: random.Random, number: int, source: str, target: str) -> Message:
    return build(
        id=number,
        type="create",
        from_=f"hyperty://{source}.example/h-1",
        to=f"hyperty://{target}.example/h-1",
        body={"value": "x" * 80 + format(rng.getrandbits(64), "016x")},
    )


def main() -> int:
    """Measure and show; 2 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.node_write", description=__doc__)
    parser.add_argument("--messages", type=int, default=40_000, help="in each direction")
    parser.add_argument("--json", action="store_true", help="write the figures as JSON")
    arguments = parser.parse_args()
    figures = measure(arguments.messages)
    console = Console()
    if arguments.json:
        console.print_json(msgspec.json.encode(figures).decode())
    else:
        console.print(_table_of_flow(figures))
        table = Table("per message record, each by itself", "here", "bar", box=box.SIMPLE)
        table.add_row("records, outgoing", f"{figures.records_out_us:.2f} µs", "")
        table.add_row("records, incoming", f"{figures.records_in_us:.2f} µs", "")
        table.add_row("figures of the node", f"{figures.observe_us:.2f} µs", "")
        table.add_row(f"writer, frames of {RECORD_FRAME_RECORDS:,}", f"{figures.write_us:.2f} µs", f"{BAR_US:.0f} µs")
        table.add_row(f"writer, frames of {_SMALL_FRAME}", f"{figures.write_small_frames_us:.2f} µs", "")
        table.add_row("writer, lines of version 1", f"{figures.write_lines_us:.2f} µs", "")
        table.add_row("in all", f"{figures.in_all_us:.2f} µs", "")
        table.add_row(
            f"on the disk, frames of {RECORD_FRAME_RECORDS:,}", f"{figures.bytes_on_disk:.1f} B", f"{BAR_BYTES:.0f} B"
        )
        table.add_row(f"on the disk, frames of {_SMALL_FRAME}", f"{figures.bytes_small_frames:.1f} B", "")
        table.add_row("on the disk, lines of version 1", f"{figures.bytes_lines:.1f} B", "")
        console.print(table)
    return 0 if figures.meets_bars else 2


def _table_of_flow(figures: Figures) -> Table:
    table = Table("per message record of a flow", "here", "bar", box=box.SIMPLE)
    table.add_row("records, outgoing", f"{figures.flow_out_us:.2f} µs", "")
    table.add_row("records, incoming", f"{figures.flow_in_us:.2f} µs", "")
    table.add_row("figures of the node", f"{figures.flow_observe_us:.2f} µs", "")
    table.add_row(f"writer, frames of {RECORD_FRAME_RECORDS:,}", f"{figures.flow_write_us:.2f} µs", f"{FLOW_BAR_US} µs")
    table.add_row("in all", f"{figures.flow_in_all_us:.2f} µs", "")
    table.add_row("on the disk", f"{figures.flow_bytes_on_disk:.1f} B", f"{FLOW_BAR_BYTES:.0f} B")
    return table


if __name__ == "__main__":
    raise SystemExit(main())
