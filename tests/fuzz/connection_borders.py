"""What comes in below messages: WebSocket frames, HTTP requests, the target of a request, Engine.IO packets."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Final

import h11

from msg_node.connectors.core import engine_io
from msg_node.connectors.core.engine_io import Kind
from msg_node.connectors.listener import _arrival_in
from msg_node.kernel.dialects import Arrival, EntryPoint, arrival_at, parameters_of
from protofly.errors import Code, PeerError
from protofly.limits import HTTP_HEAD_BYTES, HTTP_HEADERS, PAYLOAD_PACKETS
from tests.fuzz.target import Target
from wire.core.http_serving import HttpRequest, HttpServing
from wire.core.websocket import ServerWebSocket

UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MOST_BYTES: Final = 5_000
"""Largest message, small enough that inputs get beyond it."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_BODY_BYTES: Final = 2_000
_CUTS: Final = (1, 2, 3, 7, 64, 1_000, 1 << 20)


def _cut(data: bytes) -> Iterator[bytes]:
    """The stream in an input, in parts: the first byte says how long they are, and perhaps not of equal length."""
    if not data:
        return
    stream = data[1:]
    steps = _CUTS[data[0] % len(_CUTS)], _CUTS[data[0] // 16 % len(_CUTS)]
    least = len(stream) // 200 + 1
    at, number = 0, 0
    while at < len(stream):
        end = at + max(steps[number % 2], least)
        yield stream[at:end]
        at, number = end, number + 1


# WebSocket.


def _accepted() -> ServerWebSocket:
    server = ServerWebSocket(max_bytes=MOST_BYTES)
    server.receive(UPGRADE)
    server.accept()
    server.data_to_send()
    return server


def check_frames(data: bytes) -> None:
    """Any stream, however it is cut, gives the messages that the library alone finds in it, and then the same end."""
    ours, library = _accepted(), _accepted()
    library._frames_itself = False
    taken: list[list[bytes]] = []
    for server in (ours, library):
        messages: list[bytes] = []
        size = 0
        for part in _cut(data):
            was_open = server.is_open
            found = server.receive(part)
            assert was_open or not found
            messages += found
            size += len(part)
            if server is ours and server._frames_itself:
                assert len(server._partial) <= MOST_BYTES + len(part) + 14
        messages += server.receive(b"")
        assert sum(map(len, messages)) <= size
        for message in messages:
            assert len(message) <= MOST_BYTES
            message.decode()
        taken.append(messages)
    assert taken[0] == taken[1]
    assert ours.is_open is library.is_open
    if not (ours._has_failed or library._has_failed):  # else each may name another one of several faults
        assert (ours.data_to_send(), ours.close_code) == (library.data_to_send(), library.close_code)


def frame(opcode: int, payload: bytes, *, fin: bool = True, reserved: int = 0) -> bytes:
    """One frame as a client sends it, masked with zeros so that a fuzzer sees through."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return bytes([(0x80 if fin else 0) | reserved | opcode]) + length + bytes(4) + payload


FRAMES: Final = tuple(
    bytes([cut]) + stream
    for cut in (0, 3, 6)
    for stream in (
        frame(1, b"{}") + frame(9, b"?") + frame(1, b"x" * 200),
        frame(1, b"\xc3", fin=False) + frame(10, b"!") + frame(0, b"\xa9", fin=False) + frame(0, b""),
        frame(8, struct.pack(">H", 1000) + b"bye") + frame(1, b"late"),
        frame(2, b"{}"),
        frame(1, b"\xff"),
        frame(1, b"{}", reserved=0x40),
        b"\x81\xff" + struct.pack(">Q", 3) + bytes(4) + b"abc" + frame(1, b"y"),
        b"\x81\xff" + struct.pack(">Q", 1 << 63) + bytes(4),
    )
)


# HTTP.


def check_http(data: bytes) -> None:
    """Any stream is a row of requests within their bounds, each of which can be answered, or is refused."""
    heads = 0

    def check_head(request: HttpRequest) -> None:
        nonlocal heads
        heads += 1
        if request.headers.get("x-refused"):
            raise PeerError(Code.POLICY, "refused by its head")

    serving = HttpServing(max_bytes=_BODY_BYTES, check_head=check_head)
    sent = b""
    requests = 0
    try:
        for part in (*_cut(data), b""):
            serving.receive(part)
            while (request := serving.next_request()) is not None:
                requests += 1
                assert len(request.body) <= _BODY_BYTES
                assert all(name == name.lower() for name in request.headers)
                assert len(request.headers) <= HTTP_HEADERS
                arrival_at(request.target)
                serving.answer(200, {"Content-Type": "text/plain"}, b"ok")
            sent += serving.data_to_send()
            if serving.is_over:
                break
    except PeerError as exc:
        serving.answer(exc.code.status, {}, b"no", is_last=True)
        assert serving.is_over or not serving.is_answered
    sent += serving.data_to_send()
    assert requests <= heads
    assert sent.count(b"HTTP/1.1 200 ") <= requests


def check_head(data: bytes) -> None:
    """Any first request has one entry; as an upgrade it is accepted or answered, and what is written is HTTP."""
    arrival = _arrival_in(data)
    _check_arrival(arrival)
    server = ServerWebSocket(max_bytes=MOST_BYTES)
    assert server.receive(data) == []
    if server.request_path is None:
        server.receive(b"")
    else:
        for name in ("Origin", "Authorization", "Sec-WebSocket-Protocol"):
            server.header(name)
        if arrival.entry is EntryPoint.NOBODY:
            server.reject(arrival.status or 404, arrival.text)
        elif server.is_upgrade:
            server.accept(subprotocol="trapezoid-link.1")
            assert server.is_open
            assert data.endswith(_END_OF_HEAD)
        else:
            try:
                server.accept()
            except PeerError:
                assert not server.is_open
    answer = server.data_to_send()
    assert not answer or _status(answer) == 101 or 400 <= _status(answer) < 600


def _status(answer: bytes) -> int:
    """The status of an answer as another library reads it."""
    client = h11.Connection(h11.CLIENT)
    client.send(
        h11.Request(
            method="GET", target="/", headers=[("Host", "x"), ("Connection", "Upgrade"), ("Upgrade", "websocket")]
        )
    )
    client.receive_data(answer)
    event = client.next_event()
    assert isinstance(event, h11.Response | h11.InformationalResponse), event
    return event.status_code


def _check_arrival(arrival: Arrival) -> None:
    assert (arrival.status != 0) is (arrival.entry is EntryPoint.NOBODY)
    assert len(arrival.parameters) <= 16
    if arrival.entry is EntryPoint.QUERY:
        assert arrival.parameters["runtimeURL"]


def check_target(data: bytes) -> None:
    """Any request target has one entry, and its query gives bounded parameters."""
    target = data.decode("latin-1")
    _check_arrival(arrival_at(target))
    assert len(parameters_of(target)) <= 16


REQUESTS: Final = (
    UPGRADE,
    UPGRADE.replace(b"/ws", b"/socket.io/?EIO=3&transport=websocket&sid=abc"),
    UPGRADE.replace(b"/ws", b"/stub/connect?runtimeURL=runtime%3A%2F%2Falpha.example%2Frt-ana&access_token=x"),
    UPGRADE.replace(b"/ws", b"/link").replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Protocol: trapezoid-link.1\r\n\r\n"),
    UPGRADE.replace(b"MDEyMzQ1Njc4OWFiY2RlZg==", b"x"),
    UPGRADE + frame(1, b"early"),
    b"GET /stub/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /ws HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
)
POLLS: Final = tuple(
    b"\x06" + request
    for request in (
        b"GET /socket.io/?EIO=3&transport=polling HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n",
        b"POST /socket.io/?EIO=3&transport=polling&sid=a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1:"
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n2\r\n1:\r\n0\r\n\r\n",
        b"HEAD / HTTP/1.0\r\nX-Refused: yes\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (HTTP_HEAD_BYTES - 40) + b"\r\n\r\n",
    )
)
TARGETS_OF_REQUESTS: Final = (
    b"/ws",
    b"/socket.io/?EIO=3&transport=polling&t=abc&b64=1&sid=x",
    b"/stub/connect?runtimeURL=hyperty-runtime%3A//alpha.example/rt&a=1&a=2",
    b"/stub/connect?runtimeURL",
    b"/stub/other",
    b"http://localhost/ws?" + b"&" * 20,
)


# Engine.IO.


def check_payload(data: bytes) -> None:
    """Any body is packets or refused, in either framing; packets put together again come apart the same."""
    packets = engine_io.decode_payload(data[1:], is_binary=data[:1] == b"\x01")
    assert 0 < len(packets) <= PAYLOAD_PACKETS
    assert sum(map(len, packets)) < len(data)
    for packet in packets:
        packet.decode()
        check_packet(packet)
    assert engine_io.decode_payload(engine_io.encode_payload(packets)) == packets


def check_packet(data: bytes) -> None:
    """Any packet asks for one thing, and what is answered is a packet itself."""
    packet = engine_io.read_packet(data)
    if packet.kind is Kind.NAMESPACE:
        refusal = engine_io.error_packet("Invalid namespace", namespace=packet.data)
        assert refusal.startswith(b"44/")
    if packet.kind is not Kind.MESSAGE:
        return
    assert len(packet.data) <= len(data)
    try:
        sent = json.dumps(json.loads(packet.data)).encode()
    except (ValueError, RecursionError):
        return
    again = engine_io.read_packet(engine_io.event_packet(sent))
    if sent[:1] == b"{":
        assert again == engine_io.Packet(Kind.MESSAGE, sent)


PACKETS: Final = (
    b'42["message","{\\"id\\":1}"]',
    b'42["message",{"id":1,"type":"x"}]',
    b'42/,7["message","\xc3\xa9"]',
    b'42["other",1]',
    b"42[",
    b"40/chat?x=1,",
    b"41",
    b"451-",
    b"2probe",
    b"5",
    b"3",
    b"1",
    b"b4AAAA",
)
PAYLOADS: Final = (
    *(b"\x00" + engine_io.encode_payload([packet]) for packet in PACKETS),
    b"\x00" + engine_io.encode_payload(PACKETS),
    b"\x00999999999:x",
    b"\x01\x00\x03\xff42[\x00\x01\xff5",
    b"\x01\x01\x02\xff\x04x",
    b"\x01\x00\x02\xff\xc3(",
)

TARGETS: Final = (
    Target("websocket-frames", check_frames, FRAMES, calls_per_byte=60, memory_per_byte=400),
    Target("http-requests", check_http, POLLS, calls_per_byte=60),
    Target("first-request", check_head, REQUESTS, calls_per_byte=60),
    Target("request-target", check_target, TARGETS_OF_REQUESTS),
    Target("engine-io-payload", check_payload, PAYLOADS, calls_per_byte=40),
    Target("engine-io-packet", check_packet, PACKETS),
)
