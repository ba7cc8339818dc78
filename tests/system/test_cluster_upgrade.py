"""A rolling upgrade, and the way back: a node of the version before beside one of this version, on the same engine.

The version before is the newest tag `v*` of this repository whose nodes have an engine; while there is none, the oldest
commit with which an upgrade is promised (`OLDEST`). The environment may name another in `TRAPEZOID_VERSION_BEFORE`.
Clones without history have none, which is a failure with `TRAPEZOID_REQUIRE_HISTORY`, as in the public workflow;
elsewhere `tests/msg_node/storage/test_recorded_forms.py` holds the forms that both have to read.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from tests.support.runtime_rig import PATIENCE_SECONDS, Runtime, a_message
from tests.system.one_node import Process
from tests.system.pair import AGENT, Pair
from tests.system.test_cluster_nodes import came_back, has_parked, in_both_directions, next_of

ROOT = Path(__file__).parents[2]
ENGINE = "msg_node/storage/engine.py"
OLDEST = "b48dcab65a"
MESSAGES = 200
RUN_SECONDS = 300.0
"""Five starts of nodes on a machine that is busy."""


def git(*words: str) -> str:
    """What git says, "" when it fails or is not there."""
    program = shutil.which("git")
    if program is None:
        return ""
    done = subprocess.run([program, "-C", str(ROOT), *words], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def version_before() -> str:
    """What git calls the version before; "" when this clone has none."""
    chosen = os.environ.get("TRAPEZOID_VERSION_BEFORE", "")
    tags = [chosen] if chosen else git("tag", "--list", "v*", "--merged", "HEAD~1", "--sort=-version:refname").split()
    tags = tags if chosen else [*tags, OLDEST]
    return next((tag for tag in tags if git("cat-file", "-t", f"{tag}:{ENGINE}").strip() == "blob"), "")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree of the version before."""
    version = version_before()
    if not version:
        missing = pytest.fail if os.environ.get("TRAPEZOID_REQUIRE_HISTORY") else pytest.skip
        missing("this clone has no history with a version before this one (git fetch --unshallow)")
    folder = tmp_path_factory.mktemp("before")
    archive = folder / "tree.tar"
    assert git("archive", "--format=tar", f"--output={archive}", version) == ""
    shutil.unpack_archive(archive, folder / "tree", filter="data")
    return folder / "tree"


async def stopped(process: Process) -> None:
    process.child.send_signal(signal.SIGTERM)
    with trio.fail_after(PATIENCE_SECONDS):
        assert await process.child.wait() == 0


async def flows(sender: Runtime, receiver: Runtime, to: str) -> None:
    await sender.say(*(a_message("message", sender.address, to, {"n": one}) for one in range(MESSAGES)))
    assert [(await next_of(receiver, "message"))["body"]["n"] for _ in range(MESSAGES)] == list(range(MESSAGES))


async def test_nodes_of_this_version_and_of_the_one_before_serve_a_domain_and_read_each_others_rows(
    pair: Pair, before: Path
) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(pair.node("n1", seconds=RUN_SECONDS, program=before))
        ana = await one.opened("ana")
        to_ana, thing = await ana.allocated(), await ana.allocated("comm")
        two = await stack.enter_async_context(pair.node("n2", seconds=RUN_SECONDS))
        bo = await two.opened("bo")
        to_bo = await bo.allocated()
        await in_both_directions(ana, bo, to_ana, to_bo)
        for sender, receiver, to in ((ana, bo, to_bo), (bo, ana, to_ana)):
            await flows(sender, receiver, to)
        assert (await bo.subscribed(f"{thing}/changes"))["body"]["code"] == 200
        parked = await ana.ask("execute", f"{AGENT}/lamp-1/actions/switch", {"class": "action", "method": "x"})
        assert parked["body"]["code"] == 202

        # The node of the version before is replaced: what it stored is there.
        await stopped(one)
        one = await stack.enter_async_context(pair.node("n1", seconds=RUN_SECONDS))
        ana = await came_back(ana, one)
        await in_both_directions(ana, bo, to_ana, to_bo)
        await ana.say(a_message("update", thing, f"{thing}/changes", {"value": 1}))
        assert (await next_of(bo, "update"))["body"]["value"] == 1

        # And back: the version before goes on with what this one stored, at either node.
        await stopped(two)
        two = await stack.enter_async_context(pair.node("n2", seconds=RUN_SECONDS, program=before))
        bo = await came_back(bo, two)
        await in_both_directions(ana, bo, to_ana, to_bo)
        moved = await came_back(ana, two)  # from this version to the one before, with its subscription's object
        await in_both_directions(moved, bo, to_ana, to_bo)
        agent = await two.opened("lamps")
        await has_parked(agent, parked["body"]["requestId"])
        await stopped(one)
        await stopped(two)
