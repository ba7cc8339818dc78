"""A hostile domain in a laboratory that runs: what it did, who believed it, and whether the others still talk."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import trio

from interop.hostile.core.misdeeds import unknown
from interop.hostile.domain import HostileDomain, switch
from interop.lab.kept import KeptLab
from protofly.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Result of a trial of a hostile domain.

    Attributes:
        done: How often each misdeed was done.
        welcomed: How often a node welcomed the domain.
        forged: How many messages in the name of others it sent.
        believed: What reached a runtime of another domain: everything here was believed.
        unanswered: Pairs of the other domains that do not talk afterwards.
    """

    done: dict[str, int]
    welcomed: int
    forged: int
    believed: list[str]
    unanswered: list[str]


async def misbehave(lab: KeptLab, domain: str, names: Sequence[str], *, seconds: float, per_second: float) -> Trial:
    """Let a domain misbehave for a time; lines of standard input switch misdeeds meanwhile.

    Raises:
        SettingsError: There is no such domain or misdeed.
        TransportError: A node takes no runtime.
        UnexpectedAnswerError: A node refuses a session.
    """
    if wrong := unknown(names):
        raise SettingsError(f"there is no misdeed {wrong[0]}; `trapezoid lab misdeeds` lists them")
    hostile = lab.hostile(domain, per_second=per_second)
    switch(hostile, names)
    async with trio.open_nursery() as nursery:
        talkers = await lab.talkers(nursery)
        addresses = {one.hyperty: name for name, one in talkers.items() if name != domain}
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as attack:
                attack.start_soon(hostile.attack, lambda: addresses)
                attack.start_soon(_obey, hostile)
        believed = [f"{name} heard {one.from_}" for name, talker in talkers.items() for one in talker.heard]
        unanswered = []
        for source, target in permutations(sorted(set(talkers) - {domain}), 2):
            answer = await talkers[source].ask(talkers[target].hyperty)
            if not answer.is_ok:
                unanswered.append(f"{source} to {target}: {answer.code} {answer.reason}")
        for talker in talkers.values():
            await talker.client.close()
        nursery.cancel_scope.cancel()
    return Trial(
        done=hostile.done,
        welcomed=hostile.connections,
        forged=hostile.forged,
        believed=believed,
        unanswered=unanswered,
    )


async def _obey(hostile: HostileDomain) -> None:
    """Switch misdeeds as the lines of standard input say, until there are no more."""
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        for wrong in switch(hostile, line.split()):
            sys.stderr.write(f"there is no misdeed {wrong}\n")
