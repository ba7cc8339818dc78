"""What only the Vert.x node does: sessions with tokens, and integer ids."""

from __future__ import annotations

from pathlib import Path

from interop.foreign.vertx import VertxNode

from .dialects import bruno_of
from .peer_stubs import THEIRS, PeerSystem, peering
from .systems import wait_until

STUB = "vertx_peer"


def asked_for_sessions(system: PeerSystem) -> list[str]:
    """What the stub said to the session service, in order."""
    return [one["type"] for one in system.node.received if one["to"] == "mn:/session"]


async def test_session_and_its_addresses_are_taken_up_after_a_lost_line(tmp_path: Path) -> None:
    async with peering(tmp_path, VertxNode(THEIRS), STUB) as system:
        bruno, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        connections = system.node.connections
        await system.node.cut_lines()
        # What goes into a dying line of a node that acknowledges nothing is lost.
        await wait_until(system.link, lambda one: one.state == "disconnected" or system.node.connections > connections)
        assert (await system.anna.ask(hyperty)).is_ok
        assert asked_for_sessions(system) == ["open", "re-open"]
        assert (await bruno.ask("create", hyperty, system.anna.hyperty, {"value": 8}))["code"] == 200


async def test_session_is_opened_anew_where_the_node_does_not_know_it_any_more(tmp_path: Path) -> None:
    async with peering(tmp_path, VertxNode(THEIRS), STUB) as system:
        _, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        await system.node.kill()
        await system.wait_state("disconnected")
        await system.node.start()
        _, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        assert asked_for_sessions(system) == ["open", "re-open", "open"]


async def test_node_gets_integers_whatever_the_ids_are(tmp_path: Path) -> None:
    async with peering(tmp_path, VertxNode(THEIRS), STUB) as system:
        _, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        await system.anna.client.notify("create", system.anna.hyperty, hyperty, {"value": 1})
        assert (await system.anna.ask(hyperty)).is_ok
        assert all(isinstance(one["id"], int) and 0 < one["id"] < 2**31 for one in system.node.received)


async def test_via_and_trace_stay_here_where_the_entry_says_so(tmp_path: Path) -> None:
    async with peering(tmp_path, VertxNode(THEIRS), STUB, more="send_via = false\n") as system:
        bruno, hyperty = await bruno_of(system.node)
        answer = await system.anna.ask(hyperty, 7)
        assert (answer.code, answer.value) == (200, 7)
        [request] = [one for one in bruno.heard if one["from"] == system.anna.hyperty]
        assert request["body"] == {"value": 7}
