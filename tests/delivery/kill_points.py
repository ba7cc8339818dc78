"""`python -m tests.delivery.kill_points --points 50`: kill a node amid traffic, again and again; nothing may be lost.

With `--engine` its state is in a real PostgreSQL, and it goes on now on one data folder, now on another.

Exit status 0 when nothing acknowledged was lost, nothing was handed over again after its end, no end was reported
twice, and every granted registration is there; 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from tests.delivery.killed_node import Ledger, run_trial
from tests.support.postgres import engine_settings, running_postgres


@contextmanager
def storage(*, is_engine: bool) -> Iterator[str]:
    """Settings of the place of the state, and an engine while they are needed."""
    if not is_engine:
        yield ""
        return
    with running_postgres() as server:
        yield engine_settings(server)


def main() -> int:
    """Run one trial and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=50, help="how often the node is killed")
    parser.add_argument("--seed", type=int, default=1, help="where the random moments begin")
    parser.add_argument("--engine", action="store_true", help="keep the state in PostgreSQL")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, storage(is_engine=chosen.engine) as settings:
        trial = partial(run_trial, Path(folder), points=chosen.points, seed=chosen.seed, storage=settings)
        ledger: Ledger = trio.run(trial)
    again = sum(len(lives) > 1 for lives in ledger.handed.values())
    sys.stdout.write(
        f"{chosen.points} kills: {ledger.sent} actions sent, {len(ledger.acknowledged)} parked, "
        f"{len(ledger.words)} ended, {again} handed over again, {len(ledger.registered)} registrations granted\n"
    )
    for fault in ledger.faults():
        sys.stdout.write(f"FAULT: {fault}\n")
    return 1 if ledger.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
