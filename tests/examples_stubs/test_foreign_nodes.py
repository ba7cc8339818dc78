"""The stubs for nodes of other makes, event by event: what they say when a node is silent, deaf, new or hostile."""

from __future__ import annotations

import json

import pytest

from sandbox.core.exchange import FLAG_SNAPSHOT, FLAG_TEXT, Action, Event, GuestAction, GuestEvent
from tests.examples_stubs.guest import STUBS, Guest

STUB_URL = "runtime://a.example/mn-1/protostub/0a1b"
SETTINGS = {
    "abi": 1,
    "our_domain": "a.example",
    "stub_url": STUB_URL,
    "peer_domain": "b.example",
    "endpoints": ["mn"],
    "configuration": {},
}
NAMES = ("vertx_peer", "nomatrix_peer", "nodejs_peer")
HELLO = b'{"type":"create","from":"hyperty://a.example/anna","to":"hyperty://b.example/bo","body":{"value":1}}'


class Peer:
    """One stub, and its node as the test plays it."""

    def __init__(self, name: str, **settings: object) -> None:
        self.name = name
        self.guest = Guest(STUBS / name / f"{name}.wasm")
        self.started = self.guest.call(GuestEvent(Event.START, 0, json.dumps({**SETTINGS, **settings}).encode()))

    def event(self, op: Event, arg: int = 1, payload: bytes = b"", flags: int = 0) -> list[GuestAction]:
        return self.guest.call(GuestEvent(op, arg, payload, flags))

    def data(self, text: str | bytes) -> list[GuestAction]:
        return self.event(Event.DATA, 1, text.encode() if isinstance(text, str) else text, FLAG_TEXT)

    def says(self, message: object) -> list[GuestAction]:
        """The node sends one message."""
        text = json.dumps(message)
        return self.data(f'42["message",{text}]' if self.name == "nodejs_peer" else text)

    def live(self) -> list[GuestAction]:
        """Everything up to `live`; what the last step led to."""
        actions = self.event(Event.OPENED)
        session = {"type": "response", "from": "mn:/session", "to": STUB_URL, "id": 1}
        if self.name == "vertx_peer":
            actions = self.says({**session, "body": {"code": 200, "runtimeToken": "t-1"}})
        elif self.name == "nodejs_peer":
            self.data('0{"sid":"x"}')
            self.data("40")
            actions = self.says({**session, "body": {"code": 200}})
        assert b"live" in states(actions)
        return actions


def states(actions: list[GuestAction]) -> list[bytes]:
    return [action.payload.split(b" ")[0] for action in actions if action.op == Action.STATUS]


def sent(actions: list[GuestAction]) -> list[bytes]:
    return [action.payload for action in actions if action.op == Action.SEND]


def delivered(actions: list[GuestAction]) -> list[dict[str, object]]:
    return [json.loads(action.payload) for action in actions if action.op == Action.DELIVER]


def messages_in(peer: Peer, actions: list[GuestAction]) -> list[dict[str, object]]:
    """The messages in what was sent to the node."""
    texts = sent(actions)
    if peer.name != "nodejs_peer":
        return [json.loads(text) for text in texts]
    return [json.loads(json.loads(text[2:])[1]) for text in texts if text.startswith(b"42")]


@pytest.fixture(params=NAMES)
def peer(request: pytest.FixtureRequest) -> Peer:
    return Peer(request.param)


def test_address_of_the_stub_names_it_at_the_node_unless_the_operator_names_another() -> None:
    request = next(json.loads(one.payload) for one in Peer("nomatrix_peer").started if one.op == Action.OPEN)
    assert request["path"] == "?runtimeURL=runtime%3A%2F%2Fa.example%2Fmn-1%2Fprotostub%2F0a1b"
    other = Peer("nomatrix_peer", configuration={"runtime": "runtime://b.example/gw"})
    request = next(json.loads(one.payload) for one in other.started if one.op == Action.OPEN)
    assert request["path"] == "?runtimeURL=runtime%3A%2F%2Fb.example%2Fgw"


