"""Nodes of other makes that publish nothing are partners: the same scenes with each, through its stub."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from interop.authority import DevelopmentAuthority
from tests.support.foreign_node import ForeignNode, LocalRuntime
from tests.support.nodejs_node import NodejsNode
from tests.support.nomatrix_node import NomatrixNode
from tests.support.runtime_rig import a_message
from tests.support.vertx_node import VertxNode

from .one_node import serving
from .peer_stubs import OURS, THEIRS, PeerSystem, peer_settings, peering, talker_of

SM = f"domain://msg-node.{THEIRS}/sm"
STAY = "stay_connected = true\n"
IN_PLAINTEXT = "insecure_plaintext = true\n"
OBJECTS_ONLY = """
id = "objects-only"
version = "1"
rule_combining_algorithm = "first-applicable"

[[rules]]
id = "no-hyperties"
effect = "deny"
condition = { hook = { equals = "in" }, dstScheme = { equals = "hyperty" } }
"""


@dataclass(frozen=True)
class Dialect:
    """A make of nodes: its simulator, and the stub for it."""

    stub: str
    make: Callable[[str], ForeignNode]


DIALECTS = [
    Dialect("vertx_peer", VertxNode),
    Dialect("nomatrix_peer", NomatrixNode),
    Dialect("nodejs_peer", NodejsNode),
]


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.stub)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    assert isinstance(request.param, Dialect)
    return request.param


async def bruno_of(system: PeerSystem) -> tuple[LocalRuntime, str]:
    """A runtime of the foreign domain, and its hyperty."""
    bruno = LocalRuntime(system.node, "bruno")
    address = f"domain://msg-node.{THEIRS}/address-allocation"
    answer = await bruno.ask("create", bruno.url, address, {"scheme": "hyperty", "value": {"number": 1}})
    [hyperty] = answer["value"]["allocated"]
    return bruno, hyperty


async def test_request_and_reply_pass_both_ways(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        anna = system.anna
        bruno, hyperty = await bruno_of(system)
        answer = await anna.ask(hyperty, 7)
        assert (answer.code, answer.value) == (200, 7)
        assert bruno.numbers_from(anna.hyperty) == [7]
        assert (await bruno.ask("create", hyperty, anna.hyperty, {"value": 8}))["code"] == 200
        assert anna.numbers_from(hyperty) == [8]
        link = await system.link()
        assert link.state == "live"
        assert (link.stub["name"], link.stub["level"], link.stub["class"]) == (dialect.stub, "operator", "plain")


async def test_a_hundred_messages_keep_their_order(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        bruno, hyperty = await bruno_of(system)
        assert (await system.anna.ask(hyperty)).is_ok
        for number in range(1, 101):
            await system.anna.post(hyperty, number)
        await bruno.wait_for(lambda: len(bruno.numbers_from(system.anna.hyperty)) == 101)
        assert bruno.numbers_from(system.anna.hyperty) == list(range(101))


async def test_every_id_comes_back_as_it_was(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        _, hyperty = await bruno_of(system)
        runtime = await system.process.opened("carla")
        from_ = f"hyperty://{OURS}/carla"
        for id_ in ("text-1", 2**30, 2**40, 0, "7", 'say "hi" \\ \u00e4'):
            await runtime.say(a_message("create", from_, hyperty, {"value": 'line\nand "more" \u20ac'}, id_=id_))
            reply = await runtime.next()
            assert (reply["id"], reply["body"]["code"]) == (id_, 200)
            assert reply["body"]["value"] == 'line\nand "more" \u20ac'


async def test_forged_senders_are_dropped_and_counted_and_the_link_goes_on(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        anna = system.anna
        bruno, hyperty = await bruno_of(system)
        assert (await anna.ask(hyperty)).is_ok
        forged = [f"hyperty://third.example/x{number}" for number in range(4)]
        forged += [f"hyperty://{OURS}/boss", f"runtime://{OURS}/anna"]
        for name in forged:
            bruno.say("create", name, anna.hyperty, {"value": 66})
        assert (await bruno.ask("create", hyperty, anna.hyperty, {"value": 8}))["code"] == 200
        assert anna.numbers_from(hyperty) == [8]
        assert not any(one.from_ in forged for one in anna.heard)
        link = await system.link()
        assert (link.state, link.spoofed, link.stub_faults) == ("live", len(forged), 0)
        assert link.forged_names == dict.fromkeys(forged, 1)


async def test_all_goes_on_after_their_node_was_killed_and_started_again(tmp_path: Path, dialect: Dialect) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY) as system:
        _, hyperty = await bruno_of(system)
        assert (await system.anna.ask(hyperty)).is_ok
        await node.kill()
        await system.wait_state("disconnected")
        await node.start()
        await node.wait_received(type="subscribe", resource=system.anna.hyperty, count=2)
        bruno, hyperty = await bruno_of(system)
        assert (await system.anna.ask(hyperty, 9)).is_ok
        assert (await bruno.ask("create", hyperty, system.anna.hyperty, {"value": 8}))["code"] == 200


async def test_all_goes_on_after_a_lost_line(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        bruno, hyperty = await bruno_of(system)
        assert (await system.anna.ask(hyperty)).is_ok
        connections = system.node.connections
        await system.node.cut_lines()
        assert (await system.anna.ask(hyperty)).is_ok
        assert system.node.connections == connections + 1
        assert (await bruno.ask("create", hyperty, system.anna.hyperty, {"value": 8}))["code"] == 200


async def test_we_observe_an_object_of_theirs_also_after_their_node_was_started_anew(
    tmp_path: Path, dialect: Dialect
) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub) as system:
        anna, changes = system.anna, f"comm://{THEIRS}/room/changes"
        answer = await anna.client.request("subscribe", anna.client.runtime, SM, {"resources": [changes]})
        assert answer.is_ok
        bruno, hyperty = await bruno_of(system)
        bruno.say("update", hyperty, changes, {"value": 1})
        assert await anna.hear_numbers(hyperty, 1) == [1]
        await node.kill()
        await system.wait_state("disconnected")
        await node.start()
        await node.wait_received(type="subscribe", resource=changes, count=2)
        bruno, hyperty = await bruno_of(system)
        bruno.say("update", hyperty, changes, {"value": 2})
        assert await anna.hear_numbers(hyperty, 1) == [2]


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


async def test_they_write_to_an_address_of_ours_that_never_wrote_to_them(tmp_path: Path, dialect: Dialect) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY) as system:
        await node.wait_received(type="subscribe", resource=system.anna.hyperty)
        bruno, hyperty = await bruno_of(system)
        assert (await bruno.ask("create", hyperty, system.anna.hyperty, {"value": 8}))["code"] == 200
        carla = await system.talker("carla")  # one that came later
        await node.wait_received(type="subscribe", resource=carla.hyperty)
        assert (await bruno.ask("create", hyperty, carla.hyperty, {"value": 9}))["code"] == 200
        assert (system.anna.numbers_from(hyperty), carla.numbers_from(hyperty)) == ([8], [9])
        await carla.client.close()
        await node.wait_received(type="unsubscribe", resource=carla.hyperty)


async def test_they_observe_an_object_of_ours_by_a_subscription_at_their_own_node(
    tmp_path: Path, dialect: Dialect
) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY) as system:
        anna = system.anna
        [room] = await anna.client.at(OURS).allocate("comm", 1)
        await node.wait_received(type="subscribe", resource=f"{room}/subscription")
        bruno, _ = await bruno_of(system)
        assert (await bruno.ask("subscribe", bruno.url, SM, {"resources": [f"{room}/changes"]}))["code"] == 200
        await anna.client.notify("update", anna.hyperty, f"{room}/changes", {"value": 5})
        await bruno.wait_for(lambda: bruno.numbers_from(anna.hyperty) == [5])


async def test_they_hear_of_no_address_that_the_policy_keeps_from_them(tmp_path: Path, dialect: Dialect) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY, policy=OBJECTS_ONLY) as system:
        [shown] = await system.anna.client.at(OURS).allocate("comm", 1)
        await node.wait_received(type="subscribe", resource=f"{shown}/subscription")
        named = {one for message in node.received for one in (message.get("body") or {}).get("resources", [])}
        assert named == {shown, f"{shown}/subscription"}


async def test_registry_of_their_domain_is_read_through_the_stub(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        bruno, hyperty = await bruno_of(system)
        registry, user = f"domain://registry.{THEIRS}", f"user://{THEIRS}/bruno"
        entry = {"value": {"url": hyperty, "user": user}}
        assert (await bruno.ask("create", bruno.url, registry, entry))["code"] == 200
        answer = await system.anna.client.request("read", system.anna.hyperty, registry, {"resource": user})
        assert answer.code == 200
        assert hyperty in str(answer.value)


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
            _, hyperty = await bruno_of(system)
            assert (await anna.ask(hyperty, 7)).is_ok
            assert not any(THEIRS in switch for switch in (await system.status()).insecure)
            nursery.cancel_scope.cancel()


async def test_stub_for_another_dialect_never_becomes_live_and_harms_nobody(tmp_path: Path) -> None:
    more = "[limits]\nwaiting_seconds = 2.0\n"
    async with peering(tmp_path, NomatrixNode(THEIRS), "vertx_peer", more=more) as system:
        answer = await system.anna.ask(f"hyperty://{THEIRS}/h")
        assert (answer.code, answer.reason) == (504, "deploy-timeout")
        link = await system.link()
        assert (link.state, link.stub_faults) == ("disconnected", 0)
        assert (await (await system.talker("carla")).ask(system.anna.hyperty)).is_ok


async def test_flood_of_a_plain_domain_is_bounded_by_its_rate_and_the_link_goes_on(
    tmp_path: Path, dialect: Dialect
) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub, more="messages_per_second = 20.0\n") as system:
        bruno, hyperty = await bruno_of(system)
        assert (await system.anna.ask(hyperty)).is_ok
        for number in range(2_000):
            bruno.say("create", hyperty, system.anna.hyperty, {"value": number})
        await bruno.wait_for(lambda: any((one.get("body") or {}).get("code") == 429 for one in bruno.heard))
        heard = len(system.anna.numbers_from(hyperty))
        assert 20 <= heard < 200
        assert (await system.link()).state == "live"
        assert (await (await system.talker("carla")).ask(system.anna.hyperty)).is_ok
