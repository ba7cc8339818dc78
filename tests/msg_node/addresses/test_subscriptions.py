"""Listeners: the look-up that every event makes, and the subscription manager in all its forms."""

from __future__ import annotations

import pytest

from msg_node.addresses.core import subscriptions
from msg_node.addresses.core.subscriptions import Listeners, Subscription
from msg_node.kernel.changes import Journal
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.resources import Shape, expand, is_claimable, shape_of
from msg_node.kernel.rules import Rules
from protofly.errors import Code, PeerError
from protofly.limits import TARGETS_REMEMBERED
from tests.support.state_rig import DOMAIN, SM, StateRig

ROOM = f"comm://{DOMAIN}/room-51"
FOREIGN_ROOM = "comm://beta.example/room-9"


def want(key: str, source: str = "s") -> list[Subscription]:
    return [Subscription(key, key, source)]


@pytest.fixture
def listeners() -> Listeners:
    return Listeners(Journal())


@pytest.fixture
def rig() -> StateRig:
    return StateRig()


def subscribe(rig: StateRig, sid: int, *resources: str, from_: str = "") -> dict[str, object]:
    return rig.reply(sid, SM, "subscribe", {"resources": list(resources)}, from_=from_)


# The look-up.


def test_each_listener_is_a_target_once_in_order_of_coming(listeners: Listeners) -> None:
    for sid, source in ((3, "a"), (1, "a"), (3, "b")):
        listeners.add(sid, want("comm://d/o/changes", source))
    assert listeners.targets("comm://d/o/changes") == (3, 1)
    assert listeners.targets("comm://d/o") == ()


def test_listener_stays_while_another_source_holds_it(listeners: Listeners) -> None:
    listeners.add(1, want("k", "a"))
    listeners.add(1, want("k", "b"))
    listeners.remove(1, "k", {"a"})
    assert listeners.targets("k") == (1,)
    listeners.remove(1, "k", {"b"})
    assert listeners.targets("k") == ()
    assert listeners.count(1) == 0


def test_children_base_hears_every_child_and_not_the_reverse(listeners: Listeners) -> None:
    listeners.add(1, want("comm://d/o/children/"))
    listeners.add(2, want("comm://d/o/children/m"))
    assert listeners.targets("comm://d/o/children/m") == (2, 1)
    assert listeners.targets("comm://d/o/children/x") == (1,)
    assert listeners.targets("comm://d/o/children/") == (1,)
    assert listeners.targets("comm://d/o/children") == ()
    assert listeners.targets("comm://d/o2/children/m") == ()


def test_prefix_hears_everything_below_and_nothing_beside(listeners: Listeners) -> None:
    listeners.add(1, want("comm://d/o/*"))
    assert listeners.targets("comm://d/o/a/b") == (1,)
    assert listeners.targets("comm://d/o/children/") == (1,)
    assert listeners.targets("comm://d/o") == ()
    assert listeners.targets("comm://d/o2/a") == ()


@pytest.mark.parametrize("key", ["comm://d/o/children/", "comm://d/o/*", "comm://d/o/children/m"])
def test_remembered_look_up_notices_every_change(listeners: Listeners, key: str) -> None:
    asked = "comm://d/o/children/m"
    assert listeners.targets(asked) == ()
    listeners.add(7, want(key))
    assert listeners.targets(asked) == (7,)
    listeners.remove_all(7)
    assert listeners.targets(asked) == ()


def test_look_ups_of_hostile_keys_use_bounded_memory(listeners: Listeners) -> None:
    for number in range(TARGETS_REMEMBERED + 10):
        listeners.targets(f"k{number}")
    assert len(listeners.index._resolved) <= TARGETS_REMEMBERED


def test_a_question_about_many_keys_pushes_nothing_out(listeners: Listeners) -> None:
    assert listeners.targets("comm://a.example/1/changes") == ()
    remembered = dict(listeners.index._resolved)
    listeners.add(1, [Subscription("comm://a.example/2/*", "comm://a.example/2/*", "")])
    listeners.targets("comm://a.example/1/changes")
    assert [listeners.is_heard(f"comm://a.example/{number}/registration") for number in range(1, 4)] == [0, 1, 0]
    assert listeners.index._resolved == remembered
    assert listeners.is_heard("comm://a.example/2/x/registration")
    listeners.remove_all(1)
    assert not listeners.is_heard("comm://a.example/2/registration")


