"""Where one message goes, without anything around it: the order of section 20.2 of the message specification."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.core.interworking import Interworking
from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.addresses.core.subscriptions import Subscription
from msg_node.bus.core import router
from msg_node.bus.core.draining_router import DrainingRouter
from msg_node.bus.core.router import (
    DROP,
    SERVE,
    SERVE_SESSION,
    Decision,
    Deliver,
    Learned,
    Park,
    Refuse,
    Router,
    ToDomain,
)
from msg_node.kernel.links import NODES
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.rules import Rules
from msg_node.kernel.session import Opened, Opener
from msg_node.node_state import StateParts, make_state
from msg_node.registries.core.registry_entry import Changed
from protofly.address import canonical_key
from protofly.errors import Code, PeerError
from protofly.limits import LEARNED_ADDRESSES, LEARNED_PER_SESSION, LEARNED_SECONDS
from tests.support.runtime_rig import DOMAIN, a_message, parsed, runtime_address

NOW = 1_000_000.0
ROOM = f"comm://{DOMAIN}/room"
SM = f"domain://msg-node.{DOMAIN}/sm"
FAR_ROOM = "comm://beta.example/room"


class Rig:
    """Tables with some sessions, and the router over them."""

    def __init__(
        self, rules: Rules | None = None, nodes: Collection[str] = (), interworking: Interworking | None = None
    ) -> None:
        parts = StateParts(rules=rules or Rules(), interworking=interworking or Interworking())
        self.state = make_state(OwnNames.of({DOMAIN}, nodes), parts)
        self.router = Router(self.state, serves=lambda key: key == SM)
        self._connections = 0

    def session(self, name: str, *, domain: str = DOMAIN) -> int:
        """Open the session of a runtime; one of another domain is a guest."""
        self._connections += 1
        address = f"runtime://{domain}/{name}"
        opener = Opener(address, canonical_key(address), self._connections, is_guest=domain != DOMAIN)
        opened, _ = self.state.lifecycle.open(opener, f"token-{name}", now=NOW)
        assert isinstance(opened, Opened)
        return opened.sid

    def listen(self, number: int, url: str) -> None:
        self.state.listeners.add(number, [Subscription(url, canonical_key(url), "")])

    def route(
        self, type_: str, to: str, origin: int, *, id_: object = None, now: float = NOW, from_: str = "plain"
    ) -> Decision:
        return self.router.decide(parsed(a_message(type_, from_, to, id_=id_)), origin, now)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def numbers_of(decision: Decision) -> tuple[int, ...]:
    return decision.numbers if isinstance(decision, Deliver | ToDomain) else ()


def to_sessions(*numbers: int) -> Decision:
    return Deliver(numbers)


@pytest.mark.parametrize("type_", ["read", "create", "subscribe", "execute", "delete"])
def test_a_request_to_an_owned_address_goes_to_its_owner_alone(rig: Rig, type_: str) -> None:
    owner, bo, cleo = rig.session("owner"), rig.session("bo"), rig.session("cleo")
    rig.state.owners.claim(owner, ROOM)
    rig.listen(bo, ROOM)
    assert rig.route(type_, ROOM, cleo, id_=1) == to_sessions(owner)


@pytest.mark.parametrize(("type_", "id_"), [("update", 1), ("event", 1), ("response", 1), ("create", None)])
def test_all_else_goes_to_owner_and_listeners_once_each(rig: Rig, type_: str, id_: object) -> None:
    owner, bo, cleo = rig.session("owner"), rig.session("bo"), rig.session("cleo")
    rig.state.owners.claim(owner, ROOM)
    rig.listen(bo, ROOM)
    rig.listen(owner, ROOM)
    assert sorted(numbers_of(rig.route(type_, ROOM, cleo, id_=id_))) == [owner, bo]


def test_a_request_to_an_address_without_owner_goes_to_all_who_listen(rig: Rig) -> None:
    bo, cleo, ana = rig.session("bo"), rig.session("cleo"), rig.session("ana")
    rig.listen(bo, f"{ROOM}/status")
    rig.listen(cleo, f"{ROOM}/status")
    assert rig.route("read", f"{ROOM}/status", ana, id_=1) == to_sessions(bo, cleo)


def test_the_origin_gets_no_copy(rig: Rig) -> None:
    bo, cleo = rig.session("bo"), rig.session("cleo")
    link = rig.state.links.number("beta.example")
    for number in (bo, cleo, link):
        rig.listen(number, f"{ROOM}/children/m")
    assert rig.route("create", f"{ROOM}/children/m", bo) == to_sessions(cleo, link)
    assert rig.route("create", f"{ROOM}/children/m", link) == to_sessions(bo, cleo)
    assert rig.route("create", f"{ROOM}/children/m", 0) == to_sessions(bo, cleo, link)


def test_what_only_its_sender_listens_to_is_dropped(rig: Rig) -> None:
    bo = rig.session("bo")
    rig.listen(bo, f"{ROOM}/children/m")
    assert rig.route("create", f"{ROOM}/children/m", bo, id_=1) == DROP


@pytest.mark.parametrize("suffix", ["/subscription", "/status", "/inbox"])
def test_control_suffixes_fall_to_the_owner(rig: Rig, suffix: str) -> None:
    owner, bo = rig.session("owner"), rig.session("bo")
    rig.state.owners.claim(owner, ROOM)
    assert rig.route("create", ROOM + suffix, bo, id_=1) == to_sessions(owner)


@pytest.mark.parametrize("suffix", ["/changes", "/children/messages", "/children/", "/subscriptions", "/x/status"])
def test_other_suffixes_do_not(rig: Rig, suffix: str) -> None:
    owner, bo = rig.session("owner"), rig.session("bo")
    rig.state.owners.claim(owner, ROOM)
    assert rig.route("create", ROOM + suffix, bo, id_=1) == Refuse(Code.NO_ROUTE)
    assert rig.route("event", ROOM + suffix, bo, id_=1) == DROP


def test_what_is_below_a_runtime_address_reaches_that_runtime(rig: Rig) -> None:
    ana, bo = rig.session("ana"), rig.session("bo")
    for spelling in ("runtime", "hyperty-runtime", "RUNTIME"):
        assert rig.route("read", f"{spelling}://ALPHA.example/ana/sm", bo, id_=1) == to_sessions(ana)


@pytest.mark.parametrize("path", ["rt-an", "rt-anab", "rt-a/na", "rt", "rt-a%6ea", "RT-ANA"])
def test_a_common_prefix_is_no_kinship(rig: Rig, path: str) -> None:
    rig.session("rt-ana")
    bo = rig.session("bo")
    assert type(rig.route("read", f"runtime://{DOMAIN}/{path}", bo, id_=1)) is Refuse


def test_a_parked_session_is_still_the_place(rig: Rig) -> None:
    ana, bo = rig.session("ana"), rig.session("bo")
    rig.state.lifecycle.lost(1, now=NOW)
    assert rig.route("read", runtime_address("ana"), bo, id_=1) == to_sessions(ana)


def test_a_service_and_the_session_verbs_are_found_in_any_spelling(rig: Rig) -> None:
    ana = rig.session("ana")
    assert rig.route("read", SM.upper().replace("DOMAIN", "domain").replace("/SM", "/sm"), ana) is SERVE
    assert rig.route("open", "mn:/session", ana) is SERVE_SESSION


def test_another_domain_is_foreign_and_its_listeners_here_are_served_as_well(rig: Rig) -> None:
    ana, bo = rig.session("ana"), rig.session("bo")
    assert rig.route("read", FAR_ROOM, ana, id_=1) == ToDomain("beta.example")
    rig.listen(bo, f"{FAR_ROOM}/changes")
    assert rig.route("update", f"{FAR_ROOM}/changes", ana) == Refuse(Code.NOT_OWNER)
    rig.listen(bo, f"{FAR_ROOM}/children/")
    assert rig.route("create", f"{FAR_ROOM}/children/m", ana) == Refuse(Code.NOT_OWNER)
    rig.listen(ana, f"{FAR_ROOM}/changes")
    assert rig.route("create", f"{FAR_ROOM}/children/m", ana) == ToDomain("beta.example", (bo,))
    rig.state.listeners.remove(bo, f"{FAR_ROOM}/children/")
    rig.listen(ana, f"{FAR_ROOM}/children/")
    assert rig.route("create", f"{FAR_ROOM}/children/m", ana) == ToDomain("beta.example")


def test_what_a_link_brings_for_its_own_objects_stays_here(rig: Rig) -> None:
    bo = rig.session("bo")
    link = rig.state.links.number("beta.example")
    rig.listen(bo, f"{FAR_ROOM}/changes")
    assert rig.route("update", f"{FAR_ROOM}/changes", link, from_=FAR_ROOM) == to_sessions(bo)


# Who may change an object.


def test_an_object_that_somebody_owns_is_changed_by_its_owner_only(rig: Rig) -> None:
    owner, bo, eve = rig.session("owner"), rig.session("bo"), rig.session("eve")
    rig.state.owners.claim(owner, ROOM)
    rig.listen(bo, f"{ROOM}/changes")
    link = rig.state.links.number("beta.example")
    for type_ in ("update", "create", "delete"):
        assert rig.route(type_, f"{ROOM}/changes", owner, from_=ROOM) == to_sessions(bo)
        for other in (eve, link):
            assert rig.route(type_, f"{ROOM}/changes", other) == Refuse(Code.NOT_OWNER)
    assert rig.route("response", f"{ROOM}/changes", eve) == to_sessions(owner)


def test_an_object_without_owner_is_changed_by_who_takes_its_subscriptions(rig: Rig) -> None:
    reporter, bo, eve = rig.session("reporter"), rig.session("bo"), rig.session("eve")
    rig.listen(bo, f"{ROOM}/changes")
    assert rig.route("update", f"{ROOM}/changes", reporter, from_=ROOM) == Refuse(Code.NOT_OWNER)
    rig.listen(reporter, f"{ROOM}/subscription")
    rig.listen(eve, f"{ROOM}/subscription")
    assert rig.route("update", f"{ROOM}/changes", reporter, from_=ROOM) == to_sessions(bo)
    assert rig.route("update", f"{ROOM}/changes", eve, from_=ROOM) == Refuse(Code.NOT_OWNER)
    assert rig.route("update", f"{ROOM}/changes", eve) == Refuse(Code.NOT_OWNER)


def test_a_domain_changes_its_own_objects_and_no_third_one_s(rig: Rig) -> None:
    bo = rig.session("bo")
    link = rig.state.links.number("beta.example")
    for room in ("comm://gamma.example/room", FAR_ROOM):
        rig.listen(bo, f"{room}/changes")
    assert rig.route("update", f"{FAR_ROOM}/changes", link, from_="hyperty://beta.example/h") == to_sessions(bo)
    assert rig.route("update", "comm://gamma.example/room/changes", link, from_=FAR_ROOM) == Refuse(Code.NOT_OWNER)


def test_reporter_only_writes_can_be_switched_off() -> None:
    rig = Rig(Rules(reporter_only=False))
    bo, eve = rig.session("bo"), rig.session("eve")
    rig.listen(bo, f"{ROOM}/changes")
    assert rig.route("update", f"{ROOM}/changes", eve, from_=ROOM) == to_sessions(bo)


@pytest.mark.parametrize("reporter_only", [True, False])
@pytest.mark.parametrize("part", ["changes", "children/m", "m", "status"])
def test_who_was_taken_off_an_object_says_nothing_to_it_under_either_setting(part: str, *, reporter_only: bool) -> None:
    rig = Rig(Rules(reporter_only=reporter_only))
    ana, bo, eve = (rig.session(name) for name in ("ana", "bo", "eve"))
    rig.state.owners.claim(ana, ROOM)
    rig.listen(bo, f"{ROOM}/{part}")
    hyperty = f"hyperty://{DOMAIN}/eve"
    rig.state.observer_rights.expulsions.expel(ExpulsionRow(ROOM, hyperty, "", runtime_address("ana")))
    for type_ in ("create", "update", "event", "read"):
        assert rig.route(type_, f"{ROOM}/{part}", eve, id_=1, from_=hyperty) == Refuse(Code.NOT_OWNER)


# Users, documents and echoes.


@pytest.mark.parametrize("to", ["user://beta.example/bo", "acct://beta.example/bo", "user-guid://bo",
                                "hyperty-catalogue://catalogue.beta.example/.well-known/hyperty/x"])  # fmt: skip
def test_no_message_goes_to_a_user_or_to_a_document(rig: Rig, to: str) -> None:
    assert rig.route("read", to, rig.session("ana"), id_=1) == Refuse(Code.NO_ROUTE)


def test_by_setting_a_message_to_a_user_reaches_their_live_hyperties() -> None:
    rig = Rig(Rules(resolves_users=True))
    ana, bo = rig.session("ana"), rig.session("bo")
    user = f"user://{DOMAIN}/bo"
    hyperty = f"hyperty://{DOMAIN}/h-bo"
    rig.state.owners.claim(bo, hyperty)
    entry = Changed(user=user, guid="user-guid://G", runtime=runtime_address("bo"), descriptor="d")
    rig.state.registry.register(hyperty, entry, sid=bo, now=NOW)
    for to in (user, "user-guid://G"):
        assert rig.route("create", to, ana, id_=1) == to_sessions(bo)
    assert rig.route("create", user, bo, id_=1) == Refuse(Code.NO_ROUTE)
    assert rig.route("create", "user://beta.example/cy", ana, id_=1) == ToDomain("beta.example")
    assert rig.route("create", f"user://{DOMAIN}/nobody", ana, id_=1) == Refuse(Code.NO_ROUTE)


@pytest.mark.parametrize("nobody", ["user-guid://anonymous", "user://anonymous"])
def test_nobody_is_no_user_even_when_registered(nobody: str) -> None:
    rig = Rig(Rules(resolves_users=True))
    ana, bo = rig.session("ana"), rig.session("bo")
    hyperty = f"hyperty://{DOMAIN}/h-bo"
    rig.state.owners.claim(bo, hyperty)
    entry = Changed(user=nobody, guid=nobody, runtime=runtime_address("bo"), descriptor="d")
    rig.state.registry.register(hyperty, entry, sid=bo, now=NOW)
    assert rig.route("create", nobody, ana, id_=1) == Refuse(Code.NO_ROUTE)


def test_by_setting_a_runtime_hears_itself() -> None:
    rig = Rig(Rules(echoes=True))
    ana, bo = rig.session("ana"), rig.session("bo")
    for sid in (ana, bo):
        rig.listen(sid, f"{ROOM}/children/m")
    assert rig.route("create", f"{ROOM}/children/m", ana) == to_sessions(ana, bo)
    link = rig.state.links.number("beta.example")
    rig.listen(link, f"{ROOM}/children/m")
    assert rig.route("create", f"{ROOM}/children/m", link) == to_sessions(ana, bo)


@pytest.mark.parametrize("look_alike", ["beta.example.evil", "xbeta.example", "alpha.example.evil"])
def test_a_look_alike_of_a_domain_is_another_domain(rig: Rig, look_alike: str) -> None:
    ana = rig.session("ana")
    assert rig.route("read", f"hyperty://{look_alike}/h", ana, id_=1) == ToDomain(look_alike)


@pytest.mark.parametrize("type_", ["read", "create", "execute"])
def test_only_requests_learn_that_nobody_is_there(rig: Rig, type_: str) -> None:
    ana = rig.session("ana")
    nowhere = f"hyperty://{DOMAIN}/nobody"
    assert rig.route(type_, nowhere, ana, id_=1) == Refuse(Code.NO_ROUTE)
    for other, id_ in ((type_, None), ("event", 1), ("response", 1)):
        assert rig.route(other, nowhere, ana, id_=id_) == DROP


def test_a_request_to_an_address_of_one_s_own_is_answered(rig: Rig) -> None:
    ana = rig.session("ana")
    rig.state.owners.claim(ana, ROOM)
    assert rig.route("read", ROOM, ana, id_=1) == Refuse(Code.NO_ROUTE)
    assert rig.route("event", ROOM, ana, id_=1) == DROP
    rig.listen(rig.session("bo"), ROOM)
    assert rig.route("read", ROOM, ana, id_=1) == Refuse(Code.NO_ROUTE)


def test_what_is_no_address_is_refused(rig: Rig) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_HEADER):
        rig.route("read", "two words", rig.session("ana"), id_=1)


# Things.


AGENT = f"thing://{DOMAIN}/agent-4"
MOTION = f"{AGENT}/lamp/events/motion"


@pytest.mark.parametrize(
    ("who", "type_", "id_", "class_", "expected"),
    [
        ("agent", "update", None, "", "observer"),
        ("agent", "create", None, "", "observer"),
        ("agent", "event", None, "event", "observer"),
        ("agent", "read", 1, "", "refused"),
        ("agent", "response", None, "", "dropped"),
        ("node", "read", 1, "", "observer"),
        ("other", "update", None, "rpc", "agent"),
        ("other", "read", 1, "", "agent"),
        ("other", "update", None, "event", "not-owner"),
        ("other", "update", None, "", "not-owner"),
        ("other", "read", 1, "event", "not-owner"),
        ("observer", "update", None, "rpc", "agent"),
    ],
)
@pytest.mark.parametrize("is_heard", [True, False])
def test_what_an_agent_says_of_its_things_is_for_observers_and_what_others_say_for_the_agent(
    rig: Rig, who: str, type_: str, id_: int | None, class_: str, expected: str, *, is_heard: bool
) -> None:
    sids = {"node": 0, **{name: rig.session(name) for name in ("agent", "observer", "other")}}
    rig.state.owners.claim(sids["agent"], AGENT)
    rig.listen(sids["agent"], MOTION)
    if is_heard:
        rig.listen(sids["observer"], MOTION)
    message = parsed(a_message(type_, "plain", MOTION, {"class": class_} if class_ else {}, id_=id_))
    decision = rig.router.decide(message, sids[who], NOW)
    if expected == "observer":
        heard = [sids[name] for name in ("agent", "observer") if name != who and (is_heard or name == "agent")]
        assert decision == (to_sessions(*heard) if heard else DROP)
    elif expected == "agent":
        assert decision == to_sessions(sids["agent"])
    else:
        words = {"refused": Refuse(Code.NO_ROUTE), "dropped": DROP, "not-owner": Refuse(Code.NOT_OWNER)}
        assert decision == words[expected]


@pytest.mark.parametrize(
    ("from_", "class_", "is_heard"),
    [
        (AGENT, "rpc", True),
        (f"{AGENT}/lamp", "rpc", True),
        (f"{AGENT}0", "rpc", False),
        ("plain", "rpc", False),
        ("plain", "event", True),  # that node has judged who it is
    ],
)
def test_what_an_agent_says_at_another_node_of_ours_is_for_observers_here(
    rig: Rig, from_: str, class_: str, *, is_heard: bool
) -> None:
    bo = rig.session("bo")
    rig.listen(bo, MOTION)
    message = parsed(a_message("update", from_, MOTION, {"class": class_} if class_ else {}))
    assert rig.router.decide(message, NODES, NOW) == (to_sessions(bo) if is_heard else DROP)


def test_a_thing_without_an_agent_is_nowhere_although_it_has_observers(rig: Rig) -> None:
    bo, ana = rig.session("bo"), rig.session("ana")
    rig.listen(bo, MOTION)
    assert rig.route("read", MOTION, ana, id_=1) == Refuse(Code.NO_ROUTE)
    assert rig.route("response", MOTION, ana) == DROP


def test_requests_about_a_thing_without_observers_are_for_its_agent_and_events_for_nobody(rig: Rig) -> None:
    agent, ana = rig.session("agent"), rig.session("ana")
    rig.state.owners.claim(agent, AGENT)
    assert rig.route("execute", f"{AGENT}/lamp/actions/on", ana, id_=1) == to_sessions(agent)
    message = parsed(a_message("update", "plain", MOTION, {"class": "event"}, id_=1))
    assert rig.router.decide(message, ana, NOW) == DROP


@pytest.mark.parametrize("class_", ["event", "rpc"])
def test_a_thing_of_another_domain_speaks_to_its_observers_here_and_nobody_else_does(rig: Rig, class_: str) -> None:
    ana, bo = rig.session("ana"), rig.session("bo")
    link = rig.state.links.number("beta.example")
    motion = "thing://beta.example/agent/lamp/events/motion"
    rig.listen(bo, motion)

    def decision(origin: int, from_: str) -> Decision:
        return rig.router.decide(parsed(a_message("update", from_, motion, {"class": class_})), origin, NOW)

    assert decision(link, "thing://beta.example/agent") == to_sessions(bo)
    from_us = Refuse(Code.NOT_OWNER) if class_ == "event" else ToDomain("beta.example")
    assert [decision(origin, "plain") for origin in (ana, bo)] == [from_us, from_us]


# What goes abroad.


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Deliver((1, -1, 2)), Deliver((1, 2))),
        (Deliver((-1,)), DROP),
        (ToDomain("beta.example", (1, -1)), Deliver((1,))),
        (ToDomain("beta.example", (-1,)), DROP),
        (Deliver((-1, NODES - 1, 2)), Deliver((NODES - 1, 2))),
        (ToDomain("beta.example", (NODES,)), Deliver((NODES,))),
        (SERVE, SERVE),
        (DROP, DROP),
        (Refuse(Code.NO_ROUTE), Refuse(Code.NO_ROUTE)),
    ],
)
def test_what_a_guest_sends_stays_here(decision: Decision, expected: Decision) -> None:
    assert router.here_only(decision) == expected


def test_actions_of_sessions_alone_are_parked() -> None:
    rig = Rig()
    bo, ana = rig.session("bo"), rig.session("ana")
    rig.state.owners.claim(bo, AGENT)
    link = rig.state.links.number("beta.example")
    action = parsed(a_message("execute", "plain", f"{AGENT}/lamp/actions/on", {"class": "action"}, id_=1))
    decisions = [rig.router.decide(action, origin, NOW) for origin in (ana, link, 0)]
    assert decisions == [Park(""), to_sessions(bo), to_sessions(bo)]
    assert rig.router.decide(action, ana, NOW, may_park=False) == to_sessions(bo)


def test_what_a_guest_sends_abroad_only_is_refused() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.TRANSIT):
        router.here_only(ToDomain("beta.example"))


@pytest.mark.parametrize(
    ("decision", "class_", "expected"),
    [
        (Deliver((1,)), "action", Park("")),
        (ToDomain("beta.example", (1,)), "action", Park("beta.example")),
        (Refuse(Code.NO_ROUTE), "action", Park("")),
        (SERVE, "action", SERVE),
        (router.FIND_USER, "action", router.FIND_USER),
        (Deliver((1,)), "rpc", Deliver((1,))),
    ],
)
def test_actions_are_parked_but_for_services_and_users_to_be_found(
    decision: Decision, class_: str, expected: Decision
) -> None:
    action = parsed(a_message("execute", "plain", f"{AGENT}/lamp/actions/on", {"class": class_}, id_=1))
    assert router.parked(action, decision) == expected


@pytest.mark.parametrize("end", ["registration", "status"])
@pytest.mark.parametrize("who", ["node", "session", "link"])
def test_news_of_our_registry_about_foreign_hyperties_stay_here(end: str, who: str) -> None:
    rig = Rig(Rules(reporter_only=False))
    bo, ana = rig.session("bo"), rig.session("ana")
    link = rig.state.links.number("gamma.example")
    key = f"hyperty://beta.example/h/{end}"
    rig.listen(bo, key)
    decision = rig.route("update", key, {"node": 0, "session": ana, "link": link}[who])
    stays = who == "link" or (who == "node" and end == "registration")
    assert decision == (to_sessions(bo) if stays else ToDomain("beta.example", (bo,)))


def test_a_user_who_has_to_be_found_first_is_known_by_guid_and_asked_for_by_others_than_the_node() -> None:
    rig = Rig(Rules(resolves_users=True))
    ana = rig.session("ana")
    assert rig.route("create", "user-guid://unheard-of", ana, id_=1) is router.FIND_USER
    assert rig.route("create", "user-guid://unheard-of", 0, id_=1) == Refuse(Code.NO_ROUTE)


# Learned addresses.


def test_a_learned_address_is_good_for_an_hour(rig: Rig) -> None:
    ana, bo = rig.session("ana"), rig.session("bo")
    free = f"hyperty://{DOMAIN}/free"
    rig.router.learned.learn(free, ana, NOW)
    assert rig.route("read", free, bo, id_=1, now=NOW + LEARNED_SECONDS - 1) == to_sessions(ana)
    assert type(rig.route("read", free, bo, id_=1, now=NOW + LEARNED_SECONDS)) is Refuse


def test_a_learned_address_never_overrides_its_owner(rig: Rig) -> None:
    ana, bo, cleo = rig.session("ana"), rig.session("bo"), rig.session("cleo")
    rig.router.learned.learn(canonical_key(ROOM), ana, NOW)
    rig.state.owners.claim(bo, ROOM)
    assert rig.route("read", ROOM, cleo, id_=1) == to_sessions(bo)


def test_the_last_who_used_an_address_is_known_and_an_ended_session_is_forgotten() -> None:
    learned = Learned()
    learned.learn("a", 1, NOW)
    learned.learn("a", 2, NOW)
    learned.learn("b", 1, NOW)
    learned.forget(1)
    assert (learned.find("a", NOW), learned.find("b", NOW)) == (2, None)


@given(
    steps=st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef"), st.integers(1, 3)), max_size=40),
    bound=st.integers(1, 4),
)
def test_what_is_learned_is_what_was_said_last_and_nothing_of_the_ended_is_kept(
    steps: list[tuple[bool, str, int]], bound: int
) -> None:
    learned, model = Learned(), dict[str, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router, "LEARNED_ADDRESSES", bound)
        for is_end, key, sid in steps:
            if is_end:
                learned.forget(sid)
                model = {one: learner for one, learner in model.items() if learner != sid}
            else:
                learned.learn(key, sid, NOW)
                model.pop(key, None)
                model = dict([*model.items(), (key, sid)][-bound:])
            assert {one: learned.find(one, NOW) for one in "abcdef"} == {one: model.get(one) for one in "abcdef"}
            assert {one for keys in learned._of.values() for one in keys} == set(model)
            assert set(learned._of) == set(model.values()), "nothing is kept for a session without names"


def test_what_is_learned_is_bounded_and_the_oldest_goes_first() -> None:
    learned = Learned()
    for number in range(LEARNED_ADDRESSES + 10):
        learned.learn(str(number), number // LEARNED_PER_SESSION, NOW)
    assert learned.find("9", NOW) is None
    assert learned.find("10", NOW) == 0
    assert len(learned._known) == LEARNED_ADDRESSES


def test_who_speaks_in_very_many_names_pushes_out_its_own() -> None:
    learned = Learned()
    learned.learn("of somebody else", 2, NOW)
    for number in range(LEARNED_PER_SESSION + 10):
        learned.learn(str(number), 1, NOW)
        learned.learn("often", 1, NOW)
    assert learned.find("of somebody else", NOW) == 2
    assert learned.find("often", NOW) == 1
    assert learned.find("10", NOW) is None
    assert learned.find("11", NOW) == 1
    assert len(learned._known) == LEARNED_PER_SESSION + 1


def test_the_name_that_a_session_used_longest_ago_makes_room_first() -> None:
    learned = Learned()
    for number in range(LEARNED_PER_SESSION):
        learned.learn(str(number), 1, NOW)
    learned.learn("0", 1, NOW)
    learned.learn("one too many", 1, NOW)
    assert [learned.find(name, NOW) for name in ("0", "1", "2", "one too many")] == [1, None, 1, 1]


# Whatever is asked.

_ADDRESSES = st.sampled_from([
    ROOM, f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/status", FAR_ROOM, f"{FAR_ROOM}/changes", SM,
    "mn:/session", runtime_address("one"), runtime_address("on"), f"{runtime_address('two')}/sm", "plain",
])  # fmt: skip
_TYPES = st.sampled_from(["read", "create", "update", "event", "response", "subscribe"])


@given(
    listens=st.lists(st.tuples(st.sampled_from([1, 2, 3, -1]), _ADDRESSES), max_size=8),
    owner=st.sampled_from([0, 1, 2]),
    type_=_TYPES,
    to=_ADDRESSES,
    origin=st.sampled_from([1, 2, 3, -1, 0]),
    id_=st.sampled_from([None, 1]),
)
def test_every_route_is_whole_has_no_echo_and_at_most_one_copy(
    listens: list[tuple[int, str]], owner: int, type_: str, to: str, origin: int, id_: int | None
) -> None:
    rig = Rig()
    for name in ("one", "two", "three"):
        rig.session(name)
    rig.state.links.number("beta.example")
    for number, url in listens:
        rig.listen(number, url)
    if owner:
        rig.state.owners.claim(owner, ROOM)
    route = rig.route(type_, to, origin, id_=id_)
    numbers = numbers_of(route)
    assert origin not in numbers
    assert len(set(numbers)) == len(numbers)
    assert bool(numbers) >= (type(route) is Deliver)
    assert type(route) is not ToDomain or route.domain not in rig.state.domains
    assert route == rig.route(type_, to, origin, id_=id_)


@given(to=_ADDRESSES, origin=st.sampled_from([1, 2, -1, 0]), holder=st.sampled_from([0, 1, 2]))
def test_actions_of_sessions_are_parked_wherever_their_recipient_is_and_no_others(
    to: str, origin: int, holder: int
) -> None:
    rig = Rig()
    for name in ("one", "two"):
        rig.session(name)
    rig.state.links.number("beta.example")
    if holder:
        rig.state.owners.claim(holder, ROOM)
    action = parsed(a_message("execute", runtime_address("one"), to, {"class": "action"}, id_=1))
    where = rig.router.decide(action, origin, NOW, may_park=False)
    decision = rig.router.decide(action, origin, NOW)
    if origin > 0 and action.is_action and where is not SERVE:
        assert decision == Park(where.domain if isinstance(where, ToDomain) else "")
    else:
        assert decision == where


# A node that stops.


@pytest.mark.parametrize(
    ("to", "type_", "id_", "class_", "expected"),
    [
        (SM, "subscribe", 1, "", SERVE),
        ("mn:/session", "ping", 1, "", SERVE_SESSION),
        (ROOM, "read", 1, "", "refused"),
        (FAR_ROOM, "read", 1, "", "refused"),
        (f"hyperty://{DOMAIN}/nobody", "read", 1, "", "refused"),
        (ROOM, "read", None, "", "owner"),
        (ROOM, "response", 1, "", "owner"),
        (ROOM, "event", 1, "", "owner"),
        (ROOM, "execute", 1, "action", Park("")),
    ],
)
def test_a_node_that_stops_refuses_new_requests_to_others_and_nothing_else(
    rig: Rig, to: str, type_: str, id_: int | None, class_: str, expected: object
) -> None:
    owner, ana = rig.session("owner"), rig.session("ana")
    rig.state.owners.claim(owner, ROOM)
    message = parsed(a_message(type_, "plain", to, {"class": class_} if class_ else {}, id_=id_))
    decision = DrainingRouter(rig.router, 5.0).decide(message, ana, NOW)
    refused = Refuse(Code.DRAINING, {"retryAfter": 5.0})
    assert decision == {"refused": refused, "owner": to_sessions(owner)}.get(str(expected), expected)


def test_what_observers_must_not_get_goes_to_the_reporter_of_ours_or_to_the_domain(rig: Rig) -> None:
    reporter, bo, eve = rig.session("reporter"), rig.session("bo"), rig.session("eve")
    link = rig.state.links.number("beta.example")
    rig.listen(bo, f"{ROOM}/changes")
    assert rig.route("read", f"{ROOM}/changes", eve, id_=1) == Refuse(Code.NO_ROUTE)  # nobody reports it
    rig.listen(reporter, f"{ROOM}/subscription")
    for origin in (eve, bo, link):
        assert rig.route("read", f"{ROOM}/changes", origin, id_=1) == to_sessions(reporter)
    assert rig.route("read", f"{ROOM}/changes", reporter, id_=1) == to_sessions(bo)
    rig.listen(bo, f"{FAR_ROOM}/changes")
    assert rig.route("read", f"{FAR_ROOM}/changes", eve, id_=1) == ToDomain("beta.example")
    assert rig.route("read", f"{FAR_ROOM}/changes", link, id_=1) == Refuse(Code.NO_ROUTE)


def test_services_are_known_before_anybody_who_has_or_hears_their_address(rig: Rig) -> None:
    bo = rig.session("bo")
    rig.listen(bo, SM)
    quick = Router(rig.state, serves=lambda _key: False, services=frozenset({SM}))
    assert quick.decide(parsed(a_message("read", "plain", SM, id_=1)), bo, NOW) is SERVE


def test_an_address_that_only_its_sender_used_is_nowhere_for_it(rig: Rig) -> None:
    ana, bo = rig.session("ana"), rig.session("bo")
    rig.router.learned.learn("plain", ana, NOW)
    assert rig.route("read", "plain", bo, id_=1) == to_sessions(ana)
    assert rig.route("read", "plain", ana, id_=1) == Refuse(Code.NO_ROUTE)


def test_the_first_session_has_its_actions_parked_like_any_other(rig: Rig) -> None:
    first = rig.session("first")
    assert first == 1
    action = parsed(a_message("execute", "plain", f"hyperty://{DOMAIN}/bo", {"class": "action"}, id_=1))
    assert rig.router.decide(action, first, NOW) == Park("")


def test_what_is_said_to_an_agent_of_things_that_others_listen_to_is_heard_by_all(rig: Rig) -> None:
    agent = f"thing://{DOMAIN}/agent"
    ana, bo, cy = rig.session("ana"), rig.session("bo"), rig.session("cy")
    rig.state.owners.claim(ana, agent)
    rig.listen(bo, agent)
    assert rig.route("update", agent, cy, id_=1) == to_sessions(ana, bo)
    assert rig.route("read", agent, cy, id_=1) == to_sessions(ana)


@pytest.mark.parametrize("origin", ["bo", "link"])
def test_an_object_of_no_domain_is_heard_and_asked_here(rig: Rig, origin: str) -> None:
    ana, bo, eve = rig.session("ana"), rig.session("bo"), rig.session("eve")
    number = bo if origin == "bo" else rig.state.links.number("beta.example")
    rig.state.owners.claim(ana, "comm:/room")
    rig.listen(eve, "comm:/room/changes")
    rig.listen(eve, "comm:/room/x")
    assert rig.route("read", "comm:/room/changes", number, id_=1) == to_sessions(ana)
    assert rig.route("update", "comm:/room/changes", ana, from_="comm:/room") == to_sessions(eve)


def test_what_looks_like_a_child_and_has_an_owner_is_an_entity_of_its_own(rig: Rig) -> None:
    ana, bo, cy, eve = (rig.session(name) for name in ("ana", "bo", "cy", "eve"))
    rig.state.owners.claim(ana, ROOM)
    rig.listen(cy, f"{ROOM}/m")
    assert rig.route("update", f"{ROOM}/m", eve, id_=1) == Refuse(Code.NOT_OWNER)
    rig.state.owners.claim(bo, f"{ROOM}/m")
    assert rig.route("update", f"{ROOM}/m", eve, id_=1) == to_sessions(bo, cy)
    assert rig.route("read", f"{ROOM}/m", eve, id_=1) == to_sessions(bo)


def test_each_session_asks_about_an_object_abroad_and_the_node_itself_does_not(rig: Rig) -> None:
    ana, bo = rig.session("ana"), rig.session("bo")
    third = rig.state.links.number("gamma.example")
    rig.listen(bo, f"{FAR_ROOM}/changes")
    for origin in (ana, bo):
        assert rig.route("read", f"{FAR_ROOM}/changes", origin, id_=1) == ToDomain("beta.example")
    assert rig.route("read", f"{FAR_ROOM}/changes", third, id_=1) == Refuse(Code.NO_ROUTE)


def test_who_asks_its_own_address_is_refused_also_where_others_listen(rig: Rig) -> None:
    ana, bo = rig.session("ana"), rig.session("bo")
    rig.state.owners.claim(ana, ROOM)
    for number in (ana, bo):
        rig.listen(number, ROOM)
        assert rig.route("read", ROOM, ana, id_=1) == Refuse(Code.NO_ROUTE)
    assert rig.route("read", ROOM, bo, id_=1) == to_sessions(ana)


def test_questions_about_the_node_s_own_state_are_answered_by_nobody_else() -> None:
    node = f"runtime://{DOMAIN}/mn-1"
    rig = Rig(nodes=[node])
    link, ana, ops = rig.state.links.number("beta.example"), rig.session("ana"), rig.session("ops")
    assert link == -1
    for key in (f"{node}/status", f"{node}/stubs/x/status"):
        rig.listen(ops, key)
        assert rig.route("read", key, ana, id_=1) == Refuse(Code.NO_ROUTE)


@pytest.mark.parametrize("type_", ["read", "execute"])
def test_who_reports_an_object_that_may_be_another_node_s_is_not_asked_by_itself(type_: str) -> None:
    rig = Rig(Rules(shares_domain=True))
    ana, bo = rig.session("ana"), rig.session("bo")
    rig.listen(ana, f"{ROOM}/subscription")
    rig.listen(bo, f"{ROOM}/changes")
    assert rig.route(type_, f"{ROOM}/changes", ana, id_=1) == Refuse(Code.NO_ROUTE)
    assert rig.route(type_, f"{ROOM}/changes", bo, id_=1) == to_sessions(ana)
