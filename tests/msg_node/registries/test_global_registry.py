"""`global://registry/` as runtimes see it, over real sockets, against registries that answer truthfully and others."""

from __future__ import annotations

import json
import sqlite3
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.global_registry import GlobalRegistry
from msg_node.backends.global_registry_rest import ANSWER_BYTES, GlobalRegistryRest
from msg_node.registries.core.global_registry_rest import read_answer, record_in
from msg_node.registries.core.global_registry_service import GLOBAL_REGISTRY, GLOBAL_REGISTRY_KEY, GlobalRegistryService
from msg_node.registries.guid_store import GuidStore
from protofly import limits
from protofly.errors import Code, PeerError, TransportError
from protofly.guid import guid_address
from tests.support.guid_holder import GuidHolder
from tests.support.runtime_rig import (
    FOREIGN,
    SESSION,
    Json,
    Runtime,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)
from tests.support.scripted_http import Play, ScriptedHttp, answer, drip, flood, scripted_http, silence
from tests.support.services import PATIENCE_SECONDS

ANA, BO = GuidHolder("ana"), GuidHolder("bo")
NOW = time.time()
GOOD = ANA.record(updated=NOW - 60, user="user://idp.example/ana", domain="alpha.example")
TO = "global://registry/"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def found(jwt: str) -> bytes:
    return answer(200, {"Code": 200, "Description": "OK", "Value": jwt})


NOT_FOUND = answer(404, {"Code": 404, "Description": "Not found", "Explanation": "GUID not found", "Value": ""})
STORED = answer(200, {"Code": 200, "Description": "OK", "Value": ""})


class Scene:
    """A runtime, the node's connector, and the registry behind it."""

    def __init__(self, ana: Runtime, server: ScriptedHttp, connector: GlobalRegistry, clock: Clock) -> None:
        self.ana = ana
        self.server = server
        self.connector = connector
        self.clock = clock

    async def read(self, guid: str = ANA.guid, *, to: str = TO) -> Json:
        return await self.ana.ask("read", to, {"resource": guid})

    def waits(self, seconds: float) -> None:
        """How long the node waits for an answer of the registry from now on."""
        rest = self.connector._server
        assert isinstance(rest, GlobalRegistryRest)
        rest._read_seconds = rest._write_seconds = seconds

    async def create(self, jwt: str, *, guid: str = ANA.guid) -> Json:
        return await self.ana.ask("create", TO, {"resource": guid, "value": jwt})


def connector_to(url: str, store: GuidStore, clock: Clock, seconds: float, **changes: Any) -> GlobalRegistry:
    http = BackendHttp(url, ssl.create_default_context(), max_bytes=ANSWER_BYTES)
    rest = GlobalRegistryRest(http, read_seconds=seconds, write_seconds=seconds)
    return GlobalRegistry(rest, store, clock=clock, **changes)


@asynccontextmanager
async def scene(
    folder: Path, *script: bytes | Play, seconds: float = PATIENCE_SECONDS, clock: Clock | None = None, **changes: Any
) -> AsyncIterator[Scene]:
    clock = clock or Clock()
    (folder / "rig").mkdir(exist_ok=True)
    async with (
        scripted_http(*script) as server,
        runtime_rig(folder / "rig", services_at=lambda _: {GLOBAL_REGISTRY_KEY: GlobalRegistryService()}) as rig,
    ):
        with GuidStore(folder / "guids.sqlite") as store:
            connector = connector_to(server.url, store, clock, seconds, **changes)
            rig.bus.inquiries.connect(GLOBAL_REGISTRY, connector.ask)
            yield Scene(await rig.opened("ana"), server, connector, clock)


def said(reply: Json) -> tuple[int, str]:
    """Code and reason, once it is sure that both spellings say the same."""
    body = reply["body"]
    assert (body["Code"], body["Message"]) == (body["code"], body["description"])
    assert body.get("Value", "none") == body.get("value", "none")
    return code_and_reason(reply)


# What is asked, and how it is answered.