def test_quota_refuses_the_whole_request() -> None:
    listeners = Listeners(Journal(), per_session=2)
    listeners.add(1, [*want("a"), *want("b")])
    listeners.add(1, [*want("a"), *want("b")])  # nothing new
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        listeners.add(1, [*want("a"), *want("c")])
    assert listeners.targets("c") == ()


def test_the_names_of_a_session_have_so_many_characters_up_to_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "NAMES_CHARS_PER_SESSION", 10)
    listeners = Listeners(Journal())
    listeners.add(1, want("1234", "s"))
    listeners.add(1, [*want("1234", "s"), *want("5678", "s")])  # what it has takes no more room
    for sid, key in ((1, "9"), (2, "1234567890")):
        with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
            listeners.add(sid, want(key, "s"))
    listeners.add(2, want("123456789", "s"))
    listeners.remove(1, "1234")
    listeners.add(1, want("abcd", "s"))
    assert (listeners.count(1), listeners.count(2)) == (2, 1)


def test_an_unsubscribe_makes_room_for_exactly_as_many_as_it_removed() -> None:
    listeners = Listeners(Journal(), per_session=3)
    listeners.add(1, [*want("a"), *want("b"), *want("b", "t")])
    assert listeners.count(1) == 3
    listeners.remove(1, "b", {"t"})
    assert listeners.count(1) == 2
    listeners.remove(1, "unknown")
    listeners.remove(1, "b", {"t"})  # it is gone already
    assert listeners.count(1) == 2
    listeners.add(1, want("c"))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        listeners.add(1, want("d"))
    listeners.remove(1, "b")
    listeners.remove_at(1, "c")
    assert listeners.count(1) == 1
    listeners.add(1, [*want("d"), *want("e")])
    listeners.remove_all(1)
    assert (listeners.count(1), list(listeners.listeners())) == (0, [])
    assert listeners._counts == {}  # or the node would keep an entry for every session that it ever had


def test_subscriptions_count_alike_after_a_restart(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    subscribe(rig, sid, f"{FOREIGN_ROOM}/changes", f"{FOREIGN_ROOM}/children/")
    before = rig.state.listeners.count(sid)
    rig.reply(sid, SM, "unsubscribe", {"resources": [f"{FOREIGN_ROOM}/changes"]})
    assert rig.state.listeners.count(sid) == before - 1
    assert rig.restarted().state.listeners.count(sid) == before - 1


# What addresses mean.


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        (f"{ROOM}/changes", Shape.EVENTS),
        (f"{ROOM}/children/m", Shape.EVENTS),
        (f"{ROOM}/children/", Shape.EVENTS),
        (f"{ROOM}/children/*", Shape.EVENTS),
        (f"hyperty://{DOMAIN}/h/registration", Shape.EVENTS),
        (f"{ROOM}/subscription", Shape.CONTROL),
        (ROOM, Shape.BASE),
        (f"{ROOM}/messages", Shape.BASE),
        (f"{ROOM}/*", Shape.BELOW),
    ],
)
def test_shape_is_known_from_the_text(key: str, shape: Shape) -> None:
    assert shape_of(key) is shape


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (ROOM, True),
        (f"hyperty://{DOMAIN}/extra/7f", True),
        (f"{ROOM}/changes", False),
        (f"comm://{DOMAIN}", False),
        (f"comm://{DOMAIN}/a//b", False),
        (f"runtime://{DOMAIN}/rt", False),
        (f"user://{DOMAIN}/ana", False),
        (f"domain://registry.{DOMAIN}", False),
        ("comm:/x", True),
        ("comm:/", False),
        ("runtime:/x", False),
        ("mn:/x", False),
        ("plain", False),
        (f"comm://{DOMAIN}" + "/x" * 9, False),
    ],
)
def test_only_base_addresses_of_open_schemes_are_claimable(key: str, expected: bool) -> None:
    assert is_claimable(key) is expected


