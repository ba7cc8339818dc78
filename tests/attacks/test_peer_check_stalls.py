"""A domain that is checked takes lines and says nothing, or answers for ever: the check ends, and says so."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.testing

from federation.stubs.egress import LineOpener
from protofly.limits import HANDSHAKE_SECONDS
from tests.support.lines import LoopbackDialler, client_context
from tests.support.repository import PublishedDomain, World
from trapezoid.peer_check.report import STEPS, Outcome, PeerVerdict, Report
from trapezoid.peer_check.run import CHECK_SECONDS, within_time
from trapezoid.peer_check.stub_steps import reach_endpoints


async def test_an_endpoint_that_takes_lines_and_never_shakes_hands_fails_in_time(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    world = World(tmp_path, PublishedDomain("b.example"))
    stub = await world.provide()
    world.close()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listeners[0] as silent:
        opener = LineOpener(LoopbackDialler(mn_b_example=silent.socket.getsockname()[1]), client_context())
        report, began = Report("b.example"), trio.current_time()
        with trio.fail_after(CHECK_SECONDS):
            await reach_endpoints(report, opener, stub)
    assert trio.current_time() - began <= HANDSHAKE_SECONDS + 1
    [result] = report.results
    assert (result.step, result.outcome, result.code) == ("endpoint", Outcome.FAILED, "fetch-timeout")
    assert not report.has_passed("endpoint")


async def test_a_check_without_end_is_ended_and_what_was_not_done_has_not_passed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    report, began = Report("b.example"), trio.current_time()

    async def answer_for_ever() -> None:
        with report.step("name"):
            await trio.sleep(1)
        with report.step("live"):
            await trio.sleep_forever()

    with trio.fail_after(2 * CHECK_SECONDS):
        await within_time(report, answer_for_ever)
    assert trio.current_time() - began <= CHECK_SECONDS + 1
    done, stopped, *rest = report.results
    assert (done.outcome, stopped.outcome, stopped.code) == (Outcome.OK, Outcome.FAILED, "fetch-timeout")
    assert [one.step for one in rest] == list(STEPS[STEPS.index("live") + 1 :])
    assert {one.outcome for one in rest} == {Outcome.SKIPPED}
    assert report.verdict is PeerVerdict.BROKEN