@pytest.mark.parametrize("to", ["global://registry/", "global://registry", "global://registry.", "GLOBAL://registry/"])
@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("read", {"resource": ANA.guid}),
        ("READ", {"guid": ANA.guid}),
        ("read", {"guid": guid_address(ANA.guid)}),
    ],
)
async def test_both_dialects_of_a_read_get_both_spellings(
    tmp_path: Path, to: str, type_: str, body: Mapping[str, object]
) -> None:
    async with scene(tmp_path, found(GOOD)) as at:
        reply = await at.ana.ask(type_, to, body)
        assert said(reply) == (200, "")
        assert reply["body"]["Value"] == GOOD
        assert (reply["from"], reply["to"], reply["type"]) == (to, at.ana.address, "response")
        assert at.server.asked == [("GET", f"/guid/{ANA.guid}", b"")]


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("create", {"resource": ANA.guid, "value": GOOD}),
        ("CREATE", {"guid": ANA.guid, "jwt": GOOD}),
        ("update", {"guid": guid_address(ANA.guid), "jwt": GOOD}),
    ],
)
async def test_both_dialects_of_a_write_store_the_record_as_it_is(
    tmp_path: Path, type_: str, body: Mapping[str, object]
) -> None:
    async with scene(tmp_path, STORED) as at:
        reply = await at.ana.ask(type_, TO, body)
        assert said(reply) == (200, "")
        assert reply["body"]["Value"] == ""
        assert at.server.asked == [("PUT", f"/guid/{ANA.guid}", GOOD.encode())]
        assert (await at.read())["body"]["value"] == GOOD
        assert len(at.server.asked) == 1  # what was stored is known


@pytest.mark.parametrize(
    ("type_", "body", "expected"),
    [
        ("read", {}, (400, "bad-body")),
        ("read", {"guid": "../../etc"}, (400, "bad-body")),
        ("read", {"guid": 5}, (400, "bad-body")),
        ("create", {"guid": ANA.guid}, (400, "bad-body")),
        ("delete", {"guid": ANA.guid}, (405, "bad-type")),
        ("create", {"guid": BO.guid, "jwt": GOOD}, (400, "bad-body")),
        ("create", {"guid": ANA.guid, "jwt": GOOD[:-5] + "AAAAA"}, (400, "bad-body")),
        ("create", {"guid": ANA.guid, "jwt": ANA.record(updated=NOW, defaults=None)}, (400, "bad-body")),
        ("create", {"guid": ANA.guid, "jwt": ANA.record(updated=NOW + 3_600)}, (400, "bad-body")),
        ("create", {"guid": ANA.guid, "jwt": ANA.record(updated=NOW - 91 * 86_400)}, (400, "bad-body")),
        ("create", {"guid": ANA.guid, "jwt": "A" * 70_000}, (413, "too-large")),
    ],
    ids=count(),
)
async def test_a_bad_request_is_refused_in_both_spellings_and_the_registry_not_asked(
    tmp_path: Path, type_: str, body: Mapping[str, object], expected: tuple[int, str]
) -> None:
    async with scene(tmp_path, STORED) as at:
        assert said(await at.ana.ask(type_, TO, body)) == expected
        assert at.server.asked == []


async def test_without_a_registry_in_the_settings_the_service_is_switched_off(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        ana = await rig.opened("ana")
        for to in ("global://registry/", "global://registry", "global://registry."):
            assert code_and_reason(await ana.ask("read", to, {"guid": ANA.guid})) == (501, "connector-off")


async def test_another_domain_is_not_served(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, services_at=lambda _: {GLOBAL_REGISTRY_KEY: GlobalRegistryService()}) as rig:
        request = a_message("read", f"hyperty://{FOREIGN}/x", TO, {"guid": ANA.guid}, id_=1)
        assert rig.bus.from_links.take(FOREIGN, [parsed(request)]) == [None]
        with trio.fail_after(10):
            while not rig.domains.sent:
                await trio.lowlevel.checkpoint()
        (reply,) = rig.domains.take()
        assert said(reply) == (403, "transit")


# What the registry says.


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (NOT_FOUND, (404, "not-registered")),
        (answer(200, {"Code": 404, "Description": "Not found", "Value": ""}), (404, "not-registered")),
        (answer(500, {"Code": 500, "Description": "x", "Explanation": GOOD}), (502, "http-status")),
        (answer(500, b"<html>", content_type="text/html"), (502, "http-status")),
        (answer(302, b""), (502, "http-status")),
        (answer(200, b"<html>"), (502, "bad-reply")),
        (answer(200, []), (502, "bad-reply")),
        (answer(200, {"Code": True, "Value": GOOD}), (502, "bad-reply")),
        (answer(200, {"Code": 200, "Value": ""}), (502, "bad-reply")),
        (answer(200, {"Code": 200, "Value": 5}), (502, "bad-reply")),
        (answer(200, b'{"Code":200,"Code":200,"Value":"x"}'), (502, "bad-reply")),
        (b"", (502, "bad-reply")),
        (b"SSH-2.0-x\r\n", (502, "bad-reply")),
        (answer(200, b"A" * (10 << 20)), (502, "document-too-large")),
        (flood, (502, "document-too-large")),
        (found(GOOD[:-5] + "AAAAA"), (502, "bad-reply")),
        (found(BO.record(updated=NOW)), (502, "bad-reply")),
        (found(ANA.record(updated=NOW, guid=BO.guid)), (502, "bad-reply")),
        (found(ANA.record(updated=NOW + 3_600)), (502, "bad-reply")),
        (found(ANA.record(updated=NOW, revoked=1)), (410, "revoked")),
        (found(ANA.record(updated=NOW, active=0)), (410, "inactive")),
        (found(ANA.record(updated=NOW - 91 * 86_400)), (410, "expired")),
    ],
    ids=count(),
)
async def test_what_is_no_good_record_is_not_handed_on(
    tmp_path: Path, script: bytes | Play, expected: tuple[int, str]
) -> None:
    async with scene(tmp_path, script) as at:
        reply = await at.read()
        assert said(reply) == expected
        assert "Value" not in reply["body"]


