"""What is not at this node is looked for at the others of the domain, and nothing else is."""

from __future__ import annotations

import pytest

from msg_node.bus.core.cluster_router import ClusterRouter
from msg_node.bus.core.router import DROP, FIND_NODE, SERVE, SERVE_SESSION, Decision, Deliver, Park, Refuse, ToDomain
from msg_node.kernel.links import NODES
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.rules import Rules
from msg_node.node_state import StateParts, make_state
from protofly.errors import Code
from protofly.message import Message
from tests.msg_node.bus.test_fenced_router import NOW, Always
from tests.support.runtime_rig import DOMAIN, FOREIGN, a_message, parsed

HERE = f"hyperty://{DOMAIN}/bo"
NO_ROUTE = Refuse(Code.NO_ROUTE)


class Places:
    """Knows where one address is; notes what it was asked."""

    def __init__(self, place: int | None, *, is_reached: bool = True) -> None:
        self._place = place
        self._is_reached = is_reached
        self.asked: list[str] = []

    def place(self, key: str, /) -> int | None:
        self.asked.append(key)
        return self._place

    def reaches(self, number: int, /) -> bool:
        assert number < 0
        return self._is_reached

    def elsewhere(self, domain: str, /) -> str:
        return {"far.example": "n2"}.get(domain, "")


def decide(
    decision: Decision, place: int | None, to: str = HERE, *, is_reached: bool = True
) -> tuple[Decision, list[str]]:
    places = Places(place, is_reached=is_reached)
    state = make_state(OwnNames.of({DOMAIN, "alias.example"}, ()), StateParts(rules=Rules()))
    router = ClusterRouter(Always(decision), places, places, state)
    return router.decide(parsed(a_message("read", f"hyperty://{DOMAIN}/ana", to, id_=1)), 1, NOW), places.asked


@pytest.mark.parametrize("decision", [NO_ROUTE, DROP, Park("")])
def test_what_is_nowhere_here_goes_where_it_is_or_waits_for_the_directory(decision: Decision) -> None:
    assert decide(decision, -7) == (Deliver((-7,)), [HERE])
    assert decide(decision, 0) == (decision, [HERE])
    assert decide(decision, None) == (FIND_NODE, [HERE])


def test_an_action_for_a_node_that_cannot_be_reached_is_parked_here_and_nothing_else_is() -> None:
    assert decide(Park(""), -7, is_reached=False) == (Park(""), [HERE])
    assert decide(Park("far.example"), None, is_reached=False) == (Park("far.example"), [])
    for decision in (NO_ROUTE, DROP):
        assert decide(decision, -7, is_reached=False) == (Deliver((-7,)), [HERE])


class Noting(Always):
    """Notes whether it was let park."""

    def decide(self, message: Message, origin: int, now: float, *, may_park: bool = True) -> Decision:
        self.may_park = may_park
        return super().decide(message, origin, now, may_park=may_park)


def test_actions_are_parked_unless_it_is_said_that_they_are_not() -> None:
    state = make_state(OwnNames.of({DOMAIN}, ()), StateParts(rules=Rules()))
    inner, places = Noting(SERVE), Places(None)
    router = ClusterRouter(inner, places, places, state)
    message = parsed(a_message("read", f"hyperty://{DOMAIN}/ana", HERE, id_=1))
    router.decide(message, 1, NOW)
    assert inner.may_park
    router.decide(message, 1, NOW, may_park=False)
    assert not inner.may_park


@pytest.mark.parametrize(
    "decision",
    [
        *(Deliver((1,)), SERVE, SERVE_SESSION, ToDomain(FOREIGN), Park(FOREIGN), Refuse(Code.NOT_OWNER)),
        Refuse(Code.NO_ROUTE, {"x": 1}),
    ],
)
def test_what_is_decided_here_is_not_looked_for(decision: Decision) -> None:
    assert decide(decision, None) == (decision, [])


@pytest.mark.parametrize(
    ("to", "is_asked"),
    [
        (HERE, True),
        ("hyperty://alias.example/bo", True),
        ("plain", True),
        (f"comm://{DOMAIN}/room", True),
        (f"comm://{DOMAIN}/room/subscription", True),
        (f"hyperty://{FOREIGN}/bo", False),
        (f"domain://registry.{DOMAIN}", False),
        ("global://registry", False),
        ("mn:/session", False),
        ("user-guid://AbC", False),
        (f"comm://{DOMAIN}/room/changes", False),
        (f"comm://{DOMAIN}/room/children/x/status", False),
        (f"comm://{DOMAIN}/room/children/x", True),
        (f"comm://{DOMAIN}/room/status", True),
        (f"hyperty://{DOMAIN}/bo/registration", True),
    ],
)
def test_only_addresses_that_a_session_of_the_domain_may_have_are_looked_for(to: str, is_asked: bool) -> None:
    decided, asked = decide(NO_ROUTE, None, to)
    assert (decided, len(asked)) == ((FIND_NODE, 1) if is_asked else (NO_ROUTE, 0))


def test_actions_for_another_domain_are_parked_where_its_link_is() -> None:
    assert decide(Park("far.example"), None) == (Deliver((NODES,)), [])
    assert decide(ToDomain("far.example"), None) == (ToDomain("far.example"), [])


@pytest.mark.parametrize("decision", [Deliver((1,)), NO_ROUTE, DROP, SERVE, ToDomain(FOREIGN)])
def test_what_is_claimed_here_and_not_confirmed_is_looked_for_whatever_is_decided(decision: Decision) -> None:
    state = make_state(OwnNames.of({DOMAIN}, ()))
    state.owners.awaits_claims = True
    state.owners.claim(1, HERE)
    router = ClusterRouter(Always(decision), Places(0), Places(0), state)

    def decided(to: str) -> Decision:
        return router.decide(parsed(a_message("read", f"hyperty://{DOMAIN}/ana", to, id_=1)), 2, NOW)

    assert [decided(to) for to in (HERE, f"{HERE}/x", f"{HERE}x")] == [FIND_NODE, FIND_NODE, decision]
    state.owners.confirm([HERE])
    assert decided(HERE) == decision
