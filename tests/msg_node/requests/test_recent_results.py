"""Actions that are sent again after their end: answered, and not done again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from msg_node.requests.core.delivery_status import CANCELLED, Status, StatusReport
from msg_node.requests.core.parked import ParkedRequest, Sender
from msg_node.requests.core.recent_results import RecentResults
from protofly import codec
from protofly.limits import REPEATED_SECONDS
from protofly.message import Message
from tests.support.runtime_rig import DOMAIN, Json, a_message, runtime_rig

AGENT = f"thing://{DOMAIN}/agent-4"
SWITCH = f"{AGENT}/lamp-1/actions/switch"
ANA = f"runtime://{DOMAIN}/ana"
NOW = 1_800_000_000.0
DONE = StatusReport(Status.COMPLETED, 200, value=b"7")


def request(id_: int | str = 1, on: object = True, sender: str = ANA) -> Message:
    body = {"class": "action", "method": "switch", "params": {"on": on}}
    return codec.build(id=id_, type="execute", from_=sender, to=SWITCH, body=body)


def entry(message: Message, sender: Sender = Sender(ANA)) -> ParkedRequest:  # noqa: B008 - frozen
    return ParkedRequest(
        number=1,
        request_id="d-1",
        queue=AGENT,
        request=message,
        sender=sender,
        accepted_at=NOW,
        expires_at=NOW + 60,
        transaction=(message.from_key, message.id or b"", message.to_key),
    )


def test_only_the_same_request_of_the_same_sender_learns_how_it_ended_and_only_for_a_while() -> None:
    words = RecentResults()
    words.keep(entry(request()), DONE, NOW)
    assert words.about(request(), Sender(ANA), NOW + REPEATED_SECONDS) == ("d-1", DONE)
    for other in (request(2), request("1"), request(on=False), request(sender=ANA + "2")):
        assert words.about(other, Sender(ANA), NOW) is None
    for sender in (Sender(ANA, "somebody"), Sender(ANA + "2"), Sender("", domain="beta.example")):
        assert words.about(request(), sender, NOW) is None
    assert words.about(request(), Sender(ANA), NOW + REPEATED_SECONDS + 1) is None
    assert words.about(request(), Sender(ANA), NOW - 1) is None  # the clock was set back


@pytest.mark.parametrize(
    "word", [CANCELLED, StatusReport(Status.FAILED, 503, "overload"), StatusReport(Status.EXPIRED, 410)]
)
def test_what_was_not_done_may_be_tried_again(word: StatusReport) -> None:
    words = RecentResults()
    words.keep(entry(request()), word, NOW)
    assert words.about(request(), Sender(ANA), NOW) is None


def test_few_are_remembered_and_the_oldest_go_first() -> None:
    addresses = len(request().from_key) + len(request().to_key) + 1  # and a digit
    words = RecentResults(max_words=3, max_bytes=3 * addresses + 10)
    for number in range(5):
        words.keep(entry(request(number)), DONE, NOW)
    assert [words.about(request(number), Sender(ANA), NOW) is not None for number in range(5)] == [0, 0, 1, 1, 1]
    words.keep(entry(request(5)), DONE._replace(value=b"x" * (addresses + 10 - len(DONE.value))), NOW)
    assert [words.about(request(number), Sender(ANA), NOW) is not None for number in range(6)] == [0, 0, 0, 0, 1, 1]
    words.keep(entry(request(6)), DONE._replace(value=b"x" * (2 * addresses + 11)), NOW)
    assert [words.about(request(number), Sender(ANA), NOW) is not None for number in range(7)] == [0] * 7


async def test_a_sender_whose_line_broke_before_the_answer_asks_again_and_the_agent_does_it_once(
    tmp_path: Path,
) -> None:
    async with runtime_rig(tmp_path) as rig:
        agent = await rig.opened("lamps")
        await agent.subscribed(AGENT)
        ana = await rig.opened("ana")
        body = {"class": "action", "method": "switch", "params": {"on": True}}
        wanted: Json = a_message("execute", ana.address, SWITCH, body, id_=1)
        await ana.say(wanted)
        asked = await agent.next()
        await agent.say(a_message("response", SWITCH, ana.address, {"code": 200, "value": 7}, id_=asked["id"]))
        first = await ana.next()
        for again in (ana, await rig.runtime()):
            if again is not ana:
                session_address = ana.session_address
                await ana.wire.cut()
                again.address = ana.address
                assert (await again.ask("re-open", "mn:/session", from_=session_address))["body"]["code"] == 200
            await again.say(wanted)
            assert await again.next() == first
        assert await agent.heard() == []
        assert rig.counters["actions completed"] == 1


def test_what_nobody_can_repeat_any_more_is_forgotten_with_the_next_word() -> None:
    words = RecentResults()
    for number in range(1000):
        words.keep(entry(request(number)), DONE, NOW)
    words.keep(entry(request(1000)), DONE, NOW + REPEATED_SECONDS + 1)
    assert len(words) == 1
    assert words.about(request(1000), Sender(ANA), NOW + REPEATED_SECONDS + 2) is not None


def test_nothing_is_remembered_for_other_domains_and_for_what_has_no_id() -> None:
    words, abroad = RecentResults(), Sender("", domain="beta.example")
    words.keep(entry(request(), abroad), DONE, NOW)
    silent = codec.build(id=None, type="execute", from_=ANA, to=SWITCH, body={"class": "action"})
    words.keep(entry(silent), DONE, NOW)
    assert len(words) == 0
    assert (words.about(request(), abroad, NOW), words.about(silent, Sender(ANA), NOW)) == (None, None)


def test_a_request_that_was_handed_over_under_another_id_is_known_by_the_one_its_sender_gave_it() -> None:
    words, message = RecentResults(), request()
    renamed = replace(entry(message), transaction=(message.from_key, b'"d-1"', message.to_key))
    words.keep(renamed, DONE, NOW)
    assert words.about(request(), Sender(ANA), NOW) == ("d-1", DONE)
    assert words.about(request("d-1"), Sender(ANA), NOW) is None


def test_a_result_is_kept_for_as_long_as_it_answers_and_to_the_last_byte_and_word() -> None:
    addresses = len(request().from_key) + len(request().to_key) + 1  # and a digit
    words = RecentResults(max_words=2, max_bytes=2 * (addresses + len(DONE.value)))
    words.keep(entry(request(1)), DONE, NOW)
    words.keep(entry(request(1)), DONE, NOW)  # counts once
    words.keep(entry(request(2)), DONE, NOW + REPEATED_SECONDS)
    assert words.about(request(1), Sender(ANA), NOW + REPEATED_SECONDS) == ("d-1", DONE)
    assert len(words) == 2


def test_too_many_short_results_push_the_oldest_out() -> None:
    words = RecentResults(max_words=2)
    for number in (1, 2, 3):
        words.keep(entry(request(number)), DONE, NOW)
    assert [words.about(request(number), Sender(ANA), NOW) is not None for number in (1, 2, 3)] == [False, True, True]


def test_the_same_request_takes_one_place() -> None:
    words = RecentResults(max_words=2)
    for number in (1, 1, 2):
        words.keep(entry(request(number)), DONE, NOW)
    assert len(words) == 2
