"""Policies of objects over real sockets: named by owners, read from the own catalogue, asked at the own bus."""

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
from federation.links.decision_records import DecisionRecords
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.catalogue import CatalogueReader, OwnCatalogue
from msg_node.backends.sources import document_reader
from msg_node.bus.middleware import MessageStep
from msg_node.kernel.changes import Journal
from msg_node.registries.core import policy_names
from msg_node.registries.core.policy_names import PolicyNameRow, PolicyNames
from msg_node.registries.policy_documents import PolicyDocuments
from msg_node.settings.load import load_settings
from msg_node.wiring.session_steps import LocalGate
from policy.core.engine import Facts
from policy.core.gate import Gate, PeerRule
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import DESCRIPTOR_BYTES, OBJECT_POLICIES_PER_SESSION, OBJECT_POLICY_DOCUMENTS
from protofly.records import DecisionRecord
from tests.support.lines import LoopbackDialler
from tests.support.rest_server import Asked, RestServer, Said, rest_server
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    PATIENCE_SECONDS,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

TWIN = f"domain://msg-node.{DOMAIN}/twin"
REGISTRY = f"domain://registry.{DOMAIN}"
CLOSED = {"id": "room", "rules": [{"id": "not-cy", "effect": "deny", "condition": {"msgFrom": {"like": "*/cy*"}}}]}
ABROAD = {"id": "room", "rules": [{"id": "home", "effect": "deny", "condition": {"linkDomain": {"equals": FOREIGN}}}]}
ENTRIES: dict[str, object] = {
    "/.well-known/policy/Closed": {"sourcePackageURL": "hyperty-catalogue://x/sourcepackage/Closed"},
    "/.well-known/sourcepackage/Closed": {"sourceCodeClassname": "Closed", "sourceCode": json.dumps(CLOSED)},
    "/.well-known/policy/Embedded": {"sourcePackage": {"sourceCode": CLOSED}},
    "/.well-known/policy/Static": CLOSED,
    "/.well-known/policy/Abroad": ABROAD,
    "/.well-known/policy/Broken": {"id": "room", "rules": [{"id": "x", "effect": "perhaps"}]},
    "/.well-known/policy/Many": {"sourcePackage": {"sourceCode": "[" * 60_000}},
}


def address_of(name: str, domain: str = DOMAIN) -> str:
    return f"hyperty-catalogue://catalogue.{domain}/.well-known/policy/{name}"


def handler(asked: Asked) -> Said:
    found = ENTRIES.get(asked.target)
    return Said(404, b"no", "text/plain") if found is None else Said(200, json.dumps(found).encode())


@dataclass
class Rig:
    bus: RuntimeRig
    server: RestServer
    documents: PolicyDocuments
    gate: Gate

    async def until(self, counter: str, number: int = 1) -> None:
        """Wait until a counter has come to a number."""
        with trio.fail_after(PATIENCE_SECONDS):
            while self.documents.counters[counter] < number:
                await trio.lowlevel.checkpoint()

    async def closed_room(self, name: str = "Closed") -> tuple[Runtime, Runtime, Runtime, str]:
        """A room of Ana's with a policy, and two who want to come in."""
        ana, bo, cy = await self.bus.opened("ana"), await self.bus.opened("bo"), await self.bus.opened("cy")
        room = await ana.allocated()
        await ana.subscribed(room, f"{room}/subscription")
        await ana.say(invitation(room, bo.address, address_of(name)))
        assert (await bo.next())["type"] == "create"
        return ana, bo, cy, room


def invitation(room: str, to: str, policy: object) -> Json:
    return a_message("create", f"{room}/subscription", to, {"policy": policy, "value": {}}, id_=7)


