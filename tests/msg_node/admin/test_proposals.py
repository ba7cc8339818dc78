"""Who may confirm a change of policies that somebody has proposed."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from msg_node.admin.core.proposals import Proposal, Proposals
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
