"""The cursor from a domain's name to the place of its documents, given its answers by hand."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue_client.core.location import Location
from federation.core.discovery_errors import DiscoveryStep, Failure
from federation.core.name_questions import Answer, AnswerStatus, Question, RecordKind, ServiceRecord
from federation.core.resolution import DomainHints, PeerEntry, Resolution, Resolved, in_order, read_hints
from protofly import limits
from protofly.errors import Code, SettingsError

TXT = Question("_rethink-mn.b.example", RecordKind.TXT)
SVCB = Question("_rethink-mn.b.example", RecordKind.SVCB)
SRV = Question("_rethink-mn._tcp.b.example", RecordKind.SRV)
ABSENT = Answer(AnswerStatus.NO_NAME)
FAILED = Answer(AnswerStatus.FAILED, detail="no answer")
PIN = "A" * 43


def found(*services: ServiceRecord, ttl: float = 300.0) -> Answer:
    return Answer(AnswerStatus.FOUND, services=services, ttl_seconds=ttl)


def texts(*lines: str, ttl: float = 300.0, is_validated: bool = False) -> Answer:
    return Answer(AnswerStatus.FOUND, texts=lines, ttl_seconds=ttl, is_validated=is_validated)


def resolve(answers: dict[Question, Answer], *, default: Answer = ABSENT) -> Resolved | Failure:
    resolution = Resolution("b.example", draw=lambda: 0.5)
    for _ in range(100):
        questions = resolution.questions()
        if not questions:
            return resolution.outcome()
        for question in questions:
            resolution.receive(question, answers.get(question, default))
    raise AssertionError("it never ends")


def targets(outcome: Resolved | Failure) -> list[tuple[str, int]]:
    assert isinstance(outcome, Resolved), outcome
    return [(location.connect_host, location.connect_port) for location in outcome.locations]


def code(outcome: Resolved | Failure) -> tuple[DiscoveryStep, Code]:
    assert isinstance(outcome, Failure), outcome
    return outcome.step, outcome.code


def test_three_questions_are_asked_together() -> None:
    assert set(Resolution("b.example", draw=lambda: 0.5).questions()) == {TXT, SVCB, SRV}


def test_domain_without_records_is_at_its_own_name_for_a_day() -> None:
    outcome = resolve({})
    assert outcome == Resolved((Location.of("b.example"),), 86_400)


def test_what_was_ignored_of_a_domains_records_is_noted() -> None:
    outcome = resolve({TXT: texts("v=rmn1; id=1", "v=rmn1; id=2")})
    assert isinstance(outcome, Resolved)
    assert outcome.notes == (f"{TXT}: 2 records begin with v=rmn1: ignored",)
    sound = resolve({TXT: texts("v=rmn1; id=1")})
    assert isinstance(sound, Resolved)
    assert sound.notes == ()


def test_service_record_moves_the_line_but_not_the_name_in_the_url() -> None:
    outcome = resolve({SVCB: found(ServiceRecord(1, "host.example", 8443))})
    assert isinstance(outcome, Resolved)
    location = outcome.locations[0]
    assert location.well_known_url == "https://b.example/.well-known/rethink-mn"
    assert location.connect_to == ("host.example", 8443)
    assert outcome.life_seconds == 300


def test_svcb_goes_before_srv() -> None:
    both = {SVCB: found(ServiceRecord(1, "svcb.b.example")), SRV: found(ServiceRecord(1, "srv.b.example", 8443))}
    assert targets(resolve(both)) == [("svcb.b.example", 443)]
    assert targets(resolve({SRV: both[SRV]})) == [("srv.b.example", 8443)]


def test_targets_are_tried_by_priority() -> None:
    answer = found(ServiceRecord(20, "second.b.example", 8443), ServiceRecord(10, "first.b.example", 8444))
    assert targets(resolve({SRV: answer})) == [("first.b.example", 8444), ("second.b.example", 8443)]


def test_alias_is_followed_to_its_service_record() -> None:
    alias = Question("mn.host.example", RecordKind.SVCB)
    outcome = resolve(
        {SVCB: found(ServiceRecord(0, alias.name)), alias: found(ServiceRecord(1, "x.host.example", 9443))}
    )
    assert targets(outcome) == [("x.host.example", 9443)]


def test_alias_without_service_record_leaves_the_other_ways() -> None:
    outcome = resolve(
        {SVCB: found(ServiceRecord(0, "mn.host.example")), SRV: found(ServiceRecord(1, "srv.b.example", 8443))}
    )
    assert targets(outcome) == [("srv.b.example", 8443)]


def test_records_for_protocols_we_do_not_speak_are_skipped_and_noted() -> None:
    records = found(
        ServiceRecord(1, "x.b.example", protocols=("dot",)),
        ServiceRecord(2, "y.b.example", has_unknown_mandatory=True),
        ServiceRecord(3, "z.b.example", protocols=("rethink-mn/1",)),
    )
    outcome = resolve({SVCB: records})
    assert targets(outcome) == [("z.b.example", 443)]
    assert isinstance(outcome, Resolved)
    assert "2 record(s)" in outcome.notes[0]


@pytest.mark.parametrize(("question", "step"), [(SVCB, DiscoveryStep.SVCB), (SRV, DiscoveryStep.SRV)])
def test_one_record_that_points_to_the_root_declines_the_service_for_its_life(
    question: Question, step: DiscoveryStep
) -> None:
    outcome = resolve({question: found(ServiceRecord(1, "x.b.example"), ServiceRecord(2, ""), ttl=700.0)})
    assert code(outcome) == (step, Code.SERVICE_DECLINED)
    assert isinstance(outcome, Failure)
    assert outcome.life_seconds == 700


def test_an_alias_to_the_root_declines_the_service_for_its_life() -> None:
    outcome = resolve({SVCB: found(ServiceRecord(0, ""), ServiceRecord(1, "x.b.example"), ttl=700.0)})
    assert code(outcome) == (DiscoveryStep.SVCB, Code.SERVICE_DECLINED)
    assert isinstance(outcome, Failure)
    assert outcome.life_seconds == 700


def chain(steps: int) -> dict[Question, Answer]:
    """So many aliases, one after the other, and then a service."""
    names = [SVCB.name, *(f"alias-{number}.example" for number in range(steps))]
    aliases = {Question(name, RecordKind.SVCB): found(ServiceRecord(0, target)) for name, target in pairwise(names)}
    return {**aliases, Question(names[-1], RecordKind.SVCB): found(ServiceRecord(1, "x.b.example", 8443))}


def test_as_many_aliases_are_followed_as_are_allowed_and_no_more() -> None:
    assert targets(resolve(chain(limits.DNS_ALIAS_STEPS))) == [("x.b.example", 8443)]
    assert code(resolve(chain(limits.DNS_ALIAS_STEPS + 1))) == (DiscoveryStep.SVCB, Code.NO_SUCH_DOMAIN)


@pytest.mark.parametrize("target", [SVCB.name, "alias-0.example"])
def test_aliases_in_a_circle_are_refused(target: str) -> None:
    circle = chain(1) | {Question("alias-0.example", RecordKind.SVCB): found(ServiceRecord(0, target))}
    outcome = resolve(circle)
    assert code(outcome) == (DiscoveryStep.SVCB, Code.NO_SUCH_DOMAIN)
    assert isinstance(outcome, Failure)
    assert "circle" in outcome.detail


@pytest.mark.parametrize(
    ("answers", "life"),
    [
        ({TXT: texts("v=rmn1", ttl=900.0), SRV: found(ServiceRecord(1, "x.b.example"), ttl=700.0)}, 700),
        ({TXT: texts("v=rmn1", ttl=700.0), SRV: found(ServiceRecord(1, "x.b.example"), ttl=900.0)}, 700),
        ({TXT: Answer(AnswerStatus.NO_NAME, ttl_seconds=400.0)}, limits.DISCOVERY_DEFAULT_SECONDS),
        ({TXT: Answer(AnswerStatus.FOUND, texts=("v=rmn1",))}, limits.DISCOVERY_DEFAULT_SECONDS),
        ({TXT: Answer(AnswerStatus.FOUND, texts=("v=rmn1",)), SRV: found(ttl=900.0)}, 900),
        ({TXT: texts("v=rmn1", ttl=900.0), SRV: FAILED}, limits.DISCOVERY_MIN_SECONDS),
    ],
)
def test_a_place_is_believed_for_the_shortest_life_of_what_was_found(
    answers: dict[Question, Answer], life: float
) -> None:
    outcome = resolve(answers)
    assert isinstance(outcome, Resolved)
    assert outcome.life_seconds == life


@pytest.mark.parametrize("question", [SVCB, SRV])
def test_one_question_that_fails_is_no_obstacle_but_is_asked_again_soon(question: Question) -> None:
    outcome = resolve({question: FAILED})
    assert isinstance(outcome, Resolved)
    assert outcome.life_seconds == 300


def test_all_questions_failing_is_a_failure_of_the_line() -> None:
    outcome = resolve({}, default=FAILED)
    assert code(outcome) == (DiscoveryStep.TXT, Code.DNS_FAILED)
    assert isinstance(outcome, Failure)
    assert outcome.is_temporary
    assert outcome.reason == "discovery-failed:txt"


@pytest.mark.parametrize("target", ["localhost", "127.0.0.1", "0x7f.1", "a b.example", "x" * 64 + ".example"])
def test_target_that_is_no_domain_name_refuses_the_set(target: str) -> None:
    records = found(ServiceRecord(1, "good.b.example"), ServiceRecord(2, target))
    assert code(resolve({SVCB: records})) == (DiscoveryStep.SVCB, Code.NAME_INVALID)


def test_unasked_answers_change_nothing() -> None:
    resolution = Resolution("b.example", draw=lambda: 0.5)
    resolution.receive(Question("other.example", RecordKind.SVCB), found(ServiceRecord(1, "evil.example")))
    for question in resolution.questions():
        resolution.receive(question, ABSENT)
        resolution.receive(question, found(ServiceRecord(1, "evil.example")))
    assert targets(resolution.outcome()) == [("", 0)]


def test_peer_entry_names_a_place_or_none() -> None:
    assert PeerEntry(domain="b.example").location() is None
    entry = PeerEntry(domain="b.example", connect_host="10.7.0.1", connect_port=8444)
    location = entry.location()
    assert location is not None
    assert location.well_known_url == "https://b.example/.well-known/rethink-mn"
    assert location.connect_to == ("10.7.0.1", 8444)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("https://b.example/mn", "", 0), ("", "10.7.0.1", 0), ("", "", 8444), ("https://b.example/mn", "10.7.0.1", 8444)],
)
def test_each_member_of_a_peer_entry_is_enough_to_name_a_place(url: str, host: str, port: int) -> None:
    location = PeerEntry(domain="b.example", well_known_url=url, connect_host=host, connect_port=port).location()
    usual = "https://b.example/.well-known/rethink-mn"
    assert location == Location(domain="b.example", well_known_url=url or usual, connect_host=host, connect_port=port)


@pytest.mark.parametrize(
    ("connect", "host", "port"),
    [
        ("", "", 0),
        ("h:1", "h", 1),
        ("h:65535", "h", 65_535),
        ("h:00443", "h", 443),
        ("mn.b.example:8444", "mn.b.example", 8444),
        ("10.7.0.1:443", "10.7.0.1", 443),
        ("[fd12::1]:8444", "fd12::1", 8444),
    ],
)
def test_peer_entry_is_read_from_settings(connect: str, host: str, port: int) -> None:
    entry = PeerEntry.of_settings("b.example", connect=connect)
    assert (entry.connect_host, entry.connect_port) == (host, port)


@pytest.mark.parametrize(
    "connect",
    [
        "mn.b.example",
        ":443",
        "mn.b.example:",
        "h:0",
        "h:65536",
        "h:000443",
        "fd12::1:443",
        "[fd12::1:443",
        "fd12::1]:443",
        "h:x",
        "h:٣",
    ],
)
def test_peer_entry_that_cannot_be_read_is_an_error_of_the_operator(connect: str) -> None:
    with pytest.raises(SettingsError, match=r"b\.example"):
        PeerEntry.of_settings("b.example", connect=connect)


def test_hints_are_read_and_the_pin_binds_only_when_validated() -> None:
    line = f"v=rmn1; id=20261120; k={PIN}; mode=testing; new=1;"
    for is_validated in (False, True):
        outcome = resolve({TXT: texts("v=spf1 -all", line, is_validated=is_validated)})
        assert isinstance(outcome, Resolved)
        location = outcome.locations[0]
        assert (location.change_id, location.pin_hint, location.mode) == ("20261120", PIN, "testing")
        assert location.pin_is_validated is is_validated
        without_pin = resolve({TXT: texts("v=rmn1; id=1", is_validated=is_validated)})
        assert isinstance(without_pin, Resolved)
        assert not without_pin.locations[0].pin_is_validated


@pytest.mark.parametrize(
    "line",
    [
        "v=rmn1; id=1; id=2",
        "v=rmn1; k=short",
        f"v=rmn1; k={PIN}=",
        "v=rmn1; mode=off",
        "v=rmn1; id=",
        "v=rmn1; id",
        "v=rmn1; new",
        "v=rmn1; =1",
        "v=rmn1; id=ü",
        "v=rmn1; id=\x00",
        "v=rmn1; id=" + "1" * 2000,
        "v=rmn1; new=" + "1" * 2000,
        "v=rmn1; new=\x07",
        "v=rmn1; new=ü",
        "v=rmn1;" + " " * (limits.DNS_TXT_CHARS - 6),
    ],
)
def test_malformed_hints_are_ignored_and_noted(line: str) -> None:
    hints, note = read_hints([line])
    assert hints == DomainHints()
    assert note


@pytest.mark.parametrize("end", [";", ";;", "; ;", ";" + " " * (limits.DNS_TXT_CHARS - 13), ""])
def test_empty_fields_and_as_much_text_as_is_allowed_are_no_fault(end: str) -> None:
    assert read_hints(["v=rmn1; id=1" + end]) == (DomainHints(change_id="1"), "")


def test_a_record_without_hints_is_none_to_note_and_a_domain_without_records_neither() -> None:
    assert read_hints(["v=rmn1"]) == (DomainHints(), "")
    assert read_hints([]) == (DomainHints(), "")
    assert read_hints(["v=rmn1; v=2; id=1"]) == (DomainHints(change_id="1"), "")
    assert read_hints(["v=spf1 -all"]) == (DomainHints(), "no record begins with v=rmn1")


def test_two_records_of_ours_give_no_hints() -> None:
    hints, note = read_hints(["v=rmn1; id=1", "v=rmn1; id=2"])
    assert hints == DomainHints()
    assert "2 records" in note


@settings(deadline=None)
@given(st.lists(st.text(max_size=80).map("v=rmn1;".__add__) | st.text(max_size=80), max_size=3))
def test_any_text_gives_sound_hints(lines: list[str]) -> None:
    hints, _ = read_hints(lines)
    assert hints.pin == "" or len(hints.pin) == 43
    assert hints.mode in {"enforce", "testing"}


RECORDS = st.builds(
    ServiceRecord,
    st.integers(0, 65_535),
    st.sampled_from(["", "b.example", "x.b.example", "127.0.0.1"]),
    st.integers(0, 65_535),
)
ANSWERS = st.builds(
    Answer, st.sampled_from(AnswerStatus), st.tuples(st.text(max_size=20)), st.lists(RECORDS, max_size=4).map(tuple)
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([TXT, SVCB, SRV, Question("x.b.example", RecordKind.SVCB)]), ANSWERS))
def test_any_answers_lead_to_an_outcome(answers: dict[Question, Answer]) -> None:
    outcome = resolve(answers)
    assert isinstance(outcome, Failure) or all(port == 443 or port == 0 or port >= 1024 for _, port in targets(outcome))


@settings(deadline=None)
@given(st.lists(st.integers(0, 65_535), min_size=1, max_size=8), st.floats(0, 1, exclude_max=True))
def test_order_keeps_every_record_once(weights: list[int], draw: float) -> None:
    records = [ServiceRecord(1, f"h{number}.b.example", weight=weight) for number, weight in enumerate(weights)]
    assert sorted(record.target for record in in_order(records, draw=lambda: draw)) == sorted(r.target for r in records)


def test_heavier_records_come_first_more_often() -> None:
    records = [ServiceRecord(1, "light.b.example", weight=10), ServiceRecord(1, "heavy.b.example", weight=90)]
    firsts = [in_order(records, draw=lambda share=step / 100: share)[0].target for step in range(100)]  # type: ignore[misc]
    assert 80 < firsts.count("heavy.b.example") < 95


@pytest.mark.parametrize(
    ("draw", "first"),
    [(0.0, "none"), (0.001, "light"), (0.25, "light"), (0.251, "heavy"), (0.75, "heavy"), (0.999, "heavy")],
)
def test_the_first_record_is_the_one_whose_running_sum_reaches_the_drawn_number(draw: float, first: str) -> None:
    records = [ServiceRecord(1, name, weight=weight) for name, weight in (("heavy", 2), ("none", 0), ("light", 1))]
    assert in_order(records, draw=lambda: draw)[0].target == first


def test_an_srv_record_of_priority_0_is_no_alias() -> None:
    assert targets(resolve({SRV: found(ServiceRecord(0, "srv.b.example", port=8443))})) == [("srv.b.example", 8443)]
