"""Hyperties, schemas, runtimes and proxies in our catalogue: published by command, fetched as original runtimes do."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest
import trio
import trustme
from typer.testing import CliRunner

from catalogue_client.core.catalogue_entry import entry_of
from msg_node.backends.catalogue import CatalogueReader, OwnCatalogue
from msg_node.backends.sources import schema_reader
from msg_node.kernel.catalogue_questions import CatalogueQuestion
from msg_node.settings.tables.listeners import SiteSettings
from msg_node.site.site import Site
from protofly.errors import Code, PeerError
from protofly.limits import DESCRIPTOR_BYTES
from protofly.signatures import decode_envelope
from stubkit.keys import load_keys
from tests.msg_node.site.test_site import DOMAIN, settings_for
from trapezoid.commands import app

CODE = "// @version 0.4\nclass Chat {}\nexport default function activate(url, bus, config) { return {name: 'Chat'}; }\n"
SCHEMA = {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"text": {"type": "string"}}}
RUNTIME = {"runtimeType": "browser", "hypertyCapabilities": {"webrtc": True}, "protocolCapabilities": {"wss": True}}
KINDS = ["dataschema", "hyperty", "idp-proxy", "policy", "protocolstub", "runtime", "sourcepackage"]


class Folder:
    """Keys, a site with a stub, and files to publish."""

    def __init__(self, path: Path) -> None:
        self.path, self.keys, self.site = path, path / "keys", path / "site"
        (path / "data").mkdir()
        self.run("keys", "init", DOMAIN, "--keys", self.keys)
        self.run("publish", DOMAIN, "--keys", self.keys, "--site", self.site, "--no-check")

    def run(self, *words: object, code: int = 0) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == code, done.output
        return done.output

    def file(self, name: str, content: object) -> Path:
        path = self.path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def publish(self, kind: str, name: str, content: object, *options: object) -> dict[str, Any]:
        words = ("publish", kind, self.file(name, content), "--site", self.site, *options, "--json")
        return cast("dict[str, Any]", json.loads(self.run(*words)))

    def refusal(self, kind: str, name: str, content: object, *options: object) -> str:
        before = {path: path.read_bytes() for path in self.site.rglob("*") if path.is_file()}
        said = self.run("publish", kind, self.file(name, content), "--site", self.site, *options, code=2)
        assert before == {path: path.read_bytes() for path in self.site.rglob("*") if path.is_file()}
        return " ".join(said.split())

    def listed(self) -> list[tuple[str, str, str]]:
        rows = json.loads(self.run("publish", "list", "--site", self.site, "--json"))
        return [(row["kind"], row["name"], row["version"]) for row in rows]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@asynccontextmanager
async def https_site(folder: Folder) -> AsyncIterator[tuple[Site, httpx.AsyncClient]]:
    authority = trustme.CA()
    certificate, key = folder.path / "tls.pem", folder.path / "tls.key"
    issued = authority.issue_cert(DOMAIN, "localhost")
    issued.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    issued.cert_chain_pems[0].write_to_path(certificate)
    settings = msgspec.structs.replace(
        settings_for(folder.path), site=SiteSettings(port=0, certificate=certificate, key=key)
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    site = Site.from_settings(settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(site.run)
        url = site.url.replace("127.0.0.1", "localhost")
        async with httpx.AsyncClient(base_url=url, verify=context, trust_env=False) as client:
            yield site, client
        nursery.cancel_scope.cancel()


async def fetched_as_a_runtime_does(client: httpx.AsyncClient, path: str) -> tuple[dict[str, Any], str]:
    """Version and cguid first, then the descriptor, then its package. Source: data formats, section 2.8."""
    facts = [await client.get(f"{path}/{attribute}") for attribute in ("version", "cguid")]
    answer = await client.get(path)
    descriptor = answer.json()
    assert answer.headers["access-control-allow-origin"] == "*"
    assert [fact.text for fact in facts] == [descriptor["version"], descriptor["cguid"]]
    package_url = descriptor["sourcePackageURL"]
    assert package_url.startswith(f"hyperty-catalogue://{DOMAIN}/.well-known/sourcepackage/")
    package = (await client.get(package_url.removeprefix(f"hyperty-catalogue://{DOMAIN}"))).json()
    assert package["sourceCodeClassname"] == package_url.rpartition("/")[2]
    assert package["encoding"] == "UTF-8"
    return descriptor, package["sourceCode"]


async def test_every_kind_is_served_as_original_catalogues_do(folder: Folder) -> None:
    attributes = folder.file("more.json", {"dataObjects": [f"hyperty-catalogue://{DOMAIN}/dataschema/Message"]})
    folder.publish("hyperty", "Chat.hy.js", CODE, "--descriptor", attributes, "--default", "--keys", folder.keys)
    folder.publish("dataschema", "Message.ds.json", SCHEMA)
    folder.publish("runtime", "Browser.js", "function activate() {}", "--descriptor", folder.file("r.json", RUNTIME))
    packed = {
        "objectName": "google.com",
        "version": 0.2,
        "constraints": {"browser": True},
        "sourcePackageURL": "/sourcePackage",
    }
    package = {"sourceCodeClassname": "GoogleProxy", "encoding": "base64", "sourceCode": "bGV0IGE7"}
    folder.publish("idp-proxy", "google.json", packed | {"sourcePackage": package})
    async with https_site(folder) as (_, client):
        assert (await client.get("/.well-known/")).json() == KINDS
        descriptor, code = await fetched_as_a_runtime_does(client, "/.well-known/hyperty/Chat")
        assert (descriptor["version"], descriptor["language"], code) == ("0.4", "JAVASCRIPT_ECMA6", CODE)
        assert descriptor["cguid"].startswith("1")
        assert descriptor["dataObjects"] == [f"hyperty-catalogue://{DOMAIN}/dataschema/Message"]
        assert (await client.get("/.well-known/hyperty/default")).json() == descriptor
        keys = load_keys(folder.keys).pkg
        envelope = decode_envelope(descriptor["signature"].encode())
        assert envelope.signers({key.key_id: key.record() for key in keys}, allowed=[key.key_id for key in keys])
        _, schema = await fetched_as_a_runtime_does(client, "/.well-known/dataschema/Message")
        assert json.loads(schema) == SCHEMA
        runtime, _ = await fetched_as_a_runtime_does(client, "/.well-known/runtime/Browser")
        assert runtime["hypertyCapabilities"] == {"webrtc": True}
        proxy, code = await fetched_as_a_runtime_does(client, "/.well-known/idp-proxy/google.com")
        assert (proxy["version"], proxy["idpProxy"], code) == ("0.2", True, "let a;")
        assert (await client.get("/.well-known/dataschema/default")).status_code == 404


@pytest.mark.parametrize(
    ("offered", "name"),
    [({"browser": True, "mic": True}, "Phone"), ({"node": True}, "Robot"), ({"sensor": True}, None)],
)
async def test_default_is_the_first_entry_whose_demands_are_met(
    folder: Folder, offered: dict[str, bool], name: str | None
) -> None:
    for made, needs in (("Phone", {"browser": True, "mic": True}), ("Robot", {"node": True})):
        attributes = folder.file(f"{made}.json", {"constraints": needs})
        folder.publish("hyperty", f"{made}.js", CODE, "--descriptor", attributes, "--default")
    async with https_site(folder) as (_, client):
        wanted = {"constraints": offered}
        answer = await client.post("/.well-known/hyperty/default", json=wanted)
        names = (await client.post("/.well-known/hyperty", json=wanted)).json()
        assert names == ([] if name is None else [name])
        assert (answer.json()["objectName"] if answer.status_code == 200 else None) == name


async def test_published_schema_is_the_one_that_this_node_validates_with(folder: Folder) -> None:
    folder.publish("dataschema", "Message.ds.json", SCHEMA)
    async with https_site(folder) as (site, _):
        assert site.publisher is not None
        reader = CatalogueReader(
            cast("Any", None),
            resolve=cast("Any", None),
            own=OwnCatalogue([DOMAIN], published=site.publisher.objects.read),
        )
        schemas = schema_reader(reader)
        question = CatalogueQuestion(entry_of(f"hyperty-catalogue://catalogue.{DOMAIN}/dataschema/Message"), "anna")
        schema = await schemas(question)
        with pytest.raises(PeerError, check=lambda exc: exc.code is Code.SCHEMA):
            schema.check_change({"value": {"text": 5}}, 20)
        assert await schemas(question) is schema
        folder.publish("dataschema", "Message.ds.json", {"properties": {"text": {"type": "integer"}}})
        await site.publisher.prepare()
        newer = await schemas(question)
        assert newer is not schema
        newer.check_change({"value": {"text": 5}}, 20)


# Changes.


def test_what_changes_gets_a_higher_version_and_what_does_not_is_left_alone(folder: Folder) -> None:
    first = folder.publish("hyperty", "Chat.js", CODE)
    again = folder.publish("hyperty", "Chat.js", CODE)
    assert (first["version"], first["is_changed"], again["is_changed"]) == ("0.4", True, False)
    code = CODE.replace("// @version 0.4", "")
    assert folder.publish("hyperty", "Chat.js", code)["version"] == "0.5"
    assert folder.publish("hyperty", "Chat.js", code, "--description", "talks")["version"] == "0.6"
    assert folder.publish("hyperty", "Chat.js", code, "--version", "0.10")["version"] == "0.10"
    assert "version 0.9 is not above the published 0.10" in folder.refusal(
        "hyperty", "Chat.js", code + " ", "--version", "0.9"
    )


def test_entries_are_listed_stay_when_the_stub_is_published_again_and_are_removed(folder: Folder) -> None:
    folder.publish("hyperty", "Chat.js", CODE)
    folder.publish("dataschema", "Message.json", SCHEMA)
    folder.run("publish", DOMAIN, "--keys", folder.keys, "--site", folder.site, "--no-check", "--alias", "b.example")
    others = [("dataschema", "Message", "1.0"), ("hyperty", "Chat", "0.4")]
    assert folder.listed()[1:] == others
    folder.run("publish", "remove", "hyperty", "Chat", "--site", folder.site)
    assert folder.listed()[1:] == others[:1]
    assert not list(folder.site.rglob("Chat.json"))
    said = folder.run("publish", "remove", "hyperty", "Chat", "--site", folder.site, code=2)
    assert "it has: dataschema Message" in said


async def test_removed_entry_is_gone_for_readers(folder: Folder) -> None:
    folder.publish("hyperty", "Chat.js", CODE)
    async with https_site(folder) as (site, client):
        assert (await client.get("/.well-known/hyperty/Chat")).status_code == 200
        folder.run("publish", "remove", "hyperty", "Chat", "--site", folder.site)
        assert site.publisher is not None
        await site.publisher.prepare()
        for path in ("hyperty/Chat", "sourcepackage/Chat", "hyperty/..%2Fkeys", "hyperty/Chat.json"):
            assert (await client.get(f"/.well-known/{path}")).status_code == 404
        assert (await client.get("/.well-known/hyperty")).json() == []


# What is not published.


@pytest.mark.parametrize(
    ("kind", "name", "content", "options", "said"),
    [
        ("hyperty", "default.js", CODE, (), "cannot be a name in a catalogue"),
        ("hyperty", "x.js", CODE, ("--name", "../../keys"), "cannot be a name in a catalogue"),
        ("hyperty", "x.js", CODE, ("--class-name", "TrapezoidLink"), "is that of trapezoid-link"),
        ("hyperty", "x.js", CODE, ("--version", "new"), "expected numbers with dots"),
        ("hyperty", "x.js", "  ", (), "there is no code in it"),
        ("hyperty", "x.js", "x" * (2 << 20) + "x", (), "more than 2,097,152 bytes"),
        ("hyperty", "x.json", {"objectName": "Chat"}, (), "expected code"),
        ("hyperty", "x.json", {"sourcePackage": {"sourceCode": "%", "encoding": "base64"}}, (), "not base64"),
        ("runtime", "x.js", CODE, (), "a runtime needs runtimeType, hypertyCapabilities, protocolCapabilities"),
        ("dataschema", "x.json", "[1]", (), "expected a JSON object"),
        ("dataschema", "x.json", "[" * 100_000, (), "x.json: "),
        ("dataschema", "x.json", {"description": "x" * DESCRIPTOR_BYTES}, (), "readers take 65,536"),
    ],
)
def test_what_readers_could_not_use_is_refused_and_changes_nothing(
    folder: Folder, kind: str, name: str, content: object, options: tuple[str, ...], said: str
) -> None:
    assert said in folder.refusal(kind, name, content, *options)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"constraints": {"browser": "yes"}}, "constraints"),
        ({"hypertyType": "chat"}, "hypertyType"),
        ({"dataObjects": ["https://evil.example/x"]}, "dataObjects: https://evil.example/x"),
        ({"configuration": 5}, "configuration"),
    ],
)
def test_attributes_of_another_type_are_refused(folder: Folder, attributes: dict[str, object], said: str) -> None:
    assert said in folder.refusal("hyperty", "x.js", CODE, "--descriptor", folder.file("more.json", attributes))


def test_schema_that_this_node_cannot_use_is_published_with_a_note(folder: Folder) -> None:
    report = folder.publish("dataschema", "Far.json", {"$ref": "https://elsewhere.example/schema"})
    assert "this node does not validate with it" in report["note"]


def test_folder_without_a_stub_takes_no_entries(tmp_path: Path) -> None:
    code = tmp_path / "Chat.js"
    code.write_text(CODE)
    done = CliRunner().invoke(app, ["publish", "hyperty", str(code), "--site", str(tmp_path / "site")])
    assert done.exit_code == 2
    assert "run `trapezoid publish` first" in " ".join(done.output.split())
    assert not (tmp_path / "site").exists()


def test_a_policy_is_published_from_json_or_toml_as_nodes_read_it(folder: Folder) -> None:
    rules = {"id": "room", "rules": [{"id": "no", "effect": "deny"}]}
    text = 'id = "room"\n[[rules]]\nid = "no"\neffect = "deny"\n'
    for name, content in (("Room.json", rules), ("Hall.toml", text)):
        assert folder.publish("policy", name, content)["version"] == "1.0"
        package = json.loads((folder.site / "sourcepackage" / f"{name.partition('.')[0]}.json").read_bytes())
        assert json.loads(package["sourceCode"]) == rules
    assert "obligations are for" in folder.refusal(
        "policy", "More.json", {"id": "room", "rules": [{"id": "no", "effect": "deny", "obligations": {"log": "x"}}]}
    )
