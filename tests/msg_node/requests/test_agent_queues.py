"""What agents announce about their queues."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from msg_node.kernel.changes import Change, Journal, Table
from msg_node.kernel.runtime_address import agent_of
from msg_node.requests.core.agent_queues import AgentQueues, QueueRules
from protofly.errors import Code, PeerError

AGENT = "thing://alpha.example/agent-4"
DEFAULTS = QueueRules(600.0, 32)


def queues(journal: Journal | None = None, **options: Any) -> AgentQueues:
    return AgentQueues(journal or Journal(), defaults=DEFAULTS, longest_seconds=7200.0, **options)


@pytest.mark.parametrize(
    ("key", "agent"),
    [
        (f"{AGENT}/lamp-1/actions/switch", AGENT),
        (f"{AGENT}/lamp-1", AGENT),
        (AGENT, AGENT),
        ("thing://alpha.example", "thing://alpha.example"),
        ("hyperty://alpha.example/h-bo", "hyperty://alpha.example/h-bo"),
        ("hyperty://alpha.example/h-bo/x", "hyperty://alpha.example/h-bo/x"),
        ("comm://alpha.example/room/subscription", "comm://alpha.example/room"),
        ("runtime://alpha.example/rt-bo/sm/x", "runtime://alpha.example/rt-bo"),
    ],
)
def test_things_belong_to_the_agent_that_their_address_names(key: str, agent: str) -> None:
    assert agent_of(key) == agent


@pytest.mark.parametrize(
    ("announced", "rules"),
    [
        ({"expires": 60, "max": 4}, QueueRules(60.0, 4)),
        ({"expires": 60}, QueueRules(60.0, 32)),
        ({"max": 1}, QueueRules(600.0, 1)),
        ({"expires": 10**9, "max": 10**9}, QueueRules(7200.0, 1000)),
        ({"expires": 10**400, "max": 10**400}, QueueRules(7200.0, 1000)),
        ({"expires": 0.5, "max": 0.5}, QueueRules(1.0, 1)),
        ({"other": 1}, DEFAULTS),
    ],
)
def test_an_announcement_counts_within_the_operators_bounds(announced: object, rules: QueueRules) -> None:
    ours = queues()
    ours.announce(AGENT, announced)
    assert ours.rules(AGENT) == rules
    assert ours.rules("thing://alpha.example/agent-5") == DEFAULTS


@pytest.mark.parametrize(
    "announced",
    [
        *(7, "x", [1], {"expires": "60"}, {"expires": -1}, {"expires": float("inf")}),
        *({"max": True}, {"max": 0}, {"max": -(10**400)}),
    ],
)
def test_what_is_no_announcement_is_refused_and_changes_nothing(announced: object) -> None:
    journal = Journal()
    ours = queues(journal)
    with pytest.raises(PeerError) as refused:
        ours.announce(AGENT, announced)
    assert refused.value.code is Code.BAD_BODY
    assert journal.take() == []


def test_an_announcement_survives_a_restart_until_it_is_taken_back() -> None:
    journal = Journal()
    queues(journal).announce(AGENT, {"expires": 60, "max": 4})
    rows = {change.key: msgspec.json.encode(change.row) for change in journal.take() if change.row is not None}
    again = queues(journal)
    again.restore(rows)
    assert again.rules(AGENT) == QueueRules(60.0, 4)
    again.announce(AGENT, None)
    assert again.rules(AGENT) == DEFAULTS
    assert journal.take() == [Change(Table.AGENT_QUEUES, AGENT, None)]


def test_no_more_agents_than_allowed_have_queues_of_their_own() -> None:
    ours = queues(max_agents=1)
    ours.announce(AGENT, {"max": 1})
    with pytest.raises(PeerError) as refused:
        ours.announce("thing://alpha.example/agent-5", {"max": 1})
    assert refused.value.code is Code.QUOTA
    ours.announce(AGENT, {"max": 2})
