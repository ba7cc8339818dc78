"""What real nodes write down: enough to judge every message again, and with addresses hashed nothing about people."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from interop.lab.spool import lines_of, read_records
from interop.laboratory import POLICIES
from policy.core.engine import Effect
from policy.files import read_policies
from protofly.records import MessageRecord, PolicyEvent, SessionEvent, StubEvent
from tests.support.replayed import facts_of

from .systems import running_system, wait_until

PLAIN = "[records]\nhash_addresses = false\n\n[[peer]]"
VIA = [f"runtime://{name}.example/x" for name in "cdefghi"]
SECRET = "the quick brown planted fox"


def everything_in(spool: Path) -> bytes:
    """All bytes of a spool, frames unpacked."""
    found = b""
    for path in sorted(spool.iterdir()):
        if path.name.endswith((".zst", ".open")):
            found += b"\n".join(lines_of(path))
        else:
            found += path.read_bytes()
    return found


async def test_no_byte_in_any_record_names_anybody_or_says_what_was_said(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        assert (await anna.client.request("read", anna.hyperty, bruno.hyperty, {"resource": SECRET})).is_ok
        for to in ("domain://registry.b.example", f"{bruno.hyperty}-nobody", "hyperty://b.example/ "):
            await anna.client.request("create", anna.hyperty, to, {"value": SECRET, "resource": SECRET})
        await anna.client.notify("create", "hyperty://b.example/forged", bruno.hyperty, {"value": SECRET})
        await system.laboratory.stop_nodes()
        spools = {node.domain: node.folder.data / "records" for node in (system.a, system.b)}
        people = [anna.hyperty, bruno.hyperty, "anna", "bruno", "forged", SECRET]
        for spool in spools.values():
            content = everything_in(spool)
            assert content.count(b'"node"') > 5
            for name in people:
                assert name.encode() not in content, name
        ours, theirs = (read_records(spool, MessageRecord) for spool in spools.values())
        sessions = read_records(spools["a.example"], SessionEvent)
    assert {one.src_key.partition(":")[0] for one in ours} >= {"hyperty"}
    assert all(one.runtime_key.startswith("runtime:") for one in sessions)
    denied = [one for one in theirs if one.outcome == "denied"]
    assert denied
    assert {one.msg_id for one in denied} <= {one.msg_id for one in ours}


async def test_recorded_decisions_are_those_that_the_policies_give_for_the_recorded_facts(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        for node in (system.a, system.b):
            await system.change_settings(node, old="[[peer]]", new=PLAIN)
        anna, bruno = await system.couple()
        await anna.client.request("create", anna.hyperty, "domain://registry.b.example", {"value": 1})
        await anna.client.request("read", anna.hyperty, "nonsense://b.example/x", {})
        await anna.client.request("update", anna.hyperty, bruno.hyperty, {"via": VIA})
        await system.laboratory.stop_nodes()
        spools = {node.domain: node.folder.data / "records" for node in (system.a, system.b)}
        judged = 0
        for domain, spool in spools.items():
            policies = read_policies([POLICIES / f"{domain}.policy.toml"])
            of_policies = [one for one in read_records(spool, MessageRecord) if one.reason not in (None, "node")]
            judged += len(of_policies)
            for one in of_policies:
                assert one.policy_rev == policies.revision
                decision = policies.decide(facts_of(one))
                assert (decision.rule_id or None) == one.rule_id
                assert (decision.effect is Effect.PERMIT) == (one.decision == "permit"), one
        assert judged >= 8


def _are(count: int, events: list[PolicyEvent]) -> bool:
    return len(events) == count


async def test_policies_and_stubs_are_recorded(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        await system.couple()
        spool, file = system.a.folder.data / "records", system.a.folder.policy

        async def policy_events() -> list[PolicyEvent]:
            return read_records(spool, PolicyEvent)

        good = file.read_text()
        for text, count in (
            (good + "\n# nothing new\n", 2),
            (good.replace("moreThan = 6", "moreThan = 5"), 3),
            ("", 4),
        ):
            file.write_text(text)
            os.kill(system.a.pid, signal.SIGHUP)
            await wait_until(policy_events, partial(_are, count))
        await system.laboratory.stop_nodes()
        start, same, changed, refused = await policy_events()
        stubs = read_records(spool, StubEvent)
        sent = [one for one in read_records(spool, MessageRecord) if one.role == "out" and one.channel == "stub"]
    assert (start.cause, start.before, start.files) == ("start", None, (str(file),))
    assert start.after == same.before == same.after == changed.before
    assert changed.after not in (None, changed.before)
    assert (refused.event, refused.before, refused.after) == ("refused", changed.after, None)
    assert len({one.diff_sha256 for one in (start, same, changed)}) == 3
    [summary] = [one for one in stubs if one.event == "summary"]
    assert summary.exchange_us is not None
    assert summary.exchange_fuel is not None
    exchanges = sum(count for _, count in summary.exchange_us)
    assert exchanges == sum(count for _, count in summary.exchange_fuel) == summary.calls
    assert summary.messages == len(sent) > 0
    assert all(one.fuel and one.d_stub_us for one in sent)
