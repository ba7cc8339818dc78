"""Decisions on the own bus, and those that come before a link, stand in the records of a real node."""

from __future__ import annotations

from pathlib import Path

from interop.lab.spool import read_records
from protofly.records import DecisionRecord
from tests.support.runtime_rig import SESSION, a_message, code_and_reason

from .one_node import SETTINGS, serving

POLICY = """
id = "home"
target = { hook = { equals = "local" } }

[[rules]]
id = "no-reads"
effect = "deny"
condition = { actionType = { equals = "read" } }

[[rules]]
id = "no-updates"
effect = "deny"
mode = "report"
condition = { actionType = { equals = "update" } }

[[rules]]
id = "no-intruders"
effect = "deny"
condition = { actionType = { equals = "open" }, msgFrom = { like = "*/intruder" } }
"""


async def test_denials_and_what_report_mode_would_deny_are_recorded_at_home_and_before_a_link(tmp_path: Path) -> None:
    (tmp_path / "home.toml").write_text(POLICY)
    settings = SETTINGS.format(grace=1) + '[policy]\nfiles = ["home.toml"]\n'
    async with serving(tmp_path, settings) as node:
        ana, bo = await node.opened("ana"), await node.opened("bo")
        assert code_and_reason(await ana.ask("read", bo.address)) == (403, "policy")
        await ana.say(a_message("update", ana.address, bo.address, {"value": 1}))
        await ana.ask("create", "domain://registry.alpha.example", {})
        assert [one["body"]["value"] for one in await bo.heard()] == [1]
        assert code_and_reason(await ana.ask("create", "hyperty://gamma.example/h")) == (403, "domain-blocked")
        intruder = await node.runtime()
        assert code_and_reason(await intruder.ask("open", SESSION, from_="runtime://alpha.example/intruder")) == (
            403,
            "policy",
        )
        status = await node.counters()
        assert status["decisions not recorded"] == 0
    found = [
        (one.hook, one.permitted, one.msg_type, one.rule_id, one.reason, one.shadow)
        for one in read_records(tmp_path / "data" / "records", DecisionRecord)
    ]
    assert found == [
        ("local", False, "read", "home/no-reads", "policy", None),
        ("local", True, "update", None, None, ("home/no-updates deny",)),
        ("peer", False, "create", None, "domain-blocked", None),
        ("local", False, "open", "home/no-intruders", "policy", None),
    ]
