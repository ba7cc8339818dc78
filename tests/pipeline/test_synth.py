from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from benchmarks.synth.fault_table import read_truth
from benchmarks.synth.run import synth
from benchmarks.synth.truth import Truth
from benchmarks.synth.world import SynthOptions
from policy.core.engine import Effect
from policy.files import read_policies
from protofly.errors import SettingsError
from protofly.records import DecisionRecord, LinkEvent, MessageRecord, PolicyEvent, RecordKind, StubEvent
from tests.pipeline.synth_reading import file_sha256, manifests, readable, records_in
from tests.support.replayed import facts_of

OPTIONS = SynthOptions(rows=12_000, domains=10, seed=7)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    out = tmp_path_factory.mktemp("synth")
    return out, synth(OPTIONS, out)


def messages(made: tuple[Path, Truth]) -> list[MessageRecord]:
    out, truth = made
    return [
        record for record in readable(out / "spool", RecordKind.MESSAGE, truth) if isinstance(record, MessageRecord)
    ]


def test_readable_records_are_as_many_as_the_truth_says(made: tuple[Path, Truth]) -> None:
    out, truth = made
    records = messages(made)
    assert len(records) == truth.records["mdr"] == sum(truth.roles.values()) == truth.decisions
    assert Counter(record.role for record in records) == truth.roles
    outcomes = Counter(f"{record.role} {record.outcome}" for record in records)
    assert outcomes == {name: count for name, count in truth.outcomes.items() if count}
    assert len({(record.node, record.boot, record.seq) for record in records}) == len(records)
    assert 0.9 < len(records) / OPTIONS.rows < 1.3
    assert sum(len(readable(out / "spool", kind, truth)) for kind in RecordKind) == sum(truth.records.values())


def test_the_sides_differ_in_exactly_the_planted_cases(made: tuple[Path, Truth]) -> None:
    _, truth = made
    sent: dict[str, list[MessageRecord]] = defaultdict(list)
    received: dict[str, list[MessageRecord]] = defaultdict(list)
    for record in messages(made):
        (sent if record.role == "out" else received)[record.msg_id].append(record)
    planted: dict[str, set[str]] = defaultdict(set)
    for case in truth.case_list:
        assert case.msg_id not in planted[case.case_class]
        planted[case.case_class].add(case.msg_id)

    delivered = {id_ for id_, (record, *_) in sent.items() if record.outcome == "delivered"}
    both = sent.keys() & received.keys()
    found = {
        "duplicated": {id_ for id_, copies in received.items() if len(copies) == 2},
        "altered": {id_ for id_ in both if sent[id_][0].digest != received[id_][0].digest},
        "size": {id_ for id_ in both if sent[id_][0].size_wire != received[id_][0].size_wire},
        "outcome": both - delivered,
        "skewed": {id_ for id_ in both if abs(sent[id_][0].ts_us - received[id_][0].ts_us) > 60_000_000},
    }
    one_sided = (delivered - received.keys()) | (received.keys() - sent.keys())
    assert one_sided == planted["lost"] | planted["orphan"] | planted["pending"]
    assert planted["lost"] <= delivered
    assert not planted["orphan"] & sent.keys()
    for case_class, ids in found.items():
        assert ids == planted[case_class], case_class
        assert ids, case_class
    assert len(both - set().union(*found.values())) == truth.matched
    assert {name: len(ids) for name, ids in planted.items()} == truth.cases


