"""What is left out of a value means nothing of it: zero, no, or never."""

from __future__ import annotations

from federation.core.awaited_replies import LinkNames
from federation.core.discovery_cache import DiscoveryCache
from federation.core.discovery_errors import Attempt, DiscoveryError, DiscoveryLineError, DiscoveryStep, Failure
from federation.core.interworking import Admission
from federation.core.link_machine import LinkMachine
from federation.core.name_questions import Answer, AnswerStatus, ServiceRecord
from federation.core.outbound_queue import OutboundMessage, QueueLimits
from federation.core.resolution import PeerEntry
from federation.core.service_tokens import SERVICE, ServiceTokens
from federation.core.stub_status import StepTimes
from federation.core.transactions import Transactions
from protofly import codec
from protofly.errors import Code

REQUEST = codec.build(id=1, type="read", from_="hyperty://a.example/h", to="comm://b.example/r")
FAILURE = Failure("b.example", DiscoveryStep.CONNECT, Code.CONNECT_FAILED, "no answer")


def test_an_attempt_took_no_time_and_a_failure_names_no_pause() -> None:
    attempt = Attempt(DiscoveryStep.TXT, "b.example", "ok")
    assert (attempt.at, attempt.seconds, str(attempt)) == (0.0, 0.0, "txt: b.example → ok [0 ms]")
    assert FAILURE.error().retry_after_seconds == 0.0
    assert DiscoveryError(FAILURE).retry_after_seconds == DiscoveryLineError(FAILURE).retry_after_seconds == 0.0


def test_a_domain_that_failed_is_one_that_messages_wait_for() -> None:
    cache = DiscoveryCache()
    assert [cache.failed(FAILURE, now=0.0, draw=0.5) for _ in range(12)][-1] == 600.0


def test_no_reply_is_in_doubt() -> None:
    reply = codec.response(REQUEST, 200)
    assert Transactions().is_late(reply, 0.0)
    link = LinkMachine(LinkNames("b.example", "runtime://a.example/mn", frozenset()), "0" * 32, QueueLimits())
    assert link.replies.came(reply, 0.0) is not reply


def test_records_answers_and_entries_say_no_more_than_they_were_given() -> None:
    record, answer = ServiceRecord(1, "x.b.example"), Answer(AnswerStatus.FOUND)
    assert (record.port, record.weight, record.has_unknown_mandatory, answer.is_validated) == (0, 0, False, False)
    assert PeerEntry(domain="b.example").connect_port == 0
    admission = Admission(domain="b.example", ranges=())
    assert (admission.allows_http, admission.has_token) == (False, False)
    assert SERVICE not in ServiceTokens().names
    assert StepTimes().is_warm is False


def test_a_message_was_handed_to_nobody_and_is_suspected_of_nothing() -> None:
    one = OutboundMessage(REQUEST, REQUEST.raw, b"", "", 0, 0.0, "", "", 0, 15.0)
    assert (one.number, one.handed_seconds, one.suspected, one.ttl_seconds) == (0, 0.0, 0, 0.0)
