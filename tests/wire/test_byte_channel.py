"""One line as bytes, over real sockets and real TLS: order, back-pressure, cuts, resets, cancellation."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly.errors import Code, TransportError
from tests.support.lines import (
    as_stream,
    certificate_of,
    certificate_sha256,
    channel_pair,
    client_context,
    receive_exactly,
    receive_to_end,
    reset,
    server_context,
    stream_pair,
    tcp_pair,
)
from wire.byte_channel import RECEIVE_BYTES, ByteChannel

BOTH = pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
HUGE = bytes(range(256)) * (32 << 10)
"""8 MiB in which every misplaced block shows."""


@BOTH
async def test_what_is_sent_arrives(is_tls: bool) -> None:
    async with channel_pair(is_tls=is_tls) as (client, server):
        client.send_nowait(b"to the server")
        server.send_nowait(b"to the client")
        assert await server.receive() == b"to the server"
        assert await client.receive() == b"to the client"


@BOTH
async def test_a_huge_write_arrives_whole(is_tls: bool) -> None:
    async with channel_pair(is_tls=is_tls) as (client, server):
        client.send_nowait(HUGE)
        assert await receive_exactly(server, len(HUGE)) == HUGE
        assert client.backlog_bytes == 0


@BOTH
async def test_many_small_writes_arrive_in_order(is_tls: bool) -> None:
    lines = [b"%d\n" % number for number in range(20_000)]
    async with channel_pair(is_tls=is_tls) as (client, server):
        for line in lines:
            client.send_nowait(line)
        whole = b"".join(lines)
        assert await receive_exactly(server, len(whole)) == whole


@BOTH
async def test_small_and_huge_writes_keep_their_order_in_both_directions_at_once(is_tls: bool) -> None:
    blocks = [bytes([number]) * (1 if number % 3 else 300_000) for number in range(30)]
    whole = b"".join(blocks)

    async def send_all(channel: ByteChannel) -> None:
        for block in blocks:
            channel.send_nowait(block)
            await trio.lowlevel.checkpoint()

    async def check(channel: ByteChannel) -> None:
        assert await receive_exactly(channel, len(whole)) == whole

    async with channel_pair(is_tls=is_tls) as ends, trio.open_nursery() as nursery:
        for end in ends:
            nursery.start_soon(send_all, end)
            nursery.start_soon(check, end)


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 400_000), min_size=1, max_size=12), is_tls=st.booleans(), pauses=st.integers(0, 7))
def test_any_pattern_of_writes_arrives_as_it_was_written(sizes: list[int], is_tls: bool, pauses: int) -> None:
    blocks = [bytes([index + 1]) * size for index, size in enumerate(sizes)]

    async def play() -> bytes:
        async with channel_pair(is_tls=is_tls) as (client, server):
            for index, block in enumerate(blocks):
                client.send_nowait(block)
                if index & pauses:
                    await trio.lowlevel.checkpoint()
            return await receive_exactly(server, sum(sizes))

    assert trio.run(play) == b"".join(blocks)


@BOTH
async def test_while_the_reader_stops_the_rest_waits_and_is_counted(is_tls: bool) -> None:
    async with channel_pair(is_tls=is_tls) as (client, server):
        client.send_nowait(HUGE)
        before = client.backlog_bytes
        await trio.testing.wait_all_tasks_blocked()
        assert len(HUGE) * 0.5 < client.backlog_bytes <= before
        assert await receive_exactly(server, len(HUGE)) == HUGE
        await client.wait_drained()
        assert client.backlog_bytes == 0


@BOTH
async def test_draining_is_reported_once_per_back_log(is_tls: bool) -> None:
    reported: list[int] = []
    async with channel_pair(is_tls=is_tls) as (client, server):
        client.on_drained = lambda: reported.append(client.backlog_bytes)
        client.send_nowait(b"fits at once")
        await trio.testing.wait_all_tasks_blocked()
        assert reported == []
        for _ in range(2):
            client.send_nowait(HUGE)
            await receive_exactly(server, len(HUGE))
            await trio.testing.wait_all_tasks_blocked()
        assert reported == [0, 0]


async def test_what_is_sent_on_drained_follows_what_was_left_over() -> None:
    async with channel_pair() as (client, server):
        client.on_drained = lambda: client.send_nowait(b"!")
        client.send_nowait(HUGE)
        assert await receive_exactly(server, len(HUGE) + 1) == HUGE + b"!"


async def test_waiting_for_nothing_left_over_returns_at_once() -> None:
    async with channel_pair() as (client, _):
        with trio.testing.assert_checkpoints():
            await client.wait_drained()


@BOTH
async def test_a_cancelled_receive_loses_nothing(is_tls: bool) -> None:
    lines = [b"%06d\n" % number for number in range(2_000)]
    received: list[bytes] = []

    async def send_all(channel: ByteChannel) -> None:
        for line in lines:
            channel.send_nowait(line)
            await trio.lowlevel.checkpoint()

    async with channel_pair(is_tls=is_tls) as (client, server), trio.open_nursery() as nursery:
        nursery.start_soon(send_all, client)
        whole = b"".join(lines)
        while sum(map(len, received)) < len(whole):
            with trio.CancelScope() as scope:
                scope.cancel()  # even then what was read is handed over
                received.append(await server.receive())
            await trio.lowlevel.checkpoint()
            with trio.CancelScope() as scope:
                nursery.start_soon(_cancel_after_a_round, scope)
                received.append(await server.receive())
        assert b"".join(received) == whole


async def _cancel_after_a_round(scope: trio.CancelScope) -> None:
    await trio.lowlevel.checkpoint()
    scope.cancel()


@BOTH
async def test_a_cancelled_wait_for_drained_leaves_the_line_whole(is_tls: bool) -> None:
    async with channel_pair(is_tls=is_tls) as (client, server):
        client.send_nowait(HUGE)
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.wait_drained()
        assert scope.cancelled_caught
        client.send_nowait(b"!")
        assert await receive_exactly(server, len(HUGE) + 1) == HUGE + b"!"


@BOTH
async def test_an_orderly_end_delivers_everything_first(is_tls: bool) -> None:
    async with channel_pair(is_tls=is_tls) as (client, server), trio.open_nursery() as nursery:
        client.send_nowait(HUGE)
        nursery.start_soon(client.aclose)
        assert await receive_to_end(server) == HUGE
        assert await server.receive() == b""


@pytest.mark.parametrize("size", [1, RECEIVE_BYTES - 1, RECEIVE_BYTES, RECEIVE_BYTES + 1, 2 * RECEIVE_BYTES])
async def test_what_came_before_each_read_and_a_half_close_is_read_whether_or_not_it_fills_a_buffer(size: int) -> None:
    far_end, near_end = tcp_pair()
    with far_end:
        async with trio.open_nursery() as drains, ByteChannel(near_end, drain_nursery=drains) as channel:
            for block in (HUGE[:size], b"next", HUGE[:size]):
                await trio.to_thread.run_sync(far_end.sendall, block)
                assert await receive_exactly(channel, size if block != b"next" else 4) == block
            await trio.to_thread.run_sync(far_end.sendall, HUGE[:size])
            far_end.shutdown(socket.SHUT_WR)
            assert await receive_to_end(channel) == HUGE[:size]
            assert await channel.receive() == b""
            channel.send_nowait(b"still heard")
            assert await trio.to_thread.run_sync(far_end.recv, 64) == b"still heard"


@BOTH
async def test_closing_wakes_a_reader_that_waits(is_tls: bool) -> None:
    async with channel_pair(is_tls=is_tls) as (client, _), trio.open_nursery() as nursery:
        got: list[bytes] = []

        async def read() -> None:
            got.append(await client.receive())

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        client.close()
        await trio.testing.wait_all_tasks_blocked()
        assert got == [b""]


@BOTH
async def test_closing_wakes_who_waits_for_drained_and_drops_the_rest(is_tls: bool) -> None:
    async with channel_pair(is_tls=is_tls) as (client, _), trio.open_nursery() as nursery:
        client.send_nowait(HUGE)
        nursery.start_soon(client.wait_drained)
        await trio.testing.wait_all_tasks_blocked()
        client.close()
        assert (client.is_closed, client.backlog_bytes) == (True, 0)


@BOTH
async def test_a_closed_channel_takes_nothing_and_may_be_closed_again(is_tls: bool) -> None:
    async with channel_pair(is_tls=is_tls) as (client, server):
        client.close()
        client.close()
        client.send_nowait(b"late")
        await client.aclose()
        assert await client.receive() == b""
        assert await server.receive() == b""


async def test_a_line_cut_inside_a_tls_record_is_an_end_of_stream() -> None:
    async with trio.open_nursery() as drains:
        client, far_end = await _tls_client_with_bare_far_end(drains)
        far_end.send(b"\x17\x03\x03\x01\x00" + b"half of a record")
        far_end.close()
        assert await client.receive() == b""
        assert await client.receive() == b""
        client.close()


async def test_garbage_instead_of_a_tls_record_is_an_end_of_stream() -> None:
    async with trio.open_nursery() as drains:
        client, far_end = await _tls_client_with_bare_far_end(drains)
        far_end.send(b"HTTP/1.1 200 OK\r\n\r\n")
        assert await client.receive() == b""
        client.close()
        far_end.close()


async def test_what_came_before_the_cut_is_delivered() -> None:
    async with channel_pair(is_tls=True) as (client, server):
        server.send_nowait(b"goodbye")
        server.close()  # without a goodbye
        assert await client.receive() == b"goodbye"
        assert await client.receive() == b""


async def _tls_client_with_bare_far_end(drains: trio.Nursery) -> tuple[ByteChannel, socket.socket]:
    """A client after its handshake; the far end's TLS is over, its socket is the test's."""
    ours, theirs = tcp_pair()
    made: list[ByteChannel] = []

    async def serve() -> None:
        context = server_context(certificate_of("mn.b.example"))
        made.append(await ByteChannel.over(as_stream(theirs), drain_nursery=drains, context=context, server_side=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        client = await ByteChannel.over(
            as_stream(ours), drain_nursery=drains, context=client_context(), server_hostname="mn.b.example"
        )
    far_end = made[0]._sock.dup()
    made[0].close()
    return client, far_end


async def test_a_reset_line_is_an_end_of_stream_for_the_reader() -> None:
    ours, theirs = tcp_pair()
    async with trio.open_nursery() as drains, await ByteChannel.over(as_stream(ours), drain_nursery=drains) as channel:
        drains.start_soon(_reset_when_all_wait, theirs)
        assert await channel.receive() == b""
        assert await channel.receive() == b""


async def _reset_when_all_wait(sock: socket.socket) -> None:
    await trio.testing.wait_all_tasks_blocked()
    reset(sock)


async def test_a_reset_while_much_is_left_over_closes_and_wakes_everybody() -> None:
    ours, theirs = tcp_pair()
    drained: list[str] = []
    async with trio.open_nursery() as drains, await ByteChannel.over(as_stream(ours), drain_nursery=drains) as channel:
        channel.on_drained = lambda: drained.append("drained")
        channel.send_nowait(HUGE)
        drains.start_soon(_reset_when_all_wait, theirs)
        await channel.wait_drained()
        await trio.testing.wait_all_tasks_blocked()
        channel.send_nowait(b"more")
        assert drained == []
        assert (channel.is_closed, channel.backlog_bytes) == (True, 0)


async def test_sending_to_a_line_that_was_reset_closes_it_and_never_raises() -> None:
    ours, theirs = tcp_pair()
    async with trio.open_nursery() as drains, await ByteChannel.over(as_stream(ours), drain_nursery=drains) as channel:
        reset(theirs)
        channel.send_nowait(b"x")
        channel.send_nowait(b"x")
        assert channel.is_closed


async def test_closing_with_a_reader_that_stopped_takes_no_longer_than_it_may(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with channel_pair() as (client, _), trio.open_nursery() as nursery:
        client.send_nowait(HUGE)
        nursery.start_soon(client.aclose)
        await trio.testing.wait_all_tasks_blocked()
        assert not client.is_closed
        mock_clock.jump(1.0)
        await trio.testing.wait_all_tasks_blocked()
        assert client.is_closed


async def test_the_client_knows_the_certificate_of_the_server_and_the_server_none() -> None:
    async with channel_pair(is_tls=True) as (client, server):
        assert client.peer_certificate_sha256 == certificate_sha256(certificate_of("mn.b.example"))
        assert server.peer_certificate_sha256 == b""
    async with channel_pair() as (client, _):
        assert (client.peer_certificate, client.peer_certificate_sha256) == (b"", b"")


async def _handshake(server: ssl.SSLContext | None, client: ssl.SSLContext, host: str) -> TransportError:
    ours, theirs = stream_pair()
    async with trio.open_nursery() as drains, theirs:

        async def serve() -> None:
            with pytest.raises(TransportError):
                await ByteChannel.over(theirs, drain_nursery=drains, context=server, server_side=True)

        if server is not None:
            drains.start_soon(serve)
        else:
            await theirs.send_all(b"SSH-2.0-OpenSSH_9.6\r\n")
        with pytest.raises(TransportError) as caught:
            await ByteChannel.over(ours, drain_nursery=drains, context=client, server_hostname=host)
    return caught.value


@pytest.mark.parametrize(
    ("certificate", "trusted", "host"),
    [
        (certificate_of("mn.c.example"), "tests", "mn.b.example"),
        (certificate_of("mn.b.example", "strangers"), "tests", "mn.b.example"),
        (certificate_of("*.b.example"), "tests", "deep.mn.b.example"),
    ],
    ids=["other-name", "other-authority", "wildcard-of-another-level"],
)
async def test_a_certificate_that_does_not_fit_is_refused(
    certificate: trustme.LeafCert, trusted: str, host: str
) -> None:
    error = await _handshake(server_context(certificate), client_context(trusted), host)
    assert (error.code, error.phase) == (Code.TLS_FAILED, "tls")


async def test_a_far_end_that_speaks_no_tls_is_refused() -> None:
    assert (await _handshake(None, client_context(), "mn.b.example")).code is Code.TLS_FAILED


async def test_a_line_that_ends_during_the_handshake_is_a_failure_with_its_code() -> None:
    ours, theirs = stream_pair()
    async with trio.open_nursery() as drains:
        await theirs.aclose()
        with pytest.raises(TransportError) as caught:
            await ByteChannel.over(ours, drain_nursery=drains, context=client_context(), server_hostname="mn.b.example")
        assert caught.value.code is Code.TLS_FAILED


async def test_a_cancelled_handshake_closes_the_socket() -> None:
    ours, theirs = stream_pair()
    async with trio.open_nursery() as drains, theirs:
        with trio.CancelScope() as scope:
            drains.start_soon(_cancel_when_all_wait, scope)
            await ByteChannel.over(ours, drain_nursery=drains, context=client_context(), server_hostname="mn.b.example")
        assert scope.cancelled_caught
        while await theirs.receive_some():
            pass  # the greeting of the client, then the end


async def _cancel_when_all_wait(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_a_reader_with_endless_input_lets_others_run() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with channel_pair() as (client, server), trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        client.send_nowait(HUGE)
        await receive_exactly(server, len(HUGE))
        assert turns > 100
        nursery.cancel_scope.cancel()


def leave_an_error(folder: Path) -> None:
    """Have OpenSSL keep an error for this thread, as a parser of certificates does that finds none."""
    (folder / "empty.pem").write_text("no certificate")
    with contextlib.suppress(ssl.SSLError):
        ssl._ssl._test_decode_cert(str(folder / "empty.pem"))  # type: ignore[attr-defined]


async def test_an_error_that_others_left_in_openssl_ends_no_connection(tmp_path: Path) -> None:
    async with channel_pair(is_tls=True) as (client, server):
        for number in range(3):
            leave_an_error(tmp_path)
            server.send_nowait(b"%d" % number)
            assert await client.receive() == b"%d" % number
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_reply_after_an_error, server, tmp_path)
                assert await client.receive() == b"reply"


async def _reply_after_an_error(server: ByteChannel, folder: Path) -> None:
    await trio.testing.wait_all_tasks_blocked()
    leave_an_error(folder)
    server.send_nowait(b"reply")


async def test_an_error_that_others_left_in_openssl_fails_no_handshake(tmp_path: Path) -> None:
    leave_an_error(tmp_path)
    async with channel_pair(is_tls=True) as (client, server):
        client.send_nowait(b"hello")
        assert await server.receive() == b"hello"