def test_the_deployed_policies_reproduce_every_recorded_decision_and_the_proposed_ones_flip_what_is_reported(
    made: tuple[Path, Truth],
) -> None:
    out, truth = made
    deployed = read_policies([out / "policy/deployed.toml"])
    proposed = read_policies([out / "policy/proposed.toml"])
    assert (deployed.revision, proposed.revision) == (truth.deployed_rev, truth.proposed_rev)
    flips: Counter[tuple[str, ...]] = Counter()
    for record in messages(made):
        facts = facts_of(record)
        old, new = deployed.decide(facts), proposed.decide(facts)
        assert record.policy_rev == deployed.revision
        assert ("permit" if old.effect is Effect.PERMIT else "deny", old.rule_id) == (record.decision, record.rule_id)
        assert record.reason == "policy"
        if old.effect is not new.effect:
            flips[record.role, record.src_domain, record.dst_domain, old.rule_id, new.rule_id] += 1
    shown = Counter(
        {(one.role, one.src_domain, one.dst_domain, one.old_rule, one.new_rule): one.messages for one in truth.flips}
    )
    assert flips == shown
    assert {one.new_decision for one in truth.flips} == {"permit", "deny"}


def test_untouched_segments_hold_what_their_manifests_say_and_are_chained_and_signed(made: tuple[Path, Truth]) -> None:
    out, truth = made
    keys = json.loads((out / "keys.json").read_bytes())
    touched = {(fault.node, fault.boot, fault.segno) for fault in truth.segments} | {
        (fault.node, fault.boot, 9) for fault in truth.segments if fault.fault == "renumbered"
    }
    before: dict[tuple[str, RecordKind], str] = {}
    for path, manifest in sorted(manifests(out / "spool"), key=lambda one: (one[1].boot, one[1].segno)):
        is_touched = manifest.kind is RecordKind.MESSAGE and (manifest.node, manifest.boot, manifest.segno) in touched
        if not is_touched:
            lines = records_in(path)
            assert manifest.sha256 == file_sha256(path)
            assert manifest.size_bytes == path.stat().st_size
            assert manifest.records == len(lines) == manifest.last_seq - manifest.first_seq + 1
            times = [json.loads(line)["ts_us"] for line in lines]
            assert (manifest.min_ts_us, manifest.max_ts_us) == (min(times), max(times))
            assert manifest.closed_us > manifest.max_ts_us
            key = keys[manifest.key_id]
            assert key["node"] == manifest.node
            public = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(key["pub"] + "="))
            public.verify(base64.urlsafe_b64decode(manifest.signature + "=="), manifest.signed_bytes())
            if manifest.node not in {fault.node for fault in truth.segments}:
                assert manifest.prev_sha256 == before.get((manifest.node, manifest.kind), "")
        before[manifest.node, manifest.kind] = manifest.sha256
    assert len({manifest.boot for _, manifest in manifests(out / "spool")}) > OPTIONS.domains, "one of them restarted"


def test_every_fault_of_segments_is_there_and_shows(made: tuple[Path, Truth]) -> None:
    out, truth = made
    spool = out / "spool"
    by_fault = {fault.fault: fault for fault in truth.segments}
    assert set(by_fault) == {
        "copy",
        "reused-number",
        "renumbered",
        "torn",
        "truncated",
        "bit-flipped",
        "gap",
        "bad-signature",
        "lying-manifest",
        "unknown-version",
        "late",
    }
    manifest_of = {str(path.relative_to(spool)): manifest for path, manifest in manifests(spool)}
    for fault in ("torn", "truncated", "bit-flipped"):
        path = by_fault[fault].path
        assert file_sha256(spool / path) != manifest_of[path].sha256
    for fault in ("gap", "late"):
        assert by_fault[fault].path not in manifest_of
    lie = manifest_of[by_fault["lying-manifest"].path]
    assert lie.records == len(records_in(spool / by_fault["lying-manifest"].path)) + 3
    future = by_fault["unknown-version"].path
    assert manifest_of[future].schema_version == 99
    copy = by_fault["copy"]
    assert file_sha256(spool / copy.path) == manifest_of[copy.path].sha256
    assert manifest_of[copy.path] == manifest_of[copy.path.replace(".again", "")]
    reused = by_fault["reused-number"]
    assert manifest_of[reused.path].sha256 != manifest_of[reused.path.replace(".reused", "")].sha256
    again = manifest_of[by_fault["renumbered"].path]
    assert again.sha256 in {one.sha256 for path, one in manifest_of.items() if path != by_fault["renumbered"].path}


