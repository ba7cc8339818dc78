"""How far each stream of a peer was heard."""

from __future__ import annotations

from federation.core.peer_streams import STREAMS_REMEMBERED, PeerStreams


def test_the_stream_that_was_heard_last_is_the_newest() -> None:
    streams = PeerStreams()
    assert (streams.newest(), streams.processed("a")) == (("", 0), 0)
    for stream, number in (("a", 1), ("b", 7), ("a", 2)):
        streams.heard(stream, number)
    assert (streams.newest(), streams.processed("a"), streams.processed("b")) == (("a", 2), 2, 7)
    assert len(streams) == 2


def test_what_names_no_stream_is_not_kept() -> None:
    streams = PeerStreams()
    streams.heard("", 5)
    assert (len(streams), streams.newest(), streams.processed("")) == (0, ("", 0), 0)


def test_the_streams_that_were_heard_last_are_kept() -> None:
    streams = PeerStreams()
    for number in range(STREAMS_REMEMBERED):
        streams.heard(str(number), 1)
    streams.heard("0", 2)
    assert len(streams) == STREAMS_REMEMBERED
    streams.heard("new", 1)
    assert (len(streams), streams.processed("0"), streams.processed("1")) == (STREAMS_REMEMBERED, 2, 0)