@pytest.mark.parametrize("script", [drip, silence])
async def test_a_registry_that_says_too_little_is_answered_for(tmp_path: Path, script: Play) -> None:
    async with scene(tmp_path, script, seconds=0.05) as at:
        assert said(await at.read()) == (504, "fetch-timeout")


async def test_a_registry_in_all_its_moods_is_answered_for_each_time_and_holds_nobody_up(tmp_path: Path) -> None:
    failing = answer(500, {"Code": 500, "Description": "x"})
    moods = (failing, NOT_FOUND, drip, failing, NOT_FOUND, found(BO.record(updated=NOW)), b"", found(GOOD))
    async with scene(tmp_path, *moods) as at:
        codes = []
        for number, mood in enumerate(moods):
            at.waits(0.2 if mood is drip else PATIENCE_SECONDS)
            await at.ana.say(a_message("read", at.ana.address, TO, {"guid": ANA.guid}, id_=number))
            await at.ana.say(a_message("ping", at.ana.address, SESSION, id_="p"))
            replies = {reply["id"]: reply for reply in [await at.ana.next(), await at.ana.next()]}
            assert replies["p"]["type"] == "pong"
            codes.append(said(replies[number])[0])
        assert codes == [502, 404, 504, 502, 404, 502, 502, 200]


async def test_no_contact_is_an_error_of_the_line(tmp_path: Path) -> None:
    with trio.socket.socket() as unused, GuidStore(tmp_path / "guids.sqlite") as store:
        await unused.bind(("127.0.0.1", 0))
        nobody = connector_to(f"http://127.0.0.1:{unused.getsockname()[1]}", store, Clock(), 5.0)
        with pytest.raises(TransportError) as caught:
            await nobody.record(ANA.guid)
    assert caught.value.code is Code.CONNECT_FAILED


async def test_a_registry_that_cannot_be_reached_is_left_alone_but_one_that_answers_errors_is_not(
    tmp_path: Path,
) -> None:
    failing = answer(500, {"Code": 500, "Description": "x"})
    async with scene(tmp_path, failing) as at:
        for _ in range(2 * limits.BACKEND_FAILURES_BEFORE_OPEN):
            assert said(await at.read()) == (502, "http-status")
        at.server.will(silence)
        at.waits(0.05)
        for _ in range(limits.BACKEND_FAILURES_BEFORE_OPEN):
            assert said(await at.read()) == (504, "fetch-timeout")
        asked = len(at.server.asked)
        assert said(await at.read()) == (503, "circuit-open")
        assert said(await at.create(GOOD)) == (503, "circuit-open")
        assert len(at.server.asked) == asked


@pytest.mark.parametrize(
    "body",
    [
        {"Message": "OK", "Code": 200, "Value": GOOD, "errorCode": 0},
        {"message": "ok", "responseCode": 200, "errorCode": 0, "data": GOOD},
        {"code": 200, "description": "OK", "value": GOOD},
        {"Value": GOOD},
    ],
)
def test_every_generation_of_answers_is_read(body: dict[str, object]) -> None:
    assert record_in(read_answer(200, json.dumps(body).encode(), host="r.example"), host="r.example") == GOOD


