"""Calls of the webhook of alarms: each is taken once, in order, whatever fails meanwhile, and nobody waits for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from msg_node.admin import alarm_calls
from msg_node.admin.alarm_calls import MOST_WAITING, RETRY_MAX_SECONDS, RETRY_SECONDS, AlarmCalls
from protofly.errors import Code, TransportError


class Webhook:
    """Takes calls, once it has failed as often as it should."""

    def __init__(self, fail: Callable[[], None], failures: int) -> None:
        self.taken: list[bytes] = []
        self.asked_at: list[float] = []
        self.failures = failures
        self._fail = fail

    async def call(self, body: bytes) -> None:
        self.asked_at.append(trio.current_time())
        if self.failures:
            self.failures -= 1
            self._fail()
        self.taken.append(body)


def refuse() -> None:
    raise TransportError(Code.CONNECT_FAILED, "nobody is there")


@asynccontextmanager
async def running(calls: AlarmCalls) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run)
        yield
        nursery.cancel_scope.cancel()


async def test_what_a_webhook_refuses_is_called_again_and_what_follows_waits_for_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert autojump_clock.rate == 0
    webhook = Webhook(refuse, failures=3)
    calls = AlarmCalls(webhook.call)
    async with running(calls):
        for body in (b"1", b"2", b"3"):
            calls.add(body)
        await trio.sleep(100 * RETRY_SECONDS)
        calls.add(b"4")
        await trio.sleep(RETRY_SECONDS)
    assert webhook.taken == [b"1", b"2", b"3", b"4"]
    waits = [after - before for before, after in zip(webhook.asked_at, webhook.asked_at[1:], strict=False)]
    assert waits[:3] == pytest.approx([RETRY_SECONDS, 2 * RETRY_SECONDS, 4 * RETRY_SECONDS])
    assert sum("cannot be called" in line for line in caplog.messages) == 1


async def test_a_webhook_that_is_away_for_long_is_asked_rarely_and_what_is_too_much_is_dropped_oldest_first(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert autojump_clock.rate == 0
    caplog.set_level("INFO")
    webhook = Webhook(refuse, failures=20)
    calls = AlarmCalls(webhook.call)
    async with running(calls):
        for number in range(MOST_WAITING + 5):
            calls.add(b"%d" % number)
        await trio.sleep(30 * RETRY_MAX_SECONDS)
    assert webhook.taken == [b"%d" % number for number in range(5, MOST_WAITING + 5)]
    assert webhook.asked_at[19] - webhook.asked_at[18] == pytest.approx(RETRY_MAX_SECONDS)
    assert any("5 were dropped" in line for line in caplog.messages)


async def test_a_call_that_was_dropped_while_it_was_made_takes_no_other_with_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert autojump_clock.rate == 0
    monkeypatch.setattr(alarm_calls, "MOST_WAITING", 2)
    taken: list[bytes] = []

    async def slow(body: bytes) -> None:
        await trio.sleep(1.0)
        taken.append(body)

    calls = AlarmCalls(slow)
    async with running(calls):
        calls.add(b"1")
        await trio.sleep(0.5)
        for body in (b"2", b"3"):  # the first one has to go, and is under way
            calls.add(body)
        await trio.sleep(10.0)
    assert taken == [b"1", b"2", b"3"]


async def test_a_webhook_that_the_settings_name_no_more_gets_nothing_and_another_one_gets_what_waits(
    autojump_clock: MockClock,
) -> None:
    assert autojump_clock.rate == 0
    dead, other = Webhook(refuse, failures=1_000), Webhook(refuse, failures=0)
    calls = AlarmCalls(dead.call)
    async with running(calls):
        calls.add(b"1")
        await trio.sleep(1.0)
        calls.call = other.call
        await trio.sleep(RETRY_MAX_SECONDS)
        calls.call = None
        calls.add(b"2")
        await trio.sleep(RETRY_MAX_SECONDS)
    assert (dead.taken, other.taken) == ([], [b"1"])


async def test_a_defect_costs_one_call(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    assert autojump_clock.rate == 0

    def fail() -> None:
        raise ZeroDivisionError

    webhook = Webhook(fail, failures=1)
    calls = AlarmCalls(webhook.call)
    async with running(calls):
        calls.add(b"1")
        calls.add(b"2")
        await trio.sleep(1.0)
    assert webhook.taken == [b"2"]
    assert any("was not called" in line for line in caplog.messages)
