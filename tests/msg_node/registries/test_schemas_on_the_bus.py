"""Schemas of data objects over real sockets: read from a catalogue, expanded into children, held against changes."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from catalogue_client.core.location import Location
from catalogue_client.http_fetcher import HttpFetcher
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.catalogue import CatalogueReader, OwnCatalogue
from msg_node.backends.sources import schema_reader, source_of
from msg_node.bus.middleware import MessageStep
from msg_node.kernel.catalogue_questions import SCHEMA
from msg_node.kernel.rules import Rules
from msg_node.registries.validation import Validation
from msg_node.settings.load import load_settings
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import DESCRIPTOR_BYTES
from tests.support.lines import LoopbackDialler
from tests.support.rest_server import Asked, RestServer, Said, rest_server
from tests.support.runtime_rig import (
    DOMAIN,
    PATIENCE_SECONDS,
    SM,
    Json,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_rig,
)

ROOM_SCHEMA = {
    "type": "object",
    "properties": {"topic": {"type": "string"}, "children": {"constant": ["messages", "files"]}},
}
ENTRIES: dict[str, object] = {
    "/.well-known/dataschema/Room": {
        "objectName": "Room",
        "type": "HYPERTY_DATA_OBJECT",
        "sourcePackageURL": "hyperty-catalogue://x/sourcepackage/R",
    },
    "/.well-known/sourcepackage/R": {"sourceCodeClassname": "R", "sourceCode": json.dumps(ROOM_SCHEMA)},
    "/.well-known/dataschema/Embedded": {"sourcePackage": {"sourceCode": ROOM_SCHEMA}},
    "/.well-known/dataschema/Static.ds.json": ROOM_SCHEMA,
    "/.well-known/dataschema/Circle": {"sourcePackage": {"sourceCode": {"$ref": "#"}}},
    "/.well-known/dataschema/Empty": {"objectName": "Empty"},
}


def address_of(name: str) -> str:
    return f"hyperty-catalogue://catalogue.{DOMAIN}/.well-known/dataschema/{name}"


def handler(asked: Asked) -> Said:
    found = ENTRIES.get(asked.target)
    return Said(404, b"no", "text/plain") if found is None else Said(200, json.dumps(found).encode())


@dataclass
class Rig:
    bus: RuntimeRig
    server: RestServer
    validation: Validation

    async def until(self, counter: str, number: int = 1) -> None:
        """Wait until so many schemas were read, or not."""
        with trio.fail_after(PATIENCE_SECONDS):
            while self.validation.counters[counter] < number:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def schema_rig(folder: Path, *, expands: bool = True) -> AsyncIterator[Rig]:
    made: list[Validation] = []

    def step() -> MessageStep:
        return lambda *arguments: made[0].step(*arguments)

    async def resolve(domain: str, asked_by: str) -> Location:
        raise PeerError(Code.DOMAIN_BLOCKED, f"{asked_by} asks for {domain}")

    async with (
        rest_server(handler) as server,
        runtime_rig(folder, rules=Rules(expands_schema=expands), steps=[("schema", step())]) as rig,
        trio.open_nursery() as nursery,
    ):
        context = ssl.create_default_context()
        catalogue = CatalogueReader(
            HttpFetcher(LoopbackDialler(), context),
            resolve=resolve,
            own=OwnCatalogue([DOMAIN], BackendHttp(server.url, context, max_bytes=DESCRIPTOR_BYTES)),
        )
        reader = schema_reader(catalogue)
        rig.bus.inquiries.connect(SCHEMA, reader)
        made.append(Validation(rig.state))
        await nursery.start(made[0].run, reader)
        yield Rig(rig, server, made[0])
        nursery.cancel_scope.cancel()


# Children, by the schema.


@pytest.mark.parametrize("name", ["Room", "Embedded", "Static"])
async def test_who_names_the_schema_of_an_object_hears_its_children(tmp_path: Path, name: str) -> None:
    async with schema_rig(tmp_path) as made:
        bob, ana = await made.bus.opened("bob"), await made.bus.opened("ana")
        room = await bob.allocated()
        reply = await ana.ask("subscribe", SM, {"resource": room, "schema": address_of(name)})
        assert (code_and_reason(reply), "schema" in reply["body"]) == ((200, ""), False)
        held = (await ana.ask("read", SM))["body"]["value"]["resources"]
        assert {one["url"].removeprefix(room) for one in held} == {
            "/changes",
            "/children/messages",
            "/messages",
            "/children/files",
            "/files",
            "/children/",
        }
        await bob.say(a_message("create", bob.address, f"{room}/children/files", {"value": 1}, id_=1))
        assert (await ana.next())["to"] == f"{room}/children/files"


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (address_of("Nothing"), "not-registered"),
        (address_of("Empty"), "not-registered"),
        (address_of("Circle"), "schema"),
        (f"hyperty-catalogue://{DOMAIN}/.well-known/hyperty/Room", "bad-body"),
        ("https://evil.example/schema.json", "bad-body"),
        ("hyperty-catalogue://nowhere.example/.well-known/dataschema/Room", "domain-blocked"),
    ],
)
async def test_a_schema_that_is_not_to_be_had_is_said_and_the_object_is_heard(
    tmp_path: Path, schema: str, word: str
) -> None:
    async with schema_rig(tmp_path) as made:
        bob, ana = await made.bus.opened("bob"), await made.bus.opened("ana")
        room = await bob.allocated()
        reply = await ana.ask("subscribe", SM, {"resource": room, "schema": schema})
        assert (code_and_reason(reply), reply["body"]["schema"]) == ((200, ""), word)
        held = (await ana.ask("read", SM))["body"]["value"]["resources"]
        assert [one["url"] for one in held] == [f"{room}/changes"]


async def test_who_names_children_or_no_object_needs_no_schema(tmp_path: Path) -> None:
    async with schema_rig(tmp_path) as made:
        ana = await made.bus.opened("ana")
        room = f"comm://{DOMAIN}/room"
        await ana.ask("subscribe", SM, {"resource": room, "childrenResources": ["x"], "schema": address_of("Nothing")})
        await ana.ask("subscribe", SM, {"resources": [f"{room}/changes"], "schema": address_of("Nothing")})
        assert (await ana.ask("subscribe", SM, {"schema": address_of("Room")}))["body"]["code"] == 400


async def test_without_the_setting_no_catalogue_is_asked_for_children(tmp_path: Path) -> None:
    async with schema_rig(tmp_path, expands=False) as made:
        bob, ana = await made.bus.opened("bob"), await made.bus.opened("ana")
        room = await bob.allocated()
        await ana.ask("subscribe", SM, {"resource": room, "schema": address_of("Room")})
        held = (await ana.ask("read", SM))["body"]["value"]["resources"]
        assert [one["url"] for one in held] == [f"{room}/changes"]
        assert made.server.asked == []


# Changes, held against the schema.


def change(room: str, value: object, id_: object = None) -> Json:
    return a_message("update", room, f"{room}/changes", {"attribute": "topic", "value": value}, id_=id_)


async def test_a_change_that_breaks_the_schema_of_its_reporter_is_refused_and_not_reported(tmp_path: Path) -> None:
    async with schema_rig(tmp_path) as made:
        bob, ana = await made.bus.opened("bob"), await made.bus.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        await bob.ask("subscribe", SM, {"resource": room, "schema": address_of("Room")})
        await made.until("schemas read")
        await bob.say(change(room, 7, 1), change(room, 8), change(room, "lunch", 2))
        refused = await bob.next()
        assert (refused["id"], code_and_reason(refused)) == (1, (422, "schema"))
        assert refused["body"]["value"]["schema"] == address_of("Room")
        assert "/: 7 is not of type" in refused["body"]["value"]["detail"]
        assert (await ana.next())["body"]["value"] == "lunch"
        assert made.bus.counters["refused schema"] == 2


async def test_a_reporter_names_the_schema_by_inviting_too(tmp_path: Path) -> None:
    async with schema_rig(tmp_path) as made:
        bob, ana = await made.bus.opened("bob"), await made.bus.opened("ana")
        room = await bob.allocated()
        invitation = {"schema": address_of("Room"), "value": {"name": "room"}}
        await bob.say(a_message("create", f"{room}/subscription", ana.address, invitation, id_=1))
        assert (await ana.next())["body"] == invitation
        await made.until("schemas read")
        assert code_and_reason(await bob.ask("update", f"{room}/changes", {"attribute": "topic", "value": 1})) == (
            422,
            "schema",
        )


async def test_an_observer_cannot_give_an_object_its_schema(tmp_path: Path) -> None:
    async with schema_rig(tmp_path) as made:
        bob, eve = await made.bus.opened("bob"), await made.bus.opened("eve")
        room = await bob.allocated()
        await eve.ask("subscribe", SM, {"resource": room, "schema": address_of("Room")})
        await eve.say(a_message("create", f"{room}/subscription", bob.address, {"schema": address_of("Room")}, id_=1))
        await eve.heard()
        await eve.subscribed(f"{room}/changes")
        await bob.say(change(room, 7))
        assert (await eve.next())["body"]["value"] == 7
        assert made.validation.counters["schemas read"] == 0


async def test_while_a_schema_is_not_here_changes_pass(tmp_path: Path) -> None:
    async with schema_rig(tmp_path) as made:
        bob, ana = await made.bus.opened("bob"), await made.bus.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        for name in ("Nothing", "Circle"):
            await bob.ask("subscribe", SM, {"resource": room, "schema": address_of(name)})
            await bob.say(change(room, 7))
            assert (await ana.next())["body"]["value"] == 7
        await made.until("schemas not read: schema")
        await made.until("schemas not read: not-registered")


async def test_the_schema_of_many_objects_is_read_once(tmp_path: Path) -> None:
    async with schema_rig(tmp_path, expands=False) as made:
        bob = await made.bus.opened("bob")
        for _ in range(5):
            await bob.ask("subscribe", SM, {"resource": await bob.allocated(), "schema": address_of("Embedded")})
        await made.until("schemas read")
        assert len(made.server.asked) == 1


# What packages look like, and settings.


@pytest.mark.parametrize(
    "holder",
    [
        {"sourceCode": "not json"},
        {"sourceCode": "[1]"},
        {"sourceCode": "e30=", "encoding": "utf-8"},
        {"sourceCode": '{"a":1,"a":2}'},
        {"sourceCode": 7},
        {"sourcePackage": {"sourceCode": "!", "encoding": "base64"}},
        {"sourcePackage": {}},
    ],
)
def test_a_package_without_a_schema_is_refused(holder: dict[str, object]) -> None:
    with pytest.raises(PeerError) as refused:
        source_of(holder, domain=DOMAIN)
    assert refused.value.code in (Code.SCHEMA, Code.DOCUMENT_MALFORMED)


def test_a_schema_may_be_text_base64_or_an_object() -> None:
    for source in ('{"type":"null"}', "eyJ0eXBlIjoibnVsbCJ9", {"type": "null"}):
        encoding = "base64" if isinstance(source, str) and source.startswith("e") else "utf-8"
        assert source_of({"sourceCode": source, "encoding": encoding}, domain=DOMAIN) == {"type": "null"}


def test_checking_needs_catalogues(tmp_path: Path) -> None:
    head = '[node]\ndomain = "alpha.example"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n'
    (tmp_path / "node.toml").write_text(f"{head}[catalogue]\nserve = false\n[middleware.schema]\nvalidate = true\n")
    with pytest.raises(SettingsError, match="schemas are read from catalogues"):
        load_settings(tmp_path / "node.toml")
