from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from interop import chat_cast
from interop.group_chat import ChatStep, GroupChat
from interop.participant import AccessPoint
from interop.processes import leaves
from interop.runtime_client import UnexpectedAnswerError
from interop.scene import Scene

from .fake_node import FakeNodes, Message, Mischief


@pytest.fixture(autouse=True)
def _short_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_cast, "SETTLE_SECONDS", 0.2)


@asynccontextmanager
async def played(
    scene: Scene, mischief: Mischief = lambda message: [message]
) -> AsyncIterator[tuple[GroupChat, list[ChatStep]]]:
    steps: list[ChatStep] = []
    nodes = FakeNodes(scene.domains, mischief)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(nodes.run)
        access_points = {domain: AccessPoint(url=f"ws://127.0.0.1:{port}/ws") for domain in scene.domains}
        chat = GroupChat(scene, access_points, trace="t1", on_step=steps.append)
        with trio.fail_after(20):
            await chat.run()
        yield chat, steps
        nursery.cancel_scope.cancel()


def is_chat(message: Message, number: int) -> bool:
    return bool(message["to"].endswith("/messages") and message["body"]["resource"].endswith(f"#{number}"))


async def test_a_faultless_conversation_balances(scene: Scene) -> None:
    async with played(scene) as (chat, steps):
        totals = chat.ledger.totals()
        assert chat.is_faultless, (totals, chat.uncalled_for, chat.refusals)
        observers = len(scene.observers)
        assert totals.sent == totals.delivered == 2 * 20 * observers + 5 * observers + observers
        assert [refusal.is_as_expected for refusal in chat.refusals] == [True, True]
        assert chat.first_contact_ns > 0
        assert chat.traced is not None
        assert chat.traced.arrived_at_us is not None
        assert chat.traced.arrived_at_us >= chat.traced.sent_at_us
        assert len(steps) == 4 + 14


async def test_a_lost_message_is_counted_and_the_conversation_is_not_faultless(scene: Scene) -> None:
    async with played(scene, lambda message: [] if is_chat(message, 7) else [message]) as (chat, _):
        assert chat.ledger.totals().lost == 2 * len(scene.observers)
        assert not chat.is_faultless


async def test_a_doubled_message_is_counted(scene: Scene) -> None:
    async with played(scene, lambda message: [message] * (1 + is_chat(message, 7))) as (chat, _):
        assert chat.ledger.totals().duplicated == 2 * len(scene.observers)
        assert not chat.is_faultless


async def test_a_changed_value_is_counted(scene: Scene) -> None:
    def round_numbers(message: Message) -> list[Message]:
        if is_chat(message, 7):
            message["body"]["value"]["number"] = float(message["body"]["value"]["number"])
        return [message]

    async with played(scene, round_numbers) as (chat, _):
        assert chat.ledger.totals().differing == 2 * len(scene.observers)


async def test_reversed_messages_are_counted(scene: Scene) -> None:
    held: list[Message] = []

    def swap(message: Message) -> list[Message]:
        if is_chat(message, 7):
            held.append(message)
            return []
        if is_chat(message, 8):
            author = message["from"]
            return [message, *(other for other in held if other["from"] == author)]
        return [message]

    async with played(scene, swap) as (chat, _):
        totals = chat.ledger.totals()
        assert (totals.lost, totals.reordered) == (0, 2 * len(scene.observers))


async def test_a_change_after_leaving_is_uncalled_for_or_unexpected(scene: Scene) -> None:
    def echo_goodbye(message: Message) -> list[Message]:
        if message["type"] == "event":
            change = {"type": "update", "from": "comm://x", "to": message["to"], "body": {"value": "late"}}
            return [message, change]
        return [message]

    async with played(scene, echo_goodbye) as (chat, _):
        assert len(chat.uncalled_for) == len(scene.observers)
        assert not chat.is_faultless


async def test_a_refused_invitation_names_the_answer(scene: Scene) -> None:
    def refuse(message: Message) -> list[Message]:
        if message["type"] == "response" and message["to"].endswith("/subscription"):
            message["body"] = {"code": 403, "reason": "policy"}
        return [message]

    with pytest.raises(UnexpectedAnswerError, match="403 policy"):
        await _expect_one_error(scene, refuse)


async def _expect_one_error(scene: Scene, mischief: Mischief) -> None:
    try:
        async with played(scene, mischief):
            pass
    except BaseExceptionGroup as group:
        for leaf in leaves(group):
            raise leaf from None
