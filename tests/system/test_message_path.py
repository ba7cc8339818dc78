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

from .systems import LIMIT_SECONDS, System, wait_until
from .traced_node import MARK

WINDOWS = 5
"""What runs in all of these, and in none without a message, runs for the message."""
IDLE_WORK = ("federation/router.py _tick", "Sweeper._sweep_actions")
"""Work that nobody asked for: it has to be seen in windows without a message."""
IN_THE_WORKER = {"sandbox/worker.py", "sandbox/engine.py"}
"""The worker of a stub is confined and cannot report what it runs."""
MOST_HANDED = 41
"""Files with functions that are given the message or give it back: as bytes, decoded, or in a batch."""
MOST_FILES = 59
"""Files with functions that run for it: also what is asked about an address, counts, or gets the time."""


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
        """True if all idle work was seen in the windows after the first `WINDOWS`."""
        idle = [set[str]().union(*self.noted(file)[WINDOWS:]) for file in self._files]
        return all(any(work in name for name in names) for names in idle for work in IDLE_WORK)

    def files(self) -> set[str]:
        """Those with functions that ran in all windows with a message, and in none without one."""
        files = set()
        for file in self._files:
            noted = self.noted(file)
            of_message = set.intersection(*map(set, noted[:WINDOWS])) - set[str]().union(*noted[WINDOWS:])
            files |= {name.partition(" ")[0] for name in of_message}
        return files

    def files_handed(self) -> set[str]:
        """Those with functions that were handed the message in all windows."""
        handed = set()
        for file in self._files:
            names = set.intersection(*({name for name in one if one[name]} for one in self.noted(file)[:WINDOWS]))
            handed |= {name.partition(" ")[0] for name in names}
        return handed

    def _signal(self, number: signal.Signals) -> None:
        for file in self._files:
            os.kill(int(file.name), number)


async def pass_messages(laboratory: Laboratory, folder: Path) -> Windows:
    """Have one event pass in each of the first windows, then wait for idle work in further ones."""
    async with trio.open_nursery() as nursery:
        await nursery.start(laboratory.run)
        system = System(laboratory, nursery)
        anna, bruno = await system.couple()
        windows = Windows(folder, system)
        for number in range(WINDOWS):
            async with windows.window():
                await anna.client.notify(
                    "create", anna.hyperty, bruno.hyperty, {"value": number, "mark": MARK.decode()}
                )
                await bruno.hear_numbers(anna.hyperty, number + 2)
        while not windows.have_idled():
            async with windows.window():
                pass
        nursery.cancel_scope.cancel()
    return windows


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
    with trio.fail_after(2 * LIMIT_SECONDS):
        windows = await pass_messages(Laboratory(plan), folder)
    files, handed = sorted(windows.files() | IN_THE_WORKER), sorted(windows.files_handed() | IN_THE_WORKER)
    assert {"msg_node/bus/session_traffic.py", "msg_node/bus/link_traffic.py", "federation/domain_link.py"} < set(
        handed
    )
    assert len(handed) <= MOST_HANDED, "\n".join(handed)
    assert len(files) <= MOST_FILES, "\n".join(files)
