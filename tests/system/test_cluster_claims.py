"""Runtimes of two nodes claim the same addresses at once, and one node is killed: what they saw has an explanation.

Real processes over a real engine; judged by the checker in `interop/lab/core/operations.py`.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import trio

from interop.lab.core.operations import Operation, unexplained
from tests.support.contenders import THINGS, Contender, History
from tests.support.postgres import PASSWORD, running_postgres
from tests.support.runtime_rig import Runtime
from tests.system.pair import Pair
from tests.system.test_cluster_nodes import PATIENCE_SECONDS, came_back

STEPS_BEFORE_THE_KILL = 400
STEPS_AFTER_IT = 400
RUN_SECONDS = 300.0
"""Three waits of `STEPS_SECONDS`, and starts on a machine that is busy."""
LONGEST_CLAIM_SECONDS = 5.0


def note_what_may_be_left(history: History) -> None:
    """A claim that was under way when its node died may stand until its lease is over, for nobody."""
    now = trio.current_time()
    for (kind, since), thing in product((("claim", now - LONGEST_CLAIM_SECONDS), ("release", now)), THINGS):
        history.note(Operation(runtime="the dead node", kind=kind, object=thing, began=since))


async def until_served_again(history: History, killed: int) -> None:
    """Wait until each runtime has had each address since."""
    wanted = set(product(("ana", "bo", "eve"), THINGS))
    with trio.fail_after(PATIENCE_SECONDS):
        while wanted:
            await history.wait(1)
            granted = [step for step in history.operations[killed:] if (step.kind, step.result) == ("claim", "ok")]
            wanted -= {(step.runtime, step.object) for step in granted}


@pytest.mark.endurance
async def test_claims_of_two_nodes_and_a_kill_are_explained_by_some_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with running_postgres() as engine:
        pair = Pair(tmp_path, engine, engine.new_database())
        history = History()
        contenders = [Contender(name, history) for name in ("ana", "bo", "eve")]
        ana, bo, eve = contenders
        async with (
            pair.node("n1", seconds=RUN_SECONDS) as one,
            pair.node("n2", seconds=RUN_SECONDS) as two,
            trio.open_nursery() as nursery,
        ):
            for contender, process in ((ana, one), (bo, two), (eve, two)):
                await contender.open(process)

            async def come_back(lost: Runtime) -> Runtime:
                return await came_back(lost, one)

            for contender in contenders:
                nursery.start_soon(contender.listen, come_back)
                nursery.start_soon(contender.contend, [other for other in contenders if other is not contender])
            await history.wait(STEPS_BEFORE_THE_KILL)
            two.kill()
            killed = len(history.operations)
            note_what_may_be_left(history)
            await until_served_again(history, killed)
            await history.wait(STEPS_AFTER_IT)
            nursery.cancel_scope.cancel()
    counts = history.counts()
    for contender in contenders:  # each had what it claimed, and not, and was found, and heard others
        for kind, result in (("claim", "ok"), ("claim", "refused"), ("release", "ok"), ("hear", "ok")):
            assert counts[contender.name, kind, result], (contender.name, kind, result, counts)
    found = {step.result for step in history.operations if step.kind == "find"} - {""}
    assert len(found) > 1, counts
    contradictions = unexplained(history.operations)
    if contradictions:
        pytest.fail("\n".join(str(step) for step in contradictions[0]), pytrace=False)
