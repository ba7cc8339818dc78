"""The steps `start` and `round-trip` of a check: a stub in a sandbox of its own, and a message through it and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federation.core.carrier import Accepted, Refused
from federation.core.round_trip import RoundTrip, answer_to, question
from msg_node.settings.model import Settings
from msg_node.settings.tables.node import NodeSettings
from protofly import codec
from protofly.errors import Code, HostError, PeerError, TransportError
from protofly.message import Message
from trapezoid.peer_check.report import Outcome, Report, StepResult
from trapezoid.peer_check.trip_step import ask_running_node, show_trip
from trapezoid.stub_trial import Trial, _Contact

NODE, THEIRS = "runtime://a.example/mn", "b.example"
ASKED = question(NODE, THEIRS, "1")


def answer(*, id_: str = "round-trip-1", to: str = NODE, type_: str = "response", **body: object) -> Message:
    raw = {"id": id_, "type": type_, "from": f"domain://msg-node.{THEIRS}", "to": to, "body": body}
    (message,) = codec.decode(json.dumps(raw).encode())
    return message


def test_an_answer_is_the_final_one_to_our_question_whatever_it_says() -> None:
    assert answer_to(ASKED, answer(code=200)) == RoundTrip(200, "", is_ours=False)
    assert answer_to(ASKED, answer(code=403, reason="policy")) == RoundTrip(403, "policy", is_ours=False)
    assert answer_to(ASKED, answer(code="what")) == RoundTrip(0, "", is_ours=False)
    for other in (
        answer(code=100),
        answer(code=199),
        answer(id_="1"),
        answer(to="runtime://a.example/ana"),
        answer(type_="read"),
    ):
        assert answer_to(ASKED, other) is None


@pytest.mark.parametrize(("said", "shown"), [("x" * 64, "x" * 64), ("x" * 65, "x" * 64), (7, "")])
def test_the_word_of_an_answer_is_cut_and_only_a_text_is_one(said: object, shown: str) -> None:
    assert answer_to(ASKED, answer(code=403, reason=said)) == RoundTrip(403, shown, is_ours=False)


def test_an_answer_of_our_own_side_is_known_by_its_source_and_none_that_only_looks_like_it() -> None:
    for source, is_ours in (
        (NODE, True),
        ("runtime://a.example/another-node", True),
        ("runtime://b.example/mn", False),
        ("runtime://a.example.evil/mn", False),
        ("runtime://", False),
        ("\x00", False),
    ):
        found = answer_to(ASKED, answer(code=504, reason="timeout", source=source))
        assert found == RoundTrip(504, "timeout", is_ours)


def test_a_message_for_somebody_else_ends_the_trial_before_it_can_be_acknowledged() -> None:
    contact = _Contact(ASKED)
    contact.inbound([(1, answer(code=200).raw)], "s")
    assert contact.outcome == RoundTrip(200, "", is_ours=False)
    for raw in (answer(to="runtime://a.example/ana", code=200).raw, b"{", b"[" * 40_000):
        with pytest.raises(PeerError) as caught:
            _Contact(ASKED).inbound([(1, raw)], "s")
        assert caught.value.code is Code.LINK_ELSEWHERE
    with pytest.raises(PeerError):
        _Contact(None).inbound([(1, answer(code=200).raw)], "s")
    contact.handle(Accepted(1))
    contact.handle(Refused(1, Code.STUB_REFUSED, "no"))  # what was answered is answered
    assert (contact.is_accepted, contact.outcome) == (True, RoundTrip(200, "", is_ours=False))


def shown(trip: RoundTrip | HostError, *, is_accepted: bool = True) -> StepResult:
    report = Report(THEIRS)
    show_trip(report, Trial(0.1, trip, 0.25, is_accepted))
    [result] = report.results
    return result


def test_a_refusal_of_theirs_is_ok_silence_a_warning_and_a_message_that_nobody_took_a_failure() -> None:
    ok = shown(RoundTrip(403, "policy", is_ours=False))
    assert (ok.outcome, ok.code, ok.observed) == (Outcome.OK, "ok", "they answer 403 policy after 250.0 ms")
    late = TransportError(Code.GATEWAY_TIMEOUT, "no answer within 10 s")
    silent = shown(late)
    assert (silent.outcome, silent.code, "no answer" in silent.observed) == (Outcome.WARNING, "timeout", True)
    assert "domain://msg-node" in silent.hint
    untaken = shown(late, is_accepted=False)
    assert (untaken.outcome, untaken.code) == (Outcome.FAILED, "timeout")
    refused = shown(PeerError(Code.STUB_REFUSED, "no \x1b[2J"))
    assert (refused.outcome, refused.code, refused.observed) == (Outcome.FAILED, "stub-refused", "no .[2J")
    assert shown(PeerError(Code.LINK_ELSEWHERE)).outcome is Outcome.SKIPPED


async def test_without_a_running_node_the_step_is_left_out(tmp_path: Path) -> None:
    settings = Settings(node=NodeSettings(domain="a.example", data_dir=tmp_path))
    result = await ask_running_node(settings, THEIRS)
    assert (result.outcome, result.step) == (Outcome.SKIPPED, "round-trip")
    assert "no node runs" in result.observed
