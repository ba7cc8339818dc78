"""What a soak takes for a finding: broken promises, growing memory, errors without a fault."""

from __future__ import annotations

from tests.soak.findings import (
    AFTERMATH_SECONDS,
    KILL_NODE,
    MIB,
    REPEATED_SECONDS,
    Account,
    FaultWindow,
    judge_memory,
    unexplained,
    unexplained_answers,
)

HOUR = 3600


def test_an_account_in_which_every_promise_was_kept_has_no_findings() -> None:
    account = Account(acknowledged={"d-1": "sender"})
    account.answered("A to B", 200, "")
    account.answered("A to B", 503, "not-connected")
    account.ended("d-1", "completed")
    account.ended("d-1", "completed")
    assert account.findings() == []


def test_each_broken_promise_is_a_finding() -> None:
    account = Account(
        acknowledged={"d-1": "sender"},
        unanswered=["A to B: no answer"],
        missing=["comm://a.example/one"],
        order=["observer: 3, not 2"],
    )
    account.ended("d-2", "completed")
    account.ended("d-2", "expired")
    account.answered("B to A", 503, "overload")
    assert [finding.partition(":")[0] for finding in account.findings()] == [
        "1 requests without any answer",
        "1 acknowledged actions without an end",
        "1 actions with two different ends",
        "1 acknowledged registrations that are gone",
        "1 flows inside one domain that are not whole and in order",
        "no request of B to A was ever granted",
    ]


def test_partners_that_can_grant_nothing_are_no_finding() -> None:
    account = Account(hopeless={"trapping"})
    account.answered("trapping", 502, "stub-trapped")
    assert account.findings() == []


def test_bursts_over_a_level_floor_are_a_plateau() -> None:
    series = [(float(at), (100 + 40 * (at % 60 < 20)) * MIB) for at in range(0, HOUR // 2, 5)]
    verdict = judge_memory(series)
    assert verdict.has_plateau
    assert (verdict.peak, verdict.slope_per_hour) == (140 * MIB, 0)


def test_growth_in_the_warm_up_alone_is_a_plateau() -> None:
    series = [(float(at), (100 + min(at // 10, 50)) * MIB) for at in range(0, HOUR // 2, 5)]
    assert judge_memory(series).has_plateau


def test_a_leak_below_the_bursts_is_no_plateau() -> None:
    series = [(float(at), int((100 + 60 * at / HOUR + 40 * (at % 60 < 20)) * MIB)) for at in range(0, HOUR // 2, 5)]
    verdict = judge_memory(series)
    assert not verdict.has_plateau
    assert 50 * MIB < verdict.slope_per_hour < 70 * MIB


def test_an_error_is_explained_by_a_fault_of_its_node_and_time_that_causes_such_errors() -> None:
    fault = FaultWindow("kill worker", "a.example", "stub", began=100, ended=110)
    line = "ERROR federation: the stub of b.example failed"
    assert unexplained([("a.example", 105, line), ("a.example", 110 + AFTERMATH_SECONDS, line)], [fault]) == []
    strange = [
        ("a.example", 99.0, line),
        ("a.example", 111 + AFTERMATH_SECONDS, line),
        ("b.example", 105.0, line),
        ("a.example", 105.0, "ERROR msg_node: records cannot be written"),
    ]
    assert len(unexplained(strange, [fault])) == len(strange)


def test_a_fault_that_lasts_explains_errors_until_it_ends() -> None:
    fault = FaultWindow("stall node", "", "link", began=1)
    assert unexplained([("b.example", 10_000.0, "ERROR the link is lost")], [fault]) == []


def test_only_the_kill_of_the_asker_s_own_node_explains_a_second_answer() -> None:
    windows = [
        FaultWindow(KILL_NODE, "", "link", began=100, ended=110),
        FaultWindow("stall node", "", "link", began=200, ended=210),
    ]
    repeated = (110 + REPEATED_SECONDS, "b.example", "200")
    others = [
        (99, "b.example", "before"),
        (110 + REPEATED_SECONDS + 1, "b.example", "long after"),
        (105, "a.example", "at the other node"),
        (205, "b.example", "in another fault"),
    ]
    found = unexplained_answers([repeated, *others], windows, killed="b.example")
    assert [one.split(": ")[1] for one in found] == [answer for _, _, answer in others]
