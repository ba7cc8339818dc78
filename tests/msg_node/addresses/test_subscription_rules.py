"""Rights to listen beyond the plain case: consent, P2P stubs, results per resource, sources, what a child leaves."""

from __future__ import annotations

import contextlib

import pytest

from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.data_schemas import DataSchema
from msg_node.kernel.rules import Rules
from protofly import codec
from protofly.errors import Code, PeerError
from tests.support.state_rig import ALLOCATION, DOMAIN, SM, StateRig

ROOM = f"comm://{DOMAIN}/room-51"
FOREIGN_ROOM = "comm://beta.example/room-9"
ANA = f"runtime://{DOMAIN}/rt-ana"


@pytest.fixture
def rig() -> StateRig:
    return StateRig()


def subscribe(rig: StateRig, sid: int, *resources: str, **more: object) -> dict[str, object]:
    return rig.reply(sid, SM, "subscribe", {"resources": list(resources), **more})


def agrees(rig: StateRig, room: str, observer: str, code: object = 200) -> None:
    """The reporter's reply passes the node."""
    asking = codec.build(id=1, type="subscribe", from_=observer, to=f"{room}/subscription")
    rig.services.observers.passes(asking, 1)
    rig.services.observers.passes(
        codec.build(id=1, type="response", from_=asking.to, to=asking.from_, body={"code": code}), 2
    )


# Results per resource.


