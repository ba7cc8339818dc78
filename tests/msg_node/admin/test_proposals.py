"""Who may confirm a change of policies that somebody has proposed."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from msg_node.admin.core import proposals as proposals_module
from msg_node.admin.core.proposals import PROPOSAL_SECONDS, Author, Proposal, Proposals
from msg_node.kernel.changes import Journal
from protofly.errors import Code, PeerError


def proposed(credential: str, machine: str) -> Proposal:
    return Proposal(
        id="p", operation="policy add", arguments="{}", by="ana", credential=credential, at=0.0, machine=machine
    )


@pytest.mark.parametrize(
    ("proposer", "confirmer", "may"),
    [
        (("a", ""), ("b", ""), True),
        (("a", ""), ("a", ""), False),
        (("a", ""), ("", ""), False),
        (("a", "m1"), ("b", ""), True),
        (("a", ""), ("b", "m1"), True),
        (("a", "m1"), ("b", "m1"), True),
        (("a", "m1"), ("a", "m1"), False),
        (("a", "m1"), ("b", "m2"), False),
    ],
)
def test_another_credential_confirms_unless_both_are_users_of_different_machines(
    proposer: tuple[str, str], confirmer: tuple[str, str], *, may: bool
) -> None:
    refused = pytest.raises(PeerError, check=lambda error: error.code is Code.SECOND_PERSON)
    with contextlib.nullcontext() if may else refused:
        proposed(*proposer).check_person(*confirmer)


def test_what_another_node_took_back_waits_here_no_more() -> None:
    proposals = Proposals(Journal())
    proposal = proposed("a", "")
    proposals.follow("p ", msgspec.json.encode(proposal))
    assert list(proposals.waiting(1.0)) == [proposal]
    proposals.follow("p ", None)
    proposals.follow("p ", None)
    assert list(proposals.waiting(1.0)) == []


def change(id_: str, at: float = 0.0, **members: Any) -> Proposal:
    values: dict[str, Any] = {"operation": "policy add", "arguments": "{}", "by": "ana", "credential": "a", **members}
    return Proposal(id=id_, at=at, **values)


def test_a_change_is_found_by_its_name_first_as_it_waits_here_and_until_its_day_is_over() -> None:
    proposals = Proposals(Journal(), "n1")
    for key, one in (("x n0", change("x", 1.0, node="n0")), ("y n1", change("y", 0.0, node="n1"))):
        proposals.follow(key, msgspec.json.encode(one))
    proposals.add(change("x", 2.0), 2.0)
    assert [one.node for one in proposals.find("x", 3.0)] == ["n1", "n0"]
    assert [(one.id, one.at) for one in proposals.waiting(3.0)] == [("y", 0.0), ("x", 1.0), ("x", 2.0)]
    assert [one.id for one in proposals.waiting(PROPOSAL_SECONDS)] == ["x", "x"]
    with pytest.raises(PeerError, check=lambda error: error.code is Code.NOT_REGISTERED):
        proposals.find("y", PROPOSAL_SECONDS)
    proposals.follow_all({"z n1": msgspec.json.encode(change("z", node="n1"))})
    assert [one.id for one in proposals.waiting(3.0)] == ["z"]


def test_a_node_makes_those_of_its_own_that_were_confirmed_elsewhere() -> None:
    proposals = Proposals(Journal(), "n1")
    for id_, node, by in (("a", "n1", "bo"), ("b", "n1", ""), ("c", "n2", "bo")):
        row = change(id_, node=node, confirmed_by=by)
        proposals.follow(f"{id_} {node}", msgspec.json.encode(row))
    assert [one.id for one in proposals.confirmed()] == ["a"]


def test_of_what_was_made_lately_so_much_is_known_that_no_late_row_brings_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proposals_module, "_MADE_KEPT", 2)
    proposals = Proposals(Journal(), "n1")
    rows = {f"{id_} n1": change(id_, node="n1") for id_ in "abc"}
    for key, row in rows.items():
        proposals.follow(key, msgspec.json.encode(row))
        proposals.remove(row)
    for key, row in rows.items():
        proposals.follow(key, msgspec.json.encode(row))
    assert [one.id for one in proposals.waiting(1.0)] == ["a"]


@pytest.mark.parametrize(
    ("members", "is_theirs"),
    [
        ({}, False),
        ({"credential": Author("", "secret").digest}, True),
        ({"confirmed_with": Author("", "secret").digest}, True),
        ({"credential": ""}, False),
        ({"by": "eve"}, True),
        ({"confirmed_by": "eve"}, True),
        ({"arguments": '{"group":"x","member":"eve"}'}, True),
        ({"arguments": '{"group":"x","member":"evelyn"}'}, False),
    ],
)
def test_changes_of_a_person_are_those_with_their_name_or_what_proves_them(
    members: dict[str, Any], *, is_theirs: bool
) -> None:
    proposals = Proposals(Journal())
    proposals.follow("x ", msgspec.json.encode(change("x", **members)))
    assert len(proposals.of_person(lambda text: text == "eve", ["secret", ""])) == is_theirs
