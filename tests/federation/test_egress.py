"""The lines of a stub: only granted endpoints, real TLS with the right certificate, WebSocket or bytes, both ways."""

from __future__ import annotations

import ssl

import pytest
import trio
import trio.lowlevel
import trio.testing
import trustme

from federation.stubs.egress import KEEPALIVE_SECONDS, EgressRules
from protofly.errors import Code, StubFaultError
from protofly.limits import HANDSHAKE_SECONDS
from protofly.signatures import base64url
from sandbox.core.exchange import EVENT_PAYLOAD_BYTES, ChannelKind, Event
from tests.support.egress_lines import URL, endpoints, lines, nothing
from tests.support.lines import (
    certificate_of,
    client_context,
    public_key_sha256,
    receive_exactly,
)
from wire.byte_channel import ByteChannel
from wire.core.websocket import TOO_BIG, ServerWebSocket


async def accept(line: ByteChannel, *, subprotocol: str = "", extra: bytes = b"") -> ServerWebSocket:
    """The upgrade, as a server does it; `extra` is sent in the same write."""
    websocket = ServerWebSocket(max_bytes=8 << 20)
    while websocket.request_path is None:
        data = await line.receive()
        if not data:
            raise EOFError("the client left before its request")
        websocket.receive(data)
    websocket.accept(subprotocol=subprotocol or None, is_binary=True)
    answer = websocket.data_to_send()
    websocket.send([extra] if extra else [])
    line.send_nowait(answer + websocket.data_to_send())
    return websocket


async def echo(line: ByteChannel) -> None:
    """Sends every WebSocket message back."""
    websocket = await accept(line, subprotocol="x.1")
    while data := await line.receive():
        websocket.send(websocket.receive(data))
        line.send_nowait(websocket.data_to_send())
        await line.wait_drained()


# WebSocket.


async def test_messages_go_out_and_come_back_in_order() -> None:
    payloads = [b"one", b"", b"x" * 300_000, *[b"%d" % number for number in range(500)]]
    async with lines(echo) as ours:
        ours.open(subprotocol="x.1")
        assert (await ours.wait_for(Event.OPENED)).payload == b"x.1"
        ours.egress.send(1, payloads[:3])
        for payload in payloads[3:]:
            ours.egress.send(1, [payload])
        await ours.wait_for(Event.DATA, len(payloads))
        assert [event.payload for event in ours.events[1:]] == payloads
    assert ours.dialler.asked == [("mn.b.example", 443, "b.example")]


async def test_what_the_server_says_with_its_first_breath_comes_after_opened() -> None:
    async def speak_first(line: ByteChannel) -> None:
        await accept(line, extra=b"welcome")
        await nothing(line)

    async with lines(speak_first) as ours:
        ours.open()
        await ours.wait_for(Event.DATA)
        assert [event.op for event in ours.events] == [Event.OPENED, Event.DATA]


async def test_path_headers_and_subprotocol_are_what_the_stub_asked_for() -> None:
    seen: list[str] = []

    async def look(line: ByteChannel) -> None:
        websocket = ServerWebSocket()
        while websocket.request_path is None:
            websocket.receive(await line.receive())
        seen.extend([websocket.request_path, websocket.header("X-Room"), websocket.header("Host")])
        websocket.accept()
        line.send_nowait(websocket.data_to_send())

    async with lines(look) as ours:
        ours.open(path="/room?x=1", headers={"X-Room": "7"})
        await ours.wait_for(Event.OPENED)
    assert seen == ["/link/room?x=1", "7", "mn.b.example"]


@pytest.mark.parametrize("is_early", [False, True])
async def test_a_message_that_is_too_long_for_one_event_closes_its_channel_only(*, is_early: bool) -> None:
    async def say_too_much(line: ByteChannel) -> None:
        websocket = await accept(line, extra=bytes(EVENT_PAYLOAD_BYTES + 1) if is_early else b"")
        if not is_early:
            websocket.send([bytes(EVENT_PAYLOAD_BYTES), bytes(EVENT_PAYLOAD_BYTES + 1)])
            line.send_nowait(websocket.data_to_send())
        await nothing(line)

    async with lines(say_too_much) as ours:
        ours.open()
        closed = await ours.wait_for(Event.CLOSED)
    assert closed.payload == b"closed %d" % TOO_BIG
    assert [len(event.payload) for event in ours.events if event.op == Event.DATA] == (
        [] if is_early else [EVENT_PAYLOAD_BYTES]
    )