def test_on_demand_every_resource_gets_its_result(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    subscribe(rig, ana, ROOM)
    reply = subscribe(rig, eve, f"{ROOM}/changes", ROOM, detail=True)
    assert (reply["code"], reply["description"]) == (207, "Multi-Status")
    assert reply["value"] == {
        "resources": [
            {"resource": f"{ROOM}/changes", "code": 200},
            {"resource": ROOM, "code": 403, "reason": "not-owner"},
        ]
    }
    assert subscribe(rig, ana, f"{ROOM}/changes", ROOM, detail=True)["code"] == 200


def test_release_answers_per_address_on_demand(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    subscribe(rig, ana, ROOM)
    subscribe(rig, eve, f"{ROOM}-2")
    reply = rig.reply(eve, ALLOCATION, "delete", {"childrenResources": [ROOM, f"{ROOM}-2"], "detail": True})
    assert reply["code"] == 207
    assert reply["value"] == {
        "resources": [
            {"resource": ROOM, "code": 403, "reason": "not-owner"},
            {"resource": f"{ROOM}-2", "code": 200},
        ]
    }


# Consent.


@pytest.fixture
def careful() -> StateRig:
    rig = StateRig(rules=Rules(require_consent=True))
    rig.open("rt-ana", 1)
    rig.open("rt-bo", 2)
    subscribe(rig, 1, ROOM)
    return rig


@pytest.mark.parametrize("url", [f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/children/", f"{ROOM}/children/*"])
def test_an_observer_without_consent_is_refused_and_with_it_heard(careful: StateRig, url: str) -> None:
    reply = subscribe(careful, 2, url)
    assert (reply["code"], reply["reason"]) == (403, "policy")
    agrees(careful, ROOM, f"runtime://{DOMAIN}/rt-bo/sm")
    assert subscribe(careful, 2, url)["code"] == 200


def test_consent_may_be_given_to_a_hyperty_of_the_runtime(careful: StateRig) -> None:
    subscribe(careful, 2, f"hyperty://{DOMAIN}/h-bo")
    agrees(careful, ROOM, f"hyperty://{DOMAIN}/h-bo", "2XX")
    assert subscribe(careful, 2, f"{ROOM}/changes")["code"] == 200


@pytest.mark.parametrize("code", [100, 183, 403, "error", None])
def test_a_refusal_or_a_promise_is_no_consent(careful: StateRig, code: object) -> None:
    agrees(careful, ROOM, f"runtime://{DOMAIN}/rt-bo", code)
    assert subscribe(careful, 2, f"{ROOM}/changes")["code"] == 403


def test_consent_for_one_object_or_observer_is_none_for_another(careful: StateRig) -> None:
    agrees(careful, ROOM, f"runtime://{DOMAIN}/rt-bob")
    agrees(careful, f"{ROOM}1", f"runtime://{DOMAIN}/rt-bo")
    assert subscribe(careful, 2, f"{ROOM}/changes")["code"] == 403


def test_the_reporter_and_status_listeners_need_no_consent(careful: StateRig) -> None:
    assert subscribe(careful, 1, f"{ROOM}/changes", f"{ROOM}/children/m")["code"] == 200
    assert subscribe(careful, 2, f"hyperty://{DOMAIN}/h/registration", f"{ANA}/status")["code"] == 200


def test_another_domain_has_the_consent_of_its_hyperties(careful: StateRig) -> None:
    link = careful.state.links.number("beta.example")
    ask = {"resources": [f"{ROOM}/changes"], "source": "runtime://beta.example/mn"}
    assert careful.reply(link, SM, "subscribe", ask, from_="runtime://beta.example/mn/sm")["code"] == 403
    agrees(careful, ROOM, "hyperty://beta.example/h-bo")
    assert careful.reply(link, SM, "subscribe", ask, from_="runtime://beta.example/mn/sm")["code"] == 200


def test_what_runtimes_and_names_without_a_scheme_report_needs_no_consent(careful: StateRig) -> None:
    assert subscribe(careful, 2, f"{ANA}/changes", f"{ANA}/children/m", "plain/changes")["code"] == 200


def test_a_child_of_an_owned_object_needs_the_consent_of_its_owner_and_not_of_what_is_between(
    careful: StateRig,
) -> None:
    agrees(careful, f"{ROOM}/a", f"runtime://{DOMAIN}/rt-bo")
    assert subscribe(careful, 2, f"{ROOM}/a/b")["code"] == 403
    agrees(careful, ROOM, f"runtime://{DOMAIN}/rt-bo")
    assert subscribe(careful, 2, f"{ROOM}/a/b")["code"] == 200


def test_the_reporter_of_an_object_is_never_taken_off_it(careful: StateRig) -> None:
    subscribe(careful, 1, f"{ROOM}/changes")
    careful.services.observers.take_off(ROOM, ANA, by="runtime://alpha.example/somebody")
    assert careful.state.listeners.targets(f"{ROOM}/changes") == (1,)
    assert not careful.state.observer_rights.is_expelled(1, ROOM)


@pytest.mark.parametrize(("origin", "may"), [(0, True), (1, True), (2, False)])
def test_the_node_and_the_reporter_change_an_object(careful: StateRig, origin: int, may: bool) -> None:
    assert careful.state.senders.may_change(origin, ROOM, ANA) is may


def test_consent_ends_with_the_object_and_who_listens_already_may_repeat(careful: StateRig) -> None:
    agrees(careful, ROOM, f"runtime://{DOMAIN}/rt-bo")
    subscribe(careful, 2, f"{ROOM}/changes")
    careful.state.observer_rights.object_deleted(ROOM, ())
    assert subscribe(careful, 2, f"{ROOM}/changes")["code"] == 200
    assert subscribe(careful, 2, f"{ROOM}/children/m")["code"] == 403


# P2P stubs.


HANDLER = f"runtime://{DOMAIN}/p2phandler/6f1"


def announce(rig: StateRig, sid: int, url: str, source: str) -> dict[str, object]:
    return rig.reply(sid, SM, "subscribe", {"subscribe": [url], "source": source})


@pytest.mark.parametrize("name", ["p2phandler", "p2prequester"])
@pytest.mark.parametrize("scheme", ["runtime", "hyperty-runtime", "hyperty"])
def test_a_p2p_source_of_the_domain_is_claimed_by_who_announces_it_first(rig: StateRig, scheme: str, name: str) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    source = f"{scheme}://{DOMAIN}/{name}/6f1"
    assert announce(rig, ana, f"{ANA}/{name}/6f1", source)["code"] == 200
    assert rig.state.owners.owner(source.replace("hyperty-runtime", "runtime")) == ana
    assert announce(rig, ana, f"{ANA}/{name}/6f1", source)["code"] == 200
    reply = announce(rig, eve, f"runtime://{DOMAIN}/rt-eve/{name}/6f1", source)
    assert (reply["code"], reply["reason"]) == (403, "spoofed-source")


def test_the_announcer_speaks_for_its_stub_and_below_and_nobody_else_does(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    announce(rig, ana, HANDLER, HANDLER)
    for key in (HANDLER, f"{HANDLER}/status"):
        assert rig.state.senders.source_of(ana, key).code is None
        assert rig.state.senders.source_of(eve, key).code is not None
    assert rig.state.listeners.targets(HANDLER) == (ana,)


@pytest.mark.parametrize("source", ["runtime://beta.example/p2phandler/1", f"runtime://{DOMAIN}/p2phandlers/1"])
def test_a_stub_of_another_domain_or_name_is_not_claimed(rig: StateRig, source: str) -> None:
    ana, _ = rig.open("rt-ana", 1)
    announce(rig, ana, f"{ANA}/p2phandler/1", source)
    assert rig.state.owners.owner(source) is None


def test_removal_gives_the_stub_address_back(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    announce(rig, ana, f"{ANA}/p2phandler/6f1", HANDLER)
    gone = {"unsubscribe": [f"{ANA}/p2phandler/6f1"], "source": HANDLER}
    assert rig.reply(ana, SM, "unsubscribe", gone)["code"] == 200
    assert rig.state.owners.owner(HANDLER) is None
    assert announce(rig, eve, HANDLER, HANDLER)["code"] == 200


def test_what_others_do_not_hear_any_more_stays_the_stub_address_of_its_session(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    announce(rig, ana, HANDLER, HANDLER)
    assert rig.reply(eve, SM, "unsubscribe", {"resources": [HANDLER]})["code"] == 200
    assert rig.state.owners.owner(HANDLER) == ana


def test_an_address_of_a_session_that_is_no_stub_stays_its_own_when_it_is_not_heard_any_more(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    subscribe(rig, ana, ROOM)
    assert rig.reply(ana, SM, "unsubscribe", {"resources": [ROOM]})["code"] == 200
    assert rig.state.listeners.count(ana) == 0
    assert rig.state.owners.owner(ROOM) == ana


# Observers that the reporter takes off.


@pytest.mark.parametrize("others", [[], ["room-52"], ["room-eve"], ["room-eve", "room-52"]])
def test_an_observer_is_taken_off_by_the_reporter_of_all_named_objects_only(rig: StateRig, others: list[str]) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    bo, _ = rig.open("rt-bo", 3)
    subscribe(rig, ana, ROOM, f"comm://{DOMAIN}/room-52")
    subscribe(rig, eve, f"comm://{DOMAIN}/room-eve")
    objects = [ROOM, *(f"comm://{DOMAIN}/{name}" for name in others)]
    events = [f"{one}/changes" for one in objects]
    subscribe(rig, bo, *events)
    reply = rig.reply(ana, SM, "unsubscribe", {"resources": events, "source": f"runtime://{DOMAIN}/rt-bo"})
    is_refused = "room-eve" in others
    assert (reply["code"], reply.get("reason")) == ((403, "spoofed-source") if is_refused else (200, None))
    assert [rig.state.listeners.targets(key) for key in events] == [(bo,) if is_refused else ()] * len(events)


def test_no_runtime_opens_under_the_name_of_all_stubs(rig: StateRig) -> None:
    result = rig.session_verb("open", f"runtime://{DOMAIN}/p2phandler", 1)
    assert codec.body_members(result.replies[0].body)["reason"] == "not-owner"


# Schemas that are read first.


CHAT = f"hyperty-catalogue://catalogue.{DOMAIN}/.well-known/dataschema/Chat"


@pytest.mark.parametrize(
    ("body", "is_read", "code"),
    [
        ({"resource": ROOM, "schema": CHAT}, True, None),
        ({"resource": ROOM}, False, 200),
        ({"schema": CHAT}, False, 400),
        ({"resources": [ROOM], "schema": CHAT}, False, 200),
        ({"resource": ROOM, "schema": CHAT, "childrenResources": ["m"]}, False, 200),
        ({"resource": ROOM, "schema": CHAT, "children": ["m"]}, False, 200),
    ],
)
def test_a_schema_is_read_for_an_object_whose_children_are_not_named(
    body: dict[str, object], is_read: bool, code: int | None
) -> None:
    rig = StateRig(rules=Rules(expands_schema=True))
    ana, _ = rig.open("rt-ana", 1)
    result = rig.ask(ana, SM, "subscribe", body)
    assert len(result.inquiries) == is_read
    replies = [codec.body_members(one.body) for one in result.replies]
    assert [reply["code"] for reply in replies] == ([] if code is None else [code])
    assert not any("schema" in reply for reply in replies)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("is_read", [True, False])
def test_whose_session_ends_while_a_schema_is_read_is_not_subscribed(is_read: bool, is_there: bool) -> None:
    rig = StateRig(rules=Rules(expands_schema=True))
    ana, _ = rig.open("rt-ana", 1)
    (asked,) = rig.ask(ana, SM, "subscribe", {"resource": ROOM, "schema": CHAT}).inquiries
    inquiry = asked.inquiry
    assert inquiry.failed is not None
    if not is_there:
        rig.session_verb("close", f"runtime://{DOMAIN}/rt-ana", 1)
    with contextlib.nullcontext() if is_there else pytest.raises(PeerError) as refused:
        if is_read:
            inquiry.conclude(DataSchema({}), rig.now)
        else:
            inquiry.failed(PeerError(Code.NOT_REGISTERED, "x"), rig.now)
    assert refused is None or refused.value.code is Code.NOT_CONNECTED
    assert rig.state.listeners.targets(f"{ROOM}/changes") == ((ana,) if is_there else ())


# Sources and what is left.


def test_a_source_may_be_claimed_by_the_same_request(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    hyperty = f"hyperty://{DOMAIN}/h-ana"
    subscribe(rig, ana, hyperty, source=hyperty)
    assert [one.source for one in rig.state.listeners.subscriptions(ana)] == [hyperty]


@pytest.mark.parametrize("spelling", [f"hyperty-runtime://{DOMAIN}/rt-ana", f"RUNTIME://{DOMAIN.upper()}./rt-ana/"])
def test_a_source_is_the_same_in_every_spelling(rig: StateRig, spelling: str) -> None:
    ana, _ = rig.open("rt-ana", 1)
    subscribe(rig, ana, f"{ROOM}/changes", source=ANA)
    rig.reply(ana, SM, "unsubscribe", {"resources": [f"{ROOM}/changes"], "source": spelling})
    assert rig.state.listeners.targets(f"{ROOM}/changes") == ()


def test_a_source_that_is_nobody_s_unsubscribes_what_it_subscribed(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    subscribe(rig, ana, f"{ROOM}/changes", source=f"hyperty://{DOMAIN}/unheard-of")
    rig.reply(ana, SM, "unsubscribe", {"resources": [f"{ROOM}/changes"], "source": f"hyperty://{DOMAIN}/unheard-of"})
    assert rig.state.listeners.count(ana) == 0


def test_the_base_of_all_children_stays_while_one_child_is_heard(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    rig.reply(ana, SM, "subscribe", {"resource": ROOM, "childrenResources": ["a", "b"]})
    rig.reply(ana, SM, "unsubscribe", {"resource": ROOM, "childrenResources": ["a"]})
    assert rig.state.listeners.targets(f"{ROOM}/children/") == (ana,)
    rig.reply(ana, SM, "unsubscribe", {"resource": ROOM, "childrenResources": ["b"]})
    assert rig.state.listeners.count(ana) == 0


@pytest.mark.parametrize("member", ["childrenResources", "children"])
def test_children_of_an_object_that_nobody_owns_are_for_every_observer_and_claimed_by_none(
    rig: StateRig, member: str
) -> None:
    observers = tuple(rig.open(f"rt-{number}", number)[0] for number in (1, 2))
    for observer in observers:
        reply = rig.reply(observer, SM, "subscribe", {"resource": ROOM, member: ["m"]})
        assert reply == {"code": 200, "description": "OK", "desc": "OK"}
    assert rig.state.listeners.targets(f"{ROOM}/m") == observers
    assert rig.state.owners.owner(f"{ROOM}/m") is None
    for observer in observers:
        rig.reply(observer, SM, "unsubscribe", {"resource": ROOM, member: ["m"]})
        assert rig.state.lifecycle.holdings(observer) == (0, 0)


def test_address_of_two_levels_is_claimed_by_who_lists_it_itself(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    rig.reply(ana, SM, "subscribe", {"resources": [f"{ROOM}/m"], "resource": ROOM, "childrenResources": ["m"]})
    assert rig.state.owners.owner(f"{ROOM}/m") == ana


def test_address_without_a_domain_belongs_to_who_listens_to_it_first(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    assert subscribe(rig, ana, "comm:/room", "comm:/room/subscription")["code"] == 200
    assert (rig.state.owners.owner("comm:/room"), rig.state.owners.owner("comm://room")) == (ana, None)
    for text in ("comm:/room", "comm:///room", "comm:/room/subscription", "comm:/room/*"):
        assert subscribe(rig, eve, text)["reason"] == "not-owner"
    assert subscribe(rig, eve, "comm:/room/changes")["code"] == 200
    for text in ("runtime:/bo", "mn:/other", "domain:/x", "user:/x", "comm://room"):  # not open, reserved, foreign
        assert subscribe(rig, eve, text)["reason"] == "not-owner"


def test_children_of_a_named_sub_resource_are_those_of_its_object(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    rig.reply(ana, SM, "subscribe", {"resource": f"{ROOM}/changes", "childrenResources": ["m"]})
    urls = {one.url for one in rig.state.listeners.subscriptions(ana)}
    assert urls == {f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/m", f"{ROOM}/children/"}


def test_another_domain_listens_to_objects_of_ours_and_of_no_third(rig: StateRig) -> None:
    link = rig.state.links.number("beta.example")
    for url, code in ((f"{ROOM}/changes", 200), ("comm://gamma.example/x/changes", 403), (f"{ROOM}/*", 403)):
        ask = {"resources": [url], "source": "runtime://beta.example/mn"}
        assert rig.reply(link, SM, "subscribe", ask, from_="runtime://beta.example/mn/sm")["code"] == code


def test_another_domain_hears_children_in_every_spelling_as_observers_here_do(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    subscribe(rig, ana, ROOM)
    link = rig.state.links.number("beta.example")
    four = [f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/m", f"{ROOM}/children/"]
    ask = {"resources": four, "source": "runtime://beta.example/mn"}
    answer = rig.reply(link, SM, "subscribe", ask, from_="runtime://beta.example/mn/sm")
    assert answer == {"code": 200, "description": "OK"}
    assert all(rig.state.listeners.targets(key) == (link,) for key in four)


@pytest.mark.parametrize(
    "url", [f"{ROOM}x/m", f"{ROOM}/m/subscription", f"{ROOM}/own", f"thing://{DOMAIN}/agent-4/lamp-1"]
)
def test_what_is_no_child_of_somebody_s_object_is_not_for_another_domain(rig: StateRig, url: str) -> None:
    ana, _ = rig.open("rt-ana", 1)
    subscribe(rig, ana, f"{ROOM}/own")
    subscribe(rig, ana, ROOM, f"thing://{DOMAIN}/agent-4")
    ask = {"resources": [url], "source": "runtime://beta.example/mn"}
    link = rig.state.links.number("beta.example")
    assert rig.reply(link, SM, "subscribe", ask, from_="runtime://beta.example/mn/sm")["reason"] == "not-owner"


def test_the_old_spelling_of_a_child_needs_the_consent_of_its_object(careful: StateRig) -> None:
    link = careful.state.links.number("beta.example")
    ask = {"resources": [f"{ROOM}/m"], "source": "runtime://beta.example/mn"}
    assert subscribe(careful, 2, f"{ROOM}/m")["code"] == 403
    assert careful.reply(link, SM, "subscribe", ask, from_="runtime://beta.example/mn/sm")["code"] == 403
    agrees(careful, ROOM, f"runtime://{DOMAIN}/rt-bo")
    agrees(careful, ROOM, "hyperty://beta.example/h-bo")
    assert subscribe(careful, 2, f"{ROOM}/m")["code"] == 200
    assert careful.reply(link, SM, "subscribe", ask, from_="runtime://beta.example/mn/sm")["code"] == 200


@pytest.mark.parametrize("url", [f"{FOREIGN_ROOM}/m", f"{FOREIGN_ROOM}/changes"])
def test_an_object_abroad_needs_the_consent_of_its_reporter_in_every_spelling(careful: StateRig, url: str) -> None:
    assert subscribe(careful, 2, url)["code"] == 403
    agrees(careful, FOREIGN_ROOM, f"runtime://{DOMAIN}/rt-bo")
    assert subscribe(careful, 2, url)["code"] == 200


# What dialect A hears, and reading.


@pytest.mark.parametrize(("sm_error", "code"), [(400, 400), (500, 500)])
@pytest.mark.parametrize("type_", ["subscribe", "unsubscribe"])
def test_a_request_that_names_nothing_is_answered_as_the_settings_say(sm_error: int, code: int, type_: str) -> None:
    rig = StateRig(rules=Rules(sm_error=sm_error))
    ana, _ = rig.open("rt-ana", 1)
    reply = rig.reply(ana, SM, type_, {"resources": []})
    assert (reply["code"], reply["reason"]) == (code, "bad-body")
    link = rig.state.links.number("beta.example")
    reply = rig.reply(link, SM, type_, {}, from_="runtime://beta.example/mn/sm")
    assert reply["code"] == 400
    assert "desc" not in reply


def test_what_a_session_owns_can_be_read_by_itself_and_by_operators() -> None:
    ops = Credential(digest_of("ops"), f"runtime://{DOMAIN}/ops", frozenset({"operator"}))
    rig = StateRig(credentials=[ops])
    ana, _ = rig.open("rt-ana", 1)
    operator, _ = rig.open("ops", 2, {"credentials": {"kind": "bearer", "token": "ops"}})
    reply = rig.reply(ana, ALLOCATION, "create", {"value": {"number": 1, "allocationKey": "k"}})
    assert isinstance(reply["value"], dict)
    (url,) = reply["value"]["allocated"]
    subscribe(rig, ana, ROOM)
    expected = {
        "resources": [{"url": url, "origin": "allocated", "allocationKey": "k"}, {"url": ROOM, "origin": "claimed"}]
    }
    assert rig.reply(ana, ALLOCATION, "read")["value"] == expected
    for resource in (ANA, ROOM):
        assert rig.reply(operator, ALLOCATION, "read", {"resource": resource})["value"] == expected
    assert rig.reply(operator, ALLOCATION, "read")["value"] == {"resources": []}
    assert rig.reply(operator, ALLOCATION, "read", {"resource": "comm://alpha.example/unknown"})["value"] == {
        "resources": []
    }


@pytest.mark.parametrize("source", ["plain", f"runtime://{DOMAIN}/rt-bo"])
def test_an_observer_takes_its_own_subscription_back_by_the_source_that_it_named(source: str) -> None:
    rig = StateRig()
    sid, _ = rig.open("rt-bo", 1)
    for verb, heard in (("subscribe", 1), ("unsubscribe", 0)):
        assert rig.reply(sid, SM, verb, {"resources": ["comm:/free/changes"], "source": source})["code"] == 200
        assert len(rig.state.listeners.subscriptions(sid)) == heard
