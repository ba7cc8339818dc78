"""The verdict of a check of a domain, and how a report is printed."""

from __future__ import annotations

import json

import pytest

from federation.core.contact_trouble import Side
from protofly.errors import Code, PeerError, TransportError
from trapezoid.output import print_facts
from trapezoid.peer_check.output import print_report
from trapezoid.peer_check.report import Outcome, PeerVerdict, Report


def report_of(**outcomes: str) -> Report:
    """A report whose steps ended so: o, w and f for each part."""
    report = Report("b.example")
    for step, part in ((step, part) for step, parts in outcomes.items() for part in parts):
        with report.step(step) as result:
            if part == "w":
                result.warn("pin-differs", "another one")
            if part == "f":
                raise TransportError(Code.CONNECT_FAILED, "nobody there", phase="connect")
    return report


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ({"name": "o", "tcp": "oo"}, PeerVerdict.OK),
        ({"name": "o", "tcp": "of"}, PeerVerdict.DEGRADED),
        ({"name": "o", "tcp": "fo", "tls": "w"}, PeerVerdict.DEGRADED),
        ({"root": "w"}, PeerVerdict.DEGRADED),
        ({"name": "o", "tcp": "ff"}, PeerVerdict.BROKEN),
        ({"name": "f"}, PeerVerdict.BROKEN),
        ({"tcp": "ff", "tls": "w"}, PeerVerdict.BROKEN),
        ({"name": "o", "service": "oof"}, PeerVerdict.BROKEN),
    ],
)
def test_verdict_is_that_of_the_worst_step_and_one_good_address_is_enough(
    steps: dict[str, str], verdict: PeerVerdict
) -> None:
    assert report_of(**steps).verdict is verdict


def test_skipped_steps_do_not_count() -> None:
    report = report_of(name="o")
    report.skip("not asked for", "authentication")
    assert report.verdict is PeerVerdict.OK
    assert not report.has_passed("authentication")


def test_failure_has_code_and_advice_and_nothing_that_moves_a_cursor() -> None:
    report = Report("b.example")

    def verify() -> None:
        raise PeerError(Code.FINGERPRINT_MISMATCH, "got \x1b[2Jevil\u202e")

    with report.step("live", side=Side.DOCUMENTS):
        verify()
    [result] = report.results
    assert (result.outcome, result.code) == (Outcome.FAILED, "fingerprint-mismatch")
    assert "by another way" in result.hint
    assert result.observed == "got .[2Jevil."


def test_defect_of_ours_is_no_finding() -> None:
    with pytest.raises(ZeroDivisionError), Report("b.example").step("tcp"):
        raise ZeroDivisionError


def test_printed_report_names_verdict_code_and_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_report(report_of(name="o", tcp="f"), as_json=False) == 1
    said = capsys.readouterr().out
    assert "[connect-failed]" in said
    assert "→ is their node running" in said
    assert said.endswith("b.example: broken\n")
    assert print_report(report_of(name="o", tls="w"), as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], [one["outcome"] for one in found["steps"]]) == ("degraded", ["ok", "warning"])


def test_nested_facts_are_printed_as_names_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"after": {"until": "today", "by": ["a", "b"]}}, as_json=False)
    assert capsys.readouterr().out.split("\n") == ["after  until: today", "       by: a, b", ""]
