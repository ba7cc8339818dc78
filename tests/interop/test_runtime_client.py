from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from interop import runtime_client
from interop.runtime_client import Incoming, RuntimeClient, UnexpectedAnswerError
from protofly.errors import Code, TransportError

from .fake_node import FakeNodes, Message, Mischief


@asynccontextmanager
async def clients(
    *names: str,
    mischief: Mischief = lambda message: [message],
) -> AsyncIterator[tuple[trio.Nursery, dict[str, RuntimeClient], dict[str, list[Incoming]]]]:
    nodes = FakeNodes(("a.example",), mischief)
    inboxes: dict[str, list[Incoming]] = {name: [] for name in names}
    async with trio.open_nursery() as nursery:
        port = await nursery.start(nodes.run)
        made = {
            name: RuntimeClient(
                url=f"ws://127.0.0.1:{port}/ws",
                runtime=f"runtime://a.example/{name}",
                ssl_context=None,
                on_message=inboxes[name].append,
            )
            for name in names
        }
        for client in made.values():
            await nursery.start(client.run)
        yield nursery, made, inboxes
        nursery.cancel_scope.cancel()


async def test_open_gives_a_token_and_a_session_address() -> None:
    async with clients("ana") as (_, made, _):
        assert made["ana"].token
        assert made["ana"].session_address == f"runtime://a.example/ana/{made['ana'].token}"


async def test_ping_is_answered() -> None:
    async with clients("ana") as (_, made, _):
        assert (await made["ana"].ping()).is_ok


async def test_a_lost_connection_is_re_opened_with_the_token() -> None:
    async with clients("ana") as (nursery, made, _):
        token = made["ana"].token
        made["ana"].drop()
        answer = await nursery.start(made["ana"].run)
        assert answer.is_ok
        assert made["ana"].token == token


async def test_an_unknown_token_is_an_unexpected_answer() -> None:
    async with clients("ana") as (_, made, _):
        made["ana"].drop()
        made["ana"].token = "forged"
        with pytest.raises((UnexpectedAnswerError, BaseExceptionGroup)) as caught:
            async with trio.open_nursery() as nursery:
                await nursery.start(made["ana"].run)
        assert "500 bad-token" in repr(caught.value)


async def test_requests_between_runtimes_are_answered_with_the_mirrored_header() -> None:
    async with clients("ana", "bo") as (nursery, made, inboxes):
        [address] = await made["bo"].at("a.example").allocate("hyperty", 1)

        async def answer_when_it_comes() -> None:
            while not inboxes["bo"]:
                await trio.lowlevel.checkpoint()
            await made["bo"].respond(inboxes["bo"][0], {"code": 200, "value": "yes"})

        nursery.start_soon(answer_when_it_comes)
        with trio.fail_after(5):
            answer = await made["ana"].granted("read", "runtime://a.example/ana", address)
        assert answer.value == "yes"
        assert answer.taken_ns > 0


async def test_a_second_answer_to_one_request_is_not_swallowed() -> None:
    def doubled(message: Message) -> list[Message]:
        return [message] * (2 if message["type"] == "response" else 1)

    async with clients("ana", "bo", mischief=doubled) as (nursery, made, inboxes):
        [address] = await made["bo"].at("a.example").allocate("hyperty", 1)

        async def answer_when_it_comes() -> None:
            while not inboxes["bo"]:
                await trio.lowlevel.checkpoint()
            await made["bo"].respond(inboxes["bo"][0], {"code": 200, "value": "yes"})

        nursery.start_soon(answer_when_it_comes)
        with trio.fail_after(5):
            assert (await made["ana"].granted("read", "runtime://a.example/ana", address)).value == "yes"
            while not inboxes["ana"]:
                await trio.lowlevel.checkpoint()
    assert [message.type for message in inboxes["ana"]] == ["response"]


async def test_nobody_answering_in_time_is_a_transport_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clients("ana", "bo") as (_, made, _):
        monkeypatch.setattr(runtime_client, "ANSWER_SECONDS", 0.05)  # they have their sessions by now
        with pytest.raises(TransportError) as caught:
            await made["ana"].request("read", "runtime://a.example/ana", "runtime://a.example/bo")
        assert caught.value.code is Code.GATEWAY_TIMEOUT


async def test_a_closed_port_is_connect_failed() -> None:
    client = RuntimeClient(
        url="ws://127.0.0.1:1/ws", runtime="runtime://a.example/x", ssl_context=None, on_message=print
    )
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
    assert caught.group_contains(TransportError, match="connect-failed")


async def test_close_is_followed_by_the_end_of_the_connection() -> None:
    async with clients("ana") as (_, made, _):
        assert await made["ana"].close()