async def test_a_refused_upgrade_closes_the_channel_with_the_reason() -> None:
    async def refuse(line: ByteChannel) -> None:
        await line.receive()
        line.send_nowait(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with lines(refuse) as ours:
        ours.open()
        closed = await ours.wait_for(Event.CLOSED)
    assert closed.payload.startswith(b"connect-failed")
    assert b"403" in closed.payload


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00" * 100,
        b"HTTP/1.1 301 Moved\r\nLocation: wss://10.0.0.1/\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000,
    ],
    ids=["nothing", "binary", "redirect", "wrong-accept", "endless-headers"],
)
async def test_an_answer_that_is_no_upgrade_closes_the_channel(answer: bytes) -> None:
    async def nonsense(line: ByteChannel) -> None:
        await line.receive()
        line.send_nowait(answer)

    async with lines(nonsense) as ours:
        ours.open()
        closed = await ours.wait_for(Event.CLOSED)
    assert closed.payload.startswith(b"connect-failed")
    assert len(closed.payload) <= 256
    assert len(ours.dialler.asked) == 1


async def test_a_server_that_never_answers_the_upgrade_is_left(mock_clock: trio.testing.MockClock) -> None:
    async with lines(nothing) as ours:
        ours.open()
        while not ours.dialler.asked:
            await trio.lowlevel.checkpoint()
        for _ in range(50):
            await trio.testing.wait_all_tasks_blocked(0.001)
        mock_clock.jump(HANDSHAKE_SECONDS)
        assert (await ours.wait_for(Event.CLOSED)).payload == b"fetch-timeout"


async def test_a_server_that_sends_fragments_without_end_costs_its_line_and_no_memory() -> None:
    async def fragment_for_ever(line: ByteChannel) -> None:
        websocket = await accept(line)
        websocket.protocol.send_binary(b"", fin=False)
        while not line.is_closed and websocket.is_open:
            for _ in range(100):
                websocket.protocol.send_continuation(b"", fin=False)
            line.send_nowait(websocket.data_to_send())
            await line.wait_drained()

    async with lines(fragment_for_ever) as ours:
        ours.open()
        await ours.wait_for(Event.OPENED)
        closed = await ours.wait_for(Event.CLOSED)
        assert str(TOO_BIG).encode() in closed.payload
        assert ours.data == b""


async def test_a_server_that_falls_silent_is_asked_once_and_then_left(mock_clock: trio.testing.MockClock) -> None:
    async def fall_silent(line: ByteChannel) -> None:
        await accept(line)
        await nothing(line)  # reads the ping and does not answer it

    async with lines(fall_silent) as ours:
        ours.open()
        await ours.wait_for(Event.OPENED)
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked(0.001)
            mock_clock.jump(KEEPALIVE_SECONDS)
        assert (await ours.wait_for(Event.CLOSED)).payload.startswith(b"timeout")


async def test_the_close_code_of_the_server_is_reported() -> None:
    async def leave(line: ByteChannel) -> None:
        websocket = await accept(line)
        websocket.close(4007, "enough")
        line.send_nowait(websocket.data_to_send())
        await line.receive()

    async with lines(leave) as ours:
        ours.open()
        assert (await ours.wait_for(Event.CLOSED)).payload == b"closed 4007"


async def test_a_cut_line_is_reported_and_the_number_is_free_again() -> None:
    async def cut(line: ByteChannel) -> None:
        await accept(line)
        line.close()

    async with lines(cut) as ours:
        for count in (1, 2):
            ours.open()
            await ours.wait_for(Event.CLOSED, count)
        with pytest.raises(StubFaultError) as caught:
            ours.egress.send(1, [b"late"])
        assert caught.value.code is Code.STUB_DENIED