@pytest.mark.parametrize(
    ("status", "expected"),
    [(400, "bad-body"), (409, "outdated"), (410, "revoked"), (413, "too-large"), (500, "http-status")],
)
async def test_a_refused_write_is_said_and_nothing_remembered(tmp_path: Path, status: int, expected: str) -> None:
    refused = answer(status, {"Code": status, "Description": "No", "Explanation": "because", "Value": ""})
    async with scene(tmp_path, refused, NOT_FOUND) as at:
        reply = await at.create(GOOD)
        assert said(reply)[1] == expected
        assert "because" in reply["body"]["description"]
        assert said(await at.read()) == (404, "not-registered")


async def test_unbelieved_records_are_handed_on_with_a_warning_where_the_settings_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forged = GOOD[:-5] + "AAAAA"
    revoked = ANA.record(updated=NOW, revoked=1)
    async with scene(tmp_path, found(forged), found(forged), found(revoked), verify="warn") as at:
        assert (await at.read())["body"]["Value"] == forged
        assert "its key has not signed it" in caplog.text
        with pytest.raises(PeerError) as caught:
            await at.connector.record(ANA.guid)  # the node itself does not believe it
        assert caught.value.code is Code.BAD_REPLY
        assert said(await at.read()) == (410, "revoked")


# What is remembered.


async def test_a_record_is_remembered_for_a_while_and_by_its_own_time(tmp_path: Path) -> None:
    short = ANA.record(updated=NOW - 60, timeout="2100-01-01T00:00:00Z")
    async with scene(tmp_path, found(short), cache_seconds=100) as at:
        for _ in range(3):
            assert (await at.read())["body"]["Value"] == short
        assert len(at.server.asked) == 1
        at.clock.now += 101
        assert (await at.read())["body"]["Value"] == short
        assert len(at.server.asked) == 2


async def test_a_remembered_record_whose_time_is_over_is_not_used(tmp_path: Path) -> None:
    async with scene(tmp_path, found(GOOD), cache_seconds=1e9) as at:
        assert said(await at.read()) == (200, "")
        at.clock.now += 91 * 86_400
        assert said(await at.read()) == (410, "expired")


async def test_a_registry_cannot_go_back_in_time_not_even_across_a_restart(tmp_path: Path) -> None:
    older = ANA.record(updated=NOW - 600, user="user://idp.example/old")
    twin = ANA.record(updated=NOW - 60, user="user://idp.example/twin")
    async with scene(tmp_path, found(GOOD), cache_seconds=0) as at:
        assert said(await at.read()) == (200, "")
        at.server.will(found(older), found(twin))
        assert said(await at.read()) == (502, "rollback")
        assert said(await at.read()) == (502, "bad-reply")
    async with scene(tmp_path, found(older), cache_seconds=0) as at:
        assert said(await at.read()) == (502, "rollback")
        assert said(await at.create(older)) == (409, "outdated")
        at.server.will(found(GOOD))
        assert said(await at.read()) == (200, "")


async def test_a_revocation_once_seen_is_the_answer_for_ever(tmp_path: Path) -> None:
    revoked = ANA.record(updated=NOW - 30, revoked=1)
    async with scene(tmp_path, found(GOOD), found(revoked), found(GOOD), cache_seconds=0) as at:
        assert said(await at.read()) == (200, "")
        assert said(await at.read()) == (410, "revoked")
        assert said(await at.read()) == (410, "revoked")
    async with scene(tmp_path, found(ANA.record(updated=NOW)), cache_seconds=0) as at:
        assert said(await at.read()) == (410, "revoked")
        assert said(await at.create(ANA.record(updated=NOW))) == (410, "revoked")
        assert at.server.asked == []


async def test_a_damaged_record_on_disk_is_asked_for_again(tmp_path: Path) -> None:
    async with scene(tmp_path, found(GOOD)) as at:
        assert said(await at.read()) == (200, "")
    with sqlite3.connect(tmp_path / "guids.sqlite") as database:
        database.execute("UPDATE guid SET jwt = ?", (BO.record(updated=NOW),))
    database.close()
    async with scene(tmp_path, found(GOOD)) as at:
        assert (await at.read())["body"]["Value"] == GOOD
        assert len(at.server.asked) == 1


async def test_many_who_ask_for_one_guid_at_once_ask_the_registry_once(tmp_path: Path) -> None:
    async with scene(tmp_path, found(GOOD)) as at:
        requests = [a_message("read", at.ana.address, TO, {"guid": ANA.guid}, id_=number) for number in range(20)]
        await at.ana.say(*requests)
        replies = [await at.ana.next() for _ in requests]
        assert {reply["body"]["Value"] for reply in replies} == {GOOD}
        assert len(at.server.asked) == 1
