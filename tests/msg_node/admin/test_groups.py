"""Groups that rules refer to: changed by operators and policy managers, kept, and in force at once or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.storage.policy_store import PolicyStore
from protofly.errors import SettingsError
from protofly.records import PolicyEvent
from tests.support.admin_rig import PEP_ADDRESS, admin_rig, ask_admin
from tests.support.runtime_rig import DOMAIN, Json, Runtime

STAFF = """
id = "staff"
target = { hook = { equals = "local" } }
[[rules]]
id = "staff-only"
effect = "deny"
condition = { not = { msgFrom = { in = "@staff" } } }
"""
DOMAINS = STAFF.replace("msgFrom", "srcSPDomain").replace('"staff"\ntarget', '"domains"\ntarget')
TESTED = (
    STAFF
    + f"""
[[tests]]
hook = "local"
from = "hyperty://{DOMAIN}/a"
to = "hyperty://{DOMAIN}/b"
expect = "not-applicable"
"""
)
ANA = f"hyperty://{DOMAIN}/a"


async def change(ops: Runtime, what: str, **arguments: str) -> Json:
    return await ask_admin(ops, f"group {what}", arguments=arguments)


async def done(ops: Runtime, what: str, **arguments: str) -> Json:
    reply = await change(ops, what, **arguments)
    assert reply["code"] == 200, reply
    value: Json = reply["value"]
    return value


async def in_force(ops: Runtime, text: str) -> None:
    added = await ask_admin(ops, "policy add", arguments={"files": {"p.toml": text}})
    assert added["code"] == 200, added
    assert (await ask_admin(ops, "policy activate", arguments={"bundle": added["value"]["after"]["bundle"]}))[
        "code"
    ] == 200


async def would_pass(ops: Runtime) -> bool:
    asked = {"from": ANA, "to": f"{ANA}2", "type": "update", "gate": "local"}
    permitted: bool = (await ask_admin(ops, "evaluate", "read", arguments=asked))["value"]["permitted"]
    return permitted


async def groups(ops: Runtime) -> dict[str, list[str]]:
    return {row["group"]: row["members"] for row in (await ask_admin(ops, "groups", "read"))["value"]["rows"]}


async def test_a_member_counts_from_its_change_on_flows_end_and_it_is_recorded(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        await done(ops, "create", group="staff")
        await in_force(ops, STAFF)
        assert not await would_pass(ops)
        era = at.rig.gate.era
        await done(ops, "add", group="staff", member=ANA)
        assert at.rig.gate.era is not era
        assert await would_pass(ops)
        assert await groups(ops) == {"staff": [ANA]}
        await done(ops, "take", group="staff", member=ANA)
        assert not await would_pass(ops)
        events = [one for one in at.rig.records.taken if isinstance(one, PolicyEvent) and one.cause == "groups"]
        assert [one.actor for one in events] == [f"{ops.address} by message"] * 2
        assert [one.operation for one in at.events if one.operation.startswith("group")] == [
            "group create",
            "group add",
            "group take",
        ]


async def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        await done(ops, "create", group="staff")
        await in_force(ops, STAFF)
        reply = await ask_admin(ops, "group add", arguments={"group": "staff", "member": ANA}, dryRun=True)
        assert (reply["value"]["before"]["members"], reply["value"]["after"]["members"]) == (0, 1)
        assert reply["value"]["before"]["revision"] != reply["value"]["after"]["revision"]
        assert (await groups(ops), await would_pass(ops)) == ({"staff": []}, False)


async def test_policies_that_name_a_group_that_there_is_not_are_refused(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        refused = await ask_admin(ops, "policy add", arguments={"files": {"p.toml": STAFF}})
        assert (refused["code"], refused["reason"]) == (422, "policy-invalid")


@pytest.mark.parametrize(
    ("policy", "what", "member", "reason"),
    [
        (STAFF, "remove", None, "in-use"),
        (DOMAINS, "add", "no domain at all", "policy-invalid"),
        (TESTED, "take", ANA, "policy-invalid"),
    ],
)
async def test_what_the_policies_in_force_cannot_take_changes_nothing(
    tmp_path: Path, policy: str, what: str, member: str | None, reason: str
) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        await done(ops, "create", group="staff")
        if policy is TESTED:
            await done(ops, "add", group="staff", member=ANA)
        await in_force(ops, policy)
        before, revision = await groups(ops), at.rig.gate.policies.revision
        arguments = {"group": "staff"} | ({} if member is None else {"member": member})
        assert (await change(ops, what, **arguments))["reason"] == reason
        assert (await groups(ops), at.rig.gate.policies.revision) == (before, revision)
        assert PolicyStore(tmp_path).groups() == {name: tuple(members) for name, members in before.items()}


@pytest.mark.parametrize(
    ("what", "arguments", "reason"),
    [
        ("create", {"group": "staff"}, "in-use"),
        ("create", {"group": "../x"}, "bad-body"),
        ("create", {"group": ""}, "bad-body"),
        ("create", {"group": "x" * 65}, "bad-body"),
        ("create", {"group": "third"}, "quota"),
        ("add", {"group": "staff", "member": "b"}, "quota"),
        ("add", {"group": "nobody", "member": "b"}, "not-registered"),
        ("add", {"group": "other", "member": ""}, "bad-body"),
        ("add", {"group": "other", "member": " a"}, "bad-body"),
        ("add", {"group": "other", "member": "a\nb"}, "bad-body"),
        ("take", {"group": "staff", "member": "b"}, "not-registered"),
        ("remove", {"group": "nobody"}, "not-registered"),
    ],
)
async def test_changes_beyond_bounds_or_of_what_is_not_there_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, arguments: dict[str, str], reason: str
) -> None:
    monkeypatch.setattr("msg_node.admin.group_changes.POLICY_GROUPS", 2)
    monkeypatch.setattr("msg_node.admin.group_changes.POLICY_GROUP_MEMBERS", 1)
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        for name in ("staff", "other"):
            await done(ops, "create", group=name)
        for _ in range(2):
            await done(ops, "add", group="staff", member="a")
        assert (await change(ops, what, **arguments))["reason"] == reason
        assert await groups(ops) == {"other": [], "staff": ["a"]}


async def test_groups_are_there_after_a_restart(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        await done(ops, "create", group="staff")
        await done(ops, "add", group="staff", member="a")
        assert await ask_admin(ops, "policy bundles", "read")
    async with admin_rig(tmp_path) as at:
        assert await groups(await at.operator()) == {"staff": ["a"]}


def test_a_file_of_groups_that_cannot_be_read_stops_the_node_and_is_never_taken_for_empty(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "groups.json").write_text('{"staff": [7]}')
    with pytest.raises(SettingsError, match=r"groups\.json"):
        PolicyStore(tmp_path).groups()


async def test_policy_managers_use_the_names_of_the_policy_engine_of_runtimes_and_are_no_operators(
    tmp_path: Path,
) -> None:
    async with admin_rig(tmp_path) as at:
        manager = await at.rig.runtime(bearer="manager")
        assert (await manager.open("boss"))["body"]["code"] == 200

        async def execute(method: str, **params: str) -> Json:
            body: Json = (await manager.ask("execute", PEP_ADDRESS, {"method": method, "params": params}))["body"]
            return body

        assert (await execute("createGroup", groupName="friends"))["code"] == 200
        assert (await execute("addToGroup", groupName="friends", userEmail="ana@a.example"))["code"] == 200
        assert (await execute("groups"))["value"]["rows"] == [
            {"group": "friends", "count": 1, "members": ["ana@a.example"]}
        ]
        assert (await execute("addToGroup", groupName="friends", group="x", userEmail="b"))["reason"] == "bad-body"
        assert (await execute("removeFromGroup", groupName="friends", userEmail="ana@a.example"))["code"] == 200
        assert (await execute("deleteGroup", groupName="friends"))["code"] == 200
        assert (await ask_admin(manager, "sessions", "read"))["reason"] == "policy"