async def test_closing_says_goodbye_and_notifies_the_guest() -> None:
    codes: list[int | None] = []

    async def wait(line: ByteChannel) -> None:
        websocket = await accept(line)
        while websocket.is_open:
            websocket.receive(await line.receive())
        codes.append(websocket.close_code)

    async with lines(wait) as ours:
        ours.open()
        await ours.wait_for(Event.OPENED)
        ours.egress.close(1)
        ours.egress.close(1)
        ours.egress.close(99)
        assert (await ours.wait_for(Event.CLOSED)).payload == b"closed"
        while not codes:
            await trio.lowlevel.checkpoint()
    assert codes == [1000]


async def test_a_channel_closed_while_it_opens_connects_nowhere() -> None:
    async with lines(nothing) as ours:
        ours.open()
        ours.egress.close(1)
        await ours.wait_for(Event.CLOSED)
        assert [event.op for event in ours.events] == [Event.CLOSED]


# Congestion.


async def test_what_the_far_end_does_not_read_is_counted_and_drains_later() -> None:
    reading = trio.Event()
    size = 8 << 20

    async def read_late(line: ByteChannel) -> None:
        await accept(line)
        await reading.wait()
        await receive_exactly(line, size)
        await nothing(line)

    async with lines(read_late) as ours:
        ours.open()
        await ours.wait_for(Event.OPENED)
        ours.egress.send(1, [b"x" * size])
        await trio.testing.wait_all_tasks_blocked()
        assert ours.egress.backlog_bytes > size // 4
        reading.set()
        with trio.fail_after(10):
            await ours.egress.wait_drained()
        assert ours.egress.backlog_bytes == 0


