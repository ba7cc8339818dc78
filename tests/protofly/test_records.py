from __future__ import annotations

import base64
import re
from hashlib import sha256
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import Code, PeerError
from protofly.record_segments import SegmentFacts
from protofly.records import (
    RECORD_TYPES,
    GateFacts,
    RecordKind,
    SegmentManifest,
    decode_manifest,
    envelope_digest,
    envelope_digests,
    frame_end,
    hash_address,
)
from tests.support.message_records import A_MESSAGE

TEMPLATE = msgspec.structs.replace(A_MESSAGE, ts_us=1)
MANIFEST = SegmentManifest(
    kind=RecordKind.MESSAGE,
    node="mn-1.a.example",
    boot=7,
    segno=1,
    first_seq=1,
    last_seq=10,
    records=9,
    lost_records=1,
    size_bytes=512,
    sha256="0" * 64,
    prev_sha256="",
    min_ts_us=1,
    max_ts_us=2,
    opened_us=1,
    closed_us=3,
    closure="size",
    schema_version=1,
    policy_revs=("r1",),
)


def test_every_kind_has_one_record_type_of_its_own() -> None:
    assert set(RECORD_TYPES) == set(RecordKind)
    assert all(record_type.kind is kind for kind, record_type in RECORD_TYPES.items())


@pytest.mark.parametrize("record_type", RECORD_TYPES.values())
def test_optional_members_default_to_null_so_that_absent_means_unknown(record_type: type[msgspec.Struct]) -> None:
    identity = {"v": 0, "node": "", "boot": 0, "seq": 0}
    for member in msgspec.structs.fields(record_type):
        if not member.required:
            assert member.default == identity.get(member.name)


def test_a_record_that_was_completed_carries_identity_and_no_nulls() -> None:
    record = TEMPLATE.__copy__()
    record.v, record.node, record.boot, record.seq = 1, "mn-1.a.example", 7, 1

    members = msgspec.json.decode(msgspec.json.encode(record))

    assert list(members)[:5] == ["v", "node", "boot", "seq", "ts_us"]
    assert None not in members.values()
    assert "fuel" not in members


def test_a_copy_of_a_template_does_not_change_the_template() -> None:
    record = TEMPLATE.__copy__()
    record.outcome = "denied"
    assert TEMPLATE.outcome == "delivered"


def test_digest_is_the_truncated_hash_of_the_documented_bytes() -> None:
    documented = b'create\nhyperty://a.example/x\ncomm://b.example/y\n12\n{"value":1}'
    digest = envelope_digest("create", "hyperty://a.example/x", "comm://b.example/y", b"12", b'{"value":1}')
    assert digest == sha256(documented).hexdigest()[:32]


@given(left=st.tuples(*[st.text(st.characters(exclude_characters="\n", codec="utf-8"))] * 3, st.binary(), st.binary()))
def test_a_member_that_moves_over_its_border_changes_the_digest(left: tuple[str, str, str, bytes, bytes]) -> None:
    type_, from_, to, id_, body = left
    if from_ and b"\n" not in id_:
        assert envelope_digest(type_, from_, to, id_, body) != envelope_digest(
            type_ + from_[0], from_[1:], to, id_, body
        )


def test_hashed_addresses_are_equal_for_equal_addresses_and_need_the_key() -> None:
    key, other = b"k" * 32, b"o" * 32
    assert hash_address("hyperty://a.example/x", key) == hash_address("hyperty://a.example/x", key)
    assert hash_address("hyperty://a.example/x", key) == hash_address("HYPERTY://A.example./x", key)
    assert hash_address("hyperty://a.example/x", key) != hash_address("hyperty://a.example/x", other)
    assert "a.example" not in hash_address("hyperty://a.example/x", key)


def test_signed_bytes_cover_everything_but_the_signature() -> None:
    signed = msgspec.structs.replace(MANIFEST, signature=base64.urlsafe_b64encode(b"s" * 64).decode())
    assert signed.signed_bytes() == MANIFEST.signed_bytes()
    for member, value in (("records", 8), ("prev_sha256", "1" * 64), ("lost_records", 0), ("key_id", "N1")):
        assert msgspec.structs.replace(MANIFEST, **{member: value}).signed_bytes() != MANIFEST.signed_bytes()


def test_signed_bytes_are_what_any_json_library_makes_of_the_file() -> None:
    import json

    members = json.loads(msgspec.json.encode(MANIFEST))
    del members["signature"]
    canonical = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert b"trapezoid-segment/1\n" + canonical.encode() == MANIFEST.signed_bytes()


def test_a_manifest_survives_its_file() -> None:
    assert decode_manifest(msgspec.json.encode(MANIFEST)) == MANIFEST
    assert b'"bytes":512' in msgspec.json.encode(MANIFEST)


def test_a_manifest_of_another_format_is_refused() -> None:
    raw = msgspec.json.encode(MANIFEST).replace(b"trapezoid-segment/1", b"trapezoid-segment/2")
    with pytest.raises(PeerError) as caught:
        decode_manifest(raw)
    assert caught.value.code is Code.DOCUMENT_MALFORMED


@given(raw=st.binary(max_size=200) | st.just(b"[" * 40_000))
def test_any_bytes_give_a_manifest_or_a_peer_error(raw: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode_manifest(raw)
    assert caught.value.code is Code.DOCUMENT_MALFORMED


@given(
    contents=st.lists(st.binary(max_size=2_000) | st.just(b"a" * 300_000), min_size=1, max_size=4),
    level=st.sampled_from([1, 3, 9]),
    has_checksum=st.booleans(),
    has_size=st.booleans(),
)
def test_frame_ends_are_found_as_the_compressor_made_them(
    contents: list[bytes], level: int, has_checksum: bool, has_size: bool
) -> None:
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=has_checksum, write_content_size=has_size)
    frames = [compressor.compress(content) for content in contents]
    data, position = b"".join(frames), 0
    for frame in frames:
        end = frame_end(data, position)
        assert end == position + len(frame)
        position = end
    assert frame_end(data, position) is None


