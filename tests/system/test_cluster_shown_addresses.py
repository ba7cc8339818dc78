"""A node of another make learns the addresses of a domain of two nodes: real processes, a real engine, real stubs."""

from __future__ import annotations

import trio

from interop.foreign.simulator import ForeignNode, LocalRuntime
from interop.talker import Talker
from tests.support.services import running
from tests.system.dialects import Dialect, bruno_of, each_dialect
from tests.system.one_node import Process
from tests.system.pair import Pair
from tests.system.peer_stubs import PEER, THEIRS, talker_of

LIMIT_SECONDS = 240.0


async def wrote(bruno: LocalRuntime, hyperty: str, to: Talker, number: int) -> None:
    """They write to a runtime of ours that never wrote to them; it answers."""
    assert (await bruno.ask("create", hyperty, to.hyperty, {"value": number}))["code"] == 200
    assert to.numbers_from(hyperty) == [number]


async def at_both_nodes(theirs: ForeignNode, one: Process, carla: Talker, nursery: trio.Nursery) -> None:
    """All runtimes are written to, wherever they are; what has ended is not heard of any more."""
    anna = await talker_of(one, "anna", nursery)
    for talker in (anna, carla):
        await theirs.wait_received(type="subscribe", resource=talker.hyperty)
    bruno, hyperty = await bruno_of(theirs)
    await wrote(bruno, hyperty, anna, 1)
    await wrote(bruno, hyperty, carla, 2)
    dora = await talker_of(one, "dora", nursery)
    await theirs.wait_received(type="subscribe", resource=dora.hyperty)
    await wrote(bruno, hyperty, dora, 3)
    await anna.client.close()
    await theirs.wait_received(type="unsubscribe", resource=anna.hyperty)


@each_dialect
async def test_they_write_to_runtimes_at_both_nodes_that_never_wrote_to_them(pair: Pair, dialect: Dialect) -> None:
    theirs = dialect.make(THEIRS)
    async with running(theirs.run, seconds=LIMIT_SECONDS) as nursery:
        pair.further = f"{PEER.format(stub=dialect.stub, port=theirs.port, path=theirs.path)}stay_connected = true\n"
        async with pair.node("n2", seconds=LIMIT_SECONDS) as two, pair.node("n1", seconds=LIMIT_SECONDS) as one:
            await at_both_nodes(theirs, one, await talker_of(two, "carla", nursery), nursery)
            nursery.cancel_scope.cancel()