async def test_while_the_guest_has_no_room_the_line_is_not_read() -> None:
    total = 8 << 20

    async def pour(line: ByteChannel) -> None:
        websocket = await accept(line)
        for _ in range(total // 65_536):
            websocket.send([b"x" * 65_536])
        line.send_nowait(websocket.data_to_send())
        await nothing(line)

    async with lines(pour) as ours:
        ours.room = trio.Event()
        ours.open()
        await ours.wait_for(Event.OPENED)  # what came along with it is there, too, and no more
        await trio.testing.wait_all_tasks_blocked()
        assert len(ours.data) < 1 << 20
        ours.room.set()
        await ours.wait_for(Event.DATA, total // 65_536)


async def test_a_flood_of_pings_from_one_who_never_reads_fills_no_memory() -> None:
    async def flood(line: ByteChannel) -> None:
        websocket = await accept(line)
        for _ in range(40_000):
            websocket.ping(b"x" * 125)
        line.send_nowait(websocket.data_to_send())
        await trio.sleep_forever()

    async with lines(flood) as ours:
        ours.open()
        await ours.wait_for(Event.OPENED)
        for _ in range(20):
            await trio.testing.wait_all_tasks_blocked()
        assert ours.egress.backlog_bytes < 2 << 20  # of 5 MiB that the flood asks for


# Bytes over TLS.


async def test_a_stream_of_bytes_goes_both_ways() -> None:
    async def shout(line: ByteChannel) -> None:
        line.send_nowait((await receive_exactly(line, 5)).upper())

    rules = EgressRules("b.example", endpoints("tls://mn.b.example:7777"))
    async with lines(shout, rules=rules) as ours:
        ours.open(kind=ChannelKind.TCP_TLS)
        assert (await ours.wait_for(Event.OPENED)).payload == b""
        ours.egress.send(1, [b"hel", b"lo"])
        assert (await ours.wait_for(Event.CLOSED)).payload == b"closed"
        assert ours.data == b"HELLO"
    assert ours.dialler.asked == [("mn.b.example", 7777, "b.example")]


# Certificates and pins.


@pytest.mark.parametrize(
    "certificate",
    [
        certificate_of("mn.c.example"),
        certificate_of("mn.b.example", "strangers"),
        certificate_of("b.example"),
    ],
    ids=["other-name", "other-authority", "parent-domain"],
)
async def test_a_certificate_that_does_not_fit_closes_the_channel(certificate: trustme.LeafCert) -> None:
    async with lines(nothing, certificate=certificate) as ours:
        ours.open()
        assert (await ours.wait_for(Event.CLOSED)).payload.startswith(b"tls-failed")
        assert [event.op for event in ours.events] == [Event.CLOSED]


async def test_a_pinned_key_that_fits_is_accepted() -> None:
    pins = ["A" * 43, base64url(public_key_sha256(certificate_of("mn.b.example")))]
    async with lines(echo, rules=EgressRules("b.example", endpoints(spki=pins))) as ours:
        ours.open()
        await ours.wait_for(Event.OPENED)


async def test_a_valid_certificate_with_another_key_than_the_pinned_one_is_refused() -> None:
    pins = [base64url(public_key_sha256(certificate_of("mn.b.example", number=1)))]
    async with lines(echo, rules=EgressRules("b.example", endpoints(spki=pins))) as ours:
        ours.open()
        assert (await ours.wait_for(Event.CLOSED)).payload.startswith(b"tls-failed")


async def test_plaintext_only_where_the_operator_said_so() -> None:
    plain = endpoints("ws://mn.b.example/link")
    async with lines(echo, rules=EgressRules("b.example", plain)) as ours:
        with pytest.raises(StubFaultError) as caught:
            ours.open()
        assert caught.value.code is Code.STUB_DENIED
    async with lines(nothing, rules=EgressRules("b.example", plain, allows_plaintext=True)) as ours:
        ours.open()
        while not ours.dialler.asked:
            await trio.lowlevel.checkpoint()
    assert ours.dialler.asked == [("mn.b.example", 80, "b.example")]


async def test_http_in_plaintext_only_where_the_operator_said_so() -> None:
    plain = endpoints("http://mn.b.example:8080/api")
    async with lines(echo, rules=EgressRules("b.example", plain)) as ours:
        with pytest.raises(StubFaultError, check=lambda error: error.code is Code.STUB_DENIED):
            ours.open(kind=ChannelKind.HTTP)
    async with lines(nothing, rules=EgressRules("b.example", plain, allows_plaintext=True)) as ours:
        ours.open(kind=ChannelKind.HTTP)
        while not ours.dialler.asked:
            await trio.lowlevel.checkpoint()
    assert ours.dialler.asked == [("mn.b.example", 8080, "b.example")]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (URL, ChannelKind.TCP_TLS),
        (URL, ChannelKind.HTTP),
        ("tls://mn.b.example:1", ChannelKind.WEBSOCKET),
        ("https://mn.b.example/", ChannelKind.WEBSOCKET),
    ],
)
async def test_the_kind_of_channel_must_fit_the_endpoint(url: str, kind: ChannelKind) -> None:
    async with lines(nothing, rules=EgressRules("b.example", endpoints(url))) as ours:
        with pytest.raises(StubFaultError) as caught:
            ours.open(kind=kind)
        assert caught.value.code is Code.STUB_DENIED
    assert ours.dialler.asked == []


def test_the_tests_use_real_checks_of_certificates() -> None:
    assert client_context().check_hostname
    assert client_context().verify_mode is ssl.CERT_REQUIRED


async def test_a_ping_shows_whether_a_silent_server_is_there() -> None:
    async with lines(accept_and_listen) as ours:
        assert (ours.egress.heard_seconds, ours.egress.probe()) == (0.0, False)  # no line, nobody to ask
        ours.open()
        await ours.wait_for(Event.OPENED)
        assert ours.egress.probe()
        with trio.fail_after(5):
            while not ours.egress.heard_seconds:
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()  # while the guest digests, it is as if something were heard
        assert len({ours.egress.heard_seconds for _ in range(100)}) == 1


async def accept_and_listen(line: ByteChannel) -> None:
    """A server that says nothing and answers pings."""
    websocket = await accept(line)
    while data := await line.receive():
        websocket.receive(data)
        line.send_nowait(websocket.data_to_send())
