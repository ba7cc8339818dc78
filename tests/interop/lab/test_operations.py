"""The history checker: valid histories of every kind never alarm, and each planted violation is found and shortened."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interop.lab.core.operations import NOBODY, Claims, Operation, Subscriptions, is_explained, unexplained

RUNTIMES = ("anna", "bruno", "carla")


def step(runtime: str, kind: str, began: float, ended: float, result: str = "ok", value: object = 0) -> Operation:
    if kind != "hear":
        value = str(value)
    return Operation(runtime=runtime, kind=kind, object="thing", value=value, result=result, began=began, ended=ended)


@st.composite
def valid_histories(draw: st.DrawFn, kinds: tuple[str, ...], lost_in_ten: int = 1) -> list[Operation]:
    """Steps take effect one after the other, at whole seconds; each is seen from some time before to some after.

    The owner, the subscription and the queue are simulated here as directly as can be, with nothing of the checker.
    """
    owner, is_subscribed, is_entered, waiting, number = "", False, False, set[int](), 0
    history: list[Operation] = []
    for moment in range(draw(st.integers(0, 25))):
        runtime, kind = draw(st.sampled_from(RUNTIMES)), draw(st.sampled_from(kinds))
        result, value = "ok", 0
        if kind == "claim":
            result = "ok" if owner in {"", runtime} else "refused"
            owner = owner or runtime
        elif kind == "release":
            result = "ok" if owner == runtime else "refused"
            owner = "" if owner == runtime else owner
        elif kind == "find":
            result = owner or NOBODY
        elif kind == "hear":
            number += draw(st.integers(1, 3))
            value = number
        elif kind == "publish":
            result = "heard" if is_subscribed else "unheard"
        elif kind in {"subscribe", "unsubscribe"}:
            is_subscribed = kind == "subscribe"
        elif kind == "register":
            is_entered = True
        elif kind == "look-up":
            result = "found" if is_entered else "absent"
        elif kind == "park":
            number += 1
            value = number
            waiting.add(number)
        elif not waiting:
            continue
        else:
            value = waiting.pop()
        most = 0.4 if kind == "hear" else 3  # a runtime hears one message after the other
        before, after = draw(st.floats(0, most)), draw(st.floats(0, most))
        one = step(runtime, kind, moment - before, moment + after, result, value)
        history.append(replace(one, result="", ended=math.inf) if draw(st.integers(0, 9)) < lost_in_ten else one)
    return history


FAMILIES = [
    ("claim", "release", "find"),
    ("hear",),
    ("subscribe", "unsubscribe", "publish"),
    ("park", "deliver"),
    ("register", "look-up"),
]


@pytest.mark.parametrize("kinds", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_valid_history_never_alarms(kinds: tuple[str, ...], data: st.DataObject) -> None:
    assert unexplained(data.draw(valid_histories(kinds))) == []


PLANTED = {
    "two owners at a time": [step("x", "claim", 1000, 1001), step("y", "claim", 1002, 1003)],
    "freed by another": [
        step("x", "claim", 1000, 1001),
        step("y", "release", 1002, 1003),
        step("y", "claim", 1004, 1005),
    ],
    "answered by a runtime that had released it": [
        step("x", "claim", 1000, 1001),
        step("x", "release", 1002, 1003),
        step("y", "find", 1004, 1005, "x"),
    ],
    "not found although it has an owner": [step("x", "claim", 1000, 1001), step("y", "find", 1002, 1003, NOBODY)],
    "overtaken": [step("y", "hear", 1000, 1001, value=1002), step("y", "hear", 1002, 1003, value=1001)],
    "heard twice": [step("y", "hear", 1000, 1001, value=1001), step("y", "hear", 1002, 1003, value=1001)],
    "heard without a subscription": [
        step("x", "unsubscribe", 1000, 1001),
        step("y", "publish", 1002, 1003, "heard"),
    ],
    "not heard with one": [step("x", "subscribe", 1000, 1001), step("y", "publish", 1002, 1003, "unheard")],
    "gone from the registry": [step("x", "register", 1000, 1001), step("y", "look-up", 1002, 1003, "absent")],
    "delivered twice": [
        step("x", "park", 1000, 1001, value="p"),
        step("y", "deliver", 1002, 1003, value="p"),
        step("y", "deliver", 1004, 1005, value="p"),
    ],
    "delivered before it was sent": [
        step("y", "deliver", 1000, 1001, value="p"),
        step("x", "park", 1002, 1003, value="p"),
    ],
}


@pytest.mark.parametrize("name", PLANTED)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_planted_violation_is_found_amid_a_valid_history_and_shown_alone(name: str, data: st.DataObject) -> None:
    planted = PLANTED[name]
    kinds = next(kinds for kinds in FAMILIES if planted[0].kind in kinds)
    history = data.draw(valid_histories(kinds, lost_in_ten=0))
    if "claim" in kinds:  # the planted claims begin with a free address
        history += [step(one, "release", 900, 990, "") for one in RUNTIMES]
    [shown] = unexplained([*history, *planted])
    assert set(shown) <= {*history, *planted}
    assert shown[-1] in planted
    assert len(shown) <= len(planted) + 1


def test_operations_that_overlap_may_have_happened_in_either_order() -> None:
    assert unexplained([step("x", "claim", 0, 5), step("y", "claim", 1, 4, "refused")]) == []
    assert unexplained([step("x", "claim", 0, 5, "refused"), step("y", "claim", 1, 4)]) == []
    assert unexplained([step("x", "claim", 0, 1), step("y", "claim", 2, 3, "refused")]) == []


def test_an_operation_is_shown_with_its_time_its_value_and_its_result() -> None:
    whole = Operation(runtime="x", kind="hear", object="y>x", value=7, result="ok", began=1, ended=2.5)
    assert str(whole) == "[1.000–2.500] x hear y>x 7: ok"
    unseen = replace(whole, value=None, result="", ended=math.inf)
    assert str(unseen) == "[1.000–?] x hear y>x: unknown"


def test_a_search_that_needs_more_states_than_it_may_try_alarms_nobody() -> None:
    impossible = [
        step("x", "claim", 0, 1),
        step("y", "claim", 2, 3),
    ]  # two states are tried: at first, and when x has it
    assert not is_explained(impossible, Claims(), 2)
    assert is_explained(impossible, Claims(), 1)


def test_what_was_published_without_an_answer_may_have_been_heard_or_not() -> None:
    unseen = replace(step("bruno", "publish", 4, 5), result="")
    for history in ([unseen], [step("anna", "subscribe", 0, 1), unseen]):
        assert is_explained(history, Subscriptions())


def test_a_claim_whose_answer_was_lost_explains_both_its_success_and_its_failure() -> None:
    lost = replace(step("x", "claim", 0, 1), result="", ended=math.inf)
    assert unexplained([lost, step("y", "claim", 2, 3)]) == []
    assert unexplained([lost, step("y", "claim", 2, 3, "refused")]) == []
    assert len(unexplained([step("y", "claim", 2, 3, "refused")])) == 1


def test_a_claim_whose_answer_was_lost_explains_what_ended_when_it_began() -> None:
    lost = replace(step("x", "claim", 1, 1), result="", ended=math.inf)
    assert unexplained([lost, step("y", "find", 0, 1, "x")]) == []
    assert len(unexplained([replace(lost, began=1.01), step("y", "find", 0, 1, "x")])) == 1


def test_what_a_dead_node_had_may_be_free_from_then_on_and_not_before() -> None:
    freed = replace(step("x", "release", 10, 10), result="", ended=math.inf)
    had = step("x", "claim", 0, 1)
    assert unexplained([had, freed, step("y", "claim", 11, 12)]) == []
    assert unexplained([had, freed, step("y", "claim", 11, 12, "refused")]) == []
    early = step("y", "claim", 8, 9)
    assert unexplained([had, freed, early]) == [[had, early]]


def test_messages_of_several_senders_are_each_in_their_own_order() -> None:
    def hear(pair: str, number: int, moment: float) -> Operation:
        return Operation(
            runtime="y", kind="hear", object=pair, value=number, result="ok", began=moment, ended=moment + 0.5
        )

    assert unexplained([hear("x>y", 1, 0), hear("z>y", 1, 1), hear("x>y", 2, 2), hear("z>y", 5, 3)]) == []
    assert len(unexplained([hear("x>y", 2, 0), hear("z>y", 1, 1), hear("x>y", 1, 2)])) == 1


def test_an_owner_that_gave_its_address_up_need_not_hear_what_is_published_there() -> None:
    subscribed, unheard = step("anna", "subscribe", 0, 1), step("bruno", "publish", 4, 5, "unheard")
    assert unexplained([subscribed, unheard])
    assert not unexplained([subscribed, step("anna", "silence", 2, 3), unheard])
    again = step("anna", "subscribe", 3.2, 3.5)
    assert unexplained([subscribed, step("anna", "silence", 2, 3), again, unheard])