def test_lost_line_is_opened_again_after_a_pause_that_grows(peer: Peer) -> None:
    peer.live()
    pauses = []
    for _ in range(8):
        actions = peer.event(Event.CLOSED, 1, b"closed")
        assert states(actions) == [b"disconnected"]
        pauses.append(max(int.from_bytes(one.payload, "little") for one in actions if one.op == Action.SET_TIMER))
        assert [one.op for one in peer.event(Event.TIMER, 1)] == [Action.OPEN]
    assert 500 <= pauses[0] <= 1000
    assert pauses == sorted(pauses)
    assert pauses[-1] <= 40_000


@pytest.mark.parametrize("name", ["vertx_peer", "nodejs_peer"])
def test_node_that_does_not_answer_is_left(name: str) -> None:
    peer = Peer(name)
    [timer] = [one.arg for one in peer.event(Event.OPENED) if one.op == Action.SET_TIMER]
    actions = peer.event(Event.TIMER, timer)
    assert (states(actions), Action.CLOSE in {one.op for one in actions}) == ([b"disconnected"], True)


def test_nomatrix_connection_that_hears_nothing_any_more_is_made_anew() -> None:
    peer = Peer("nomatrix_peer")
    [echo] = sent(peer.live())
    for _ in range(3):
        peer.data(json.dumps({**json.loads(echo), "body": {"auth": False}}))
        [again] = sent(peer.event(Event.TIMER, 2))
        assert json.loads(again)["to"] == f"{STUB_URL}/echo"
    actions = peer.event(Event.TIMER, 2)  # the last one did not come back
    assert states(actions) == [b"disconnected"]


def test_nodejs_connection_is_kept_by_pings_and_left_without_pongs() -> None:
    peer = Peer("nodejs_peer")
    peer.live()
    for _ in range(3):
        assert sent(peer.event(Event.TIMER, 2)) == [b"2"]
        peer.data("3")
    assert sent(peer.event(Event.TIMER, 2)) == [b"2"]
    assert states(peer.event(Event.TIMER, 2)) == [b"disconnected"]


@pytest.mark.parametrize("packet", ["41", "1"])
def test_nodejs_that_says_goodbye_is_left(packet: str) -> None:
    peer = Peer("nodejs_peer")
    peer.live()
    assert states(peer.data(packet)) == [b"disconnected"]


def test_vertx_that_refuses_the_session_is_left_and_one_that_forgot_it_gets_a_new_one() -> None:
    peer = Peer("vertx_peer")
    peer.event(Event.OPENED)
    answer = {"type": "response", "from": "mn:/session", "to": STUB_URL, "id": 1, "body": {"code": 500, "desc": "no"}}
    assert states(peer.says(answer)) == [b"disconnected"]
    peer = Peer("vertx_peer")
    peer.live()
    peer.event(Event.CLOSED, 1, b"closed")
    peer.event(Event.TIMER, 1)
    [resumed] = messages_in(peer, peer.event(Event.OPENED))
    assert (resumed["type"], resumed["from"]) == ("re-open", f"{STUB_URL}/t-1")
    [anew] = messages_in(peer, peer.says(answer))
    assert (anew["type"], anew["from"]) == ("open", STUB_URL)


def test_addresses_are_subscribed_at_the_node_and_changes_of_objects_at_ours(peer: Peer) -> None:
    peer.live()
    lines = b"-comm://a.example/old\n+hyperty://a.example/h\n+comm://a.example/o\n"
    actions = peer.event(Event.ADDRESSES, 0, lines, FLAG_SNAPSHOT)
    gone, there = messages_in(peer, actions)
    assert (gone["type"], there["type"], there["to"]) == ("unsubscribe", "subscribe", "domain://msg-node.b.example/sm")
    assert gone["body"]["resources"] == ["comm://a.example/old", "comm://a.example/old/subscription"]  # type: ignore[index]
    wanted = ["hyperty://a.example/h", "comm://a.example/o", "comm://a.example/o/subscription"]
    assert there["body"]["resources"] == wanted  # type: ignore[index]
    left, observed = delivered(actions)
    assert (left["type"], left["body"]) == ("unsubscribe", {"resources": ["comm://a.example/old/changes"]})
    assert (observed["from"], observed["to"]) == ("domain://msg-node.b.example/sm", "domain://msg-node.a.example/sm")
    assert observed["body"] == {"resources": ["comm://a.example/o/changes"]}


