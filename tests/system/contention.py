"""Runtimes that contend for the same addresses while nodes or their engine die; what they saw is judged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from interop.lab.core.operations import unexplained
from tests.support.contenders import Contender, History
from tests.support.runtime_rig import Runtime
from tests.system.wandering import PATIENCE_SECONDS, Nodes, Wanderer


class ContradictionError(Exception):
    """No order of single steps explains what was seen."""


async def until_claimed(history: History) -> None:
    """Wait until each address has been somebody's from now on."""
    since, wanted = len(history.operations), set(history.things)
    with trio.fail_after(PATIENCE_SECONDS):
        while wanted:
            await history.wait(1)
            granted = [step for step in history.operations[since:] if (step.kind, step.result) == ("claim", "ok")]
            wanted -= {step.object for step in granted}


@asynccontextmanager
async def contention(nodes: Nodes) -> AsyncIterator[History]:
    """A runtime at each node, all of which contend for the same addresses, until it is left.

    Raises:
        ContradictionError: With the smallest part of what they saw that no order of single steps explains.
    """
    history = History()
    contenders = [Contender(f"contender-{name}", history) for name in nodes.running]
    for process, contender in zip(nodes.running.values(), contenders, strict=True):
        await contender.open(process)
    async with trio.open_nursery() as nursery:
        for contender in contenders:
            nursery.start_soon(_listen, nodes, contender, history)
            nursery.start_soon(contender.contend, [other for other in contenders if other is not contender])
        await until_claimed(history)
        yield history
        await until_claimed(history)
        nursery.cancel_scope.cancel()
    contradictions = unexplained(history.operations)
    if contradictions:
        some = contradictions[0]
        texts = (*some, "among", *history.around(some))
        raise ContradictionError("\n".join(str(one) for one in texts))


async def _listen(nodes: Nodes, contender: Contender, history: History) -> None:
    """Have a contender go to another node when its own dies."""

    async def come_back(lost: Runtime) -> Runtime:
        history.note_loss(contender.name)
        wanderer = Wanderer(nodes, lost)
        await wanderer.move()
        return wanderer.runtime

    await contender.listen(come_back)