@pytest.mark.parametrize(
    ("resource", "children", "is_owner", "expected"),
    [
        (ROOM, [], False, [f"{ROOM}/changes"]),
        (ROOM, [], True, [f"{ROOM}/changes", ROOM]),
        (f"{ROOM}/subscription", [], False, [f"{ROOM}/subscription"]),
        (f"{ROOM}/children/m", [], False, [f"{ROOM}/children/m"]),
        (
            ROOM,
            ["m"],
            False,
            [f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/m", f"{ROOM}/children/"],
        ),
    ],
)
def test_resource_and_children_are_expanded(
    resource: str, children: list[str], is_owner: bool, expected: list[str]
) -> None:
    assert expand(resource, children, is_owner=is_owner) == expected


# The service.


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        ({"resources": [f"{ROOM}/changes"]}, [f"{ROOM}/changes"]),
        ({"resources": f"{ROOM}/changes"}, [f"{ROOM}/changes"]),
        ({"subscribe": [f"{ROOM}/changes", f"{ROOM}/changes"]}, [f"{ROOM}/changes"]),
        ({"resources": [f"{ROOM}/changes"], "subscribe": [f"{ROOM}/status"]}, [f"{ROOM}/changes", f"{ROOM}/status"]),
        ({"resource": ROOM, "childrenResources": ["m"], "schema": "x"}, [f"{ROOM}/changes", f"{ROOM}/m"]),
        ({"resource": ROOM, "childrenResources": [{"name": "m"}]}, [f"{ROOM}/children/m", f"{ROOM}/children/"]),
        ({"resource": ROOM, "childrenResources": [{"m": ""}]}, [f"{ROOM}/children/m"]),
        ({"resource": ROOM, "children": ["m"]}, [f"{ROOM}/children/m"]),
        ({"resources": [[f"{ROOM}/changes"]]}, [f"{ROOM}/changes"]),
    ],
)
def test_every_form_of_subscribe_is_understood(rig: StateRig, body: object, keys: list[str]) -> None:
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    assert subscribe(rig, ana, ROOM)["code"] == 200  # the room has an owner
    assert rig.reply(bo, SM, "SUBSCRIBE", body) == {"code": 200, "description": "OK", "desc": "OK"}
    assert all(bo in rig.state.listeners.targets(key) for key in keys)
    assert rig.reply(bo, SM, "unsubscribe", body)["code"] == 200
    assert rig.state.listeners.count(bo) == 0


@pytest.mark.parametrize("type_", ["subscribe", "unsubscribe"])
@pytest.mark.parametrize(
    "body",
    [None, {}, {"resources": []}, {"resources": [1]}, {"resources": [{"a": 1, "b": 2}]}, {"resources": {"a": 1}}],
)
def test_request_without_resources_is_a_bad_body(rig: StateRig, type_: str, body: object) -> None:
    sid, _ = rig.open("rt-ana", 1)
    assert rig.reply(sid, SM, type_, body)["code"] == 400