@given(content=st.binary(min_size=1, max_size=500), cut=st.integers(min_value=0, max_value=10_000))
def test_a_torn_frame_has_no_end(content: bytes, cut: int) -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    assert frame_end(frame[: cut % len(frame)], 0) is None


@pytest.mark.parametrize("content", [b"", b"content", b"a" * 300_000])
@pytest.mark.parametrize("has_checksum", [False, True])
@pytest.mark.parametrize("has_size", [False, True])
def test_a_frame_ends_with_its_last_byte_and_has_no_end_before(
    content: bytes, has_checksum: bool, has_size: bool
) -> None:
    compressor = zstandard.ZstdCompressor(write_checksum=has_checksum, write_content_size=has_size)
    frame = compressor.compress(content)
    for start in (0, 7):
        before = b"before!"[:start]
        assert frame_end(before + frame, start) == start + len(frame)
        assert frame_end(before + frame + b"\0", start) == start + len(frame)
        for cut in range(len(frame)):
            assert frame_end(before + frame[:cut], start) is None


@given(data=st.binary(max_size=300))
def test_any_bytes_behind_a_frame_magic_end_inside_the_data_or_nowhere(data: bytes) -> None:
    end = frame_end(b"\x28\xb5\x2f\xfd" + data, 0)
    assert end is None or 5 <= end <= len(data) + 4


@pytest.mark.parametrize("struct", [*RECORD_TYPES.values(), GateFacts, SegmentManifest])
def test_every_member_is_explained_in_the_documentation(struct: type[msgspec.Struct]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    for member in msgspec.structs.fields(struct):
        assert f"`{member.encode_name}`" in page, member.encode_name


def test_every_word_of_an_event_and_an_outcome_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    for struct in RECORD_TYPES.values():
        hints = get_type_hints(struct)
        for name in {"event", "outcome"} & hints.keys():
            for word in get_args(hints[name]):
                assert f"`{word}`" in page, word


def test_what_does_not_begin_as_a_frame_has_no_end() -> None:
    frame = zstandard.ZstdCompressor().compress(b"content")
    assert frame_end(frame, 0) == len(frame)
    assert frame_end(b"\x29" + frame[1:], 0) is None


def test_a_block_of_the_reserved_kind_is_in_no_frame() -> None:
    head = b"\x28\xb5\x2f\xfd\x20\x00"  # one segment, with a size of one byte
    assert frame_end(head + b"\x01\x00\x00", 0) == 9
    assert frame_end(head + b"\x07\x00\x00", 0) is None


def test_digests_that_share_their_begin_are_those_of_single_messages() -> None:
    names = ("event", "hyperty://a.example/\xe4", "comm://b.example/y")
    digest = envelope_digests(*names)
    for id_, body in ((b"12", b'{"value":1}'), (None, b""), (b"13", b"{}")):
        assert digest(id_, body) == envelope_digest(*names, id_, body)


@pytest.mark.parametrize("has_checksum", [False, True])
@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize(("size_flag", "size_bytes"), [(0, 0), (1, 2), (2, 4), (3, 8)])
@pytest.mark.parametrize(("dictionary_flag", "dictionary_bytes"), [(0, 0), (1, 1), (2, 2), (3, 4)])
def test_the_end_of_a_frame_is_behind_all_that_its_descriptor_announces(
    has_checksum: bool, is_single: bool, size_flag: int, size_bytes: int, dictionary_flag: int, dictionary_bytes: int
) -> None:
    """Made by the table of RFC 8878, section 3.1.1.1: a stored block of two bytes, one of a repeated byte, an end."""
    descriptor = size_flag << 6 | is_single << 5 | has_checksum << 2 | dictionary_flag
    window_bytes = 0 if is_single else 1
    header = bytes([descriptor]) + bytes(window_bytes + dictionary_bytes + (size_bytes or int(is_single)))
    blocks = (2 << 3).to_bytes(3, "little") + b"ab" + (9 << 3 | 1 << 1).to_bytes(3, "little") + b"c" + b"\x01\0\0"
    frame = b"\x28\xb5\x2f\xfd" + header + blocks + bytes(4 * has_checksum)
    assert frame_end(b"before" + frame + b"behind", 6) == 6 + len(frame)
    assert frame_end(frame, 0) == len(frame)
    assert frame_end(frame[:-1], 0) is None


def test_what_a_record_leaves_out_is_nothing() -> None:
    facts = GateFacts()
    assert (facts.via_length, facts.identity_verified, facts.partial, facts.link_class) == (0, False, False, "node")
    assert {one.schema_version for one in RECORD_TYPES.values()} == {1}
    begun = SegmentFacts(first_seq=5, opened_us=9)
    assert (begun.records, begun.lost_records, begun.min_ts_us, begun.max_ts_us, begun.last_seq) == (0, 0, 0, 0, 4)
    begun.add([3, 5, 4], [], [])
    begun.add([2], [], [])
    assert (begun.min_ts_us, begun.max_ts_us, begun.last_seq) == (2, 5, 8)


def test_a_hidden_address_is_its_scheme_and_24_hexadecimal_digits() -> None:
    assert re.fullmatch("comm:[0-9a-f]{24}", hash_address("comm://a.example/r", b"k" * 32))
    assert re.fullmatch("[0-9a-f]{24}", hash_address("no address", b"k" * 32))