@asynccontextmanager
async def policy_rig(folder: Path, *, reads: bool = True) -> AsyncIterator[Rig]:
    made: list[PolicyDocuments] = []
    gate = Gate(peers={FOREIGN: PeerRule(default="permit")})

    def step() -> MessageStep:
        return lambda *arguments: made[0].step(*arguments)

    async def resolve(domain: str, asked_by: str) -> Location:
        raise PeerError(Code.DOMAIN_BLOCKED, f"{asked_by} asks for {domain}")

    async with (
        rest_server(handler) as server,
        runtime_rig(folder, steps=[("documents", step())]) as rig,
        trio.open_nursery() as nursery,
    ):
        context = ssl.create_default_context()
        catalogue = CatalogueReader(
            HttpFetcher(LoopbackDialler(), context),
            resolve=resolve,
            own=OwnCatalogue([DOMAIN], BackendHttp(server.url, context, max_bytes=DESCRIPTOR_BYTES)),
        )
        made.append(documents := PolicyDocuments(rig.state, rig.state.policy_names))
        documents.connect(lambda: gate.narrow_by(documents))
        rig.judge_local = LocalGate(DecisionRecords(gate, rig.records.append)).judge
        if reads:
            await nursery.start(documents.run, document_reader(catalogue))
        yield Rig(rig, server, documents, gate)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["Closed", "Embedded", "Static"])
async def test_who_the_policy_of_an_object_denies_does_not_get_to_it(tmp_path: Path, name: str) -> None:
    async with policy_rig(tmp_path) as made:
        _, bo, cy, room = await made.closed_room(name)
        await made.until("policies read")
        assert code_and_reason(await bo.subscribed(f"{room}/changes")) == (200, "")
        reply = await cy.subscribed(f"{room}/changes")
        assert code_and_reason(reply) == (403, "policy")
        assert reply["body"]["value"]["rule"] == f"document: {address_of(name)} room/not-cy"
        (record,) = [one for one in made.bus.records.taken if isinstance(one, DecisionRecord)]
        assert (record.hook, record.permitted, record.reason) == ("local", False, "policy")
        assert record.rule_id == f"document: {address_of(name)} room/not-cy"


@pytest.mark.parametrize("deep", ["", "/subscription", "/children/x", "/a/b/c/d/e/f/g/h/i/j/k/l/m"])
async def test_no_spelling_gets_past_the_policy_of_an_object(tmp_path: Path, deep: str) -> None:
    async with policy_rig(tmp_path) as made:
        _, _, cy, room = await made.closed_room()
        await made.until("policies read")
        assert code_and_reason(await cy.ask("read", room.replace("comm", "COMM") + deep, {})) == (403, "policy")
        for body in (
            {"resources": [[f"{room}{deep}"]]},
            {"subscribe": [f"{room}{deep}"], "resources": {"broken": 1}},
            {"resource": room, "childrenResources": ["x"]},
            {"resource": f"comm://{DOMAIN}/other", "childrenResources": [f"{room}{deep}"]},
            {"resources": [f"comm://{DOMAIN}/other", f"{room}{deep}"]},
        ):
            assert code_and_reason(await cy.ask("subscribe", SM, body)) == (403, "policy")
        assert code_and_reason(await cy.ask("read", TWIN, {"resource": f"{room}{deep}"})) == (403, "policy")


async def test_until_its_policy_is_here_nobody_but_the_owner_reaches_an_object(tmp_path: Path) -> None:
    async with policy_rig(tmp_path, reads=False) as made:
        ana, bo, _, room = await made.closed_room()
        reply = await bo.subscribed(f"{room}/changes")
        assert code_and_reason(reply) == (503, "policy-unavailable")
        [denied] = [one for one in made.bus.records.taken if isinstance(one, DecisionRecord)]
        assert reply["body"]["value"] == {
            "rule": f"document: {address_of('Closed')}",
            "retryAfter": 1.0,
            "msgId": denied.msg_id,
        }
        assert code_and_reason(await ana.subscribed(f"{room}/children/a")) == (200, "")
        await bo.say(a_message("response", bo.address, f"{room}/subscription", {"code": 200}, id_=7))
        assert [one["type"] for one in await ana.heard()] == ["response"]


@pytest.mark.parametrize(("name", "word"), [("Broken", "policy-invalid"), ("None", "not-registered"), ("Many", "")])
async def test_an_object_whose_policy_cannot_be_used_stays_closed(tmp_path: Path, name: str, word: str) -> None:
    async with policy_rig(tmp_path) as made:
        _, bo, _, room = await made.closed_room(name)
        with trio.fail_after(PATIENCE_SECONDS):
            while not any(one.startswith(f"policies not read: {word}") for one in made.documents.counters.shown()):
                await trio.lowlevel.checkpoint()
        assert code_and_reason(await bo.subscribed(f"{room}/changes")) == (503, "policy-unavailable")


