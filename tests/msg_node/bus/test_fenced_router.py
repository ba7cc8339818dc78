"""A node whose name others may take promises nothing: requests and actions are refused, all else goes on."""

from __future__ import annotations

import pytest

from msg_node.bus.core.fenced_router import FencedRouter, fenced
from msg_node.bus.core.router import DROP, SERVE, SERVE_SESSION, Decision, Decisions, Deliver, Park, Refuse
from protofly.errors import Code
from protofly.message import Message
from tests.msg_node.bus.test_router import ROOM
from tests.support.runtime_rig import DOMAIN, a_message, parsed

NOW = 1_000_000.0


class Always(Decisions):
    """Decides the same about everything."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def decide(self, message: Message, origin: int, now: float, *, may_park: bool = True) -> Decision:  # noqa: ARG002
        return self.decision


def message(type_: str, *, id_: object = None, class_: str = "") -> Message:
    return parsed(a_message(type_, f"hyperty://{DOMAIN}/ana", ROOM, {"class": class_} if class_ else {}, id_=id_))


@pytest.mark.parametrize("decision", [Deliver((1,)), SERVE, DROP, Park(""), Refuse(Code.NO_ROUTE)])
@pytest.mark.parametrize(
    ("asked", "goes"),
    [
        (message("read", id_=1), False),
        (message("execute", class_="action"), False),
        (message("execute", id_=1, class_="action"), False),
        (message("read"), True),
        (message("event", id_=1), True),
        (message("response", id_=1), True),
    ],
)
def test_what_promises_something_is_refused_with_the_time_to_wait(
    decision: Decision, asked: Message, goes: bool
) -> None:
    decided = FencedRouter(Always(decision), 7.5).decide(asked, 1, NOW)
    assert decided == (decision if goes else Refuse(Code.STATE_UNAVAILABLE, {"retryAfter": 7.5}))


def test_what_sessions_say_about_themselves_goes_on() -> None:
    assert FencedRouter(Always(SERVE_SESSION), 7.5).decide(message("open", id_=1), 1, NOW) is SERVE_SESSION


def test_a_router_is_fenced_once_and_comes_back() -> None:
    router = Always(DROP)
    assert fenced(router, None) is router
    inside = fenced(router, 5.0)
    assert isinstance(inside, FencedRouter)
    assert fenced(inside, 6.0) is inside
    assert fenced(inside, None) is router
