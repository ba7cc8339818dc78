"""The two load clients of one measurement, as processes, and what one run between them brought."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.process_time import cpu_ns, machine_busy_ns
from interop.figures import milliseconds, percentile
from interop.processes import Child
from protofly.errors import Code, TransportError

IDLE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send: `rate` per second in all, 0 as fast as TCP accepts."""

    count: int
    rate: float
    body_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `foreign_cores` is what other processes of the machine used meanwhile, in processors."""

    messages_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_us_per_message: float
    lost: int
    duplicated: int
    reordered: int
    refused: int
    foreign_cores: float

    @property
    def is_faultless(self) -> bool:
        """Whether everything arrived once and in order."""
        return not (self.lost or self.duplicated or self.reordered or self.refused)


class Side:
    """One load client process."""

    def __init__(self, name: str, *, log_file: Path) -> None:
        self.name = name
        self.addresses: list[str] = []
        self._child = Child(["benchmarks.load_client"], log_file=log_file)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    async def start(self, *, url: str, ca_file: str, domain: str, connections: int, plain: bool) -> None:
        """Start the process and let it connect.

        Raises:
            TransportError: it cannot.
        """
        await self._child.start()
        answer = await self.do(
            "connect", url=url, ca_file=ca_file, domain=domain, name=self.name, connections=connections, plain=plain
        )
        self.addresses = answer["addresses"]

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
    """A sending and a receiving side; connection i sends to connection i."""

    def __init__(self, sender: Side, receiver: Side) -> None:
        self.sender = sender
        self.receiver = receiver
        self._runs = 0

    async def run(self, load: Load, pids: set[int]) -> Run:
        """Send `load` and wait for its last message; CPU time is that of `pids`."""
        self._runs += 1
        width = len(self.sender.addresses)
        count = load.count // width * width
        own = {self.sender.pid, self.receiver.pid}
        cpu_before, own_before, busy_before = cpu_ns(pids), cpu_ns(own), machine_busy_ns()
        received: dict[str, Any] = {}
        began = trio.current_time()

        async def receive() -> None:
            received.update(await self.receiver.do("receive", run=self._runs, count=count, idle_seconds=IDLE_SECONDS))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            sent = await self.sender.do(
                "send",
                run=self._runs,
                targets=self.receiver.addresses,
                count=count,
                rate=load.rate,
                body_bytes=load.body_bytes,
            )
        elapsed = trio.current_time() - began
        cpu = cpu_ns(pids) - cpu_before
        foreign = machine_busy_ns() - busy_before - cpu - (cpu_ns(own) - own_before)
        seconds = max(received["last_ns"] - sent["began_ns"], 1) / 1e9
        latencies = received["latencies_ns"]
        return Run(
            messages_per_second=round(received["received"] / seconds),
            p50_ms=milliseconds(percentile(latencies, 0.5)),
            p99_ms=milliseconds(percentile(latencies, 0.99)),
            cpu_us_per_message=round(cpu / 1e3 / max(received["received"], 1), 2),
            lost=received["lost"],
            duplicated=received["duplicated"],
            reordered=received["reordered"],
            refused=sent["refused"],
            foreign_cores=round(max(foreign, 0) / 1e9 / elapsed, 2),
        )

    async def stop(self) -> None:
        """End both sides."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.sender.stop)
            nursery.start_soon(self.receiver.stop)
