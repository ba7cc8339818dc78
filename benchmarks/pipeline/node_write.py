"""`python -m benchmarks.pipeline.node_write`: what records cost a node, per message record.

Records of the node's own links, and the writer's own stream, over real-looking messages: Zipf users, log-normal
sizes, the synthetic deployed policies. Each stage is repeated and the best round counts, since others use this machine
too; µs are CPU time.
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.synth.traffic import read_policy
from federation.core.message_ids import MessageIds
from federation.core.outbound_queue import OutboundMessage
from federation.link_records import LinkRecords, Recording
from msg_node.records.stream import Stream
from policy.core.engine import Facts
from policy.core.gate import Gate, Verdict
from protofly.codec import build
from protofly.limits import RECORD_FRAME_RECORDS
from protofly.message import Message
from protofly.record_encoding import encoding_of
from protofly.record_segments import SegmentName
from protofly.records import Kind, Record, envelope_digest

BAR_US: Final = 2.0
BAR_BYTES: Final = 35.0
ROUNDS: Final = 7
_NODE: Final = "mn-1.a.example"
_BOOT: Final = 1_772_409_600_000
_SMALL_FRAME: Final = 64
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

    @property
    def in_all_us(self) -> float:
        """Return the cost of records and writer, half of the records going out and half coming in."""
        return (self.records_out_us + self.records_in_us) / 2 + self.write_us


@dataclass(frozen=True, slots=True)
class _Judged:
    facts: Facts
    verdict: Verdict
    msg_id: bytes
    digest: str


class _Bench:
    def __init__(self, messages: int) -> None:
        self.records: list[Record] = []
        self._gate = Gate(read_policy("deployed")[1])
        self._records = LinkRecords("b.example", Recording("a.example", self._gate, self.records.append))
        self._records.carried(channel="stub", peer_node="runtime://b.example/mn-1", stub_version="ab" * 32)
        ids, rng, now = MessageIds(b"12345678"), random.Random(1), float(_BOOT // 1000)
        self.leaving: list[_Judged] = []
        self.coming: list[_Judged] = []
        for number in range(messages):
            now += rng.expovariate(300)
            self.leaving.append(self._judge("out", _message(rng, number, "a", "b"), ids.next(now), now))
            self.coming.append(self._judge("in", _message(rng, number, "b", "a"), ids.next(now), now))

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
            )
            for number, one in enumerate(self.leaving)
        ]

    def leave(self, pending: list[OutboundMessage]) -> None:
        """Record messages that leave."""
        for one, judged in zip(pending, self.leaving, strict=True):
            one.facts = self._records.facts_of(judged.facts)
        for start in range(0, len(pending), 128):
            self._records.delivered(pending[start : start + 128], pending[start].handed_seconds + 0.02)

    def enter(self) -> None:
        """Record messages that arrive."""
        records = self._records
        for one in self.coming:
            records.arrived(records.entering(one.facts, one.verdict, one.msg_id, one.digest), None, 50)

    def write(self, records: list[Record], frame: int, *, has_blocks: bool) -> float:
        """Do the work of the writer's thread; returns bytes for each record."""
        name = SegmentName(Kind.MESSAGE, _NODE, _BOOT, 0)
        with tempfile.TemporaryDirectory() as folder:
            stream = Stream(Path(folder), name, encoding_of(name, has_blocks=has_blocks))
            for start in range(0, len(records), frame):
                stream.write(records[start : start + frame])
            assert stream.segment is not None
            stream.segment.abandon()
            return stream.segment.whole_bytes / len(records)


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
    return Figures(leaving, coming, *map(min, rounds.values()), *sizes.values())


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
        table = Table("per message record", "here", "bar", box=box.SIMPLE)
        table.add_row("records, outgoing", f"{figures.records_out_us:.2f} µs", "")
        table.add_row("records, incoming", f"{figures.records_in_us:.2f} µs", "")
        table.add_row(f"writer, frames of {RECORD_FRAME_RECORDS:,}", f"{figures.write_us:.2f} µs", f"{BAR_US:.0f} µs")
        table.add_row(f"writer, frames of {_SMALL_FRAME}", f"{figures.write_small_frames_us:.2f} µs", "")
        table.add_row("writer, lines of version 1", f"{figures.write_lines_us:.2f} µs", "")
        table.add_row("records and writer", f"{figures.in_all_us:.2f} µs", "")
        table.add_row(
            f"on the disk, frames of {RECORD_FRAME_RECORDS:,}", f"{figures.bytes_on_disk:.1f} B", f"{BAR_BYTES:.0f} B"
        )
        table.add_row(f"on the disk, frames of {_SMALL_FRAME}", f"{figures.bytes_small_frames:.1f} B", "")
        table.add_row("on the disk, lines of version 1", f"{figures.bytes_lines:.1f} B", "")
        console.print(table)
    return 0 if figures.write_us <= BAR_US and figures.bytes_on_disk <= BAR_BYTES else 2


if __name__ == "__main__":
    raise SystemExit(main())