@pytest.mark.parametrize(
    "policy",
    [address_of("Closed", FOREIGN), "https://evil.example/p", "any text", address_of("Closed/version"), 7, "x" * 9_999],
)
async def test_a_policy_that_is_no_entry_of_our_catalogue_is_ignored_and_nothing_is_asked(
    tmp_path: Path, policy: object
) -> None:
    async with policy_rig(tmp_path) as made:
        ana, bo = await made.bus.opened("ana"), await made.bus.opened("bo")
        room = await ana.allocated()
        await ana.subscribed(room, f"{room}/subscription")
        await ana.say(invitation(room, bo.address, policy))
        assert (await bo.next())["body"]["policy"] == policy
        assert code_and_reason(await bo.subscribed(f"{room}/changes")) == (200, "")
        assert (len(made.bus.state.policy_names), made.server.asked) == (0, [])


async def test_nobody_names_a_policy_for_an_object_of_somebody_else(tmp_path: Path) -> None:
    async with policy_rig(tmp_path) as made:
        ana, cy = await made.bus.opened("ana"), await made.bus.opened("cy")
        room = await ana.allocated()
        await cy.ask("subscribe", SM, {"resource": room, "policy": address_of("Closed")})
        await cy.ask("create", REGISTRY, {"value": {"url": room}, "policy": address_of("Closed")})
        assert made.documents.counters["policies ignored: not the owner"] == 2
        assert len(made.bus.state.policy_names) == 0


@pytest.mark.parametrize("way", ["subscribe", "register"])
async def test_an_owner_names_a_policy_when_it_subscribes_or_registers(tmp_path: Path, way: str) -> None:
    async with policy_rig(tmp_path) as made:
        ana, cy = await made.bus.opened("ana"), await made.bus.opened("cy")
        room = await ana.allocated()
        body = {"resource": room} if way == "subscribe" else {"value": {"url": room}}
        await ana.ask(
            "subscribe" if way == "subscribe" else "create",
            SM if way == "subscribe" else REGISTRY,
            {**body, "policy": address_of("Closed")},
        )
        await made.until("policies read")
        assert code_and_reason(await cy.subscribed(f"{room}/changes")) == (403, "policy")


async def test_a_policy_ends_with_its_object_and_with_the_session_of_its_owner(tmp_path: Path) -> None:
    async with policy_rig(tmp_path) as made:
        ana, _, cy, room = await made.closed_room()
        await made.until("policies read")
        await ana.ask("subscribe", SM, {"resource": await ana.allocated(), "policy": address_of("Abroad")})
        assert len(made.bus.state.policy_names) == 2
        await ana.say(a_message("delete", room, f"{room}/changes"))
        await ana.heard()
        assert code_and_reason(await cy.subscribed(f"{room}/changes")) == (200, "")
        await ana.say(a_message("close", ana.address, "mn:/session", id_=1))
        assert await ana.close_code() == 1000
        assert len(made.bus.state.policy_names) == 0


async def test_another_domain_is_denied_at_both_gates(tmp_path: Path) -> None:
    async with policy_rig(tmp_path) as made:
        _, _, _, room = await made.closed_room("Abroad")
        await made.until("policies read")
        far = f"hyperty://{FOREIGN}/h"
        wanted = parsed(a_message("subscribe", far, SM, {"resources": [f"{room}/changes"]}))
        change = parsed(a_message("update", room, f"{room}/changes", {"value": 1}))
        entering = made.gate.judge(Facts("in", wanted, FOREIGN, DOMAIN, FOREIGN, 9, 0, 0.0))
        leaving = made.gate.judge(Facts("out", change, DOMAIN, FOREIGN, FOREIGN, 9, 0, 0.0))
        assert (entering.code, leaving.code) == (Code.POLICY, Code.POLICY)
        elsewhere = parsed(a_message("create", far, f"hyperty://{DOMAIN}/h"))
        assert made.gate.judge(Facts("in", elsewhere, FOREIGN, DOMAIN, FOREIGN, 9, 0, 0.0)).permitted


