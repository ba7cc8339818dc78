"""Nodes of other makes that publish nothing are partners: what both sides say to each other, in each dialect."""

from __future__ import annotations

from pathlib import Path

from tests.support.runtime_rig import a_message

from .dialects import Dialect, bruno_of, each_dialect
from .peer_stubs import OURS, THEIRS, peering


@each_dialect
async def test_request_and_reply_pass_both_ways(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        anna = system.anna
        bruno, hyperty = await bruno_of(system.node)
        answer = await anna.ask(hyperty, 7)
        assert (answer.code, answer.value) == (200, 7)
        assert bruno.numbers_from(anna.hyperty) == [7]
        assert (await bruno.ask("create", hyperty, anna.hyperty, {"value": 8}))["code"] == 200
        assert anna.numbers_from(hyperty) == [8]
        link = await system.link()
        assert link.state == "live"
        assert (link.stub["name"], link.stub["level"], link.stub["class"]) == (dialect.stub, "operator", "plain")


@each_dialect
async def test_a_hundred_messages_keep_their_order(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        bruno, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        for number in range(1, 101):
            await system.anna.post(hyperty, number)
        await bruno.wait_for(lambda: len(bruno.numbers_from(system.anna.hyperty)) == 101)
        assert bruno.numbers_from(system.anna.hyperty) == list(range(101))


@each_dialect
async def test_every_id_comes_back_as_it_was(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        _, hyperty = await bruno_of(system.node)
        runtime = await system.process.opened("carla")
        from_ = f"hyperty://{OURS}/carla"
        for id_ in ("text-1", 2**30, 2**40, 0, "7", 'say "hi" \\ \u00e4'):
            await runtime.say(a_message("create", from_, hyperty, {"value": 'line\nand "more" \u20ac'}, id_=id_))
            reply = await runtime.next()
            assert (reply["id"], reply["body"]["code"]) == (id_, 200)
            assert reply["body"]["value"] == 'line\nand "more" \u20ac'


@each_dialect
async def test_forged_senders_are_dropped_and_counted_and_the_link_goes_on(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        anna = system.anna
        bruno, hyperty = await bruno_of(system.node)
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


@each_dialect
async def test_registry_of_their_domain_is_read_through_the_stub(tmp_path: Path, dialect: Dialect) -> None:
    async with peering(tmp_path, dialect.make(THEIRS), dialect.stub) as system:
        bruno, hyperty = await bruno_of(system.node)
        registry, user = f"domain://registry.{THEIRS}", f"user://{THEIRS}/bruno"
        entry = {"value": {"url": hyperty, "user": user}}
        assert (await bruno.ask("create", bruno.url, registry, entry))["code"] == 200
        answer = await system.anna.client.request("read", system.anna.hyperty, registry, {"resource": user})
        assert answer.code == 200
        assert hyperty in str(answer.value)
