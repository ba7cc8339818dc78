"""A domain that names others as its aliases, and speaks for them: over our own stub of it, and over its visit to us.

Its root and its tokens are properly signed. Trust and hosts, section 7, row 57.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from federation.core.link_frames import encode_messages
from interop.lab.link_peer import LinkLine, message

from .foreign import ForeignDomain
from .frontier import Frontier, running_frontier
from .legacy import use_settings
from .systems import wait_until

GOOD, BARRED, UNNAMED = "good.foreign.example", "barred.example", "unnamed.example"
FORGED = [
    f"hyperty://{GOOD}/h-1",
    f"HYPERTY://{GOOD.upper()}./h-1",
    f"runtime://{GOOD}/mn-1",
    f"domain://registry.{GOOD}",
    f"domain://msg-node.{GOOD}/sm",
    f"comm://{GOOD}/room/subscription",
    "hyperty://a.example/anna",
    "hyperty://A.example./anna",
    "user://a.example/anna",
    "runtime://a.example/anna",
    "runtime://a.example/mn-1",
    "domain://registry.a.example",
    "domain://msg-node.a.example/sm",
    "comm://a.example/room/subscription",
    f"hyperty://{BARRED}/h-1",
    f"hyperty://{UNNAMED}/h-1",
]
NAMES_AT_ONCE = 3
"""So many fit, with the honest messages around them, into what a node takes in before it looks at the clock; behind
that, the connection of a forger may end with the rest unread."""
SETTINGS = """
[[peer]]
domain = "barred.example"
default = "deny"
"""
Via = Callable[[Frontier, ForeignDomain], AbstractAsyncContextManager[LinkLine]]


@asynccontextmanager
async def visiting(frontier: Frontier, foreign: ForeignDomain) -> AsyncIterator[LinkLine]:
    """The liar comes to us."""
    line = await foreign.peer.visit(
        frontier.node.domain, frontier.node.ports.listen, frontier.authority.client_context()
    )
    async with line.stream:
        yield line


@asynccontextmanager
async def hosted(frontier: Frontier, foreign: ForeignDomain) -> AsyncIterator[LinkLine]:
    """We run the liar's stub."""
    assert (await frontier.ask(foreign)).is_ok
    yield foreign.peer.lines[0]


both_ways = pytest.mark.parametrize("line_to", [visiting, hosted], ids=["as a visitor", "as a hosted stub"])


def forgery(name: str, anna: str, number: int) -> list[bytes]:
    """One name in every place: as sender of each kind of message, and as source of an honest sender."""
    mine = {"type": "create", "from": "hyperty://liar.foreign.example/h-1", "to": anna, "body": {"source": name}}
    answer = {"id": number, "type": "response", "from": name, "to": anna, "body": {"code": 200}}
    event = {"type": "update", "from": name, "to": anna, "body": {"value": "forged"}}
    return [
        message(name, anna, id_=number, value="forged"),
        *(json.dumps(one).encode() for one in (event, answer, mine)),
    ]


@pytest.mark.parametrize("first", range(0, len(FORGED), NAMES_AT_ONCE))
@both_ways
async def test_no_forgery_of_a_self_asserted_alias_arrives_and_neighbours_are_unharmed(
    tmp_path: Path, line_to: Via, first: int
) -> None:
    names = FORGED[first : first + NAMES_AT_ONCE]
    async with running_frontier(tmp_path, "liar") as frontier:
        await use_settings(frontier, SETTINGS)
        foreign = await frontier.add("liar", GOOD, BARRED, UNNAMED)
        heard, anna = len(frontier.anna.heard), frontier.anna.hyperty
        mine = f"hyperty://{foreign.domain}/h-1"
        forged = [raw for number, name in enumerate(names, 100) for raw in forgery(name, anna, number)]
        sent = [message(mine, anna, value=1), *forged, message(mine, anna, value=2)]
        async with line_to(frontier, foreign) as line:
            assert (await frontier.link(foreign)).domains == [foreign.domain]
            await line.send(*encode_messages(list(enumerate(sent, 2 if line_to is hosted else 1))))
            link = await wait_until(lambda: frontier.link(foreign), lambda one: one.state != "live")
        assert link.spoofed == len(forged)
        assert [(one.from_, one.body["value"]) for one in frontier.anna.heard[heard:]] == [(mine, 1), (mine, 2)]
        await frontier.assert_unharmed()


