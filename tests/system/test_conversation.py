"""The conversation of the demo between two real domains: cold, with a warm cache, and what both sides wrote down."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import trio

from interop.group_chat import ChatStep, GroupChat
from interop.lab.spool import hashed_by, read_records
from interop.scene import Scene, load_scene
from msg_node.admin.core.status_members import leaves, member_of, members
from protofly.records import DecisionRecord, LinkEvent, MessageRecord, RecordKind, SegmentManifest, StubEvent

from .systems import System, running_system

SCENE_FILE = Path(__file__).parents[2] / "examples" / "two_domains" / "group_chat.toml"
MESSAGES_EACH = 50
STEPS = ["resolve", "live_document", "root", "manifest", "module", "verify", "compile", "start", "authenticate"]


def short_scene() -> Scene:
    full = load_scene(SCENE_FILE)
    chat = msgspec.structs.replace(full.chat, messages_each=MESSAGES_EACH, messages_per_second=10_000.0)
    return msgspec.structs.replace(full, chat=chat, changes=msgspec.structs.replace(full.changes, updates=5))


async def converse(system: System) -> GroupChat:
    steps: list[ChatStep] = []
    chat = GroupChat(short_scene(), system.laboratory.access_points, trace="traced", on_step=steps.append)
    await chat.run()
    assert chat.is_faultless, (chat.ledger.totals(), chat.uncalled_for, chat.refusals)
    return chat


async def test_the_conversation_is_faultless_cold_and_again_after_a_restart_with_a_warm_cache(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        cold = await converse(system)
        link = await system.wait_link(system.a, lambda one: one.accepted == one.sent)
        assert link.cache == "miss"
        assert [step.name for step in link.steps] == STEPS
        assert (await system.a.status()).trace("traced") is not None
        shown = {member_of(leaf) for leaf in leaves(await system.whole_status(system.a))}
        assert [one.path for one in members() if not one.when and one not in shown] == []
        assert await system.laboratory.stop_nodes() == {"a.example": 0, "b.example": 0}
        await system.laboratory.start_nodes()
        warm = await converse(system)
        link = await system.wait_link(system.a, lambda one: one.accepted == one.sent)
        assert link.cache == "hit"
        assert {step.name for step in link.steps}.isdisjoint({"resolve", "live_document", "root", "compile"})
        assert (link.lost, link.denied) == (0, 1)
    assert warm.first_contact_ns < cold.first_contact_ns


async def test_each_message_is_in_both_records_once_with_one_id_and_digest_and_the_records_are_sealed_on_sigterm(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        await converse(system)
        for node in (system.a, system.b):
            await system.wait_link(node, lambda one: one.accepted == one.sent)
        with trio.fail_after(5):
            assert await system.laboratory.stop_nodes() == {"a.example": 0, "b.example": 0}
        spools = {node.domain: node.folder.data / "records" for node in (system.a, system.b)}
    entries = {domain: read_records(spool, MessageRecord) for domain, spool in spools.items()}
    for ours, theirs in (("a.example", "b.example"), ("b.example", "a.example")):
        left = by_id(one for one in entries[ours] if one.role == "out")
        came = by_id(one for one in entries[theirs] if one.role == "in")
        assert came.keys() == left.keys()
        for msg_id, one in came.items():
            same = left[msg_id]
            assert (same.digest, same.msg_type) == (one.digest, one.msg_type)
            # Each side has hashed with a key of its own.
            assert {same.src_key, same.dst_key}.isdisjoint({one.src_key, one.dst_key})
        assert all(one.rule_id or one.reason == "node" for one in left.values())
        assert sum(1 for one in left.values() if one.msg_type == "create") >= MESSAGES_EACH
    check_seals(spools)


def by_id(entries: Iterable[MessageRecord]) -> dict[str, MessageRecord]:
    """By id; each id only once."""
    found: dict[str, MessageRecord] = {}
    for one in entries:
        assert one.msg_id not in found
        found[one.msg_id] = one
    return found


async def test_a_message_that_the_far_gate_denies_can_be_found_in_both_records(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, _ = await system.couple()
        body = {"value": {"url": anna.hyperty, "user": "user://a.example/anna"}}
        answer = await anna.client.request("create", anna.hyperty, "domain://registry.b.example", body)
        assert (answer.code, answer.reason) == (403, "policy")
        await system.laboratory.stop_nodes()
        ours = read_records(system.a.folder.data / "records", MessageRecord)
        theirs = read_records(system.b.folder.data / "records", MessageRecord)
        [denial] = read_records(system.b.folder.data / "records", DecisionRecord)
    asked = hashed_by(system.a.folder.data)("domain://registry.b.example")
    assert [one.dst_key for one in ours if one.msg_id == denial.msg_id] == [asked]
    assert [one.outcome for one in theirs if one.msg_id == denial.msg_id] == ["denied"]


def check_seals(spools: dict[str, Path]) -> None:
    """Every segment is closed, and has a signed manifest that counts its records."""
    for spool in spools.values():
        assert not list(spool.glob("*.open"))
        manifests = [
            msgspec.json.decode(path.read_bytes(), type=SegmentManifest) for path in spool.glob("*.manifest.json")
        ]
        assert len(manifests) == len(list(spool.glob("*.zst")))
        assert all(one.signature and not one.lost_records for one in manifests)
        counted = {one.kind: one.records for one in manifests}
        assert counted[RecordKind.MESSAGE] == len(read_records(spool, MessageRecord))
        assert counted.get(RecordKind.DECISION, 0) == len(read_records(spool, DecisionRecord))
        assert counted.get(RecordKind.STUB, 0) == len(read_records(spool, StubEvent))
        assert counted[RecordKind.LINK] == len(read_records(spool, LinkEvent))
