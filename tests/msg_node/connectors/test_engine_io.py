"""Packets and payloads of Engine.IO 3 and socket.io 1.x, held against what the reference server and client write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.connectors.core import engine_io
from msg_node.connectors.core.engine_io import Kind, Packet, Trouble, decode_payload, encode_payload, read_packet
from protofly.errors import PeerError
from protofly.limits import PAYLOAD_PACKETS

MESSAGE = '{"id":1,"type":"open","from":"runtime://a.example/r1","to":"mn:/session"}'
UMLAUT = "Grüße, 日本 \U0001f600"

texts = st.text(max_size=80)
packets = st.lists(texts.map(lambda text: ("4" + text).encode()), min_size=1, max_size=8)


def typed(text: str) -> bytes:
    """A `message` event as the client writes it."""
    return b"42" + json.dumps(["message", text], ensure_ascii=False).encode()


# What the reference peers put on the wire.


def test_the_greeting_is_that_of_the_reference_server_at_the_default_period() -> None:
    packet = engine_io.open_packet("AAAAAAAAAAAAAAAAAAAA", upgrades=["websocket"], ping_seconds=30)
    assert packet == (
        b'0{"sid":"AAAAAAAAAAAAAAAAAAAA","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":60000}'
    )
    assert encode_payload([packet])[:4] == b"97:0"


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        ([b"40"], b"2:40"),
        ([b"6"], b"1:6"),
        ([b"3", b"40"], b"1:32:40"),
        (["4é".encode()], "3:4Ã©".encode()),  # three bytes of UTF-8, each written as a character
        (["4\U0001f600".encode()], "5:4ð\x9f\x98\x80".encode()),
        ([], b""),
    ],
)
def test_payloads_are_written_as_the_reference_server_writes_them(sent: list[bytes], body: bytes) -> None:
    assert encode_payload(sent) == body


@pytest.mark.parametrize(
    ("body", "is_binary", "read"),
    [
        (b"2:40", False, [b"40"]),
        (b'1:29:42["a",1]', False, [b"2", b'42["a",1]']),
        ("3:4Ã©".encode(), False, ["4é".encode()]),
        (b"1:2" * PAYLOAD_PACKETS, False, [b"2"] * PAYLOAD_PACKETS),
        (b"000000002:40", False, [b"40"]),
        (b"\x00\x02\xff40", True, [b"40"]),
        (b"\x00\x09\xff4" + b"x" * 8, True, [b"4" + b"x" * 8]),
        (b"\x00" + b"\x00" * 8 + b"\x02\xff40", True, [b"40"]),
        (b"\x00\x01\xff2" * PAYLOAD_PACKETS, True, [b"2"] * PAYLOAD_PACKETS),
        (b"\x00\x01\x02\xff4" + b"x" * 11, True, [b"4" + b"x" * 11]),
        (b"\x00\x03\xff4\xc3\xa9\x00\x01\xff2", True, ["4é".encode(), b"2"]),
    ],
)
def test_payloads_of_both_framings_are_taken_apart(body: bytes, is_binary: bool, read: list[bytes]) -> None:
    assert decode_payload(body, is_binary=is_binary) == read


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b":",
        b"4",
        b"2x",  # no end of the length
        b"5:4",
        b"-1:4",
        b"+1:4",
        b"1 :4",
        b"0x1:4",
        b"1:",
        b"99999999999:4",
        b"0000000002:40",
        b"9" * 5000 + b":4",
        b"1:43",
        "3:4é".encode(),  # characters are counted, and encoded once
        "2:4é".encode(),
        "2:4日".encode(),
        b"2:4\xe9",
        b"\xff\xfe",
        "3:4Ã(".encode(),  # no UTF-8 after the first decoding
        b"1:2" * (PAYLOAD_PACKETS + 1),
    ],
)
def test_a_payload_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(PeerError):
        decode_payload(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x00\xff",
        b"\x00\x01",
        b"\x00\x03x",  # no end of the length
        b"\x00\x0a\xff4",
        b"\x00\x02\xff4",
        b"\x01\x02\xff4x",
        b"\x02\x01\xff4",
        b"\x00" + b"\x09" * 12 + b"\xff4",
        b"\x00" + b"\x00" * 9 + b"\x02\xff40",
        b"\x00\x01\xff2" * (PAYLOAD_PACKETS + 1),
        b"\x00\x01\xff\xff",
        b"\x00\x01\xff4\x00\x02\xff4\xff",  # the second one is no text
        b"\x00\x0a\xff4123456789",  # ten is no digit
        b"\x00\x01\x0a\xff4" + b"x" * 19,
        b"1:4",
    ],
)
def test_a_payload_in_the_framing_for_bytes_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(PeerError):
        decode_payload(body, is_binary=True)


@pytest.mark.parametrize(
    ("mark", "said"), [(0, ""), (1, "binary packets are not carried"), (2, "a packet of an unknown kind")]
)
def test_only_packets_of_text_are_carried_and_others_are_named(mark: int, said: str) -> None:
    body = bytes([mark, 1, 255]) + b"6"
    if not said:
        assert decode_payload(body, is_binary=True) == [b"6"]
        return
    with pytest.raises(PeerError) as caught:
        decode_payload(body, is_binary=True)
    assert caught.value.detail == said


@given(packets)
def test_what_is_put_together_comes_apart_again(sent: list[bytes]) -> None:
    assert decode_payload(encode_payload(sent)) == sent


@given(packets)
def test_lengths_count_the_bytes_of_the_first_encoding(sent: list[bytes]) -> None:
    once = encode_payload(sent).decode().encode("latin-1")
    assert once == b"".join(str(len(one)).encode() + b":" + one for one in sent)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_payload_or_refused(body: bytes, is_binary: bool) -> None:
    try:
        read = decode_payload(body, is_binary=is_binary)
    except PeerError:
        return
    assert read
    assert sum(map(len, read)) < len(body)


# Packets.


@pytest.mark.parametrize(
    ("packet", "read"),
    [
        (b"2", Packet(Kind.PING)),
        (b"2probe", Packet(Kind.PING, b"probe")),
        (b"1", Packet(Kind.CLOSE)),
        (b"41", Packet(Kind.CLOSE)),
        (b"5", Packet(Kind.UPGRADE)),
        (b"3", Packet(Kind.IGNORED)),
        (b"6", Packet(Kind.IGNORED)),
        (b"40", Packet(Kind.IGNORED)),
        (b"40/?token=x", Packet(Kind.IGNORED)),
        (b"43[]", Packet(Kind.IGNORED)),
        (b'44"no"', Packet(Kind.IGNORED)),
        (b'42["other",{}]', Packet(Kind.IGNORED)),
        (b"40/chat", Packet(Kind.NAMESPACE, b"/chat")),
        (b'42/chat,["message","{}"]', Packet(Kind.NAMESPACE, b"/chat")),
        (b"41/chat", Packet(Kind.IGNORED)),
        (b'451-["message",{"_placeholder":true,"num":0}]', Packet(Kind.BINARY)),
        (b"461-[]", Packet(Kind.BINARY)),
        (b"b4AQID", Packet(Kind.BINARY)),
        (b"", Packet(Kind.BROKEN)),
        (b"0{}", Packet(Kind.BROKEN)),
        (b"7", Packet(Kind.BROKEN)),
        (b"4", Packet(Kind.BROKEN)),
        (b"49", Packet(Kind.BROKEN)),
        (typed(MESSAGE), Packet(Kind.MESSAGE, MESSAGE.encode())),
        (typed(UMLAUT), Packet(Kind.MESSAGE, UMLAUT.encode())),
        (b'42["message",' + MESSAGE.encode() + b"]", Packet(Kind.MESSAGE, MESSAGE.encode())),
        (b'42/,["message",{"a":1}]', Packet(Kind.MESSAGE, b'{"a":1}')),
        (b'4217["message","{}"]', Packet(Kind.MESSAGE, b"{}")),
        (b'42["message","{}","more"]', Packet(Kind.MESSAGE, b"{}")),
    ],
)
def test_each_packet_asks_for_one_thing(packet: bytes, read: Packet) -> None:
    assert read_packet(packet) == read


@pytest.mark.parametrize(
    "text",
    [b"", b"[", b"{}", b"[]", b"[1]", b'["message"]', b'["message","\\ud800"]', b'["message","\xff"]', b"[" * 9999],
)
def test_a_broken_event_is_given_to_the_bus_which_knows_how_to_answer_it(text: bytes) -> None:
    assert read_packet(b"42" + text) == Packet(Kind.MESSAGE, text)


@given(texts)
def test_a_text_that_the_client_sends_arrives_as_it_was(text: str) -> None:
    assert read_packet(typed(text)) == Packet(Kind.MESSAGE, text.encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_some_packet(data: bytes) -> None:
    assert read_packet(data).kind in Kind
    assert read_packet(b"42" + data).kind in Kind


@given(st.dictionaries(texts, texts, max_size=4))
def test_the_runtime_gets_the_message_itself(message: dict[str, str]) -> None:
    raw = json.dumps(message, ensure_ascii=False).encode()
    packet = engine_io.event_packet(raw)
    assert packet.startswith(b"42")
    assert json.loads(packet[2:]) == ["message", message]
    assert decode_payload(encode_payload([packet])) == [packet]


def test_troubles_are_reported_in_the_words_that_clients_know() -> None:
    assert Trouble.UNKNOWN_SID.body() == b'{"code":1,"message":"Session ID unknown"}'
    assert [trouble.value[0] for trouble in Trouble] == list(range(6))
