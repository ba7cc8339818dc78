"""The two load clients of one measurement, as processes, and what one run between them brought."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.process_time import cpu_ns, machine_busy_ns
from interop.figures import milliseconds, percentile
from interop.processes import Child
from protofly.errors import Code, TransportError

IDLE_SECONDS: Final = 5.0
STOP_CLIENTS_SECONDS: Final = 60.0
"""All load clients have stopped within this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load to send: `rate` per second in all, 0 as fast as TCP accepts."""

    count: int
    rate: float
    body_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `foreign_cores` is what other processes of the machine used meanwhile, in processors."""

    messages_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    longest_ms: float | None = None
    cpu_us_per_message: float
    lost: int
    duplicated: int
    reordered: int
    refused: int
    foreign_cores: float

    @property
    def is_faultless(self) -> bool:
        """True if everything arrived once and in order."""
        return not (self.lost or self.duplicated or self.reordered or self.refused)


class Meter:
    """Measures the processor time of processes between two moments, and that of the rest of the machine.

    Args:
        pids: Processes whose time counts.
        own: Load clients: neither counted nor foreign.
    """

    def __init__(self, pids: set[int], own: set[int]) -> None:
        self._pids, self._own = pids, own
        self._cpu, self._own_cpu, self._busy = cpu_ns(pids), cpu_ns(own), machine_busy_ns()
        self._began = trio.current_time()

    def read(self) -> tuple[int, float]:
        """Nanoseconds spent by the processes that count, and processors that others used."""
        seconds = trio.current_time() - self._began
        cpu = cpu_ns(self._pids) - self._cpu
        foreign = machine_busy_ns() - self._busy - cpu - (cpu_ns(self._own) - self._own_cpu)
        return cpu, round(max(foreign, 0) / 1e9 / seconds, 2)


class Side:
    """One load client process; `program` is its module, `arguments` what it is called with."""

    def __init__(
        self, name: str, *, log_file: Path, program: str = "benchmarks.load_client", arguments: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.addresses: list[str] = []
        self._child = Child([program, *arguments], log_file=log_file)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    async def start(self, *, url: str, ca_file: str, domain: str, connections: int, plain: bool) -> None:
        """Start the process and let it connect.

        Raises:
            TransportError: it cannot.
        """
        await self.start_process()
        answer = await self.do(
            "connect", url=url, ca_file=ca_file, domain=domain, name=self.name, connections=connections, plain=plain
        )
        self.addresses = answer["addresses"]

    async def start_process(self) -> None:
        """Start the process; it waits for commands."""
        await self._child.start()

    async def do(self, command: str, **members: object) -> dict[str, Any]:
        """Let the client carry out one command.

        Raises:
            TransportError: it failed; the text is the client's.
        """
        await self._child.write_line(json.dumps({"do": command, **members}))
        try:
            answer: dict[str, Any] = json.loads(await self._child.read_line())
        except EOFError as error:
            raise TransportError(Code.LINK_LOST, str(error)) from error
        if "error" in answer:
            raise TransportError(Code.LINK_LOST, f"load client {self.name}: {answer['error']}")
        return answer

    async def stop(self) -> None:
        """End the process."""
        await self._child.stop()


class Pair:
    """A sending and a receiving side; connection i sends to connection i, or to the target that is named for it.

    Args:
        targets: Addresses to send to; those of the receiver when none are named.
        copies: How many of the receiver's connections each message reaches.
        type: Type of the messages.
    """

    def __init__(
        self, sender: Side, receiver: Side, *, targets: list[str] | None = None, copies: int = 1, type: str = "event"
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self._targets = receiver.addresses if targets is None else targets
        self._copies = copies
        self._type = type
        self._runs = 0

    async def run(self, load: Load, pids: set[int]) -> Run:
        """Send `load` and wait for its last message; CPU time is that of `pids`. All figures count deliveries."""
        self._runs += 1
        width = len(self.sender.addresses)
        count = load.count // width * width
        meter = Meter(pids, {self.sender.pid, self.receiver.pid})
        received: dict[str, Any] = {}

        async def receive() -> None:
            wanted = count * self._copies
            received.update(await self.receiver.do("receive", run=self._runs, count=wanted, idle_seconds=IDLE_SECONDS))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            sent = await self.sender.do(
                "send",
                run=self._runs,
                targets=self._targets,
                count=count,
                rate=load.rate,
                body_bytes=load.body_bytes,
                type=self._type,
            )
        cpu, foreign_cores = meter.read()
        seconds = max(received["last_ns"] - sent["began_ns"], 1) / 1e9
        latencies = received["latencies_ns"]
        return Run(
            messages_per_second=round(received["received"] / seconds),
            p50_ms=milliseconds(percentile(latencies, 0.5)),
            p99_ms=milliseconds(percentile(latencies, 0.99)),
            longest_ms=milliseconds(max(latencies, default=None)),
            cpu_us_per_message=round(cpu / 1e3 / max(received["received"], 1), 2),
            lost=received["lost"],
            duplicated=received["duplicated"],
            reordered=received["reordered"],
            refused=sent["refused"],
            foreign_cores=foreign_cores,
        )

    async def stop(self) -> None:
        """End both sides."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.sender.stop)
            nursery.start_soon(self.receiver.stop)
