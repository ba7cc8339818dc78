"""Segments one by one: each kind of damage, and each attack, has its own clear finding."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
import trio
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from msg_node.records.recovery import note_run
from msg_node.records.segment_writer import SegmentOptions
from msg_node.records.writer import RecordsWriter, WriterOptions
from pipeline.core.findings import SIGNATURE_FINDINGS, Finding, SegmentVerdict, Severity
from pipeline.segments.chains import SegmentChains
from pipeline.segments.content import LINE_BYTES_MAX, ContentError
from pipeline.segments.node_keys import Trust, load_trust
from pipeline.segments.spool import MANIFEST_BYTES_MAX, Place, Segment, examine, find_manifests, verified_content
from protofly.errors import SettingsError
from protofly.record_segments import SegmentName, Signer, sign_manifest
from protofly.records import RecordKind, SegmentManifest, decode_manifest, frame_end
from protofly.signatures import SigningKey
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import KEY, NODE, SECOND_US, SIGNER, START_US, SegmentWriter, message

TRUST = Trust({(NODE, KEY.key_id): KEY.record()}, requires_signatures=True)
STRANGER = SigningKey.from_seed("node-1", bytes(reversed(range(32))))


def seal(spool: Path, records: int = 20) -> SegmentManifest:
    return SegmentWriter(spool).seal([message(number) for number in range(1, records + 1)])


def only(spool: Path) -> Place:
    [place] = find_manifests([spool])
    return place


def rewrite(place: Place, signer: Signer | None = SIGNER, **changes: object) -> None:
    """Another manifest in the same place, well signed unless it says otherwise."""
    manifest = msgspec.structs.replace(decode_manifest(on_disk(place.manifest_path).read_bytes()), **changes)
    on_disk(place.manifest_path).write_bytes(msgspec.json.encode(sign_manifest(manifest, signer)))


def replace_content(place: Place, data: bytes, records: int) -> None:
    on_disk(place.segment_path(1)).write_bytes(data)
    rewrite(
        place, sha256=sha256(data).hexdigest(), size_bytes=len(data), records=records, last_seq=records, lost_records=0
    )


def compress(lines: bytes, **options: object) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True, **options).compress(lines)  # type: ignore[arg-type]


def codes(segment: Segment) -> set[str]:
    return {finding.code for finding in segment.findings}


def test_a_genuine_segment_has_nothing_against_it(tmp_path: Path) -> None:
    seal(tmp_path)
    segment = examine(only(tmp_path), TRUST)
    assert (segment.findings, segment.severity) == ([], Severity.FINE)
    assert segment.manifest is not None
    content = verified_content(segment.place, segment.manifest)
    assert content == on_disk(segment.place.segment_path(1)).read_bytes()
    on_disk(segment.place.segment_path(1)).write_bytes(content[:-1])
    with pytest.raises(ContentError) as changed:
        verified_content(segment.place, segment.manifest)
    on_disk(segment.place.segment_path(1)).unlink()
    with pytest.raises(ContentError) as missing:
        verified_content(segment.place, segment.manifest)
    assert (changed.value.finding, missing.value.finding) == (Finding.CHANGED, Finding.MISSING)
    [judged] = SegmentChains().judge([segment])
    assert judged.verdict is SegmentVerdict.ACCEPTED
    row = judged.row(3)
    assert (row["node"], row["kind"], row["segno"], row["verdict"], row["batch"]) == (NODE, "mdr", 1, "accepted", 3)


def cut_in_frame(place: Place) -> None:
    data = on_disk(place.segment_path(1)).read_bytes()
    on_disk(place.segment_path(1)).write_bytes(data[:-7])


def cut_between_frames(place: Place) -> None:
    data = on_disk(place.segment_path(1)).read_bytes()
    on_disk(place.segment_path(1)).write_bytes(data[: frame_end(data, 0)])


def flip_bit(place: Place) -> None:
    data = bytearray(on_disk(place.segment_path(1)).read_bytes())
    data[len(data) // 2] ^= 4
    on_disk(place.segment_path(1)).write_bytes(data)


def flip_bit_and_sign(place: Place) -> None:
    """Damage that its own node vouches for: the checksums inside still know."""
    flip_bit(place)
    rewrite(place, sha256=sha256(on_disk(place.segment_path(1)).read_bytes()).hexdigest())


def append_frame(place: Place) -> None:
    with on_disk(place.segment_path(1)).open("ab") as file:
        file.write(compress(b"{}\n"))


def remove_segment(place: Place) -> None:
    on_disk(place.segment_path(1)).unlink()


def garbage_manifest(place: Place) -> None:
    on_disk(place.manifest_path).write_bytes(b'{"format":"trapezoid-segment/1","kind":"mdr","node":')


def no_utf8(place: Place) -> None:
    on_disk(place.manifest_path).write_bytes(
        on_disk(place.manifest_path).read_bytes().replace(b"mn-1.a", b"mn-1\xff\xfe")
    )


def nested_manifest(place: Place) -> None:
    on_disk(place.manifest_path).write_bytes(b"[" * 100_000)


def huge_manifest(place: Place) -> None:
    on_disk(place.manifest_path).write_bytes(b" " * MANIFEST_BYTES_MAX + on_disk(place.manifest_path).read_bytes())


def link_manifest(place: Place) -> None:
    elsewhere = on_disk(place.manifest_path).with_name("elsewhere")
    on_disk(place.manifest_path).rename(elsewhere)
    on_disk(place.manifest_path).symlink_to(elsewhere)


def link_segment(place: Place) -> None:
    on_disk(place.segment_path(1)).unlink()
    on_disk(place.segment_path(1)).symlink_to("/etc/passwd")


def pipe_for_segment(place: Place) -> None:
    on_disk(place.segment_path(1)).unlink()
    os.mkfifo(on_disk(place.segment_path(1)))


def folder_for_segment(place: Place) -> None:
    on_disk(place.segment_path(1)).unlink()
    on_disk(place.segment_path(1)).mkdir()


def rename_both(place: Place) -> None:
    for path in (on_disk(place.manifest_path), on_disk(place.segment_path(1))):
        path.rename(path.with_name(path.name.replace("000001", "000002")))


def renumber_in_manifest(place: Place) -> None:
    rename_both(place)
    moved = Place(place.spool, place.path.replace("000001", "000002"), 0, 0)
    manifest = decode_manifest(on_disk(moved.manifest_path).read_bytes())
    on_disk(moved.manifest_path).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, segno=2)))


def escape_by_name(place: Place) -> None:
    rewrite(place, node="../../etc")


def promise_more(place: Place) -> None:
    rewrite(place, records=23, last_seq=23)


def promise_less(place: Place) -> None:
    rewrite(place, records=19, last_seq=19)


def contradict_itself(place: Place) -> None:
    rewrite(place, last_seq=400)


def huge_number(place: Place) -> None:
    rewrite(place, closed_us=1 << 70)


def negative_number(place: Place) -> None:
    rewrite(place, lost_records=-1, last_seq=19)


def sign_by_stranger(place: Place) -> None:
    rewrite(place, Signer(STRANGER.key_id, STRANGER.sign))


def sign_by_unknown_key(place: Place) -> None:
    rewrite(place, Signer("node-9", STRANGER.sign))


def unsign(place: Place) -> None:
    rewrite(place, None, key_id="", signature="")


def spoil_signature(place: Place) -> None:
    rewrite(place, None, signature="!")


def age(place: Place) -> None:
    rewrite(place, schema_version=3)


def tail_without_line_end(place: Place) -> None:
    replace_content(place, compress(b'{"seq":1}\n{"seq":2}'), 1)


def need_dictionary(place: Place) -> None:
    # A raw dictionary has no id that the header could show: decoding has to give it away.
    words = b"0123456789abcdef" * 64
    compressor = zstandard.ZstdCompressor(dict_data=zstandard.ZstdCompressionDict(words), write_checksum=True)
    replace_content(place, compressor.compress(words + b"\n"), 1)


def need_much_memory(place: Place) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_checksum=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    replace_content(place, compressor.compress(b"{}\n") + compressor.flush(), 1)


def one_endless_line(place: Place) -> None:
    replace_content(place, compress(b" " * (LINE_BYTES_MAX + (2 << 20)) + b"\n"), 1)


def bomb(place: Place) -> None:
    replace_content(place, compress(b"\n" * (64 << 20)), 2)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (cut_in_frame, Finding.TORN),
        (cut_between_frames, Finding.TRUNCATED),
        (flip_bit, Finding.HASH),
        (flip_bit_and_sign, Finding.FRAME),
        (append_frame, Finding.OVERLONG),
        (remove_segment, Finding.MISSING),
        (garbage_manifest, Finding.MALFORMED),
        (no_utf8, Finding.MALFORMED),
        (nested_manifest, Finding.MALFORMED),
        (huge_manifest, Finding.MANIFEST_TOO_LARGE),
        (link_manifest, Finding.NOT_A_FILE),
        (link_segment, Finding.NOT_A_FILE),
        (pipe_for_segment, Finding.NOT_A_FILE),
        (folder_for_segment, Finding.NOT_A_FILE),
        (rename_both, Finding.NAME),
        (escape_by_name, Finding.MALFORMED),
        (promise_more, Finding.COUNT),
        (promise_less, Finding.COUNT),
        (contradict_itself, Finding.NUMBERS),
        (huge_number, Finding.MALFORMED),
        (negative_number, Finding.MALFORMED),
        (sign_by_stranger, Finding.SIGNATURE),
        (spoil_signature, Finding.SIGNATURE),
        (renumber_in_manifest, Finding.SIGNATURE),
        (sign_by_unknown_key, Finding.UNKNOWN_KEY),
        (unsign, Finding.UNSIGNED),
        (age, Finding.SCHEMA),
        (tail_without_line_end, Finding.COUNT),
        (need_dictionary, Finding.FRAME),
        (need_much_memory, Finding.FRAME),
        (one_endless_line, Finding.TOO_LARGE),
        (bomb, Finding.COUNT),
    ],
    ids=lambda value: value.__name__ if callable(value) else value.code,
)
def test_damage_is_found_and_the_segment_rejected(
    damage: Callable[[Place], None], expected: Finding, tmp_path: Path
) -> None:
    seal(tmp_path)
    damage(only(tmp_path))
    [segment] = SegmentChains().judge([examine(only(tmp_path), TRUST)])
    assert (segment.verdict, segment.is_fatal) == (SegmentVerdict.REJECTED, True)
    assert expected in segment.findings
    assert expected.meaning in segment.row(1)["detail"]


@pytest.mark.parametrize("damage", [unsign, sign_by_unknown_key], ids=lambda damage: damage.__name__)
def test_what_is_not_signed_by_a_known_key_is_accepted_with_a_warning_unless_signatures_are_required(
    damage: Callable[[Place], None], tmp_path: Path
) -> None:
    seal(tmp_path)
    damage(only(tmp_path))
    [segment] = SegmentChains().judge([examine(only(tmp_path), Trust(TRUST.keys))])
    assert (segment.verdict, segment.severity) == (SegmentVerdict.ACCEPTED, Severity.WARNING)
    assert set(segment.findings) <= SIGNATURE_FINDINGS


def test_without_keys_nobody_claims_that_signatures_were_checked(tmp_path: Path) -> None:
    seal(tmp_path)
    assert codes(examine(only(tmp_path), Trust())) == {"unchecked"}


@pytest.mark.parametrize(
    "times",
    [
        {"min_ts_us": START_US + 9 * SECOND_US, "max_ts_us": START_US},
        {"opened_us": START_US + 90 * SECOND_US, "closed_us": START_US},
        {"min_ts_us": START_US - 3 * 86_400 * SECOND_US},
        {"opened_us": 1000, "min_ts_us": 1000},
        {"closed_us": START_US * 100},
    ],
    ids=["first behind last", "opened behind closed", "far before it was opened", "1970", "far future"],
)
def test_a_clock_that_jumped_is_reported_but_costs_no_records(times: dict[str, int], tmp_path: Path) -> None:
    seal(tmp_path)
    rewrite(only(tmp_path), SIGNER, **times)
    [segment] = SegmentChains().judge([examine(only(tmp_path), TRUST)])
    assert (segment.verdict, segment.severity) == (SegmentVerdict.ACCEPTED, Severity.SEVERE)
    assert "clock" in codes(segment)


def test_losses_that_the_node_counted_are_reported(tmp_path: Path) -> None:
    SegmentWriter(tmp_path).seal([message(1)], lost=4)
    segment = examine(only(tmp_path), TRUST)
    assert codes(segment) == {"lost"}
    assert segment.manifest is not None
    assert segment.manifest.last_seq == 5


def test_a_segment_of_losses_only_is_genuine(tmp_path: Path) -> None:
    SegmentWriter(tmp_path).seal([], lost=4)
    assert codes(examine(only(tmp_path), TRUST)) == {"lost"}


def test_manifests_are_found_below_the_spool_but_not_behind_links(tmp_path: Path) -> None:
    seal(tmp_path / "spools" / "one")
    shutil.copytree(tmp_path / "spools" / "one", tmp_path / "outside")
    (tmp_path / "spools" / "two").symlink_to(tmp_path / "outside")
    (tmp_path / "spools" / "one" / "other.txt").touch()
    assert [place.path for place in find_manifests([tmp_path / "spools"])] == [f"one/mdr-{NODE}-1-000001.manifest.json"]
    with pytest.raises(FileNotFoundError):
        list(find_manifests([tmp_path / "nowhere"]))


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_manifest_makes_verification_fail(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    spool = tmp_path_factory.mktemp("spool")
    (spool / "mdr-x-1-000001.manifest.json").write_bytes(raw)
    segment = examine(only(spool), TRUST)
    assert codes(segment) == {"malformed"}
    assert segment.row(1)["verdict"] == "rejected"


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_member_of_a_manifest_makes_verification_fail(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spool = tmp_path_factory.mktemp("spool")
    seal(spool, records=2)
    members = msgspec.json.decode(on_disk(only(spool).manifest_path).read_bytes())
    name = data.draw(st.sampled_from(sorted(members)))
    members[name] = data.draw(
        st.integers(-(1 << 80), 1 << 80) | st.text(max_size=9) | st.none() | st.lists(st.text(max_size=3), max_size=3)
    )
    on_disk(only(spool).manifest_path).write_bytes(msgspec.json.encode(members))
    segment = examine(only(spool), TRUST)
    assert Finding.FAILED not in segment.findings
    segment.row(1)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=300), at=st.integers(0, 300))
def test_no_content_makes_verification_fail(content: bytes, at: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    spool = tmp_path_factory.mktemp("spool")
    seal(spool, records=2)
    place = only(spool)
    whole = on_disk(place.segment_path(1)).read_bytes()
    spoilt = whole[:at] + content + whole[at + len(content) :]
    on_disk(place.segment_path(1)).write_bytes(spoilt)
    rewrite(place, sha256=sha256(spoilt).hexdigest(), size_bytes=len(spoilt))
    segment = examine(place, TRUST)
    assert Finding.FAILED not in segment.findings
    assert spoilt == whole or segment.findings or spoilt.startswith(whole)


def test_keys_come_from_a_file_or_a_folder_of_files(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(msgspec.json.encode({"node-1": {"node": NODE, **msgspec.to_builtins(KEY.record())}}))
    expected = {(NODE, "node-1"): KEY.record()}
    assert load_trust(file).keys == load_trust(tmp_path).keys == expected
    assert load_trust(None).keys is None

    other = {"node-1": {"node": NODE, **msgspec.to_builtins(STRANGER.record())}}
    (tmp_path / "b.json").write_bytes(msgspec.json.encode(other))
    with pytest.raises(SettingsError, match="twice"):
        load_trust(tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"{", "expected"), (b'{"k":{"node":"n","alg":"ed25519","pub":"AA"}}', "weak"), (b"[]", "expected")],
)
def test_keys_that_cannot_be_used_are_refused(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(content)
    with pytest.raises(SettingsError, match=complaint):
        load_trust(tmp_path)


def test_signatures_cannot_be_required_without_keys(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--keys"):
        load_trust(None, requires_signatures=True)
    with pytest.raises(SettingsError, match="no \\*\\.json"):
        load_trust(tmp_path)


def test_kinds_of_records_do_not_share_numbers(tmp_path: Path) -> None:
    seal(tmp_path)
    SegmentWriter(tmp_path, kind=RecordKind.SESSION).seal([], lost=1)
    judged = SegmentChains().judge([examine(place, TRUST) for place in find_manifests([tmp_path])])
    assert [segment.verdict for segment in judged] == [SegmentVerdict.ACCEPTED] * 2


async def sealed(writer: RecordsWriter, count: int) -> None:
    """Until the writer's thread has sealed as many segments."""
    with trio.fail_after(10):
        while writer.statistics().sealed_segments < count:  # noqa: ASYNC110 - another thread seals
            await trio.sleep(0.005)


