"""Who may say what to the observers of an object: every type, every kind of address, sessions and links alike."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.addresses.core.objects import Part, PartKind, part_of
from msg_node.bus.core.router import DROP, Decision, Deliver, Refuse, ToDomain
from msg_node.kernel.rules import Rules
from protofly.errors import Code
from tests.msg_node.bus.test_router import FAR_ROOM, NOW, ROOM, Rig, numbers_of, to_sessions
from tests.support.runtime_rig import a_message, parsed

TYPES: Final = (
    *("create", "read", "update", "delete", "subscribe", "unsubscribe", "execute", "response", "forward", "event"),
    *("open", "re-open", "close", "ping", "pong", "frobnicate", "x"),
)
NOT_OWNER: Final = Refuse(Code.NOT_OWNER)
QUESTIONS: Final = ("read", "execute", "response")


class Room:
    """A room of a reporter, two observers of ours and one domain that observe it, and a stranger of each kind."""

    def __init__(self, *, is_owned: bool = True) -> None:
        self.rig = Rig()
        self.reporter, self.bo, self.cy, self.eve = (self.rig.session(name) for name in ("reporter", "bo", "cy", "eve"))
        self.link = self.rig.state.links.number("beta.example")
        self.strange_link = self.rig.state.links.number("gamma.example")
        if is_owned:
            self.rig.state.owners.claim(self.reporter, ROOM)
        else:
            self.rig.listen(self.reporter, f"{ROOM}/subscription")
        for observer in (self.bo, self.cy, self.link):
            for address in (f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/m"):
                self.rig.listen(observer, address)

    def say(
        self,
        type_: str,
        to: str,
        origin: int,
        *,
        from_: str,
        resource: object = None,
        body: dict[str, object] | None = None,
    ) -> Decision:
        members = body or ({} if resource is None else {"resource": resource})
        message = parsed(a_message(type_, from_, to, members, id_=7))
        return self.rig.router.decide(message, origin, NOW)


def address_of(room: Room, origin: int) -> str:
    names = {
        room.bo: "hyperty://alpha.example/bo",
        room.cy: "hyperty://alpha.example/cy",
        room.eve: "hyperty://alpha.example/eve",
        room.link: "hyperty://beta.example/ben",
        room.strange_link: "hyperty://gamma.example/gil",
        room.reporter: ROOM,
    }
    return names[origin]


@pytest.mark.parametrize("is_owned", [True, False])
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("who", ["bo", "eve", "link", "strange_link"])
def test_nobody_but_the_reporter_reaches_those_who_hear_changes(type_: str, who: str, is_owned: bool) -> None:
    room = Room(is_owned=is_owned)
    origin = getattr(room, who)
    route = room.say(type_, f"{ROOM}/changes", origin, from_=address_of(room, origin))
    assert route == (to_sessions(room.reporter) if type_ in QUESTIONS else NOT_OWNER)


@pytest.mark.parametrize("type_", TYPES)
def test_the_reporter_reaches_all_who_hear_changes(type_: str) -> None:
    room = Room()
    assert room.say(type_, f"{ROOM}/changes", room.reporter, from_=ROOM) == to_sessions(room.bo, room.cy, room.link)


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("origin", [True, False])
def test_an_object_that_nobody_reports_is_changed_by_nobody(type_: str, origin: bool) -> None:
    rig = Rig()
    bo, eve, link = rig.session("bo"), rig.session("eve"), rig.state.links.number("beta.example")
    rig.listen(bo, f"{ROOM}/changes")
    route = rig.route(type_, f"{ROOM}/changes", eve if origin else link, id_=1)
    assert route is DROP or type(route) is Refuse


@pytest.mark.parametrize("to", [f"{ROOM}/children/m", f"{ROOM}/m"])
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("who", ["eve", "strange_link"])
def test_who_does_not_observe_reaches_no_observer_by_a_child(type_: str, who: str, to: str) -> None:
    room = Room()
    origin = getattr(room, who)
    route = room.say(type_, to, origin, from_=address_of(room, origin), resource="hyperty://alpha.example/bo#1")
    assert route == (to_sessions(room.reporter) if type_ in QUESTIONS else NOT_OWNER)


@pytest.mark.parametrize("to", [f"{ROOM}/children/m", f"{ROOM}/m"])
@pytest.mark.parametrize("who", ["bo", "link"])
@pytest.mark.parametrize("type_", TYPES)
def test_an_observer_creates_children_and_rewrites_its_own_alone(type_: str, who: str, to: str) -> None:
    room = Room()
    origin = getattr(room, who)
    mine, theirs = address_of(room, origin), address_of(room, room.cy)
    heard = to_sessions(*[one for one in (room.bo, room.cy, room.link) if one != origin])
    own = room.say(type_, to, origin, from_=mine, resource=f"{mine}#7")
    other = room.say(type_, to, origin, from_=mine, resource=f"{theirs}#7")
    if type_ in QUESTIONS:
        assert own == other == to_sessions(room.reporter)
    else:
        assert own == (heard if type_ in ("create", "event", "update", "delete") else NOT_OWNER)
        assert other == NOT_OWNER


@pytest.mark.parametrize("type_", ["update", "delete"])
@pytest.mark.parametrize("resource", [None, "", "heartbeat", 7, ["x"], "#7", "hyperty:#7", "hyperty://[::1#7"])
def test_a_child_whose_creator_cannot_be_read_is_rewritten_by_the_reporter_alone(type_: str, resource: object) -> None:
    room = Room()
    to = f"{ROOM}/children/m"
    assert room.say(type_, to, room.bo, from_=address_of(room, room.bo), resource=resource) == NOT_OWNER
    assert numbers_of(room.say(type_, to, room.reporter, from_=ROOM, resource=resource)) == (
        room.bo,
        room.cy,
        room.link,
    )


@pytest.mark.parametrize("resource", [None, "heartbeat", "messages"])
def test_a_new_child_may_have_a_plain_name(resource: object) -> None:
    room = Room()
    to = f"{ROOM}/children/m"
    assert type(room.say("create", to, room.bo, from_=address_of(room, room.bo), resource=resource)) is Deliver


@pytest.mark.parametrize(
    "body",
    [
        b'{"resource":"%(mine)s#1","resource":"%(theirs)s#1"}',
        b'{"resource":"%(theirs)s#1","resource":"%(mine)s#1"}',
        b'{"\\u0072esource":"%(theirs)s#1","resource":"%(mine)s#1"}',
        b'{"resource":"%(mine)s#1","\\u0072esource":"%(mine)s#1"}',
    ],
)
@pytest.mark.parametrize("type_", ["create", "update", "delete", "event"])
def test_a_resource_given_twice_is_nobody_s(type_: str, body: bytes) -> None:
    from protofly import codec

    room = Room()
    mine, theirs = address_of(room, room.bo), address_of(room, room.cy)
    written = body.replace(b"%(mine)s", mine.encode()).replace(b"%(theirs)s", theirs.encode())
    raw = b'{"id":1,"type":"%s","from":"%s","to":"%s/children/m","body":%s}'
    (message,) = codec.decode(raw % (type_.encode(), mine.encode(), ROOM.encode(), written))
    assert room.rig.router.decide(message, room.bo, NOW) == NOT_OWNER


def test_an_address_with_a_fragment_creates_nothing_in_the_name_before_it() -> None:
    room = Room()
    trick = f"{address_of(room, room.cy)}#7"
    room.rig.state.owners.claim(room.bo, trick)
    for resource in (f"{trick}#8", trick):
        assert room.say("update", f"{ROOM}/children/m", room.bo, from_=trick, resource=resource) == NOT_OWNER


def test_a_session_may_name_another_address_of_its_own_as_creator_and_a_domain_may_not() -> None:
    room = Room()
    other = "hyperty://alpha.example/bo-2"
    room.rig.state.owners.claim(room.bo, other)
    to = f"{ROOM}/children/m"
    own = room.say("update", to, room.bo, from_=address_of(room, room.bo), resource=f"{other}#1")
    assert type(own) is Deliver
    theirs = room.say(
        "update", to, room.link, from_="hyperty://beta.example/ben", resource="hyperty://beta.example/x#1"
    )
    assert theirs == NOT_OWNER


@pytest.mark.parametrize("type_", ["create", "update", "delete", "event"])
def test_an_observer_that_names_itself_still_says_nothing_as_the_reporter(type_: str) -> None:
    room = Room()
    for origin in (room.bo, room.link):
        mine = address_of(room, origin)
        assert room.say(type_, f"{ROOM}/changes", origin, from_=mine, resource=f"{mine}#7") == NOT_OWNER


@pytest.mark.parametrize("type_", ["update", "delete"])
def test_a_local_name_rewrites_what_it_created_and_nothing_else(type_: str) -> None:
    room = Room()
    to = f"{ROOM}/children/m"
    assert type(room.say(type_, to, room.bo, from_="plain", resource="plain#7")) is Deliver
    for resource in ("plain", "plainer#7", "other#7", "#7"):
        assert room.say(type_, to, room.bo, from_="plain", resource=resource) == NOT_OWNER


@pytest.mark.parametrize("type_", ["update", "delete", "create", "event"])
@pytest.mark.parametrize("spelling", ["HYPERTY://BETA.example/ben#7", "hyperty://beta.EXAMPLE/ben", "hyperty:/x"])
def test_a_domain_names_its_sender_in_any_spelling(type_: str, spelling: str) -> None:
    room = Room()
    from_ = "hyperty://beta.example/ben"
    route = room.say(type_, f"{ROOM}/children/m", room.link, from_=from_, resource=spelling)
    assert type(route) is (Deliver if "eta" in spelling.lower() else Refuse)


@pytest.mark.parametrize("type_", ["update", "delete", "create"])
def test_a_domain_does_not_speak_for_this_node(type_: str) -> None:
    node = "runtime://alpha.example/mn-1"
    rig = Rig(nodes=[node])
    link, bo = rig.state.links.number("beta.example"), rig.session("bo")
    for number in (link, bo):
        rig.listen(number, f"{ROOM}/children/m")
    body = {"resource": f"{node}/x#1"}
    message = parsed(a_message(type_, "hyperty://beta.example/ben", f"{ROOM}/children/m", body, id_=7))
    assert rig.router.decide(message, link, NOW) == NOT_OWNER


def test_the_first_session_of_a_node_may_name_another_address_of_its_own() -> None:
    rig = Rig()
    first, second = rig.session("first"), rig.session("second")
    for number in (first, second):
        rig.listen(number, f"{ROOM}/children/m")
    rig.state.owners.claim(first, "hyperty://alpha.example/f-1")
    rig.state.owners.claim(first, "hyperty://alpha.example/f-2")
    body = {"resource": "hyperty://alpha.example/f-2#1"}
    message = parsed(a_message("update", "hyperty://alpha.example/f-1", f"{ROOM}/children/m", body, id_=7))
    assert rig.router.decide(message, first, NOW) == to_sessions(second)


@pytest.mark.parametrize("suffix", ["status", "registration"])
def test_the_state_of_what_nobody_owns_is_any_session_s_word_and_no_domain_s(suffix: str) -> None:
    rig = Rig()
    first, second = rig.session("first"), rig.session("second")
    link = rig.state.links.number("beta.example")
    address = f"hyperty://alpha.example/h/{suffix}"
    rig.listen(second, address)
    assert rig.route("update", address, first, id_=1) == to_sessions(second)
    assert rig.route("update", address, link, id_=1, from_="hyperty://beta.example/ben") == NOT_OWNER


@pytest.mark.parametrize(
    "body",
    [
        {"resource": None},
        {"resource": None, "value": {"resource": "x"}},
        {"resource": "heartbeat", "value": {"resource": "x"}},
    ],
)
def test_a_new_child_without_a_name_is_nobody_s_and_a_name_deeper_down_does_not_count(body: dict[str, object]) -> None:
    room = Room()
    mine = address_of(room, room.bo)
    assert type(room.say("create", f"{ROOM}/children/m", room.bo, from_=mine, body=body)) is Deliver
    assert room.say("update", f"{ROOM}/children/m", room.bo, from_=mine, body=body) == NOT_OWNER


@pytest.mark.parametrize("resource", ["", 7, ["x"], {"x": 1}])
def test_a_new_child_whose_name_cannot_be_read_is_refused(resource: object) -> None:
    room = Room()
    route = room.say("create", f"{ROOM}/children/m", room.bo, from_=address_of(room, room.bo), resource=resource)
    assert route == NOT_OWNER


@pytest.mark.parametrize("value", [b'{"resource":"x"}', b'"\\u00e9"'])
@pytest.mark.parametrize("type_", ["create", "update", "delete"])
def test_what_only_looks_like_a_second_resource_is_none(type_: str, value: bytes) -> None:
    from protofly import codec

    room = Room()
    mine = address_of(room, room.bo).encode()
    raw = b'{"id":1,"type":"%s","from":"%s","to":"%s/children/m","body":{"resource":"%s#1","value":%s}}'
    (message,) = codec.decode(raw % (type_.encode(), mine, ROOM.encode(), mine, value))
    assert type(room.rig.router.decide(message, room.bo, NOW)) is Deliver


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("suffix", ["status", "registration"])
def test_the_state_of_what_somebody_owns_is_reported_by_its_owner_and_the_node(type_: str, suffix: str) -> None:
    room = Room()
    to = f"{ROOM}/{suffix}"
    room.rig.listen(room.bo, to)
    for origin in (room.eve, room.strange_link):
        route = room.say(type_, to, origin, from_=address_of(room, origin))
        assert route == (to_sessions(room.reporter) if type_ in QUESTIONS else NOT_OWNER)
    for origin in (room.reporter, 0):
        assert room.say(type_, to, origin, from_=ROOM) == to_sessions(room.bo)


@pytest.mark.parametrize("type_", TYPES)
def test_objects_abroad_are_spoken_for_by_their_domain_alone(type_: str) -> None:
    rig = Rig()
    ana, bo = rig.session("ana"), rig.session("bo")
    home, third = rig.state.links.number("beta.example"), rig.state.links.number("gamma.example")
    for address in (f"{FAR_ROOM}/changes", f"{FAR_ROOM}/children/m", f"{FAR_ROOM}/status"):
        rig.listen(bo, address)
        assert rig.route(type_, address, home, id_=1, from_="hyperty://beta.example/h") == to_sessions(bo)
        own = rig.route(type_, address, ana, id_=1, from_="hyperty://alpha.example/ana")
        assert own == (ToDomain("beta.example") if type_ in QUESTIONS else NOT_OWNER)
        assert bo not in numbers_of(rig.route(type_, address, third, id_=1, from_="hyperty://gamma.example/g"))


@pytest.mark.parametrize("type_", TYPES)
def test_events_of_things_abroad_are_not_forged_here(type_: str) -> None:
    rig = Rig()
    ana, bo = rig.session("ana"), rig.session("bo")
    event, value = "thing://beta.example/agent/lamp/events/on", "thing://beta.example/agent/lamp/properties/on"
    rig.listen(bo, event)
    rig.listen(bo, value)
    for address in (event, value):
        assert numbers_of(rig.route(type_, address, ana, id_=1, from_="hyperty://alpha.example/ana")) == ()
    for plain in ("create", "update", "event"):  # is an event of the class by its address alone
        assert rig.route(plain, event, ana, id_=1, from_="hyperty://alpha.example/ana") == NOT_OWNER
        asked = rig.route(plain, value, ana, id_=1, from_="hyperty://alpha.example/ana")
        assert asked == ToDomain("beta.example")
    home = rig.state.links.number("beta.example")
    assert rig.route(type_, event, home, id_=1, from_="thing://beta.example/agent") == to_sessions(bo)


def test_the_rule_can_be_switched_off() -> None:
    rig = Rig(Rules(reporter_only=False))
    bo, eve = rig.session("bo"), rig.session("eve")
    for address in (f"{ROOM}/changes", f"{ROOM}/children/m"):
        rig.listen(bo, address)
        assert rig.route("frobnicate", address, eve) == to_sessions(bo)


@pytest.mark.parametrize(
    ("key", "part"),
    [
        (f"{ROOM}/changes", Part(PartKind.CHANGES, ROOM)),
        (f"{ROOM}/children/m", Part(PartKind.CHILD, ROOM)),
        (f"{ROOM}/children/", Part(PartKind.CHILD, ROOM)),
        (f"{ROOM}/children/m/changes", Part(PartKind.CHANGES, f"{ROOM}/children/m")),
        (f"{ROOM}/children/m/children/n", Part(PartKind.CHILD, ROOM)),
        (f"{ROOM}/m", Part(PartKind.CHILD, ROOM, is_by_form=True)),
        (f"{ROOM}/status", Part(PartKind.STATE, ROOM)),
        (ROOM, None),
        (f"{ROOM}/subscription", None),
        ("hyperty://alpha.example/h/x", None),
        ("plain", None),
    ],
)
def test_what_an_address_is_to_observers(key: str, part: Part | None) -> None:
    assert part_of(key) == part


@pytest.mark.parametrize("type_", ["create", "update", "delete", "event"])
@pytest.mark.parametrize("who", ["eve", "strange_link"])
@pytest.mark.parametrize("to", [f"{ROOM}/children/m", f"{ROOM}/m"])
def test_who_does_not_observe_creates_nothing_in_its_own_name(who: str, type_: str, to: str) -> None:
    room = Room()
    origin = getattr(room, who)
    mine = address_of(room, origin)
    assert room.say(type_, to, origin, from_=mine, resource=f"{mine}#7") == NOT_OWNER
    room.rig.listen(origin, to)
    assert type(room.say(type_, to, origin, from_=mine, resource=f"{mine}#7")) is Deliver


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("to", [f"{ROOM}/children/m", f"{ROOM}/m", f"{ROOM}/changes"])
def test_who_was_taken_off_says_nothing_to_observers_or_the_reporter_and_others_speak_on(type_: str, to: str) -> None:
    room = Room()
    bo, cy = address_of(room, room.bo), address_of(room, room.cy)
    before = room.say(type_, to, room.cy, from_=cy, resource=f"{cy}#7")
    room.rig.state.observer_rights.expulsions.expel(ExpulsionRow(ROOM, bo, "", "reporter"))
    assert room.say(type_, to, room.bo, from_=bo, resource=f"{bo}#7") == NOT_OWNER
    assert room.say(type_, to, room.cy, from_=cy, resource=f"{cy}#7") == before
    other = to.replace(ROOM, f"{ROOM}-2")
    room.rig.state.owners.claim(room.reporter, f"{ROOM}-2")
    room.rig.listen(room.bo, other)
    if type_ == "create" and not to.endswith("/changes"):
        room.rig.listen(room.cy, other)
        assert room.say(type_, other, room.bo, from_=bo, resource=f"{bo}#7") == to_sessions(room.cy)


WORDS = st.sampled_from([*TYPES, "UPDATE ", "creat", "event2"])
RESOURCES = st.sampled_from(
    [
        None,
        "heartbeat",
        "hyperty://alpha.example/cy#1",
        "hyperty://alpha.example/reporter#1",
        "runtime://alpha.example/cy",
    ]
)
PLACES = st.sampled_from(["changes", "children/m", "children/", "children/m/changes", "m", "m/changes"])


@given(type_=WORDS, resource=RESOURCES, place=PLACES, is_local=st.booleans())
def test_whatever_a_stranger_says_reaches_no_observer(type_: str, resource: object, place: str, is_local: bool) -> None:
    room = Room()
    for observer in (room.bo, room.cy, room.link):
        room.rig.listen(observer, f"{ROOM}/{place}")
    origin = room.eve if is_local else room.strange_link
    route = room.say(type_, f"{ROOM}/{place}", origin, from_=address_of(room, origin), resource=resource)
    assert set(numbers_of(route)) <= {room.reporter}
