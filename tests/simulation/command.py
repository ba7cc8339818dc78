"""Whole nodes in simulated time: `./run simulate [--seeds 100] [--first 1] [--seed N] [--scene FILE]`.

Each seed is a scene of three domains with its own traffic and faults, played in a process of its own. A seed that
fails is shrunk to the smallest scene that still fails, printed as a file. A seed plays the same way each time.
Exit code 0 when every promise held, 1 when one was broken, 2 when it could not run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Final

import msgspec
import trio
from rich.console import Console
from rich.progress import Progress

from interop.lab.core.scene import LabScene
from interop.lab.scene_file import load_scene
from msg_node.settings.environment import type_of_settings
from protofly.errors import SettingsError
from tests.interop.lab.mutant_node import MUTANTS, SIMULATION_MUTANTS
from tests.simulation import invariants, virtual_process
from tests.simulation.network import let_channels_use_lines
from tests.simulation.play import Outcome, play
from tests.simulation.seeds import scene_of
from tests.simulation.shrink import as_toml, shrunk
from tests.simulation.world import let_disks_fill_up, make_template

LIMIT_SECONDS: Final = 300.0
"""A seed that takes so much processor time hangs."""
_OUT: Final = Console(soft_wrap=True, markup=False, highlight=False)
_MEMORY_DISK: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Seeds:
    """Plays scenes in processes of their own."""

    template: Path
    work: Path
    mutant: str = ""

    def start(self, seed: int, scene: LabScene) -> tuple[Connection, int]:
        """Fork a process for one scene; the connection gives its outcome, as JSON."""
        receiver, sender = Pipe(duplex=False)
        pid = os.fork()
        if pid:
            sender.close()
            return receiver, pid
        try:
            receiver.close()
            sender.send_bytes(msgspec.json.encode(self._play(seed, scene)))
            os._exit(0)
        finally:
            os._exit(1)

    def _play(self, seed: int, scene: LabScene) -> Outcome:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (int(LIMIT_SECONDS), int(LIMIT_SECONDS)))
        virtual_process.enter()
        let_disks_fill_up()
        let_channels_use_lines()
        if self.mutant:
            (MUTANTS | SIMULATION_MUTANTS)[self.mutant]()
        invariants.check_at_each_step()
        try:
            return play(seed, scene, self.template, self.work)
        except BaseException as exc:
            import traceback

            return Outcome(seed=seed, findings=(f"defect: {''.join(traceback.format_exception(exc))}",))

    def finish(self, seed: int, started: tuple[Connection, int]) -> Outcome:
        """The outcome of a process that has one, or has ended."""
        receiver, pid = started
        try:
            outcome = msgspec.json.decode(receiver.recv_bytes(), type=Outcome)
        except EOFError:
            outcome = Outcome(seed=seed, findings=("defect: the process died, or took too long",))
        receiver.close()
        _, status, usage = os.wait4(pid, 0)
        del status
        return msgspec.structs.replace(outcome, cpu_seconds=usage.ru_utime + usage.ru_stime)

    def one(self, seed: int, scene: LabScene) -> Outcome:
        """Play one scene to its end."""
        return self.finish(seed, self.start(seed, scene))

    def all(
        self, scenes: Iterable[tuple[int, LabScene]], jobs: int, on_done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """Play scenes, `jobs` at a time."""
        running: dict[Connection, tuple[int, int]] = {}
        outcomes: list[Outcome] = []

        def collect() -> None:
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                seed, pid = running.pop(ready)
                outcomes.append(self.finish(seed, (ready, pid)))
                on_done(outcomes[-1])

        for seed, scene in scenes:
            receiver, pid = self.start(seed, scene)
            running[receiver] = (seed, pid)
            while len(running) >= jobs:
                collect()
        while running:
            collect()
        return sorted(outcomes, key=lambda one: one.seed)


def main() -> int:
    """Run the command; returns its exit code."""
    arguments = _parsed()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is that of hashes
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    console = Console(stderr=True)
    with ExitStack() as stack:
        parent = _MEMORY_DISK if _MEMORY_DISK.is_dir() else None
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="simulate-", dir=parent)))
        template = arguments.template or work / "template"
        try:
            _make_missing(template, console)
            scenes = _scenes(arguments)
        except SettingsError as exc:
            console.print(str(exc), style="red", markup=False)
            return 2
        type_of_settings()  # takes time, and is the same for all
        seeds = Seeds(template=template, work=work, mutant=arguments.mutant)
        with Progress(console=console) as progress:
            task = progress.add_task("seeds", total=len(scenes))
            outcomes = seeds.all(scenes.items(), arguments.jobs, lambda _: progress.advance(task))
            if arguments.twice:
                again = seeds.all(scenes.items(), arguments.jobs, lambda _: None)
                outcomes = [_compared(*both) for both in zip(outcomes, again, strict=True)]
        return _report(outcomes, scenes, seeds, arguments)


def _make_missing(template: Path, console: Console) -> None:
    if not template.exists():
        with console.status("keys, certificates and documents of three domains"):
            trio.run(make_template, template)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds (default 100)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default 1)")
    parser.add_argument("--seed", type=int, help="play only this one")
    parser.add_argument("--scene", type=Path, help="play this scene file instead of the seed's own")
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS | SIMULATION_MUTANTS), default="", help="with this mistake in all nodes"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--twice", action="store_true", help="play each seed twice; a difference is a finding")
    parser.add_argument("--no-shrink", action="store_true", help="report failing seeds as they are")
    parser.add_argument("--json", type=Path, help="write all outcomes to this file")
    parser.add_argument("--template", type=Path, help="folder for keys and documents, made if missing, and kept")
    return parser.parse_args()


def _scenes(arguments: argparse.Namespace) -> dict[int, LabScene]:
    first, count = arguments.first, arguments.seeds
    numbers = range(first, first + count) if arguments.seed is None else [arguments.seed]
    if arguments.scene is not None:
        return dict.fromkeys(numbers, load_scene(arguments.scene))
    return {number: scene_of(number) for number in numbers}


def _compared(first: Outcome, second: Outcome) -> Outcome:
    if first.digest == second.digest:
        return first
    text = f"defect: the seed does not play the same way twice: {first.digest}, {second.digest}"
    return msgspec.structs.replace(first, findings=(*first.findings, text))


def _report(outcomes: list[Outcome], scenes: dict[int, LabScene], seeds: Seeds, arguments: argparse.Namespace) -> int:
    failed = [one for one in outcomes if one.findings]
    cpu, simulated = sum(one.cpu_seconds for one in outcomes), sum(one.seconds for one in outcomes)
    _OUT.print(
        f"{len(outcomes)} seeds, {len(failed)} failed; {sum(one.messages for one in outcomes):,} messages, "
        f"{sum(one.faults for one in outcomes):,} faults, {simulated:,.0f} simulated seconds in {cpu:,.0f} s of CPU"
    )
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(outcomes))
    for outcome in failed:
        scene, shown = scenes[outcome.seed], outcome
        if not arguments.no_shrink:
            scene, shown = shrunk(scene, outcome, lambda one, seed=outcome.seed: seeds.one(seed, one))  # type: ignore[misc]
        _OUT.print(f"\nseed {outcome.seed} (again: ./run simulate --seed {outcome.seed}):")
        _OUT.print("\n".join(f"  {finding}" for finding in shown.findings))
        if not arguments.no_shrink:
            _OUT.print(f"\n# the smallest scene that fails so: ./run simulate --seed {outcome.seed} --scene FILE")
            _OUT.print(as_toml(scene))
    return 1 if failed else 0
