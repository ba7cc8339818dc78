"""Local runtimes read descriptors by messages: over real sockets, TLS and HTTP; only names are led to loopback."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from catalogue_client.core.catalogue_entry import entry_of, places
from catalogue_client.core.location import Location
from catalogue_client.http_fetcher import HttpFetcher
from msg_node.addresses.core.askers import asker_of
from msg_node.backends import catalogue
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.catalogue import CatalogueReader, OwnCatalogue
from msg_node.kernel.catalogue_questions import CATALOGUE
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.registries.core.catalogue_service import catalogue_service, without_guest_code
from protofly.errors import Code, PeerError
from protofly.limits import CATALOGUE_READS_PER_MINUTE_AND_ASKER, DESCRIPTOR_BYTES
from tests.support.lines import LoopbackDialler
from tests.support.rest_server import Asked, Lie, RestServer, Said, answer, rest_server
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

CHAT = {"cguid": 40002, "objectName": "Chat", "version": 0.3, "hypertyType": ["chat"], "interworking": "false"}
SCHEMA = {"objectName": "Communication", "language": "JSON_SCHEMA_V4", "scheme": "comm"}
ENTRIES = {
    "/.well-known/hyperty/Chat": CHAT,
    "/.well-known/dataschema/Communication.ds.json": SCHEMA,
    "/.well-known/protocolstub/default": {"objectName": "Stub"},
}
CHAT_ADDRESS = f"hyperty-catalogue://catalogue.{FOREIGN}/.well-known/hyperty/Chat"
BLOCKED = "blocked.example"


@dataclass
class Rig:
    rig: RuntimeRig
    server: RestServer
    own: RestServer
    dialler: LoopbackDialler
    looked_up: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    """The clock of the reader."""


def handler(asked: Asked) -> Said:
    """As original catalogues: what is not there is 500 with a sentence."""
    found = ENTRIES.get(asked.target)
    return Said(500, b"not found", "application/json") if found is None else Said(200, json.dumps(found).encode())


def own_handler(asked: Asked) -> Said:
    is_known = asked.target == "/.well-known/hyperty/Ours"
    return Said(200, b'{"objectName":"Ours"}') if is_known else Said(404, b"no", "text/plain")


@asynccontextmanager
async def catalogue_rig(
    folder: Path, *, finds: bool = False, cache_seconds: float = 300, service: Service = catalogue_service
) -> AsyncIterator[Rig]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(FOREIGN, f"catalogue.{FOREIGN}", f"mn.{FOREIGN}").configure_cert(context)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    dialler = LoopbackDialler()

    def at(_: NodeState) -> Mapping[str, Service]:
        return {"hyperty-catalogue://*": service, f"domain://catalogue.{DOMAIN}": service}

    async with (
        rest_server(handler, context=context) as server,
        rest_server(own_handler) as own,
        runtime_rig(folder, services_at=at) as rig,
    ):
        made = Rig(rig, server, own, dialler)

        async def resolve(domain: str, asked_by: str) -> Location:
            await trio.lowlevel.checkpoint()
            made.looked_up.append((domain, asked_by))
            if domain == BLOCKED:
                raise PeerError(Code.DOMAIN_BLOCKED, "no policy lets us talk to this domain")
            if not finds:
                raise PeerError(Code.NO_SUCH_DOMAIN, "nothing in DNS")
            return Location(domain=domain, well_known_url=f"https://mn.{domain}/.well-known/rethink-mn")

        reader = CatalogueReader(
            HttpFetcher(dialler, client),
            resolve=resolve,
            own=OwnCatalogue([DOMAIN], BackendHttp(own.url, client, max_bytes=DESCRIPTOR_BYTES)),
            cache_seconds=cache_seconds,
            asker_of=partial(asker_of, rig.state),
        )
        reader.clock = lambda: made.seconds
        rig.bus.inquiries.connect(CATALOGUE, reader)
        yield made


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with catalogue_rig(tmp_path) as made:
        made.dialler.places = {
            name.replace(".", "_"): made.server.port for name in (FOREIGN, f"catalogue.{FOREIGN}", f"mn.{FOREIGN}")
        }
        yield made


@pytest.fixture
async def ana(rig: Rig) -> Runtime:
    return await rig.rig.opened("ana")


async def read(runtime: Runtime, address: str) -> Json:
    return await runtime.ask("read", address)


async def test_a_descriptor_is_read_at_its_own_address_and_through_our_catalogue_address(
    rig: Rig, ana: Runtime
) -> None:
    reply = await read(ana, CHAT_ADDRESS)
    assert (reply["from"], reply["body"]["code"], reply["body"]["value"]) == (CHAT_ADDRESS, 200, CHAT)
    reply = await ana.ask("read", f"domain://catalogue.{DOMAIN}", {"resource": CHAT_ADDRESS})
    assert reply["body"]["value"] == CHAT
    assert [one.target for one in rig.server.asked] == ["/.well-known/hyperty/Chat"]  # the second was served again


@pytest.mark.parametrize(
    "address",
    [
        f"hyperty-catalogue://{FOREIGN}/.well-known/dataschema/Communication",
        f"hyperty-catalogue://{FOREIGN}/dataObjectSchema/Communication",
        f"hyperty-catalogue://catalogue.{FOREIGN}/dataschema/Communication",
    ],
)
async def test_schemas_are_read_in_every_spelling_and_from_static_files(rig: Rig, ana: Runtime, address: str) -> None:
    assert (await read(ana, address))["body"]["value"] == SCHEMA


async def test_one_attribute_is_its_value_alone(rig: Rig, ana: Runtime) -> None:
    assert (await read(ana, f"{CHAT_ADDRESS}/version"))["body"]["value"] == 0.3
    assert (await read(ana, f"{CHAT_ADDRESS}/hypertyType"))["body"]["value"] == ["chat"]
    assert code_and_reason(await read(ana, f"{CHAT_ADDRESS}/nothing")) == (404, "not-registered")


async def test_where_the_domain_publishes_is_asked_first(tmp_path: Path) -> None:
    async with catalogue_rig(tmp_path, finds=True) as rig:
        rig.dialler.places = {f"mn.{FOREIGN}".replace(".", "_"): rig.server.port}
        ana = await rig.rig.opened("ana")
        assert (await read(ana, CHAT_ADDRESS))["body"]["value"] == CHAT
        assert rig.dialler.asked == [(f"mn.{FOREIGN}", 443, FOREIGN)]
        assert rig.looked_up == [(FOREIGN, ana.address)]


async def test_our_own_entries_come_from_our_own_catalogue_only(rig: Rig, ana: Runtime) -> None:
    reply = await read(ana, f"hyperty-catalogue://catalogue.{DOMAIN}/.well-known/hyperty/Ours")
    assert reply["body"]["value"] == {"objectName": "Ours"}
    missing = await read(ana, f"hyperty-catalogue://{DOMAIN}/.well-known/hyperty/Nothing")
    assert code_and_reason(missing) == (404, "not-registered")
    assert rig.dialler.asked == []
    assert rig.looked_up == []


async def test_what_is_nowhere_is_not_asked_for_again_at_once(rig: Rig, ana: Runtime) -> None:
    address = f"hyperty-catalogue://{FOREIGN}/.well-known/hyperty/Nothing"
    for _ in range(3):
        assert code_and_reason(await read(ana, address)) == (404, "not-registered")
    asked = {one.target for one in rig.server.asked}
    assert asked == {"/.well-known/hyperty/Nothing", "/.well-known/hyperty/Nothing.hy.json"}
    assert len(rig.server.asked) == 4  # with and without the label of the host


@pytest.mark.parametrize(
    ("type_", "address", "expected"),
    [
        ("read", f"hyperty-catalogue://{BLOCKED}/.well-known/hyperty/Chat", (403, "domain-blocked")),
        ("update", CHAT_ADDRESS, (405, "bad-type")),
        ("read", f"hyperty-catalogue://{FOREIGN}/.well-known/sourcepackage/Chat", (404, "no-such-service")),
        ("read", f"hyperty-catalogue://{FOREIGN}/.well-known/database/x", (404, "no-such-service")),
        ("read", f"hyperty-catalogue://{FOREIGN}/.well-known/hyperty/..", (400, "bad-body")),
        ("read", f"hyperty-catalogue://{FOREIGN}/.well-known/hyperty/a%2fb", (400, "bad-body")),
        ("read", f"hyperty-catalogue://{FOREIGN}/.well-known/hyperty/a?x=y", (400, "bad-body")),
        ("read", f"hyperty-catalogue://{FOREIGN}/.well-known/hyperty", (400, "bad-body")),
        ("read", "hyperty-catalogue://127.0.0.1/.well-known/hyperty/Chat", (404, "name-invalid")),
        ("read", f"hyperty-catalogue://{FOREIGN}:22/.well-known/hyperty/Chat", (404, "name-invalid")),
        ("read", "hyperty-catalogue://localhost/.well-known/hyperty/Chat", (404, "name-invalid")),
        ("read", f"hyperty-catalogue://ana@{FOREIGN}@x/.well-known/hyperty/Chat", (404, "name-invalid")),
    ],
)
async def test_what_is_no_entry_of_somebody_we_talk_to_is_refused_without_asking_anybody(
    rig: Rig, ana: Runtime, type_: str, address: str, expected: tuple[int, str]
) -> None:
    assert code_and_reason(await ana.ask(type_, address)) == expected
    assert rig.dialler.asked == []


async def test_another_domain_asks_catalogues_by_itself(rig: Rig, ana: Runtime) -> None:
    request = a_message("read", f"runtime://{FOREIGN}/rt", CHAT_ADDRESS, id_=1)
    rig.rig.bus.from_links.take(FOREIGN, [parsed(request)])
    while not rig.rig.domains.sent:
        await ana.heard()
    (reply,) = rig.rig.domains.take()
    assert code_and_reason(reply) == (403, "policy")
    assert rig.dialler.asked == []


def says(said: Said) -> Lie:
    async def lie(stream: trio.abc.Stream) -> None:
        await stream.send_all(answer(said))

    return lie


async def drips(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        await stream.send_all(b" ")
        await trio.sleep(0.01)


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        (drips, (504, "fetch-timeout")),
        (says(Said(200, b"x" * (DESCRIPTOR_BYTES + 1))), (502, "document-too-large")),
        (says(Said(200, b"[" * 50_000)), (502, "document-malformed")),
        (says(Said(200, b"[]")), (502, "document-malformed")),
        (says(Said(200, b'{"a":1,"a":2}')), (502, "document-malformed")),
        (says(Said(302, b"", headers=(("Location", "http://127.0.0.1/"),))), (502, "redirect-refused")),
        (says(Said(404, b"")), (404, "not-registered")),
    ],
)
async def test_a_catalogue_that_lies_has_its_code_and_is_not_asked_again_at_once(
    rig: Rig, ana: Runtime, monkeypatch: pytest.MonkeyPatch, lie: Lie, expected: tuple[int, str]
) -> None:
    if lie is drips:
        monkeypatch.setattr(catalogue, "CATALOGUE_PLACE_SECONDS", 0.1)
    rig.server.always = lie
    assert code_and_reason(await read(ana, CHAT_ADDRESS)) == expected
    asked = len(rig.server.asked)
    assert code_and_reason(await read(ana, CHAT_ADDRESS)) == expected
    assert len(rig.server.asked) == asked


async def test_many_who_want_the_same_cause_one_question(rig: Rig, ana: Runtime) -> None:
    bo = await rig.rig.opened("bo")
    for one in (ana, bo):
        await one.say(*(a_message("read", one.address, CHAT_ADDRESS, id_=id_) for id_ in range(20)))
    for one in (ana, bo):
        assert [(await one.next())["body"]["code"] for _ in range(20)] == [200] * 20
    assert len(rig.server.asked) == 1


async def test_a_runtime_that_asks_for_many_entries_is_slowed_down_and_takes_nothing_from_others(
    rig: Rig, ana: Runtime
) -> None:
    async def ask(number: int) -> tuple[int, str]:
        sender = f"{ana.address}/{number}"  # one runtime, many senders
        return code_and_reason(await ana.ask("read", CHAT_ADDRESS.replace("Chat", f"c{number}"), from_=sender))

    burst = CATALOGUE_READS_PER_MINUTE_AND_ASKER // 6
    assert {await ask(number) for number in range(burst)} == {(404, "not-registered")}
    asked = len(rig.server.asked)
    assert await ask(burst) == (429, "rate")
    assert len(rig.server.asked) == asked
    bo = await rig.rig.opened("bo")
    assert (await read(bo, CHAT_ADDRESS))["body"]["code"] == 200
    assert (await read(ana, CHAT_ADDRESS))["body"]["code"] == 200, "what is known costs nobody anything"
    rig.seconds = 60 / CATALOGUE_READS_PER_MINUTE_AND_ASKER
    assert [await ask(burst), await ask(burst + 1)] == [(404, "not-registered"), (429, "rate")]


async def test_what_is_remembered_is_bounded(rig: Rig, ana: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "CATALOGUE_CACHED", 2)
    for name in ("A", "B", "C"):
        await read(ana, f"hyperty-catalogue://{DOMAIN}/hyperty/{name}")
    await read(ana, f"hyperty-catalogue://{DOMAIN}/hyperty/A")
    assert [one.target[-1] for one in rig.own.asked if one.target[-2] == "/"] == ["A", "B", "C", "A"]


def test_places_are_in_the_order_of_decision_3() -> None:
    entry = entry_of("hyperty-catalogue://b.example/.well-known/runtime/R")
    assert places(entry, well_known_url="https://mn.b.example:8444/.well-known/rethink-mn") == [
        "https://mn.b.example:8444/.well-known/runtime/R",
        "https://b.example/.well-known/runtime/R",
        "https://catalogue.b.example/.well-known/runtime/R",
    ]


STUB_ADDRESS = f"hyperty-catalogue://{FOREIGN}/.well-known/protostub/default"


async def test_a_runtime_receives_the_stub_of_another_domain(rig: Rig, ana: Runtime) -> None:
    assert (await read(ana, STUB_ADDRESS))["body"]["value"] == {"objectName": "Stub"}


async def test_where_devices_load_no_code_of_others_their_stubs_are_not_shown_and_all_else_is(tmp_path: Path) -> None:
    async with catalogue_rig(tmp_path, service=without_guest_code([DOMAIN])) as made:
        made.dialler.places = {FOREIGN.replace(".", "_"): made.server.port}
        made.dialler.places[f"catalogue.{FOREIGN}".replace(".", "_")] = made.server.port
        ana = await made.rig.opened("ana")
        for kind in ("protostub", "protocolstub", "PROTOCOLSTUB", "idp-proxy"):
            address = f"hyperty-catalogue://{FOREIGN}/.well-known/{kind}/default/version"
            assert code_and_reason(await read(ana, address)) == (403, "policy")
            through_us = await ana.ask("read", f"domain://catalogue.{DOMAIN}", {"resource": address})
            assert code_and_reason(through_us) == (403, "policy")
        assert (made.server.asked, made.looked_up) == ([], [])
        assert (await read(ana, CHAT_ADDRESS))["body"]["value"] == CHAT
        own = await read(ana, f"hyperty-catalogue://{DOMAIN}/.well-known/protostub/default")
        assert code_and_reason(own) == (404, "not-registered")