async def reason_of_refusal(frontier: Frontier, foreign: ForeignDomain) -> str:
    """With which reason our node closes a visit of the liar."""
    line = await foreign.peer.visit_unproved(
        frontier.node.domain, frontier.node.ports.listen, frontier.authority.client_context()
    )
    async with line.stream:
        return await line.close_reason()


@pytest.mark.parametrize("claimed", ["a.example", "A.example", "a.example."])
@both_ways
async def test_a_domain_that_claims_ours_gets_no_link(tmp_path: Path, line_to: Via, claimed: str) -> None:
    async with running_frontier(tmp_path, "liar", waiting_seconds=3.0) as frontier:
        foreign = await frontier.add("liar", "a.example")
        foreign.peer.domains = [foreign.domain, claimed]
        if line_to is hosted:
            answer = await frontier.ask(foreign)
            assert not answer.is_ok
        else:
            assert await reason_of_refusal(frontier, foreign) in ("own-domain", "name-invalid")
        assert (await frontier.link(foreign)).state != "live"
        await frontier.assert_unharmed()


@both_ways
async def test_an_alias_that_says_the_same_of_itself_is_heard(tmp_path: Path, line_to: Via) -> None:
    async with running_frontier(tmp_path, "wide") as frontier:
        lab = "lab.foreign.example"
        foreign = await frontier.add("wide", lab)
        await frontier.add("lab", alias_of=foreign)
        heard, anna = len(frontier.anna.heard), frontier.anna.hyperty
        async with line_to(frontier, foreign) as line:
            raw = message(f"hyperty://{lab}/h-1", anna, value=1)
            await line.send(*encode_messages([(2 if line_to is hosted else 1, raw)]))
            await frontier.anna.wait_for(lambda: len(frontier.anna.heard) > heard)
            assert frontier.anna.heard[-1].from_ == f"hyperty://{lab}/h-1"
            assert (await frontier.link(foreign)).domains == sorted([foreign.domain, lab])
        await frontier.assert_unharmed()


UNREADABLE = ["hyperty://\uff41.example/anna", "hyperty://liar.foreign.example\u0000/x", "hyperty://[x/y"]


@both_ways
async def test_requests_from_no_address_do_not_end_the_node(tmp_path: Path, line_to: Via) -> None:
    """Their refusals wait for nobody: what waits too long, and what is given up, is answered by the node itself."""
    async with running_frontier(tmp_path, "liar", waiting_seconds=1.0) as frontier:
        foreign = await frontier.add("liar")
        anna = frontier.anna.hyperty
        mine = f"hyperty://{foreign.domain}/h-1"
        sent = [
            *(message(name, anna, id_=number, value=0) for number, name in enumerate(UNREADABLE)),
            message(mine, anna, value=1),
        ]
        while line_to is hosted and not (await frontier.ask(foreign)).is_ok:
            pass  # a busy machine may need longer for a first contact than messages wait here
        heard = len(frontier.anna.heard)
        async with line_to(frontier, foreign) as line:
            foreign.peer.acknowledges = False
            await line.send(*encode_messages(list(enumerate(sent, 1000))))
            await frontier.anna.wait_for(lambda: len(frontier.anna.heard) > heard)
            foreign.behaviour = trio.aclose_forcefully  # nobody carries what waits
            await trio.aclose_forcefully(line.stream)
        await wait_until(lambda: frontier.link(foreign), lambda one: one.waiting == 0 and one.state != "live")
        assert [one.from_ for one in frontier.anna.heard[heard:]] == [mine]
        await frontier.assert_unharmed()
