"""The admin service by message: the same operations, audit and dry run as on the socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.admin_rig import ADMIN_ADDRESS, admin_rig, ask_admin
from tests.support.runtime_rig import a_message, runtime_address

BOB = runtime_address("bob")


async def test_an_operator_sees_and_changes_and_each_change_is_an_audit_record(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops, _bob = await at.operator(), await at.rig.opened("bob")
        seen = await ask_admin(ops, "sessions", "read", arguments={"where": "runtime=bob"})
        assert [row["runtime"] for row in seen["value"]["rows"]] == [BOB]
        assert (await ask_admin(ops, "status", "read"))["value"] == {"domain": "alpha.example"}
        assert not at.events

        tried = await ask_admin(ops, "kick", arguments={"runtime": BOB}, dryRun=True)
        assert (tried["code"], tried["value"]["dry_run"], at.has_session("bob")) == (200, True, True)
        assert not at.events

        done = await ask_admin(ops, "kick", arguments={"runtime": BOB, "ban": "1h"})
        assert (done["code"], done["value"]["after"]["sessions"], at.has_session("bob")) == (200, [], False)
        [event] = at.events
        assert (event.operation, event.actor, event.way) == ("kick", runtime_address("ops"), "message")
        assert json.loads(event.arguments) == {"runtime": BOB, "ban": 3600.0}
        page = await ask_admin(ops, "restrictions", "read")
        assert [row["by"] for row in page["value"]["rows"]] == [f"{runtime_address('ops')} by message"]


GATE = {"from": "alpha.example", "to": "*.example", "type": "read"}


async def test_a_gate_is_set_shown_replaced_and_ended(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        question = {"from": "hyperty://alpha.example/a", "to": "hyperty://b.example/b", "type": "read", "gate": "local"}
        tried = await ask_admin(ops, "gate set", arguments={**GATE, "for": "1h"}, dryRun=True)
        assert (tried["value"]["before"], tried["value"]["after"]["effect"]) == (None, "deny")
        assert (await ask_admin(ops, "gates", "read"))["value"]["rows"] == []
        moment = "2101-03-01T18:00:00Z"
        refused = await ask_admin(ops, "gate set", arguments={**GATE, "until": moment})
        assert (refused["code"], refused["reason"]) == (400, "bad-body")  # too far
        await ask_admin(ops, "gate set", arguments={**GATE, "for": "2h", "reason": "trial"})
        verdict = (await ask_admin(ops, "evaluate", "read", arguments=question))["value"]
        assert (verdict["permitted"], verdict["decided_by"]) == (False, "gate")
        assert verdict["rule"] == "gate: deny alpha.example > *.example type=read"
        done = await ask_admin(ops, "gate set", arguments={**GATE, "effect": "permit", "for": "1h"})
        assert (done["value"]["before"]["effect"], done["value"]["after"]["effect"]) == ("deny", "permit")
        [row] = (await ask_admin(ops, "gates", "read"))["value"]["rows"]
        assert (row["effect"], row["from"], row["to"], row["type"]) == ("permit", "alpha.example", "*.example", "read")
        assert (await ask_admin(ops, "restrictions", "read"))["value"]["rows"] == []
        assert (await ask_admin(ops, "evaluate", "read", arguments=question))["value"]["decided_by"] == "gate"
        await ask_admin(ops, "gate unset", arguments=GATE)
        assert (await ask_admin(ops, "evaluate", "read", arguments=question))["value"]["decided_by"] == "default"
        again = await ask_admin(ops, "gate unset", arguments=GATE)
        assert (again["code"], again["reason"]) == (404, "not-registered")
        words = [(one.operation, one.code) for one in at.events]
        assert words == [
            ("gate set", "bad-body"),
            ("gate set", None),
            ("gate set", None),
            ("gate unset", None),
            ("gate unset", "not-registered"),
        ]


@pytest.mark.parametrize(
    "term", [{}, {"for": "1h", "until": 4e9}, {"until": 5.0}, {"until": "noon"}, {"for": "1h", "scheme": "a b"}]
)
async def test_a_gate_without_one_end_to_come_is_refused(term: dict[str, object], tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        refused = await ask_admin(ops, "gate set", arguments={**GATE, **term})
        assert (refused["code"], refused["reason"]) == (400, "bad-body")


async def test_there_are_so_many_gates_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msg_node.admin.changes.TEMPORARY_GATES", 1)
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        for target, code in (("b.example", 200), ("c.example", 429), ("b.example", 200)):
            answer = await ask_admin(ops, "gate set", arguments={"from": "*", "to": target, "for": "1h"})
            assert answer["code"] == code


async def test_changes_of_one_read_are_made_in_their_order(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        kick = {"operation": "kick", "arguments": {"runtime": BOB, "ban": "1h"}}
        unban = {"operation": "unban", "arguments": {"runtime": BOB}}
        await ops.say(
            *(
                a_message("execute", ops.address, ADMIN_ADDRESS, body, id_=number)
                for number, body in enumerate([kick, unban] * 4)
            )
        )
        assert [(await ops.next())["body"]["code"] for _ in range(8)] == [200] * 8
        assert [one.operation for one in at.events] == ["kick", "unban"] * 4
        assert not list(at.rig.state.restrictions)


@pytest.mark.parametrize("name", ["dryRun", "dry_run", "dryrun", "DryRun", "dry-run"])
async def test_a_dry_run_in_any_spelling_changes_nothing(name: str, tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops, _bob = await at.operator(), await at.rig.opened("bob")
        kick = {"operation": "kick", "arguments": {"runtime": BOB}}
        assert (await ops.ask("execute", ADMIN_ADDRESS, {**kick, name: True}))["body"]["code"] == 200
        refused = (await ops.ask("execute", ADMIN_ADDRESS, {**kick, name: "true"}))["body"]
        assert (refused["code"], refused["reason"], at.has_session("bob")) == (400, "bad-body", True)


@pytest.mark.parametrize(
    ("type_", "body", "expected"),
    [
        ("read", {"operation": "kick", "arguments": {"runtime": BOB}}, (405, "bad-type")),
        ("delete", {"operation": "sessions"}, (405, "bad-type")),
        ("execute", {"operation": "drop tables"}, (404, "no-such-service")),
        ("execute", {}, (404, "no-such-service")),
        ("execute", {"operation": ["kick"]}, (404, "no-such-service")),
        ("execute", {"operation": "kick", "arguments": [BOB]}, (400, "bad-body")),
        ("execute", {"operation": "kick", "arguments": {"runtime": BOB, "softly": True}}, (400, "bad-body")),
        (
            "execute",
            {"operation": "kick", "arguments": {"runtime": runtime_address("nobody")}},
            (404, "not-registered"),
        ),
        ("execute", {"operation": "sessions", "arguments": {"where": "colour=red"}}, (400, "bad-body")),
    ],
)
async def test_what_is_no_request_is_refused_with_its_code(
    type_: str, body: dict[str, object], expected: tuple[int, str], tmp_path: Path
) -> None:
    async with admin_rig(tmp_path) as at:
        ops, _bob = await at.operator(), await at.rig.opened("bob")
        answer = (await ops.ask(type_, ADMIN_ADDRESS, body))["body"]
        assert (answer["code"], answer["reason"], at.has_session("bob")) == (*expected, True)


async def test_a_reply_that_no_message_can_hold_is_refused_and_a_shorter_page_is_not(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, frame_bytes=600) as at:
        ops = await at.operator()
        for name in ("ana", "bob", "cy"):
            await at.rig.opened(name)
        refused = await ask_admin(ops, "sessions", "read")
        assert (refused["code"], refused["reason"]) == (413, "too-large")
        assert "limit" in refused["description"]
        assert (await ask_admin(ops, "sessions", "read", arguments={"limit": 1}))["value"]["total"] == 4
