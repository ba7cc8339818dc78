"""Frames between nodes of a domain: cut out of a stream in any pieces, and bounded before they are waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.cluster.core.link_frames import Frame, FrameKind, FrameReader, count_frame, count_of, frame
from protofly.errors import Code, PeerError

FRAMES = st.lists(st.tuples(st.sampled_from(FrameKind), st.binary(max_size=40)), max_size=6)


def test_kinds_have_the_numbers_by_which_nodes_of_other_versions_know_them() -> None:
    names = ("HELLO", "PROOF", "GOES_ON", "CONTENT", "RECEIVED", "PING", "REFUSED")
    assert {kind.name: kind.value for kind in FrameKind} == {name: at for at, name in enumerate(names, start=1)}
    assert frame(FrameKind.REFUSED, b"x") == b"\0\0\0\2\7x"


@given(sent=FRAMES, cuts=st.lists(st.integers(0, 260), max_size=8))
def test_a_stream_in_any_pieces_has_the_same_frames(sent: list[tuple[FrameKind, bytes]], cuts: list[int]) -> None:
    stream, reader, found, start = b"".join(frame(*one) for one in sent), FrameReader(), list[Frame](), 0
    for end in [*sorted(cuts), len(stream)]:
        found += reader.feed(stream[start:end])
        start = max(start, min(end, len(stream)))
    assert found == [Frame(kind, content) for kind, content in sent]


def test_a_frame_byte_by_byte_comes_with_its_last_byte() -> None:
    reader, raw = FrameReader(), frame(FrameKind.CONTENT, b"abc")
    found = [reader.feed(raw[place : place + 1]) for place in range(len(raw))]
    assert found == [[]] * (len(raw) - 1) + [[Frame(FrameKind.CONTENT, b"abc")]]


@pytest.mark.parametrize(("content_bytes", "is_taken"), [(0, True), (9, True), (10, False), (1 << 20, False)])
def test_a_frame_that_is_too_long_is_refused_by_its_head(content_bytes: int, is_taken: bool) -> None:
    reader, raw = FrameReader(10), frame(FrameKind.CONTENT, bytes(content_bytes))
    if is_taken:
        assert reader.feed(raw) == [Frame(FrameKind.CONTENT, bytes(content_bytes))]
        return
    with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
        reader.feed(raw[:5])


def test_a_frame_without_a_kind_is_refused() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
        FrameReader().feed(bytes(5))


@pytest.mark.parametrize("content", [b"", bytes(7), bytes(9)])
def test_a_count_has_eight_bytes(content: bytes) -> None:
    [sent] = FrameReader().feed(count_frame(FrameKind.RECEIVED, 258))
    assert count_of(sent.content) == 258
    with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
        count_of(content)