async def test_empty_segments_of_a_node_that_was_idle_and_then_crashed_continue_its_chain(tmp_path: Path) -> None:
    """Written by a real writer, recovered by the next one, read by the pipeline."""
    short = WriterOptions(sync_seconds=0.005, segments=SegmentOptions(idle_seconds=0.01))
    for _ in range(2):
        writer = RecordsWriter(tmp_path, NODE, options=short)
        async with trio.open_nursery() as nursery:
            await nursery.start(writer.run)
            await sealed(writer, 2)
            nursery.cancel_scope.cancel()
        note_run(tmp_path, boot_of(tmp_path), is_running=True)  # as if it had been killed
    found = [examine(place, Trust()) for place in find_manifests([tmp_path])]
    judged = SegmentChains().judge(found)
    assert {segment.verdict for segment in judged} == {SegmentVerdict.ACCEPTED}
    allowed = {Finding.UNSIGNED, Finding.CRASH}
    assert {finding for segment in judged for finding in segment.findings} == allowed
    [crashed] = [segment for segment in judged if Finding.CRASH in segment.findings]
    assert crashed.manifest is not None
    assert crashed.manifest.records == 0
    assert {segment.manifest.boot for segment in judged if segment.manifest} == {*boots_of(tmp_path)}


def boots_of(spool: Path) -> set[int]:
    stems = (path.name.removesuffix(".blocks.zst").removesuffix(".jsonl.zst") for path in spool.glob("*.zst"))
    return {name.boot for stem in stems if (name := SegmentName.parse(stem))}


def boot_of(spool: Path) -> int:
    return max(boots_of(spool))
