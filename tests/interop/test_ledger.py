from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interop.ledger import Flow, Ledger


def speak(flow: Flow, count: int) -> None:
    for number in range(1, count + 1):
        flow.enter_due(number, f"text {number}", number)


def test_everything_that_arrives_once_in_order_and_equal_is_faultless() -> None:
    ledger = Ledger()
    flow = ledger.flow("alice", "bob", "chat", crosses=True)
    speak(flow, 3)
    due_before = ledger.due("chat")
    for number in range(1, 4):
        flow.enter_arrival(number, f"text {number}", number + 10)
    assert (due_before, ledger.due("chat")) == (3, 0)
    assert ledger.totals().is_faultless
    assert ledger.crossing_latencies_ns() == [10, 10, 10]


def test_a_message_that_never_comes_is_lost() -> None:
    ledger = Ledger()
    flow = ledger.flow("alice", "bob", "chat")
    speak(flow, 2)
    flow.enter_arrival(1, "text 1", 0)
    assert (ledger.totals().lost, ledger.totals().is_faultless) == (1, False)


def test_a_second_copy_is_a_duplicate_and_is_delivered_once() -> None:
    flow = Ledger().flow("alice", "bob", "chat")
    speak(flow, 1)
    flow.enter_arrival(1, "text 1", 0)
    flow.enter_arrival(1, "text 1", 0)
    assert (flow.delivered, flow.duplicated) == (1, 1)


def test_an_overtaking_message_is_reordered_and_nothing_is_lost() -> None:
    flow = Ledger().flow("alice", "bob", "chat")
    speak(flow, 2)
    flow.enter_arrival(2, "text 2", 0)
    flow.enter_arrival(1, "text 1", 0)
    assert (flow.delivered, flow.reordered, flow.lost) == (2, 1, 0)


def test_a_changed_value_differs() -> None:
    flow = Ledger().flow("alice", "bob", "chat")
    speak(flow, 1)
    flow.enter_arrival(1, "text one", 0)
    assert flow.differing == 1


def test_a_message_nobody_sent_is_unexpected() -> None:
    ledger = Ledger()
    ledger.flow("alice", "bob", "chat").enter_arrival(7, "text", 0)
    assert ledger.totals().unexpected == 1
    assert not ledger.totals().is_faultless


@given(arrivals=st.lists(st.integers(0, 12), max_size=40))
def test_sent_and_received_always_balance(arrivals: list[int]) -> None:
    flow = Ledger().flow("alice", "bob", "chat")
    speak(flow, 10)
    for number in arrivals:
        flow.enter_arrival(number, f"text {number}", 0)
    assert flow.delivered + flow.lost == flow.sent == 10
    assert flow.delivered + flow.duplicated + flow.unexpected == len(arrivals)
    assert flow.delivered == len({number for number in arrivals if 1 <= number <= 10})
