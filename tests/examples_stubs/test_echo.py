"""echo: answers by itself."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from tests.examples_stubs.guest import STUBS, Guest
from tests.examples_stubs.link_peer import message, start_event, statuses

ECHO = STUBS / "echo" / "echo.wasm"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def ask(*events: GuestEvent) -> list[GuestAction]:
    guest = Guest(ECHO)
    assert statuses(guest.call(start_event())) == ["created", "live"]
    return guest.call(*events)


@given(
    number=st.integers(1, 2**32 - 1), identifier=st.integers() | st.text(), body=JSON, indent=st.sampled_from([None, 2])
)
def test_message_is_answered_with_its_own_body(
    number: int, identifier: object, body: object, indent: int | None
) -> None:
    asked = {
        "id": identifier,
        "type": "read",
        "from": "hyperty://a.example/1",
        "to": "hyperty://b.example/ü",
        "body": body,
    }
    delivered, accepted = ask(message(number, json.dumps(asked, indent=indent).encode()))
    assert delivered.op == Action.DELIVER
    assert json.loads(delivered.payload) == {
        "id": identifier,
        "type": "response",
        "from": asked["to"],
        "to": asked["from"],
        "body": {"code": 200, "value": body},
    }
    assert (accepted.op, accepted.arg) == (Action.ACCEPTED, number)


def test_message_without_body_is_answered_with_null() -> None:
    delivered, _ = ask(message(1, b'{"from":"a","to":"b","id":"1","type":"ping"}'))
    assert json.loads(delivered.payload)["body"] == {"code": 200, "value": None}


def test_response_is_accepted_and_not_answered() -> None:
    (accepted,) = ask(message(3, b'{"id":"1", "type" : "response","from":"a","to":"b"}'))
    assert (accepted.op, accepted.arg) == (Action.ACCEPTED, 3)


def test_message_without_header_is_refused() -> None:
    (refused,) = ask(message(3, b'{"id":"1"}'))
    assert (refused.op, refused.arg) == (Action.REFUSED, 3)
    assert refused.payload.startswith(b"400 bad-header ")


@given(text=st.binary(max_size=200) | st.text(alphabet='{}[]":,\\ idfromt').map(str.encode))
def test_any_bytes_get_a_fate(text: bytes) -> None:
    assert [action.arg for action in ask(message(3, text)) if action.op in (Action.ACCEPTED, Action.REFUSED)] == [3]


def test_drain_disconnects() -> None:
    assert statuses(ask(GuestEvent(Event.DRAIN, 0, b""))) == ["disconnected drained"]
