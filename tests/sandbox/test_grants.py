"""Grants: nothing by default, and never more than granted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protofly import limits
from protofly.errors import Code, StubFaultError
from sandbox.core.exchange import Action, ChannelKind
from sandbox.core.grants import DENIALS_BEFORE_FAULT, Grants, Ledger

GRANTS = Grants(frozenset({"mn"}), auth=True)
WEBSOCKET = ChannelKind.WEBSOCKET


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(StubFaultError) as caught:
        call()
    assert caught.value.code is Code.STUB_DENIED
    return caught.value.fault


def test_default_is_nothing() -> None:
    assert refused(lambda: Grants().check_open("mn", WEBSOCKET)) == "connect"
    assert refused(Grants().check_auth) == "auth"


@pytest.mark.parametrize("endpoint", ["", "MN", "mn.evil", "mn ", "127.0.0.1:22", "https://internal/", "m" * 10_000])
def test_endpoint_that_only_looks_granted_is_refused(endpoint: str) -> None:
    assert refused(lambda: GRANTS.check_open(endpoint, WEBSOCKET)) == "connect"


@pytest.mark.parametrize("kind", [0, 4, 255])
def test_unknown_kind_of_channel_is_refused(kind: int) -> None:
    assert refused(lambda: GRANTS.check_open("mn", kind)) == "connect"


def test_http_is_a_grant_of_its_own() -> None:
    endpoints = frozenset({"mn"})
    without = Ledger(Grants(endpoints, http=False))
    assert refused(lambda: without.open_channel(1, "mn", ChannelKind.HTTP)) == "http"
    assert without.channels == frozenset()
    for kind in (ChannelKind.WEBSOCKET, ChannelKind.TCP_TLS):
        Grants(endpoints, http=False).check_open("mn", kind)
    Grants(endpoints).check_open("mn", ChannelKind.HTTP)
    assert refused(lambda: Grants(endpoints).check_open("other", ChannelKind.HTTP)) == "connect"


def test_channels_are_bounded_and_free_again_after_closing() -> None:
    ledger = Ledger(GRANTS)
    for channel in range(1, limits.STUB_CHANNELS + 1):
        ledger.open_channel(channel, "mn", WEBSOCKET)
    assert refused(lambda: ledger.open_channel(100, "mn", WEBSOCKET)) == "connect"
    ledger.close_channel(1)
    ledger.open_channel(100, "mn", WEBSOCKET)
    assert 100 in ledger.channels


@pytest.mark.parametrize("channel", [0, 65_536, 2**32 - 1])
def test_channel_number_out_of_range_is_refused(channel: int) -> None:
    assert refused(lambda: Ledger(GRANTS).open_channel(channel, "mn", WEBSOCKET)) == "connect"


def test_channel_twice_and_channel_of_nobody_are_refused() -> None:
    ledger = Ledger(GRANTS)
    ledger.open_channel(1, "mn", WEBSOCKET)
    ledger.check_channel(1)
    assert refused(lambda: ledger.open_channel(1, "mn", WEBSOCKET)) == "connect"
    assert refused(lambda: ledger.check_channel(2)) == "channel"
    ledger.close_channel(1)
    assert refused(lambda: ledger.check_channel(1)) == "channel"


def test_token_needs_the_grant_an_own_channel_and_a_fit_challenge() -> None:
    ledger = Ledger(GRANTS)
    assert refused(lambda: ledger.request_token(1, bytes(32))) == "channel"
    ledger.open_channel(1, "mn", WEBSOCKET)
    ledger.request_token(1, bytes(32))
    for size in (0, 15, 65, 1 << 20):
        assert refused(lambda size=size: ledger.request_token(1, bytes(size))) == "auth"  # type: ignore[misc]
    silent = Ledger(Grants(frozenset({"mn"})))
    silent.open_channel(1, "mn", WEBSOCKET)
    assert refused(lambda: silent.request_token(1, bytes(32))) == "auth"


def test_timers_are_bounded_rearmed_cancelled_and_capped() -> None:
    ledger = Ledger(GRANTS)
    for timer in range(limits.STUB_TIMERS):
        assert ledger.set_timer(timer, (500).to_bytes(4, "little")) == 500
    assert ledger.set_timer(0, (900).to_bytes(4, "little")) == 900
    assert refused(lambda: ledger.set_timer(99, b"\1\0\0\0")) == "timer"
    assert ledger.set_timer(0, bytes(4)) == 0
    assert ledger.set_timer(99, b"\xff\xff\xff\xff") == 86_400_000
    ledger.timer_fired(99)
    ledger.set_timer(98, b"\1\0\0\0")
    assert refused(lambda: ledger.set_timer(1, b"\1")) == "timer"


def test_log_flood_is_cut_and_recovers() -> None:
    ledger = Ledger(GRANTS)
    lines = [ledger.log_line(b"hello", 10.0) for _ in range(1000)]
    assert sum(line is not None for line in lines) == limits.STUB_LOG_LINES_PER_SECOND
    assert ledger.log_line(b"later", 11.0) == "later"


def test_log_text_is_short_and_cannot_steer_a_terminal() -> None:
    text = Ledger(GRANTS).log_line(b"\x1b[2J\r\nfaked line\x00\xff" + b"x" * 100_000, 0.0)
    assert text is not None
    assert len(text) <= limits.STUB_LOG_BYTES
    assert text.isprintable()


def test_stub_that_is_always_refused_is_ended() -> None:
    ledger = Ledger(GRANTS)
    verdicts = [ledger.count_denial() for _ in range(DENIALS_BEFORE_FAULT)]
    assert verdicts.index(True) == DENIALS_BEFORE_FAULT - 1


def test_requests_of_one_answer_are_bounded_by_what_was_heard() -> None:
    ledger = Ledger(GRANTS)
    for heard in (0, 3):
        ledger.begin_answer(heard)
        for _ in range(limits.STUB_REQUESTS_PER_ANSWER + heard):
            ledger.count_request(Action.SET_TIMER, 0.0)
        for code in (Action.REFUSED, Action.LOG):
            ledger.count_request(code, 0.0)  # what it only says does not count
        with pytest.raises(StubFaultError) as caught:
            ledger.count_request(Action.SET_TIMER, 0.0)
        assert caught.value.code is Code.STUB_OUTPUT


def test_a_stub_to_which_nothing_was_said_yet_requests_nothing() -> None:
    with pytest.raises(StubFaultError, check=lambda error: error.code is Code.STUB_OUTPUT):
        Ledger(GRANTS).count_request(Action.SET_TIMER, 0.0)


def test_states_are_bounded_by_the_second() -> None:
    ledger = Ledger(GRANTS)
    ledger.begin_answer(1000)
    for _ in range(limits.STUB_STATES_PER_SECOND):
        ledger.count_request(Action.STATUS, 5.0)
    with pytest.raises(StubFaultError) as caught:
        ledger.count_request(Action.STATUS, 5.0)
    assert caught.value.code is Code.STUB_OUTPUT
    ledger.count_request(Action.STATUS, 5.0 + 1.2 / limits.STUB_STATES_PER_SECOND)
    with pytest.raises(StubFaultError):
        ledger.count_request(Action.STATUS, 5.0 + 1.2 / limits.STUB_STATES_PER_SECOND)
    for _ in range(limits.STUB_STATES_PER_SECOND):
        ledger.count_request(Action.STATUS, 1000.0)  # a long silence saves up no more than a second
    with pytest.raises(StubFaultError):
        ledger.count_request(Action.STATUS, 1000.0)


@pytest.mark.parametrize("size", [limits.CHALLENGE_BYTES_MIN, limits.CHALLENGE_BYTES_MAX])
def test_shortest_and_longest_challenge_are_signed(size: int) -> None:
    ledger = Ledger(GRANTS)
    ledger.open_channel(1, "mn", WEBSOCKET)
    ledger.request_token(1, bytes(size))
    for wrong in (limits.CHALLENGE_BYTES_MIN - 1, limits.CHALLENGE_BYTES_MAX + 1):
        assert refused(lambda wrong=wrong: ledger.request_token(1, bytes(wrong))) == "auth"  # type: ignore[misc]


@pytest.mark.parametrize("channel", [1, 65_535])
def test_first_and_last_channel_number_are_open_to_a_stub(channel: int) -> None:
    ledger = Ledger(GRANTS)
    ledger.open_channel(channel, "mn", WEBSOCKET)
    assert ledger.channels == {channel}
