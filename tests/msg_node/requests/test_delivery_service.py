"""The services `delivery` and `inbox` under whatever strangers send: an answer with a code, no fault, no change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msg_node.requests.core.inbox import Notice
from msg_node.requests.core.parked import Sender, Submission
from protofly import codec
from tests.support.state_house import DOMAIN, StateHouse

DELIVERY = f"domain://msg-node.{DOMAIN}/delivery"
INBOX = f"domain://msg-node.{DOMAIN}/inbox"
OWNER = f"runtime://{DOMAIN}/rt-owner"
AGENT = f"thing://{DOMAIN}/agent-4"

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just("d-1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["resource", "resources", "criteria", "page", "requestId", "status", "to", "from"])
BODIES = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=3), max_size=4)


def a_house() -> StateHouse:
    """One open request and one inbox entry of an owner."""
    house = StateHouse()
    house.open("rt-owner", 1)
    sender = Sender(OWNER)
    request = codec.build(id=1, type="execute", from_=OWNER, to=f"{AGENT}/lamp/actions/x", body={"class": "action"})
    books = house.state.delivery
    entry = books.parking.submit(Submission(request, AGENT, sender, "d-1", 1e6), house.now)
    books.parking.store(entry)
    books.inboxes.deposit(Notice(OWNER, sender, "d-2", AGENT, b'{"code":200,"status":"completed"}', True), 1.0)
    return house


@pytest.mark.parametrize("to", [DELIVERY, INBOX])
@settings(max_examples=200, deadline=None)
@given(type_=st.sampled_from(["read", "delete", "update", "execute"]), body=BODIES)
def test_strangers_get_a_code_for_anything_and_change_nothing(to: str, type_: str, body: dict[str, object]) -> None:
    house = a_house()
    sid, _ = house.open("rt-eve", 2)
    reply = house.reply(sid, to, type_, body)
    assert reply["code"] in (200, 400, 404, 405, 413)
    assert reply.get("value") in (None, [], {"acknowledged": 0})
    assert len(house.state.delivery.parking) == 1
    assert len(house.state.delivery.inboxes) == 1


@settings(max_examples=200, deadline=None)
@given(type_=st.sampled_from(["read", "delete"]), body=BODIES)
def test_the_owner_gets_a_code_for_anything_as_well(type_: str, body: dict[str, object]) -> None:
    house = a_house()
    sid = house.state.sessions.by_runtime(OWNER)
    assert sid is not None
    for to in (DELIVERY, INBOX):
        assert house.reply(sid, to, type_, body)["code"] in (200, 400, 404, 405, 409, 413)
