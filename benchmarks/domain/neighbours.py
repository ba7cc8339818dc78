"""What neighbours notice of an attack: the same paced pair with and without it, in turns, on one node."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import trio

from benchmarks.domain.plan import ATTACKS, NODE, PairFlood, neighbours_shape
from benchmarks.domain.variants import DOMAIN, OneNode
from benchmarks.plan import Measured, compared
from benchmarks.sides import STOP_CLIENTS_SECONDS, Run, Side
from protofly.errors import Code, TransportError

ATTACKER = "benchmarks.domain.attacker"


async def measure_neighbours(folder: Path, *, on_progress: Callable[[str], None]) -> list[Measured]:
    """Measure a pair alone and beside each attack.

    Args:
        folder: Where data and logs are kept.
        on_progress: Called with a line about each run when it begins.

    Raises:
        TransportError: the node, a load client or the attacker fails.
    """
    shape = neighbours_shape()
    node = OneNode(NODE, folder, has_site=True)
    attacker = Side("attacker", log_file=folder / "attacker.log", program=ATTACKER)
    runs: dict[str, list[Run]] = {name: [] for name in shape.variants}
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        await attacker.start_process()
        try:
            await node.warm_up(shape)
            for number, name in product(range(shape.rounds), shape.variants):
                on_progress(f"{shape.name}: {name}, round {number + 1}")
                runs[name].append(await run_beside(name, shape, node, attacker))
        finally:
            with trio.move_on_after(STOP_CLIENTS_SECONDS, shield=True):
                await attacker.stop()
        nursery.cancel_scope.cancel()
    return compared([Measured(variant=name, shape=shape, runs=tuple(done)) for name, done in runs.items()])


async def run_beside(name: str, shape: PairFlood, node: OneNode, attacker: Side) -> Run:
    """One run of the pair, beside the attack of that name if there is one.

    Raises:
        TransportError: a load client fails, or the attacker could not attack.
    """
    attack = ATTACKS.get(name)
    if attack is None:
        return await node.flood(shape)
    url = node.site if attack.is_at_site else node.urls()[0]
    await attacker.do("begin", kind=attack.kind, url=url, domain=DOMAIN, rate=attack.rate)
    run = await node.flood(shape)
    ended = await attacker.do("end")
    if ended["trouble"] or not ended["attacks"]:
        raise TransportError(Code.LINK_LOST, f"the attacker is in trouble: {ended['trouble'] or 'no attack'}")
    return run
