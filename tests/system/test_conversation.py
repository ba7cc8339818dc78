"""The conversation of the demo between two real domains: cold, with a warm cache, and what both sides wrote down."""

from __future__ import annotations

from pathlib import Path

import msgspec
import trio

from interop.group_chat import GroupChat, Step
from interop.scene import Scene, load_scene
from protofly.records import DecisionRecord, LinkEvent, MessageRecord, SegmentManifest, StubEvent

from .spool import read_records
from .systems import System, running_system

SCENE_FILE = Path(__file__).parents[2] / "examples" / "two_domains" / "group_chat.toml"
MESSAGES_EACH = 50
STEPS = ["resolve", "live_document", "root", "manifest", "module", "verify", "compile", "start", "authenticate"]


def short_scene() -> Scene:
    full = load_scene(SCENE_FILE)
    chat = msgspec.structs.replace(full.chat, messages_each=MESSAGES_EACH, messages_per_second=10_000.0)
    return msgspec.structs.replace(full, chat=chat, changes=msgspec.structs.replace(full.changes, updates=5))


async def converse(system: System) -> GroupChat:
    steps: list[Step] = []
    chat = GroupChat(short_scene(), system.laboratory.doors, trace="traced", on_step=steps.append)
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
        assert await system.laboratory.stop_nodes() == {"a.example": 0, "b.example": 0}
        await system.laboratory.start_nodes()
        warm = await converse(system)
        link = await system.wait_link(system.a, lambda one: one.accepted == one.sent)
        assert link.cache == "hit"
        assert {step.name for step in link.steps}.isdisjoint({"resolve", "live_document", "root", "compile"})
        assert (link.lost, link.denied) == (0, 1)
    assert warm.first_contact_ns < cold.first_contact_ns


async def test_each_message_is_in_both_books_once_with_one_id_and_digest_and_the_books_are_sealed_on_sigterm(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        chat = await converse(system)
        for node in (system.a, system.b):
            await system.wait_link(node, lambda one: one.accepted == one.sent)
        with trio.fail_after(5):
            assert await system.laboratory.stop_nodes() == {"a.example": 0, "b.example": 0}
        books = {node.domain: node.folder.data / "records" for node in (system.a, system.b)}
    entries = {domain: read_records(spool, MessageRecord) for domain, spool in books.items()}
    for ours, theirs in (("a.example", "b.example"), ("b.example", "a.example")):
        left = {one.msg_id: one for one in entries[ours] if one.role == "out"}
        came = {one.msg_id: one for one in entries[theirs] if one.role == "in"}
        assert len(left) + len(came) == sum(
            1 for one in entries[ours] + entries[theirs] if (one.role, one.src_domain)[1] == ours
        )
        print('XX', [(one) for k, one in left.items() if k not in came])
        assert left.keys() == came.keys()
        assert {key: one.digest for key, one in left.items()} == {key: one.digest for key, one in came.items()}
        for key, one in left.items():
            assert (one.src_key, one.dst_key, one.msg_type) == (came[key].src_key, came[key].dst_key, came[key].msg_type)
            assert one.rule_id
    crossed = sum(flow.due for flow in chat.ledger.flows if flow.crosses)
    assert crossed
    check_seals(books)


def check_seals(books: dict[str, Path]) -> None:
    """Every segment is closed, and has a signed manifest that counts its records."""
    for spool in books.values():
        assert not list(spool.glob("*.open"))
        manifests = [
            msgspec.json.decode(path.read_bytes(), type=SegmentManifest) for path in spool.glob("*.manifest.json")
        ]
        assert len(manifests) == len(list(spool.glob("*.jsonl.zst")))
        assert all(one.signature and not one.lost_records for one in manifests)
        counted = {one.kind: one.records for one in manifests}
        for kind in (MessageRecord, DecisionRecord, StubEvent, LinkEvent):
            assert counted.get(kind.kind, 0) == len(read_records(spool, kind))
