"""Bundles of policies: added, tried, put in force, rolled back; by message, and by the policy manager's own address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msg_node.wiring.session_steps import LocalGate
from policy.core.text import PolicyText, load_policies
from protofly.records import MessageRecord, PolicyEvent
from tests.support.admin_rig import PEP_ADDRESS, AdminRig, admin_rig, ask_admin
from tests.support.policies import unrecorded
from tests.support.runtime_rig import DOMAIN, FOREIGN, Json, Runtime, runtime_address

CLOSED = """
id = "closed"
[[rules]]
id = "nobody-updates"
effect = "deny"
condition = { actionType = { equals = "update" } }
[[tests]]
from = "hyperty://alpha.example/a"
to = "hyperty://alpha.example/b"
type = "update"
expect = "deny"
"""
OPEN = 'id = "open"\n[[rules]]\nid = "all"\neffect = "permit"\n'
FAILING = CLOSED.replace('expect = "deny"', 'expect = "permit"')
HYPERTY = f"hyperty://{DOMAIN}/h"


async def add(ops: Runtime, text: str, name: str = "border.toml", note: str = "") -> Json:
    return await ask_admin(ops, "policy add", arguments={"files": {name: text}, "note": note})


async def added(ops: Runtime, text: str) -> str:
    reply = await add(ops, text)
    assert reply["code"] == 200, reply
    digest: str = reply["value"]["after"]["bundle"]
    return digest


async def activate(ops: Runtime, name: str, *, dry_run: bool = False) -> Json:
    return await ask_admin(ops, "policy activate", arguments={"bundle": name}, dryRun=dry_run)


async def would_pass(ops: Runtime, type_: str = "update", **more: str) -> bool:
    message = {"from": HYPERTY, "to": f"{HYPERTY}2", "type": type_, "gate": "local"}
    reply = await ask_admin(ops, "evaluate", "read", arguments={**message, **more})
    answer: bool = reply["value"]["permitted"]
    return answer


async def states(ops: Runtime) -> list[tuple[str, str]]:
    page = await ask_admin(ops, "policy bundles", "read")
    return [(row["bundle"], row["state"]) for row in page["value"]["rows"]]


def policy_events(at: AdminRig) -> list[PolicyEvent]:
    return [one for one in at.rig.records.taken if isinstance(one, PolicyEvent)]


async def test_a_bundle_is_kept_first_and_in_force_when_it_is_activated(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        era, before = at.node.gate.era, at.node.gate.policies.revision
        digest = await added(ops, CLOSED)
        assert at.node.gate.policies.revision == before
        assert await would_pass(ops)
        assert not await would_pass(ops, bundle=digest[:8])
        reply = await activate(ops, digest[:12])
        assert (reply["code"], reply["value"]["before"]["bundle"]) == (200, "settings")
        assert not await would_pass(ops)
        assert at.node.gate.era is not era  # so that flows are asked again
        [event] = policy_events(at)
        assert (event.cause, event.before, event.actor) == (
            "activation",
            before,
            f"{runtime_address('ops')} by message",
        )
        assert event.files == (f"{digest}/border.toml",)
        assert [one.operation for one in at.events] == ["policy add", "policy activate"]
        assert await states(ops) == [(digest, "in force"), ("settings", "roll-back")]


async def test_roll_backs_lead_back_step_by_step_to_what_was_first(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        closed, open_ = await added(ops, CLOSED), await added(ops, OPEN)
        for name in (closed, open_, "settings"):
            assert (await activate(ops, name))["code"] == 200
        found = []
        for _ in range(4):
            reply = await ask_admin(ops, "policy roll-back")
            found.append(reply["value"]["after"]["bundle"] if reply["code"] == 200 else reply["reason"])
        assert found == [open_, closed, "settings", "no-such-bundle"]
        assert [one.cause for one in policy_events(at)][3:] == ["roll-back"] * 3
        reply = await ask_admin(ops, "policy active", "read")
        assert reply["value"]["source"] == "settings"


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (FAILING, "border.toml", "border.toml:7: test"),
        (CLOSED.replace("effect = ", "effect ", 1), "border.toml", "border.toml"),
        (OPEN, "border.exe", "ends in .toml or .json"),
        (OPEN, "border\n.toml", "ends in .toml or .json"),
        ("", "border.toml", "empty"),
        ('{"id": "x", "rules": ' + "[" * 5000 + "]" * 5000 + "}", "deep.json", "deep.json"),
    ],
)
async def test_what_cannot_be_used_is_refused_with_its_place_and_not_kept(
    text: str, name: str, words: str, tmp_path: Path
) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        reply = await add(ops, text, name)
        assert (reply["code"], reply["reason"]) == (422, "policy-invalid")
        assert words in reply["description"]
        assert await states(ops) == [("settings", "in force")]
        [event] = at.events
        assert (event.operation, event.code) == ("policy add", "policy-invalid")
        assert len(event.arguments) < 2000


async def test_what_is_in_force_or_was_before_is_not_removed(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        closed, open_ = await added(ops, CLOSED), await added(ops, OPEN)
        await activate(ops, closed)
        reply = await ask_admin(ops, "policy remove", arguments={"bundle": closed})
        assert (reply["code"], reply["reason"]) == (409, "in-use")
        assert (await activate(ops, closed))["reason"] == "in-use"
        assert (await ask_admin(ops, "policy remove", arguments={"bundle": open_}))["code"] == 200
        assert (await activate(ops, open_))["reason"] == "no-such-bundle"
        assert (await activate(ops, "abc"))["reason"] == "no-such-bundle"


async def test_a_dry_run_shows_which_of_the_last_decisions_would_change(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        digest = await added(ops, CLOSED)
        records = [a_record(f"{HYPERTY}{number}", "update" if number % 2 else "create") for number in range(10)]
        at.node.traffic.decisions.observe(records)
        reply = (await activate(ops, digest, dry_run=True))["value"]
        assert not policy_events(at)
        # The rig has no entry for that domain: without a rule that permits, all is denied already, whatever they were.
        assert (reply["after"]["decisions_tried"], reply["after"]["decisions_that_change"]) == (10, 0)
        await activate(ops, await added(ops, OPEN))
        events = len(policy_events(at))
        reply = (await activate(ops, digest, dry_run=True))["value"]
        assert len(policy_events(at)) == events
        assert reply["after"]["decisions_tried"] == 10
        # The gate of the rig knows no entry for that domain: all that no rule denies is denied by default.
        assert reply["after"]["decisions_that_change"] == 10
        assert {one["rule"] for one in reply["after"]["changes"]} == {"closed/nobody-updates", "default"}
        assert await would_pass(ops)


def a_record(sender: str, type_: str) -> MessageRecord:
    return MessageRecord(
        ts_us=1_700_000_000_000_000,
        role="out",
        msg_id="00",
        attempt=1,
        src_domain=DOMAIN,
        dst_domain=FOREIGN,
        src_key=sender,
        dst_key=f"hyperty://{FOREIGN}/b",
        msg_type=type_,
        size_in=100,
        digest="",
        outcome="delivered",
        decision="permit",
    )


async def test_the_policy_manager_serves_the_requests_of_the_message_specification(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()

        async def ask(type_: str, **body: object) -> Json:
            answer: Json = (await ops.ask(type_, PEP_ADDRESS, body))["body"]
            return answer

        rule = {"effect": "deny", "condition": {"actionType": {"equals": "update"}}}
        created = await ask("create", resource="/bundles", value={"id": "closed", "rules": [rule]})
        digest = created["value"]["after"]["bundle"]
        assert (created["value"]["id"], created["value"]["digest"]) == (digest, digest)
        message = {"id": 1, "type": "update", "from": HYPERTY, "to": f"hyperty://{FOREIGN}/b"}
        params = {"hook": "domain-out", "bundle": digest, "message": message}
        evaluated = await ask("execute", method="evaluate", params=params)
        assert (evaluated["value"]["decision"], evaluated["value"]["rule"]) == ("deny", "closed/1")
        assert (await ask("update", resource="/active", value={"bundle": digest}))["code"] == 200
        assert (await ask("read", resource="/active"))["value"]["bundle"] == digest
        assert (await ask("read", resource=f"/bundles/{digest}"))["value"]["files"].keys() == {"policy.json"}
        assert (await ask("delete", resource=f"/bundles/{digest}"))["reason"] == "in-use"
        assert (await ask("execute", method="roll-back"))["code"] == 200
        assert (await ask("delete", resource=f"/bundles/{digest}"))["code"] == 200
        assert [row["bundle"] for row in (await ask("read", resource="/bundles"))["value"]["rows"]] == ["settings"]
        assert (await ask("read", resource="/decisions", criteria={"limit": 5}))["value"]["rows"] == []
        assert (await ask("read", resource="/nothing"))["reason"] == "no-such-service"
        assert (await ask("execute", method="addPolicy"))["reason"] == "no-such-service"


async def test_requests_to_the_policy_manager_pass_the_gate_of_the_own_bus(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        at.rig.judge_local = LocalGate(unrecorded(at.rig.gate)).judge
        condition = f'{{ hook = {{ equals = "local" }}, msgTo = {{ equals = "{PEP_ADDRESS}" }} }}'
        closed = f'id = "s"\n[[rules]]\nid = "closed"\neffect = "deny"\ncondition = {condition}\n'
        at.rig.gate.replace(load_policies([PolicyText("p", closed, "toml")]))
        for type_, body in (("read", {"resource": "/active"}), ("execute", {"method": "roll-back"})):
            refused = (await ops.ask(type_, PEP_ADDRESS, body))["body"]
            assert (refused["code"], refused["reason"], refused["value"]["rule"]) == (403, "policy", "s/closed")
        assert at.events == []


async def test_only_operators_of_the_domain_ask_the_policy_manager(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        plain = await at.rig.opened("bob")
        reply = (await plain.ask("read", PEP_ADDRESS, {"resource": "/active"}))["body"]
        assert (reply["code"], reply["reason"]) == (403, "policy")
        ops = await at.operator()
        refused = await ops.ask("execute", PEP_ADDRESS, {"method": "roll-back"}, from_=f"{HYPERTY}-of-ops")
        assert refused["body"]["code"] in (403, 404)
        assert not at.events


async def test_only_so_many_bundles_are_kept_and_none_that_is_needed_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msg_node.storage.policy_store.POLICY_BUNDLES", 4)
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        first = await added(ops, CLOSED)
        await activate(ops, first)
        others = [await added(ops, OPEN.replace("all", f"all-{number}")) for number in range(6)]
        kept = [name for name, _state in await states(ops)]
        assert first in kept
        assert others[-1] in kept
        assert len(kept) <= 5
        assert len(list((tmp_path / "policies").glob("*.json"))) <= 5


async def test_a_bundle_that_was_changed_on_the_disk_is_not_used(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        digest = await added(ops, CLOSED)
        path = tmp_path / "policies" / f"{digest}.json"
        content = json.loads(path.read_text())
        content["files"]["border.toml"] = OPEN
        path.write_text(json.dumps(content))
        assert (await activate(ops, digest))["code"] != 200
        assert at.node.gate.policies.sets == ()
