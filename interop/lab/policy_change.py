"""Another policy for a domain while traffic runs: its nodes take it over, and later take the former one back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import trio

from interop.lab.actors import Notes
from interop.lab.core.scene import Fault, LabScene
from interop.lab.core.seen import Denial


async def change_policy(
    fault: Fault, scene: LabScene, file: Path, have_reloaded: Callable[[], Awaitable[None]], notes: Notes
) -> None:
    """Put the policy of a fault in force for as long as it lasts, and note what it denied and when.

    Args:
        fault: Its `policy` is a file, and `denies` says which loads of the scene it keeps out.
        scene: Where those runtimes are.
        file: The policy that the settings of the domain name.
        have_reloaded: Returns when all nodes of the domain have what is in that file in force. May raise HostError.
        notes: Gets the denial.

    Raises:
        HostError: A node does not take the policy.
        OSError: A file cannot be read or written.
    """
    asked = notes.now()
    with _replaced(file, Path(fault.policy)):
        await have_reloaded()
        since = notes.now()
        await trio.sleep(fault.lasts)
        until = notes.now()
    try:
        await have_reloaded()
    finally:
        times = (asked, since, until, notes.now())
        notes.seen.denials.append(_denial(fault, scene, *times))


@contextmanager
def _replaced(file: Path, other: Path) -> Iterator[None]:
    """Have a file hold what another one holds, for a time."""
    former = file.read_bytes()
    file.write_bytes(other.read_bytes())
    try:
        yield
    finally:
        file.write_bytes(former)


def _denial(fault: Fault, scene: LabScene, asked: float, since: float, until: float, ended: float) -> Denial:
    pairs = [product(scene.names_of(source), scene.names_of(target)) for source, target in fault.denies]
    return Denial(
        domain=fault.domain or "",
        pairs=frozenset(pair for some in pairs for pair in some),
        asked=asked,
        since=since,
        until=until,
        ended=ended,
    )
