"""How many files of ours a message passes on its way from a runtime of one domain to a runtime of another."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from interop.laboratory import Laboratory, LaboratoryPlan
from interop.talker import Talker

from .systems import LIMIT_SECONDS, System, wait_until
from .traced_node import MARK

WINDOWS = 5
"""What runs in all of these, and in none without a message, runs for the message."""
UNTIL_A_FLOW = 5
"""More messages than make a flow, on both nodes."""
IDLE_WORK = ("DomainLink.tick", "Sweeper._sweep_actions", "Administration.run")
"""Work that nobody asked for: it has to be seen in windows without a message."""
IN_THE_WORKER = {"sandbox/worker.py", "sandbox/engine.py"}
"""The worker of a stub is confined and cannot report what it runs."""
MOST_OF_A_FLOW = (30, 55)
"""Files with functions that are given a message of a flow or give it back (as bytes, decoded, or in a batch), and files
with functions that run for it: also what is asked about an address, counts, or gets the time."""
MOST_OF_A_FIRST_MESSAGE = (42, 67)
"""The same for the first message from one address to another: all that is decided once about a flow comes on top."""


class Windows:
    """Windows of traced nodes, in which all of them note what they run."""

    def __init__(self, folder: Path, system: System) -> None:
        self._files = [folder / str(node.pid) for node in (system.a, system.b)]
        self._system = system

    @asynccontextmanager
    async def window(self) -> AsyncIterator[None]:
        """Ends when no message is under way; looking for that is a part of each window."""
        before = await self._written()
        self._signal(signal.SIGUSR2)
        yield
        await self._system.wait_link(self._system.a, lambda link: link.sent == link.accepted)
        await self._system.b.status()
        self._signal(signal.SIGURG)
        await wait_until(self._written, lambda written: written > before)

    async def _written(self) -> int:
        """How many windows all nodes have written down."""
        return min(len(self.noted(file)) for file in self._files)

    def noted(self, file: Path) -> list[dict[str, bool]]:
        """For each window the functions that ran, and if they were handed the message."""
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def have_idled(self) -> bool:
        """True if all idle work was seen in the windows after those with messages."""
        idle = [set[str]().union(*self.noted(file)[2 * WINDOWS :]) for file in self._files]
        return all(any(work in name for name in names) for names in idle for work in IDLE_WORK)

    def files(self, first: int) -> tuple[set[str], set[str]]:
        """Those with functions that were handed the message in all windows from one on, and those that ran for it."""
        handed, ran = set(IN_THE_WORKER), set(IN_THE_WORKER)
        for file in self._files:
            noted = self.noted(file)
            windows, idle = noted[first : first + WINDOWS], set[str]().union(*noted[2 * WINDOWS :])
            handed |= _files_of(set.intersection(*({name for name in one if one[name]} for one in windows)))
            ran |= _files_of(set.intersection(*map(set, windows)) - idle)
        return handed, ran | handed

    def _signal(self, number: signal.Signals) -> None:
        for file in self._files:
            os.kill(int(file.name), number)


def _files_of(functions: set[str]) -> set[str]:
    return {name.partition(" ")[0] for name in functions}


async def pass_messages(laboratory: Laboratory, folder: Path) -> Windows:
    """Have one event pass in each window: first to different recipients, then to one; then wait for idle work."""
    async with trio.open_nursery() as nursery:
        await nursery.start(laboratory.run)
        system = System(laboratory, nursery)
        anna, bruno = await system.couple()
        windows = Windows(folder, system)
        for number in range(WINDOWS):
            stranger = await system.talker(system.b, f"stranger-{number}")
            async with windows.window():
                await _pass(anna, stranger, 1)
        for number in range(2, 2 + UNTIL_A_FLOW):
            await _pass(anna, bruno, number)
        for number in range(2 + UNTIL_A_FLOW, 2 + UNTIL_A_FLOW + WINDOWS):
            async with windows.window():
                await _pass(anna, bruno, number)
        while not windows.have_idled():
            async with windows.window():
                pass
        nursery.cancel_scope.cancel()
    return windows


async def _pass(sender: Talker, receiver: Talker, count: int) -> None:
    """The receiver gets a marked event: it has so many messages of the sender then."""
    await sender.client.notify("create", sender.hyperty, receiver.hyperty, {"value": count, "mark": MARK.decode()})
    await receiver.hear_numbers(sender.hyperty, count)


@pytest.mark.long
async def test_a_message_between_domains_passes_a_bounded_number_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    plan = LaboratoryPlan(
        state_dir=tmp_path / "laboratory",
        serve=("tests.system.traced_node", "serve"),
        environment={"TRACE_FOLDER": str(folder)},
        policies=None,
    )
    with trio.fail_after(LIMIT_SECONDS):
        windows = await pass_messages(Laboratory(plan), folder)
    first, of_a_flow = windows.files(0), windows.files(WINDOWS)
    assert {"msg_node/bus/session_traffic.py", "federation/links/domain_link.py", "policy/core/gate.py"} < first[0]
    flows = {"msg_node/bus/session_flows.py", "federation/links/outward_flow.py", "federation/links/inward_flow.py"}
    assert flows < of_a_flow[0]
    for (handed, ran), most in ((first, MOST_OF_A_FIRST_MESSAGE), (of_a_flow, MOST_OF_A_FLOW)):
        is_short = len(handed) <= most[0] and len(ran) <= most[1]
        assert is_short, f"{len(handed)} {len(ran)}\n" + "\n".join([*sorted(handed), "", *sorted(ran - handed)])
