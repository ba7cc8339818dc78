"""The step `round-trip`: a message to the node of the domain, through its stub, and the answer back.

Over the link of the running node, if that is up: the far side answers over the link that it has. Else through the stub
that the check runs itself, if it runs one.
"""

from __future__ import annotations

import time
from functools import partial

import trio

from federation.core.contact_trouble import Side, advice, cleaned
from federation.core.round_trip import RoundTrip
from msg_node.settings.model import Settings
from protofly.errors import Code, HostError
from trapezoid.peer_check.report import Outcome, Report, StepResult
from trapezoid.process_admin import ask_processes
from trapezoid.stub_trial import Trial

STEP = "round-trip"
_UNANSWERED = (
    "their node took the message, or may have, and no answer came here: does it know `read` of "
    "`domain://msg-node.<domain>`, does what it sends reach us, or does another node of ours have the link?"
)
_UNTAKEN = "their node does not acknowledge what it gets: does it hang, or has it too much to do?"


def show_trip(report: Report, trial: Trial) -> None:
    """Report what came of the message that a trial sent."""
    if isinstance(trial.trip, HostError) and trial.trip.code is Code.LINK_ELSEWHERE:
        report.skip("they sent messages for users first, which the link of the running node gets: try again", STEP)
        return
    with report.step(STEP, "through the stub that this check runs", side=Side.STUB) as result:
        result.milliseconds = trial.trip_seconds * 1000
        if isinstance(trial.trip, RoundTrip):
            _show_answer(result, trial.trip.code, trial.trip.reason)
        elif trial.trip is not None:
            _warn(result, trial.trip)
            if not trial.is_accepted:
                result.fail(trial.trip, Side.STUB)
                result.hint = _UNTAKEN if trial.trip.code is Code.GATEWAY_TIMEOUT else result.hint


async def ask_running_node(settings: Settings, domain: str) -> StepResult:
    """Have the running node send a message over its link; SKIPPED if there is no node or no link."""
    result = StepResult(STEP, "over the link of the running node")
    began = time.perf_counter()
    try:
        ask = partial(ask_processes, settings.node.data_dir, "peer ping", {"domain": domain})
        answer = await trio.to_thread.run_sync(ask)
    except HostError as exc:
        if exc.code in (Code.NOT_CONNECTED, Code.SETTINGS):
            return StepResult(STEP, outcome=Outcome.SKIPPED, code="", observed=cleaned(exc.detail))
        _warn(result, exc)
        result.milliseconds = (time.perf_counter() - began) * 1000
    else:
        result.milliseconds = float(answer["milliseconds"])
        _show_answer(result, int(answer["code"]), str(answer["reason"]))
    return result


def _show_answer(result: StepResult, code: int, reason: str) -> None:
    """Whatever they answer has made the way; a refusal is a word of their gate about this message."""
    said = cleaned(" ".join(filter(None, (str(code or "nothing that can be read"), reason))))
    result.outcome, result.observed = Outcome.OK, f"they answer {said} after {result.milliseconds:.1f} ms"


def _warn(result: StepResult, error: HostError) -> None:
    code = error.code.word
    observed = cleaned(error.detail or error.code.description)
    if error.code is Code.GATEWAY_TIMEOUT:
        result.warn(code, observed, _UNANSWERED)
    elif error.code is Code.POLICY:
        result.warn(code, f"our own rules keep this message back: {observed}", "`trapezoid policy test` says why")
    else:
        result.warn(code, observed, advice(Side.STUB, f"{code} {observed}", time.time()))
        result.outcome = Outcome.FAILED
