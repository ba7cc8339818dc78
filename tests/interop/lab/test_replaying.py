"""Recorded conversations as scripts: who plays what, what is compared, and what is different in an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from msgspec import Raw

from interop.lab.core.replaying import Addresses, Asked, base_of, compared, make_script
from protofly.conversation import (
    ABSENT,
    Conversation,
    ConversationRule,
    Passed,
    SessionChanged,
    Side,
    Started,
)
from protofly.errors import SettingsError

OWN, FOREIGN = "own.example", "foreign.example"
NODE = f"runtime://{OWN}/mn-1"
ANA, ROOM = f"runtime://{OWN}/ana", f"hyperty://{OWN}/1-1"
FAR = f"hyperty://{FOREIGN}/2-2"
ALLOCATION = f"domain://msg-node.{OWN}/address-allocation"


def said(
    at: float,
    side: Side,
    origin: str,
    header: tuple[str, str, str],
    body: dict[str, object] | None = None,
    *,
    id_: int | None = None,
) -> Passed:
    type_, from_, to = header
    return Passed(
        at=at,
        side=side,
        origin=origin,
        type=type_,
        from_=from_,
        to=to,
        id=ABSENT if id_ is None else Raw(str(id_).encode()),
        body=ABSENT if body is None else Raw(json.dumps(body).encode()),
    )


def conversation(lines: Sequence[Passed | SessionChanged]) -> Conversation:
    started = Started(
        node=NODE, domain=OWN, at=0.0, has_bodies=True, rule=ConversationRule(), seconds=60.0, bytes=1 << 20
    )
    return Conversation(started=started, lines=tuple(lines), ended=None)


ALLOCATED = [
    said(
        0.0, "runtime", ANA, ("create", f"{ANA}/aa", ALLOCATION), {"scheme": "hyperty", "value": {"number": 1}}, id_=1
    ),
    said(
        0.1, "node", NODE, ("response", ALLOCATION, f"{ANA}/aa"), {"code": 200, "value": {"allocated": [ROOM]}}, id_=1
    ),
]
ASKED = [
    said(0.2, "runtime", ANA, ("read", ROOM, FAR), {"value": 1}, id_=2),
    said(0.4, "domain", FOREIGN, ("response", FAR, ROOM), {"code": 200, "value": 2}, id_=2),
]


def test_each_runtime_and_each_other_domain_is_played_by_one() -> None:
    script = make_script(conversation([*ALLOCATED, *ASKED]), most_domains=5)
    assert script.domains == (OWN, FOREIGN)
    assert [(one.name, one.domain, one.addresses) for one in script.cast] == [
        (ANA, OWN, ()),
        (FOREIGN, FOREIGN, (FAR,)),
    ]


def test_what_was_allocated_before_the_recording_is_there_from_the_start() -> None:
    script = make_script(conversation(ASKED), most_domains=5)
    assert script.cast[0].addresses == (ROOM,)


@pytest.mark.parametrize(("type_", "to"), [("read", ALLOCATION), ("create", f"domain://registry.{OWN}")])
def test_only_what_an_address_allocation_creates_is_allocated(type_: str, to: str) -> None:
    lines = [
        said(0.0, "runtime", ANA, (type_, ANA, to), {"value": 1}, id_=1),
        said(0.1, "node", NODE, ("response", to, ANA), {"code": 200, "value": {"allocated": [ROOM]}}, id_=1),
    ]
    script = make_script(conversation([*lines, *ASKED]), most_domains=5)
    assert script.cast[0].addresses == (ROOM,)


def test_an_answer_without_a_code_is_the_final_one() -> None:
    answer = said(0.4, "domain", FOREIGN, ("response", FAR, ROOM), {"value": 2}, id_=2)
    [asked] = make_script(conversation([ASKED[0], answer]), most_domains=5).asked
    assert asked.answer == answer


def test_requests_have_their_answers_and_answers_are_not_played() -> None:
    script = make_script(conversation([*ALLOCATED, *ASKED]), most_domains=5)
    assert [one.message.type for one in script.asked] == ["create", "read"]
    answers = [one.answer.members["code"] for one in script.asked if one.answer is not None]
    assert answers == [200, 200]
    assert script.asked[1].recorded_ms == pytest.approx(200)


def test_nobody_plays_whom_the_node_did_not_know() -> None:
    nobody = f"hyperty://{OWN}/nobody"
    refused = [
        said(0.0, "runtime", ANA, ("read", ROOM, nobody), {}, id_=3),
        said(0.1, "node", NODE, ("response", nobody, ROOM), {"code": 404, "reason": "no-route"}, id_=3),
        said(0.2, "runtime", ANA, ("update", ROOM, f"hyperty://{OWN}/silent"), {}),
    ]
    script = make_script(conversation(refused), most_domains=5)
    assert [one.addresses for one in script.cast] == [(ROOM,), (f"hyperty://{OWN}/silent",)]


def test_requests_to_services_whose_body_is_not_there_are_not_played() -> None:
    lines = [
        said(0.0, "runtime", ANA, ("create", ROOM, f"domain://registry.{OWN}"), {"redacted": "xxx"}, id_=1),
        said(0.1, "runtime", ANA, ("create", ROOM, f"domain://registry.{OWN}"), {"token": "[left out]"}, id_=2),
        said(0.2, "runtime", ANA, ("create", ROOM, FAR), {"redacted": "xxx"}, id_=3),
    ]
    script = make_script(conversation(lines), most_domains=5)
    assert [bool(one.skipped) for one in script.asked] == [True, True, False]


def test_the_end_of_a_session_is_an_act_of_its_runtime() -> None:
    lines: list[Passed | SessionChanged] = [*ASKED, SessionChanged(at=1.0, runtime=ANA, event="closed")]
    act = make_script(conversation(lines), most_domains=5).acts[-1]
    assert not isinstance(act, Asked)
    assert (act[0].event, act[1]) == ("closed", 0)
    assert [one.message.type for one in make_script(conversation(lines), most_domains=5).asked] == ["read"]


def test_more_domains_than_a_laboratory_has_are_refused() -> None:
    far = [said(0.0, "runtime", ANA, ("read", ROOM, f"hyperty://d{n}.example/h"), {}, id_=n) for n in range(5)]
    with pytest.raises(SettingsError, match="6 domains"):
        make_script(conversation(far), most_domains=5)
    with pytest.raises(SettingsError, match="no message"):
        make_script(conversation([]), most_domains=5)


def test_addresses_are_translated_wherever_they_stand() -> None:
    addresses = Addresses({OWN: "a.example", FOREIGN: "b.example"})
    addresses.learn([ROOM], ["hyperty://a.example/9-9"])
    body = {"resource": f"{ROOM}/changes", "list": [f"user://{FOREIGN}/bo", "plain"], "to": f"see {ROOM}, please"}
    assert addresses.value(body) == {
        "resource": "hyperty://a.example/9-9/changes",
        "list": ["user://b.example/bo", "plain"],
        "to": "see hyperty://a.example/1-1, please",
    }
    assert addresses.here(f"domain://msg-node.{OWN}/sm") == "domain://msg-node.a.example/sm"
    assert addresses.here("domain://msg-node.third.example/sm") == "domain://msg-node.third.example/sm"


@pytest.mark.parametrize(
    ("address", "base"),
    [
        (f"{ROOM}/changes", ROOM),
        (f"{ANA}/registry", ANA),
        (f"domain://msg-node.{OWN}/sm", f"domain://msg-node.{OWN}/sm"),
        ("mn:/session", "mn:/session"),
    ],
)
def test_the_base_of_an_address_is_what_is_allocated(address: str, base: str) -> None:
    assert base_of(address) == base


def test_a_difference_says_what_was_and_what_is() -> None:
    recorded = {"code": 200, "value": {"n": 1, "gone": True}, "source": "runtime://a.example/mn-1"}
    here = {"code": 403, "reason": "policy", "value": {"n": 2}, "source": "runtime://a.example/mn-2"}
    assert compared(recorded, here) == [
        "- code: 200",
        "+ code: 403",
        '+ reason: "policy"',
        "- value.gone: true",
        "- value.n: 1",
        "+ value.n: 2",
    ]


@pytest.mark.parametrize(
    ("recorded", "here", "lines"),
    [({"a": 1}, 2, ['- value: {"a":1}', "+ value: 2"]), (2, {"a": 1}, ["- value: 2", '+ value: {"a":1}'])],
)
def test_an_object_in_place_of_a_number_is_a_difference(recorded: object, here: object, lines: list[str]) -> None:
    assert compared({"code": 200, "value": recorded}, {"code": 200, "value": here}) == lines


def test_equal_answers_and_times_of_theirs_are_no_difference() -> None:
    assert compared({"code": 200, "value": {"lastModified": 1}}, {"code": 200, "value": {"lastModified": 2}}) == []
    assert compared(None, None) == []


def test_only_at_the_top_of_an_answer_there_are_members_that_say_nothing() -> None:
    assert compared({"source": "x"}, {"source": "y"}) == []
    assert compared({"value": {"source": "x"}}, {"value": {"source": "y"}}) == [
        '- value.source: "x"',
        '+ value.source: "y"',
    ]


def test_a_long_value_is_shown_by_its_beginning() -> None:
    shown, cut = ("x" * length for length in (118, 119))
    assert compared({"value": shown}, {"value": cut}) == [f'- value: "{shown}"', f'+ value: "{cut}…']


def test_an_answer_that_is_missing_is_a_difference() -> None:
    assert compared({"code": 200}, None) == ["- answer: 200", "+ answer: none"]
    assert compared(None, {"code": 504, "reason": "timeout"}) == ["- answer: none", "+ answer: 504 timeout"]