async def test_after_a_restart_an_object_is_as_closed_as_before(tmp_path: Path) -> None:
    async with policy_rig(tmp_path) as made:
        ana, _, _, room = await made.closed_room()
        await made.until("policies read")
        token = ana.token
        await ana.heard()
    async with policy_rig(tmp_path) as again:
        cy = await again.bus.opened("cy")
        await again.until("policies read")
        assert code_and_reason(await cy.subscribed(f"{room}/changes")) == (403, "policy")
        assert token


def test_a_session_has_its_own_share_of_policies_and_makes_no_room_for_more() -> None:
    owners: dict[str, int] = {}
    names = PolicyNames(journal := Journal(), owners.get)
    for number in range(OBJECT_POLICIES_PER_SESSION):
        owners[f"comm://a/{number}"] = 1
        names.name(f"comm://a/{number}", PolicyNameRow("d", "ana", 1))
    owners["comm://a/more"], owners["comm://a/bo"] = 1, 2
    with pytest.raises(PeerError) as caught:
        names.name("comm://a/more", PolicyNameRow("d", "ana", 1))
    assert caught.value.code is Code.QUOTA
    names.name("comm://a/0", PolicyNameRow("e", "ana", 1))
    names.name("comm://a/bo", PolicyNameRow("d", "bo", 2))
    del owners["comm://a/bo"]
    assert names.find("comm://a/bo") is None
    assert journal.take()[-1].row is None
    names.end_session(1)
    assert (len(names), list(names)) == (0, [])


def test_too_many_documents_are_refused_until_their_objects_are_gone() -> None:
    owners = {f"comm://a/{number}": number for number in range(OBJECT_POLICY_DOCUMENTS + 1)}
    names = PolicyNames(Journal(), owners.get)
    for number in range(OBJECT_POLICY_DOCUMENTS):
        names.name(f"comm://a/{number}", PolicyNameRow(f"d{number}", "x", number))
    last = f"comm://a/{OBJECT_POLICY_DOCUMENTS}", PolicyNameRow("more", "x", OBJECT_POLICY_DOCUMENTS)
    with pytest.raises(PeerError) as caught:
        names.name(*last)
    assert caught.value.code is Code.OVERLOAD
    del owners["comm://a/0"]
    names.name(*last)
    assert names.find(last[0]) == last[1]


def test_what_a_session_has_named_is_its_own_and_what_nobody_named_is_not_forgotten_on_disk() -> None:
    names = PolicyNames(journal := Journal(), {"a": 1, "b": 2}.get)
    ana, bo = PolicyNameRow("d", "ana", 1), PolicyNameRow("d", "bo", 2)
    names.name("a", ana)
    names.name("b", bo)
    assert [names.of_session(sid) for sid in (1, 2, 3)] == [{"a": ana}, {"b": bo}, {}]
    journal.take()
    names.forget("c")
    names.name("a", ana)
    assert not journal.take(), "nothing has changed"


def test_policies_that_move_in_are_reported_under_the_session_that_is_here() -> None:
    names, arrived = PolicyNames(Journal(), {"a": 7}.get), list[PolicyNameRow]()
    names.on_arrival = arrived.extend
    assert names.move_in({"a": PolicyNameRow("d", "ana", 1)}, 7) == {"a": PolicyNameRow("d", "ana", 7)}
    assert (arrived, names.of_session(7)) == ([PolicyNameRow("d", "ana", 7)], {"a": PolicyNameRow("d", "ana", 7)})


def test_policies_of_objects_need_the_catalogue(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[node]\ndomain = "a.example"\ndata_dir = "data"\n[policy]\ndocuments = true\n[catalogue]\nserve = false\n'
    )
    with pytest.raises(SettingsError, match="has to be on"):
        load_settings(file)


def test_a_document_has_its_place_until_the_last_object_that_named_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_names, "OBJECT_POLICY_DOCUMENTS", 1)
    names = PolicyNames(Journal(), {"a": 1, "b": 1, "c": 1}.get)
    for key in "ab":
        names.name(key, PolicyNameRow("d", "x", 1))
    names.forget("a")
    with pytest.raises(PeerError, check=lambda error: error.code is Code.OVERLOAD):
        names.name("c", PolicyNameRow("e", "x", 1))
    names.forget("b")
    names.name("c", PolicyNameRow("e", "x", 1))
    assert list(names) == ["e"]