def test_abuse_is_in_the_records_of_its_target(made: tuple[Path, Truth]) -> None:
    out, truth = made
    records = messages(made)
    spoofs = [one for one in readable(out / "spool", RecordKind.LINK, truth) if isinstance(one, LinkEvent)]
    for abuse in truth.abuse:
        if abuse.pattern == "spoofing":
            found = [one for one in spoofs if one.event == "spoofed" and one.domain == abuse.peer_domain]
            assert len(found) == abuse.messages
            continue
        own = [one for one in records if one.role == "in" and one.src_key == abuse.subject]
        assert len(own) == abuse.messages
        assert {one.dst_domain for one in own} == {abuse.our_domain}
        assert {one.ts_us // 3_600_000_000 * 3_600_000_000 for one in own} == {abuse.hour_us}
        if abuse.pattern == "scanning":
            assert {one.outcome for one in own} == {"undeliverable"}
        if abuse.pattern == "fan-out":
            assert len({one.dst_key for one in own}) == len(own)
    assert [one.pattern for one in truth.abuse] == ["fan-out", "scanning", "flood", "spoofing"]


def test_denials_have_decisions_beside_them(made: tuple[Path, Truth]) -> None:
    out, truth = made
    decisions = [one for one in readable(out / "spool", RecordKind.DECISION, truth) if isinstance(one, DecisionRecord)]
    denied = {(one.node, one.msg_id) for one in messages(made) if one.outcome == "denied"}
    assert denied <= {(one.node, one.msg_id) for one in decisions if not one.permitted}


def test_nodes_record_their_policies_and_sum_their_stubs_up(made: tuple[Path, Truth]) -> None:
    out, truth = made
    deployed = [one for one in readable(out / "spool", RecordKind.POLICY, truth) if isinstance(one, PolicyEvent)]
    assert [one.after for one in deployed] == [truth.deployed_rev] * OPTIONS.domains
    stubs = [one for one in readable(out / "spool", RecordKind.STUB, truth) if isinstance(one, StubEvent)]
    summed = sum(count for one in stubs for _, count in one.exchange_us or ())
    # Of the messages that reached a stub the records of some can no longer be read.
    reached = [one for one in messages(made) if one.role == "out" and one.stub_ver]
    unreadable = sum(fault.records for fault in truth.segments if not fault.is_readable)
    assert len(reached) <= summed <= len(reached) + unreadable
    assert {one.candidate for one in truth.stubs} <= {one.stub_ver for one in stubs if one.event == "summary"}


def test_truth_survives_its_files(made: tuple[Path, Truth]) -> None:
    out, truth = made
    assert read_truth(out) == truth


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(made: tuple[Path, Truth], tmp_path: Path) -> None:
    out, truth = made
    again = synth(OPTIONS, tmp_path / "again")
    other = synth(replace(OPTIONS, seed=8), tmp_path / "other")
    assert again == truth

    def content(folder: Path) -> dict[str, str]:
        return {str(path.relative_to(folder)): file_sha256(path) for path in folder.rglob("*") if path.is_file()}

    assert content(tmp_path / "again") == content(out)
    assert other.case_list != truth.case_list


def test_without_faults_both_sides_agree(tmp_path: Path) -> None:
    truth = synth(SynthOptions(rows=3_000, domains=8, has_faults=False, days=1), tmp_path)
    assert truth.cases == {}
    assert not truth.segments
    assert not truth.abuse
    assert truth.roles["in"] == truth.matched == truth.outcomes["out delivered"]


@pytest.mark.parametrize(
    "options",
    [SynthOptions(domains=3), SynthOptions(rows=10), SynthOptions(days=0), SynthOptions(segments=1)],
)
def test_options_that_make_no_sense_are_refused(options: SynthOptions, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        synth(options, tmp_path)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"")
    with pytest.raises(SettingsError, match="not empty"):
        synth(OPTIONS, tmp_path)
