"""Correctly signed and published, and malicious: what such stubs may cost is their own domain's traffic."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from interop.hostile.zoo import zoo
from interop.lab.spool import read_records
from protofly.records import MessageRecord, StubEvent
from stubkit.build import build

from .foreign import LINK_STUB
from .frontier import running_frontier
from .systems import wait_until

HOSTILE = zoo()


async def test_hostile_stubs_are_stopped_each_with_its_code_and_only_their_own_domain_suffers(tmp_path: Path) -> None:
    answers: dict[str, str] = {}
    async with running_frontier(tmp_path, *HOSTILE) as frontier:

        async def ask(name: str) -> None:
            foreign = await frontier.add(name)
            foreign.publish(module=HOSTILE[name].module)
            answer = await frontier.ask(foreign)
            assert foreign.connections == 0
            answers[name] = f"{answer.code} {answer.reason}"

        async with trio.open_nursery() as nursery:
            for name in HOSTILE:
                nursery.start_soon(ask, name)
            for _ in range(30):
                await frontier.assert_unharmed()
        await frontier.assert_unharmed()
        assert await frontier.node.stop() == 0
        events = [one for one in read_records(frontier.spool, StubEvent) if one.event == "fault"]
    assert {one.domain.partition(".")[0]: one.code for one in events} == {
        name: one.code for name, one in HOSTILE.items()
    }
    assert answers == {name: f"502 {one.code}" for name, one in HOSTILE.items()}


@pytest.fixture(scope="session")
def deadly(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Our own link stub, but each message for its domain kills it."""
    folder = tmp_path_factory.mktemp("deadly")
    source, mark = LINK_STUB.with_name("link.c").read_text(), "if (event->op == STUB_MESSAGE) {"
    assert mark in source
    (folder / "link.c").write_text(source.replace(mark, f"{mark} __builtin_trap();"))
    build(folder / "link.c", folder / "link.wasm")
    return (folder / "link.wasm").read_bytes()


async def test_a_message_that_kills_its_stub_twice_is_quarantined_and_answered(tmp_path: Path, deadly: bytes) -> None:
    async with running_frontier(tmp_path, "deadly") as frontier:
        foreign = await frontier.add("deadly")
        foreign.publish(module=deadly)
        answer = await frontier.ask(foreign)
        assert (answer.code, answer.reason) == (502, "quarantined")
        link = await wait_until(lambda: frontier.link(foreign), lambda one: one.waiting == 0)
        assert (link.trapped, link.stub_faults) == (1, 2)
        assert list((frontier.node.folder.data / "quarantine").rglob("*"))
        await frontier.assert_unharmed()
        assert await frontier.node.stop() == 0
        events = [one for one in read_records(frontier.spool, StubEvent) if one.domain == foreign.domain]
        trapped = [one for one in read_records(frontier.spool, MessageRecord) if one.outcome == "trapped"]
    assert [one.event for one in events if one.event not in ("state", "summary")] == [
        *("verified", "compiled", "started", "stopped", "fault"),
        *("started", "quarantined", "stopped", "fault"),
    ]
    assert len({one.stub_ver for one in events}) == 1
    assert all(one.duration_us for one in events if one.event in ("compiled", "started"))
    assert [one.msg_id for one in events if one.event == "quarantined"] == [one.msg_id for one in trapped]


@pytest.fixture(scope="session")
def spinning(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Our own link stub, but it has itself called all the time, and computes for a while each time."""
    folder = tmp_path_factory.mktemp("spinning")
    source = LINK_STUB.with_name("link.c").read_text()
    start, ring, mark = "on_start(event->bytes);\n", "on_timer(event->arg);\n", "static void on_drain(void) {"
    assert all(text in source for text in (start, ring, mark))
    arm = "for (unsigned timer = 100; timer < 130; timer++) stub_set_timer(timer, 1);"
    spin = "for (unsigned number = 0; number < 5000; number++) sink += number;"
    source = source.replace(start, f"{start} {arm}\n").replace(mark, f"static volatile unsigned sink;\n{mark}")
    source = source.replace(ring, f"if (event->arg >= 100) {{ {spin} stub_set_timer(event->arg, 1); }}\n{ring}")
    (folder / "link.c").write_text(source)
    build(folder / "link.c", folder / "link.wasm")
    return (folder / "link.wasm").read_bytes()


async def test_a_stub_that_computes_for_ever_waits_for_its_share_and_its_neighbour_is_served(
    tmp_path: Path, spinning: bytes
) -> None:
    async with running_frontier(tmp_path, "spinning", cpu_share=0.002) as frontier:
        foreign = await frontier.add("spinning")
        foreign.publish(module=spinning)
        assert (await frontier.ask(foreign)).is_ok
        link = await wait_until(lambda: frontier.link(foreign), lambda one: one.usage["paused_us"] > 0)
        assert "stub-throttled" in link.problem
        assert (link.state, link.stub_faults) == ("live", 0)
        assert (await frontier.ask(foreign)).is_ok  # slower, but nothing is lost
        await frontier.assert_unharmed()
        assert await frontier.node.stop() == 0
        states = [one for one in read_records(frontier.spool, StubEvent) if one.state == "throttled"]
        assert frontier.node.folder.log.read_text().count("stub-throttled") == 1
    assert [(one.domain, one.code) for one in states] == [(foreign.domain, "stub-throttled")]


@pytest.fixture(scope="session")
def listing(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Our own link stub, but it traps when it hears of addresses of ours."""
    folder = tmp_path_factory.mktemp("listing")
    source, mark = LINK_STUB.with_name("link.c").read_text(), "if (event->op == STUB_MESSAGE) {"
    assert mark in source
    trap = "if (event->op == STUB_ADDRESSES) __builtin_trap();"
    (folder / "link.c").write_text(source.replace(mark, f"{trap} {mark}"))
    build(folder / "link.c", folder / "link.wasm")
    return (folder / "link.wasm").read_bytes()


async def test_a_published_stub_that_asks_for_our_addresses_hears_of_none(tmp_path: Path, listing: bytes) -> None:
    async with running_frontier(tmp_path, "listing") as frontier:
        foreign = await frontier.add("listing")
        foreign.publish(module=listing, events=["addresses"])
        for number in range(5):
            assert (await frontier.ask(foreign, number)).is_ok
            await frontier.talker(f"new-{number}")  # one more address of ours
        link = await frontier.link(foreign)
        assert (link.state, link.trapped, link.stub_faults) == ("live", 0, 0)


@pytest.mark.long
async def test_after_five_crashes_the_circuit_opens_and_senders_are_notified_at_once(tmp_path: Path) -> None:
    async with running_frontier(tmp_path, "hopeless") as frontier:
        foreign = await frontier.add("hopeless")
        foreign.publish(module=HOSTILE["trapping"].module)

        while (await frontier.ask(foreign)).reason != "circuit-open":
            await frontier.assert_unharmed()
        link = await frontier.link(foreign)
        assert (link.state, link.stub_faults) == ("quarantined", 5)
        answer = await frontier.ask(foreign)
        assert (answer.code, answer.reason) == (503, "circuit-open")
        assert (await frontier.link(foreign)).stub_faults == 5  # at once: no further start was waited for
        await frontier.assert_unharmed()
