"""Policy between real nodes: who is denied, by which rule, and how often somebody may speak."""

from __future__ import annotations

import json
import shutil
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import trio

from interop.lab.spool import hashed_by, read_records
from interop.laboratory import POLICIES, LaboratoryNode
from protofly.records import DecisionRecord, MessageRecord
from trapezoid.admin_client import ask_node

from .systems import running_system, wait_until

FIND = ("records", "find", "--json", "--config")
INWARD = """
[[rules]]
id = "no-deletes-of-others"
effect = "deny"
condition = { hook = { equals = "in" }, actionType = { equals = "delete" } }
"""
RULE = """
[[rules]]
id = "no-deletes"
effect = "deny"
condition = { hook = { equals = "out" }, actionType = { equals = "delete" } }

[[rules]]
id = "no-long-journeys"
"""


async def test_an_unnamed_domain_is_denied_before_anybody_is_asked_about_it(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        answer = await anna.ask("hyperty://c.example/h-1")
        assert (answer.code, answer.reason) == (403, "domain-blocked")
        assert (await system.a.status()).link_to("c.example") is None
        assert (await anna.ask(bruno.hyperty)).is_ok


async def test_a_domain_on_the_deny_list_is_notified_at_once_and_the_lists_are_read_at_the_start(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        await system.change_settings(system.a, old="[policy]\n", new='[policy]\ndeny = ["*.example"]\n')
        await anna.open(system.nursery)
        answer = await anna.ask(bruno.hyperty)
        assert (answer.code, answer.reason) == (403, "domain-blocked")
        await system.change_settings(
            system.a, old='deny = ["*.example"]', new='deny = ["*.example"]\nallow = ["b.example"]'
        )
        await anna.open(system.nursery)
        assert (await anna.ask(bruno.hyperty)).is_ok


async def test_a_denial_names_its_rule_to_our_own_runtimes_and_in_the_records(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    shutil.copytree(POLICIES, policies)
    policy = policies / "a.example.policy.toml"
    policy.write_text(policy.read_text().replace('\n[[rules]]\nid = "no-long-journeys"\n', RULE))
    async with running_system(tmp_path / "laboratory", policies=policies) as system:
        anna, bruno = await system.couple()
        answer = await anna.client.request("delete", anna.hyperty, bruno.hyperty, {"resource": bruno.hyperty})
        assert isinstance(answer.value, dict)
        msg_id = answer.value.pop("msgId")
        assert (answer.code, answer.reason, answer.value) == (403, "policy", {"rule": "a-example/no-deletes"})
        assert (await anna.ask(bruno.hyperty)).is_ok
        assert (await system.link(system.a)).denied == 1
        assert await system.laboratory.stop_nodes() == {"a.example": 0, "b.example": 0}
        [decision] = read_records(system.a.folder.data / "records", DecisionRecord)
    assert (decision.rule_id, decision.permitted, decision.msg_type) == ("a-example/no-deletes", False, "delete")
    assert decision.msg_id == msg_id
    hashed = hashed_by(system.a.folder.data)
    assert (decision.src_key, decision.dst_key) == (hashed(anna.hyperty), hashed(bruno.hyperty))
    assert all(one.msg_type != "delete" for one in read_records(system.b.folder.data / "records", MessageRecord))


async def test_one_id_leads_from_a_refusal_abroad_to_log_records_and_denials_at_the_node_that_refused(
    tmp_path: Path,
) -> None:
    policies = tmp_path / "policies"
    shutil.copytree(POLICIES, policies)
    policy = policies / "b.example.policy.toml"
    policy.write_text(policy.read_text().replace("\n[[rules]]", f"{INWARD}\n[[rules]]", 1))
    async with running_system(tmp_path / "laboratory", policies=policies) as system:
        await system.change_settings(system.b, old="[log]\n", new='[log]\nformat = "json"\n')
        anna, bruno = await system.couple()
        answer = await anna.client.request("delete", anna.hyperty, bruno.hyperty, {"resource": bruno.hyperty})
        assert (answer.code, answer.reason) == (403, "policy")
        assert isinstance(answer.value, dict)
        (name, msg_id), *others = answer.value.items()
        assert (name, others) == ("msgId", [])  # their rule is none of our business

        async def denied() -> list[dict[str, str]]:
            denials = await trio.to_thread.run_sync(ask_node, system.b.folder.data, "denials", {})
            return [row for row in denials["rows"] if row["msg_id"] == msg_id]

        [denial] = await wait_until(denied, bool)
        assert (denial["rule"], denial["code"], denial["gate"]) == ("b-example/no-deletes-of-others", "policy", "in")
        lines = [json.loads(line) for line in system.b.folder.log.read_text().splitlines() if line.startswith("{")]
        [line] = [one for one in lines if one.get("msg_id") == msg_id]
        assert "b-example/no-deletes-of-others" in line["message"]
        assert msg_id in line["message"]  # as text has it
        for node, role, outcome in ((system.a, "out", "delivered"), (system.b, "in", "denied")):
            records = await found_by(node, msg_id)
            of_role = [one for one in records if one.get("role") == role]
            assert [one["outcome"] for one in of_role] == [outcome], records


async def test_the_id_in_a_refusal_without_a_link_leads_to_its_record(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    shutil.copytree(POLICIES, policies)
    policy = policies / "a.example.policy.toml"
    text = policy.read_text().replace('["peer", "out", "in"]', '["local", "peer", "out", "in"]', 1)
    policy.write_text(text.replace('\n[[rules]]\nid = "no-long-journeys"\n', RULE.replace('"out"', '"local"')))
    async with running_system(tmp_path / "laboratory", policies=policies) as system:
        anna, _ = await system.couple()
        arno = await system.talker(system.a, "arno")
        local = await anna.client.request("delete", anna.hyperty, arno.hyperty, {"resource": arno.hyperty})
        first = await anna.ask("hyperty://c.example/h-1")
        for answer, hook, rule in ((local, "local", "a-example/no-deletes"), (first, "peer", None)):
            assert isinstance(answer.value, dict)
            [found] = await wait_until(partial(found_by, system.a, answer.value["msgId"]), bool)
            assert (found["hook"], found["permitted"], found.get("rule_id")) == (hook, False, rule)
            denials = await trio.to_thread.run_sync(ask_node, system.a.folder.data, "denials", {})
            [shown] = [row for row in denials["rows"] if row["msg_id"] == found["msg_id"]]
            searched = await trio.to_thread.run_sync(
                ask_node, system.a.folder.data, "denials", {"since": time.time() - 60, "gate": hook}
            )
            [row] = searched["rows"]
            hashed = hashed_by(system.a.folder.data)
            assert row == {**shown, "from": hashed(shown["from"]), "to": hashed(shown["to"])}


async def found_by(node: LaboratoryNode, msg_id: object) -> list[dict[str, object]]:
    """What `trapezoid records find` says about a message."""
    command = [sys.executable, "-m", "trapezoid", *FIND, str(node.folder.settings), "--id", str(msg_id)]
    found = await trio.run_process(command, capture_stdout=True, check=False)
    records: list[dict[str, object]] = json.loads(found.stdout)["records"]
    return records


SLOW = 'domain = "b.example"\nmessages_per_second = 5.0'  # ten at once


async def test_who_speaks_too_often_learns_when_to_try_again(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        await system.change_settings(system.a, old='domain = "b.example"', new=SLOW)
        anna, bruno = await system.couple()
        carla = await system.talker(system.a, "carla")
        granted = 0
        while (answer := await anna.ask(bruno.hyperty)).is_ok:
            granted += 1
        assert 5 <= granted < 20
        assert (answer.code, answer.reason) == (429, "rate")
        assert isinstance(answer.value, dict)
        assert 0 < answer.value["retryAfter"] <= 1
        assert (await anna.ask(carla.hyperty)).is_ok
        # Both directions have the same rate: the last one may have come through, and only its reply was too many.
        assert len(bruno.heard) - 1 - granted in (0, 1)


async def test_who_asks_is_notified_at_once_when_the_reply_is_denied(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        await system.change_settings(system.a, old='domain = "b.example"', new=SLOW)
        anna, bruno = await system.couple()
        for number in range(1, 31):
            await bruno.post(anna.hyperty, number)
        await system.wait_link(system.a, lambda one: one.denied > 0)
        answer = await anna.ask(bruno.hyperty)  # nobody who waits until the reply is overdue hears this code
        assert answer.code == 429
        assert isinstance(answer.value, dict)
        assert answer.value["retryAfter"] > 0


LIMIT = """
[limits]
calls = { by = "sender", per = "day", messages = 2 }

[[rules]]
id = "a-few"
effect = "permit"
condition = { linkDomain = { equals = "b.example" }, hook = { equals = "out" }, actionType = { equals = "read" } }
obligations = { limit = "calls" }

[[rules]]
id = "no-long-journeys"
"""


async def test_a_rule_lets_pass_as_much_as_its_limit_says_and_a_restart_does_not_refill_it(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    shutil.copytree(POLICIES, policies)
    policy = policies / "a.example.policy.toml"
    policy.write_text(policy.read_text().replace('\n[[rules]]\nid = "no-long-journeys"\n', LIMIT))
    async with running_system(tmp_path / "laboratory", policies=policies) as system:
        anna, bruno = await system.couple()
        body = {"resource": bruno.hyperty}
        answers = [await anna.client.request("read", anna.hyperty, bruno.hyperty, body) for _ in range(3)]
        assert [answer.reason for answer in answers] == [answers[0].reason] * 2 + ["quota"]
        assert isinstance(answers[2].value, dict)
        assert answers[2].value["rule"] == "a-example/a-few"
        assert answers[2].value["retryAfter"] > 0
        assert (await anna.ask(bruno.hyperty)).is_ok  # by another rule
        [row] = (await trio.to_thread.run_sync(ask_node, system.a.folder.data, "limits", {}))["rows"]
        assert (row["limit"], row["who"], row["messages"], row["most_messages"]) == ("calls", anna.hyperty, 2, 2)
        await system.change_settings(system.a, old="[policy]\n", new="[policy]\n# started again\n")
        await anna.open(system.nursery)
        again = await anna.client.request("read", anna.hyperty, bruno.hyperty, body)
        assert (again.code, again.reason) == (429, "quota")


RULES = """
id = "s"
[[rules]]
id = "r"
effect = "permit"
condition = {{ hook = {{ equals = "{hook}" }}, msgTo = {{ equals = "{to}" }} }}
obligations = {{ {obligation} }}
[[rules]]
id = "rest"
effect = "permit"
priority = 9
"""


@pytest.mark.long
async def test_requests_are_redirected_and_answered_between_real_nodes(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        carla, boris = await system.talker(system.a, "carla"), await system.talker(system.b, "boris")

        async def use(node: LaboratoryNode, hook: str, to: str, obligation: str) -> None:
            files = {"p.toml": RULES.format(hook=hook, to=to, obligation=obligation)}
            added = await trio.to_thread.run_sync(ask_node, node.folder.data, "policy add", {"files": files})
            bundle = {"bundle": added["after"]["bundle"]}
            await trio.to_thread.run_sync(ask_node, node.folder.data, "policy activate", bundle)

        await use(system.a, "out", bruno.hyperty, f'redirect = "{carla.hyperty}"')
        before = len(bruno.heard)
        assert (await anna.ask(bruno.hyperty)).is_ok
        assert (len(carla.heard), len(bruno.heard)) == (1, before)
        await use(system.a, "local", carla.hyperty, f'redirect = "{bruno.hyperty}"')
        assert (await anna.ask(carla.hyperty)).is_ok
        assert (len(carla.heard), len(bruno.heard)) == (1, before + 1)
        await use(system.a, "out", bruno.hyperty, 'answer = "486 Busy"')
        assert (await anna.ask(bruno.hyperty)).code == 486
        await use(system.a, "out", "hyperty://b.example/nobody", "answer = 404")
        await use(system.b, "in", bruno.hyperty, 'answer = { code = 480, description = "Away" }')
        answer = await anna.ask(bruno.hyperty)
        assert (answer.code, answer.body["description"]) == (480, "Away")
        await use(system.b, "in", bruno.hyperty, f'redirect = "{boris.hyperty}"')
        assert (await anna.ask(bruno.hyperty)).is_ok
        assert (len(boris.heard), len(bruno.heard)) == (1, before + 1)
        await use(system.b, "in", bruno.hyperty, f'redirect = "{anna.hyperty}"')
        assert (await anna.ask(bruno.hyperty)).reason == "transit"
