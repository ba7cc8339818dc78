"""Nodes of other makes that go away, flood, or speak another dialect, and lines with TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import trio

from interop.authority import DevelopmentAuthority
from interop.foreign.vertx import VertxNode

from .dialects import Dialect, bruno_of, each_dialect
from .one_node import serving
from .peer_stubs import THEIRS, PeerSystem, peer_settings, peering, talker_of
from .systems import wait_until

STAY = "stay_connected = true\n"
IN_PLAINTEXT = "insecure_plaintext = true\n"


@each_dialect
async def test_all_goes_on_after_their_node_was_killed_and_started_again(tmp_path: Path, dialect: Dialect) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY) as system:
        _, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        await node.wait_received(type="subscribe", resource=system.anna.hyperty)  # it may follow the request
        await node.kill()
        await system.wait_state("disconnected")
        await node.start()
        await node.wait_received(type="subscribe", resource=system.anna.hyperty, count=2)
        bruno, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty, 9)).is_ok
        assert (await bruno.ask("create", hyperty, system.anna.hyperty, {"value": 8}))["code"] == 200


@each_dialect
async def test_all_goes_on_after_a_lost_line(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        bruno, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        connections = system.node.connections
        await system.node.cut_lines()
        # What goes into a dying line of a node that acknowledges nothing is lost.
        await wait_until(system.link, lambda one: one.state == "disconnected" or system.node.connections > connections)
        assert (await system.anna.ask(hyperty)).is_ok
        assert system.node.connections == connections + 1
        assert (await bruno.ask("create", hyperty, system.anna.hyperty, {"value": 8}))["code"] == 200


@each_dialect
async def test_link_that_is_to_stay_is_made_at_the_start_and_again_when_it_is_lost(
    tmp_path: Path, dialect: Dialect
) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY) as system:
        await system.wait_state("live")  # nobody had to write first
        await node.kill()
        await system.wait_state("disconnected")
        await node.start()
        await system.wait_state("live")


async def test_line_to_a_node_is_tls_where_its_endpoint_says_so(tmp_path: Path) -> None:
    authority = DevelopmentAuthority(tmp_path / "authority")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.certificate_for("127.0.0.1"))
    node = VertxNode(THEIRS, ssl_context=context)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        entry = peer_settings(node, "vertx_peer").replace("ws://", "wss://")
        head, _, tail = entry.partition("[[peer]]")
        settings = f'{head}[discovery]\nca_file = "{authority.ca_file}"\n[[peer]]' + tail.replace(IN_PLAINTEXT, "")
        async with serving(tmp_path, settings) as process:
            anna = await talker_of(process, "anna", nursery)
            system = PeerSystem(process, node, tmp_path, anna, nursery)
            _, hyperty = await bruno_of(system.node)
            assert (await anna.ask(hyperty, 7)).is_ok
            assert not any(THEIRS in switch for switch in (await system.status()).insecure)
            nursery.cancel_scope.cancel()


@each_dialect
async def test_flood_of_a_plain_domain_is_bounded_by_its_rate_and_the_link_goes_on(
    tmp_path: Path, dialect: Dialect
) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub, more="messages_per_second = 20.0\n") as system:
        bruno, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        for number in range(2_000):
            bruno.say("create", hyperty, system.anna.hyperty, {"value": number})
        await bruno.wait_for(lambda: any((one.get("body") or {}).get("code") == 429 for one in bruno.heard))
        heard = len(system.anna.numbers_from(hyperty))
        assert 20 <= heard < 200
        assert (await system.link()).state == "live"
        assert (await (await system.talker("carla")).ask(system.anna.hyperty)).is_ok