def test_too_many_resources_are_refused(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    assert subscribe(rig, sid, *[f"comm://{DOMAIN}/o/children/{n}" for n in range(1001)])["code"] == 413
    assert rig.state.listeners.count(sid) == 0


def test_reply_keeps_id_and_spelling_of_the_requester(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    from_ = f"hyperty-runtime://{DOMAIN}/rt-ana/sm"
    (reply,) = rig.ask(sid, SM, "subscribe", {"resource": ROOM}, from_=from_, id_="1").replies
    assert (reply.id, reply.to, reply.from_) == (b'"1"', from_, SM)


def test_request_without_id_gets_no_reply_and_has_its_effect(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    result = rig.ask(sid, SM, "subscribe", {"resources": [f"{ROOM}/changes"]}, id_=None)
    assert not result.replies
    assert rig.state.listeners.targets(f"{ROOM}/changes") == (sid,)


@pytest.mark.parametrize("type_", ["create", "execute", "event"])
def test_other_types_are_refused(rig: StateRig, type_: str) -> None:
    sid, _ = rig.open("rt-ana", 1)
    replies = rig.ask(sid, SM, type_, {"resources": [ROOM]}).replies
    assert [b"bad-type" in reply.body for reply in replies] == ([] if type_ == "event" else [True])


# Sources.


@pytest.mark.parametrize(
    ("source", "code", "kept"),
    [
        (f"runtime://{DOMAIN}/rt-ana", 200, f"runtime://{DOMAIN}/rt-ana"),
        (f"hyperty-runtime://{DOMAIN}/rt-ana/sm", 200, f"hyperty-runtime://{DOMAIN}/rt-ana/sm"),
        (f"hyperty://{DOMAIN}/mine", 200, f"hyperty://{DOMAIN}/mine"),
        (f"hyperty://{DOMAIN}/nobodys", 200, f"runtime://{DOMAIN}/rt-ana"),
        (f"hyperty://{DOMAIN}/of-bo", 403, None),
        (f"runtime://{DOMAIN}/rt-bo/sm", 403, None),
        ("hyperty://beta.example/x", 403, None),
        (f"domain://msg-node.{DOMAIN}/sm", 403, None),
    ],
)
def test_source_counts_when_it_belongs_to_the_session(rig: StateRig, source: str, code: int, kept: str) -> None:
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    subscribe(rig, ana, f"hyperty://{DOMAIN}/mine")
    subscribe(rig, bo, f"hyperty://{DOMAIN}/of-bo")
    reply = rig.reply(ana, SM, "subscribe", {"resources": [f"{ROOM}/changes"], "source": source})
    assert reply["code"] == code
    stored = [one.source for one in rig.state.listeners.subscriptions(ana) if one.key == f"{ROOM}/changes"]
    assert stored == ([kept] if kept else [])


def test_unsubscribe_with_a_source_leaves_the_others(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    one, two = f"runtime://{DOMAIN}/rt-ana/one", f"runtime://{DOMAIN}/rt-ana/two"
    for source in (one, two):
        rig.reply(sid, SM, "subscribe", {"resources": [f"{ROOM}/changes"], "source": source})
    rig.reply(sid, SM, "unsubscribe", {"resources": [f"{ROOM}/changes"], "source": one})
    assert rig.state.listeners.targets(f"{ROOM}/changes") == (sid,)
    rig.reply(sid, SM, "unsubscribe", {"resources": [f"{ROOM}/changes"]})
    assert rig.state.listeners.targets(f"{ROOM}/changes") == ()


# Rights: nobody takes the messages of another.


@pytest.mark.parametrize(
    "address",
    [
        ROOM,
        f"{ROOM}/subscription",
        f"{ROOM}/*",
        f"{ROOM}/inbox",
        f"hyperty://{DOMAIN}/h-ana",
        f"hyperty://{DOMAIN}/h-ana/anything",
        f"runtime://{DOMAIN}/rt-ana",
        f"runtime://{DOMAIN}/rt-ana/sm",
        f"runtime://{DOMAIN}/rt-ana/*",
        f"runtime://{DOMAIN}/not-yet-connected/sm",
        f"runtime://{DOMAIN}/not-yet-connected/subscription",
        f"runtime://{DOMAIN}/mn-1",
        f"comm://{DOMAIN}/*",
        f"comm://{DOMAIN}",
        f"domain://registry.{DOMAIN}",
        "global://registry",
        "mn:/session",
        "hyperty://beta.example/h-bo",
        "hyperty://beta.example/h-bo/anything",
        "runtime://beta.example/rt-bo/sm",
        FOREIGN_ROOM,
        f"{FOREIGN_ROOM}/subscription",
        f"{FOREIGN_ROOM}/*",
        f"user://{DOMAIN}/ana",
        "*",
        "/*",
    ],
)
def test_session_cannot_listen_to_what_is_for_another(rig: StateRig, address: str) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    subscribe(rig, ana, ROOM, f"hyperty://{DOMAIN}/h-ana")
    reply = subscribe(rig, eve, address)
    assert reply.get("reason") == "not-owner" or address == "*", reply
    assert eve not in rig.state.listeners.targets(f"{ROOM}/subscription")
    assert eve not in rig.state.listeners.targets(f"runtime://{DOMAIN}/rt-ana/sm")


@pytest.mark.parametrize(
    "address",
    [
        f"{ROOM}/changes",
        f"{ROOM}/children/messages",
        f"{ROOM}/children/",
        f"{ROOM}/messages",
        f"hyperty://{DOMAIN}/h-ana/registration",
        f"{FOREIGN_ROOM}/changes",
        f"{FOREIGN_ROOM}/children/messages",
        f"{FOREIGN_ROOM}/messages",
    ],
)
def test_everybody_may_observe(rig: StateRig, address: str) -> None:
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    subscribe(rig, ana, ROOM, f"hyperty://{DOMAIN}/h-ana")
    assert subscribe(rig, bo, address)["code"] == 200
    assert bo in rig.state.listeners.targets(address)


def test_reporter_claims_its_object_with_its_control_address_in_one_request(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    reply = subscribe(rig, ana, f"{ROOM}/messages", f"{ROOM}/subscription", ROOM, f"{ROOM}/*")
    assert reply == {"code": 200, "description": "OK", "desc": "OK"}
    assert [row.url for row in rig.state.owners.owned(ana)] == [ROOM]


def test_control_address_of_an_object_without_owner_goes_to_the_first(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    assert subscribe(rig, ana, f"{ROOM}/subscription")["code"] == 200
    assert subscribe(rig, eve, f"{ROOM}/subscription")["code"] == 403
    assert subscribe(rig, ana, f"{ROOM}/subscription")["code"] == 200


# Links.


def test_foreign_domain_listens_as_one_listener_and_keeps_its_number(rig: StateRig) -> None:
    link = rig.state.links.number("beta.example")
    reply = subscribe(rig, link, f"{ROOM}/changes", from_="runtime://beta.example/rt-bo/sm")
    assert reply == {"code": 200, "description": "OK"}  # no dialect A on links
    assert rig.state.listeners.targets(f"{ROOM}/changes") == (link,)
    again = rig.restarted()
    assert again.state.links.number("beta.example") == link
    assert again.state.links.domain(link) == "beta.example"
    assert again.state.listeners.targets(f"{ROOM}/changes") == (link,)
    assert again.state.links.number("gamma.example") not in (0, link)


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ({"resources": [f"{ROOM}/changes"], "source": f"runtime://{DOMAIN}/rt-ana"}, 403, "spoofed-source"),
        ({"resources": [f"{ROOM}/changes"], "source": "runtime://gamma.example/x"}, 403, "spoofed-source"),
        ({"resources": [ROOM]}, 403, "not-owner"),
        ({"resources": [f"{ROOM}/subscription"]}, 403, "not-owner"),
        ({"resources": ["hyperty://beta.example/*"]}, 403, "not-owner"),
        ({"resources": ["hyperty://gamma.example/h"]}, 403, "not-owner"),
        ({"resources": ["hyperty://beta.example/h-bo"]}, 200, None),  # a plain peer asks for its replies
    ],
)
def test_link_listens_only_to_events_and_to_its_own(rig: StateRig, body: object, code: int, reason: str) -> None:
    link = rig.state.links.number("beta.example")
    reply = rig.reply(link, SM, "subscribe", body, from_="runtime://beta.example/mn-1/sm")
    assert (reply["code"], reply.get("reason")) == (code, reason)


def sources_of(rig: StateRig, number: int) -> set[tuple[str, str]]:
    return {(one.url, one.source) for one in rig.state.listeners.subscriptions(number)}


def test_link_unsubscribes_for_the_source_that_it_names_and_for_no_other(rig: StateRig) -> None:
    link = rig.state.links.number("beta.example")
    bo, eve = "runtime://beta.example/rt-bo", "runtime://beta.example/rt-eve"
    for source in (bo, eve):
        subscribe(rig, link, f"{ROOM}/changes", from_=source)
    body = {"resources": [f"{ROOM}/changes"], "source": bo}
    assert rig.reply(link, SM, "unsubscribe", body, from_=eve)["code"] == 200
    assert sources_of(rig, link) == {(f"{ROOM}/changes", eve)}
    assert rig.reply(link, SM, "unsubscribe", {"resources": [f"{ROOM}/changes"]}, from_=bo)["code"] == 200
    assert sources_of(rig, link) == set()


def test_link_that_names_a_schema_is_answered_without_asking_a_catalogue() -> None:
    rig = StateRig(rules=Rules(expands_schema=True))
    link, (ana, _) = rig.state.links.number("beta.example"), rig.open("rt-ana", 1)
    body = {"resource": ROOM, "schema": "hyperty-catalogue://catalogue.alpha.example/.well-known/dataschema/Chat"}
    assert len(rig.ask(ana, SM, "subscribe", body).inquiries) == 1
    result = rig.ask(link, SM, "subscribe", body, from_="runtime://beta.example/rt-bo")
    assert (len(result.inquiries), len(result.replies)) == (0, 1)
    assert sources_of(rig, link) == {(f"{ROOM}/changes", "runtime://beta.example/rt-bo")}


def test_deleted_object_loses_its_foreign_listeners_only(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    link = rig.state.links.number("beta.example")
    for who, from_ in ((ana, ""), (link, "runtime://beta.example/rt-bo")):
        subscribe(rig, who, f"{ROOM}/changes", f"{ROOM}2/changes", from_=from_)
    rig.state.observer_rights.object_deleted(ROOM, rig.state.listeners.targets(f"{ROOM}/changes"))
    assert rig.state.listeners.targets(f"{ROOM}/changes") == (ana,)
    assert rig.state.listeners.targets(f"{ROOM}2/changes") == (ana, link)


# Read.


def test_session_reads_its_own_subscriptions(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    subscribe(rig, bo, f"{ROOM}/status")
    subscribe(rig, ana, f"{ROOM}/changes")
    expected = {"resources": [{"url": f"{ROOM}/changes", "source": f"runtime://{DOMAIN}/rt-ana"}]}
    assert rig.reply(ana, SM, "read")["value"] == expected
    assert rig.reply(ana, SM, "read", {"resource": f"runtime://{DOMAIN}/rt-bo"})["value"] == {"resources": []}


@pytest.mark.parametrize("resource", [f"runtime://{DOMAIN}/rt-ana", f"{ROOM}/changes"])
def test_operator_reads_those_of_others(resource: str) -> None:
    rig = StateRig(credentials=[Credential(digest_of("o"), f"runtime://{DOMAIN}/ops", frozenset({"operator"}))])
    ana, _ = rig.open("rt-ana", 1)
    operator, _ = rig.open("ops", 2, {"credentials": {"token": "o"}})
    subscribe(rig, ana, f"{ROOM}/changes")
    expected = {"resources": [{"url": f"{ROOM}/changes", "source": f"runtime://{DOMAIN}/rt-ana"}]}
    assert rig.reply(operator, SM, "read", {"resource": resource})["value"] == expected


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("runtime://beta.example/rt", 200),
        ("hyperty://beta.example/h", 200),
        ("hyperty://gamma.example/h", 403),
        (f"runtime://{DOMAIN}/ana", 403),
    ],
)
def test_a_guest_unsubscribes_in_names_of_its_own_domain_only(source: str, code: int) -> None:
    rig = StateRig(credentials=[Credential(digest_of("b"), "runtime://beta.example/*")], allows_guests=True)
    rig.open("ana", 2)
    rig.session_verb("open", "runtime://beta.example/rt", 1, {"credentials": {"token": "b"}})
    guest = rig.state.sessions.by_connection(1)
    assert guest is not None
    reply = rig.reply(guest, SM, "unsubscribe", {"resources": [f"{ROOM}/changes"], "source": source})
    assert reply["code"] == code
