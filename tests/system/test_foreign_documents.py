"""What a domain publishes, spoilt in one way after the other: refused with its code, nothing runs, the old stays."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import trio

from interop.lab.link_peer import LinkPeer
from interop.lab.spool import read_records
from protofly.records import LinkEvent, StubEvent
from stubkit.keys import make_keys
from stubs_cache.cache import StubsCache
from stubs_cache.store import load_secret
from tests.support.guests import assemble, guest

from .foreign import MANIFEST, MODULE, ROOT, WELL_KNOWN, ForeignDomain
from .frontier import Frontier, running_frontier
from .systems import wait_until

DAY_SECONDS = 86_400.0
Spoil = Callable[[ForeignDomain], None]


def without_signatures(foreign: ForeignDomain) -> None:
    envelope = json.loads(foreign.files[WELL_KNOWN])
    foreign.files[WELL_KNOWN] = json.dumps({**envelope, "signatures": []}).encode()


def cut(path: str) -> Spoil:
    def spoil(foreign: ForeignDomain) -> None:
        foreign.files[path] = foreign.files[path][: len(foreign.files[path]) // 2]

    return spoil


def signed_by_strangers(foreign: ForeignDomain) -> None:
    foreign.publish(signed_by=make_keys())


def manifest_in_place_of_live(foreign: ForeignDomain) -> None:
    foreign.files[WELL_KNOWN] = foreign.files[MANIFEST]


def expired(foreign: ForeignDomain) -> None:
    foreign.publish(now=time.time() - 3 * DAY_SECONDS, live_seconds=DAY_SECONDS)


def of_tomorrow(foreign: ForeignDomain) -> None:
    foreign.publish(now=time.time() + DAY_SECONDS)


def other_root(foreign: ForeignDomain) -> None:
    strangers = replace(foreign.keys, root=make_keys().root)
    old, foreign.keys = foreign.keys, strangers
    live = foreign.files[WELL_KNOWN]
    del foreign.files[ROOT]
    foreign.publish()
    foreign.keys, foreign.files[WELL_KNOWN] = old, live


def other_manifest(foreign: ForeignDomain) -> None:
    live = foreign.files[WELL_KNOWN]
    foreign.publish(serial=2)
    foreign.files[WELL_KNOWN] = live


def other_module(foreign: ForeignDomain) -> None:
    code = bytearray(foreign.files[MODULE])
    code[-1] ^= 1
    foreign.files[MODULE] = bytes(code)


def module(code: bytes) -> Spoil:
    return lambda foreign: foreign.publish(module=code)


IMPORTING = assemble(
    """(module (import "env" "open" (func)) (memory (export "memory") 1 16)
    (func (export "window") (param i32) (result i32) (i32.const 0))
    (func (export "handle") (param i32 i32) (result i64) (i64.const 0)))"""
)
SPOILT: dict[str, tuple[Spoil, str]] = {
    "unsigned": (without_signatures, "envelope-malformed"),
    "strangers": (signed_by_strangers, "too-few-signatures"),
    "cutlive": (cut(WELL_KNOWN), "envelope-malformed"),
    "cutroot": (cut(ROOT), "envelope-malformed"),
    "cutmanifest": (cut(MANIFEST), "envelope-malformed"),
    "cutmodule": (cut(MODULE), "digest-mismatch"),
    "swapped": (manifest_in_place_of_live, "payload-type"),
    "expired": (expired, "document-expired"),
    "tomorrow": (of_tomorrow, "issued-in-future"),
    "otherroot": (other_root, "mix-and-match"),
    "othermanifest": (other_manifest, "digest-mismatch"),
    "othermodule": (other_module, "digest-mismatch"),
    "nowasm": (module(b"MZ this is no module" * 20), "module-malformed"),
    "importing": (module(IMPORTING), "module-imports"),
    "starting": (module(guest("(i64.const 0)", extra="(func $s) (start $s)")), "module-exports"),
}


async def test_spoilt_documents_are_refused_each_with_its_code_and_nothing_of_them_runs(tmp_path: Path) -> None:
    answers: dict[str, str] = {}
    async with running_frontier(tmp_path, *SPOILT) as frontier:

        async def ask(name: str) -> None:
            foreign = await frontier.add(name)
            SPOILT[name][0](foreign)
            asker = await frontier.talker(name)  # nobody may ask for many new domains at once
            answer = await frontier.ask(foreign, asker=asker)
            link = await frontier.link(foreign)
            answers[name] = f"{answer.code} {answer.reason} {link.state} {foreign.connections} {link.worker_pid}"

        async with trio.open_nursery() as nursery:
            for name in SPOILT:
                nursery.start_soon(ask, name)
        await frontier.assert_unharmed()
        assert await frontier.node.stop() == 0
        started = {one.domain for one in read_records(frontier.spool, StubEvent) if one.event == "started"}
        refused = {one.domain: one.code for one in read_records(frontier.spool, LinkEvent) if one.event == "refused"}
    assert answers == {name: f"502 {code} verify-failed 0 None" for name, (_, code) in SPOILT.items()}
    assert started == {"good.foreign.example"}
    assert refused == {f"{name}.foreign.example": code for name, (_, code) in SPOILT.items()}


async def make_it_look_again(frontier: Frontier, foreign: ForeignDomain) -> str:
    """Visit the node with a node key that it has not seen: it asks the domain for newer documents. Returns its word."""
    stranger = LinkPeer(foreign.domain, make_keys().node[0])
    line = await stranger.visit_unproved(
        frontier.node.domain, frontier.node.ports.listen, frontier.authority.client_context()
    )
    async with line.stream:
        return await line.close_reason()


NEWS: dict[str, tuple[Spoil, str]] = {
    "rolledback": (lambda foreign: foreign.publish(serial=1), "rollback"),
    "newsunsigned": (without_signatures, "envelope-malformed"),
    "newscut": (cut(WELL_KNOWN), "envelope-malformed"),
    "newsstrangers": (signed_by_strangers, "too-few-signatures"),
}


async def age_documents(frontier: Frontier, *known: ForeignDomain) -> None:
    """Make the node, which does not run, believe that it has asked these domains an hour ago."""
    data = frontier.node.folder.data
    cache = StubsCache(data / "stubs", secret=load_secret(data / "secret"), max_bytes=1 << 30)
    for foreign in known:
        bundle = await cache.get_documents(foreign.domain)
        assert bundle is not None
        await cache.put_documents(msgspec.structs.replace(bundle, fetched_at=bundle.fetched_at - 3600.0))


async def test_spoilt_news_are_refused_and_the_old_version_goes_on_working(tmp_path: Path) -> None:
    words: dict[str, str] = {}
    async with running_frontier(tmp_path, *NEWS) as frontier:
        known = {name: await frontier.add(name) for name in NEWS}
        for foreign in known.values():
            foreign.publish(serial=5)
            assert (await frontier.ask(foreign)).is_ok
        assert await frontier.node.stop() == 0
        await age_documents(frontier, *known.values())
        await frontier.start()
        for name, foreign in known.items():
            NEWS[name][0](foreign)
            assert (await frontier.ask(foreign)).is_ok
            before = await frontier.link(foreign)
            words[name] = await make_it_look_again(frontier, foreign)
            assert (await frontier.ask(foreign)).is_ok
            after = await frontier.link(foreign)
            assert (after.state, after.worker_pid, after.stub) == ("live", before.worker_pid, before.stub)
            assert after.stub["version"] == "1.5.0"
    assert words == {name: code for name, (_, code) in NEWS.items()}


async def test_a_rollback_is_refused_even_with_an_empty_cache_and_a_newer_version_heals_it(tmp_path: Path) -> None:
    async with running_frontier(tmp_path, "back") as frontier:
        foreign = await frontier.add("back")
        foreign.publish(serial=5)
        assert (await frontier.ask(foreign)).is_ok
        foreign.publish(serial=4)
        await frontier.restart(forget_stubs=True)
        refused = await frontier.ask(foreign)
        assert (refused.code, refused.reason) == (502, "rollback")
        assert foreign.connections == 1
        foreign.publish(serial=6)
        await frontier.restart()  # the refusal is remembered for a minute, but not by a new process
        assert (await frontier.ask(foreign)).is_ok
        assert (await frontier.link(foreign)).stub["version"] == "1.6.0"
        answer = await frontier.ask(frontier.good)
        assert answer.is_ok


async def test_a_domain_that_was_mended_is_believed_as_soon_as_the_operator_says_so(tmp_path: Path) -> None:
    async with running_frontier(tmp_path, "mended") as frontier:
        foreign = await frontier.add("mended")
        without_signatures(foreign)
        assert (await frontier.ask(foreign)).reason == "envelope-malformed"
        foreign.publish()
        assert (await frontier.ask(foreign)).reason == "envelope-malformed", "it is left alone for an hour"
        os.kill(frontier.node.pid, signal.SIGHUP)
        await wait_until(lambda: frontier.ask(foreign), lambda answer: answer.is_ok)
        usage = (await frontier.link(foreign)).usage
        assert (usage["messages"], usage["traps"], usage["calls"] > 1, usage["memory_bytes"] > 0) == (1, 0, True, True)
        await frontier.assert_unharmed()
