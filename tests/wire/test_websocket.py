"""The batch adapter: whatever way bytes are cut, the same messages come out; broken frames close the connection."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import PeerError
from protofly.limits import CONTROL_FRAMES, MESSAGE_FRAGMENTS
from wire.core.websocket import (
    INVALID_DATA,
    POLICY,
    PROTOCOL_ERROR,
    TOO_BIG,
    UNSUPPORTED,
    ClientWebSocket,
    ServerWebSocket,
    WebSocket,
)


def connected(*, is_binary: bool = False, max_bytes: int = 1 << 20) -> tuple[ClientWebSocket, ServerWebSocket]:
    client = ClientWebSocket("ws://a.example/ws", is_binary=is_binary)
    server = ServerWebSocket(is_binary=is_binary, max_bytes=max_bytes)
    server.receive(client.data_to_send())
    server.accept()
    client.receive(server.data_to_send())
    assert client.is_open
    assert server.is_open
    return client, server


def frame(opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True, reserved: int = 0) -> bytes:
    """A frame as a client sends it, made by hand."""
    head = bytes([(0x80 if fin else 0) | reserved | opcode])
    mask_bit = 0x80 if masked else 0
    if len(payload) < 126:
        head += bytes([mask_bit | len(payload)])
    elif len(payload) < 1 << 16:
        head += bytes([mask_bit | 126]) + struct.pack(">H", len(payload))
    else:
        head += bytes([mask_bit | 127]) + struct.pack(">Q", len(payload))
    mask = b"\x01\x02\x03\x04"
    body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload)) if masked else payload
    return head + (mask if masked else b"") + body


@given(messages=st.lists(st.binary(max_size=300), max_size=20), cut=st.integers(1, 64))
def test_messages_survive_any_cutting_of_the_stream(messages: list[bytes], cut: int) -> None:
    client, server = connected(is_binary=True)
    client.send(messages)
    stream = client.data_to_send()
    received = [
        message for start in range(0, len(stream), cut) for message in server.receive(stream[start : start + cut])
    ]
    assert received == messages


@pytest.mark.parametrize("is_server", [True, False])
def test_empty_fragments_are_not_kept_and_a_message_has_a_bounded_number_of_them(is_server: bool) -> None:
    client, server = connected(is_binary=True)
    ours, theirs = (server, client) if is_server else (client, server)
    theirs.protocol.send_binary(b"", fin=False)
    assert ours.receive(theirs.data_to_send()) == []
    for _ in range(MESSAGE_FRAGMENTS - 1):
        theirs.protocol.send_continuation(b"", fin=False)
    assert ours.receive(theirs.data_to_send()) == []
    assert ours.is_open
    assert ours._fragments is not None
    assert len(ours._fragments) == 0
    theirs.protocol.send_continuation(b"x", fin=True)
    assert ours.receive(theirs.data_to_send()) == []
    assert (ours.is_open, ours.is_broken, ours.fault_code) == (False, True, TOO_BIG)
    assert ours._fragments is None


@pytest.mark.parametrize("is_server", [True, False])
def test_a_message_of_the_most_fragments_is_whole_and_the_next_counts_anew(is_server: bool) -> None:
    client, server = connected(is_binary=True)
    ours, theirs = (server, client) if is_server else (client, server)
    for _ in range(3):
        theirs.protocol.send_binary(b"a", fin=False)
        for number in range(MESSAGE_FRAGMENTS - 2):
            theirs.protocol.send_continuation(b"b" if number % 2 else b"", fin=False)
        theirs.protocol.send_continuation(b"c", fin=True)
        assert ours.receive(theirs.data_to_send()) == [b"a" + b"b" * ((MESSAGE_FRAGMENTS - 2) // 2) + b"c"]
    assert ours.is_open


def test_fragments_become_one_message_around_a_ping() -> None:
    _, server = connected()
    parts = frame(1, b"ab", fin=False) + frame(9, b"ping") + frame(0, b"cd", fin=False) + frame(0, b"ef")
    assert server.receive(parts) == [b"abcdef"]
    assert server.data_to_send() == b"\x8a\x04ping"


@pytest.mark.parametrize(
    ("attack", "close_code"),
    [
        (frame(1, b"x", masked=False), 1002),
        (frame(1, b"x", reserved=0x40), 1002),
        (frame(0, b"x"), 1002),
        (frame(1, b"a", fin=False) + frame(1, b"b"), 1002),
        (frame(9, b"x" * 126), 1002),
        (frame(9, b"x", fin=False), 1002),
        (frame(3, b"x"), 1002),
        (frame(2, b"x"), UNSUPPORTED),
        (frame(1, b"x" * 2000), TOO_BIG),
        (frame(1, b"x" * 600, fin=False) + frame(0, b"x" * 600), TOO_BIG),
        (frame(8, b"\x03"), 1002),
    ],
)
def test_a_broken_frame_closes_the_connection_with_its_code(attack: bytes, close_code: int) -> None:
    _, server = connected(max_bytes=1000)
    assert server.receive(attack) == []
    assert not server.is_open
    assert server.is_broken
    assert struct.pack(">H", close_code) in server.data_to_send()


def test_what_was_wrong_holds_no_frame_of_the_program() -> None:
    _, server = connected()
    server.receive(frame(3, b"x"))
    server.data_to_send()
    fault = server.protocol.parser_exc
    assert fault is not None
    assert fault.__traceback__ is None


@pytest.mark.parametrize("is_in_handshake", [False, True])
def test_nothing_that_led_to_a_fault_holds_a_frame_of_the_program(*, is_in_handshake: bool) -> None:
    if is_in_handshake:
        server = ServerWebSocket()
        server.receive(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
        fault: BaseException | None = server.protocol.handshake_exc
    else:
        _, server = connected()
        server.receive(frame(3, b"x"))
        fault = server.protocol.parser_exc
    causes = []
    while fault is not None:
        causes.append(fault)
        fault = fault.__cause__ or fault.__context__
    assert len(causes) > 1
    assert [one.__traceback__ for one in causes] == [None] * len(causes)


def test_a_client_that_waits_for_the_answer_may_send_right_behind_it() -> None:
    request = ClientWebSocket("ws://a.example/ws", is_binary=False).data_to_send()
    for cut in range(1, len(request)):
        server = ServerWebSocket()
        server.receive(request[:cut])
        server.receive(request[cut:])
        assert server.is_upgrade
        server.accept()
        assert server.receive(frame(1, b"x")) == [b"x"]


def test_a_frame_without_a_mask_is_refused_when_nothing_comes_behind_its_two_bytes() -> None:
    _, server = connected()
    server.receive(frame(1, b"", masked=False))
    assert server.is_broken


def test_nothing_is_an_upgrade_before_its_request() -> None:
    assert not ServerWebSocket().is_upgrade


def test_nothing_is_taken_after_a_broken_frame() -> None:
    _, server = connected()
    assert server.receive(frame(1, b"x", masked=False) + frame(1, b"later")) == []
    assert server.receive(frame(1, b"later")) == []


def test_what_is_no_upgrade_is_answered_with_http() -> None:
    server = ServerWebSocket()
    server.receive(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert server.request_path == "/"
    with pytest.raises(Exception, match="not a WebSocket request"):
        server.accept()
    assert server.data_to_send().startswith(b"HTTP/1.1 ")
    assert not server.is_open


def test_nonsense_in_place_of_a_request_fails_the_handshake() -> None:
    server = ServerWebSocket()
    server.receive(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
    assert server.handshake_failed
    assert not server.is_open


def test_a_fault_before_the_handshake_is_closed_with_no_code() -> None:
    server = ServerWebSocket()
    server.fail(TOO_BIG)
    assert server.is_broken
    assert server.fault_code is None


def test_a_bearer_token_of_the_request_is_known() -> None:
    client = ClientWebSocket("ws://a.example/ws", headers={"Authorization": "Bearer abc"}, is_binary=False)
    server = ServerWebSocket()
    server.receive(client.data_to_send())
    assert server.bearer == "abc"


def test_headers_are_known_once_the_request_has_come_and_until_it_is_answered() -> None:
    client = ClientWebSocket("ws://a.example/ws", headers={"X-A": "1"}, is_binary=False)
    server = ServerWebSocket()
    assert server.header("X-A") == ""
    server.receive(client.data_to_send())
    assert (server.header("x-a"), server.header("X-B")) == ("1", "")
    server.accept()
    assert server.header("X-A") == ""


def test_a_header_that_is_given_twice_has_no_value() -> None:
    request = ClientWebSocket("ws://a.example/ws", is_binary=False).data_to_send()
    server = ServerWebSocket()
    server.receive(request.replace(b"\r\n\r\n", b"\r\nX-A: 1\r\nX-A: 1\r\nAuthorization: Basic abc\r\n\r\n"))
    assert server.request_path == "/ws"
    assert (server.header("X-A"), server.bearer) == ("", "")


def test_a_client_that_ends_its_side_behind_the_request_is_answered() -> None:
    server = ServerWebSocket()
    server.receive(ClientWebSocket("ws://a.example/ws", is_binary=False).data_to_send())
    assert server.receive(b"") == []
    assert server.is_upgrade


def test_a_close_is_echoed_and_then_nothing_is_sent() -> None:
    client, server = connected()
    client.close(1000)
    server.receive(client.data_to_send())
    server.send([b"late"])
    client.receive(server.data_to_send())
    assert client.close_code == 1000
    assert not server.is_open
    assert not server.is_broken


@pytest.mark.parametrize("cut", [1, 3, 7, 150])
def test_a_close_of_ours_in_the_middle_of_a_frame_is_answered_behind_that_frame(cut: int) -> None:
    whole = frame(1, b"x" * 200)
    _, server = connected()
    assert server.receive(whole[:cut]) == []
    server.close(1001)
    assert server.receive(whole[cut:-1]) == []
    closing = frame(8, b"\x03\xe9")
    assert server.receive(whole[-1:] + closing[:3]) == [b"x" * 200]
    assert server.receive(closing[3:]) == []
    assert (server.close_code, server.is_broken) == (1001, False)


def test_a_connection_listens_from_the_handshake_until_the_other_side_has_closed() -> None:
    assert not ServerWebSocket().is_listening
    _, server = connected()
    found = [server.is_listening]
    server.close(1001)
    found.append(server.is_listening)
    server.receive(frame(8, b"\x03\xe9"))
    found.append(server.is_listening)
    server.receive(b"")
    assert [*found, server.is_listening] == [True, True, False, False]


@pytest.mark.parametrize("cut", [0, 3])
def test_nothing_is_taken_once_we_said_that_the_other_side_failed(cut: int) -> None:
    _, server = connected()
    whole = frame(1, b"later")
    server.receive(whole[:cut] if cut else whole)
    server.fail(UNSUPPORTED)
    assert server.receive(whole[cut:] + whole) == []
    assert server.receive(whole) == []


@pytest.mark.parametrize("cut", [0, 1, 7])
def test_a_line_that_ends_once_we_close_is_no_fault(cut: int) -> None:
    _, server = connected()
    server.receive(frame(1, b"half")[:cut] if cut else frame(1, b"whole"))
    server.close(1001)
    assert server.receive(b"") == []
    assert (server.is_open, server.is_broken) == (False, False)


def test_a_line_that_ends_between_frames_is_closed() -> None:
    _, server = connected()
    assert server.receive(frame(1, b"x")) == [b"x"]
    assert server.receive(b"") == []
    assert (server.is_open, server.is_broken) == (False, False)


def test_a_line_that_ends_right_behind_the_handshake_is_closed() -> None:
    _, server = connected()
    assert server.receive(b"") == []
    assert (server.is_open, server.is_broken) == (False, False)


def test_a_message_is_there_with_its_last_byte() -> None:
    for payload in (b"", b"x", b"y" * 126):
        whole = frame(1, payload)
        for cut in range(1, len(whole)):
            _, server = connected()
            assert server.receive(whole[:cut]) == []
            assert server.receive(whole[cut:]) == [payload]


def test_nothing_is_taken_that_comes_together_with_a_close_and_behind_it() -> None:
    _, server = connected()
    assert server.receive(frame(1, b"x") + frame(8, b"\x03\xe8") + frame(1, b"later") + frame(1, b"later")) == [b"x"]
    assert server.receive(frame(1, b"later")) == []
    assert (server.is_open, server.close_code) == (False, 1000)


def test_a_frame_without_a_mask_behind_good_ones_ends_the_connection() -> None:
    _, server = connected()
    stream = frame(1, b"x" * 200) + frame(1, b"y" * 10, masked=False) + frame(1, b"later")
    assert server.receive(stream) == [b"x" * 200]
    assert server.is_broken


@pytest.mark.parametrize("size", [0, 1, 121, 122, 125, 126, 200, 1 << 16])
def test_a_frame_without_a_mask_is_refused_whatever_its_size(size: int) -> None:
    for before in ([], [b"x"], [b"x" * 200]):
        _, server = connected()
        stream = b"".join(frame(1, message) for message in before)
        assert server.receive(stream + frame(1, b"y" * size, masked=False) + frame(1, b"later")) == before
        assert server.is_broken


def test_nothing_is_sent_once_the_connection_is_closing() -> None:
    _, server = connected()
    server.close(1000)
    assert server.data_to_send() == b"\x88\x02\x03\xe8"
    server.send([b"late"])
    assert server.data_to_send() == b""


@pytest.mark.parametrize("cut", [1, 3, 11, 20])
def test_what_is_under_way_when_we_close_is_taken_until_the_other_side_closes(cut: int) -> None:
    _, server = connected()
    stream = frame(1, b"first") + frame(1, b"second")
    before = server.receive(stream[:cut])
    server.close(1001)
    assert [server.is_listening] == [True]
    assert before + server.receive(stream[cut:]) == [b"first", b"second"]
    assert [server.is_listening] == [True]
    assert server.receive(frame(8, b"\x03\xe9") + frame(1, b"later")) == []
    assert not server.is_listening
    assert not server.is_broken


def test_nothing_more_is_waited_for_once_the_other_side_has_broken_the_rules() -> None:
    _, server = connected()
    server.close(1001)
    server.receive(frame(1, b"x", masked=False))
    assert not server.is_listening


def test_a_line_that_ends_in_the_middle_of_a_frame_is_no_fault() -> None:
    _, server = connected()
    assert server.receive(frame(1, b"half")[:5]) == []
    assert server.receive(b"") == []
    assert not server.is_open
    assert not server.is_broken


@given(noise=st.binary(max_size=512))
def test_any_bytes_give_messages_or_close_the_connection(noise: bytes) -> None:
    _, server = connected()
    for message in server.receive(noise):
        assert isinstance(message, bytes)
    server.data_to_send()
    server.receive(b"")


@given(noise=st.binary(max_size=512))
def test_any_bytes_in_place_of_a_request_are_survived(noise: bytes) -> None:
    server = ServerWebSocket()
    server.receive(noise)
    server.data_to_send()


class Oracle(ServerWebSocket):
    """The same with every byte read by the library."""

    def accept(self, *, subprotocol: str | None = None, is_binary: bool | None = None) -> None:
        super().accept(subprotocol=subprotocol, is_binary=is_binary)
        self._frames_itself = False

    def receive(self, data: bytes) -> list[bytes]:
        return WebSocket.receive(self, data) if self.is_open else super().receive(data)


FRAMES = st.builds(
    frame,
    st.sampled_from([0, 1, 1, 1, 1, 3, 8, 9, 9, 10]),
    st.binary(max_size=20) | st.binary(min_size=120, max_size=140) | st.just(b"x" * 66_000) | st.just(b"\x03\xe8"),
    fin=st.sampled_from([True, True, True, False]),
    masked=st.sampled_from([True] * 9 + [False]),
    reserved=st.sampled_from([0] * 9 + [0x40]),
)


@given(frames=st.lists(FRAMES, max_size=8), noise=st.binary(max_size=3), cut=st.sampled_from([1, 2, 7, 100, 5_000]))
def test_our_framing_and_the_library_agree_about_any_stream(frames: list[bytes], noise: bytes, cut: int) -> None:
    pair = []
    for kind in (ServerWebSocket, Oracle):
        client = ClientWebSocket("ws://a.example/ws", is_binary=False)
        server = kind(max_bytes=100_000)
        server.receive(client.data_to_send())
        server.accept()
        server.data_to_send()
        pair.append(server)
    stream = b"".join(frames) + noise
    cut = max(cut, len(stream) // 1_000)
    outcomes = []
    for server in pair:
        messages = [one for start in range(0, len(stream), cut) for one in server.receive(stream[start : start + cut])]
        messages += server.receive(b"")
        end = (server.data_to_send(), server.close_code)
        outcomes.append((messages, server.is_open, None if server._has_failed else end))
    assert outcomes[0][:2] == outcomes[1][:2]
    assert None in (outcomes[0][2], outcomes[1][2]) or outcomes[0] == outcomes[1]  # of two faults either may be named


def digest_of(message: bytes) -> str:
    """Short enough to be shown when a test fails."""
    return hashlib.sha256(message).hexdigest()


class ClientOracle(ClientWebSocket):
    """The same for what a server sends."""

    def receive(self, data: bytes) -> list[bytes]:
        return WebSocket.receive(self, data)


FRAMES_OF_SERVERS = st.builds(
    frame,
    st.sampled_from([0, 1, 1, 1, 1, 3, 8, 9, 9, 10]),
    st.binary(max_size=20) | st.binary(min_size=120, max_size=140) | st.just(b"x" * 66_000) | st.just(b"\x03\xe8"),
    fin=st.sampled_from([True, True, True, False]),
    masked=st.sampled_from([False] * 9 + [True]),
    reserved=st.sampled_from([0] * 9 + [0x40]),
)


@given(frames=st.lists(FRAMES_OF_SERVERS, max_size=8), cut=st.sampled_from([1, 2, 7, 100, 5_000, 200_000]))
def test_a_client_and_the_library_agree_about_any_stream(frames: list[bytes], cut: int) -> None:
    outcomes = []
    for kind in (ClientWebSocket, ClientOracle):
        client = kind("ws://a.example/ws", is_binary=False, max_bytes=100_000)
        server = ServerWebSocket()
        server.receive(client.data_to_send())
        server.accept()
        stream = server.data_to_send() + b"".join(frames)
        step = max(cut, len(stream) // 1_000)
        client.data_to_send()
        messages = [one for at in range(0, len(stream), step) for one in client.receive(stream[at : at + step])]
        pongs = client.data_to_send() if client.is_open else b""
        end = None if client._has_failed else client.close_code
        outcomes.append(((*map(digest_of, messages),), client.is_open, bool(pongs), end))
    assert outcomes[0][:3] == outcomes[1][:3]
    assert None in (outcomes[0][3], outcomes[1][3]) or outcomes[0] == outcomes[1]  # of two faults either may be named


@pytest.mark.parametrize("side", ["server", "client"])
def test_pings_pongs_and_fragments_do_not_cost_what_the_library_takes_for_each(side: str) -> None:
    """10,000 of them fit into one read, in which nobody else has a turn."""
    client, server = connected()
    ours = server if side == "server" else client
    reads: list[bytes] = []
    ours.protocol.receive_data = reads.append  # type: ignore[method-assign,assignment]
    kinds = [(9, True), (10, True), (1, False), (9, True), (0, False), (0, True), (1, True)]
    stream = b"".join(frame(opcode, b"x", fin=fin, masked=side == "server") for opcode, fin in kinds)
    assert ours.receive(stream * 100) == [b"xxx", b"x"] * 100
    assert reads == []
    pongs = ours.data_to_send()
    assert len(pongs) == (3 * 200 if side == "server" else 7)  # a client answers the last ping


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("opcodes", [[9], [10], [9, 10]])
def test_more_pings_and_pongs_at_once_than_anybody_needs_end_the_connection(side: str, opcodes: list[int]) -> None:
    client, server = connected()
    ours = server if side == "server" else client
    frames = [frame(opcode, b"x", masked=side == "server") for opcode in opcodes]
    most = b"".join(frames) * (CONTROL_FRAMES // len(opcodes))
    for _ in range(2):
        ours.receive(most)
        assert ours.is_open
    ours.receive(most + frames[0])
    assert not ours.is_open
    assert ours.fault_code == POLICY


def test_a_message_that_has_begun_is_ended_while_the_connection_closes() -> None:
    _, server = connected()
    assert server.receive(frame(1, b"first,", fin=False) + frame(0, b" second,", fin=False)) == []
    server.close()
    assert server.receive(frame(9, b"?") + frame(0, b" third") + frame(1, b"next")) == [
        b"first, second, third",
        b"next",
    ]
    assert not server.is_broken


def test_a_new_message_within_another_ends_the_connection() -> None:
    _, server = connected()
    assert server.receive(frame(1, b"a", fin=False) + frame(1, b"b")) == []
    assert not server.is_open
    assert struct.pack(">H", PROTOCOL_ERROR) in server.data_to_send()


def test_fragments_together_may_not_be_longer_than_a_message() -> None:
    _, server = connected(max_bytes=100)
    assert server.receive(frame(1, b"x" * 60, fin=False) + frame(0, b"x" * 41)) == []
    assert struct.pack(">H", TOO_BIG) in server.data_to_send()


def test_a_frame_that_comes_byte_by_byte_is_one_message() -> None:
    _, server = connected()
    stream = frame(1, b"x" * 70_000) + frame(1, b"y")
    assert [one for byte in stream for one in server.receive(bytes([byte]))] == [b"x" * 70_000, b"y"]


@pytest.mark.parametrize("piece_bytes", [1000, 2])
def test_pieces_of_a_large_frame_are_joined_once_and_take_their_own_bytes(piece_bytes: int) -> None:
    """Joining what has come at every piece would copy n²/2 bytes: half a gigabyte for a megabyte in 1,000 pieces.

    A list of pieces would take forty bytes and more for each of two.
    """
    _, server = connected(is_binary=True, max_bytes=1 << 20)
    stream = frame(2, bytes(1 << 18))
    pieces = [stream[start : start + piece_bytes] for start in range(0, len(stream), piece_bytes)]
    kept, allocations = server._partial, 0
    for count, piece in enumerate(pieces[:-1], 1):
        before = kept.__alloc__()
        assert server.receive(piece) == []
        allocations += kept.__alloc__() != before
        assert len(kept) == count * piece_bytes
    assert server._partial is kept  # appended to, not made anew
    assert allocations < 150  # its room grows by parts of itself
    assert kept.__alloc__() < 1.3 * len(stream) + 1024
    assert server.receive(pieces[-1]) == [bytes(1 << 18)]
    assert kept == b""


@pytest.mark.parametrize("cut", [10_000, 4, 1])
@pytest.mark.parametrize(
    "early", [frame(1, b"early"), frame(9, b""), frame(8, b""), frame(1, b"x", masked=False), b"\n"]
)
def test_who_does_not_wait_for_the_answer_is_refused_by_it(early: bytes, cut: int) -> None:
    client = ClientWebSocket("ws://a.example/ws", is_binary=False)
    server = ServerWebSocket()
    stream = client.data_to_send() + early
    assert [one for at in range(0, len(stream), cut) for one in server.receive(stream[at : at + cut])] == []
    assert not server.is_upgrade
    with pytest.raises(PeerError):
        server.accept()
    answer = server.data_to_send()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"frames come after the answer to the request\n")
    assert server.receive(frame(1, b"later")) == []
    assert not server.is_open


@pytest.mark.parametrize("early", [frame(1, b"early"), frame(1, b"x", masked=False), frame(8, b"")])
def test_a_request_can_be_rejected_whatever_comes_behind_it(early: bytes) -> None:
    server = ServerWebSocket()
    server.receive(ClientWebSocket("ws://a.example/ws").data_to_send() + early)
    server.reject(403, "no")
    assert server.data_to_send().startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("cut", [1, 3, 10_000])
@pytest.mark.parametrize(
    "stream",
    [frame(1, b"\xff"), frame(1, b"\xc3") + frame(1, b"\xa9"), frame(1, b"\xed\xa0", fin=False) + frame(0, b"\x80")],
)
def test_text_that_is_not_utf_8_ends_the_connection(stream: bytes, cut: int) -> None:
    _, server = connected()
    whole = frame(1, b"ok") + stream + frame(1, b"later")
    assert [one for at in range(0, len(whole), cut) for one in server.receive(whole[at : at + cut])] == [b"ok"]
    assert not server.is_open
    assert struct.pack(">H", INVALID_DATA) in server.data_to_send()
    _, binary = connected(is_binary=True)
    assert binary.receive(frame(2, b"\xff")) == [b"\xff"]


@given(sizes=st.lists(st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536, 100_000]), max_size=6))
def test_messages_of_a_server_reach_the_library_at_the_other_end(sizes: list[int]) -> None:
    client, server = connected()
    messages = [b"x" * size for size in sizes]
    server.send(messages)
    server.ping(b"?")
    server.send([b"last"])
    server.close(1001)
    assert client.receive(server.data_to_send()) == [*messages, b"last"]
    assert client.close_code == 1001


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_server_writes_the_size_of_a_message_in_the_fewest_bytes(size: int) -> None:
    _, server = connected(is_binary=True)
    server.send([b"x" * size])
    assert server.data_to_send() == frame(2, b"x" * size, masked=False)


@pytest.mark.parametrize(
    ("reason", "sent"),
    [("x" * 120, "x" * 120), ("x" * 121, "x" * 120), ("é" * 60, "é" * 60), ("x" + "é" * 60, "x" + "é" * 59)],
)
@pytest.mark.parametrize("has_failed", [False, True])
def test_a_reason_of_a_close_is_cut_at_120_bytes_and_between_characters(
    reason: str, sent: str, has_failed: bool
) -> None:
    client, server = connected()
    if has_failed:
        server.fail(TOO_BIG, reason)
    else:
        server.close(TOO_BIG, reason)
    client.receive(server.data_to_send())
    assert client.protocol.close_rcvd is not None
    assert (client.close_code, client.protocol.close_rcvd.reason) == (TOO_BIG, sent)


def test_a_client_refuses_frames_with_a_mask() -> None:
    client, _ = connected(is_binary=True)
    assert client.receive(frame(2, b"x")) == []
    assert (client.is_open, client.is_broken) == (False, True)
