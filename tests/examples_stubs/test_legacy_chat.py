"""legacy-chat: users of an old chat service as hyperties, its lines as messages; nothing it says is a trap."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly.limits import ACTIONS_PER_EVENT
from sandbox.core.exchange import Action, ChannelKind, Event, GuestAction, GuestEvent
from tests.examples_stubs.guest import STUBS, Guest
from tests.examples_stubs.link_peer import delivered_messages, message, start_event, statuses

LINES, API = 1, 2
RECONNECT, WHO, CONTINUE = 1, 2, 3


class ChatGuest(Guest):
    def __init__(self, *tokens: str) -> None:
        super().__init__(STUBS / "legacy_chat" / "legacy_chat.wasm")
        self.started = self.call(
            start_event(peer_domain="chat.legacy.example", endpoints=["api", "lines"], tokens=tokens)
        )

    def opened(self) -> list[GuestAction]:
        return self.call(GuestEvent(Event.OPENED, LINES, b""))

    def data(self, text: str) -> list[GuestAction]:
        return self.call(GuestEvent(Event.DATA, LINES, text.encode()))

    def ring(self, timer: int) -> list[GuestAction]:
        return self.call(GuestEvent(Event.TIMER, timer, b""))

    def handed(self, number: int, to: str = "chat://bo@legacy.example", type_: str = "create") -> list[GuestAction]:
        header = {"id": number, "type": type_, "from": "hyperty://a.example/ana", "to": to}
        return self.call(message(number, json.dumps({**header, "body": {"value": "hi\n"}}).encode()))


@pytest.fixture
def live() -> ChatGuest:
    guest = ChatGuest()
    guest.opened()
    return guest


def sent(actions: list[GuestAction]) -> list[str]:
    return [action.payload.decode() for action in actions if action.op == Action.SEND]


def delivered(actions: list[GuestAction]) -> list[dict[str, Any]]:
    return [json.loads(text) for _, text in delivered_messages(actions)]


def fates(actions: list[GuestAction]) -> list[tuple[int, int]]:
    return [(action.op, action.arg) for action in actions if action.op in (Action.ACCEPTED, Action.REFUSED)]


def test_line_is_opened_and_asked_who_is_here() -> None:
    guest = ChatGuest()
    assert [(one.op, one.flags) for one in guest.started] == [(Action.STATUS, 0), (Action.OPEN, ChannelKind.TCP_TLS)]
    actions = guest.opened()
    assert statuses(actions) == ["live"]
    assert sent(actions) == ["WHO\n"]
    assert sent(guest.ring(WHO)) == ["WHO\n"]


def test_with_a_token_the_roster_is_read_over_http_by_the_name_of_the_token() -> None:
    guest = ChatGuest("service")
    [opening] = [one for one in guest.opened() if one.op == Action.OPEN]
    assert (opening.arg, opening.flags) == (API, ChannelKind.HTTP)
    assert json.loads(opening.payload) == {"endpoint": "api", "path": "/who", "token": "service"}
    assert delivered(guest.data("HERE do")) == []  # half a line is here when the answer comes
    actions = guest.call(GuestEvent(Event.HTTP_RESPONSE, API, b'{"status": 200, "headers": {}}\nHERE bo\nHERE carl'))
    assert [one["body"]["value"]["user"] for one in delivered(actions)] == [
        f"chat://{name}@legacy.example" for name in ("bo", "carl")
    ]
    assert [one["from"] for one in delivered(guest.data("ra\n"))] == ["chat://dora@legacy.example"]


def test_refused_roster_is_said_and_asked_for_again() -> None:
    guest = ChatGuest("service")
    guest.opened()
    [log] = guest.call(GuestEvent(Event.HTTP_RESPONSE, API, b'{"status": 401, "headers": {}}\nHERE eve'))
    assert log.op == Action.LOG
    guest.call(GuestEvent(Event.CLOSED, API, b"closed"))
    assert [one.op for one in guest.ring(WHO)] == [Action.OPEN, Action.SET_TIMER]


def test_users_and_rooms_are_registered_and_ended(live: ChatGuest) -> None:
    here, room, gone = delivered(live.data("HERE bo\nROOM bo lobby\nGONE bo\n"))
    registry = "domain://registry.a.example"
    assert [one["to"] for one in (here, room, gone)] == [registry] * 3
    value = here["body"]["value"]
    assert (value["url"], value["user"]) == ("hyperty://chat.legacy.example/bo", "chat://bo@legacy.example")
    assert room["body"]["value"]["url"] == "comm://chat.legacy.example/lobby"
    assert gone["body"] == {"resource": value["url"], "attribute": "status", "value": "disconnected"}
    assert fates(live.handed(1, "chat://bo@legacy.example", "response")) == [(Action.ACCEPTED, 1)]


@pytest.mark.parametrize(
    "to",
    [
        "chat://bo@legacy.example",
        "chat:bo@legacy.example",
        "chat://bo@legacy.example/status",
        "hyperty://chat.legacy.example/bo",
        "user://chat.legacy.example/bo",
    ],
)
def test_message_is_shown_and_answered_when_the_service_says_so(live: ChatGuest, to: str) -> None:
    actions = live.handed(7, to)
    assert sent(actions) == ['SAY bo 7 create hyperty://a.example/ana {"value": "hi\\n"}\n']
    assert fates(actions) == []
    actions = live.data("OK 7\n")
    assert fates(actions) == [(Action.ACCEPTED, 7)]
    [reply] = delivered(actions)
    assert (reply["id"], reply["from"], reply["to"], reply["body"]) == (7, to, "hyperty://a.example/ana", {"code": 200})
    assert live.data("OK 7\nNO 7\nOK 99\n") == []


def test_nothing_is_accepted_before_what_came_earlier(live: ChatGuest) -> None:
    live.handed(1)
    live.handed(2)
    assert fates(live.handed(3, type_="response")) == []
    live.handed(4)
    assert fates(live.data("OK 2\n")) == []
    assert fates(live.data("NO 1\n")) == [(Action.REFUSED, 1), (Action.ACCEPTED, 3)]
    assert fates(live.data("OK 4\n")) == [(Action.ACCEPTED, 4)]


def test_unknown_addresses_and_too_many_messages_are_refused(live: ChatGuest) -> None:
    assert fates(live.handed(1, "domain://msg-node.chat.legacy.example/x")) == [(Action.REFUSED, 1)]
    for number in range(2, 66):
        assert sent(live.handed(number))
    assert fates(live.handed(66)) == [(Action.REFUSED, 66)]


def test_subscriptions_are_granted_by_the_stub(live: ChatGuest) -> None:
    actions = live.handed(1, "domain://msg-node.chat.legacy.example/sm", "subscribe")
    assert delivered(actions)[0]["body"] == {"code": 200}
    assert fates(actions) == [(Action.ACCEPTED, 1)]


def test_words_of_users_stay_words(live: ChatGuest) -> None:
    [said] = delivered(live.data('MSG bo hyperty://a.example/ana say "\\ \x01\t}\n'))
    assert said["body"] == {"value": {"content": 'say "\\   }'}}
    assert (said["from"], said["to"]) == ("chat://bo@legacy.example", "hyperty://a.example/ana")


@pytest.mark.parametrize("name", ["", "x@evil.example", "../x", 'a"b', "Bo", "ü", "a" * 65, "x/y"])
def test_names_that_could_be_taken_for_others_are_left_out(live: ChatGuest, name: str) -> None:
    assert delivered(live.data(f"HERE {name}\nROOM bo {name}\nMSG {name} x y\n")) == []


def test_a_lost_line_is_opened_again_and_everything_comes_again(live: ChatGuest) -> None:
    live.handed(1)
    actions = live.call(GuestEvent(Event.CLOSED, LINES, b"closed"))
    assert statuses(actions) == ["disconnected closed"]
    assert [one.op for one in live.ring(RECONNECT)] == [Action.OPEN]
    live.opened()
    assert sent(live.handed(1))
    assert fates(live.data("OK 1\n")) == [(Action.ACCEPTED, 1)]


def test_a_flood_of_lines_is_read_over_several_calls(live: ChatGuest) -> None:
    count, seen = 4 * ACTIONS_PER_EVENT, 0
    actions = live.data("HERE bo\n" * count)
    for _ in range(count):
        seen += len(delivered(actions))
        if not [one for one in actions if one.op == Action.SET_TIMER and one.arg == CONTINUE]:
            break
        actions = live.ring(CONTINUE)
    assert seen == count


def test_a_line_without_end_ends_the_line(live: ChatGuest) -> None:
    actions: list[GuestAction] = []
    for _ in range(3):
        actions += live.data("x" * 40_000)
    assert statuses(actions) == ["disconnected protocol-error"]
    assert Action.CLOSE in [one.op for one in actions]


words = st.sampled_from(
    [
        "HERE",
        "GONE",
        "ROOM",
        "MSG",
        "OK",
        "NO",
        "bo",
        "hyperty://a.example/ana",
        " ",
        "\n",
        "1",
        "4294967295",
        "\xff",
        '"',
    ]
)
texts = st.lists(words, max_size=30).map("".join) | st.text(max_size=60)


@given(chunks=st.lists(texts, max_size=8), tokens=st.sampled_from([(), ("service",)]))
@settings(max_examples=80, deadline=None)
def test_no_lines_trap(chunks: list[str], tokens: tuple[str, ...]) -> None:
    guest = ChatGuest(*tokens)
    guest.opened()
    for number, text in enumerate(chunks, 1):
        raw = text.encode("utf-8", "replace")
        guest.call(GuestEvent(Event.DATA, LINES, raw), message(number, raw), GuestEvent(Event.HTTP_RESPONSE, API, raw))
        guest.handed(number + 100, text)
        guest.call(GuestEvent(Event.TIMER, number % 4, b""), GuestEvent(Event.CLOSED, number % 3, raw))
        guest.opened()