def test_as_many_short_addresses_as_one_event_holds_stay_within_the_actions_of_a_call(peer: Peer) -> None:
    peer.live()
    lines = "".join(f"+c://a.b/{number:x}\n" for number in range(2_500)).encode()
    actions = peer.event(Event.ADDRESSES, 0, lines, FLAG_SNAPSHOT)
    [subscribed] = messages_in(peer, actions)
    assert len(subscribed["body"]["resources"]) == 5_000  # type: ignore[index]


def test_late_answer_reaches_nobody_and_that_of_another_asker_neither() -> None:
    peer = Peer("vertx_peer")
    peer.live()
    text = HELLO[:-1] + b',"id":"text"}'
    [request] = messages_in(peer, peer.event(Event.MESSAGE, 1, text))
    answer = {"id": request["id"], "type": "response", "from": request["to"], "to": "hyperty://a.example/eve"}
    assert delivered(peer.says(answer)) == []
    answer["to"] = request["from"]
    [came] = delivered(peer.says(answer))
    assert came["id"] == "text"
    assert delivered(peer.says(answer)) == []  # once


def test_id_that_no_node_takes_is_refused_and_the_next_message_passes() -> None:
    peer = Peer("vertx_peer")
    peer.live()
    long = HELLO[:-1] + b',"id":"' + b"x" * 200 + b'"}'
    [refused] = [one for one in peer.event(Event.MESSAGE, 1, long) if one.op == Action.REFUSED]
    assert (refused.arg, refused.payload.split(b" ")[:2]) == (1, [b"400", b"bad-header"])
    assert len(sent(peer.event(Event.MESSAGE, 2, HELLO))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "42",
        '42["message",',
        '42["message","a text"]',
        '42["message",{}]',
        "{",
        "[]",
        "null",
        '{"from":1,"to":2,"type":3}',
        '{"type":"response","from":"hyperty://b.example/bo","to":"hyperty://a.example/anna","id":4294967295}',
        '{"type":"create","to":"x","from":"mn:/session","body":{"code":200}}',
    ],
)
def test_nonsense_of_the_node_leads_to_nothing_but_perhaps_a_delivery(peer: Peer, text: str) -> None:
    peer.live()
    allowed = {Action.DELIVER, Action.LOG}
    assert {one.op for one in peer.data(text)} <= allowed
    assert len(messages_in(peer, peer.event(Event.MESSAGE, 1, HELLO))) >= 1


def test_session_ends_in_good_order(peer: Peer) -> None:
    peer.live()
    actions = peer.event(Event.DRAIN, 0)
    assert states(actions) == [b"disconnected"]
    assert Action.CLOSE in {one.op for one in actions}
    said = messages_in(peer, actions)
    if peer.name == "vertx_peer":
        assert [(one["type"], one["from"]) for one in said] == [("close", f"{STUB_URL}/t-1")]
    assert not any("disconnect" in str(one) for one in said)  # NoMatrix would end its process later
    assert peer.event(Event.TIMER, 1) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("from_", "code", "observes"),
    [
        ("comm://a.example/room/subscription", 200, True),
        ("comm://a.example/room/subscription", "200", True),
        ("comm://a.example/room/subscription", 403, False),
        ("comm://a.example/room/subscription", 100, False),
        ("comm://a.example/room", 200, False),
        ("/subscription", 200, False),
        (f"comm://a.example/{'x' * 600}/subscription", 200, False),
    ],
)
def test_changes_of_an_object_are_asked_for_again_when_its_reporter_accepts_an_observer(
    name: str, from_: str, code: object, observes: bool
) -> None:
    peer = Peer(name)
    peer.live()
    answer = {"id": 5, "type": "response", "from": from_, "to": "hyperty://b.example/bo", "body": {"code": code}}
    actions = peer.event(Event.MESSAGE, 1, json.dumps(answer).encode())
    assert any(b"hyperty://b.example/bo" in one for one in sent(actions))
    asked = [one for one in delivered(actions) if one["type"] == "subscribe"]
    assert len(asked) == int(observes)
    if observes:
        assert asked[0]["to"] == "domain://msg-node.a.example/sm"
        assert asked[0]["body"] == {"resources": ["comm://a.example/room/changes"]}
