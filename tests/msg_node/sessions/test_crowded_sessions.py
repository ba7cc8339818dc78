"""All places for sessions are taken: who gives way to whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from msg_node.kernel.changes import Journal
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.proof import ANONYMOUS, Proven
from msg_node.kernel.session import Opened, Opener, Session
from msg_node.sessions.core.transitions import SessionTransitions
from tests.support.state_rig import DOMAIN, StateRig, body_of

PROVEN = Proven("somebody")


def with_sessions(networks: str, proven: Proven = ANONYMOUS) -> tuple[SessionTransitions, list[Session]]:
    """One session after the other, each from a network of one letter."""
    transitions, made = SessionTransitions(Journal()), []
    for number, network in enumerate(networks, 1):
        name = f"runtime://a.example/rt-{number}"
        opened = transitions.open(Opener(name, name, number, proven), f"token-{number}", now=0)
        assert isinstance(opened, Opened), opened
        session = transitions.sessions.get(opened.sid)
        assert session is not None
        transitions.sessions.crowds.move(session, network)
        made.append(session)
    return transitions, made


@pytest.mark.parametrize(
    ("taken", "network", "gives_way"),
    [
        ("eeee", "h", 1),
        ("heee", "h", 2),
        ("hhee", "h", None),
        ("hheee", "h", None),  # else the two would take turns with one place
        ("heeh", "x", 1),  # of networks with equally many the one that was there first
        ("hhe", "e", None),
        ("abcd", "x", None),
        ("eeee", "e", None),
        ("", "x", None),
        ("eeee", None, 1),
        ("abcc", None, 3),
        ("abcd", None, None),
    ],
)
def test_the_network_with_most_gives_way_to_one_that_goes_on_having_fewer(
    taken: str, network: str | None, gives_way: int | None
) -> None:
    transitions, _ = with_sessions(taken)
    session = transitions.sessions.crowds.giving_way(network)
    assert (None if session is None else session.sid) == gives_way


@pytest.mark.parametrize("network", ["h", None])
def test_sessions_with_a_credential_give_way_to_nobody(network: str | None) -> None:
    transitions, _ = with_sessions("eee", PROVEN)
    assert transitions.sessions.crowds.giving_way(network) is None


def test_a_session_counts_where_its_runtime_was_last_and_nowhere_once_it_has_proved_itself() -> None:
    transitions, (first, second, third) = with_sessions("eee")
    crowds = transitions.sessions.crowds
    crowds.move(first, "f")
    assert crowds.giving_way("h") is second
    crowds.move(first, "e")
    assert crowds.giving_way("h") is second
    for session in (first, second):
        transitions.sessions.prove(session, PROVEN)
    assert crowds.giving_way("h") is None
    transitions.sessions.prove(first, ANONYMOUS)
    assert crowds.giving_way("h") is third


def test_a_session_that_has_ended_counts_nowhere() -> None:
    transitions, (first, second, third) = with_sessions("eee")
    transitions.close(first.sid)
    assert transitions.sessions.crowds.giving_way("h") is second
    transitions.close(second.sid)
    assert transitions.sessions.crowds.giving_way("h") is None
    transitions.close(third.sid)
    assert transitions.sessions.crowds.giving_way(None) is None
    assert transitions.sessions.crowds._networks == {}


def test_the_last_place_is_taken_before_anybody_gives_way() -> None:
    rig = StateRig(credentials=[Credential(digest_of("ana"), f"runtime://{DOMAIN}/ana")])
    rig.state.transitions.rules = replace(rig.state.transitions.rules, max_sessions=3)
    numbers = [rig.open(name, place)[0] for place, name in enumerate("abc", 1)]
    assert [rig.state.sessions.get(number) is not None for number in numbers] == [True, True, True]
    refused = rig.session_verb("open", f"runtime://{DOMAIN}/d", 4)
    assert body_of(refused.replies[0])["code"] == 503
    rig.open("ana", 5, {"credentials": {"token": "ana"}})
    assert [rig.state.sessions.get(number) is not None for number in numbers] == [False, True, True]
