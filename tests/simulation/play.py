"""One scene, played in simulated time, and what speaks against it."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from interop.lab.core.scene import LabScene
from interop.lab.core.seen import Seen
from interop.lab.core.verdict import Judged, judge
from interop.lab.run import Play, read_evidence
from sandbox.engine import Engine
from tests.simulation.virtual_process import Simulation
from tests.simulation.world import Defects, epoch_of, simulated_world

QUIET_SECONDS: Final = 45.0
"""Longer than a link may take to come back."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a seed led to. `digest` is the same whenever the same program plays the same scene with the same seed."""

    seed: int
    findings: tuple[str, ...] = ()
    digest: str = ""
    seconds: float = 0.0
    messages: int = 0
    faults: int = 0
    cpu_seconds: float = 0.0


def play(seed: int, scene: LabScene, template: Path, work: Path) -> Outcome:
    """Play a scene; everything that it draws follows from `seed`."""
    simulation = Simulation(seed, epoch_of(template))
    defects = Defects()
    logging.getLogger().addHandler(defects)
    folder = Path(tempfile.mkdtemp(prefix="seed-", dir=work))
    seen = Seen()
    judged: list[Judged] = []

    async def main() -> None:
        nonlocal seen, judged
        async with simulated_world(scene, simulation, template, folder, Engine()) as world:
            one = Play(scene, world, None, quiet_seconds=QUIET_SECONDS, crowd=lambda: 1.0)
            await one.run()
        seen = one.notes.seen
        judged = judge(seen, scene.promise, one.notes.history())
        if any(one.broken for one in judged):  # records may say why
            for domain in scene.our_domains:
                machine = world.machines[domain]
                for one_life in (*machine.lives, machine.folder):
                    read_evidence(seen, {domain: one_life})
            judged = judge(seen, scene.promise, one.notes.history())

    try:
        simulation.run(main)
    finally:
        logging.getLogger().removeHandler(defects)
        shutil.rmtree(folder, ignore_errors=True)
    findings = [f"{one.promise}: {evidence.what}: {evidence.message}" for one in judged for evidence in one.evidence]
    return Outcome(
        seed=seed,
        findings=(*findings, *(f"defect: {text}" for text in defects.found)),
        digest=_digest(seen),
        seconds=simulation.clock.now,
        messages=len(seen.sent),
        faults=len(seen.faults),
    )


def _digest(seen: Seen) -> str:
    """What runtimes saw, in its order and with its times."""
    digest = hashlib.sha256()
    for one in (*seen.sent, *seen.arrived, *seen.answered):
        digest.update(repr(one).encode())
    return digest.hexdigest()[:16]
